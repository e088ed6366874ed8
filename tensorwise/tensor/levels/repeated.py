"""The level N: one position an entry, so that a coordinate may repeat; the root of coordinate lists."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from tensorwise.tensor import primitives
from tensorwise.tensor.levels.level import Level, Stage
from tensorwise.tensor.primitives import Form, Term


@final
@dataclass(frozen=True)
class Repeated(Level):
    """As C, but not unique: ``crd`` holds a coordinate for each entry below it."""

    letter: ClassVar[str] = "N"
    unique: ClassVar[bool] = False
    arrays: ClassVar[tuple[str, ...]] = ("pos", "crd")

    def bounds(self, arrays: Mapping[str, Any], parent: Any) -> tuple[Any, Any]:
        """Return ``pos[parent]`` and ``pos[parent + 1]``."""
        return arrays["pos"][parent], arrays["pos"][parent + 1]

    def coordinate(self, arrays: Mapping[str, Any], position: Any, cursor: Any = None) -> Any:
        """Return ``crd[position]``."""
        return arrays["crd"][position]

    def children(self, arrays: Mapping[str, Any], parent: int, extent: int) -> Iterator[tuple[int, int]]:
        """Yield the coordinates below ``parent``, each as often as it has entries."""
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
        """Entries come in order: their numbers are the positions."""
        stage.reserve(stage.parents.count, f"pointers above {self}")
        parents = primitives.evaluate(stage.entries, stage.parents.terms).astype(np.int64)
        pos = np.zeros(stage.parents.count + 1, primitives.index_dtype(stage.entries))
        np.cumsum(np.bincount(parents, minlength=stage.parents.count), out=pos[1:])
        crd = primitives.evaluate(stage.entries, [stage.coordinate])
        crd = crd.astype(primitives.index_dtype(stage.extent))
        return {"pos": pos, "crd": crd}, Form(stage.entries, (Term.index(),))
