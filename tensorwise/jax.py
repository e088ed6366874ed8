"""Products of sparse matrices for JAX: `matmul` works under ``jax.jit``, ``jax.grad`` and ``jax.vmap``.

A product is a call back to the host (``jax.pure_callback``), where the kernels of :mod:`tensorwise.front.gnn` compute it.
Gradients are products of the same kind, so they have gradients in turn.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import scipy.sparse as sp

from tensorwise.errors import InputError, MissingExtraError
from tensorwise.front import spelling
from tensorwise.front.gnn import Graph
from tensorwise.front.graph_cache import GraphCache

try:
    import jax
    import jax.numpy as jnp
    from jax import Array
    from jax.custom_derivatives import SymbolicZero
except ImportError as error:
    raise MissingExtraError("jax", "jax", "tensorwise.jax") from error

__all__ = ["matmul"]

_FLOATS: Final = ("float16", "bfloat16", "float32", "float64")
_WITH_VALUES: Final = ("csr", "csc", "coo", "bsr")
"""SciPy's formats whose ``data`` has a number for each stored entry and nothing else."""
_PATTERNS: Final = GraphCache()
"""The patterns of matrices, with their compiled kernels."""


def matmul(A: Any, x: Any, values: Any = None) -> Array:
    """Multiply a sparse matrix by a dense vector or matrix: ``A @ x``.

    It has derivatives in reverse mode, of any order, for ``x`` and ``values``. Forward mode (``jax.jvp``) is refused by JAX.
    Inside of ``jax.jit`` the pattern of A is a constant: close over A, and give what changes as ``values``.

    Args:
        A: (rows, inner) a SciPy sparse array or matrix. A CSR matrix is read fastest.
        x: (inner,) or (inner, columns) dense; use ``jax.vmap`` for more dimensions.
        values: of the shape of ``A.data``: numbers to use in its place, in its order, for CSR, CSC, COO and BSR.
            None: ``A.data``, which has no gradient.

    Returns:
        (rows,) or (rows, columns), of the dtype to which JAX promotes the values and x: float32, float64 (with
        ``jax_enable_x64``), float16 or bfloat16.

    Raises:
        InputError: A is no sparse matrix, shapes do not fit, or the dtype is another one.
    """
    if not _is_sparse_matrix(A):
        raise InputError(
            f"matmul: expected a SciPy sparse array of two dimensions as A, got {type(A).__name__}; "
            "convert a dense matrix with scipy.sparse.csr_array(A)"
        )
    x = jnp.asarray(x)
    if x.ndim not in (1, 2) or x.shape[0] != A.shape[1]:
        raise InputError(
            f"matmul: A has shape {A.shape}, so x has shape ({A.shape[1]},) or ({A.shape[1]}, columns); got {x.shape}"
        )
    graph, stored = _read_matrix(A, values)
    dtype = jnp.result_type(stored, x)
    if dtype.name not in _FLOATS:
        raise InputError(
            f"matmul: expected a product of float32, float64, float16 or bfloat16, got {dtype.name}; "
            "convert x with x.astype('float32')"
        )
    text = spelling.TIMES_VECTOR if x.ndim == 1 else spelling.TIMES_COLUMNS
    made: Array = _evaluate(graph, text, stored.astype(dtype), x.astype(dtype))
    return made


def _is_sparse_matrix(A: Any) -> bool:
    return bool(sp.issparse(A)) and len(getattr(A, "shape", ())) == 2


def _read_matrix(A: Any, values: Any) -> tuple[Graph, Array]:
    """The pattern of a matrix, and its values row by row."""
    if values is None:
        csr = A.tocsr()
        return _PATTERNS.find(csr.indptr, csr.indices, int(A.shape[1])), jnp.asarray(csr.data)
    if A.format not in _WITH_VALUES:
        raise InputError(
            f"matmul: values go with a matrix in the format {', '.join(_WITH_VALUES)}, got {A.format}; "
            "convert it once with A.tocsr()"
        )
    values = jnp.asarray(values)
    if values.shape != A.data.shape:
        raise InputError(
            f"matmul: expected values of shape {A.data.shape}, as A.data has, got {values.shape}"
        )
    if A.format == "csr":
        return _PATTERNS.find(A.indptr, A.indices, int(A.shape[1])), values
    coo = A.tocoo(copy=False)
    order = np.lexsort((coo.col, coo.row))
    pointers = np.concatenate([[0], np.cumsum(np.bincount(coo.row, minlength=A.shape[0]))])
    return _PATTERNS.find(pointers, coo.col[order], int(A.shape[1])), values.reshape(-1)[order]


# -- the product and its derivatives ---------------------------------------------------------------------


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _evaluate(graph: Graph, text: str, *operands: Array) -> Array:
    """Evaluate an assignment of the einsum language over a pattern, on operands of one dtype."""
    sizes = spelling.extents(text, graph.shape, [operand.shape for operand in operands])
    assignment = spelling.parsed(text)
    assert assignment.pattern is not None
    sizes[assignment.pattern.tensor] = graph.edges
    shape = tuple(sizes[index] for index in assignment.output.indices)
    made: Array = jax.pure_callback(
        partial(_compute, graph, text, tuple(operand.ndim for operand in operands)),
        jax.ShapeDtypeStruct(shape, operands[0].dtype),
        *operands,
        vmap_method="expand_dims",
    )
    return made


def _compute(graph: Graph, text: str, ndims: Sequence[int], *given: Any) -> np.ndarray:
    """Do so on the host. Under vmap all operands have further dimensions in front, of extent 1 where they have no batch."""
    arrays = [np.asarray(operand) for operand in given]
    num_batches = arrays[0].ndim - ndims[0]
    if not num_batches:
        return graph.evaluate(text, arrays)
    batch = np.broadcast_shapes(*(array.shape[:num_batches] for array in arrays))
    has_batch = tuple(any(extent != 1 for extent in array.shape[:num_batches]) for array in arrays)
    flat = []
    for array, has in zip(arrays, has_batch):
        own = array.shape[num_batches:]
        if has:  # the batch is the second dimension, over which kernels vectorize
            flat.append(np.moveaxis(np.broadcast_to(array, (*batch, *own)).reshape(-1, *own), 0, 1))
        else:
            flat.append(array.reshape(own))
    if not any(has_batch):
        alone = graph.evaluate(text, flat)
        return alone.reshape(*batch, *alone.shape)
    made = np.moveaxis(graph.evaluate(spelling.batched_text(text, has_batch), flat), 1, 0)
    return made.reshape(*batch, *made.shape[1:])


def _evaluate_forward(graph: Graph, text: str, *operands: Any) -> tuple[Array, tuple[Any, ...]]:
    needed = [() if operand.perturbed else None for operand in operands]  # known while JAX traces
    values = [operand.value for operand in operands]
    return _evaluate(graph, text, *values), (values, needed)


def _evaluate_backward(graph: Graph, text: str, kept: tuple[Any, ...], given: Any) -> tuple[Any, ...]:
    operands, needed = kept
    if isinstance(given, SymbolicZero):
        return (None,) * len(operands)
    found = spelling.backward(
        text, given, operands, [one is not None for one in needed],
        lambda derived, read: _evaluate(graph, derived, *read), tuple, partial(jnp.ones, dtype=given.dtype),
    )  # fmt: skip
    return tuple(found)


_evaluate.defvjp(_evaluate_forward, _evaluate_backward, symbolic_zeros=True)
