"""The level P: as many slots below each parent as the longest of its rows has entries."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from tensorwise.tensor import primitives
from tensorwise.tensor.levels.level import PackingState
from tensorwise.tensor.levels.pointed import Pointed
from tensorwise.tensor.primitives import EntryPositions, Term


@final
@dataclass(frozen=True)
class Slots(Pointed):
    """``pos[p] .. pos[p + 1]`` are the slots below parent p, numbered from 0; what they lack is padding.

    Below the outer part of a split mode and above its inner part this is the slice of SELL-C-sigma
    (Kreutzer et al., 2014): ``U(i1) P(k#) U(i0:8) S(k)``.
    """

    letter: ClassVar[str] = "P"
    pads: ClassVar[bool] = True
    ordered: ClassVar[bool] = False
    sorts: ClassVar[bool] = False
    arrays: ClassVar[tuple[str, ...]] = ("pos",)

    def coordinate(
        self, arrays: Mapping[str, Any], parent: Any, position: Any, extent: Any, cursor: Any = None
    ) -> Any:
        """Return the position: it identifies the slot, and no program reads slot numbers."""
        return position

    def children(self, arrays: Mapping[str, Any], parent: int, extent: int) -> Iterator[tuple[int, int]]:
        """Yield the slots below ``parent``."""
        low, high = self.bounds(arrays, parent)
        yield from enumerate(range(int(low), int(high)))

    def ascend(
        self, arrays: Mapping[str, np.ndarray], positions: np.ndarray, extent: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search the pointers."""
        parents = self.parents(arrays, positions)
        return parents, positions - arrays["pos"][parents]

    def build(self, stage: PackingState) -> tuple[dict[str, np.ndarray], EntryPositions]:
        """Give each parent as many slots as its highest one asks for."""
        stage.reserve(stage.parents.count, f"pointers above {self}")
        pos, places = primitives.slots(stage.entries, stage.parents, stage.coordinate)
        return {"pos": pos}, EntryPositions(int(pos[-1]), (Term(places),))
