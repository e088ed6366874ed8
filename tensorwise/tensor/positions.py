"""How many positions the levels of a format will hold, known before anything is packed: counted in a sample of the entries.

How full blocks, strips and slices are decides whether a format is good for a pattern. Since it is counted here, models do
not have to learn it.
"""

import math
from typing import Final, final

import numpy as np

from tensorwise.tensor.entries import Entries
from tensorwise.tensor.format import Format
from tensorwise.tensor.levels import Level
from tensorwise.tensor.orders import Places
from tensorwise.tensor.remap import Axis, diagonal

SAMPLED_ENTRIES: Final = 2**16
"""About as many entries are looked at, in bands of the first mode; all of a pattern that has no more ..."""
SAMPLE: Final = 2**12
"""... and of these about as many for one count, in units, such as blocks of rows, each of which is seen whole."""
PIECES: Final = 16
"""Fewest bands or units of a sample."""
_HASH: Final = np.uint64(0x9E3779B97F4A7C15)

_Unit = tuple[str, int, str]
"""What tells the coordinates of a level from another's: its axis, the split and the order of its mode."""


@final
class Positions:
    """Counts positions of formats in one pattern; what they share is counted once.

    The sample consists of bands of the pattern. Counts are exact within a band and scaled by the share of entries sampled.
    Blocks larger than a band (in patterns of far more than SAMPLED_ENTRIES entries) are cut, and so seem emptier than they
    are.

    Args:
        entries: the pattern.
        places: where its coordinates are stored.
    """

    def __init__(self, entries: Entries, places: Places) -> None:
        self._entries, self._places = entries, places
        self._coordinates = _bands(entries)
        self._counts: dict[tuple[_Unit, ...], int] = {}
        self._samples: dict[tuple[_Unit, ...], np.ndarray] = {}
        self._lengths: dict[tuple[int, str], np.ndarray] = {}

    def of(self, format: Format, levels: int) -> int:
        """Return about how many positions the first levels of a format hold; the last of these is not full.

        Exactly, of patterns of up to SAMPLE entries, and at most so many where there are few.
        """
        nnz, some = self._entries.nnz, [level for level in format.levels[:levels] if not level.single]
        if not nnz or not all(level.unique for level in some):
            return nnz
        units = tuple(_unit(level, format) for level in some)
        if units not in self._counts:
            self._counts[units] = min(nnz * self._widest(format, some), self._count(format, some))
        return self._counts[units]

    def _widest(self, format: Format, levels: list[Level]) -> int:
        """How many slots an entry may take: all rows of a slice have as many as the longest."""
        return 1 if all(level.axis.part != "slot" for level in levels) else math.prod(format.splits.values())

    def _count(self, format: Format, levels: list[Level]) -> int:
        nnz, seen = self._entries.nnz, len(self._coordinates[0])
        # Slots are numbered without gaps: below all other coordinates there are as many as the longest row there has.
        slots = next((level.axis for level in levels if level.axis.part == "slot"), None)
        levels = [level for level in levels if level.axis is not slots]
        if slots is not None:
            return self._slots(format, slots, levels)
        extents = dict(zip(format.axes, format.extents(self._entries.shape), strict=True))
        wide = [extents[level.axis] for level in levels]
        if math.prod(wide) >= 2**63:
            return nnz
        rows = None
        if seen > SAMPLE:
            depths = range(1, len(levels) + 1)
            depth = next((n for n in depths if math.prod(wide[:n]) * SAMPLE >= PIECES * seen), None)
            if depth is None:  # a level with few positions: most of them are taken
                return min(nnz, math.prod(wide))
            rows = self._sample(format, levels[:depth], wide)
        keys = self._keys(format, levels, wide, rows)
        if not len(keys):
            return nnz
        return max(1, round(nnz * _distinct(keys) / len(keys)))

    def _sample(self, format: Format, levels: list[Level], wide: list[int]) -> np.ndarray:
        """Places of the entries of some units: those whose number, scattered, is low."""
        units = tuple(_unit(level, format) for level in levels)
        if units not in self._samples:
            keys = self._keys(format, levels, wide, None).view(np.uint64)
            most = np.uint64(SAMPLE / len(keys) * 2.0**64)
            self._samples[units] = np.flatnonzero(keys * _HASH < most)
        return self._samples[units]

    def _keys(
        self, format: Format, levels: list[Level], wide: list[int], rows: np.ndarray | None
    ) -> np.ndarray:
        """A number for each entry, the same for those below one position: int64."""
        keys = self._on(format, levels[0].axis, rows)
        for level, extent in zip(levels[1:], wide[1:], strict=False):
            keys = keys * extent + self._on(format, level.axis, rows)
        return keys

    def _on(self, format: Format, axis: Axis, rows: np.ndarray | None) -> np.ndarray:
        """The coordinates of entries on an axis: int64."""
        whole = self._stored(format, axis.mode, rows)
        if axis.part == "diagonal":
            size = self._entries.shape[format.modes.index(axis.along)]
            number: np.ndarray = diagonal(whole, self._stored(format, axis.along, rows), size)
            return number
        return _part(whole, axis, format)

    def _stored(self, format: Format, mode: str, rows: np.ndarray | None) -> np.ndarray:
        """Where the coordinates of a mode are stored, by the order of the mode: int64."""
        place = format.modes.index(mode)
        coordinates = self._coordinates[place] if rows is None else self._coordinates[place][rows]
        moved = self._places.of(place, format.orders.get(mode, ""))
        return coordinates if moved is None else moved[coordinates]

    def _slots(self, format: Format, slots: Axis, levels: list[Level]) -> int:
        """The slots below all parents: of each as many as its longest row has entries. Exactly: rows are few."""
        (other,) = (mode for mode in format.modes if mode != slots.mode)  # slots are of matrices only
        place = format.modes.index(other)
        lengths = self._ordered_lengths(place, format.orders.get(other, ""))
        places, parents = np.arange(len(lengths)), np.zeros(len(lengths), np.int64)
        for level in levels:
            parents = parents * len(lengths) + _part(places, level.axis, format)
        if (parents[1:] < parents[:-1]).any():
            order = np.argsort(parents, kind="stable")
            parents, lengths = parents[order], lengths[order]
        firsts = np.flatnonzero(np.append(True, parents[1:] != parents[:-1]))
        return int(np.maximum.reduceat(lengths, firsts).sum())

    def _ordered_lengths(self, place: int, order: str) -> np.ndarray:
        """The entries of each line of a mode, in the order in which the lines are stored."""
        known = self._lengths.get((place, order))
        if known is None:
            counted = np.bincount(self._entries.coordinates[place], minlength=self._entries.shape[place])
            moved = self._places.of(place, order)
            known = counted if moved is None else np.empty_like(counted)
            if moved is not None:
                known[moved] = counted
            self._lengths[place, order] = known
        return known


