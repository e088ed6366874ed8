"""The levels S and S16: one coordinate a parent position, as in coordinate lists and sliced formats."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, final

import numpy as np

from tensorwise.tensor import primitives
from tensorwise.tensor.levels.level import Level, PackingState
from tensorwise.tensor.primitives import EntryPositions, Term


@dataclass(frozen=True)
class Single(Level):
    """``crd[p]`` is the only coordinate below parent p, at the same position; 0 where p is padding."""

    letter: ClassVar[str] = "S"
    single: ClassVar[bool] = True
    sorts: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    appends: ClassVar[bool] = True
    coordinate_array: ClassVar[str | None] = "crd"
    arrays: ClassVar[tuple[str, ...]] = ("crd",)

    def coordinate(
        self, arrays: Mapping[str, Any], parent: Any, position: Any, extent: Any, cursor: Any = None
    ) -> Any:
        """Return ``crd[position]``."""
        return arrays["crd"][position]

    def append(self, arrays: Mapping[str, list[int]], position: int, coordinate: int) -> None:
        """Append to ``crd``; every parent gets its coordinate."""
        arrays["crd"].append(coordinate)

    def children(self, arrays: Mapping[str, Any], parent: int, extent: int) -> Iterator[tuple[int, int]]:
        """Yield the one coordinate."""
        yield int(arrays["crd"][parent]), parent

    def ascend(
        self, arrays: Mapping[str, np.ndarray], positions: np.ndarray, extent: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions stay."""
        return positions, arrays["crd"][positions].astype(np.int64)

    def build(self, stage: PackingState) -> tuple[dict[str, np.ndarray], EntryPositions]:
        """Put each entry's coordinate at its parent's position."""
        stage.reserve(stage.parents.count, f"coordinates in {self}")
        dtype = np.dtype(primitives.index_dtype(stage.extent))
        coordinates = primitives.evaluate(stage.entries, [stage.coordinate]).astype(dtype)
        crd = primitives.scatter(stage.entries, stage.parents, Term.index(), coordinates, dtype)
        return {"crd": crd.astype(self.dtypes.get("crd", dtype), copy=False)}, stage.parents


@final
@dataclass(frozen=True)
class ShortSingle(Single):
    """As S, with coordinates of 16 bits: half the index bytes, on axes of at most 65,536 coordinates."""

    letter: ClassVar[str] = "S16"
    largest_extent: ClassVar[int | None] = 2**16
    dtypes: ClassVar[Mapping[str, np.dtype]] = MappingProxyType({"crd": np.dtype(np.uint16)})
