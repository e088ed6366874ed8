"""Raw arrays -> canonical entries: checked once, brought into row-major order, duplicates summed."""

from collections.abc import Sequence

import numpy as np

from tensorwise.errors import InputError
from tensorwise.tensor.checks import (
    as_array,
    checked_indices,
    checked_integers,
    checked_pointers,
    checked_values,
    coordinate_dtype,
    exact_dtype,
    refuse_entry,
)
from tensorwise.tensor.elements import as_bits
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.pointers import pointers_of, rows_of
from tensorwise.tensor.raw import RawCompressed, RawCoordinates, RawEntries


def canonical_entries(raw: RawEntries, dtype: np.dtype | None) -> Entries:
    """Return the `Entries` of arrays that came from outside, checked; untrusted arrays are copied.

    Entries may come in any order. Duplicates are summed: in the order given, in float64, rounded to
    the dtype of the result (boolean duplicates are combined by "or").

    Args:
        raw: what a reader or an adapter returned.
        dtype: of the values, as `checked_dtype` returns it; None: see `checked_values`.

    Raises:
        InputError: arrays that do not fit each other or the shape, or values that are refused by `checked_values`.
    """
    return _from_compressed(raw, dtype) if isinstance(raw, RawCompressed) else _from_coordinates(raw, dtype)


def _from_coordinates(raw: RawCoordinates, dtype: np.dtype | None) -> Entries:
    shape, source = raw.shape, raw.source
    if raw.is_trusted:
        fresh = checked_values(raw.values, dtype, source, copy=False)
        return _sorted_entries(shape, raw.coordinates, fresh, raw.values, dtype)
    if len(raw.coordinates) != len(shape):
        raise InputError(
            f"{source}: {len(raw.coordinates)} coordinate arrays for {len(shape)} modes; expected one a mode"
        )
    index = coordinate_dtype(shape)
    arrays = [
        checked_integers(array, f"{source}: coordinates of mode {mode}")
        for mode, array in enumerate(raw.coordinates)
    ]
    values = np.ones(len(arrays[0]), dtype or np.float32) if raw.values is None else raw.values
    given = as_array(values, f"{source}: values")
    fresh = checked_values(given, dtype, source)
    for mode, array in enumerate(arrays):
        if fresh.ndim != 1 or len(array) != len(fresh):
            raise InputError(
                f"{source}: {len(array)} coordinates of mode {mode}, but values of shape {fresh.shape}; "
                "expected as many values as coordinates"
            )
    checked = []
    for mode, array in enumerate(arrays):
        indices, outside = checked_indices(array, shape[mode], index, source, f"mode {mode}")
        if outside is not None:
            refuse_entry(source, shape, outside, [other[outside] for other in arrays], fresh[outside])
        checked.append(indices)
    return _sorted_entries(shape, checked, fresh, given, dtype)


def _from_compressed(raw: RawCompressed, dtype: np.dtype | None) -> Entries:
    shape, source, by_column = raw.shape, raw.source, raw.by_column
    if len(shape) != 2:
        raise InputError(
            f"{source}: shape {shape} has {len(shape)} modes; expected two, compressed by row or column"
        )
    lines, size = (shape[1], shape[0]) if by_column else shape
    line, other = ("column", "row") if by_column else ("row", "column")
    given = as_array(raw.values, f"{source}: values")
    fresh = checked_values(given, dtype, source)
    inner = checked_integers(raw.indices, f"{source}: {other} indices")
    if fresh.shape != inner.shape:
        raise InputError(
            f"{source}: {len(inner)} {other} indices, but values of shape {fresh.shape}; "
            "expected one value an index"
        )
    starts = checked_pointers(raw.pointers, lines, len(inner), source, line)
    inner, outside = checked_indices(inner, size, coordinate_dtype(shape), source, other)
    if outside is not None:
        at_line = int(np.searchsorted(starts, outside, side="right")) - 1
        place = (inner[outside], at_line) if by_column else (at_line, inner[outside])
        refuse_entry(source, shape, outside, place, fresh[outside])
    if by_column and pointers_fit(shape[0], len(inner)):
        from scipy.sparse import csc_array

        # The indices are known to be valid now. SciPy's transposition is a counting sort: rows come out in
        # order.
        by_rows = csc_array((as_bits(fresh), inner, starts), shape=(shape[0], shape[1])).tocsr()
        inner = by_rows.indices.astype(coordinate_dtype(shape), copy=False)
        starts = by_rows.indptr.astype(starts.dtype, copy=False)
        fresh, by_column = by_rows.data.view(fresh.dtype), False
    outer = rows_of(starts, inner.dtype)
    if by_column:
        return _sorted_entries(shape, (inner, outer), fresh, given, dtype)
    if is_strict(outer, inner):
        kind = exact_dtype(given) if dtype is None else None
        return Entries.of_checked(shape, (outer, inner), fresh, starts, kind)
    return _sorted_entries(shape, (outer, inner), fresh, given, dtype)


def _sorted_entries(
    shape: tuple[int, ...],
    coordinates: Sequence[np.ndarray],
    values: np.ndarray,
    given: np.ndarray,
    dtype: np.dtype | None,
) -> Entries:
    """Return the Entries of valid coordinate arrays of the right dtype, in any order.

    Args:
        given: the values before they were converted; their dtype decides how duplicates are combined.
        dtype: what was given to `canonical_entries`.
    """
    coords, merged = row_major(shape, coordinates, values, given.dtype)
    pointers = matrix_pointers(shape, coords[0])
    kind = exact_dtype(given) if dtype is None else None
    return Entries.of_checked(shape, coords, merged, pointers, kind)


def pointers_fit(rows: int, nnz: int) -> bool:
    """Whether row pointers cost memory in proportion to the entries (else they are made on demand only)."""
    return rows <= 32 * nnz + 2**20


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
