"""The levels C and C16: the coordinates that occur, ascending, behind one pointer a parent."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, final

import numpy as np

from tensorwise.tensor import primitives
from tensorwise.tensor.levels.level import PackingState
from tensorwise.tensor.levels.pointed import ListedLevel
from tensorwise.tensor.primitives import EntryPositions, Term


@dataclass(frozen=True)
class Compressed(ListedLevel):
    """``pos[p] .. pos[p + 1]`` are the positions below parent p, ``crd`` holds their coordinates."""

    letter: ClassVar[str] = "C"
    proposed: ClassVar[bool] = True
    groups: ClassVar[bool] = True

    def build(self, stage: PackingState) -> tuple[dict[str, np.ndarray], EntryPositions]:
        """Number the distinct coordinates below each parent."""
        stage.reserve(stage.parents.count, f"pointers above {self}")
        if stage.sorted:
            pos, crd, places = primitives.compress(
                stage.entries, stage.parents, stage.coordinate, stage.extent, not stage.bottom
            )
        else:
            pos, crd, places = primitives.group(stage.entries, stage.parents, stage.coordinate, stage.extent)
        crd = crd.astype(self.dtypes.get("crd", crd.dtype), copy=False)
        return {"pos": pos, "crd": crd}, EntryPositions(len(crd), () if places is None else (Term(places),))


@final
@dataclass(frozen=True)
class ShortCompressed(Compressed):
    """As C, with coordinates of 16 bits: half the index bytes, on axes of at most 65,536 coordinates."""

    letter: ClassVar[str] = "C16"
    largest_extent: ClassVar[int | None] = 2**16
    dtypes: ClassVar[Mapping[str, np.dtype]] = MappingProxyType({"crd": np.dtype(np.uint16)})
