"""The best plain SciPy and NumPy can do, on one thread.

One dense factor (SpMV, SpMM, TTV, TTM, transposed or not): SciPy's compiled CSR product on the
matricised sparse operand. Several factors (SDDMM, MTTKRP): gather the factors' rows for a chunk of
entries that fits the cache, multiply them, then sum by entry (SDDMM) or by a CSR product with one
column an entry (MTTKRP).

SciPy's ``csr_matvecs`` is called directly where it can be imported: it is the routine behind
``A @ B`` and adds into an array that is given, so that no copy of the output is charged to SciPy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.device.libraries.contraction import Contraction, contraction
from tensorwise.program.workload import Workload
from tensorwise.runtime.kernel import BoundKernel

CHUNK_BYTES = 1 << 20
"""Bytes of one gathered factor: enough to hide the calls of a chunk, and few enough for a shared cache."""


class ScipyKernel(LibraryKernel):
    """SciPy's compiled sparse products and NumPy gathers."""

    name = "scipy"
    package = "scipy"

    @classmethod
    def installed(cls) -> bool:
        """SciPy is always there."""
        return True

    def why_not(self, workload: Workload) -> str | None:
        """Any sum of products of one sparse operand and dense ones can be run."""
        shape = contraction(workload)
        if isinstance(shape, str):
            return shape
        return None if shape.factors else "it has no dense operand"

    def convert(self, workload: Workload, threads: int) -> BoundKernel:
        """Sort entries by output row where storage order differs; ``threads`` is ignored."""
        shape = contraction(workload)
        assert isinstance(shape, Contraction)
        if len(shape.factors) == 1 and not shape.keeps_pattern and not shape.summed:
            return _Product(workload, shape)
        return _Gather(workload, shape)


class _Product(BoundKernel):
    """CSR product with a row for each output row and a column for each row of the only factor."""

    def __init__(self, workload: Workload, shape: Contraction) -> None:
        entries = workload.entries
        (self._factor,) = shape.factors
        self._shape = (_extent(workload, shape.rows), _extent(workload, self._factor.bound))
        self._width = _extent(workload, shape.columns)
        if shape.product is not None:
            pointers, columns, values = entries.row_pointers(), entries.coordinates[1], entries.values
        else:
            rows, order = _sorted_rows(workload, shape)
            columns = _flat(workload, shape, self._factor.bound, order)
            values = entries.values if order is None else entries.values[order]
            pointers = np.zeros(self._shape[0] + 1, np.int64)
            np.cumsum(np.bincount(rows, minlength=self._shape[0]), out=pointers[1:])
        wide = max(*self._shape, entries.nnz) >= 2**31
        index = np.int64 if wide else np.int32
        self._pointers = np.ascontiguousarray(pointers, index)
        self._columns = np.ascontiguousarray(columns, index)
        self._values = values
        self._multiply = _csr_product()
        self.bytes_held = self._pointers.nbytes + self._columns.nbytes + self._values.nbytes

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Zero ``out`` and add the product into it."""
        out.fill(0)
        if self._values.size and out.size:
            dense = self._factor.matrix(operands[self._factor.operand])
            structure = (*self._shape, self._width, self._pointers, self._columns)
            self._multiply(*structure, self._values, dense.ravel(), out.ravel())

    def ready(self, operands: Sequence[np.ndarray], out: np.ndarray) -> Callable[[], object]:
        """Return ``run`` with its arguments in place."""
        operand = operands[self._factor.operand]
        dense = self._factor.matrix(operand).ravel()
        if not (self._values.size and out.size and np.shares_memory(dense, operand)):
            return lambda: self.run(operands, out)
        arguments = (
            *self._shape,
            self._width,
            self._pointers,
            self._columns,
            self._values,
            dense,
            out.ravel(),
        )

        def again() -> None:
            out.fill(0)
            self._multiply(*arguments)

        return again


@dataclass(frozen=True)
class _Chunk:
    """A run of entries and the output rows it reaches: CSR pointers over rows [first, last)."""

    start: int
    stop: int
    first: int
    last: int
    pointers: np.ndarray


class _Gather(BoundKernel):
    """Gather factor rows for a chunk of entries, multiply, reduce."""

    def __init__(self, workload: Workload, shape: Contraction) -> None:
        entries = workload.entries
        self._shape = shape
        self._sizes = workload.sizes
        self._width = _extent(workload, shape.columns)
        widest = max(_extent(workload, factor.free) for factor in shape.factors)
        self._step = max(64, CHUNK_BYTES // (entries.dtype.itemsize * max(1, widest)))
        order = None
        self._chunks: list[_Chunk] = []
        if not shape.keeps_pattern:
            rows, order = _sorted_rows(workload, shape)
            self._chunks = [_chunk(rows, start, self._step) for start in range(0, entries.nnz, self._step)]
            self._total = _extent(workload, shape.rows)
        self._values = entries.values if order is None else entries.values[order]
        # np.take converts other integers to intp on every call
        self._where = [_flat(workload, shape, f.bound, order).astype(np.intp) for f in shape.factors]
        letters = dict(zip((*shape.columns, *shape.summed), "abcdefghijklmnopqrstuvwxy", strict=False))
        terms = ["z" * bool(f.bound) + "".join(letters[index] for index in f.free) for f in shape.factors]
        gathered = any(factor.bound for factor in shape.factors)
        result = "z" * gathered + "".join(letters[index] for index in shape.columns)
        self._subscripts = f"{','.join(terms)}->{result}"
        self._elementwise = gathered and len(set(terms)) == 1 and not shape.summed
        self._every = np.arange(self._step, dtype=np.int32)
        self._multiply = _csr_product()
        arrays = [self._values, *self._where, *(chunk.pointers for chunk in self._chunks)]
        self.bytes_held = sum(array.nbytes for array in arrays)

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Compute chunk by chunk; memory used beyond the operands is a few chunks."""
        matrices = [factor.matrix(operands[factor.operand]) for factor in self._shape.factors]
        count = self._values.size
        if self._shape.keeps_pattern:
            for start in range(0, count, self._step):
                stop = min(count, start + self._step)
                np.multiply(self._terms(matrices, start, stop), self._values[start:stop], out=out[start:stop])
            return
        out.fill(0)
        if not out.size:
            return
        flat = out.reshape(self._total, self._width)
        for chunk in self._chunks:
            terms = self._terms(matrices, chunk.start, chunk.stop)
            self._multiply(
                chunk.last - chunk.first,
                chunk.stop - chunk.start,
                self._width,
                chunk.pointers,
                self._every[: chunk.stop - chunk.start],
                self._values[chunk.start : chunk.stop],
                np.ascontiguousarray(terms).ravel(),
                flat[chunk.first : chunk.last].ravel(),
            )

    def _terms(self, matrices: list[np.ndarray], start: int, stop: int) -> np.ndarray:
        """Product of the factors at entries [start, stop), summed over the indices of no output."""
        rows = []
        for factor, matrix, where in zip(self._shape.factors, matrices, self._where, strict=True):
            # coordinates were validated once, and "clip" spares the buffering of "raise"
            part = np.take(matrix, where[start:stop], axis=0, mode="clip") if factor.bound else matrix
            extents = tuple(self._sizes[index] for index in factor.free)
            rows.append(part.reshape((stop - start, *extents) if factor.bound else extents))
        if self._elementwise:
            for row in rows[1:]:
                rows[0] *= row
            return rows[0]
        terms: np.ndarray = np.einsum(self._subscripts, *rows)
        if "->z" in self._subscripts:
            return terms
        return np.broadcast_to(terms, (stop - start, *terms.shape))


