"""Footprint: what the strips of a config touch of a pattern, counted. The same numbers for every device.

COGNATE describes configs by their strips and patterns by themselves, and leaves it to a network to find out how they meet.
From a few matrices of a new device no network learns that. Counted, it need not be learned: how many entries a tile has, how
often a row of either dense operand is used before the loops leave it, how evenly row panels are filled, and how many of the
gathered rows would not be found in caches of some sizes.
"""

from typing import TYPE_CHECKING, Final, final

import numpy as np

from tensorwise.features.featurizer import Field
from tensorwise.space.strips import OWN, Strips
from tensorwise.tensor.orders import permutation

if TYPE_CHECKING:
    from tensorwise.tensor.entries import Entries

LANES: Final = (2, 8, 32)
"""Numbers of processors that take row panels in turn."""
NEIGHBOURS: Final = 8
"""Row panels that are worked on at about the same time, so that a shared cache serves them all."""
CACHES: Final = tuple(2**power for power in range(11, 22, 2))
"""Bytes of caches: from a scratchpad to a last-level cache."""
FLAGS_AN_ENTRY: Final = 16
"""Pairs are counted with a flag for each possible one while these are no more than so many an entry; else by sorting."""
_WINDOWS: Final = 2.0 ** np.arange(24)
"""Entries in a row within which a gathered row may be met again."""
_LOG: Final = "log2"
FIELDS: Final = (
    Field("tile.entries", _LOG, "the mean number of entries of a tile that has any"),
    Field("row.entries", _LOG, "the mean number of entries of a row within a column panel: uses of a row of the output"),
    Field("column.entries", _LOG, "the mean number of entries of a column within a row panel: uses of a gathered row"),
    Field("column.neighbours", _LOG, f"the same within {NEIGHBOURS} row panels side by side"),
    Field("panels.rows", _LOG, "the number of row panels"),
    Field("panels.columns", _LOG, "the number of column panels"),
    Field("tile.share", _LOG, "the share of tiles that have entries"),
    Field("tile.columns", _LOG, "the mean number of gathered values that a tile needs at a time"),
    Field("tile.rows", _LOG, "the mean number of output values that a tile needs at a time"),
    Field("panels.columns_used", _LOG, f"the mean number of gathered values that {NEIGHBOURS} row panels need at a time"),
    Field("panels.heaviest", _LOG, "the entries of the fullest row panel over their mean"),
    *(
        Field(f"lanes.{count}", _LOG, f"the entries of the fullest of {count} that take row panels in turn, over their mean")
        for count in LANES
    ),
    Field("passes", _LOG, "the number of passes over the dense columns"),
    Field("strips.i", _LOG, "the rows of a panel"),
    Field("strips.j", _LOG, "the columns of a panel"),
    Field("strips.k", _LOG, "the dense columns of a pass"),
    Field("operand.columns", _LOG, "the gathered values of a pass in all"),
    Field("operand.rows", _LOG, "the output values of a pass in all"),
    Field("row.again", "share of entries", "the share of entries that follow one of the same row"),
    Field("columns_first", "0 or 1", "whether column panels are the outer ones of several"),
    *(
        Field(f"missed.{who}.{size}", _LOG, f"the share of gathered rows that {size} bytes of cache miss, for {whom}")
        for who, whom in (("own", "one processor"), ("shared", f"{NEIGHBOURS} of them, each with a row panel"))
        for size in CACHES
    ),
)  # fmt: skip
"""What each number of a footprint is. SDDMM's left operand counts as the output: both are indexed by rows."""

_Moved = tuple[str, str]


