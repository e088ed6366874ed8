"""Tasks: dense computations that Apache TVM cuts out of neural networks, how they are scheduled, and what they take."""
