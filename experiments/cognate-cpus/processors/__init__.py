"""What experiments/cognate-cpus does."""
