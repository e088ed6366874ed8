"""Walking along a fiber in ascending order: what co-iteration needs of a level, made of the level's own methods."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, final

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
