"""Ways in from SciPy, NumPy and torch: each reads the arrays of a foreign object and hands them to be
validated.

Only attributes are read. No method of a foreign object runs compiled code on indices that are not
validated yet: a ``csr_array`` whose ``indices`` were overwritten by hand must be refused, and SciPy would
crash on it.
"""

import sys
from itertools import chain
from typing import Any

import numpy as np

from tensorwise.errors import InputError
from tensorwise.tensor.canonical import (
    as_array,
    checked_indices,
    checked_integers,
    checked_pointers,
    checked_shape,
    rows_of,
)
from tensorwise.tensor.elements import is_half, value_dtype
from tensorwise.tensor.entries import Entries, from_compressed, from_coordinates


def adapt(obj: Any, dtype: np.dtype | None) -> Entries | None:
    """Entries of a NumPy, torch or scipy.sparse object; None when it is none of them."""
    if isinstance(obj, np.ndarray):
        return from_dense(obj, dtype, type(obj).__name__)
    torch = sys.modules.get("torch")  # who has a tensor has imported torch
    if torch is not None and isinstance(obj, torch.Tensor):
        return from_torch(obj, dtype, torch)
    from scipy.sparse import issparse

    if not issparse(obj):
        return None
    try:
        return from_scipy(obj, dtype)
    except (AttributeError, TypeError, ValueError, IndexError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{type(obj).__name__}: malformed ({error}); rebuild it") from error


def from_dense(array: np.ndarray, dtype: np.dtype | None, source: str) -> Entries:
    plain = as_array(array, source)
    shape = checked_shape(plain.shape, source)
    if plain.dtype.kind not in "biufc" and not is_half(plain.dtype):
        raise InputError(f"{source}: dtype {plain.dtype}; expected real numbers")
    coordinates = np.nonzero(plain)  # NaN counts as nonzero; row-major
    return from_coordinates(shape, coordinates, plain[coordinates], dtype, source)


def from_scipy(obj: Any, dtype: np.dtype | None) -> Entries:
    """Reads the arrays only: no method of ``obj`` runs compiled code on indices that are not validated
    yet."""
    source = type(obj).__name__
    shape = checked_shape(obj.shape, source)
    kind = obj.format
    if kind in ("csr", "csc"):
        return from_compressed(shape, obj.indptr, obj.indices, obj.data, dtype, source, kind == "csc")
    if kind == "coo":
        coordinates = obj.coords if hasattr(obj, "coords") else (obj.row, obj.col)
        return from_coordinates(shape, coordinates, obj.data, dtype, source)
    if kind == "dok":
        keys = np.array(list(obj.keys())).reshape(-1, len(shape))
        values = np.array(list(obj.values()), dtype=obj.dtype)
        return from_coordinates(shape, tuple(keys.T), values, dtype, source)
    if len(shape) != 2:
        raise InputError(f"{source}: order {len(shape)} is not supported; convert with .tocoo()")
    if kind == "bsr":
        return from_blocks(shape, obj.indptr, obj.indices, obj.data, dtype, source)
    if kind == "dia":
        return from_diagonals(shape, obj.offsets, obj.data, dtype, source)
    if kind == "lil":
        lengths = np.fromiter(map(len, obj.rows), np.int64, len(obj.rows))
        if lengths.tolist() != list(map(len, obj.data)):
            at = next(i for i, (r, d) in enumerate(zip(obj.rows, obj.data)) if len(r) != len(d))
            raise InputError(
                f"{source}: row {at} has {len(obj.rows[at])} column indices and {len(obj.data[at])} values"
            )
        columns = np.array(list(chain.from_iterable(obj.rows)))
        values = np.array(list(chain.from_iterable(obj.data)), dtype=obj.dtype)
        pointers = np.concatenate(([0], np.cumsum(lengths)))
        return from_compressed(shape, pointers, columns, values, dtype, source)
    raise InputError(f"{source}: unknown scipy.sparse format {kind!r}; convert with .tocsr()")


def from_blocks(
    shape: tuple[int, ...],
    pointers: Any,
    indices: Any,
    blocks: Any,
    dtype: np.dtype | None,
    source: str,
    by_column: bool = False,
) -> Entries:
    data = as_array(blocks, f"{source}: values")
    if data.ndim != 3 or 0 in data.shape[1:]:
        raise InputError(f"{source}: blocks have shape {data.shape}; expected (count, height, width)")
    if by_column:  # the rows of blocks of the transpose
        shape, data = shape[::-1], data.transpose(0, 2, 1)
    count, height, width = data.shape
    if shape[0] % height or shape[1] % width:
        raise InputError(f"{source}: blocks of {height}x{width} do not divide shape {shape[0]}x{shape[1]}")
    across = checked_integers(indices, f"{source}: block column indices")
    if len(across) != count:
        raise InputError(f"{source}: {len(across)} block column indices for {count} blocks")
    starts = checked_pointers(pointers, shape[0] // height, count, source, "block row")
    # Checked before they are multiplied, so that nothing wraps.
    across, outside = checked_indices(across, shape[1] // width, np.dtype(np.int64), source, "block column")
    if outside is not None:
        raise InputError(
            f"{source}: block {outside} has block column {across[outside]}; "
            f"expected 0 to {shape[1] // width - 1}"
        )
    down = rows_of(starts, np.dtype(np.int64))
    rows = (down * height)[:, None, None] + np.arange(height)[None, :, None]
    columns = (across * width)[:, None, None] + np.arange(width)[None, None, :]
    coordinates = [np.broadcast_to(part, data.shape).ravel() for part in (rows, columns)]
    if by_column:
        shape, coordinates = shape[::-1], coordinates[::-1]
    return from_coordinates(shape, coordinates, data.ravel(), dtype, source)


def from_diagonals(
    shape: tuple[int, ...], offsets: Any, data: Any, dtype: np.dtype | None, source: str
) -> Entries:
    shifts = checked_integers(offsets, f"{source}: offsets").astype(np.int64)
    values = as_array(data, f"{source}: values")
    if values.ndim != 2 or len(values) != len(shifts):
        raise InputError(
            f"{source}: values of shape {values.shape} for {len(shifts)} diagonals; "
            "expected one row a diagonal"
        )
    diagonal, columns = np.nonzero(values[:, : shape[1]])
    with np.errstate(over="ignore"):
        rows = columns - shifts[diagonal]
    # What a diagonal holds beyond the matrix is padding, whatever its value.
    inside = (rows >= 0) & (rows < shape[0]) & (-shape[0] < shifts[diagonal]) & (shifts[diagonal] < shape[1])
    diagonal, columns, rows = diagonal[inside], columns[inside], rows[inside]
    return from_coordinates(shape, (rows, columns), values[diagonal, columns], dtype, source)


def from_torch(tensor: Any, dtype: np.dtype | None, torch: Any) -> Entries:
    source = f"torch tensor ({str(tensor.layout).removeprefix('torch.')})"

    def plain(part: Any) -> np.ndarray:
        part = part.detach().cpu().resolve_conj().resolve_neg()
        if part.dtype == torch.bfloat16 and dtype is not None and not is_half(dtype):
            part = part.to(torch.float32)  # ml_dtypes is not needed for this
        if part.dtype == torch.bfloat16:
            bits: np.ndarray = part.contiguous().view(torch.int16).numpy()
            return bits.view(value_dtype("bfloat16"))
        array: np.ndarray = part.numpy()
        return array

    try:
        shape = tuple(tensor.shape)
        if tensor.layout == torch.strided:
            return from_dense(plain(tensor), dtype, source)
        if tensor.layout == torch.sparse_coo:
            if tensor.dense_dim():
                raise InputError(
                    f"{source}: {tensor.dense_dim()} dense dimensions; expected none, only sparse ones; convert with "
                    ".to_dense().to_sparse()"
                )
            # The underscored ones work on tensors that are not coalesced, and run nothing.
            indices, values = plain(tensor._indices()), plain(tensor._values())
            return from_coordinates(checked_shape(shape, source), tuple(indices), values, dtype, source)
        by_column = tensor.layout in (torch.sparse_csc, torch.sparse_bsc)
        blocks = tensor.layout in (torch.sparse_bsr, torch.sparse_bsc)
        if by_column or blocks or tensor.layout == torch.sparse_csr:
            if len(shape) != 2 or tensor.values().dim() != (3 if blocks else 1):
                raise InputError(
                    f"{source}: batches and dense dimensions are not supported; expected order 2, "
                    "convert with .to_dense().to_sparse()"
                )
            pointers = tensor.ccol_indices() if by_column else tensor.crow_indices()
            indices = tensor.row_indices() if by_column else tensor.col_indices()
            arrays = plain(pointers), plain(indices), plain(tensor.values())
            if blocks:
                return from_blocks(checked_shape(shape, source), *arrays, dtype, source, by_column)
            return from_compressed(checked_shape(shape, source), *arrays, dtype, source, by_column)
    except (RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{source}: cannot be read ({error})") from error
    raise InputError(f"{source}: this layout is not supported; convert with .to_dense()")
