"""Lowering: an einsum with formats and a schedule becomes loops, and loops become C, CUDA or what an interpreter runs."""
