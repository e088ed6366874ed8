"""How loops reach the levels of the sparse operands, decided without emitting a loop.

Lowering takes the same decisions while it emits code (``lower/nest.py``, ``lower/resolve.py``)::

    for each loop, outermost first: a level that lists coordinates on its axis, and whose parents are reached, leads it,
        or else it runs over its dense range
    a coordinate is known: levels below known parents are located (full), searched (listed), or bind one coordinate (single)

Strips of a tile run inside all loops, so that its lanes are bound last.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from tensorwise.tensor.format import Format
from tensorwise.tensor.levels.level import Level
from tensorwise.tensor.remap import Axis

if TYPE_CHECKING:
    from tensorwise.program.loop_nest import LoopNest


@dataclass(frozen=True)
class LevelSearch:
    """A level that is searched for a coordinate.

    Attributes:
        operand: whose level it is.
        in_lanes: whether the coordinate, or the position above, differs among the lanes of a vector.
    """

    operand: str
    level: Level
    in_lanes: bool


@dataclass(frozen=True)
class Point:
    """What is known at a point of a loop nest.

    Attributes:
        coordinates: names of indices and axes whose coordinate is known -> whether it is a vector.
        levels: operand -> how many of its levels are reached.
    """

    coordinates: dict[str, bool]
    levels: dict[str, int]

    def has_value(self, operand: str, format: Format) -> bool:
        """Whether the value of an operand is known."""
        return self.levels[operand] == len(format.levels)


@dataclass
class Reach:
    """How the loops of a nest reach levels.

    Attributes:
        before: name of a loop -> what is known outside of it.
        leaders: name of a loop -> operand whose level it runs along.
        searches: levels that are searched, in order.
        leaf: what is known inside all loops.
    """

    nest: "LoopNest"
    before: dict[str, Point] = field(default_factory=dict)
    leaders: dict[str, str] = field(default_factory=dict)
    searches: list[LevelSearch] = field(default_factory=list)

    @classmethod
    def of(cls, nest: "LoopNest") -> Self:
        """Go through the loops of a nest, whose directives fit them."""
        reach = cls(nest)
        reach._run()
        return reach

    def leading_level(self, loop: str) -> Level | None:
        """Return the level that a loop runs along; None where it runs over its dense range."""
        operand = self.leaders.get(loop)
        if operand is None:
            return None
        return self.nest.formats[operand].levels[self.before[loop].levels[operand]]

    def _run(self) -> None:
        nest, tile = self.nest, self.nest.schedule.tile
        self._coordinates: dict[str, bool] = {}
        self._levels = dict.fromkeys(nest.formats, 0)
        self._vectors: set[str] = set()
        self._resolve()
        for loop in nest.loops:
            self.before[loop.name] = self._point()
            leader = self._find_leader(loop)
            if leader is not None:
                self.leaders[loop.name] = leader
            if tile is None or tile.loop != loop.name:
                self._enter(loop, leader, False)
        if tile is not None:
            loop = nest.axis(tile.loop)
            lanes = tile.lanes // nest.schedule.threads > 1
            self._enter(loop, self.leaders.get(loop.name), lanes)
        self.leaf = self._point()

    def _point(self) -> Point:
        return Point(dict(self._coordinates), dict(self._levels))

    def _find_leader(self, loop: Axis) -> str | None:
        for name, format in self.nest.formats.items():
            left = format.levels[self._levels[name] :]
            if left and left[0].axis == loop and not left[0].full:
                return name
        return None

    def _enter(self, loop: Axis, leader: str | None, lanes: bool) -> None:
        """Bind the coordinate of a loop, and what follows from it."""
        if leader is not None:
            self._levels[leader] += 1
            if lanes:
                self._vectors.add(leader)
        self._bind(loop, lanes)
        self._resolve()

    def _bind(self, axis: Axis, lanes: bool) -> None:
        known = self._coordinates
        known[axis.name] = lanes
        if axis.part in ("outer", "inner"):
            outer, inner = known.get(f"{axis.mode}1"), known.get(f"{axis.mode}0")
            if outer is None or inner is None:
                return
            self._bind(Axis(axis.mode), outer or inner)
            return
        if axis.part == "whole" and any(axis.mode in format.orders for format in self.nest.formats.values()):
            known[f"{axis.mode}'"] = lanes
        for diagonal in self.nest.diagonals:
            number, along = known.get(diagonal.name), known.get(diagonal.along)
            if number is not None and along is not None and diagonal.mode not in known:
                self._bind(Axis(diagonal.mode), number or along)

    def _resolve(self) -> None:
        """Reach every level whose parents and coordinate are known."""
        while any(self._resolve_next(name, format) for name, format in self.nest.formats.items()):
            pass
        for name, format in self.nest.formats.items():
            self._number(name, format)

    def _resolve_next(self, name: str, format: Format) -> bool:
        depth, known = self._levels[name], self._coordinates
        if depth == len(format.levels):
            return False
        level, in_lanes = format.levels[depth], name in self._vectors
        holds = self.nest.selected.get(name)
        if holds is not None and depth + 1 == len(format.levels):
            if not all(index in known for index in holds.indices):
                return False
            self._levels[name] += 1
            known[name] = False
            self._bind(level.axis, in_lanes)
            return True
        if level.single:
            self._levels[name] += 1
            if level.axis.name not in known:
                self._bind(level.axis, in_lanes)
            return True
        permuted = level.axis.part == "whole" and level.axis.mode in format.orders
        coordinate = known.get(f"{level.axis.mode}'" if permuted else level.axis.name)
        if coordinate is None:
            return False
        self._levels[name] += 1
        if not level.full:
            self.searches.append(LevelSearch(name, level, coordinate or in_lanes))
        elif coordinate:
            self._vectors.add(name)
        return True

    def _number(self, name: str, format: Format) -> None:
        """Bind the number of an operand's entry, where the einsum reads it."""
        counted = name in self.nest.assignment.counted and name not in self.nest.selected
        if counted and self._levels[name] == len(format.levels):
            self._coordinates[name] = name in self._vectors
