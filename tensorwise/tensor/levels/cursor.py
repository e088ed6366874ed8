"""Walking along a fiber in ascending order: what co-iteration needs of a level, made of the level's own methods."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, final

import numpy as np

from tensorwise.tensor.levels.level import Level


@final
class FiberCursor:
    """A place in a fiber: the coordinates below some parent positions, ascending, each with its positions.

    There is one parent position, and one position at a coordinate, unless a level above is not unique: then a coordinate has
    several positions (the rows of a coordinate list). Fibers of levels that are not ordered are sorted first.

    Attributes:
        coordinate: where the cursor stands; -1 behind the last coordinate.
        positions: those of the coordinate.
    """

    def __init__(self, level: Level, arrays: Mapping[str, Any], parents: Sequence[int], extent: int) -> None:
        self._left = _grouped(level, arrays, parents, extent)
        self.coordinate: int = -1
        self.positions: tuple[int, ...] = ()
        self.advance()

    @property
    def ended(self) -> bool:
        """Whether the cursor stands behind the last coordinate."""
        return self.coordinate < 0

    def advance(self) -> None:
        """Move to the next coordinate."""
        self.coordinate, self.positions = next(self._left, (-1, ()))


def _grouped(
    level: Level, arrays: Mapping[str, Any], parents: Sequence[int], extent: int
) -> Iterator[tuple[int, tuple[int, ...]]]:
    if len(parents) == 1 and level.ordered and level.unique:
        for coordinate, position in level.children(arrays, parents[0], extent):
            yield coordinate, (position,)
        return
    children = [child for parent in parents for child in level.children(arrays, parent, extent)]
    for coordinate, group in groupby(sorted(children), key=itemgetter(0)):
        yield coordinate, tuple(position for _, position in group)


def position_of(level: Level, arrays: Mapping[str, Any], parent: int, coordinate: int, extent: int) -> int:
    """Return the position of ``coordinate`` below ``parent``, or -1 where it is not stored; unique levels.

    By arithmetic where the level can (``locate``, ``find``), by binary search where it keeps a list in order, otherwise by
    reading the fiber.
    """
    if level.full:
        return int(level.locate(arrays, parent, coordinate, extent))
    if level.bit_array is not None:
        plain = {name: [int(array[parent])] for name, array in arrays.items()}
        return int(level.find(plain, 0, coordinate))
    if level.coordinate_array is not None and level.ordered and level.unique:
        low, high = map(int, level.bounds(arrays, parent))
        listed = arrays[level.coordinate_array]
        found = low + int(np.searchsorted(listed[low:high], coordinate))
        return found if found < high and listed[found] == coordinate else -1
    children = level.children(arrays, parent, extent)
    return next((position for other, position in children if other == coordinate), -1)
