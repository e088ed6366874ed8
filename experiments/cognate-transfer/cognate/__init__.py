"""What experiments/cognate-transfer does."""
