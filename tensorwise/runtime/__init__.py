"""Kernels that run: generated, launched on a GPU or interpreted, and how operands are packed for them."""
