"""Products with a sparse matrix that take and return torch tensors: SpMM and SDDMM, with gradients."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tensorwise.errors import InputError
from tensorwise.front.spelling import SAMPLED, TIMES_COLUMNS, TIMES_VECTOR
from tensorwise.front.torch import graph_einsum
from tensorwise.nn.csr import CsrTensors
from tensorwise.nn.linear import SparseLinear
from tensorwise.nn.operands import converted_operands


def spmm(A: Any, X: Tensor) -> Tensor:
    """Multiply a sparse matrix by a dense matrix or vector, with gradients of the values of A and of X.

    Args:
        A: (rows, inner) a torch tensor of layout sparse_csr, read where it lies; sparse_csc, sparse_coo, sparse_bsr or a
            SciPy array, converted at each call; or a `SparseLinear`, whose weight it is.
        X: (inner,) or (inner, columns), dense, of A's dtype: float32, float64, bfloat16 or float16. Under
            ``torch.autocast`` both are converted to its dtype.

    Returns:
        (rows,) or (rows, columns), of the dtype of the operands.

    Raises:
        InputError: A is no sparse matrix, or shapes, dtypes or devices do not fit.
    """
    matrix, evaluate = _read_operand(A)
    values, dense = converted_operands(matrix.values, X)
    inner = matrix.shape[1]
    if dense.ndim not in (1, 2) or dense.shape[0] != inner:
        raise InputError(
            f"spmm: A has shape {matrix.shape}, so X has shape ({inner},) or ({inner}, columns); got {tuple(dense.shape)}"
        )
    return evaluate(TIMES_VECTOR if dense.ndim == 1 else TIMES_COLUMNS, values, dense.contiguous())


def sddmm(A: Any, X: Tensor, Y: Tensor) -> Tensor:
    """Multiply the values of a sparse matrix by the entries of ``X @ Y`` at its positions, and compute only those.

    Args:
        A: (rows, columns) as of `spmm`. Values of ones give the entries of ``X @ Y``.
        X: (rows, inner) dense, of A's dtype.
        Y: (inner, columns) dense, of A's dtype.

    Returns:
        (rows, columns) a torch tensor of layout sparse_csr with the pattern of A. Its values have gradients for the values
        of A, for X and for Y.

    Raises:
        InputError: A is no sparse matrix, or shapes, dtypes or devices do not fit.
    """
    matrix, evaluate = _read_operand(A)
    values, left, right = converted_operands(matrix.values, X, Y)
    rows, columns = matrix.shape
    if left.ndim != 2 or right.shape != (left.shape[-1], columns) or left.shape[0] != rows:
        raise InputError(
            f"sddmm: A has shape {matrix.shape}, so X has shape ({rows}, inner) and Y (inner, {columns}); "
            f"got {tuple(left.shape)} and {tuple(right.shape)}"
        )
    return matrix.to_tensor(values * evaluate(SAMPLED, left.contiguous(), right.t().contiguous()))


def _read_operand(A: Any) -> tuple[CsrTensors, Callable[..., Tensor]]:
    """The tensors of a matrix, and what evaluates an assignment of the einsum language over its pattern."""
    if isinstance(A, SparseLinear):
        return A.csr_tensors(), A.evaluate
    matrix = CsrTensors.of(A)
    pattern = matrix.crow_indices.cpu(), matrix.col_indices.cpu()

    def evaluate(text: str, *operands: Tensor) -> Tensor:
        made: Tensor = graph_einsum(*pattern, None, matrix.shape[1], text, list(operands))
        return made

    return matrix, evaluate
