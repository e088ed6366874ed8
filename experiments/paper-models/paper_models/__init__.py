"""Cost models and networks of papers, which Tensorwise's own are compared with."""
