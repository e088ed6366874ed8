"""cuSPARSE is SciPy here."""

import numpy as np
import scipy.sparse as sp


class csr_matrix:  # noqa: N801 - as CuPy calls it
    def __init__(self, parts, shape):
        self.matrix = sp.csr_matrix(tuple(map(np.asarray, parts)), shape=shape)

    def __matmul__(self, other):
        import cupy

        return cupy.asarray(self.matrix @ np.asarray(other))
