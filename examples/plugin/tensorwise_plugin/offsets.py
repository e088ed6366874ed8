"""The level O: a base below each parent, and offsets of 16 bits from it, for long axes whose rows are short."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, final

import numpy as np

from tensorwise.errors import FormatError
from tensorwise.tensor.levels import Compressed
from tensorwise.tensor.levels.level import ArrayFacts, PackingState, smaller
from tensorwise.tensor.levels.pointed import Pointed
from tensorwise.tensor.primitives import EntryPositions

LARGEST_OFFSET = 2**16 - 1
"""What 16 bits hold."""


@final
@dataclass(frozen=True)
class OffsetCompressed(Pointed):
    """``base[p] + offset[q]`` is the coordinate at position q below parent p; ``pos[p] .. pos[p + 1]`` are its positions."""

    letter: ClassVar[str] = "O"
    proposed: ClassVar[bool] = True
    appends: ClassVar[bool] = True
    arrays: ClassVar[tuple[str, ...]] = ("pos", "base", "offset")
    dtypes: ClassVar[Mapping[str, np.dtype]] = MappingProxyType({"offset": np.dtype(np.uint16)})

    def coordinate(
        self, arrays: Mapping[str, Any], parent: Any, position: Any, extent: Any, cursor: Any = None
    ) -> Any:
        """Add the offset to the parent's base, to the end of the axis at most."""
        base = arrays["base"][parent]
        return base + smaller(arrays["offset"][position], extent - 1 - base)

    def open_fiber(self, arrays: Mapping[str, list[int]], position: int) -> None:
        """Append the pointer, and a base that the first coordinate decides."""
        super().open_fiber(arrays, position)
        arrays["base"].append(0)

    def append(self, arrays: Mapping[str, list[int]], position: int, coordinate: int) -> None:
        """Append the distance from the fiber's first coordinate, where 16 bits hold it."""
        if position == arrays["pos"][-1]:
            arrays["base"][-1] = coordinate
        _check_offset(self, coordinate - arrays["base"][-1])
        arrays["offset"].append(coordinate - arrays["base"][-1])

    def facts(
        self, parents: Any, positions: Any, extent: Any, unknown: Callable[[str], Any]
    ) -> Mapping[str, ArrayFacts]:
        """There is a base for each parent, an offset for each position."""
        return {
            **super().facts(parents, positions, extent, unknown),
            "base": ArrayFacts(parents, 0, extent - 1),
            "offset": ArrayFacts(positions, 0, LARGEST_OFFSET),
        }

    def ascend(
        self, arrays: Mapping[str, np.ndarray], positions: np.ndarray, extent: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search the pointers."""
        parents = self.parents(arrays, positions)
        return parents, arrays["base"][parents].astype(np.int64) + arrays["offset"][positions]

    def build(self, stage: PackingState) -> tuple[dict[str, np.ndarray], EntryPositions]:
        """List the coordinates as C does, then subtract the first one below each parent.

        Raises FormatError where the coordinates below a parent lie farther apart than offsets reach.
        """
        listed, form = Compressed(self.axis).build(stage)
        pos, coordinates = listed["pos"], listed["crd"]
        base = np.zeros(len(pos) - 1, coordinates.dtype)
        filled = pos[:-1] < pos[1:]
        base[filled] = coordinates[pos[:-1][filled]]
        offsets = coordinates - np.repeat(base, np.diff(pos))
        _check_offset(self, int(offsets.max(initial=0)))
        return {"pos": pos, "base": base, "offset": offsets.astype(np.uint16)}, form


def _check_offset(level: OffsetCompressed, offset: int) -> None:
    if offset > LARGEST_OFFSET:
        raise FormatError(
            f"{level}: coordinates below one parent lie {offset} apart, farther than 16 bits reach; use C"
        )
