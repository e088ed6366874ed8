"""Place: a leaf and the loops around it, and what a C compiler makes of the innermost of these."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

from tensorwise.analysis.loop_tree import BufferAccess, Leaf, Loop

VECTOR_LANES: Final = (4, 8, 16)
"""Lanes of a vector of float32: SSE, AVX2, AVX-512."""
STRAIGHT: Final = 300
"""Operations and accesses up to which a C compiler makes straight code of a short loop: about LLVM's limit."""


@final
@dataclass(frozen=True)
class Place:
    """A leaf and the loops around it, outermost first."""

    loops: tuple[Loop, ...]
    leaf: Leaf

    @cached_property
    def extents(self) -> list[float]:
        """Of the loops."""
        return [loop.extent for loop in self.loops]

    @cached_property
    def still(self) -> list[bool]:
        """For each loop whether nothing that is written moves with it: it is a reduction."""
        written = [access for access in self.leaf.accesses if access.mode != "read"]
        loops = range(len(self.loops))
        return [bool(written) and not any(access.moves[k] > 0 for access in written) for k in loops]

    @cached_property
    def vectors(self) -> tuple[set[int], int | None]:
        """The innermost loops that become straight code, and the loop whose iterations can be lanes of vectors: the
        innermost one that is vectorized, else the one around the straight code, else the innermost; no reduction, whose
        order counts. On a GPU the threads of a warp are lanes: the innermost loop over threads.
        """
        loops, still = self.loops, self.still
        size = 1 + len(self.leaf.accesses) + sum(
            count for name, count in self.leaf.operations.items() if name.startswith("float")
        )  # fmt: skip
        real = [k for k, loop in enumerate(loops) if loop.kind != "condition"][::-1]
        straight: set[int] = set()
        for k in real:
            kind, extent = loops[k].kind, loops[k].extent
            if kind == "vectorized":
                size *= max(1.0, extent / VECTOR_LANES[1])
            elif kind == "unrolled" or (kind == "serial" and size * extent <= STRAIGHT):
                size *= extent
            else:
                break
            straight.add(k)
        if threads := [k for k in real if loops[k].kind == "thread"]:
            return straight, threads[0]
        around = next((k for k in real if k not in straight), None)
        if explicit := [k for k in real if loops[k].kind == "vectorized"]:
            return straight, explicit[0]
        if around is not None and loops[around].kind == "serial" and not still[around]:
            return straight, around
        return straight, real[0] if real and real[0] in straight and not still[real[0]] else None

    @property
    def stretch(self) -> int:
        """Executions that compiled code does at a stretch: those of straight code, for all lanes."""
        straight, lane = self.vectors
        lanes = 1.0 if lane is None or lane in straight else min(VECTOR_LANES[1], self.extents[lane])
        return max(1, round(math.prod(max(1.0, self.extents[k]) for k in straight) * max(1.0, lanes)))

    def grain(self, access: BufferAccess) -> int:
        """Bytes that an instruction of a stretch reads or writes: an element, or those of all lanes, side by side."""
        lane = self.vectors[1]
        together = lane is not None and access.moves[lane] > 0 and access.strides[lane] == 1
        return max(1, round(access.item_bytes)) * (VECTOR_LANES[1] if together else 1)

    def thread_distance(self, access: BufferAccess) -> int:
        """Return the distance in bytes between concurrent accesses of two threads; 0: no parallel loop moves the access."""
        dealt = [k for k, loop in enumerate(self.loops) if loop.kind == "parallel" and loop.extent > 1]
        rest, found = math.ceil(math.prod(self.extents[k] for k in dealt) / 2), 0.0
        for k in reversed(dealt):
            extent = round(self.extents[k])
            place = rest if k == dealt[0] else rest % extent
            found, rest = found + place * access.strides[k] * access.moves[k], rest // extent
        return round(found * access.item_bytes)
