"""Operators beside a tuned one: of the same matrix transposed, for another width of the operand, or in another dtype."""

from typing import Any, Final

import numpy as np

from tensorwise.device.default import default_kernel
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.kernel import BoundKernel
from tensorwise.tensor.elements import is_half
from tensorwise.tuning.operator import TRANSPOSED, MatrixOperator
from tensorwise.tuning.transposed import over, transposed

SEVERAL: Final = {"spmv": "spmm", "spmv_t": "spmm_t"}
"""Product with a vector -> that with several, side by side."""


def transpose(operator: MatrixOperator, copy: bool | None) -> MatrixOperator:
    """Return the transposed operator; see ``MatrixOperator.transpose``."""
    work = _related(operator, TRANSPOSED[operator._product], operator.width)
    work.check_memory(work.assignment.output.tensor)
    kernel, bound = transposed(operator._bound, default_kernel(work), work, operator.threads, copy)
    return MatrixOperator(bound, work, operator.threads, kernel)


def widen(operator: MatrixOperator, columns: int) -> tuple[Workload, BoundKernel]:
    """Return workload and kernel of the product with ``columns`` vectors, for an operator for one."""
    work = _related(operator, SEVERAL[operator._product], columns)
    kernel = default_kernel(work)
    packed = (operator._bound, *(bound for _, bound in operator._others.values()))
    alike = filter(None, (over(bound, kernel, work) for bound in packed))
    return work, next(alike, None) or kernel.bind(work, operator.threads)


def convert(operator: MatrixOperator, dtype: np.dtype) -> MatrixOperator:
    """Return the operator for operands of another dtype."""
    entries = operator.workload.entries
    if dtype == np.float64 or not is_half(entries.dtype):
        entries = entries.astype(dtype)
    work = workload(operator._product, entries, n=operator.width, dtypes={"B": dtype})
    kernel = default_kernel(work)
    shared = over(operator._bound, kernel, work) if entries is operator.workload.entries else None
    return MatrixOperator(shared or kernel.bind(work, operator.threads), work, operator.threads, kernel)


def multiply_by_scipy(operator: MatrixOperator, x: Any) -> Any:
    """Return the product with x by SciPy, of the matrix in the dtype of what was given and of x together."""
    entries = operator.workload.entries
    dtype = entries.dtype if entries.given is None else np.result_type(entries.given, x.dtype)
    if dtype not in operator._plain:
        matrix = entries.to_scipy()
        matrix.data = matrix.data if entries.given is None else entries.sums_in(dtype)
        operator._plain[dtype] = matrix
    plain = operator._plain[dtype]
    return (plain.T if operator._product.endswith("_t") else plain) @ x


def _related(operator: MatrixOperator, op: str, n: int | None) -> Workload:
    """Return another product with the same matrix."""
    dtype, entries = operator.operand_dtype, operator.workload.entries
    return workload(op, entries, n=n, dtypes={} if dtype == entries.dtype else {"B": dtype})
