"""GEMM in several versions, and inputs over the ranges of MLCD's section IV-B."""
