"""Walks: counts of work and cache misses when processors go through a pattern tile by tile.

In one pass of compiled code (``walks.c``), or by NumPy where there is no compiler: both give the same numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np

from tensorwise.space.strips import Processors
from tensorwise.toolchain.routines import POINTER, SIZE, Routines

CLASSES: Final = 48  # walks.c has this number, too
WINDOWS: Final = 2.0 ** (np.arange(CLASSES) / 2)
"""Accesses within which a row may be met again."""
WALKING: Final = Routines(
    "walk along tiles",
    "tw_walk_",
    {"tiles": (SIZE, (SIZE, POINTER, POINTER, *(SIZE,) * 9, POINTER, POINTER, POINTER))},
    Path(__file__).with_name("walks.c"),
)


@final
class Curve:
    """How many accesses a cache misses, as a function of how much it holds.

    By Denning's working sets: a window of w accesses touches some mean number of rows, and misses are accesses whose
    previous access to the same row is more than w accesses back. Both follow from the gaps between accesses to one row.

    Args:
        accesses: (kinds,) number of accesses of each kind.
        fresh: number of first accesses to a row, over all kinds.
        within: (kinds, CLASSES) number of gaps of each kind that are at most each of WINDOWS.
        sums: (CLASSES,) sum of the gaps that are at most each of WINDOWS.
    """

    def __init__(self, accesses: Sequence[int], fresh: int, within: np.ndarray, sums: np.ndarray) -> None:
        every = sum(accesses)
        touched = (sums + (every - within.sum(axis=0)) * WINDOWS) / every
        self._touched = np.log2(np.minimum(touched, fresh))
        self._missed = [count - known for count, known in zip(accesses, within, strict=True)]

    def fetched(self, held: float) -> list[float]:
        """Return how many accesses of each kind a cache of ``held`` rows misses."""
        return [float(np.interp(np.log2(held), self._touched, missed)) for missed in self._missed]


@final
@dataclass(frozen=True)
class TileWalk:
    """Counts of one walk of the processors through the tiles of a pattern.

    Attributes:
        work, begun, tiles: entries, rows of the output and tiles of the processor that has most of them; where all finish a
            column panel before the next begins, summed over these.
        curves: of each level of caches: accesses to gathered rows, and these with those of the output between.
    """

    work: float
    begun: float
    tiles: float
    curves: tuple[tuple[Curve, Curve], ...]


Places = tuple[np.ndarray, np.ndarray]
"""Rows and columns of entries, row by row, columns ascending: (entries,) integers each, at least one."""


def walk(
    places: Places, shape: tuple[int, ...], tile: tuple[int, int], columns_first: bool, processors: Processors
) -> TileWalk:
    """Walk along the entries of a matrix of ``shape``.

    Args:
        tile: extents of a row panel and of a column panel.
        columns_first: column panels are the outer ones, and all processors finish one before the next begins.
        processors: that take row panels in turn, and their caches.

    Raises:
        MemoryError: there is none for a few words an entry, row and column.
    """
    small = len(places[0]) < 2**31 and max(shape) < 2**31
    return (_compiled if small and WALKING.works else plain)(places, shape, tile, columns_first, processors)


def _compiled(
    places: Places, shape: tuple[int, ...], tile: tuple[int, int], columns_first: bool, processors: Processors
) -> TileWalk:
    row, column = (np.ascontiguousarray(one, np.int32) for one in places)
    high, wide = (-(-extent // size) for extent, size in zip(shape, tile, strict=True))
    several = list(dict.fromkeys(sharers for _, sharers in processors.caches))
    sharers, most = np.array(several, np.int64), np.empty(3, np.int64)
    found = np.empty((len(several), 2, 1 + 3 * CLASSES), np.int64)
    begun = WALKING(
        "tiles", len(row), row.ctypes.data, column.ctypes.data, *shape, *tile, high, wide, columns_first,
        processors.lanes, len(several), sharers.ctypes.data, most.ctypes.data, found.ctypes.data,
    )  # fmt: skip
    curves = {}
    for count, (alone, both) in zip(several, found, strict=True):
        gaps = both[1:].reshape(3, CLASSES).cumsum(axis=1)
        own = alone[1:].reshape(3, CLASSES).cumsum(axis=1)
        curves[count] = (
            Curve([len(row)], int(alone[0]), own[:1], own[2]),
            Curve([len(row), begun], int(both[0]), gaps[:2], gaps[2]),
        )
    work, rows_begun, tiles = map(float, most)
    return TileWalk(work, rows_begun, tiles, tuple(curves[count] for _, count in processors.caches))


def plain(
    places: Places, shape: tuple[int, ...], tile: tuple[int, int], columns_first: bool, processors: Processors
) -> TileWalk:
    """Do what ``walk`` does in NumPy, by sorting."""
    row, column = (one.astype(np.int64, copy=False) for one in places)
    panel, part = (where // size for where, size in zip((row, column), tile, strict=True))
    high, wide = (-(-extent // size) for extent, size in zip(shape, tile, strict=True))
    if wide > 1:
        order = np.lexsort((panel, part) if columns_first else (part, panel))
        row, column, panel, part = (one[order] for one in (row, column, panel, part))
    first = _changes(panel) | _changes(part)
    begins = first | _changes(row)
    turn = part if columns_first else np.zeros_like(part)  # what all finish before the next begins
    whose = turn * processors.lanes + panel % processors.lanes
    # Side by side: the first entries of all panels of a group, then their second ones.
    starts = np.flatnonzero(first if columns_first else _changes(panel))
    rank = np.arange(len(row)) - np.repeat(starts, np.diff(np.append(starts, len(row))))
    curves = {}
    for several in {sharers for _, sharers in processors.caches}:
        group = panel // several + turn * high
        together = np.lexsort((rank, group)) if several > 1 else slice(None)
        curves[several] = _streams(row[together], column[together], begins[together], shape[1])
    return TileWalk(
        _most(whose, processors.lanes), _most(whose[begins], processors.lanes), _most(whose[first], processors.lanes),
        tuple(curves[sharers] for _, sharers in processors.caches),
    )  # fmt: skip


def _most(whose: np.ndarray, lanes: int) -> float:
    """Return how often the processor is named that is named most, summed over turns: names are turn x lanes + processor."""
    found, counts = np.unique(whose, return_counts=True)
    return float(np.maximum.reduceat(counts, np.flatnonzero(_changes(found // lanes))).sum())


def _streams(row: np.ndarray, column: np.ndarray, begins: np.ndarray, columns: int) -> tuple[Curve, Curve]:
    """Return the curves of gathered rows alone, and with the rows of the output that are begun between them."""
    # A row of the output is fetched before its first entry.
    gathered = np.arange(len(column)) + np.cumsum(begins)
    both = np.empty(len(column) + np.count_nonzero(begins), np.int64)
    of_output = np.ones(len(both), bool)
    of_output[gathered] = False
    both[gathered], both[of_output] = column, columns + row[begins]
    return _curve(column, [np.ones(len(column), bool)]), _curve(both, [~of_output, of_output])


def _curve(rows: np.ndarray, kinds: list[np.ndarray]) -> Curve:
    order = np.argsort(rows, kind="stable")
    again = ~_changes(rows[order])[1:]
    gaps, later = np.diff(order)[again], order[1:][again]
    ordered = np.sort(gaps)
    sums = np.concatenate([[0], np.cumsum(ordered)])[np.searchsorted(ordered, WINDOWS, side="right")]
    within = [np.searchsorted(np.sort(gaps[kind[later]]), WINDOWS, side="right") for kind in kinds]
    return Curve(
        [int(np.count_nonzero(kind)) for kind in kinds], len(rows) - len(gaps), np.array(within), sums
    )


def _changes(values: np.ndarray) -> np.ndarray:
    """Where a value differs from the one before it: bool, (n,), the first one does."""
    return np.concatenate([[True], values[1:] != values[:-1]])
