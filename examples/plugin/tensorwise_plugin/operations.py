"""An operation is a line of einsum text; the sparse operand is called A."""

SCALED_SPMM = "C[i,j] += A[i,k] * B[k,j] * D[i]"
"""SpMM of which each row of the result is scaled."""
