"""Counting in NumPy: the same integers as ``analysis/pattern.c``, and the reference that its tests compare it with.

It also counts in patterns of 2**31 rows, columns or entries and more. Names are those of the C file.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from tensorwise.analysis.counts import (
    BANDS,
    GRIDS,
    GROUP,
    HEAVY,
    HEIGHTS,
    LINE,
    NARROW,
    OFFSETS,
    PANEL,
    PIECES,
    SLICES,
    SPARSE_MEETINGS,
    STRIP,
    STRIPS,
    WINDOW,
    WINDOWS,
    MatrixCounts,
    ModeCounts,
    fold_bits,
)
from tensorwise.analysis.spectrum import Spectrum
from tensorwise.tensor.entries import Entries

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


def matrix(entries: Entries, skip: int) -> MatrixCounts:
    """Count in a matrix; blocks and diagonals in one of ``skip`` panels or strips."""
    r, c = (array.astype(np.int64) for array in entries.coordinates)
    rows, columns = entries.shape
    fold, sample_fold = fold_bits(entries.nnz), fold_bits(entries.nnz // skip)
    same = r[1:] == r[:-1]
    gaps = (c[1:] - c[:-1])[same]
    far = np.abs(c - r)
    ids, lengths = np.unique(r, return_counts=True)
    sampled = _sampled(r, c, skip)
    some_r, some_c = r[sampled], c[sampled]
    diagonal = (some_c - some_r).astype(np.uint64) + np.uint64(max(rows - 1, 0))
    column_slots = _slots(c, columns, 1, fold)
    own, by_length = _slices(ids, lengths)
    filled, bands = _grids(r, c, rows, columns)
    return MatrixCounts(
        shape=(rows, columns),
        rows=Spectrum.of(lengths, rows),
        columns=Spectrum.of(np.unique(column_slots, return_counts=True)[1], columns),
        own_slots=own,
        sorted_slots=by_length,
        crossings=_at_least((c[1:] ^ c[:-1])[same], (LINE, *STRIPS)),
        offsets=_at_least(far, OFFSETS),
        column_meetings=_meetings(column_slots, r, (*HEIGHTS, *BANDS)),
        line_meetings=_meetings(_slots(c, columns, LINE, fold), r, (*HEIGHTS, *BANDS)),
        block_meetings=np.array(
            [_meetings(_slots(some_c, columns, width, sample_fold), some_r, HEIGHTS) for width in NARROW]
        ),
        diagonal_meetings=_meetings(_slots(diagonal, rows + columns - 1, 1, sample_fold), some_r, PIECES),
        sampled=len(some_r),
        dense=_dense(_slots(some_c, columns, 1, sample_fold), some_r),
        span=_total(gaps),
        runs=int((gaps == 1).sum()),
        below=int((r - c).max()) if entries.nnz else 0,
        above=int((c - r).max()) if entries.nnz else 0,
        distance=_total(far),
        filled=filled,
        bands=bands,
    )


def mode(entries: Entries, mode: int) -> ModeCounts:
    """Count in one mode of a tensor."""
    coordinate, size = entries.coordinates[mode].astype(np.int64), entries.shape[mode]
    slots = _slots(coordinate, size, 1, fold_bits(entries.nnz))
    return ModeCounts(
        lines=Spectrum.of(np.unique(slots, return_counts=True)[1], size),
        repeats=int((coordinate[1:] == coordinate[:-1]).sum()),
        meetings=_meetings(slots, np.arange(entries.nnz), WINDOWS),
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


def _meetings(slots: np.ndarray, times: np.ndarray, windows: Sequence[int]) -> np.ndarray:
    """Pairs of a slot and one of the windows of so many times; ``times`` ascend, windows are powers of two."""
    order = np.argsort(slots, kind="stable")
    same = slots[order[1:]] == slots[order[:-1]]
    before, after = times[order[:-1]][same], times[order[1:]][same]
    return _at_least(before ^ after, windows) + (len(slots) - len(before))


def _at_least(numbers: np.ndarray, bounds: Sequence[int]) -> np.ndarray:
    """How many ``numbers`` are at least as large as each of ``bounds``; (len(bounds),) int64."""
    return np.array([np.count_nonzero(numbers >= bound) for bound in bounds], np.int64)


def _slots(keys: np.ndarray, count: int, width: int, fold: int) -> np.ndarray:
    """Return keys below ``count`` divided by ``width``, hashed to 2**fold slots where there are more."""
    shift = width.bit_length() - 1
    groups = keys.astype(np.uint64) >> np.uint64(shift)
    return _hash(groups, fold) if ((count - 1) >> shift) + 1 > 2**fold else groups


def _hash(keys: np.ndarray, bits: int) -> np.ndarray:
    return (keys * _GOLDEN) >> np.uint64(64 - bits)


def _sampled(r: np.ndarray, c: np.ndarray, skip: int) -> np.ndarray:
    """Whether each entry is sampled: of each ``skip`` panels with entries one, drawn by a hash; of heavy ones, strips."""
    panel = np.cumsum(np.diff(r // PANEL, prepend=r[:1] // PANEL) != 0)
    number = panel + c // STRIP * (np.bincount(panel) > HEAVY)[panel] if len(r) else panel
    sampled: np.ndarray = (
        number % skip == _hash((number // skip).astype(np.uint64), 16).astype(np.int64) % skip
    )
    return sampled


def _dense(slots: np.ndarray, r: np.ndarray) -> int:
    """Meetings of slots that are met more than SPARSE_MEETINGS times by a group of rows."""
    order = np.lexsort((r // GROUP, slots))
    fresh = np.ones(len(r), bool)
    fresh[1:] = (np.diff(slots[order]) != 0) | (np.diff((r // GROUP)[order]) != 0)
    met = np.diff(np.flatnonzero(fresh), append=len(r))
    return int(met[met > SPARSE_MEETINGS].sum())


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


def _grids(r: np.ndarray, c: np.ndarray, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """How many cells of each grid have entries, and the entries in each row and column of cells of the finest."""
    tall, wide = _cells(r, rows), _cells(c, columns)
    filled = [len(np.unique(tall * side // GRIDS[0] * side + wide * side // GRIDS[0])) for side in GRIDS]
    return np.array(filled), np.array([np.bincount(cells, minlength=GRIDS[0]) for cells in (tall, wide)])


def _cells(keys: np.ndarray, count: int) -> np.ndarray:
    """Which cell of the finest grid each key below ``count`` falls into; in 20 bits and float32, as in C."""
    last = max(count - 1, 0)
    shift = max(last.bit_length() - 20, 0)
    factor = np.float32(GRIDS[0]) / np.float32((last >> shift) + 1)
    return (((keys >> shift).astype(np.float32) + np.float32(2**-7)) * factor).astype(np.int64)


def _total(numbers: np.ndarray) -> float:
    """The sum of numbers that are not negative, exact where it fits 62 bits."""
    small = int(numbers.max(initial=0)) * len(numbers) < 2**62
    return int(numbers.sum()) if small else float(numbers.sum(dtype=float))
