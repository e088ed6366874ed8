"""The directives of a schedule that mean the same on all processors, each with what it may be applied to."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from tensorwise.errors import ScheduleError
from tensorwise.program.factoring import split_factors
from tensorwise.program.legality import Axes, Directive, check_shared
from tensorwise.tensor.format import Format
from tensorwise.tensor.remap import Axis

if TYPE_CHECKING:
    from tensorwise.program.loop_nest import LoopNest
    from tensorwise.program.schedule import Schedule

CONSTANT_SPLIT: Final = 16
"""Splits up to this size are compiled in, so that their loops can be unrolled; larger ones are run-time
values, so that one kernel serves them all."""


@dataclass(frozen=True)
class Split(Directive):
    """Split an index into an outer and an inner loop, shared by all tensors and loops::

    for i in 0..I   ->   for i1 in 0..I/size: for i0 in 0..size
    """

    index: str
    size: int
    once: ClassVar = "index"
    keeps_loops: ClassVar = False

    def __str__(self) -> str:
        return f"split({self.index},{self.size})"

    def check_loops(self, schedule: "Schedule", axes: Axes) -> None:
        super().check_loops(schedule, axes)
        if self.size < 1:
            raise ScheduleError(f"{self}: the size must be at least 1")


@dataclass(frozen=True)
class Reorder(Directive):
    """Put the loops in this order, outermost first::

    for i: for k: ...   ->   for k: for i: ...
    """

    loops: tuple[str, ...]
    once: ClassVar = ""
    keeps_loops: ClassVar = False

    def __str__(self) -> str:
        return f"reorder({','.join(self.loops)})"

    def check_loops(self, schedule: "Schedule", axes: Axes) -> None:
        if sorted(self.loops) != sorted(axes):
            raise ScheduleError(f"{self} must list each of these loops once: {', '.join(axes)}")

    def check(self, nest: "LoopNest") -> None:
        for loop in nest.axes:
            if loop.part in ("slot", "diagonal") and not any(loop in f.loops for f in nest.formats.values()):
                raise ScheduleError(f"no operand is stored by {loop.name}, which {nest.schedule} runs over")


@dataclass(frozen=True)
class Parallel(Directive):
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
    once: ClassVar = ""

    def __str__(self) -> str:
        reduction = "" if self.reduction == "atomic" else f",{self.reduction}"
        return f"parallel({self.loop},{self.policy},{self.chunk}{reduction})"

    def check_loops(self, schedule: "Schedule", axes: Axes) -> None:
        super().check_loops(schedule, axes)
        if self.policy not in ("dynamic", "balanced", "merge-path", "pieces"):
            raise ScheduleError(
                f"{self}: the policy is dynamic, balanced, merge-path or pieces, got {self.policy!r}"
            )
        if self.reduction not in ("atomic", "private"):
            raise ScheduleError(f"{self}: the reduction is atomic or private, got {self.reduction!r}")
        if self.chunk < 1:
            raise ScheduleError(f"{self}: the chunk must be at least 1")

    def check(self, nest: "LoopNest") -> None:
        dealt = nest.schedule.grid_bind
        if self.policy == "pieces" and dealt is None:
            raise ScheduleError(f"{self}: pieces are for GPUs; threads of a CPU take parts, as in merge-path")
        if dealt is not None:
            cuts = self.policy in ("dynamic", "pieces") and self.reduction == "atomic"
            if self.loop != dealt.loop or not cuts:
                raise ScheduleError(
                    f"{self}: on a GPU it may only cut the rows of {dealt.loop}, as parallel({dealt.loop},pieces,64)"
                )
        check_shared(self, self.loop, nest)
        if self.policy != "dynamic":
            self._check_balance(nest)

    def _check_balance(self, nest: "LoopNest") -> None:
        """Raise ScheduleError unless parts can be computed of the operand's outermost level."""
        first = next(iter(nest.formats.values()), None)
        if first is None or first.axes[0].name != self.loop or nest.axes[0].name != self.loop:
            raise ScheduleError(
                f"{self}: parts are balanced over the outermost loop when it is the outermost level "
                f"of the sparse operand; use dynamic for {self.loop}"
            )
        if self.policy in ("merge-path", "pieces"):
            self._check_cuts(nest, first)
        roots = [format.levels[0] for format in nest.formats.values()]
        if roots[0].full and any(not r.full and r.axis == roots[0].axis for r in roots):
            raise ScheduleError(
                f"{self}: the loop follows the compressed level of another operand, whose positions "
                "are not those that the parts count; use dynamic, or name that operand first"
            )

    def _check_cuts(self, nest: "LoopNest", format: Format) -> None:
        """Raise ScheduleError unless iterations can be cut, and what their pieces give can be added up."""
        below = format.levels[1:2]
        if format.axes[0].part == "inner":
            raise ScheduleError(
                f"{self}: what a piece of an iteration adds to is a block of outputs, but those of {self.loop} "
                "are strided; use balanced, or store the outer part above the inner one"
            )
        if not below or not below[0].listed:
            raise ScheduleError(
                f"{self}: parts cut a list of coordinates that lies below {self.loop}, as in U(i) C(k); "
                f"the format is {format}; use balanced"
            )
        if not nest.assignment.monoid.single:
            raise ScheduleError(
                f"{self}: {nest.assignment.monoid.name} needs an iteration of {self.loop} in one piece; use balanced"
            )


