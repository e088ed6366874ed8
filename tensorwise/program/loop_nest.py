"""The loop nest that directives are checked against: the loops of a schedule and what follows from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Self

from tensorwise.errors import ScheduleError
from tensorwise.program.einsum import Access, Assignment
from tensorwise.program.legality import Directive, check_formats, check_loops
from tensorwise.program.ops import Monoid
from tensorwise.program.reach import Reach
from tensorwise.program.schedule import Parallel, Schedule
from tensorwise.tensor.format import Format
from tensorwise.tensor.remap import Axis

MAX_ACCUMULATORS: Final = 64
"""More output slots than this are reduced in memory: no machine has the registers."""


@dataclass(frozen=True)
class ResultPlacement:
    """Where a nest writes its results.

    Attributes:
        registers: the loop from which on registers hold them; None: each term goes to memory.
        partial: whether several of them are added up in memory.
    """

    registers: str | None
    partial: bool


@dataclass(frozen=True)
class LoopNest:
    """What directives are applied to.

    Attributes:
        assignment: what is computed.
        schedule: the directives themselves; in a space, those that were chosen so far.
        formats: sparse operand -> format, its modes named by the operand's indices.
        masked: stored positions are asked whether they are entries before they contribute.
        accumulate: results are added to what the output holds.
        halves: operands, and the output, that are kept in 16 bits.
        keep_pattern: the output holds one value an entry of the first sparse operand.
        exact: indices whose extent is a multiple of their constant split, so that no guard is needed.
    """

    assignment: Assignment
    schedule: Schedule
    formats: Mapping[str, Format]
    masked: bool = False
    accumulate: bool = False
    halves: Mapping[str, str] = field(default_factory=dict)
    keep_pattern: bool = False
    exact: frozenset[str] = frozenset()

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """What the loops run over, outermost first; raises ScheduleError where a directive does not fit them.

        Axes that follow from a position are among them: they have no loop.
        """
        return self.schedule.loops(self.assignment.indices)

    @cached_property
    def loops(self) -> tuple[Axis, ...]:
        """The loops, outermost first."""
        followed = {axis for format in self.formats.values() for axis in format.followed}
        followed |= {self.formats[name].axes[-1] for name in self.selected}
        return tuple(axis for axis in self.axes if axis not in followed)

    @property
    def diagonals(self) -> tuple[Axis, ...]:
        """Axes whose coordinate follows from a diagonal's number and the coordinate along it."""
        return tuple(axis for axis in self.axes if axis.part == "diagonal")

    @property
    def selected(self) -> Mapping[str, Access]:
        """Operand whose entries are found by their numbers -> where these are read."""
        located, holds = self.schedule.located, self.assignment.selector
        if located is None or holds is None or located not in self.formats:
            return {}
        return {located: holds}

    @cached_property
    def reach(self) -> Reach:
        """How the loops reach the levels of the operands."""
        return Reach.of(self)

    @property
    def stored(self) -> frozenset[str]:
        """Indices of the sparse operands."""
        return self.assignment.indices_of(self.formats)

    def axis(self, loop: str) -> Axis:
        """Return what a loop runs over."""
        return next(axis for axis in self.axes if axis.name == loop)

    def check(self) -> None:
        """Raise ScheduleError where formats do not fit the loops, or a directive does not fit what it is applied to."""
        check_formats(self)
        for directive in sorted(self.schedule.directives, key=lambda one: not one.decides_loops):
            directive.check(self)
        check_loops(self)

    def allows(self, *directives: Directive) -> bool:
        """Whether these directives may be added to the schedule."""
        if directives not in self._allowed:
            try:
                self._extended(directives).check()
                self._allowed[directives] = True
            except ScheduleError:
                self._allowed[directives] = False
        return self._allowed[directives]

    def _extended(self, directives: tuple[Directive, ...]) -> Self:
        """Return the nest with more directives, which begins with what is known of this one."""
        schedule = type(self.schedule)((*self.schedule.directives, *directives))
        schedule.check_loops({axis.name: axis for axis in self.axes})
        nest = replace(self, schedule=schedule)
        nest.__dict__["axes"] = self.axes
        moving = tuple(directive for directive in directives if not directive.keeps_loops)
        if moving not in self._reaches:
            self._reaches[moving] = Reach.of(nest)
        nest.__dict__["reach"] = self._reaches[moving]
        return nest

    @cached_property
    def _reaches(self) -> dict[tuple[Directive, ...], Reach]:
        """How loops reach levels, by the directives that change it: a search asks the same for many configs."""
        return {(): self.reach}

    @cached_property
    def _allowed(self) -> dict[tuple[Directive, ...], bool]:
        """Answers so far."""
        return {}

    @property
    def monoid(self) -> Monoid:
        """What reduces."""
        return self.assignment.monoid

    @property
    def parallel(self) -> Parallel | None:
        """Whose iterations threads share."""
        return self.schedule.parallel

    @cached_property
    def late_modes(self) -> frozenset[str]:
        """Modes of the output whose coordinate is known only inside the loops over other modes."""
        kept = self.assignment.free_indices
        late = {
            above.axis.mode
            for format in self.formats.values()
            for depth, level in enumerate(format.levels)
            if level.single and level.axis.mode in kept
            for above in format.levels[:depth]
        }
        for name, holds in self.selected.items():
            if self.formats[name].axes[-1].mode in kept:
                late |= set(holds.indices)
        for axis in self.diagonals:
            if axis.mode in kept:
                late |= {axis.mode, axis.along}
        return frozenset(late)

    # -- reductions -------------------------------------------------------------------------------

    def fits_registers(self, loops: Sequence[Axis], strip: Axis | None = None, vectors: int = 1) -> bool:
        """Whether registers can hold all that the remaining loops produce, and something is reduced in them.

        Args:
            loops: what is left, outermost first, without strips.
            strip: what the lanes of a strip run over, whose ``vectors`` are bound inside all loops; None: there is none.
        """
        slots, reductions = 1, False
        for axis in (*loops, *([] if strip is None else [strip])):
            if axis.mode in self.late_modes:  # where the results belong is known further inside only
                return False
            if axis is not strip and self.is_parallel(axis):
                return False
            if axis.mode not in self.assignment.free_indices:
                reductions = True
            elif axis is strip:
                slots *= vectors
            elif self.is_unrolled(axis):
                slots *= self.schedule.splits[axis.mode]
            else:
                return False
        return reductions and slots <= MAX_ACCUMULATORS

    @cached_property
    def results(self) -> ResultPlacement:
        """Where the results of the nest are written: they are partial where more than one term reaches an output."""
        tile, reduced, shared = self.schedule.tile, False, False
        factor = self.schedule.factor
        for place, loop in enumerate(self.loops):
            if self.opens_registers(place) or (factor is not None and factor.loop == loop.name):
                return ResultPlacement(loop.name, reduced or shared)
            reduced = reduced or loop.mode not in self.assignment.free_indices
            if tile is not None and tile.loop == loop.name:
                continue
            level, operand = self.reach.leading_level(loop.name), self.reach.leaders.get(loop.name)
            if level is not None and not level.unique and not self.has_own_outputs(str(operand)):
                reduced = True
            shared = shared or (self.is_parallel(loop) and self.has_shared_outputs(loop))
        strip = tile.loop if tile is not None and self.opens_registers(len(self.loops)) else None
        return ResultPlacement(strip, reduced or shared)

    def opens_registers(self, place: int) -> bool:
        """Whether registers hold all that the loops from ``place`` on produce."""
        tile, left = self.schedule.tile, self.loops[place:]
        if tile is None or tile.loop in [axis.name for axis in left]:
            return self.fits_registers(left)
        return self.fits_registers(left, self.axis(tile.loop), tile.vectors)

    def is_parallel(self, loop: Axis) -> bool:
        """Whether threads of a CPU, or blocks of a GPU, share the iterations of a loop."""
        return self.parallel is not None and self.parallel.loop == loop.name

    def is_unrolled(self, loop: Axis) -> bool:
        """Whether the loop is unrolled completely."""
        return self.schedule.unrolls.get(loop.name) == 0

    # -- which iterations update the same output elements -----------------------------------------

    def has_shared_outputs(self, loop: Axis) -> bool:
        """Whether iterations of ``loop`` meet at the same output elements."""
        if loop.mode not in self.assignment.free_indices:
            return True
        return any(
            level.axis == loop and (not level.unique or loop.part in ("slot", "diagonal"))
            for name, format in self.formats.items()
            for level in format.levels
            if not self.has_own_outputs(name)
        )

    def has_own_outputs(self, operand: str) -> bool:
        """Whether the output holds one element for each position of ``operand``, which thus never meet."""
        return self.keep_pattern and operand == next(iter(self.formats))

    @cached_property
    def has_shared_rows(self) -> bool:
        """Whether parts of an outermost iteration that is cut meet at its outputs."""
        (name, format), *_ = self.formats.items()
        rows, below = format.levels[:2]
        distinct = below.unique and below.axis.mode in self.assignment.free_indices
        return not (self.has_shared_outputs(rows.axis) or self.has_own_outputs(name) or distinct)

    @cached_property
    def has_private_copies(self) -> bool:
        """Whether each thread reduces into an output of its own, to be combined at the end."""
        parallel = self.parallel
        if parallel is None or parallel.reduction != "private":
            return False
        loop = Axis.from_name(parallel.loop)
        return loop is not None and self.has_shared_outputs(loop)

    @property
    def fills_output(self) -> bool:
        """Whether a value for each entry of the only sparse operand is a value for each element of the output."""
        if not self.keep_pattern or len(self.formats) != 1 or self.selected:
            return False
        return self.assignment.fills(next(iter(self.formats)))
