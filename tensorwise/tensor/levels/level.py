"""What every kind of level is: how one axis of a tensor is kept below its parent positions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from tensorwise.moved import forward_names
from tensorwise.tensor.primitives import EntryPositions, Term
from tensorwise.tensor.remap import Axis


@dataclass(frozen=True, eq=False)
class PackingState:
    """What a level is built from: the packing so far, down to its parent."""

    entries: int
    """How many stored entries there are."""
    parents: EntryPositions
    """The position of each entry in the level above; entries ascend by it where a level sorts."""
    coordinate: Term
    """The coordinate of each entry on this level's axis."""
    extent: int
    sorted: bool
    """Coordinates ascend below each parent; otherwise they stand in any order."""
    bottom: bool
    """No level follows: the positions of the entries will not be asked for."""
    reserve: Callable[[int, str], None]
    """Called with a number of elements and what they are before they are allocated; may refuse."""


def smaller(left: Any, right: Any) -> Any:
    """Return the smaller of two integers, or of an integer and a symbolic expression."""
    if hasattr(left, "smaller"):
        return left.smaller(right)
    return right.smaller(left) if hasattr(right, "smaller") else min(int(left), int(right))


def larger(left: Any, right: Any) -> Any:
    """Return the larger of two integers, or of an integer and a symbolic expression."""
    if hasattr(left, "larger"):
        return left.larger(right)
    return right.larger(left) if hasattr(right, "larger") else max(int(left), int(right))


def at_most(left: Any, right: Any) -> Any:
    """Return 1 where ``left <= right``, else 0, of integers or symbolic expressions."""
    if hasattr(left, "at_most"):
        return left.at_most(right)
    return 1 - (right + 1).at_most(left) if hasattr(right, "at_most") else int(int(left) <= int(right))


@dataclass(frozen=True)
class ArrayFacts:
    """What is known of an index array, whatever it was built from.

    Attributes:
        length: how many elements it has; an integer or an expression of counts, as are the others.
        low, high: the lowest and highest value of its elements; None: any.
        ascending: its elements ascend, and the first is 0.
    """

    length: Any
    low: Any = None
    high: Any = None
    ascending: bool = False


