"""Assembly: a stored tensor written entry by entry, in the order of its format, without knowing all entries before.

The arrays are those that ``pack`` makes of the same entries.
"""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from tensorwise.errors import FormatError
from tensorwise.tensor import primitives
from tensorwise.tensor.fibertree import Tensor
from tensorwise.tensor.format import Format
from tensorwise.tensor.levels import Level
from tensorwise.tensor.pack import MOST_FILL, SMALL


def check_assembled(format: Format) -> None:
    """Raise FormatError unless a result can be assembled in ``format``."""
    for level in format.levels:
        if not (level.inserts or level.appends):
            raise FormatError(
                f"{format}: a result cannot be assembled in it, since a level {level.letter} neither appends nor inserts; "
                "assemble it in another format and pack its entries"
            )
        if level.axis.part != "whole":
            raise FormatError(
                f"{format}: a result is assembled in formats whose axes are whole modes, got {level.axis.name}; "
                "assemble it in such a format and pack its entries"
            )
    if format.orders:
        raise FormatError(
            f"{format}: the order of {', '.join(format.orders)} depends on all entries; assemble the result in a format "
            "without orders and pack its entries"
        )


@final
class Assembly:
    """A tensor in the making.

    Args:
        format: whole modes, of levels that append or insert.
        shape: size of each mode, in the order of ``format.modes``.
        dtype: of the values.
    """

    def __init__(self, format: Format, shape: Sequence[int], dtype: np.dtype) -> None:
        check_assembled(format)
        self.format, self.shape, self.dtype = format, tuple(shape), dtype
        self._levels = [
            _GrowingLevel(level, extent) for level, extent in zip(format.levels, format.extents(self.shape))
        ]
        self._values: dict[int, Any] = {}

    def append(self, coordinates: Sequence[int], value: Any) -> None:
        """Store ``value`` at ``coordinates``, given in the order of the format's levels.

        Raises FormatError where an entry does not come after those before it, in a level that only appends, or twice.
        """
        position = 0
        for level, coordinate in zip(self._levels, coordinates, strict=True):
            position = level.descend(position, coordinate)
        if position in self._values:
            raise FormatError(f"{self.format}: the entry at {tuple(coordinates)} is appended twice")
        self._values[position] = value

    def finish(self) -> Tensor:
        """Return the tensor; nothing can be appended afterwards.

        Raises FormatError where it would hold far more positions than entries, as ``pack`` does.
        """
        count, arrays, counts = 1, [], []
        most = max(MOST_FILL * len(self._values), SMALL, 2 * max(self.shape))
        for level in self._levels:
            parents, count = count, level.count_positions(count)
            if max(parents, count) > most:
                raise FormatError(
                    f"{self.format} would keep {max(parents, count)} positions for {len(self._values)} entries of shape "
                    f"{self.shape}, where {most} are allowed; compress more of its levels"
                )
            arrays.append(level.finish(parents, count))
            counts.append(count)
        values = np.zeros(count, self.dtype)
        values[list(self._values)] = list(self._values.values())
        return Tensor(self.format, self.shape, tuple(arrays), tuple(counts), values)


@final
class _GrowingLevel:
    """The index arrays of one level so far, and the place of the last coordinate."""

    def __init__(self, level: Level, extent: int) -> None:
        self.level, self.extent = level, extent
        self.arrays: dict[str, list[int]] = {name: [] for name in level.arrays}
        self.opened = self.count = 0
        self.last = (-1, -1)

    def descend(self, parent: int, coordinate: int) -> int:
        """Return the position of ``coordinate`` below ``parent``; append it where it is new."""
        level = self.level
        if not 0 <= coordinate < self.extent:
            raise FormatError(f"{level}: coordinate {coordinate} lies outside 0..{self.extent - 1}")
        if level.inserts:
            return int(level.locate(self.arrays, parent, coordinate, self.extent))
        here = (parent, coordinate)
        if level.unique and not level.single and here == self.last:
            return self.count - 1
        if level.single:
            if parent != self.count:
                raise FormatError(
                    f"{level}: it holds one coordinate at each position; {coordinate} is not that"
                )
        elif here < self.last:
            raise FormatError(
                f"{level}: coordinate {coordinate} below position {parent} comes after {self.last[1]} below {self.last[0]}; "
                "append entries in ascending order"
            )
        else:
            self.open_fibers(parent + 1)
        level.append(self.arrays, self.count, coordinate)
        self.last, self.count = here, self.count + 1
        return self.count - 1

    def open_fibers(self, parents: int) -> None:
        """Open fibers, most of them empty, until so many are."""
        for _ in range(self.opened, parents):
            self.level.open_fiber(self.arrays, self.count)
        self.opened = max(self.opened, parents)

    def count_positions(self, parents: int) -> int:
        """Return how many positions the level holds below so many parents."""
        return parents * self.extent if self.level.inserts else self.count

    def finish(self, parents: int, positions: int) -> dict[str, np.ndarray]:
        """Return the index arrays below ``parents`` positions, in the types that packing gives them."""
        if self.level.appends and not self.level.single:
            self.open_fibers(parents)
            self.level.close_last_fiber(self.arrays, positions)
        known = self.level.facts(parents, positions, self.extent, lambda _: positions)
        given = self.level.dtypes
        return {
            name: np.array(
                array, given[name] if name in given else primitives.index_dtype(int(known[name].high) + 1)
            )
            for name, array in self.arrays.items()
        }