@dataclass(frozen=True)
class Unroll(Directive):
    """Repeat the body of a loop::

        for k: acc += f(k)   ->   for k step 4: acc0 += f(k); acc1 += f(k+1); ...   then the rest

    An inner loop of a constant split is unrolled completely (``factor`` 0). Elsewhere ``factor``
    copies get accumulators of their own while these fit into registers.
    """

    loop: str
    factor: int = 0
    once: ClassVar = "loop"

    def __str__(self) -> str:
        return f"unroll({self.loop},{self.factor})" if self.factor else f"unroll({self.loop})"

    def check_loops(self, schedule: "Schedule", axes: Axes) -> None:
        super().check_loops(schedule, axes)
        axis = axes[self.loop]
        constant = axis.part == "inner" and schedule.splits[axis.mode] <= CONSTANT_SPLIT
        if self.factor == 0 and not constant:
            raise ScheduleError(
                f"{self}: only the inner loop of a split up to {CONSTANT_SPLIT} is unrolled "
                f"completely; give a factor, as in unroll({self.loop},4)"
            )
        if self.factor and constant:
            raise ScheduleError(f"{self}: {self.loop} has a constant extent; write unroll({self.loop})")
        if self.factor > 16:
            raise ScheduleError(f"{self}: the factor is at most 16")
        if self.loop in [taken.loop for taken in (schedule.tile, schedule.parallel) if taken]:
            raise ScheduleError(f"{self.loop} cannot be unrolled, because it is already a tile or parallel")

    def check(self, nest: "LoopNest") -> None:
        leader = nest.reach.leaders.get(self.loop)
        if self.factor == 0 and leader is not None:
            raise ScheduleError(f"unroll({self.loop}): {self.loop} is compressed in {leader}; give a factor")