@dataclass(frozen=True)
class Level(ABC):
    """One storage axis. Below each parent position it holds coordinates, each at a position.

    A *full* level holds every coordinate of its extent and finds the position of one by
    arithmetic (``locate``). A *single* level holds exactly one coordinate, at its parent's position.
    Any other level lists the coordinates it holds: ``bounds`` gives the range of positions below a
    parent, and ``coordinate`` what stands at one.

    These members use plain operators, indexing, ``bit_count``, `smaller`, `larger` and `at_most` only: the lowering calls
    them with symbolic expressions where printing and tests call them with NumPy arrays.

    What programs may do with a level follows from its flags alone (the capabilities of TACO, Chou et al., 2018, and of
    MLIR's sparse dialect): nothing outside this package asks for its class or letter.
    """

    axis: Axis

    letter: ClassVar[str]
    """How formats name this kind."""
    full: ClassVar[bool] = False
    """Every coordinate below the extent is present."""
    single: ClassVar[bool] = False
    """One coordinate a parent, at the same position."""
    unique: ClassVar[bool] = True
    """A coordinate occurs at most once below a parent."""
    pads: ClassVar[bool] = False
    """Positions may stand below a parent where it has no entry: full levels do, and slots."""
    sorts: ClassVar[bool] = True
    """Entries have to ascend by (parent, coordinate) for ``build``; otherwise any order will do."""
    largest_extent: ClassVar[int | None] = None
    """How long an axis may be that is stored so; None: any."""
    ordered: ClassVar[bool] = True
    """Coordinates ascend below each parent."""
    sequential: ClassVar[bool] = False
    """Coordinates can only be read in the order of positions, with a ``cursor``."""
    proposed: ClassVar[bool] = False
    """The spaces of CPUs propose it for any axis that it can hold."""
    groups: ClassVar[bool] = False
    """``build`` also accepts entries whose coordinates below a parent are unsorted (``PackingState.sorted`` is false)."""
    pointer_array: ClassVar[str | None] = None
    """Name of the array with the first position below each parent, and the end of the last one; with it the positions of one
    parent can be divided among threads. None: ``bounds`` are computed."""
    coordinate_array: ClassVar[str | None] = None
    """Name of the array with the coordinate of each position: these can be read in any order, ahead of time, and searched
    where they are ordered and unique. None: coordinates are computed."""
    listed: ClassVar[bool] = False
    """It has a ``pointer_array`` and a ``coordinate_array``: the list of coordinates below a parent can be cut anywhere."""
    bit_array: ClassVar[str | None] = None
    """Name of the array in which bit c of element p says whether coordinate c stands below parent p; ``find`` and
    ``coordinate`` count its bits, which proofs know."""
    arrays: ClassVar[tuple[str, ...]]
    """Names of the index arrays that it stores, in the order in which kernels receive them."""
    dtypes: ClassVar[Mapping[str, np.dtype]] = MappingProxyType({})
    """Types of arrays that do not follow from counts and extents (int32 where it suffices, otherwise int64)."""

    inserts: ClassVar[bool] = False
    """A result may be written to it in any order: positions follow by `locate` (TACO's insert)."""
    appends: ClassVar[bool] = False
    """A result may be written to it in ascending order, by `open_fiber`, `append` and `close_last_fiber` (TACO's append).
    A level with neither flag has to be packed from all entries."""

    def __str__(self) -> str:
        return f"{self.letter}({self.axis.name})"

    @property
    def searchable(self) -> bool:
        """Whether a coordinate can be looked for below a parent: by ``find``, or in an ascending list without duplicates."""
        listed = self.coordinate_array is not None and self.unique and self.ordered
        return listed or type(self).find is not Level.find

    def locate(self, arrays: Mapping[str, Any], parent: Any, coordinate: Any, extent: Any) -> Any:
        """Return the position of ``coordinate`` below ``parent``; full levels only."""
        raise NotImplementedError(f"a level {self.letter} cannot locate a coordinate by arithmetic")

    def find(self, arrays: Mapping[str, Any], parent: Any, coordinate: Any) -> Any:
        """Return the position of ``coordinate`` below ``parent``, or -1, by arithmetic; None: by searching ``crd``."""
        return None

    def first(self, arrays: Mapping[str, Any], parent: Any) -> Any:
        """Return the first position below ``parent``, or of the number of parents how many positions there are.

        Levels that are neither full nor single.
        """
        raise NotImplementedError(f"a level {self.letter} keeps no list of positions")

    def bounds(self, arrays: Mapping[str, Any], parent: Any) -> tuple[Any, Any]:
        """Return first and past-the-last position below ``parent``; levels that are neither full nor single."""
        return self.first(arrays, parent), self.first(arrays, parent + 1)

    def cursor(self, arrays: Mapping[str, Any], parent: Any) -> Any:
        """Return what ``coordinate`` needs besides the position; sequential levels only, None for the others."""
        return None

    def coordinate(
        self, arrays: Mapping[str, Any], parent: Any, position: Any, extent: Any, cursor: Any = None
    ) -> Any:
        """Return the coordinate at ``position``, which is below ``parent``; levels that are not full.

        A coordinate that is computed must be certain to lie in 0 .. extent - 1 by what `facts` says of the arrays, whatever
        they hold: keep it there by `smaller`, or no program with the level is proved to stay inside of its arrays.
        """
        raise NotImplementedError(f"a level {self.letter} keeps no list of coordinates")

    def advance(self, arrays: Mapping[str, Any], parent: Any, position: Any, cursor: Any) -> Any:
        """Return the cursor of the position after ``position``; sequential levels only."""
        return cursor

    def facts(
        self, parents: Any, positions: Any, extent: Any, unknown: Callable[[str], Any]
    ) -> Mapping[str, "ArrayFacts"]:
        """Return what is known of each index array that ``build`` makes: proofs that accesses stay inside rest on it.

        Args:
            parents, positions: how many positions the level above and this level have.
            extent: of the axis.
            unknown: returns a count of a name of the level's own, such as how many runs there are.
        """
        known: dict[str, ArrayFacts] = {}
        if self.pointer_array is not None:
            known[self.pointer_array] = ArrayFacts(parents + 1, 0, positions, ascending=True)
        if self.coordinate_array is not None:
            known[self.coordinate_array] = ArrayFacts(positions, 0, extent - 1)
        return known

    def children(self, arrays: Mapping[str, Any], parent: int, extent: int) -> Iterator[tuple[int, int]]:
        """Yield (coordinate, position) of all that is below ``parent``, in the order of positions."""
        low, high = self.bounds(arrays, parent)
        cursor = self.cursor(arrays, parent)
        for position in range(int(low), int(high)):
            yield int(self.coordinate(arrays, parent, position, extent, cursor)), position
            cursor = self.advance(arrays, parent, position, cursor)

    def open_fiber(self, arrays: Mapping[str, list[int]], position: int) -> None:
        """Begin the fiber of the next parent, whose first position is ``position``; levels that append and are not single.

        ``arrays`` holds the growing index arrays, empty before the first fiber. The last fiber ends where this one begins.
        """
        raise NotImplementedError(f"a level {self.letter} cannot be assembled fiber by fiber")

    def append(self, arrays: Mapping[str, list[int]], position: int, coordinate: int) -> None:
        """Append ``coordinate`` at ``position`` to the fiber that was opened last; levels that append.

        Coordinates ascend within a fiber and positions within a level, both without duplicates where it is unique.
        """
        raise NotImplementedError(f"a level {self.letter} cannot append a coordinate")

    def close_last_fiber(self, arrays: Mapping[str, list[int]], positions: int) -> None:
        """End the last fiber of the level, which holds ``positions`` in all; levels that append and are not single."""
        raise NotImplementedError(f"a level {self.letter} cannot be assembled fiber by fiber")

    @abstractmethod
    def ascend(
        self, arrays: Mapping[str, np.ndarray], positions: np.ndarray, extent: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (parents, coordinates) of ``positions``, int64, the inverse of descending."""

    @abstractmethod
    def build(self, stage: PackingState) -> tuple[dict[str, np.ndarray], EntryPositions]:
        """Return the index arrays of this level and the position of each entry in it."""


__getattr__ = forward_names(__name__, {"Stage": f"{__name__}:PackingState"})
