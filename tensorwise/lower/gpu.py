"""GPUs: iterations of one loop go to blocks, whole or in pieces, and lanes are the threads of a team."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final, final

from tensorwise.lower import ir
from tensorwise.lower.builder import Builder
from tensorwise.lower.cuda import print_cuda
from tensorwise.lower.env import Env, Lanes
from tensorwise.lower.ir import Buffer, BufferStore, Const, Expr, If, Reduce, Stmt, Var
from tensorwise.lower.launch import check_operands
from tensorwise.lower.lower import emit_kernel
from tensorwise.lower.mapping import Body, LoopMapping, StripRange
from tensorwise.lower.operands import NUM_CUT, NUM_PIECES, Operands
from tensorwise.lower.pieces import Pieces
from tensorwise.lower.plan import Plan
from tensorwise.lower.resolve import Resolver
from tensorwise.lower.target import Target
from tensorwise.lower.teams import Teams
from tensorwise.tensor.remap import Axis

FILLING: Final = ir.Blocks("x", 256, 1)
"""How a GPU fills an output: an element a thread."""


@final
class GpuMapping(LoopMapping):
    """Loops of a kernel for the blocks, teams and threads of a GPU."""

    def __init__(self, plan: Plan, operands: Operands, builder: Builder, resolver: Resolver) -> None:
        self.plan = plan
        self.teams = Teams(plan, operands, builder)
        parallel = plan.parallel
        in_pieces = parallel is not None and parallel.policy == "pieces"
        self.pieces = Pieces(plan, operands, builder, resolver) if in_pieces else None

    def binding(self, loop: Axis) -> ir.Blocks | None:
        """Return the teams that share the iterations of a loop; None: each runs all."""
        if not self.plan.is_parallel(loop):
            return None
        return ir.Blocks("x", self.plan.schedule.teams, self.plan.schedule.threads)

    @property
    def even_binding(self) -> ir.Blocks:
        """A thread has an element."""
        return FILLING

    def cut_strips(self, strips: StripRange, emit: Callable[[Lanes], None]) -> None:
        """Emit the loop over strips of one width."""
        self.teams.cut_strips(strips, emit)

    def vectors_of(self, strip: Lanes) -> Iterator[tuple[Expr, tuple[object, ...]]]:
        """Yield where the thread's part of each vector of a strip lies, and the key of its accumulator."""
        return self.teams.vectors_of(strip)

    def guard(self, place: Expr, end: Expr | None) -> AbstractContextManager[None]:
        """Emit what follows for the threads whose elements exist."""
        return self.teams.guard(place, end)

    def combine_threads(self, registers: tuple[Var, ...]) -> list[Stmt]:
        """Return the shuffles that combine the states of a team's threads."""
        return self.teams.combine(registers)

    def cuts_iterations(self, loop: Axis) -> bool:
        """Whether a loop runs over pieces of its iterations."""
        return self.pieces is not None and self.plan.is_parallel(loop)

    def iterate_parts(self, env: Env, loop: Axis, var: Var, body: Body) -> None:
        """Emit the loop over pieces."""
        assert self.pieces is not None
        self.pieces.iterate_parts(env, var, self.binding(loop), body)

    def fetch(
        self, env: Env, loop: Axis, name: str, lo: Expr, hi: Expr
    ) -> AbstractContextManager[tuple[Env, Expr, Expr]]:
        """Yield the positions that a team fetches at a time."""
        return self.teams.fetch(env, loop, name, lo, hi)

    def write(self, env: Env, statement: BufferStore | Reduce) -> list[Stmt]:
        """Return what stores a whole iteration's result, and adds that of a piece to the others'."""
        whole = env.piece.whole if env.piece else None
        if whole is None or self.pieces is None or isinstance(statement, Reduce):
            return [self.teams.by_one_thread(env, statement)]
        self.pieces.clears = True
        combine = self.plan.monoid.combine
        adds = Reduce(statement.buffer, statement.index, combine, statement.value, True)
        is_whole, is_none = (ir.compare(name, whole, Const(0)) for name in ("ne", "eq"))
        return [
            If(is_whole, (self.teams.by_one_thread(env, statement),)),
            If(is_none, (self.teams.by_one_thread(env, adds),)),
        ]

    def clearing(self) -> list[Stmt]:
        """Return the launch that clears what pieces add to."""
        return [] if self.pieces is None else self.pieces.clearing()

    def buffers(self) -> tuple[Buffer, ...]:
        """Return the list of pieces, and that of iterations that are cut."""
        if self.pieces is None:
            return ()
        return (self.pieces.list, self.pieces.cut) if self.pieces.clears else (self.pieces.list,)

    def sizes(self) -> tuple[Var, ...]:
        """Return the numbers of pieces and of iterations that are cut."""
        if self.pieces is None:
            return ()
        return (NUM_PIECES, NUM_CUT) if self.pieces.clears else (NUM_PIECES,)

    def scratch(self) -> tuple[tuple[Buffer, int], ...]:
        """Return what teams keep of what they fetch."""
        return self.teams.scratch()


def lower_to_launches(plan: Plan) -> ir.LoweredFunction:
    """Return the loop IR of a program for GPUs: each outermost statement is a launch."""
    return emit_kernel(plan, GpuMapping)


TARGET: Final = Target(check_operands, lower_to_launches, lambda kernel: print_cuda(kernel)[0])
