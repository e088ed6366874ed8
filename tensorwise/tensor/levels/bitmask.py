"""The level B: one bit a coordinate, for short axes such as the inside of a block."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, final

import numpy as np

from tensorwise.tensor import primitives
from tensorwise.tensor.levels.level import Stage
from tensorwise.tensor.levels.pointed import Pointed
from tensorwise.tensor.primitives import Form, Term


@final
@dataclass(frozen=True)
class Bitmask(Pointed):
    """Bit c of ``mask[p]`` says whether coordinate c stands below parent p; ``pos[p]`` is its first position.

    Values are stored without padding, yet a coordinate is found by counting bits.
    """

    letter: ClassVar[str] = "B"
    largest_extent: ClassVar[int | None] = 32
    arrays: ClassVar[tuple[str, ...]] = ("pos", "mask")
    dtypes: ClassVar[Mapping[str, np.dtype]] = MappingProxyType({"mask": np.dtype(np.uint32)})

    def find(self, arrays: Mapping[str, Any], parent: Any, coordinate: Any) -> Any:
        """Count the bits below the coordinate's."""
        mask = arrays["mask"][parent]
        present = (mask >> coordinate) & 1
        before = (mask & ((present << coordinate) - present)).bit_count()
        return present * (arrays["pos"][parent] + before + 1) - 1

    def cursor(self, arrays: Mapping[str, Any], parent: Any) -> Any:
        """Return the bits that are still to come."""
        return arrays["mask"][parent]

    def coordinate(self, arrays: Mapping[str, Any], position: Any, cursor: Any = None) -> Any:
        """Return the number of the lowest bit."""
        return ((cursor & (0 - cursor)) - 1).bit_count()

    def advance(self, cursor: Any) -> Any:
        """Clear the lowest bit."""
        return cursor & (cursor - 1)

    def children(self, arrays: Mapping[str, Any], parent: int, extent: int) -> Iterator[tuple[int, int]]:
        """Yield the coordinates whose bits are set."""
        low, high = self.bounds(arrays, parent)
        cursor = int(self.cursor(arrays, parent))
        for position in range(int(low), int(high)):
            yield self.coordinate(arrays, position, cursor), position
            cursor = self.advance(cursor)

    def ascend(
        self, arrays: Mapping[str, np.ndarray], positions: np.ndarray, extent: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """List the set bits of all masks: they stand in the order of the positions."""
        bits = (arrays["mask"][:, None] >> np.arange(max(extent, 1), dtype=np.uint32)) & 1
        parents, coordinates = np.nonzero(bits)
        return parents[positions], coordinates[positions]

    def build(self, stage: Stage) -> tuple[dict[str, np.ndarray], Form]:
        """Compress, then turn the coordinates below each parent into bits."""
        stage.reserve(stage.parents.count, f"masks in {self}")
        pos, crd, places = primitives.compress(
            stage.entries, stage.parents, stage.coordinate, stage.extent, not stage.bottom
        )
        # Below one parent coordinates are distinct, so that their bits add up to the mask.
        total = np.zeros(len(crd) + 1, np.uint64)
        np.cumsum(np.left_shift(np.uint64(1), crd.astype(np.uint64)), out=total[1:])
        mask = (total[pos[1:]] - total[pos[:-1]]).astype(self.dtypes["mask"])
        return {"pos": pos, "mask": mask}, Form(len(crd), () if places is None else (Term(places),))
