"""Long iterations in pieces, on a GPU: at most so many entries each, one a team.

::

    for i: C[i] = sum of row i   ->   for each row that is cut: C[i] = 0
                                      for each piece: a whole row: C[i] = its sum; a part of one: C[i] += its sum, atomically

No team has more to do than a piece. Long ones start first, so that short ones fill up the end; of equally long ones those
that read the same rows of dense operands start together (``packed.pieces_of``). Most rows are whole, and stored as if none
had been cut.

Source: G-Sparse (section III-B) starts long rows first; cutting and the order of neighbours are ours (decision 0119).
"""

from dataclasses import replace
from typing import Final

from tensorwise.lower import ir
from tensorwise.lower.builder import Builder
from tensorwise.lower.env import Env, Piece
from tensorwise.lower.ir import LANE, Buffer, BufferStore, Const, Expr, For, Stmt, Var
from tensorwise.lower.mapping import Body
from tensorwise.lower.operands import NUM_CUT, NUM_PIECES, PIECE_COLUMNS, Operands
from tensorwise.lower.plan import Plan
from tensorwise.lower.resolve import Resolver
from tensorwise.program.schedule import WARP

CLEARING: Final = 8
"""Rows that a block clears, a warp each."""


class Pieces:
    """The pieces of one kernel whose long outermost iterations are cut.

    Attributes:
        clears: whether pieces add to outputs of iterations that are cut.
    """

    def __init__(self, plan: Plan, operands: Operands, builder: Builder, resolver: Resolver) -> None:
        self.plan, self.operands, self.builder, self.resolver = plan, operands, builder, resolver
        name, format = next(iter(plan.formats.items()))
        pointers = format.levels[1].pointer_array
        assert pointers is not None  # of a list of coordinates, as the plan has checked
        self.list = Buffer("pieces", operands.arrays[name][1][pointers].elem)
        """The list of pieces."""
        self.cut = replace(self.list, name="cut")
        """Positions of the iterations that are cut."""
        self.clears = False

    def iterate_parts(self, env: Env, var: Var, bind: ir.Blocks | None, body: Body) -> None:
        """Emit the loop over pieces, and ``body`` for what each has of an iteration."""
        let, piece = self.builder.let, self.builder.fresh("piece")
        with self.builder.scope(lambda block: For(piece, Const(0), NUM_PIECES, 1, block, bind)):
            row, begin, end = (
                let(stem, self.list[piece * PIECE_COLUMNS + column])
                for column, stem in enumerate((var.name, "begin", "end"))
            )
            whole = None
            if self.plan.has_shared_rows:
                whole = let("whole", self.list[piece * PIECE_COLUMNS + 3])
            body(replace(env, piece=Piece(end, begin, whole=whole)), row)

    def clearing(self) -> list[Stmt]:
        """Return the launch that lets outputs of iterations that are cut start from the identity."""
        if not self.clears:
            return []
        plan, operands, builder = self.plan, self.operands, self.builder
        rows, number = next(iter(plan.formats.values())).levels[0], builder.fresh("number")
        identity = Const(plan.monoid.components[0].identity, operands.elem)
        output = plan.assignment.output
        others = [index for index in output.indices if index != rows.axis.mode]

        def clear_over(env: Env, left: list[str]) -> None:
            if not left:
                index = operands.index_of(output, env.coordinates)
                builder.append(BufferStore(operands.output, index, identity))
                return
            var = builder.fresh(left[0])
            first: Expr = Const(0)
            first, step = (LANE, WARP) if len(left) == 1 else (first, 1)
            with builder.scope(lambda block: For(var, first, operands.extents[left[0]], step, block)):
                clear_over(replace(env, coordinates={**env.coordinates, left[0]: var}), left[1:])

        team = ir.Blocks("x", CLEARING, WARP) if others else ir.Blocks("x", CLEARING * WARP, 1)
        with (
            builder.separate() as made,
            builder.scope(lambda block: For(number, Const(0), NUM_CUT, 1, block, team)),
        ):
            row = builder.let("row", self.cut[number])
            self.resolver.bind_outermost(row, lambda env: clear_over(env, others))
        return made
