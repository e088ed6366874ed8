"""How a program runs: a tuple of directives over the loops of an einsum.

A loop is named after its axis: ``i`` for a whole index, ``i1`` and ``i0`` for the outer and inner
part of a split one, ``k#`` and ``k-i`` for the slots and diagonals of a format. A schedule parses from and prints as text::

    split(k,1024) reorder(k1,i,j,k0) parallel(i,dynamic,32) tile(j,8x8) unroll(k0,4) prefetch(B,16) bound(j,256)
    bind(i,block,8) tile(j,2x32) bind(j,thread,32) stage(k,32) visit(i,length) locate(A)
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tensorwise.errors import ScheduleError
from tensorwise.registry import Registry
from tensorwise.tensor.remap import Axis

if TYPE_CHECKING:
    from tensorwise.lower import ir
    from tensorwise.lower.plan import Plan

CONSTANT_SPLIT: Final = 16
"""Splits up to this size are compiled in, so that their loops can be unrolled; larger ones are run-time
values, so that one kernel serves them all."""
WARP: Final = 32
"""Threads that a GPU runs side by side, and that can shuffle."""


@dataclass(frozen=True)
class Split:
    """Split an index into an outer and an inner loop, shared by all tensors and loops::

    for i in 0..I   ->   for i1 in 0..I/size: for i0 in 0..size
    """

    index: str
    size: int

    def __str__(self) -> str:
        return f"split({self.index},{self.size})"


@dataclass(frozen=True)
class Reorder:
    """Put the loops in this order, outermost first::

    for i: for k: ...   ->   for k: for i: ...
    """

    loops: tuple[str, ...]

    def __str__(self) -> str:
        return f"reorder({','.join(self.loops)})"


@dataclass(frozen=True)
class Parallel:
    """Hand the iterations of a loop to threads::

        for i in 0..I: body   ->   parallel for chunk in 0..I: for i in chunk: body

    ``policy`` is ``dynamic`` (``chunk`` iterations at a time, handed out as threads get free),
    ``balanced`` (``chunk`` parts a thread with equal numbers of stored entries, computed from the
    packed operand; for the outermost level of a sparse operand only) or ``merge-path`` (the same, with iterations cut
    where a part is full: for a few that hold most of the entries); on a GPU ``pieces`` (iterations with more than ``chunk``
    entries are cut, and the longest pieces come first). The chunk binds at call time.
    A loop over a reduced index needs ``reduction``: ``atomic`` updates, or a ``private`` copy of the
    output for each thread, summed at the end.
    """

    loop: str
    policy: str = "dynamic"
    chunk: int = 32
    reduction: str = "atomic"

    def __str__(self) -> str:
        reduction = "" if self.reduction == "atomic" else f",{self.reduction}"
        return f"parallel({self.loop},{self.policy},{self.chunk}{reduction})"


@dataclass(frozen=True)
class Unroll:
    """Repeat the body of a loop::

        for k: acc += f(k)   ->   for k step 4: acc0 += f(k); acc1 += f(k+1); ...   then the rest

    An inner loop of a constant split is unrolled completely (``factor`` 0). Elsewhere ``factor``
    copies get accumulators of their own while these fit into registers.
    """

    loop: str
    factor: int = 0

    def __str__(self) -> str:
        return f"unroll({self.loop},{self.factor})" if self.factor else f"unroll({self.loop})"


@dataclass(frozen=True)
class Tile:
    """Run a dense loop in strips of ``vectors`` x ``lanes`` elements that live in vector registers::

        for j: for k: C[j] += A[k] * B[k,j]
        ->  for j step 64: acc[0:64] = 0; for k: acc += A[k] * B[k, j:j+64]; C[j:j+64] = acc

    The strip's lanes are the innermost loop, wherever the strip loop itself stands. What is left
    over runs in strips of half the width, and so on, then in an overlapping strip or in scalars. Where no loop is
    unrolled, two vectors may overlap in one strip, and up to three scalars make one.
    """

    loop: str
    vectors: int
    lanes: int

    def __str__(self) -> str:
        return f"tile({self.loop},{self.vectors}x{self.lanes})"


@dataclass(frozen=True)
class Prefetch:
    """Ask for the row of a dense operand that the sparse loop reaches ``distance`` entries later.

    That is the part of the row which a strip covers, or all of it where its extent is compiled in and a loop inside
    walks it; else its first cache line.
    """

    tensor: str
    distance: int

    def __str__(self) -> str:
        return f"prefetch({self.tensor},{self.distance})"


@dataclass(frozen=True)
class Bound:
    """Compile the extent of an index in, so that strips of a tile need no loops and leave no rest::

        for j step 16: ...; for the rest: ...   ->   j = 0..16; j = 16..32

    The program then serves operands of this extent only (the directive ``bound`` of TACO).
    """

    index: str
    size: int

    def __str__(self) -> str:
        return f"bound({self.index},{self.size})"


@dataclass(frozen=True)
class Factor:
    """Sum over a loop, and those inside it, only the factors that change there, and multiply the sum by the others::

        for k: acc += A * B[k] * D[k]   ->   for k: acc += B[k] * D[k];   acc *= A

    A product of three factors then costs as much as one of two wherever the loop is entered. Infinities that the
    plain sum would cancel to NaN may come out as infinities, and products overflow and underflow elsewhere.
    """

    loop: str

    def __str__(self) -> str:
        return f"factor({self.loop})"


@dataclass(frozen=True)
class Bind:
    """Deal the iterations of a loop to the hardware of a GPU, on which the whole program then runs::

        bind(i,block,8)    for i: body   ->   for i, 8 a block: body, by a team of threads each
        bind(i,warp,2)     the same for as many iterations a block as teams fit into two warps
        bind(j,block)      strips of the tile over j are dealt to blocks as well, a second dimension of the grid
        bind(j,thread,32)  the lanes of the tile over j, elements of the output, are the threads of a team
        bind(k,lane,8)     the same inside a warp for lanes that are summed up: threads combine by shuffles

    Threads hold neighbours (vector loads) where a tile has two or four times as many lanes as there are threads.
    ``tile(j,4x32) bind(j,thread,32)`` is the 1-D strided register tile of G-Sparse (section III-B): each thread has
    every 32nd element, so that what the team stores at once lies together.
    """

    loop: str
    to: str
    count: int = 1

    def __str__(self) -> str:
        return f"bind({self.loop},{self.to}{f',{self.count}' if self.count != 1 else ''})"


@dataclass(frozen=True)
class Stage:
    """Fetch what a team reads of a compressed level together, ``size`` positions at a time, into memory that it shares::

        for p in lo..hi: f(crd[p])
        ->  for at in lo..hi step 32: kept[0:] = crd[at : min(at+32, hi)];  for p in there: f(kept[p-at])

    ``what`` is ``indices``, ``values`` or ``both``. The space is a constant, the end is asked for at run time: the
    non-rectangular buffer bound inference of G-Sparse (section III-B, kNnzTile). On GPUs only.
    """

    loop: str
    size: int
    what: str = "both"

    def __str__(self) -> str:
        return f"stage({self.loop},{self.size}{f',{self.what}' if self.what != 'both' else ''})"


@dataclass(frozen=True)
class Visit:
    """Run through the coordinates of a dense loop in the order that a buffer lists them, as by ``length``::

        for i in 0..I: body   ->   for place in 0..I: i = visited[place]; body

    The orders are those of formats, but nothing is stored anew (``bind_buffer`` of G-Sparse, section III-B).
    """

    loop: str
    order: str

    def __str__(self) -> str:
        return f"visit({self.loop},{self.order})"


@dataclass(frozen=True)
class Locate:
    """Go to the only entry of a sparse operand that counts, whose number another operand holds, instead of to all::

        for i: for p in pos[i]..pos[i+1]: k = crd[p]; for j: G[k,j] += D[i,j] if P[i,j] == p else 0
        ->  for i: for j: p = P[i,j]; if pos[i] <= p < pos[i+1]: k = crd[p]; G[k,j] += D[i,j]

    The last index of the operand has no loop then.
    """

    tensor: str

    def __str__(self) -> str:
        return f"locate({self.tensor})"


class LoopPass(ABC):
    """A directive of another package: a pass over the loops that were made of a program, on CPUs.

    Derive a frozen dataclass; its ``str`` is the directive's text. What a pass returns is proved to stay inside of its
    arrays like all code, or refused.
    """

    @abstractmethod
    def rewrite(self, kernel: "ir.LoweredFunction", plan: "Plan") -> "ir.LoweredFunction":
        """Return the kernel that computes the same by other loops.

        Raises:
            ScheduleError: the directive does not fit the program; the message says why.
        """


Directive = (
    Split
    | Reorder
    | Parallel
    | Unroll
    | Tile
    | Prefetch
    | Bound
    | Factor
    | Bind
    | Stage
    | Visit
    | Locate
    | LoopPass
)


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise ScheduleError(f"expected a whole number, got {text!r}")
    return int(text)


def _tile(loop: str, shape: str) -> Tile:
    vectors, _, lanes = shape.partition("x")
    return Tile(loop, _whole(vectors), _whole(lanes))


DIRECTIVES: Final[Registry[Callable[..., Directive]]] = Registry(
    "directive",
    "directives",
    {
        "split": lambda index, size: Split(index, _whole(size)),
        "reorder": lambda *loops: Reorder(loops),
        "parallel": lambda loop, policy="dynamic", chunk="32", reduction="atomic": Parallel(
            loop, policy, _whole(chunk), reduction
        ),
        "unroll": lambda loop, factor="0": Unroll(loop, _whole(factor)),
        "tile": _tile,
        "prefetch": lambda tensor, distance: Prefetch(tensor, _whole(distance)),
        "bound": lambda index, size: Bound(index, _whole(size)),
        "factor": Factor,
        "bind": lambda loop, to, count="1": Bind(loop, to, _whole(count)),
        "stage": lambda loop, size, what="both": Stage(loop, _whole(size), what),
        "visit": Visit,
        "locate": Locate,
    },
)
"""Name of a directive -> what makes it of its arguments, which are texts. Other packages add `LoopPass` directives."""


@dataclass(frozen=True)
class Schedule:
    """Directives, in any order; at most one reorder and one parallel.

    >>> print(Schedule.parse("reorder(i, j, k) parallel(i) tile(j, 4x8)"))
    reorder(i,j,k) parallel(i,dynamic,32) tile(j,4x8)
    """

    directives: tuple[Directive, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """Parse ``text``; raise ScheduleError naming the directive that cannot be read."""
        directives: list[Directive] = []
        rest = text.strip()
        while rest:
            match = re.match(r"([a-z]+)\s*\(([^()]*)\)\s*", rest)
            if match is None or match[1] not in DIRECTIVES:
                raise ScheduleError(
                    f"cannot read schedule at {rest[:40]!r}; known directives: {', '.join(DIRECTIVES)}"
                )
            arguments = [argument.strip() for argument in match[2].split(",")]
            try:
                directives.append(DIRECTIVES[match[1]](*arguments))
            except TypeError:
                raise ScheduleError(
                    f"{match[1]} does not take {len(arguments)} arguments: {match[0].strip()!r}"
                ) from None
            rest = rest[match.end() :]
        return cls(tuple(directives))

    def __str__(self) -> str:
        return " ".join(map(str, self.directives))

    @cached_property
    def splits(self) -> dict[str, int]:
        """Index -> inner extent."""
        return {d.index: d.size for d in self.directives if isinstance(d, Split)}

    @property
    def bounds(self) -> dict[str, int]:
        """Index -> extent that is compiled in."""
        return {d.index: d.size for d in self.directives if isinstance(d, Bound)}

    @property
    def order(self) -> tuple[str, ...] | None:
        """The loops as reordered, or None."""
        return next((d.loops for d in self.directives if isinstance(d, Reorder)), None)

    @property
    def parallel(self) -> Parallel | None:
        """The parallel directive, or None; on a GPU what it is there: the loop whose iterations are dealt to blocks."""
        given = next((d for d in self.directives if isinstance(d, Parallel)), None)
        dealt = self.dealt
        return Parallel(dealt.loop, "dynamic", 1) if given is None and dealt is not None else given

    @property
    def tile(self) -> Tile | None:
        """The register tile, or None."""
        return next((d for d in self.directives if isinstance(d, Tile)), None)

    @property
    def unrolls(self) -> dict[str, int]:
        """Loop -> factor (0 = completely)."""
        return {d.loop: d.factor for d in self.directives if isinstance(d, Unroll)}

    @property
    def factor(self) -> Factor | None:
        """The factor directive, or None."""
        return next((d for d in self.directives if isinstance(d, Factor)), None)

    @property
    def binds(self) -> tuple[Bind, ...]:
        """All bind directives."""
        return tuple(d for d in self.directives if isinstance(d, Bind))

    @property
    def dealt(self) -> Bind | None:
        """What deals the iterations of a loop to the blocks of a GPU, or None: the program runs on a CPU."""
        strips = self.tile.loop if self.tile else None
        return next((b for b in self.binds if b.to in ("block", "warp") and b.loop != strips), None)

    @property
    def threads(self) -> int:
        """Threads of a team."""
        return next((b.count for b in self.binds if b.to in ("thread", "lane")), 1)

    @property
    def teams(self) -> int:
        """Teams of a block."""
        dealt = self.dealt
        if dealt is None:
            return 1
        return dealt.count if dealt.to == "block" else dealt.count * max(1, WARP // self.threads)

    @property
    def stages(self) -> dict[str, Stage]:
        """Loop -> what is staged there."""
        return {d.loop: d for d in self.directives if isinstance(d, Stage)}

    @property
    def visits(self) -> dict[str, str]:
        """Loop -> the order in which its coordinates are visited."""
        return {d.loop: d.order for d in self.directives if isinstance(d, Visit)}

    @property
    def located(self) -> str | None:
        """The operand whose entries are found by their numbers, or None."""
        return next((d.tensor for d in self.directives if isinstance(d, Locate)), None)

    @property
    def prefetches(self) -> tuple[Prefetch, ...]:
        """All prefetch directives."""
        return tuple(d for d in self.directives if isinstance(d, Prefetch))

    def loops(self, indices: Sequence[str]) -> tuple[Axis, ...]:
        """Return the loops over ``indices``, outermost first.

        Raises:
            ScheduleError: a directive names an unknown loop, or the reorder is not a permutation.
        """
        splits = self.splits
        for index, size in splits.items():
            if index not in indices:
                raise ScheduleError(
                    f"{Split(index, size)}: no index {index!r}; the einsum has {', '.join(indices)}"
                )
            if size < 1:
                raise ScheduleError(f"{Split(index, size)}: the size must be at least 1")
        for index, size in self.bounds.items():
            if size < 1:
                raise ScheduleError(f"{Bound(index, size)}: the extent must be at least 1")
            if index not in indices or index in splits:
                raise ScheduleError(
                    f"{Bound(index, size)}: it takes an index that is not split; there are {indices}"
                )
        # Slots and diagonals are loops of formats: where the order names one, it stands for its index.
        given = [axis for axis in map(Axis.named, self.order or ()) if axis is not None]
        stands = {axis.mode: axis for axis in given if axis.part in ("slot", "diagonal")}
        axes = {
            axis.name: axis
            for index in indices
            for axis in (
                [Axis(index, "outer"), Axis(index, "inner")]
                if index in splits
                else [stands.get(index, Axis(index))]
            )
        }
        order = self.order if self.order is not None else tuple(axes)
        if sorted(order) != sorted(axes):
            raise ScheduleError(
                f"reorder({','.join(order)}) must list each of these loops once: {', '.join(axes)}"
            )
        for kind in (Reorder, Parallel, Tile, Factor, Locate):
            if sum(isinstance(d, kind) for d in self.directives) > 1:
                raise ScheduleError(f"at most one {kind.__name__.lower()} directive, got: {self}")
        for word, named in (
            ("split", [d.index for d in self.directives if isinstance(d, Split)]),
            ("unroll", [d.loop for d in self.directives if isinstance(d, Unroll)]),
            ("bound", [d.index for d in self.directives if isinstance(d, Bound)]),
            ("stage", [d.loop for d in self.directives if isinstance(d, Stage)]),
            ("visit", [d.loop for d in self.directives if isinstance(d, Visit)]),
        ):
            for name in named:
                if named.count(name) > 1:
                    raise ScheduleError(f"at most one {word} of {name}, got: {self}")
        for directive in self.directives:
            loop = getattr(directive, "loop", None)
            if loop is not None and loop not in axes:
                raise ScheduleError(f"{directive}: no loop {loop!r}; there are {', '.join(order)}")
        self._check_values(axes)
        return tuple(axes[name] for name in order)

    def _check_values(self, axes: dict[str, Axis]) -> None:
        parallel, tile = self.parallel, self.tile
        if parallel and parallel.policy not in ("dynamic", "balanced", "merge-path", "pieces"):
            raise ScheduleError(
                f"{parallel}: the policy is dynamic, balanced, merge-path or pieces, got {parallel.policy!r}"
            )
        if parallel and parallel.reduction not in ("atomic", "private"):
            raise ScheduleError(f"{parallel}: the reduction is atomic or private, got {parallel.reduction!r}")
        if parallel and parallel.chunk < 1:
            raise ScheduleError(f"{parallel}: the chunk must be at least 1")
        if tile and (
            (self.dealt is None and tile.lanes not in (1, 2, 4, 8, 16)) or not 1 <= tile.vectors <= 32
        ):
            raise ScheduleError(f"{tile}: lanes are 1, 2, 4, 8 or 16 and vectors 1 to 32")
        for loop, factor in self.unrolls.items():
            axis = axes[loop]
            constant = axis.part == "inner" and self.splits[axis.mode] <= CONSTANT_SPLIT
            if factor == 0 and not constant:
                raise ScheduleError(
                    f"{Unroll(loop)}: only the inner loop of a split up to {CONSTANT_SPLIT} is unrolled "
                    f"completely; give a factor, as in unroll({loop},4)"
                )
            if factor and (axis.part == "inner" and constant):
                raise ScheduleError(
                    f"{Unroll(loop, factor)}: {loop} has a constant extent; write unroll({loop})"
                )
            if factor > 16:
                raise ScheduleError(f"{Unroll(loop, factor)}: the factor is at most 16")
            if (tile and tile.loop == loop) or (parallel and parallel.loop == loop):
                raise ScheduleError(f"{loop} cannot be unrolled and a tile or parallel at once")
        if tile and parallel and tile.loop == parallel.loop:
            raise ScheduleError(
                f"{tile.loop} cannot be a tile and parallel at once; "
                "split it and run its outer loop in parallel"
            )
