"""The arrays of a SciPy matrix, and the entries of the matrix M of a product ``M @ x``.

A search only knows products ``M @ x``. M is the array, or its transpose if the operation's name ends in ``_t``. If a CSR
array is multiplied as it is, or a CSC array transposed, its entries already are in row-major order.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.program.workload import Workload, workload
from tensorwise.tensor.canonical import is_strict, matrix_pointers
from tensorwise.tensor.checks import checked_indices, checked_pointers, coordinate_dtype, refuse_entry
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.pointers import rows_of
from tensorwise.tensor.primitives import index_dtype

REQUEST: Final = "request.json"
ARRAYS: Final = ("data", "indices", "indptr")
GIVEN_OPERATIONS: Final = ("spmv", "spmm", "spmv_t", "spmm_t")
DTYPES: Final = (np.dtype(np.float32), np.dtype(np.float64))


@final
@dataclass(frozen=True, eq=False)
class GivenArrays:
    """The arrays of a CSR or CSC matrix, and how it is multiplied.

    Attributes:
        by_column: whether it is CSC.
        shape: of the matrix.
        data: (entries,) float32 or float64.
        indices: (entries,) int32 or int64, in any order within a line, possibly repeated.
        indptr: (lines + 1,) int32 or int64.
        operation: one of `GIVEN_OPERATIONS`; those with ``_t`` multiply by the transpose.
        columns: of the dense operand; None: it is a vector.
    """

    by_column: bool
    shape: tuple[int, int]
    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    operation: str
    columns: int | None

    @classmethod
    def of(cls, array: Any, operation: str, columns: int | None) -> Self:
        """Return those of a SciPy array or matrix.

        Raises:
            InputError: it is neither CSR nor CSC, its values are neither float32 nor float64, or there is no such operation.
        """
        if operation not in GIVEN_OPERATIONS:
            raise InputError(f"operation is {operation!r}; expected one of {', '.join(GIVEN_OPERATIONS)}")
        if operation.startswith("spmv") != (columns is None):
            raise InputError(f"{operation} is given with columns={columns}; only spmm has columns")
        if getattr(array, "format", None) not in ("csr", "csc"):
            raise InputError(f"expected a CSR or CSC array, got {type(array).__name__}")
        if array.dtype not in DTYPES:
            raise InputError(f"values are {array.dtype}; packed kernels exist for float32 and float64")
        shape = int(array.shape[0]), int(array.shape[1])
        return cls(array.format == "csc", shape, array.data, array.indices, array.indptr, operation, columns)

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.data.nbytes + self.indices.nbytes + self.indptr.nbytes

    @property
    def is_gather(self) -> bool:
        """Whether the arrays are the rows of M: its product in place computes an output a line."""
        return self.by_column == self.operation.endswith("_t")

    @cached_property
    def stored(self) -> "StoredEntries":
        """The entries of M."""
        rows, columns = self.shape if not self.operation.endswith("_t") else self.shape[::-1]
        return stored_entries(self, rows, columns)

    @cached_property
    def workload(self) -> Workload:
        """The product ``M @ x`` as a workload."""
        operation = self.operation.removesuffix("_t")
        return workload(operation, self.stored.entries, n=self.columns)


@final
@dataclass(frozen=True, eq=False)
class StoredEntries:
    """Entries, and where they come from.

    Attributes:
        entries: sorted, without duplicates.
        order: which of the given elements comes e-th, (given,); None: they stay as they are.
        starts: where in ``order`` those begin that each entry is the sum of, (entries + 1,); None: there are no duplicates.
    """

    entries: Entries
    order: np.ndarray | None = None
    starts: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of ``order`` and ``starts``."""
        return sum(array.nbytes for array in (self.order, self.starts) if array is not None)


