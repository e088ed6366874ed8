"""What every kind of level is: how one axis of a tensor is kept below its parent positions."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tensorwise.tensor.remap import Axis


@dataclass(frozen=True)
class Level(ABC):
    """One storage axis. Below each parent position it holds coordinates, each at a position.

    A *full* level holds every coordinate of its extent and finds the position of one by
    arithmetic (``locate``). Any other level lists the coordinates it holds: ``bounds`` gives the
    range of positions below a parent and ``coordinate`` what stands at one.

    These members use plain operators and indexing only: the lowering calls them with symbolic
    expressions where printing and tests call them with NumPy arrays.
    """

    axis: Axis

    letter: ClassVar[str]
    """How formats name this kind."""
    full: ClassVar[bool]
    """Every coordinate below the extent is present."""
    ordered: ClassVar[bool]
    """Coordinates below a parent ascend."""
    unique: ClassVar[bool]
    """A coordinate occurs at most once below a parent."""
    arrays: ClassVar[tuple[str, ...]]
    """Names of the index arrays that it stores, in the order in which kernels receive them."""

    def __str__(self) -> str:
        return f"{self.letter}({self.axis.name})"

    def locate(self, arrays: Mapping[str, Any], parent: Any, coordinate: Any, extent: Any) -> Any:
        """Return the position of ``coordinate`` below ``parent``; full levels only."""
        raise NotImplementedError(f"a level {self.letter} cannot locate a coordinate by arithmetic")

    def bounds(self, arrays: Mapping[str, Any], parent: Any) -> tuple[Any, Any]:
        """Return first and past-the-last position below ``parent``; levels that are not full."""
        raise NotImplementedError(f"a level {self.letter} keeps no list of positions")

    def coordinate(self, arrays: Mapping[str, Any], position: Any) -> Any:
        """Return the coordinate at ``position``; levels that are not full."""
        raise NotImplementedError(f"a level {self.letter} keeps no list of coordinates")

    @abstractmethod
    def children(self, arrays: Mapping[str, Any], parent: int, extent: int) -> Iterator[tuple[int, int]]:
        """Yield (coordinate, position) of all that is below ``parent``, in the order of positions."""
