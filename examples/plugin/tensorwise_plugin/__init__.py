"""What a package of your own can add to Tensorwise, one module each."""
