"""The levels C and C16: the coordinates that occur, ascending, behind one pointer a parent."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, final

import numpy as np

from tensorwise.tensor import primitives
from tensorwise.tensor.levels.level import Level, Stage
from tensorwise.tensor.primitives import Form, Term


@dataclass(frozen=True)
class Compressed(Level):
    """``pos[p] .. pos[p + 1]`` are the positions below parent p, ``crd`` holds their coordinates."""

    letter: ClassVar[str] = "C"
    arrays: ClassVar[tuple[str, ...]] = ("pos", "crd")

    def bounds(self, arrays: Mapping[str, Any], parent: Any) -> tuple[Any, Any]:
        """Return ``pos[parent]`` and ``pos[parent + 1]``."""
        return arrays["pos"][parent], arrays["pos"][parent + 1]

    def coordinate(self, arrays: Mapping[str, Any], position: Any, cursor: Any = None) -> Any:
        """Return ``crd[position]``."""
        return arrays["crd"][position]

    def children(self, arrays: Mapping[str, Any], parent: int, extent: int) -> Iterator[tuple[int, int]]:
        """Yield the stored coordinates below ``parent`` with their positions."""
        low, high = self.bounds(arrays, parent)
        for position in range(int(low), int(high)):
            yield int(self.coordinate(arrays, position)), position

    def ascend(
        self, arrays: Mapping[str, np.ndarray], positions: np.ndarray, extent: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search the pointers."""
        parents = np.searchsorted(arrays["pos"], positions, side="right") - 1
        return parents, arrays["crd"][positions].astype(np.int64)

    def build(self, stage: Stage) -> tuple[dict[str, np.ndarray], Form]:
        """Number the distinct coordinates below each parent."""
        stage.reserve(stage.parents.count, f"pointers above {self}")
        if stage.sorted:
            pos, crd, places = primitives.compress(
                stage.entries, stage.parents, stage.coordinate, stage.extent, not stage.bottom
            )
        else:
            pos, crd, places = primitives.group(stage.entries, stage.parents, stage.coordinate, stage.extent)
        crd = crd.astype(self.dtypes.get("crd", crd.dtype), copy=False)
        return {"pos": pos, "crd": crd}, Form(len(crd), () if places is None else (Term(places),))


@final
@dataclass(frozen=True)
class ShortCompressed(Compressed):
    """As C, with coordinates of 16 bits: half the index bytes, on axes of at most 65,536 coordinates."""

    letter: ClassVar[str] = "C16"
    largest_extent: ClassVar[int | None] = 2**16
    dtypes: ClassVar[Mapping[str, np.dtype]] = MappingProxyType({"crd": np.dtype(np.uint16)})
