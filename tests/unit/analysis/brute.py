"""The counts of a small pattern once more, from a set of places: slow, and as the definitions read."""

from collections import Counter
from itertools import pairwise

import numpy as np

from tensorwise.analysis.counts import (
    BANDS,
    GRIDS,
    GROUP,
    HEIGHTS,
    LINE,
    NARROW,
    OFFSETS,
    PIECES,
    SLICES,
    SPARSE_MEETINGS,
    STRIPS,
    WINDOW,
    WINDOWS,
    MatrixCounts,
    ModeCounts,
)
from tensorwise.analysis.spectrum import Spectrum
from tensorwise.tensor.entries import Entries


def matrix(entries: Entries) -> MatrixCounts:
    """Count in a matrix of fewer columns and diagonals than are hashed; blocks in all panels."""
    rows, columns = entries.shape
    places = sorted(zip(*(array.tolist() for array in entries.coordinates), strict=True))
    row_lengths, column_lengths = Counter(i for i, _ in places), Counter(k for _, k in places)
    steps = [(k, after) for (i, k), (j, after) in pairwise(places) if i == j]
    groups = Counter((i // GROUP, k) for i, k in places)
    return MatrixCounts(
        shape=(rows, columns),
        rows=_spectrum(row_lengths, rows),
        columns=_spectrum(column_lengths, columns),
        own_slots=np.array([_slots(row_lengths, rows, height, 1) for height in SLICES]),
        sorted_slots=np.array([_slots(row_lengths, rows, height, WINDOW) for height in SLICES]),
        crossings=np.array(
            [sum(k // width != after // width for k, after in steps) for width in (LINE, *STRIPS)]
        ),
        offsets=np.array([sum(abs(i - k) >= far for i, k in places) for far in OFFSETS]),
        column_meetings=np.array([_blocks(places, height, 1) for height in (*HEIGHTS, *BANDS)]),
        line_meetings=np.array([_blocks(places, height, LINE) for height in (*HEIGHTS, *BANDS)]),
        block_meetings=np.array([[_blocks(places, height, width) for height in HEIGHTS] for width in NARROW]),
        diagonal_meetings=np.array([len({(i // height, k - i) for i, k in places}) for height in PIECES]),
        sampled=len(places),
        dense=sum(met for met in groups.values() if met > SPARSE_MEETINGS),
        span=sum(after - k for k, after in steps),
        runs=sum(after - k == 1 for k, after in steps),
        below=max((i - k for i, k in places), default=0),
        above=max((k - i for i, k in places), default=0),
        distance=sum(abs(i - k) for i, k in places),
        filled=np.array(
            [len({(i * side // rows, k * side // columns) for i, k in places}) for side in GRIDS]
        ),
        bands=np.array(
            [
                [[place[axis] * GRIDS[0] // size for place in places].count(band) for band in range(GRIDS[0])]
                for axis, size in enumerate(entries.shape)
            ]
        ),
    )


def mode(entries: Entries, mode: int) -> ModeCounts:
    """Count in one mode of a tensor of fewer coordinates than are hashed."""
    here = entries.coordinates[mode].tolist()
    return ModeCounts(
        lines=_spectrum(Counter(here), entries.shape[mode]),
        repeats=sum(one == other for one, other in pairwise(here)),
        meetings=np.array([len({(at // window, one) for at, one in enumerate(here)}) for window in WINDOWS]),
    )


def _spectrum(lengths: Counter[int], size: int) -> Spectrum:
    lines = Counter(lengths.values())
    lines[0] = size - len(lengths)
    found = sorted(lines)
    return Spectrum(np.array(found), np.array([lines[length] for length in found]))


def _slots(lengths: Counter[int], rows: int, height: int, window: int) -> int:
    """Slots of slices, with the rows of each window sorted by length."""
    order = sorted(range(rows), key=lambda i: (i // window, -lengths[i]))
    return sum(max(lengths[i] for i in order[at : at + height]) for at in range(0, rows, height)) * height


def _blocks(places: list[tuple[int, int]], height: int, width: int) -> int:
    return len({(i // height, k // width) for i, k in places})
