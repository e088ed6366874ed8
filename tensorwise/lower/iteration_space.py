"""The iteration space of a plan: its loops, what follows from them, and which iterations update the same output."""

from collections.abc import Mapping
from functools import cached_property

from tensorwise.lower.plan import Plan
from tensorwise.program.einsum import Access, Assignment
from tensorwise.program.ops import Monoid
from tensorwise.program.schedule import Parallel, Schedule
from tensorwise.tensor.remap import Axis


class IterationSpace:
    """What lowering asks of a checked plan before it emits a statement. Nothing here changes while it does.

    Attributes:
        loops: the loops, outermost first.
        diagonals: axes whose coordinate follows from a diagonal's number and the coordinate along it.
        named: operand whose entries are found by their numbers -> where these are read.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.assignment: Assignment = plan.assignment
        self.schedule: Schedule = plan.schedule
        self.monoid: Monoid = plan.assignment.monoid
        self.parallel: Parallel | None = plan.schedule.parallel
        self.threads = plan.schedule.threads
        located, holds = plan.schedule.located, plan.assignment.selector
        self.named: Mapping[str, Access] = (
            {located: holds} if located is not None and holds is not None else {}
        )
        followed = {axis for format in plan.formats.values() for axis in format.followed}
        followed |= {plan.formats[name].axes[-1] for name in self.named}
        every = plan.schedule.loops(plan.assignment.indices)
        self.loops = tuple(axis for axis in every if axis not in followed)
        self.diagonals = tuple(axis for axis in every if axis.part == "diagonal")

    @cached_property
    def late_modes(self) -> frozenset[str]:
        """Modes of the output whose coordinate is known only inside the loops over other modes."""
        plan, kept = self.plan, self.assignment.free_indices
        late = {
            above.axis.mode
            for format in plan.formats.values()
            for depth, level in enumerate(format.levels)
            if level.single and level.axis.mode in kept
            for above in format.levels[:depth]
        }
        for name, holds in self.named.items():
            if plan.formats[name].axes[-1].mode in kept:
                late |= set(holds.indices)
        for axis in self.diagonals:
            if axis.mode in kept:
                late |= {axis.mode, axis.along}
        return frozenset(late)

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
            for name, format in self.plan.formats.items()
            for level in format.levels
            if not self.has_own_outputs(name)
        )

    def has_own_outputs(self, operand: str) -> bool:
        """Whether the output holds one element for each position of ``operand``, which thus never meet."""
        return self.plan.keep_pattern and operand == next(iter(self.plan.formats))

    @cached_property
    def has_shared_rows(self) -> bool:
        """Whether parts of an outermost iteration that is cut meet at its outputs."""
        (name, format), *_ = self.plan.formats.items()
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
        if not self.plan.keep_pattern or len(self.plan.formats) != 1 or self.named:
            return False
        return self.assignment.fills(next(iter(self.plan.formats)))
