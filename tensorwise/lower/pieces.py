"""Long iterations in pieces, on a GPU: at most so many entries each, one a team.

::

    for i: C[i] = sum of row i   ->   for each row that is cut: C[i] = 0
                                      for each piece: a whole row: C[i] = its sum; a part of one: C[i] += its sum, atomically

No team has more to do than a piece. Long ones start first, so that short ones fill up the end; of equally long ones those
that read the same rows of dense operands start together (``packed.pieces_of``). Most rows are whole, and stored as if none
had been cut.

Source: G-Sparse (section III-B) starts long rows first; cutting and the order of neighbours are ours (decision 0064).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Final, final

from tensorwise.lower import ir
from tensorwise.lower.arrays import COUNT, CUT, PIECE_COLUMNS
from tensorwise.lower.ir import LANE, Buffer, BufferStore, Const, Expr, For, If, Reduce, Stmt, Var
from tensorwise.lower.nest import Env, Piece, State
from tensorwise.lower.teams import Teams
from tensorwise.program.schedule import WARP
from tensorwise.tensor.remap import Axis

CLEARING: Final = 8
"""Rows that a block clears, a warp each."""


@final
class GpuLowering(Teams):
    """A lowering whose outermost loop may run over pieces of its iterations."""

    clears = False
    """Whether pieces add to outputs of iterations that are cut."""

    @property
    def in_pieces(self) -> bool:
        """Whether long iterations are cut."""
        parallel = self.schedule.parallel
        return parallel is not None and parallel.policy == "pieces"

    @cached_property
    def pieces(self) -> Buffer:
        """The list of pieces."""
        name, format = next(iter(self.plan.formats.items()))
        pointers = format.levels[1].pointer_array
        assert pointers is not None  # of a list of coordinates, as the plan has checked
        return Buffer("pieces", self.arrays[name][1][pointers].elem)

    @cached_property
    def cut_ones(self) -> Buffer:
        """Positions of the iterations that are cut."""
        return replace(self.pieces, name="cut")

    def buffers(self) -> tuple[Buffer, ...]:
        """Buffers in the order of the call."""
        own = [self.pieces] if self.in_pieces else []
        return (*super().buffers(), *own, *([self.cut_ones] if self.clears else []))

    def sizes(self) -> tuple[Var, ...]:
        """Sizes in the order of the call."""
        return (*super().sizes(), *([COUNT] if self.in_pieces else []), *([CUT] if self.clears else []))

    def repeat(
        self, env: Env, loop: Axis, var: Var, lo: Expr, hi: Expr, body: Callable[[Env, Expr], None]
    ) -> None:
        """Emit a loop, over pieces of its iterations if long ones are cut."""
        parallel = self.schedule.parallel
        if self.in_pieces and parallel is not None and parallel.loop == loop.name:
            self.by_pieces(env, var, body)
        else:
            super().repeat(env, loop, var, lo, hi, body)

    def by_pieces(self, env: Env, var: Var, body: Callable[[Env, Expr], None]) -> None:
        """Emit the loop over pieces, and ``body`` for what each has of an iteration."""
        piece = self.fresh("piece")
        with self.scope(lambda block: For(piece, Const(0), COUNT, 1, block, self.handed(self.loops[0]))):
            row = self.let(var.name, self.pieces[piece * PIECE_COLUMNS])
            begin = self.let("begin", self.pieces[piece * PIECE_COLUMNS + 1])
            end = self.let("end", self.pieces[piece * PIECE_COLUMNS + 2])
            whole = self.let("whole", self.pieces[piece * PIECE_COLUMNS + 3]) if self.shares_rows else None
            body(replace(env, piece=Piece(end, begin, whole=whole)), row)

    def finished(self, env: Env, store: BufferStore) -> list[Stmt]:
        """Return what stores a whole iteration's result, and adds that of a piece to the others'."""
        whole = env.piece.whole if env.piece else None
        if whole is None:
            return super().finished(env, store)
        self.clears = True
        adds = Reduce(store.buffer, store.index, self.monoid.combine, store.value, True)
        is_whole, is_none = (ir.compare(name, whole, Const(0)) for name in ("ne", "eq"))
        return [
            If(is_whole, (self.by_one_thread(env, store),)),
            If(is_none, (self.by_one_thread(env, adds),)),
        ]

    def cleared(self) -> list[Stmt]:
        """Return the launch that lets outputs of iterations that are cut start from the identity."""
        if not self.clears:
            return []
        (name, format), *_ = self.plan.formats.items()
        rows, number = format.levels[0], self.fresh("number")
        identity = Const(self.monoid.components[0].identity, self.elem)
        others = [index for index in self.assignment.output.indices if index != rows.axis.mode]
        done = {name: State(len(f.levels), value=Const(0)) for name, f in self.plan.formats.items()}
        outer, self.block = self.block, []

        def over(env: Env, left: list[str]) -> None:
            if not left:
                self.block.append(
                    BufferStore(self.output, self.linear(self.assignment.output, env.coordinates), identity)
                )
                return
            var, last = self.fresh(left[0]), len(left) == 1
            first, step = (LANE, WARP) if last else (Const(0), 1)
            with self.scope(lambda block: For(var, first, self.extents[left[0]], step, block)):
                over(replace(env, coordinates={**env.coordinates, left[0]: var}), left[1:])

        team = ir.Blocks("x", CLEARING, WARP) if others else ir.Blocks("x", CLEARING * WARP, 1)
        with self.scope(lambda block: For(number, Const(0), CUT, 1, block, team)):
            row = self.let("row", self.cut_ones[number])
            coordinate = (
                row
                if rows.full
                else rows.coordinate(self.arrays[name][0], Const(0), row, self.extent(rows.axis))
            )
            self.bind(
                Env({}, done), rows.axis, self.let(rows.axis.name, coordinate), lambda env: over(env, others)
            )
        made, self.block = self.block, outer
        return made
