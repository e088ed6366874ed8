"""Arrays of SciPy, NumPy and torch, as raw entries that nothing has checked yet.

Only attributes are read. No method of a foreign object runs compiled code on indices that are not
validated yet: a ``csr_array`` whose ``indices`` were overwritten by hand must be refused, and SciPy would
crash on it.
"""

import sys
from itertools import chain
from typing import Any

import numpy as np

from tensorwise.errors import InputError
from tensorwise.tensor.checks import as_array, checked_shape
from tensorwise.tensor.elements import is_half, value_dtype
from tensorwise.tensor.raw import (
    RawCompressed,
    RawCoordinates,
    RawEntries,
    expand_blocks,
    expand_diagonals,
)


def adapt(obj: Any, dtype: np.dtype | None) -> RawEntries | None:
    """Return the entries of a NumPy array, a PyTorch tensor, a SciPy sparse array or a tuple; None for any other object.

    Args:
        dtype: that the caller wants; None: any. A bfloat16 tensor needs ml_dtypes, unless PyTorch converts it to ``dtype``.

    Raises:
        InputError: its arrays contradict each other.
    """
    if isinstance(obj, tuple):
        return from_tuple(obj)
    if isinstance(obj, np.ndarray):
        return from_dense(obj, type(obj).__name__)
    torch = sys.modules.get("torch")  # who has a tensor has imported torch
    if torch is not None and isinstance(obj, torch.Tensor):
        return from_torch(obj, dtype, torch)
    from scipy.sparse import issparse

    if not issparse(obj):
        return None
    try:
        return from_scipy(obj)
    except (AttributeError, TypeError, ValueError, IndexError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{type(obj).__name__}: malformed ({error}); rebuild it") from error


def from_tuple(obj: tuple[Any, ...]) -> RawCoordinates:
    source = "(shape, coordinates, values)"
    if len(obj) != 3:
        raise InputError(f"a tuple of {len(obj)} was given; expected {source}")
    shape = checked_shape(obj[0], source)
    try:
        coordinates = list(obj[1])
    except TypeError as error:
        raise InputError(f"{source}: coordinates are no sequence of arrays, one a mode") from error
    return RawCoordinates(shape, coordinates, obj[2], source)


def from_dense(array: np.ndarray, source: str) -> RawCoordinates:
    plain = as_array(array, source)
    shape = checked_shape(plain.shape, source)
    if plain.dtype.kind not in "biufc" and not is_half(plain.dtype):
        raise InputError(f"{source}: dtype {plain.dtype}; expected real numbers")
    coordinates = np.nonzero(plain)  # NaN counts as nonzero; row-major
    return RawCoordinates(shape, coordinates, plain[coordinates], source)


def from_scipy(obj: Any) -> RawEntries:
    """Reads the arrays only: no method of ``obj`` runs compiled code on indices that are not validated
    yet."""
    source = type(obj).__name__
    shape = checked_shape(obj.shape, source)
    kind = obj.format
    if kind in ("csr", "csc"):
        return RawCompressed(shape, obj.indptr, obj.indices, obj.data, source, kind == "csc")
    if kind == "coo":
        coordinates = obj.coords if hasattr(obj, "coords") else (obj.row, obj.col)
        return RawCoordinates(shape, tuple(coordinates), obj.data, source)
    if kind == "dok":
        keys = np.array(list(obj.keys())).reshape(-1, len(shape))
        values = np.array(list(obj.values()), dtype=obj.dtype)
        return RawCoordinates(shape, tuple(keys.T), values, source)
    if len(shape) != 2:
        raise InputError(f"{source}: order {len(shape)} is not supported; convert with .tocoo()")
    if kind == "bsr":
        return expand_blocks(RawCompressed(shape, obj.indptr, obj.indices, obj.data, source))
    if kind == "dia":
        return expand_diagonals(shape, obj.offsets, obj.data, source)
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
        return RawCompressed(shape, pointers, columns, values, source)
    raise InputError(f"{source}: unknown scipy.sparse format {kind!r}; convert with .tocsr()")


def from_torch(tensor: Any, dtype: np.dtype | None, torch: Any) -> RawEntries:
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
            return from_dense(plain(tensor), source)
        if tensor.layout == torch.sparse_coo:
            if tensor.dense_dim():
                raise InputError(
                    f"{source}: {tensor.dense_dim()} dense dimensions; expected none, only sparse ones; convert with "
                    ".to_dense().to_sparse()"
                )
            # The underscored ones work on tensors that are not coalesced, and run nothing.
            indices, values = plain(tensor._indices()), plain(tensor._values())
            return RawCoordinates(checked_shape(shape, source), tuple(indices), values, source)
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
            raw = RawCompressed(checked_shape(shape, source), *arrays, source, by_column)
            return expand_blocks(raw) if blocks else raw
    except (RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{source}: cannot be read ({error})") from error
    raise InputError(f"{source}: this layout is not supported; convert with .to_dense()")
