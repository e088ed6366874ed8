"""Row pointers of a matrix and the rows of its entries, each from the other."""

import numpy as np

from tensorwise.tensor.primitives import index_dtype


def rows_of(pointers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Row of every entry (nnz,) from valid row pointers (rows + 1,)."""
    rows, nnz = len(pointers) - 1, int(pointers[-1])
    if nnz < 5 * rows:  # short rows: count the borders before each entry (``repeat`` costs 10 ns a row)
        return np.cumsum(np.bincount(pointers[1:-1], minlength=nnz + 1)[:nnz], dtype=dtype)
    return np.repeat(np.arange(rows, dtype=dtype), np.diff(pointers))


def pointers_of(rows: np.ndarray, count: int) -> np.ndarray:
    """Row pointers (count + 1,) from sorted, valid row indices (nnz,)."""
    pointers = np.zeros(count + 1, index_dtype(len(rows)))
    np.cumsum(np.bincount(rows, minlength=count), out=pointers[1:])
    return pointers
