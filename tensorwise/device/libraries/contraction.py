"""What libraries can compute: a sum of products of one sparse operand and dense ones.

Routines are chosen by the shape of the einsum, never by the name of an operation, so that
``Y[a,b] += S[a,c] * X[c,b]`` written by hand meets the same SpMM as ``spmm`` does.
"""

from dataclasses import dataclass

import numpy as np

from tensorwise.program.einsum import Access, Apply, Expression
from tensorwise.program.workload import Workload


@dataclass(frozen=True)
class MatrixOperand:
    """A dense operand seen as a matrix: one row for each combination of its ``bound`` indices.

    Attributes:
        operand: place in the list of operands that a call takes.
        axes: permutation that brings the bound axes to the front.
        bound: indices that the sparse operand has too, in the order of the sparse operand.
        free: the other indices, those of the output first and in its order.
    """

    operand: int
    axes: tuple[int, ...]
    bound: tuple[str, ...]
    free: tuple[str, ...]

    def matrix(self, operand: np.ndarray) -> np.ndarray:
        """Return ``operand`` as a C-contiguous matrix (bound, free); a copy only where strides ask for it."""
        turned = operand.transpose(self.axes)
        rows = int(np.prod(turned.shape[: len(self.bound)], dtype=np.int64))
        columns = int(np.prod(turned.shape[len(self.bound) :], dtype=np.int64))
        return np.ascontiguousarray(turned).reshape(rows, columns)


@dataclass(frozen=True)
class Contraction:
    """``output += sparse * factor * ...``.

    Attributes:
        sparse: indices of the sparse operand, in storage order.
        factors: the dense operands.
        rows: output indices that the sparse operand has; empty when its pattern is kept.
        columns: output indices that it does not have.
        summed: indices that only dense operands have and that are reduced.
        keeps_pattern: the output is one value an entry.
    """

    sparse: tuple[str, ...]
    factors: tuple[MatrixOperand, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    summed: tuple[str, ...]
    keeps_pattern: bool

    @property
    def product(self) -> MatrixOperand | None:
        """The dense operand when this is a sparse matrix times a vector or matrix, else None."""
        if len(self.sparse) != 2 or len(self.factors) != 1 or self.keeps_pattern or self.summed:
            return None
        (factor,) = self.factors
        by_row = self.rows == self.sparse[:1] and factor.bound == self.sparse[1:]
        return factor if by_row and factor.free == self.columns else None

    @property
    def sampled(self) -> tuple[MatrixOperand, MatrixOperand] | None:
        """The dense operands by row and by column when this is a sampled dense product, else None."""
        if len(self.sparse) != 2 or len(self.factors) != 2 or not self.keeps_pattern or not self.summed:
            return None
        by_bound = {factor.bound: factor for factor in self.factors}
        left, right = by_bound.get(self.sparse[:1]), by_bound.get(self.sparse[1:])
        if left is None or right is None or left.free != right.free:
            return None
        return left, right


def contraction(workload: Workload) -> Contraction | str:
    """Recognise ``workload`` as a Contraction, or say in a few words why it is none."""
    if len(workload.einsum.assignments) != 1:
        return "it is a cascade"
    assignment = workload.assignment
    if assignment.reduction not in (None, "sum"):
        return f"its reduction is {assignment.reduction}, not a sum"
    if assignment.counted:
        return "it uses the numbers of entries"
    accesses = _product(assignment.expression)
    if accesses is None:
        return "its right-hand side is not a product of operands"
    sparse = [access for access in accesses if access.tensor in workload.sparse]
    if len(sparse) != 1:
        return f"it has {len(sparse)} sparse factors instead of one"
    stored = sparse[0].indices
    output = assignment.output.indices
    keeps = workload.keeps_pattern
    rows = () if keeps else tuple(index for index in output if index in stored)
    columns = tuple(index for index in output if index not in stored)
    if not keeps and output != rows + columns:
        return f"indices of the output {assignment.output} mix stored and dense ones"
    summed = tuple(index for index in assignment.reduced if index not in stored)
    factors = []
    for access in accesses:
        if access.tensor in workload.sparse:
            continue
        bound = tuple(index for index in stored if index in access.indices)
        free = tuple(index for index in (*columns, *summed) if index in access.indices)
        axes = tuple(access.indices.index(index) for index in (*bound, *free))
        factors.append(MatrixOperand(workload.dense.index(access.tensor), axes, bound, free))
    return Contraction(stored, tuple(factors), rows, columns, summed, keeps)


def _product(expression: Expression) -> list[Access] | None:
    match expression:
        case Access():
            return [expression]
        case Apply(operator="mul", arguments=(left, right)):
            first, second = _product(left), _product(right)
            return None if first is None or second is None else first + second
    return None
