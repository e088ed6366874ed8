"""CPUs: threads share the iterations of one loop, whole or by merge-path parts, and lanes are vectors of one thread."""

from collections.abc import Callable
from typing import final

from tensorwise.lower import ir
from tensorwise.lower.builder import Builder
from tensorwise.lower.env import Env, Lanes
from tensorwise.lower.ir import Buffer, BufferStore, Reduce, Stmt, Var
from tensorwise.lower.mapping import Body, LoopMapping, StripRange
from tensorwise.lower.merge_path import MergePath
from tensorwise.lower.operands import CUTS, NUM_PARTS, Operands
from tensorwise.lower.plan import Plan
from tensorwise.lower.resolve import Resolver
from tensorwise.lower.strips import StripCutter
from tensorwise.tensor.remap import Axis


@final
class CpuMapping(LoopMapping):
    """Loops of a kernel for the threads of a CPU."""

    def __init__(self, plan: Plan, operands: Operands, builder: Builder, resolver: Resolver) -> None:
        self.plan, self.builder = plan, builder
        parallel = plan.parallel
        self.merge_path = (
            MergePath(plan, operands, builder, resolver)
            if parallel is not None and parallel.policy == "merge-path"
            else None
        )

    def binding(self, loop: Axis) -> ir.Workers | None:
        """Return the policy by which threads share the iterations of a loop; None: one thread runs all."""
        parallel = self.plan.parallel
        if parallel is None or parallel.loop != loop.name:
            return None
        return ir.Workers("dynamic" if parallel.policy == "merge-path" else parallel.policy)

    @property
    def even_binding(self) -> ir.Workers | None:
        """Threads have equal shares, if there are several."""
        return ir.Workers("even") if self.plan.parallel else None

    def cut_strips(self, strips: StripRange, emit: Callable[[Lanes], None]) -> None:
        """Emit loops over strips, narrower and narrower towards the end."""
        tile = self.plan.schedule.tile
        assert tile is not None
        StripCutter(tile, strips, self.builder, emit).cut()

    def cuts_iterations(self, loop: Axis) -> bool:
        """Whether a loop runs over the parts of a merge path."""
        return self.merge_path is not None and self.plan.is_parallel(loop)

    def iterate_parts(self, env: Env, loop: Axis, var: Var, body: Body) -> None:
        """Emit the loop over the parts of the merge path."""
        assert self.merge_path is not None
        self.merge_path.iterate_parts(env, var, self.binding(loop), body)

    def write(self, env: Env, statement: BufferStore | Reduce) -> list[Stmt]:
        """Return what writes to the output, or to the carry of a part."""
        return [statement if self.merge_path is None else self.merge_path.redirect(env, statement)]

    def emit_rest(self) -> None:
        """Add what the parts of a merge path have carried."""
        if self.merge_path is not None:
            self.merge_path.add_carries()

    def buffers(self) -> tuple[Buffer, ...]:
        """Return where parts begin, and what they carry."""
        if self.merge_path is None:
            return ()
        return (CUTS, self.merge_path.carries) if self.merge_path.carries else (CUTS,)

    def sizes(self) -> tuple[Var, ...]:
        """Return the number of parts."""
        return () if self.merge_path is None else (NUM_PARTS,)
