"""Counting in NumPy: the same integers as ``toolchain/pattern.c``, and the reference that its tests compare it with.

It also counts in patterns of 2**31 rows, columns or entries and more. Names are those of the C file.
"""

import numpy as np

from tensorwise.features.counts import (
    GRIDS,
    GROUP,
    KEPT,
    LEVELS,
    LINE,
    MIRRORED,
    MOST,
    NARROW,
    NEVER,
    PANEL,
    SLICES,
    WINDOW,
    MatrixCounts,
    ModeCounts,
    fold_bits,
)
from tensorwise.features.spectrum import Spectrum
from tensorwise.tensor.entries import Entries

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def matrix(entries: Entries, skip: int) -> MatrixCounts:
    """Count in a matrix; blocks in one of ``skip`` panels."""
    r, c = (array.astype(np.int64) for array in entries.coordinates)
    rows, columns = entries.shape
    fold = fold_bits(entries.nnz)
    same = r[1:] == r[:-1]
    gaps = (c[1:] - c[:-1])[same]
    far = np.abs(c - r)
    sampled = _sampled(r, rows, skip)
    some_r, some_c = r[sampled], c[sampled]
    diagonals = rows + columns - 1
    diagonal = (some_c - some_r).astype(np.uint64) + np.uint64(max(rows - 1, 0))
    column_slots = _slots(c, columns, 1, fold)
    diagonal_slots = _slots(diagonal, diagonals, 1, fold)
    ids, lengths = np.unique(r, return_counts=True)
    met = _Meetings(column_slots, r)
    return MatrixCounts(
        (rows, columns),
        Spectrum.of(lengths, rows),
        Spectrum.of(np.unique(column_slots, return_counts=True)[1], columns),
        Spectrum.of(np.unique(diagonal_slots, return_counts=True)[1], max(diagonals, 0)),
        *_slices(ids, lengths),
        _levels((c[1:] ^ c[:-1])[same]),
        _levels(far),
        met.levels,
        _Meetings(_slots(c, columns, LINE, fold), r).levels,
        np.array([_Meetings(_slots(some_c, columns, width, fold), some_r).levels for width in NARROW]),
        _Meetings(diagonal_slots, some_r).levels,
        len(some_r),
        _dense(column_slots[sampled], some_r),
        _total(gaps),
        int((gaps == 1).sum()),
        int((r - c).max()) if entries.nnz else 0,
        int((c - r).max()) if entries.nnz else 0,
        _total(far),
        met.adjacent,
        _mirrored(r, c),
        *_grids(r, c, rows, columns),
    )


def mode(entries: Entries, mode: int) -> ModeCounts:
    """Count in one mode of a tensor."""
    coordinate, size = entries.coordinates[mode].astype(np.int64), entries.shape[mode]
    slots = _slots(coordinate, size, 1, fold_bits(entries.nnz))
    return ModeCounts(
        Spectrum.of(np.unique(slots, return_counts=True)[1], size),
        _levels(np.abs(np.diff(coordinate))),
        _Meetings(slots, np.arange(entries.nnz)).levels,
    )


def pairs(entries: Entries, first: int, second: int, shift: int, bits: int, hashed: bool) -> int:
    """Count the slots that pairs of coordinates fall into, 2**bits where they are hashed."""
    a, b = (entries.coordinates[mode].astype(np.int64) >> shift for mode in (first, second))
    sizes = [((entries.shape[mode] - 1) >> shift) + 1 for mode in (first, second)]
    if sizes[0] * sizes[1] >= 2**63:  # number what occurs
        a, b = (np.unique(array, return_inverse=True)[1] for array in (a, b))
        sizes = [entries.nnz, entries.nnz]
    keys = a.astype(np.uint64) * np.uint64(max(sizes[1], 1)) + b.astype(np.uint64)
    return len(np.unique(_hash(keys, bits) if hashed else keys))


class _Meetings:
    """Meetings of ``slots`` at ``times``, which ascend."""

    def __init__(self, slots: np.ndarray, times: np.ndarray) -> None:
        order = np.argsort(slots, kind="stable")
        same = slots[order[1:]] == slots[order[:-1]]
        before, after = times[order[:-1]][same], times[order[1:]][same]
        first = len(slots) - len(before)
        self.levels = _levels(np.minimum(before ^ after, NEVER)) + first
        self.adjacent = int((after - before == 1).sum())


