"""MKL's sparse routines as they are, without its inspector: what users call who were told nothing (WACO's MKL-Naive)."""

from tensorwise.device.libraries.mkl import MklKernel


class UntunedMkl(MklKernel):
    """SpMV and SpMM on the matrix in CSR, with neither hints nor analysis."""

    name = "mkl_untuned"
    inspects = False
