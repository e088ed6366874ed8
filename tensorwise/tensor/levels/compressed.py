"""The level C: the coordinates that occur, ascending, behind one pointer a parent."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from tensorwise.tensor.levels.level import Level


@final
@dataclass(frozen=True)
class Compressed(Level):
    """``pos[p] .. pos[p + 1]`` are the positions below parent p, ``crd`` holds their coordinates."""

    letter: ClassVar[str] = "C"
    full: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    unique: ClassVar[bool] = True
    arrays: ClassVar[tuple[str, ...]] = ("pos", "crd")

    def bounds(self, arrays: Mapping[str, Any], parent: Any) -> tuple[Any, Any]:
        """Return ``pos[parent]`` and ``pos[parent + 1]``."""
        return arrays["pos"][parent], arrays["pos"][parent + 1]

    def coordinate(self, arrays: Mapping[str, Any], position: Any) -> Any:
        """Return ``crd[position]``."""
        return arrays["crd"][position]

    def children(self, arrays: Mapping[str, Any], parent: int, extent: int) -> Iterator[tuple[int, int]]:
        """Yield the stored coordinates below ``parent`` with their positions."""
        low, high = self.bounds(arrays, parent)
        for position in range(int(low), int(high)):
            yield int(self.coordinate(arrays, position)), position
