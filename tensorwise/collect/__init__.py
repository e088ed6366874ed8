"""Collection: jobs, the executors that run them, and the drivers that record their results."""
