"""Checks of arrays that came from outside and are not trusted: shapes, dtypes, values, indices and pointers.

Nothing is handed to compiled code before its indices are known to lie inside the shape.
"""

import operator
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from tensorwise.errors import InputError
from tensorwise.tensor.elements import is_half, limits, value_dtype
from tensorwise.tensor.primitives import index_dtype

#: More modes than this is a mistake (a text file read with the wrong separator), not a tensor.
MAX_ORDER = 32
_LIMIT_64 = 2**63


def checked_shape(shape: Any, source: str) -> tuple[int, ...]:
    """Return ``shape`` as 2 to 32 Python ints, each in ``0 .. 2**63 - 1``; InputError otherwise."""
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError as error:
        raise InputError(f"{source}: shape {reprlib.repr(shape)} is not a tuple of integers") from error
    if not 2 <= len(sizes) <= MAX_ORDER:
        advice = "; give a vector as a matrix with one row" if len(sizes) == 1 else ""
        raise InputError(
            f"{source}: {len(sizes)} dimensions (shape {_short(sizes)}); expected 2 to {MAX_ORDER}{advice}"
        )
    for mode, size in enumerate(sizes):
        if not 0 <= size < _LIMIT_64:
            raise InputError(
                f"{source}: dimension {mode} of shape {_short(sizes)} is {size}; expected 0 to 2**63 - 1"
            )
    return sizes


def coordinate_dtype(shape: Sequence[int]) -> np.dtype:
    """int32 when every dimension is below 2**31, else int64."""
    return np.dtype(index_dtype(max(shape)))


def checked_dtype(dtype: Any) -> np.dtype | None:
    """A dtype of values (see ``elements``) or None from ``dtype``; anything else is an InputError."""
    return None if dtype is None else value_dtype(dtype)


def checked_values(values: Any, dtype: np.dtype | None, source: str, copy: bool = True) -> np.ndarray:
    """Return ``values`` as a contiguous array of a dtype of values (a fresh one with ``copy``).

    Without ``dtype``: float32, float16 and bfloat16 stay, bool and integers of up to 16 bits become float32,
    everything else becomes float64. With ``dtype`` floating-point numbers are rounded.

    Raises:
        InputError: a number would be lost: complex numbers, integers that are not representable, finite numbers
            that would become infinite, and, without ``dtype``, numbers that float64 rounds.
    """
    array = as_array(values, f"{source}: values")
    if array.dtype.kind == "c":
        raise InputError(
            f"{source}: values are {array.dtype}; complex numbers are not supported, "
            "give the real and the imaginary part as two matrices"
        )
    if array.dtype.kind not in "biuf" and not is_half(array.dtype):
        raise InputError(f"{source}: values have dtype {array.dtype}; expected real numbers")
    if dtype is None and is_half(array.dtype):
        dtype = value_dtype(array.dtype)
    elif dtype is None:
        dtype = np.dtype(np.float32 if np.result_type(array.dtype, np.float32) == np.float32 else np.float64)
        if array.dtype.itemsize > 8 and not _is_float64(array):
            raise InputError(
                f"{source}: values are {array.dtype}, and float64 would round them; "
                "convert them with .astype(numpy.float64), or ask for it with dtype='float64'"
            )
    with np.errstate(over="ignore", invalid="ignore"):
        if copy:
            converted = np.array(array, dtype=dtype, order="C")
        else:
            converted = np.ascontiguousarray(array, dtype=dtype)
        lost = _first_lost(array, converted)
    if lost is not None:
        wider = "; use a wider dtype" if dtype != np.float64 else ""
        raise InputError(
            f"{source}: the value {array.ravel()[lost]} of entry {lost} is {array.dtype}, and {dtype} would make "
            f"{converted.ravel()[lost]} of it{wider}"
        )
    return converted


