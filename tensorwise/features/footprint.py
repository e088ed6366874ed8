"""Footprint: what the strips of a config make a device do with a pattern, counted. The same numbers for every device.

COGNATE describes configs by their strips and patterns by themselves, and leaves it to a network to find out how they meet.
From a few matrices of a new device no network learns that. Counted, it need not be learned: how much the processor does that
has most to do, how often it begins a row of the output and a tile, and how many values of the dense operands each level of
caches has to fetch from behind it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tensorwise.features.featurizer import Field
from tensorwise.space.strips import LEVELS, OWN, Processors, Strips
from tensorwise.tensor.orders import permutation

if TYPE_CHECKING:
    from tensorwise.tensor.entries import Entries

_WINDOWS: Final = 2.0 ** (np.arange(48) / 2)
"""Accesses within which a row may be met again."""
_LOG: Final = "log2(1 + x)"
_FETCHED: Final = (
    ("gathered.alone", "values of gathered rows, where rows of the output go past the caches,"),
    ("gathered", "values of gathered rows, where rows of the output take room in them,"),
    ("output", "values of rows of the output, where they do,"),
)
FIELDS: Final = (
    Field("entries", _LOG, "entries that are read, in all passes over the dense columns"),
    Field("work", _LOG, "products that the processor with the most entries computes"),
    Field("begun", _LOG, "values of the output that the processor begins that begins most: those of a row, in each tile"),
    Field("tiles", _LOG, "tiles that the processor is handed that is handed most"),
    Field("rows", _LOG, "values of the operand that rows index (SpMM: of the output)"),
    Field("columns", _LOG, "values of the operand that columns index, and entries gather"),
    Field("waits", _LOG, "column panels, where they are the outer ones of several: what processors may wait behind"),
    *(
        Field(f"{who}.{level + 1}", _LOG, f"{what} that caches of level {level + 1} fetch from behind them")
        for level in range(LEVELS)
        for who, what in _FETCHED
    ),
)  # fmt: skip
"""What each number of a footprint is. SDDMM's left operand counts as the output: both are indexed by rows."""

_Moved = tuple[str, str]


