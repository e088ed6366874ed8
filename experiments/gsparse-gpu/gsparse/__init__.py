"""G-Sparse's experiments on a GPU."""