def _chunk(rows: np.ndarray, start: int, step: int) -> _Chunk:
    stop = min(len(rows), start + step)
    first, last = int(rows[start]), int(rows[stop - 1]) + 1
    pointers = np.zeros(last - first + 1, np.int32)
    np.cumsum(np.bincount(rows[start:stop] - first, minlength=last - first), out=pointers[1:])
    return _Chunk(start, stop, first, last, pointers)


def _extent(workload: Workload, indices: Sequence[str]) -> int:
    return int(np.prod([workload.sizes[index] for index in indices], dtype=np.int64))


def _flat(
    workload: Workload, shape: Contraction, indices: Sequence[str], order: np.ndarray | None
) -> np.ndarray:
    """Row-major position of each entry in the space of ``indices``."""
    coordinates = dict(zip(shape.sparse, workload.entries.coordinates, strict=True))
    if len(indices) == 1:
        flat = coordinates[indices[0]]
    else:
        flat = np.zeros(workload.entries.nnz, np.int64)
        for index in indices:
            flat = flat * workload.sizes[index] + coordinates[index]
    return flat if order is None else flat[order]


def _sorted_rows(workload: Workload, shape: Contraction) -> tuple[np.ndarray, np.ndarray | None]:
    """Output row of each entry in ascending order, and the permutation that sorts it (None: as stored)."""
    rows = _flat(workload, shape, shape.rows, None)
    if shape.sparse[: len(shape.rows)] == shape.rows:
        return rows, None
    order = np.argsort(rows, kind="stable")
    return rows[order], order


def _csr_product() -> Callable[..., None]:
    """``multiply(rows, columns, width, pointers, indices, values, x, y)``: y += A @ x on raveled arrays."""
    try:
        from scipy.sparse import _sparsetools
    except ImportError:
        return _public_product

    def multiply(rows: int, columns: int, width: int, *arrays: np.ndarray) -> None:
        if width == 1:
            _sparsetools.csr_matvec(rows, columns, *arrays)
        else:
            _sparsetools.csr_matvecs(rows, columns, width, *arrays)

    return multiply


def _public_product(
    rows: int,
    columns: int,
    width: int,
    pointers: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
) -> None:
    """The same through the public interface, for a SciPy that has moved its compiled routines."""
    from scipy.sparse import csr_array

    matrix = csr_array((values, indices, pointers), shape=(rows, columns))
    y += (matrix @ x.reshape(columns, width)).ravel()