@dataclass(frozen=True)
class Tile(Directive):
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
    once: ClassVar = ""
    keeps_loops: ClassVar = False

    def __str__(self) -> str:
        return f"tile({self.loop},{self.vectors}x{self.lanes})"

    def check_loops(self, schedule: "Schedule", axes: Axes) -> None:
        super().check_loops(schedule, axes)
        if (schedule.grid_bind is None and self.lanes not in (1, 2, 4, 8, 16)) or not 1 <= self.vectors <= 32:
            raise ScheduleError(f"{self}: lanes are 1, 2, 4, 8 or 16 and vectors 1 to 32")
        if schedule.parallel and self.loop == schedule.parallel.loop:
            raise ScheduleError(
                f"{self.loop} cannot be both a tile and parallel; split it and run its outer loop in parallel"
            )

    def check(self, nest: "LoopNest") -> None:
        assignment, schedule, mode = nest.assignment, nest.schedule, nest.axis(self.loop).mode
        if (
            not assignment.monoid.single
            and self.lanes * self.vectors > 1
            and (schedule.grid_bind is None or self.lanes > schedule.threads)
            and assignment.monoid.name != "mean"
            and mode not in assignment.free_indices
        ):
            raise ScheduleError(
                f"{self}: {assignment.monoid.name} keeps a coordinate, so that lanes have to be elements of the "
                f"output ({', '.join(assignment.free_indices)})"
            )
        if nest.masked and mode in nest.stored:
            raise ScheduleError(f"{self}: lanes over a stored index cannot be masked")
        self._check_strips(nest)
        for search in nest.reach.searches:
            if search.in_lanes:
                raise ScheduleError(
                    f"{self}: lanes reach {search.level.axis.name}, which is compressed in {search.operand} "
                    f"({nest.formats[search.operand]}); they run over dense levels only"
                )

    def _check_strips(self, nest: "LoopNest") -> None:
        """Raise ScheduleError unless it is known where strips end."""
        axis, level, before = (
            nest.axis(self.loop),
            nest.reach.leading_level(self.loop),
            nest.reach.before[self.loop],
        )
        if level is None:
            other = Axis(axis.mode, "inner" if axis.part == "outer" else "outer")
            if axis.part != "whole" and other.name not in before.coordinates:
                raise ScheduleError(
                    f"{self}: put {other.name} outside {self.loop}, so that strips know where they end"
                )
            return
        leader = nest.reach.leaders[self.loop]
        last = before.levels[leader] + 1 == len(nest.formats[leader].levels)
        innermost = nest.loops[-1] == axis and level.coordinate_array is not None and axis.part != "outer"
        if not (last and innermost and axis.mode in nest.assignment.reduced):
            raise ScheduleError(
                f"{self}: {self.loop} is compressed in {leader}; strips run along a compressed level "
                "only where it is the last one, reduced and the innermost loop"
            )


@dataclass(frozen=True)
class Prefetch(Directive):
    """Ask for the row of a dense operand that the sparse loop reaches ``distance`` entries later.

    That is the part of the row which a strip covers, or all of it where its extent is compiled in and a loop inside
    walks it; else its first cache line.
    """

    tensor: str
    distance: int

    def __str__(self) -> str:
        return f"prefetch({self.tensor},{self.distance})"

    def check(self, nest: "LoopNest") -> None:
        if self.tensor not in nest.assignment.operands or self.tensor in nest.formats:
            raise ScheduleError(f"{self}: {self.tensor!r} is no dense operand of {nest.assignment}")
        if nest.schedule.grid_bind is not None:
            raise ScheduleError(f"{self}: GPUs hide latencies by other threads; leave it out")


@dataclass(frozen=True)
class Bound(Directive):
    """Compile the extent of an index in, so that strips of a tile need no loops and leave no rest::

        for j step 16: ...; for the rest: ...   ->   j = 0..16; j = 16..32

    The program then serves operands of this extent only (the directive ``bound`` of TACO).
    """

    index: str
    size: int
    once: ClassVar = "index"

    def __str__(self) -> str:
        return f"bound({self.index},{self.size})"

    def check_loops(self, schedule: "Schedule", axes: Axes) -> None:
        super().check_loops(schedule, axes)
        if self.size < 1:
            raise ScheduleError(f"{self}: the extent must be at least 1")
        if self.index in schedule.splits:
            raise ScheduleError(f"{self}: it takes an index that is not split, got {schedule}")


