"""What every kind of level is: how one axis of a tensor is kept below its parent positions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from tensorwise.tensor.primitives import Form, Term
from tensorwise.tensor.remap import Axis


@dataclass(frozen=True, eq=False)
class Stage:
    """What a level is built from: the packing so far, down to its parent."""

    entries: int
    """How many stored entries there are."""
    parents: Form
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


@dataclass(frozen=True)
class Level(ABC):
    """One storage axis. Below each parent position it holds coordinates, each at a position.

    A *full* level holds every coordinate of its extent and finds the position of one by
    arithmetic (``locate``). A *single* level holds exactly one coordinate, at its parent's position.
    Any other level lists the coordinates it holds: ``bounds`` gives the range of positions below a
    parent, and ``coordinate`` what stands at one.

    These members use plain operators, indexing and ``bit_count`` only: the lowering calls them with
    symbolic expressions where printing and tests call them with NumPy arrays.
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
    arrays: ClassVar[tuple[str, ...]]
    """Names of the index arrays that it stores, in the order in which kernels receive them."""
    dtypes: ClassVar[Mapping[str, np.dtype]] = MappingProxyType({})
    """Types of arrays that do not follow from counts and extents (int32 where it suffices, otherwise int64)."""

    def __str__(self) -> str:
        return f"{self.letter}({self.axis.name})"

    def locate(self, arrays: Mapping[str, Any], parent: Any, coordinate: Any, extent: Any) -> Any:
        """Return the position of ``coordinate`` below ``parent``; full levels only."""
        raise NotImplementedError(f"a level {self.letter} cannot locate a coordinate by arithmetic")

    def find(self, arrays: Mapping[str, Any], parent: Any, coordinate: Any) -> Any:
        """Return the position of ``coordinate`` below ``parent``, or -1, by arithmetic; None: by searching ``crd``."""
        return None

    def bounds(self, arrays: Mapping[str, Any], parent: Any) -> tuple[Any, Any]:
        """Return first and past-the-last position below ``parent``; levels that are not full."""
        raise NotImplementedError(f"a level {self.letter} keeps no list of positions")

    def cursor(self, arrays: Mapping[str, Any], parent: Any) -> Any:
        """Return what ``coordinate`` needs besides the position while positions are passed in order; None: nothing."""
        return None

    def coordinate(self, arrays: Mapping[str, Any], position: Any, cursor: Any = None) -> Any:
        """Return the coordinate at ``position``; levels that are not full."""
        raise NotImplementedError(f"a level {self.letter} keeps no list of coordinates")

    def advance(self, cursor: Any) -> Any:
        """Return the cursor for the next position."""
        return cursor

    @abstractmethod
    def children(self, arrays: Mapping[str, Any], parent: int, extent: int) -> Iterator[tuple[int, int]]:
        """Yield (coordinate, position) of all that is below ``parent``, in the order of positions."""

    @abstractmethod
    def ascend(
        self, arrays: Mapping[str, np.ndarray], positions: np.ndarray, extent: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (parents, coordinates) of ``positions``, int64, the inverse of descending."""

    @abstractmethod
    def build(self, stage: Stage) -> tuple[dict[str, np.ndarray], Form]:
        """Return the index arrays of this level and the position of each entry in it."""