@final
class Footprints:
    """The footprints of configs on one pattern; what they share is counted once.

    Args:
        entries: of a matrix.
        processors: that take row panels in turn, and their caches.
    """

    def __init__(self, entries: "Entries", processors: Processors) -> None:
        self._entries, self._processors = entries, processors
        self._laid: dict[_Moved, tuple[np.ndarray, np.ndarray]] = {}
        self._walks: dict[tuple[_Moved, int, int, bool], _Walk] = {}

    def of(self, strips: Strips, dense: int) -> np.ndarray:
        """Return what FIELDS are logarithms of, for a config: float64, (len(FIELDS),), zeros where there is nothing to do.

        Args:
            strips: the config.
            dense: extent of the dense index, COGNATE's k.
        """
        if not (self._entries.nnz and dense):
            return np.zeros(len(FIELDS))
        i, j, k = strips.splits
        rows, columns = self._entries.shape
        wide = -(-columns // j)
        columns_first = wide > 1 and strips.order.index("j2") < strips.order.index("i2")
        walk, passes = self._walk(strips.moved, i, j, columns_first), dense / k
        fetched = [
            count
            for (size, _), curves in zip(self._processors.caches, walk.curves, strict=True)
            for curve in curves
            for count in curve.fetched(size / (self._entries.dtype.itemsize * k))
        ]
        counted = [
            self._entries.nnz, k * walk.work, k * walk.begun, walk.tiles, k * rows, k * columns, wide * columns_first,
            *(k * count for count in fetched),
        ]  # fmt: skip
        return passes * np.array(counted)

    def _places(self, moved: _Moved) -> tuple[np.ndarray, np.ndarray]:
        """Where entries lie when rows and columns are ordered so, row by row: two int64 arrays, (entries,)."""
        if moved not in self._laid:
            found = []
            for mode, order in enumerate(moved):
                places = np.asarray(self._entries.coordinates[mode], np.int64)
                if order != OWN:
                    stored = permutation(self._entries, mode, order)
                    place_of = np.empty(len(stored), np.int64)
                    place_of[stored] = np.arange(len(stored))
                    places = place_of[places]
                found.append(places)
            taken = np.lexsort(found[::-1])
            self._laid[moved] = found[0][taken], found[1][taken]
        return self._laid[moved]

    def _walk(self, moved: _Moved, i: int, j: int, columns_first: bool) -> "_Walk":
        key = moved, i, j, columns_first
        if key not in self._walks:
            places, shape = self._places(moved), self._entries.shape
            self._walks[key] = _Walk.of(places, shape, (i, j), columns_first, self._processors)
        return self._walks[key]


@final
@dataclass(frozen=True)
class _Walk:
    """What becomes of entries in the order in which processors take the tiles.

    Attributes:
        work, begun, tiles: entries, rows of the output and tiles of the processor that has most of them; where all finish a
            column panel before the next begins, summed over these.
        curves: of each level: accesses to gathered rows, and these with those of the output between.
    """

    work: float
    begun: float
    tiles: float
    curves: "tuple[tuple[_Curve, _Curve], ...]"

    @classmethod
    def of(
        cls,
        places: tuple[np.ndarray, np.ndarray],
        shape: tuple[int, ...],
        tile_shape: tuple[int, int],
        columns_first: bool,
        processors: Processors,
    ) -> "_Walk":
        """Walk along the entries at ``places``, row by row, in tiles of ``tile_shape``."""
        row, column = places
        panel, part = (where // size for where, size in zip(places, tile_shape, strict=True))
        high, wide = (-(-extent // size) for extent, size in zip(shape, tile_shape, strict=True))
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
        return cls(
            _most(whose, processors.lanes), _most(whose[begins], processors.lanes), _most(whose[first], processors.lanes),
            tuple(curves[sharers] for _, sharers in processors.caches),
        )  # fmt: skip


def _most(whose: np.ndarray, lanes: int) -> float:
    """Return how often the processor is named that is named most, summed over turns: names are turn x lanes + processor."""
    if whose.max(initial=0) < 4 * len(whose):
        counts = np.bincount(whose)
        found = np.flatnonzero(counts)
        counts = counts[found]
    else:  # there are many turns that nobody has anything to do in
        found, counts = np.unique(whose, return_counts=True)
    return float(np.maximum.reduceat(counts, np.flatnonzero(_changes(found // lanes))).sum())


def _streams(
    row: np.ndarray, column: np.ndarray, begins: np.ndarray, columns: int
) -> "tuple[_Curve, _Curve]":
    """Return the curves of gathered rows alone, and with the rows of the output that are begun between them."""
    # A row of the output is fetched before its first entry.
    gathered = np.arange(len(column)) + np.cumsum(begins)
    both = np.empty(len(column) + np.count_nonzero(begins), np.int64)
    of_output = np.ones(len(both), bool)
    of_output[gathered] = False
    both[gathered], both[of_output] = column, columns + row[begins]
    return _Curve(column), _Curve(both, of_output)


@final
class _Curve:
    """How many accesses a cache misses, as a function of how much it holds.

    Denning's working sets: of the accesses whose last one to the same row lies more than w accesses back, and of how many
    rows w accesses touch in the mean, both follow from the gaps between accesses to the same row.

    Args:
        rows: that are accessed, in order.
        marked: some of the accesses, which are counted apart.
    """

    def __init__(self, rows: np.ndarray, marked: np.ndarray | None = None) -> None:
        order = np.argsort(rows, kind="stable")
        again = ~_changes(rows[order])[1:]
        gaps, later = np.diff(order)[again], order[1:][again]
        ordered = np.sort(gaps)
        sums = np.concatenate([[0], np.cumsum(ordered)])
        within = np.searchsorted(ordered, _WINDOWS, side="right")
        fresh = len(rows) - len(gaps)
        touched = (sums[within] + (len(gaps) - within + fresh) * _WINDOWS) / len(rows)
        self._touched = np.log2(np.minimum(touched, fresh))
        self._missed = [len(rows) - within]
        if marked is not None:
            self._missed = [
                np.count_nonzero(part) - np.searchsorted(np.sort(gaps[part[later]]), _WINDOWS, side="right")
                for part in (~marked, marked)
            ]

    def fetched(self, held: float) -> list[float]:
        """Return the accesses that a cache of ``held`` rows misses: all, or unmarked and marked ones."""
        return [float(np.interp(np.log2(held), self._touched, missed)) for missed in self._missed]


def _changes(values: np.ndarray) -> np.ndarray:
    """Where a value differs from the one before it: bool, (n,), the first one does."""
    return np.concatenate([[True], values[1:] != values[:-1]])
