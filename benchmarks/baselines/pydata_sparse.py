"""pydata/sparse: a GCXS matrix times a vector or matrix, on one thread."""

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.program.workload import Workload
from tensorwise.runtime.kernel import BoundKernel

from .rows import Rows, kind_of, rows_of


class PydataSparseKernel(LibraryKernel):
    """``sparse.GCXS @ array`` (SpMV, SpMM). Its SDDMM would form the whole dense product first."""

    name = "pydata_sparse"
    package = "sparse"

    @classmethod
    def installed(cls) -> bool:
        """Whether sparse is found (it is not imported)."""
        return importlib.util.find_spec("sparse") is not None

    def why_not(self, workload: Workload) -> str | None:
        """SpMV and SpMM."""
        if kind_of(workload) != "spmm":
            return "pydata/sparse has products of a sparse matrix and a dense array only"
        return None if workload.entries.nnz else "pydata/sparse fails on matrices without entries"

    def convert(self, workload: Workload, threads: int) -> BoundKernel:
        """Wrap the rows in a GCXS array; ``threads`` is ignored."""
        import sparse

        rows = rows_of(workload)
        shape = (len(rows.pointers) - 1, workload.entries.shape[1])
        parts = (rows.values, np.asarray(rows.columns[0]), rows.pointers)
        return _Bound(sparse.GCXS(parts, shape=shape, compressed_axes=(0,)), rows)


class _Bound(BoundKernel):
    def __init__(self, matrix: Any, rows: Rows) -> None:
        self._matrix, self._rows = matrix, rows
        self.bytes_held = int(matrix.nbytes)

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Multiply, and copy the result, which the library always allocates."""
        (matrix,) = self._rows.matrices(operands)
        np.copyto(out, (self._matrix @ matrix).reshape(out.shape))
