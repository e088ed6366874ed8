"""What levels share that keep one pointer a parent (P, B), and those that also list coordinates (C, C16, N)."""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tensorwise.tensor.levels.level import Level


@dataclass(frozen=True)
class Pointed(Level, ABC):
    """``pos[p] .. pos[p + 1]`` are the positions below parent p."""

    pointer_array: ClassVar[str | None] = "pos"

    def first(self, arrays: Mapping[str, Any], parent: Any) -> Any:
        """Return ``pos[parent]``."""
        return arrays["pos"][parent]

    def open_fiber(self, arrays: Mapping[str, list[int]], position: int) -> None:
        """Append the pointer to the fiber."""
        arrays["pos"].append(position)

    def close_last_fiber(self, arrays: Mapping[str, list[int]], positions: int) -> None:
        """Append the end of the last fiber."""
        arrays["pos"].append(positions)

    def parents(self, arrays: Mapping[str, np.ndarray], positions: np.ndarray) -> np.ndarray:
        """Return the parent of each position, int64: a search among the pointers."""
        return np.searchsorted(arrays["pos"], positions, side="right") - 1


@dataclass(frozen=True)
class ListedLevel(Pointed, ABC):
    """Besides, ``crd`` holds the coordinate at each position."""

    listed: ClassVar[bool] = True
    coordinate_array: ClassVar[str | None] = "crd"
    appends: ClassVar[bool] = True
    arrays: ClassVar[tuple[str, ...]] = ("pos", "crd")

    def coordinate(
        self, arrays: Mapping[str, Any], parent: Any, position: Any, extent: Any, cursor: Any = None
    ) -> Any:
        """Return ``crd[position]``."""
        return arrays["crd"][position]

    def append(self, arrays: Mapping[str, list[int]], position: int, coordinate: int) -> None:
        """Append to ``crd``."""
        arrays["crd"].append(coordinate)

    def ascend(
        self, arrays: Mapping[str, np.ndarray], positions: np.ndarray, extent: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search the pointers."""
        return self.parents(arrays, positions), arrays["crd"][positions].astype(np.int64)
