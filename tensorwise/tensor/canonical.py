"""Coordinate arrays: checked once, brought into row-major order, duplicates summed.

Everything here works on plain arrays that came from outside and are not trusted; nothing is handed to
compiled code before its indices are known to lie inside the shape.
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


def pointers_fit(rows: int, nnz: int) -> bool:
    """Whether row pointers cost memory in proportion to the entries (else they are made on demand only)."""
    return rows <= 32 * nnz + 2**20


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


def rows_of(pointers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Row of every entry (nnz,) from valid row pointers (rows + 1,)."""
    rows, nnz = len(pointers) - 1, int(pointers[-1])
    if nnz < 5 * rows:  # short rows: count the borders before each entry (``repeat`` costs 10 ns a row)
        return np.cumsum(np.bincount(pointers[1:-1], minlength=nnz + 1)[:nnz], dtype=dtype)
    return np.repeat(np.arange(rows, dtype=dtype), np.diff(pointers))


def pointers_of(rows: np.ndarray, count: int) -> np.ndarray:
    """Row pointers (count + 1,) from sorted, valid row indices (nnz,)."""
    pointers = np.zeros(count + 1, index_dtype(len(rows)))
    np.cumsum(np.bincount(rows, minlength=count), out=pointers[1:])
    return pointers


def matrix_pointers(shape: Sequence[int], rows: np.ndarray) -> np.ndarray | None:
    """Row pointers of a matrix from its sorted, valid row indices; None for a tensor, and where they do not fit."""
    return pointers_of(rows, shape[0]) if len(shape) == 2 and pointers_fit(shape[0], len(rows)) else None


def is_strict(rows: np.ndarray, columns: np.ndarray) -> bool:
    """Whether columns rise strictly in every row (rows never fall): sorted and free of duplicates."""
    return not ((columns[1:] <= columns[:-1]) & (rows[1:] == rows[:-1])).any()


def row_major(
    shape: Sequence[int], coordinates: Sequence[np.ndarray], values: np.ndarray, given: np.dtype | None = None
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Sort valid coordinates row-major and sum duplicates; returns the arguments themselves when in order
    already.

    Duplicates are summed in the order given, in float64, and rounded to the dtype of ``values``.

    Args:
        given: dtype in which the values came. Duplicates of a boolean matrix are combined by "or"; sums of
            integers that are not representable raise InputError.
    """
    coords = tuple(coordinates)
    ordered, equal = _compare_neighbours(coords)
    if not ordered:
        order = stable_order(shape, coords)
        coords = tuple(array[order] for array in coords)
        values = values[order]
        _, equal = _compare_neighbours(coords)
    if not equal.any():
        return coords, values
    starts = np.concatenate(([0], np.flatnonzero(~equal) + 1))
    with np.errstate(over="ignore", invalid="ignore"):
        if given is not None and given.kind == "b":
            merged = np.maximum.reduceat(values, starts)
        else:
            sums = np.add.reduceat(values.astype(np.float64), starts)
            merged = sums.astype(values.dtype)
            if given is not None and given.kind in "iu" and _rounded(values, starts, sums, merged):
                raise InputError(
                    f"duplicates of {given} add up to integers that {values.dtype} does not represent; use a wider dtype, "
                    "or add them up beforehand"
                )
    return tuple(array[starts] for array in coords), merged


def _rounded(values: np.ndarray, starts: np.ndarray, sums: np.ndarray, merged: np.ndarray) -> bool:
    """Whether sums of integers may not be exact, on the way in float64 or in the dtype of ``merged``."""
    several = np.diff(starts, append=len(values)) > 1
    sizes = np.add.reduceat(np.abs(values.astype(np.float64)), starts)
    return bool((several & (sizes >= 2**53)).any() or (merged.astype(np.float64) != sums).any())


def _compare_neighbours(coords: Sequence[np.ndarray]) -> tuple[bool, np.ndarray]:
    """(no entry is below its predecessor, mask of entries 1.. that equal their predecessor)."""
    equal = np.ones(max(len(coords[0]) - 1, 0), np.bool_)
    for array in coords:  # a later mode only decides between entries whose earlier modes are equal
        before, after = array[:-1], array[1:]
        if bool((equal & (after < before)).any()):
            return False, equal
        equal &= after == before
    return True, equal


def stable_order(shape: Sequence[int], coords: Sequence[np.ndarray]) -> np.ndarray:
    """Permutation (nnz,) that sorts row-major and keeps the order of duplicates.

    As many trailing modes as fit are packed into one 63-bit key above the entry's number, so that NumPy's
    vectorised ``sort`` (several times faster than ``argsort``) gives a stable order; leading modes follow
    in further rounds, as in a radix sort. No product of dimensions is ever formed, so none can wrap.
    """
    nnz = len(coords[0])
    number_bits = max(nnz - 1, 0).bit_length()
    order: np.ndarray | None = None
    mode = len(shape)
    while mode > 0:
        mode -= 1
        key = coords[mode].astype(np.int64)
        bits = (shape[mode] - 1).bit_length()
        while mode > 0 and bits + (shape[mode - 1] - 1).bit_length() + number_bits <= 63:
            mode -= 1
            key |= coords[mode].astype(np.int64) << bits
            bits += (shape[mode] - 1).bit_length()
        if order is not None:
            key = key[order]
        if bits + number_bits <= 63:
            key <<= number_bits
            key |= np.arange(nnz)
            key.sort()
            key &= (1 << number_bits) - 1
            step = key
        else:
            step = np.argsort(key, kind="stable")
        order = step if order is None else order[step]
    assert order is not None
    return order


def _short(sizes: Iterable[int]) -> str:
    return "x".join(str(size) for size in sizes)