@final
class Footprints:
    """The footprints of configs on one pattern; what they share is counted once.

    Args:
        entries: of a matrix.
    """

    def __init__(self, entries: "Entries") -> None:
        self._entries = entries
        self._laid: dict[_Moved, tuple[np.ndarray, np.ndarray]] = {}
        self._pairs: dict[tuple[_Moved, int, int], int] = {}
        self._filled: dict[tuple[_Moved, int], list[float]] = {}
        self._curves: dict[tuple[_Moved, int, int, bool], list[_Curve]] = {}

    def of(self, strips: Strips, dense: int) -> np.ndarray:
        """Return the numbers FIELDS of a config: float32, (len(FIELDS),), zeros for a pattern without entries.

        Args:
            strips: the config.
            dense: extent of the dense index, COGNATE's k.
        """
        entries, moved = self._entries.nnz, strips.moved
        if not entries:
            return np.zeros(len(FIELDS), np.float32)
        i, j, k = strips.splits
        rows, columns = self._entries.shape
        high, wide = -(-rows // i), -(-columns // j)
        tiles, visits = self._count(moved, i, j), self._count(moved, 1, j)
        used = self._count(moved, i, 1)
        neighbours = self._count(moved, min(NEIGHBOURS * i, rows), 1)
        counted = [
            entries / tiles, entries / visits, entries / used, entries / neighbours, high, wide, tiles / (high * wide),
            used / tiles * k, visits / tiles * k, neighbours / -(-high // NEIGHBOURS) * k, *self._fill(moved, i),
            max(dense, 1) / k, i, j, k, columns * k, rows * k,
        ]  # fmt: skip
        columns_first = wide > 1 and strips.order.index("j2") < strips.order.index("i2")
        held = np.array(CACHES) / (self._entries.dtype.itemsize * k)
        missed = [curve.missed(held) for curve in self._streams(moved, i, j, columns_first)]
        again = 1 - visits / entries
        return np.concatenate([np.log2(counted), [again, columns_first], *missed]).astype(np.float32)

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

    def _count(self, moved: _Moved, i: int, j: int) -> int:
        """How many tiles of ``i`` rows and ``j`` columns have entries."""
        key = moved, i, j
        if key not in self._pairs:
            rows, columns = self._places(moved)
            high, wide = (
                -(-extent // size) for extent, size in zip(self._entries.shape, (i, j), strict=True)
            )
            tiles = rows // i * wide + columns // j
            if high * wide <= FLAGS_AN_ENTRY * len(tiles):
                flags = np.zeros(high * wide, bool)
                flags[tiles] = True
                self._pairs[key] = int(np.count_nonzero(flags))
            else:
                self._pairs[key] = len(np.unique(tiles))
        return self._pairs[key]

    def _fill(self, moved: _Moved, i: int) -> list[float]:
        """How unevenly panels of ``i`` rows are filled, and processors that take them in turn."""
        key = moved, i
        if key not in self._filled:
            panels = np.bincount(self._places(moved)[0] // i, minlength=-(-self._entries.shape[0] // i))
            found = [panels.max() / panels.mean()]
            for count in LANES:
                taken = np.bincount(np.arange(len(panels)) % count, panels, count)
                found.append(taken.max() / taken.mean())
            self._filled[key] = found
        return self._filled[key]

    def _streams(self, moved: _Moved, i: int, j: int, columns_first: bool) -> "list[_Curve]":
        """What is gathered in the order of one processor, and in that of several side by side."""
        key = moved, i, j, columns_first
        if key not in self._curves:
            rows, columns = self._places(moved)
            high, wide = (
                -(-extent // size) for extent, size in zip(self._entries.shape, (i, j), strict=True)
            )
            panel, part = rows // i, columns // j
            tile = part * high + panel if columns_first else panel * wide + part
            if wide > 1:
                order = np.argsort(tile, kind="stable")
                columns, panel, part, tile = columns[order], panel[order], part[order], tile[order]
            # Side by side: the first entries of all panels of a group, then their second ones.
            begun = tile if columns_first else panel
            first = np.flatnonzero(np.concatenate([[True], begun[1:] != begun[:-1]]))
            rank = np.arange(len(begun)) - np.repeat(first, np.diff(np.append(first, len(begun))))
            group = panel // NEIGHBOURS + (part * high if columns_first else 0)
            together = np.argsort(group * (rank.max() + 1) + rank, kind="stable")
            self._curves[key] = [_Curve(columns), _Curve(columns[together])]
        return self._curves[key]


@final
class _Curve:
    """How many accesses a cache misses, as a function of how much it holds.

    Denning's working sets: of the accesses whose last one to the same row lies more than w accesses back, and of how many
    rows w accesses touch in the mean, both follow from the gaps between accesses to the same row.

    Args:
        rows: that are accessed, in order.
    """

    def __init__(self, rows: np.ndarray) -> None:
        order = np.argsort(rows, kind="stable")
        again = rows[order][1:] == rows[order][:-1]
        gaps = np.sort(np.diff(order)[again]).astype(float)
        fresh = len(rows) - len(gaps)
        within = np.searchsorted(gaps, _WINDOWS, side="right")
        beyond = len(gaps) - within + fresh
        sums = np.concatenate([[0.0], np.cumsum(gaps)])
        self._share = np.log2(beyond / len(rows))
        self._touched = np.log2(np.minimum((sums[within] + beyond * _WINDOWS) / len(rows), fresh))

    def missed(self, held: np.ndarray) -> np.ndarray:
        """Return log2 of the share of accesses that caches of ``held`` rows miss; below one row they miss all."""
        share: np.ndarray = np.interp(np.log2(held), self._touched, self._share)
        return share