@dataclass(frozen=True)
class Factor(Directive):
    """Sum over a loop, and those inside it, only the factors that change there, and multiply the sum by the others::

        for k: acc += A * B[k] * D[k]   ->   for k: acc += B[k] * D[k];   acc *= A

    A product of three factors then costs as much as one of two wherever the loop is entered. Infinities that the
    plain sum would cancel to NaN may come out as infinities, and products overflow and underflow elsewhere.
    """

    loop: str

    def __str__(self) -> str:
        return f"factor({self.loop})"

    once: ClassVar = ""

    def check(self, nest: "LoopNest") -> None:
        split_factors(nest, self.loop)


@dataclass(frozen=True)
class Visit(Directive):
    """Run through the coordinates of a dense loop in the order that a buffer lists them, as by ``length``::

        for i in 0..I: body   ->   for place in 0..I: i = visited[place]; body

    The orders are those of formats, but nothing is stored anew (``bind_buffer`` of G-Sparse, section III-B).
    """

    loop: str
    order: str

    def __str__(self) -> str:
        return f"visit({self.loop},{self.order})"

    once: ClassVar = "loop"

    def check(self, nest: "LoopNest") -> None:
        leader = nest.reach.leaders.get(self.loop)
        if leader is not None:
            raise ScheduleError(
                f"{self}: {self.loop} is compressed in {leader}, whose coordinates come as they are stored"
            )
        axis, parallel, tile = nest.axis(self.loop), nest.schedule.parallel, nest.schedule.tile
        cut = parallel is not None and parallel.loop == self.loop and parallel.policy != "dynamic"
        if axis.part != "whole" or cut or (tile is not None and tile.loop == self.loop):
            raise ScheduleError(
                f"visit({self.loop}): it takes a whole loop without strips or parts of equal cost (got {nest.schedule})"
            )
        if axis.mode not in nest.stored or any(axis.mode in f.orders for f in nest.formats.values()):
            raise ScheduleError(
                f"visit({self.loop}): it takes an index of a sparse operand that stores it in its own order"
            )


@dataclass(frozen=True)
class Locate(Directive):
    """Go directly to the one entry whose number another operand holds, instead of testing all entries::

        for i: for p in pos[i]..pos[i+1]: k = crd[p]; for j: G[k,j] += D[i,j] if P[i,j] == p else 0
        ->  for i: for j: p = P[i,j]; if pos[i] <= p < pos[i+1]: k = crd[p]; G[k,j] += D[i,j]

    The last index of the operand has no loop then.
    """

    tensor: str
    once: ClassVar = ""

    def __str__(self) -> str:
        return f"locate({self.tensor})"

    decides_loops: ClassVar = True
    keeps_loops: ClassVar = False

    def check(self, nest: "LoopNest") -> None:
        holds, format, tile = nest.assignment.selector, nest.formats.get(self.tensor), nest.schedule.tile
        if holds is None or format is None or nest.assignment.chosen[holds.tensor] != self.tensor:
            raise ScheduleError(
                f"{self}: only one entry may count, as in G[k,j] += D[i,j] if P[i,j] == A else 0 for A[i,k] "
                f"(got {nest.assignment})"
            )
        *above, last = format.levels
        known = all(level.axis.mode in holds.indices for level in above)
        whole = all(level.axis.part == "whole" for level in format.levels)
        if not (format.order_kept and known and whole and last.listed and last.unique):
            raise ScheduleError(
                f"{self}: {holds} tells where entries stand in formats such as (i,k) -> U(i) C(k), got {format}"
            )
        lanes = tile is not None and nest.axis(tile.loop).mode in (*holds.indices, last.axis.mode)
        named = [getattr(d, "loop", None) for d in nest.schedule.directives]
        if nest.schedule.grid_bind is not None or lanes or last.axis.name in named:
            raise ScheduleError(
                f"{self}: entries are found one by one, on CPUs: {last.axis.name} has no loop, and no index of "
                f"{holds} runs in lanes (got {nest.schedule})"
            )