def _bands(entries: Entries) -> list[np.ndarray]:
    """The coordinates of some bands of the first mode, or of all entries: int64."""
    first, *_ = entries.coordinates
    chosen: np.ndarray | slice = slice(None)
    if entries.nnz > SAMPLED_ENTRIES:
        bands = -(-PIECES * entries.nnz // SAMPLED_ENTRIES)
        height = 1 << max(0, (entries.shape[0] // bands).bit_length() - 1)
        starts = np.arange(0, entries.shape[0] + height, height)
        ends = np.searchsorted(first, np.minimum(starts, entries.shape[0]).astype(first.dtype))
        low = (np.arange(len(starts) - 1, dtype=np.uint64) * _HASH) < np.uint64(
            SAMPLED_ENTRIES / entries.nnz * 2.0**64
        )
        held = np.flatnonzero(low)
        chosen = np.concatenate([np.arange(ends[band], ends[band + 1]) for band in held] or [np.arange(0)])
        if not len(chosen):
            chosen = slice(None, None, -(-entries.nnz // SAMPLED_ENTRIES))
    return [coordinates[chosen].astype(np.int64) for coordinates in entries.coordinates]


def _part(whole: np.ndarray, axis: Axis, format: Format) -> np.ndarray:
    """The coordinates of a mode on one of its axes."""
    if axis.part == "whole":
        return whole
    split = format.splits[axis.mode]
    if split & (split - 1) == 0:  # shifts take a tenth as long
        return whole >> (split.bit_length() - 1) if axis.part == "outer" else whole & (split - 1)
    return whole // split if axis.part == "outer" else whole % split


def _unit(level: Level, format: Format) -> _Unit:
    mode = level.axis.mode
    split = format.splits[mode] if level.axis.part in ("outer", "inner") else 1
    return level.axis.name, split, format.orders.get(mode, "")


def _distinct(keys: np.ndarray) -> int:
    ascending = np.sort(keys)
    return int(np.count_nonzero(ascending[1:] != ascending[:-1])) + 1