def _levels(numbers: np.ndarray) -> np.ndarray:
    """How many ``numbers`` are at least 2^0, 2^1, ...; (LEVELS,) int64."""
    return np.array([np.count_nonzero(numbers >= 2**level) for level in range(LEVELS)], np.int64)


def _slots(keys: np.ndarray, count: int, width: int, fold: int) -> np.ndarray:
    """Keys below ``count`` divided by ``width``, told apart by a hash where more than 2**fold are left."""
    shift = width.bit_length() - 1
    groups = keys.astype(np.uint64) >> np.uint64(shift)
    return _hash(groups, fold) if ((count - 1) >> shift) + 1 > 2**fold else groups


def _hash(keys: np.ndarray, bits: int) -> np.ndarray:
    return (keys * _GOLDEN) >> np.uint64(64 - bits)


def _sampled(r: np.ndarray, rows: int, skip: int) -> np.ndarray:
    """Whether each entry is in a sampled panel: of each ``skip`` panels one, drawn by a hash of their number."""
    panel = r // PANEL
    first = panel // skip * skip
    among = np.minimum((rows - 1) // PANEL + 1 - first, skip)
    drawn: np.ndarray = panel == first + _hash((panel // skip).astype(np.uint64), 16).astype(np.int64) % among
    return drawn


def _dense(slots: np.ndarray, r: np.ndarray) -> int:
    """Meetings of slots that are met more than MOST times by a group of rows."""
    order = np.lexsort((r // GROUP, slots))
    fresh = np.ones(len(r), bool)
    fresh[1:] = (np.diff(slots[order]) != 0) | (np.diff((r // GROUP)[order]) != 0)
    met = np.diff(np.flatnonzero(fresh), append=len(r))
    return int(met[met > MOST].sum())


def _slices(ids: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slots of slices of the rows ``ids`` that have entries: in their order, and sorted within windows."""
    own, by_length = np.zeros(len(SLICES), np.int64), np.zeros(len(SLICES), np.int64)
    if not len(ids):
        return own, by_length
    order = np.lexsort((-lengths, ids // WINDOW))
    starts = np.flatnonzero(np.diff(ids // WINDOW, prepend=-1))
    rank = np.arange(len(ids)) - np.repeat(starts, np.diff(starts, append=len(ids)))
    for place, height in enumerate(SLICES):
        slices = np.flatnonzero(np.diff(ids // height, prepend=-1))
        own[place] = np.maximum.reduceat(lengths, slices).sum() * height
        by_length[place] = lengths[order][rank % height == 0].sum() * height
    return own, by_length


def _mirrored(r: np.ndarray, c: np.ndarray) -> int:
    """Of evenly spread entries (i, k) those for which (k, i) is an entry, too."""
    looked = min(len(r), MIRRORED)
    some = np.arange(looked) * len(r) // max(looked, 1)
    row, column = c[some], r[some]  # of the mirror image
    low, end = np.searchsorted(r, row), np.searchsorted(r, row, side="right")
    high = end
    for _ in range(int((high - low).max(initial=0)).bit_length()):  # all searches halve their rows together
        middle = (low + high) // 2
        right = (low < high) & (c[np.minimum(middle, len(c) - 1)] < column)
        low, high = np.where(right, middle + 1, low), np.where(right, high, middle)
    return int(((low < end) & (c[np.minimum(low, len(c) - 1)] == column)).sum())


def _grids(r: np.ndarray, c: np.ndarray, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """How many cells of each grid have entries, and the entries in each cell of the one that is kept."""
    grids = {
        side: np.bincount(
            _cells(r, rows) * side // GRIDS[0] * side + _cells(c, columns) * side // GRIDS[0],
            minlength=side**2,
        )
        for side in GRIDS
    }
    return np.array([np.count_nonzero(grid) for grid in grids.values()]), grids[KEPT].reshape(KEPT, KEPT)


def _cells(keys: np.ndarray, count: int) -> np.ndarray:
    """Which cell of the finest grid each key below ``count`` falls into; in 20 bits and float32, as in C."""
    last = max(count - 1, 0)
    shift = max(last.bit_length() - 20, 0)
    factor = np.float32(GRIDS[0]) / np.float32((last >> shift) + 1)
    return (((keys >> shift).astype(np.float32) + np.float32(0.5)) * factor).astype(np.int64)


def _total(numbers: np.ndarray) -> float:
    """The sum of numbers that are not negative, exact where it fits 62 bits."""
    small = int(numbers.max(initial=0)) * len(numbers) < 2**62
    return int(numbers.sum()) if small else float(numbers.sum(dtype=float))
