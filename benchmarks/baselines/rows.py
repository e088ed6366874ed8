"""What row-parallel loops need: entries sorted by output row, and the dense operands as matrices."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensorwise.device.libraries.contraction import Contraction, MatrixOperand, contraction
from tensorwise.program.workload import Workload


@dataclass(frozen=True, eq=False)
class Rows:
    """A workload as a loop over rows.

    Attributes:
        kind: ``spmm`` (also SpMV, one column), ``sddmm`` or ``mttkrp``.
        pointers: entries of row i are pointers[i] to pointers[i + 1]; int64.
        columns: one array (nnz,) a factor: the row of the factor that an entry meets.
        values: (nnz,), sorted as ``columns``.
        factors: how to see the operands as matrices; for ``sddmm`` the one by output row is first.
        width: columns of the factors.
    """

    kind: str
    pointers: np.ndarray
    columns: tuple[np.ndarray, ...]
    values: np.ndarray
    factors: tuple[MatrixOperand, ...]
    width: int

    def matrices(self, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The operands as C-contiguous matrices (a vector stays one); a copy where their strides ask for one."""
        return [_matrix(factor, operands[factor.operand]) for factor in self.factors]

    def shares(self, operands: Sequence[np.ndarray], matrices: Sequence[np.ndarray]) -> bool:
        """Whether ``matrices`` are the operands themselves, none of them a copy."""
        pairs = zip(self.factors, matrices, strict=True)
        return all(np.shares_memory(operands[factor.operand], matrix) for factor, matrix in pairs)

    @property
    def held_bytes(self) -> int:
        """Bytes of the sorted arrays."""
        return sum(array.nbytes for array in (self.pointers, self.values, *self.columns))


def _matrix(factor: MatrixOperand, operand: np.ndarray) -> np.ndarray:
    """Return ``factor.matrix(operand)``, at a tenth of its time where the operand is that matrix already."""
    if operand.ndim <= 2:
        turned = operand if factor.axes[0] == 0 else operand.T
        if turned.flags.c_contiguous:
            return turned
    return factor.matrix(operand)


def kind_of(workload: Workload) -> str | None:
    """Return ``spmm``, ``sddmm`` or ``mttkrp``, or None when it is no such loop."""
    shape = contraction(workload)
    if isinstance(shape, str):
        return None
    if shape.product is not None:
        return "spmm"
    if shape.sampled is not None:
        return "sddmm"
    gathers = all(len(factor.bound) == 1 and factor.free == shape.columns for factor in shape.factors)
    if gathers and len(shape.rows) == 1 and 2 <= len(shape.factors) <= 4 and not shape.summed:
        return "mttkrp"
    return None


def rows_of(workload: Workload) -> Rows:
    """Sort the entries of a workload of a known kind by output row."""
    kind, shape, entries = kind_of(workload), contraction(workload), workload.entries
    assert kind is not None
    assert isinstance(shape, Contraction)
    by_index = dict(zip(shape.sparse, entries.coordinates, strict=True))
    factors = shape.sampled or shape.factors
    row_index = shape.sparse[0] if shape.keeps_pattern else shape.rows[0]
    rows = by_index[row_index]
    order = None if row_index == shape.sparse[0] else np.argsort(rows, kind="stable")
    pointers = np.zeros(workload.sizes[row_index] + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=workload.sizes[row_index]), out=pointers[1:])
    gathered = [by_index[factor.bound[0]] for factor in (factors[1:] if kind == "sddmm" else factors)]
    return Rows(
        kind,
        pointers,
        tuple(c if order is None else c[order] for c in gathered),
        entries.values if order is None else entries.values[order],
        factors,
        width_of(workload),
    )


def width_of(workload: Workload) -> int:
    """Return the columns of the factors: the product of the extents of the dense-only indices."""
    shape = contraction(workload)
    assert isinstance(shape, Contraction)
    free = shape.summed if shape.keeps_pattern else shape.columns
    return int(np.prod([workload.sizes[index] for index in free], dtype=np.int64))