def _is_float64(array: np.ndarray) -> bool:
    """Whether float64 holds all values of more than 64 bits exactly."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(((array.astype(np.float64) == array) | np.isnan(array)).all())


def _first_lost(given: np.ndarray, converted: np.ndarray) -> int | None:
    """Position of the first value that a conversion to floating-point numbers loses, not merely rounds; None: none.

    An integer is lost unless it is represented exactly, a finite number where it becomes infinite.
    """
    kind = limits(converted.dtype)
    if given.dtype.kind in "iu":
        digits = 1 - int(np.log2(kind.eps))  # of the significand, the leading one included
        if given.dtype.itemsize * 8 - (given.dtype.kind == "i") <= digits or not given.size:
            return None
        if max(abs(int(given.min())), int(given.max())) <= 2**digits:
            return None
        size = given.astype(np.uint64)  # negative numbers wrap around, and their negative is the magnitude
        size = np.where(given < 0, np.uint64(0) - size, size)
        lowest = np.maximum(size & (np.uint64(0) - size), np.uint64(1))
        lost = (size // lowest >= np.uint64(2) ** np.uint64(digits)) | np.isinf(converted)
    elif given.dtype.kind == "f" and (
        given.dtype.itemsize > converted.dtype.itemsize or is_half(converted.dtype)
    ):
        lost = np.isinf(converted)
        if not lost.any():
            return None
        lost &= np.isfinite(given)
    else:
        return None
    return int(np.argmax(lost)) if lost.any() else None


def as_array(obj: Any, name: str) -> np.ndarray:
    """``numpy.asarray`` that raises InputError (ragged lists, strange objects) and refuses masked arrays."""
    if isinstance(obj, np.ma.MaskedArray):
        raise InputError(f"{name}: masked arrays are not supported; use .filled() or .compressed() first")
    try:
        return np.asarray(obj)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name}: not an array ({error})") from error


def checked_integers(obj: Any, name: str) -> np.ndarray:
    """Return ``obj`` as a 1-D integer array; the message names the first element that is no integer."""
    array = as_array(obj, name)
    if array.ndim != 1:
        raise InputError(f"{name}: {array.ndim} dimensions (shape {array.shape}); expected a 1-D array")
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype(np.int32)  # an empty list
    if array.dtype.kind not in "iu":
        first = ""
        if array.dtype.kind == "f":
            wrong = np.flatnonzero(~(np.floor(array) == array))
            where = int(wrong[0]) if wrong.size else 0
            first = f" (entry {where}: {array[where]})"
        raise InputError(
            f"{name}: dtype {array.dtype}{first}; expected integers, convert with numpy.asarray(..., numpy.int64)"
        )
    return array


def checked_pointers(obj: Any, lines: int, nnz: int, source: str, line: str = "row") -> np.ndarray:
    """Return pointers of ``lines`` rows (or columns) over ``nnz`` entries: 0 first, never falling, nnz
    last."""
    name = f"{source}: {line} pointers"
    pointers = checked_integers(obj, name)
    if len(pointers) != lines + 1:
        raise InputError(f"{name}: {len(pointers)} of them for {lines} {line}s; expected {lines + 1}")
    if pointers[0] != 0:
        raise InputError(f"{name}: the first is {pointers[0]}; expected 0")
    falling = pointers[1:] < pointers[:-1]
    if falling.any():
        at = int(np.argmax(falling))
        raise InputError(
            f"{name}: they fall from {pointers[at]} to {pointers[at + 1]} at {line} {at}; "
            "expected them never to fall"
        )
    if pointers[-1] != nnz:
        raise InputError(
            f"{name}: the last is {pointers[-1]}, but {nnz} indices are stored; expected the two to be equal"
        )
    return np.array(pointers, dtype=index_dtype(nnz))


def checked_indices(
    obj: Any, size: int, dtype: np.dtype, source: str, line: str
) -> tuple[np.ndarray, int | None]:
    """Return a fresh ``dtype`` copy of indices, and the first position outside ``0 .. size - 1`` (None:
    all inside).

    The caller names the entry: it knows the other coordinates.
    """
    indices = checked_integers(obj, f"{source}: {line} indices")
    if indices.size == 0:
        return np.empty(0, dtype), None
    # Copy before looking where possible: nobody can change the copy between the check and its use.
    copied = np.array(indices, dtype=dtype) if np.can_cast(indices.dtype, dtype) else indices
    if int(copied.min()) < 0 or int(copied.max()) >= size:
        return indices, int(np.argmax((copied < 0) | (copied >= size)))
    return (copied if copied is not indices else indices.astype(dtype)), None


def refuse_entry(
    source: str, shape: Sequence[int], at: int, coordinates: Sequence[Any], value: Any
) -> NoReturn:
    """Raise the InputError for an entry that lies outside ``shape``."""
    names = ("row", "column") if len(shape) == 2 else tuple(f"mode {mode}" for mode in range(len(shape)))
    place = ", ".join(f"{name} {int(c)}" for name, c in zip(names, coordinates))
    mode = next(m for m, (c, size) in enumerate(zip(coordinates, shape)) if not 0 <= int(c) < size)
    size = shape[mode]
    allowed = (
        f"{names[mode]} indices run from 0 to {size - 1}"
        if size
        else f"dimension {mode} is 0, so nothing can be stored"
    )
    raise InputError(
        f"{source}: entry {at} ({place}, value {value}) is outside shape {_short(shape)}; {allowed}"
    )


def exact_dtype(values: Any) -> np.dtype | None:
    """The dtype of booleans, integers and longdouble, in native byte order, None of others."""
    dtype = np.asarray(values).dtype
    return np.dtype(dtype.type) if dtype.kind in "biu" or (dtype.kind == "f" and dtype.itemsize > 8) else None


def _short(sizes: Iterable[int]) -> str:
    return "x".join(str(size) for size in sizes)