def stored_entries(given: GivenArrays, rows: int, columns: int) -> StoredEntries:
    """Return the entries of M, of ``rows`` and ``columns``; arrays are shared where they are right as they lie.

    Raises:
        InputError: indices lie outside the shape, or the arrays do not fit each other.
    """
    lines, extent = (rows, columns) if given.is_gather else (columns, rows)
    source = "csc array" if given.by_column else "csr array"
    pointers = checked_pointers(given.indptr, lines, len(given.indices), source, "line")
    if len(given.data) != len(given.indices):
        raise InputError(f"{source}: {len(given.indices)} indices, but {len(given.data)} values")
    dtype = coordinate_dtype((rows, columns))
    minor, outside = _checked(given.indices, extent, dtype)
    if outside is not None:
        refuse_entry(source, (lines, extent), outside, (0, given.indices[outside]), given.data[outside])
    major = rows_of(pointers, dtype)
    if given.is_gather and is_strict(major, minor):
        values = given.data.view()
        return StoredEntries(Entries.of_checked((rows, columns), (major, minor), values, pointers, None))
    return _sorted(given, (rows, columns), major, minor, pointers)


def _checked(indices: np.ndarray, extent: int, dtype: np.dtype) -> tuple[np.ndarray, int | None]:
    """Return indices of ``dtype``, without a copy where they are so, and the first that is outside."""
    if indices.dtype != dtype or not indices.flags.c_contiguous or not indices.dtype.isnative:
        return checked_indices(indices, extent, dtype, "array", "minor")
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= extent):
        return indices, int(np.argmax((indices < 0) | (indices >= extent)))
    return indices.view(), None


def _sorted(
    given: GivenArrays, shape: tuple[int, int], major: np.ndarray, minor: np.ndarray, pointers: np.ndarray
) -> StoredEntries:
    """Sort entries row-major and sum duplicates; counting sorts keep the order in which they are given."""
    from scipy.sparse import csr_array

    count = len(minor)
    numbers = np.arange(count, dtype=index_dtype(count))
    extent = shape[1] if given.is_gather else shape[0]
    by_minor: Any = csr_array((numbers, minor, pointers), shape=(len(pointers) - 1, extent)).tocsc()
    if given.is_gather:  # sorted by column, and now by row: columns ascend in each row
        by_minor = by_minor.tocsr()
        order = by_minor.data
        rows, columns = major, minor[order]
    else:
        order = by_minor.data
        rows, columns = minor[order], major[order]
    equal = (rows[1:] == rows[:-1]) & (columns[1:] == columns[:-1])
    starts = None
    if equal.any():
        first = np.concatenate(([0], np.flatnonzero(~equal) + 1))
        starts = np.append(first, count).astype(order.dtype)
        rows, columns = rows[first], columns[first]
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.add.reduceat(given.data[order].astype(np.float64), first).astype(given.data.dtype)
    else:
        values = given.data[order]
    entries = Entries.of_checked(shape, (rows, columns), values, matrix_pointers(shape, rows), None)
    return StoredEntries(entries, order, starts)


def write_request(folder: Path, given: GivenArrays, **told: float) -> None:
    """Write arrays for another process, and numbers that it needs. Raises OSError where there is no room."""
    for name in ARRAYS:
        np.save(folder / f"{name}.npy", getattr(given, name), allow_pickle=False)
    described = {name: getattr(given, name) for name in ("by_column", "shape", "operation", "columns")}
    (folder / REQUEST).write_text(json.dumps({**described, **told}))


def read_request(folder: Path) -> tuple[GivenArrays, Mapping[str, Any]]:
    """Return what `write_request` wrote; the arrays are mapped. Raises OSError or ValueError where it is not there."""
    told = json.loads((folder / REQUEST).read_text())
    arrays = (np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ARRAYS)
    data, indices, indptr = (np.asarray(array) for array in arrays)
    shape = (told["shape"][0], told["shape"][1])
    return GivenArrays(
        told["by_column"], shape, data, indices, indptr, told["operation"], told["columns"]
    ), told
