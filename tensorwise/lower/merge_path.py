"""Divide a sparse loop into merge-path parts: equal numbers of rows plus stored entries, so that long rows are divided too.

::

    parallel for i: for k: ...      ->   parallel for part: for i in the rows of part: for k in the row and part: ...
                                         for part: the row that it continued += its carry

A part writes the rows that begin in it. If its first row began in an earlier part, it keeps the sum of its share of that
row in a buffer, the *carry*, which has the size of one row of the output. After the parallel loop one thread adds the
carries in the order of the parts: nothing is atomic, and equal parts give equal bits. No carry is needed where the output
is updated atomically anyway, or has one element for each stored entry (SDDMM).

Source: D. Merrill and M. Garland, Merge-Based Parallel Sparse Matrix-Vector Multiplication, SC 2016.
"""

from dataclasses import replace
from functools import cached_property

from tensorwise.lower import ir
from tensorwise.lower.builder import Builder
from tensorwise.lower.env import Env, Piece
from tensorwise.lower.ir import Buffer, BufferStore, Const, Expr, For, If, Reduce, Var
from tensorwise.lower.mapping import Body
from tensorwise.lower.operands import CUTS, NUM_PARTS, Operands
from tensorwise.lower.plan import Plan
from tensorwise.lower.resolve import Resolver
from tensorwise.tensor.remap import Axis


class MergePath:
    """The parts of one kernel whose outermost loop is cut by a merge path."""

    def __init__(self, plan: Plan, operands: Operands, builder: Builder, resolver: Resolver) -> None:
        self.plan, self.operands, self.builder, self.resolver = plan, operands, builder, resolver
        self.name, self.format = next(iter(plan.formats.items()))

    @cached_property
    def carries(self) -> Buffer | None:
        """Where parts leave the sums of rows that started before them; None where nothing has to be carried."""
        has_carries = self.plan.has_shared_rows
        return Buffer("carries", self.plan.elem, writable=True) if has_carries else None

    def iterate_parts(self, env: Env, var: Var, bind: ir.Binding, body: Body) -> None:
        """Emit the parallel loop over parts, and ``body`` for the row that a part continues and for those that it starts.

        The continued row is a loop nest of its own, so that the other rows need no branch.
        """
        builder, part = self.builder, self.builder.fresh("part")
        with builder.scope(lambda block: For(part, Const(0), NUM_PARTS, 1, block, bind)):
            first, begin, stop = self.start_of(part)
            last, end = builder.let("last", CUTS[part * 2 + 2]), builder.let("end", CUTS[part * 2 + 3])
            with builder.scope(lambda block: If(ir.compare("lt", begin, stop), block)):
                if self.carries:
                    e, size = Var("e"), self.carry_size()
                    identity = Const(self.plan.monoid.components[0].identity, self.operands.elem)
                    cleared = BufferStore(self.carries, part * size + e, identity)
                    builder.append(For(e, Const(0), size, 1, (cleared,)))
                body(replace(env, piece=Piece(stop, begin, part)), builder.let(var.name, first - 1))
            with builder.scope(lambda block: For(var, first, last, 1, block)):
                body(replace(env, piece=Piece(end)), var)

    def start_of(self, part: Expr) -> tuple[Expr, Expr, Expr]:
        """Name the first row that a part starts, its first position, and where those of the row before it stop."""
        let = self.builder.let
        first, begin = let("first", CUTS[part * 2]), let("begin", CUTS[part * 2 + 1])
        ends, _ = self.format.levels[1].bounds(self.operands.arrays[self.name][1], first)
        return first, begin, let("stop", ir.smaller(ends, CUTS[part * 2 + 3]))

    def redirect(self, env: Env, statement: BufferStore | Reduce) -> BufferStore | Reduce:
        """Return what writes to the output, or to the part's carry where an earlier part has started the row."""
        if self.carries is None or env.piece is None or env.piece.part is None:
            return statement
        return replace(statement, buffer=self.carries, index=self.carry_index(env, env.piece.part))

    @property
    def carried_extents(self) -> dict[str, Expr]:
        """The output's indices, with as many coordinates as an iteration of the outermost loop has."""
        mode, extents = self.plan.loops[0].mode, self.operands.extents
        carried = {index: extents[index] for index in self.plan.assignment.output.indices}
        return {**carried, mode: self.operands.split(mode)}

    def carry_size(self) -> Expr:
        """Return the number of elements of a carry."""
        size: Expr = Const(1)
        for extent in self.carried_extents.values():
            size = size * extent
        return size

    def carry_index(self, env: Env, part: Expr) -> Expr:
        """Return where the output element of this point lies in the carries."""
        mode, output = self.plan.loops[0].mode, self.plan.assignment.output
        inside = {**env.coordinates, mode: env.coordinates.get(f"{mode}0", Const(0))}
        return part * self.carry_size() + self.operands.index_of(output, inside, self.carried_extents)

    def add_carries(self) -> None:
        """Emit the loop that adds what parts have carried to the output, in their order."""
        if self.carries is None:
            return
        builder, output = self.builder, self.plan.assignment.output
        rows, part = self.format.levels[0], builder.fresh("part")
        inner = [Axis(rows.axis.mode, "inner")] if rows.axis.part == "outer" else []
        others = [Axis(index) for index in output.indices if index != rows.axis.mode]

        def add_over(env: Env, axes: list[Axis]) -> None:
            assert self.carries is not None
            if not axes:
                index = self.operands.index_of(output, env.coordinates)
                carry = self.carries[self.carry_index(env, part)]
                builder.append(Reduce(self.operands.output, index, self.plan.monoid.combine, carry))
                return
            axis, rest = axes[0], axes[1:]
            var = builder.fresh(axis.name)
            inside = axis.part == "inner"
            extent = self.operands.split(axis.mode) if inside else self.operands.extents[axis.mode]
            with builder.scope(lambda block: For(var, Const(0), extent, 1, block)):
                self.resolver.bind(env, axis, var, lambda e: add_over(e, rest), guard=True)

        with builder.scope(lambda block: For(part, Const(1), NUM_PARTS, 1, block)):
            first, begin, stop = self.start_of(part)
            with builder.scope(lambda block: If(ir.compare("lt", begin, stop), block)):
                self.resolver.bind_outermost(first - 1, lambda e: add_over(e, [*inner, *others]))
