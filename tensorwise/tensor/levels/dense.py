"""The level U: every coordinate is there, positions follow by arithmetic."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from tensorwise.tensor.levels.level import Level


@final
@dataclass(frozen=True)
class Dense(Level):
    """Uncompressed: no arrays, position = parent * extent + coordinate."""

    letter: ClassVar[str] = "U"
    full: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    unique: ClassVar[bool] = True
    arrays: ClassVar[tuple[str, ...]] = ()

    def locate(self, arrays: Mapping[str, Any], parent: Any, coordinate: Any, extent: Any) -> Any:
        """Return ``parent * extent + coordinate``."""
        return parent * extent + coordinate

    def children(self, arrays: Mapping[str, Any], parent: int, extent: int) -> Iterator[tuple[int, int]]:
        """Yield every coordinate of the extent with its position."""
        for coordinate in range(extent):
            yield coordinate, parent * extent + coordinate
