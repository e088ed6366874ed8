"""The level N: one position an entry, so that a coordinate may repeat; the root of coordinate lists."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from tensorwise.tensor import primitives
from tensorwise.tensor.levels.level import PackingState
from tensorwise.tensor.levels.pointed import ListedLevel
from tensorwise.tensor.pointers import pointers_of
from tensorwise.tensor.primitives import EntryPositions, Term


@final
@dataclass(frozen=True)
class Repeated(ListedLevel):
    """As C, but not unique: ``crd`` holds a coordinate for each entry below it."""

    letter: ClassVar[str] = "N"
    unique: ClassVar[bool] = False

    def build(self, stage: PackingState) -> tuple[dict[str, np.ndarray], EntryPositions]:
        """Entries come in order: their numbers are the positions."""
        stage.reserve(stage.parents.count, f"pointers above {self}")
        parents = primitives.evaluate(stage.entries, stage.parents.terms).astype(np.int64)
        pos = pointers_of(parents, stage.parents.count)
        crd = primitives.evaluate(stage.entries, [stage.coordinate])
        crd = crd.astype(primitives.index_dtype(stage.extent))
        return {"pos": pos, "crd": crd}, EntryPositions(stage.entries, (Term.index(),))
