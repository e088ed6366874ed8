"""Published measurements as selection problems."""
