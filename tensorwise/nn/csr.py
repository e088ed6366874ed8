"""Reads matrices of PyTorch and SciPy as the three tensors of a CSR matrix; gradients of the values are preserved."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from tensorwise.errors import InputError

FLOAT_DTYPES: Final = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_COMPRESSED: Final[dict[torch.layout, Callable[..., Any]]] = {
    torch.sparse_csc: sp.csc_array,
    torch.sparse_bsr: sp.bsr_array,
}
"""Layouts that SciPy converts to CSR, with the SciPy class of the same layout."""
SPARSE_KINDS: Final = (
    "a torch tensor of layout sparse_csr, sparse_csc, sparse_coo or sparse_bsr, or a SciPy array"
)


@final
@dataclass(frozen=True, eq=False)
class CsrTensors:
    """The tensors of a CSR matrix.

    Attributes:
        crow_indices: (rows + 1,) integers.
        col_indices: (nnz,) integers.
        values: (nnz,) float32, float64, bfloat16 or float16.
        shape: number of rows and of columns.
    """

    crow_indices: Tensor
    col_indices: Tensor
    values: Tensor
    shape: tuple[int, int]

    @classmethod
    def of(cls, matrix: Any, what: str = "A") -> "CsrTensors":
        """Read a sparse matrix. CSR is read where it lies; other layouts are converted.

        Args:
            matrix: a sparse tensor of torch (CSR, CSC, COO, BSR) or a SciPy sparse array or matrix.
            what: its name in messages.

        Returns:
            The tensors. ``values`` is a differentiable function of the values of a torch tensor.

        Raises:
            InputError: it is no such matrix of two dimensions, or its values are not floating-point numbers of 16, 32 or
                64 bits.
        """
        if sp.issparse(matrix):
            return cls._from_scipy(matrix, what)
        if not isinstance(matrix, Tensor) or matrix.layout is torch.strided:
            raise InputError(f"{what}: expected {SPARSE_KINDS}, got {_described(matrix)}")
        if matrix.ndim != 2:
            raise InputError(
                f"{what}: expected 2 dimensions, got {matrix.ndim}; multiply one matrix at a time"
            )
        return cls._from_torch(matrix, what)

    @classmethod
    def _from_scipy(cls, matrix: Any, what: str) -> "CsrTensors":
        if matrix.ndim != 2:
            raise InputError(f"{what}: expected 2 dimensions, got {matrix.ndim}")
        if np.dtype(matrix.dtype).name not in ("float16", "float32", "float64"):
            raise InputError(
                f"{what}: expected float32 or float64 values, got {matrix.dtype}; convert with A.astype('float32')"
            )
        csr = matrix.tocsr()
        crow, col, values = (torch.from_numpy(_writable(one)) for one in (csr.indptr, csr.indices, csr.data))
        return cls(crow, col, values, (int(csr.shape[0]), int(csr.shape[1])))

    @classmethod
    def _from_torch(cls, matrix: Tensor, what: str) -> "CsrTensors":
        rows, columns = matrix.shape
        if matrix.dtype not in FLOAT_DTYPES:
            raise InputError(
                f"{what}: expected values of float32, float64, bfloat16 or float16, got {matrix.dtype}; "
                "convert with A.to(torch.float32)"
            )
        if matrix.layout is torch.sparse_csr:
            return cls(matrix.crow_indices(), matrix.col_indices(), matrix.values(), (rows, columns))
        if matrix.layout is torch.sparse_coo:
            merged = matrix.coalesce()
            at_rows, at_columns = merged.indices()
            counts = torch.bincount(at_rows, minlength=rows)
            pointers = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
            return cls(pointers, at_columns, merged.values(), (rows, columns))
        if matrix.layout not in _COMPRESSED:
            raise InputError(f"{what}: expected {SPARSE_KINDS}, got layout {matrix.layout}")
        by_columns = matrix.layout is torch.sparse_csc
        pointers = matrix.ccol_indices() if by_columns else matrix.crow_indices()
        indices = matrix.row_indices() if by_columns else matrix.col_indices()
        values = matrix.values()
        # SciPy converts the numbers of the values instead of the values, which keep their gradients.
        numbers = np.arange(1, values.numel() + 1).reshape(tuple(values.shape))
        csr = _COMPRESSED[matrix.layout](
            (numbers, indices.cpu().numpy(), pointers.cpu().numpy()), shape=(rows, columns)
        ).tocsr()
        order = torch.from_numpy(csr.data - 1).to(values.device)
        crow, col = (torch.from_numpy(one) for one in (csr.indptr, csr.indices))
        return cls(crow, col, values.reshape(-1)[order], (rows, columns))

    def to_tensor(self, values: Tensor) -> Tensor:
        """Return the torch tensor of layout sparse_csr with this pattern and ``values``, which keep their gradients."""
        pattern = (one.to(values.device) for one in (self.crow_indices, self.col_indices))
        made: Tensor = torch.sparse_csr_tensor(*pattern, values, self.shape, check_invariants=False)
        return made


def dense_to_csr(dense: Tensor, pattern: Tensor) -> CsrTensors:
    """Return the entries of ``dense`` where ``pattern`` (bool, of the same shape) is true."""
    at_rows, at_columns = pattern.nonzero(as_tuple=True)
    counts = torch.bincount(at_rows, minlength=pattern.shape[0])
    pointers = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    rows, columns = pattern.shape
    return CsrTensors(pointers, at_columns, dense[at_rows, at_columns], (rows, columns))


def _writable(array: np.ndarray) -> np.ndarray:
    """The same, or a copy where it is read-only: a tensor of torch can be written to."""
    return array if array.flags.writeable else array.copy()


def _described(given: Any) -> str:
    if isinstance(given, Tensor):
        return f"a dense tensor of shape {tuple(given.shape)}; convert with A.to_sparse_csr()"
    return f"{type(given).__name__}"
