"""The level B: one bit a coordinate, for short axes such as the inside of a block."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, final

import numpy as np

from tensorwise.tensor import primitives
from tensorwise.tensor.levels.level import ArrayFacts, PackingState
from tensorwise.tensor.levels.pointed import Pointed
from tensorwise.tensor.primitives import EntryPositions, Term


@final
@dataclass(frozen=True)
class Bitmask(Pointed):
    """Bit c of ``mask[p]`` is set if parent p has coordinate c; ``pos[p]`` is the first position below p.

    Values are stored without padding, yet a coordinate is found by counting bits.
    """

    letter: ClassVar[str] = "B"
    sequential: ClassVar[bool] = True
    proposed: ClassVar[bool] = True
    largest_extent: ClassVar[int | None] = 32
    appends: ClassVar[bool] = True
    bit_array: ClassVar[str | None] = "mask"
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

    def coordinate(
        self, arrays: Mapping[str, Any], parent: Any, position: Any, extent: Any, cursor: Any = None
    ) -> Any:
        """Return the number of the lowest bit."""
        return ((cursor & (0 - cursor)) - 1).bit_count()

    def advance(self, arrays: Mapping[str, Any], parent: Any, position: Any, cursor: Any) -> Any:
        """Clear the lowest bit."""
        return cursor & (cursor - 1)

    def open_fiber(self, arrays: Mapping[str, list[int]], position: int) -> None:
        """Append the pointer and an empty mask."""
        super().open_fiber(arrays, position)
        arrays["mask"].append(0)

    def append(self, arrays: Mapping[str, list[int]], position: int, coordinate: int) -> None:
        """Set the coordinate's bit."""
        arrays["mask"][-1] |= 1 << coordinate

    def facts(
        self, parents: Any, positions: Any, extent: Any, unknown: Callable[[str], Any]
    ) -> Mapping[str, ArrayFacts]:
        """Masks hold any bits; the lowering knows what ``find`` and ``coordinate`` make of them."""
        return {**super().facts(parents, positions, extent, unknown), "mask": ArrayFacts(parents)}

    def children(self, arrays: Mapping[str, Any], parent: int, extent: int) -> Iterator[tuple[int, int]]:
        """Yield the coordinates whose bits are set."""
        low, high = self.bounds(arrays, parent)
        cursor = int(self.cursor(arrays, parent))  # NumPy's unsigned integers count no bits
        for position in range(int(low), int(high)):
            yield self.coordinate(arrays, parent, position, extent, cursor), position
            cursor = self.advance(arrays, parent, position, cursor)

    def ascend(
        self, arrays: Mapping[str, np.ndarray], positions: np.ndarray, extent: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """List the set bits of all masks: they stand in the order of the positions."""
        bits = (arrays["mask"][:, None] >> np.arange(max(extent, 1), dtype=np.uint32)) & 1
        parents, coordinates = np.nonzero(bits)
        return parents[positions], coordinates[positions]

    def build(self, stage: PackingState) -> tuple[dict[str, np.ndarray], EntryPositions]:
        """Compress, then turn the coordinates below each parent into bits."""
        stage.reserve(stage.parents.count, f"masks in {self}")
        pos, crd, places = primitives.compress(
            stage.entries, stage.parents, stage.coordinate, stage.extent, not stage.bottom
        )
        # Below one parent coordinates are distinct, so that their bits add up to the mask.
        total = np.zeros(len(crd) + 1, np.uint64)
        np.cumsum(np.left_shift(np.uint64(1), crd.astype(np.uint64)), out=total[1:])
        mask = (total[pos[1:]] - total[pos[:-1]]).astype(self.dtypes["mask"])
        return {"pos": pos, "mask": mask}, EntryPositions(len(crd), () if places is None else (Term(places),))
