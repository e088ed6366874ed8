"""Footprint: counts of what a device does with a pattern under a config; the same numbers for every device.

COGNATE describes a config by its loops and a pattern by itself, and leaves it to a network to learn how the two interact. A
few matrices of a new device are too few for that, so it is counted here: the entries of the busiest processor, how often it
starts a row of the output and a tile, and how many values of the dense operands each level of caches fetches from the next
one.
"""

from typing import TYPE_CHECKING, Final, final

import numpy as np

from tensorwise.analysis.featurizer import Field
from tensorwise.analysis.walks import Places, TileWalk, walk
from tensorwise.space.strips import LEVELS, OWN, Processors, Strips
from tensorwise.tensor.checks import coordinate_dtype
from tensorwise.tensor.orders import permutation

if TYPE_CHECKING:
    from tensorwise.tensor.entries import Entries

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
        self._laid: dict[_Moved, Places] = {}
        self._walks: dict[tuple[_Moved, int, int, bool], TileWalk] = {}

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
        taken, passes = self._walk(strips.moved, i, j, columns_first), dense / k
        fetched = [
            count
            for (size, _), curves in zip(self._processors.caches, taken.curves, strict=True)
            for curve in curves
            for count in curve.fetched(size / (self._entries.dtype.itemsize * k))
        ]
        counted = [
            self._entries.nnz, k * taken.work, k * taken.begun, taken.tiles, k * rows, k * columns, wide * columns_first,
            *(k * count for count in fetched),
        ]  # fmt: skip
        return passes * np.array(counted)

    def _places(self, moved: _Moved) -> Places:
        """Where entries lie when rows and columns are ordered so, row by row; of 32 bits where these are enough."""
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
            index = coordinate_dtype(self._entries.shape)
            self._laid[moved] = found[0][taken].astype(index), found[1][taken].astype(index)
        return self._laid[moved]

    def _walk(self, moved: _Moved, i: int, j: int, columns_first: bool) -> TileWalk:
        key = moved, i, j, columns_first
        if key not in self._walks:
            places, shape = self._places(moved), self._entries.shape
            self._walks[key] = walk(places, shape, (i, j), columns_first, self._processors)
        return self._walks[key]
