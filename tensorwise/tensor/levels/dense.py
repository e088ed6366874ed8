"""The level U: every coordinate is there, positions follow by arithmetic."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from tensorwise.tensor.levels.level import Level, PackingState
from tensorwise.tensor.primitives import EntryPositions


@final
@dataclass(frozen=True)
class Dense(Level):
    """Uncompressed: no arrays, position = parent * extent + coordinate."""

    letter: ClassVar[str] = "U"
    full: ClassVar[bool] = True
    pads: ClassVar[bool] = True
    sorts: ClassVar[bool] = False
    proposed: ClassVar[bool] = True
    inserts: ClassVar[bool] = True
    arrays: ClassVar[tuple[str, ...]] = ()

    def locate(self, arrays: Mapping[str, Any], parent: Any, coordinate: Any, extent: Any) -> Any:
        """Return ``parent * extent + coordinate``."""
        return parent * extent + coordinate

    def children(self, arrays: Mapping[str, Any], parent: int, extent: int) -> Iterator[tuple[int, int]]:
        """Yield every coordinate of the extent with its position."""
        for coordinate in range(extent):
            yield coordinate, parent * extent + coordinate

    def ascend(
        self, arrays: Mapping[str, np.ndarray], positions: np.ndarray, extent: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Divide by the extent."""
        parents, coordinates = np.divmod(positions, max(extent, 1))
        return parents, coordinates

    def build(self, stage: PackingState) -> tuple[dict[str, np.ndarray], EntryPositions]:
        """Only the positions change; nothing is computed yet."""
        return {}, stage.parents.below(stage.extent, stage.coordinate)
