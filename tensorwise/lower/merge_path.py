"""Merge-path parts: rows and stored entries counted together and cut evenly, in the middle of rows where need be.

::

    parallel for i: for k: ...      ->   parallel for part: for i in the rows of part: for k in the row and part: ...
                                         for part: the row that it went on with += its carry

A part stores the rows that it starts. A row that started in an earlier part leaves its sum in the part's *carry*,
as long as an outer iteration's output; the carries are added afterwards, one after the other, so that nothing is
atomic and equal parts give equal bits. Outputs that threads share anyway, or that each entry has for itself, need none.

Source: D. Merrill and M. Garland, Merge-Based Parallel Sparse Matrix-Vector Multiplication, SC 2016.
"""

import abc
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Final

from tensorwise.lower import ir
from tensorwise.lower.ir import Buffer, BufferStore, Const, Expr, For, If, Reduce, Stmt, Var
from tensorwise.lower.nest import Env, Nest, Piece, State
from tensorwise.tensor.remap import Axis

CUTS: Final = Buffer("cuts", "i64")
"""Two numbers a part and two at the end: rows started, and positions of the level below passed, before it."""
PARTS: Final = Var("parts")


class MergePath(Nest, abc.ABC):
    """A nest whose outermost loop may run over parts that share rows."""

    @property
    def cuts(self) -> bool:
        """Whether parts may share rows."""
        parallel = self.schedule.parallel
        return parallel is not None and parallel.policy == "merge-path"

    @cached_property
    def shares_rows(self) -> bool:
        """Whether the threads that share a row that was cut write the same outputs."""
        (name, format), *_ = self.plan.formats.items()
        rows, below = format.levels[:2]
        separate = below.unique and below.axis.mode in self.assignment.free_indices
        return not (self.has_shared_outputs(rows.axis) or self.has_own_outputs(name) or separate)

    @cached_property
    def carries(self) -> Buffer | None:
        """Buffer for the partial sums of rows that started in an earlier part; None where no sum is carried."""
        return Buffer("carries", self.plan.elem, writable=True) if self.cuts and self.shares_rows else None

    def buffers(self) -> tuple[Buffer, ...]:
        """Buffers in the order of the call."""
        own = [CUTS] if self.cuts else []
        return (*super().buffers(), *own, *([self.carries] if self.carries else []))

    def sizes(self) -> tuple[Var, ...]:
        """Sizes in the order of the call."""
        return (*super().sizes(), *([PARTS] if self.cuts else []))

    def cut(self, env: Env, var: Var, body: Callable[[Env, Expr], None]) -> None:
        """Emit the parallel loop over parts, and ``body`` for the row that a part continues and for those that it starts.

        The continued row is a loop nest of its own, so that the other rows need no branch.
        """
        part = self.fresh("part")
        with self.scope(lambda block: For(part, Const(0), PARTS, 1, block, self.handed(self.loops[0]))):
            first, begin, stop = self.start_of(part)
            last, end = self.let("last", CUTS[part * 2 + 2]), self.let("end", CUTS[part * 2 + 3])
            with self.scope(lambda block: If(ir.compare("lt", begin, stop), block)):
                if self.carries:
                    e = Var("e")
                    cleared = BufferStore(
                        self.carries,
                        part * self.carry_size() + e,
                        Const(self.monoid.components[0].identity, self.elem),
                    )
                    self.block.append(For(e, Const(0), self.carry_size(), 1, (cleared,)))
                body(replace(env, piece=Piece(stop, begin, part)), self.let(var.name, first - 1))
            self.copies = 0  # counted nest by nest
            with self.scope(lambda block: For(var, first, last, 1, block)):
                body(replace(env, piece=Piece(end)), var)

    def start_of(self, part: Expr) -> tuple[Expr, Expr, Expr]:
        """Name the first row that a part starts, its first position, and where those of the row before it stop."""
        name, format = next(iter(self.plan.formats.items()))
        first, begin = self.let("first", CUTS[part * 2]), self.let("begin", CUTS[part * 2 + 1])
        ends, _ = format.levels[1].bounds(self.arrays[name][1], first)
        return first, begin, self.let("stop", ir.smaller(ends, CUTS[part * 2 + 3]))

    def placed_in(self, env: Env, statement: BufferStore | Reduce) -> Stmt:
        """Return what writes to the output, or to the part's carry where an earlier part has started the row."""
        if self.carries is None or env.piece is None or env.piece.part is None:
            return statement
        return replace(statement, buffer=self.carries, index=self.carry_index(env, env.piece.part))

    @property
    def carried_extents(self) -> dict[str, Expr]:
        """The output's indices, with as many coordinates as an iteration of the outermost loop has."""
        mode = self.loops[0].mode
        extents = {index: self.extents[index] for index in self.assignment.output.indices}
        return {**extents, mode: self.split(mode)}

    def carry_size(self) -> Expr:
        """Number of elements of a carry."""
        size: Expr = Const(1)
        for extent in self.carried_extents.values():
            size = size * extent
        return size

    def carry_index(self, env: Env, part: Expr) -> Expr:
        """Where the output element of this point lies in the carries."""
        mode = self.loops[0].mode
        inside = {**env.coordinates, mode: env.coordinates.get(f"{mode}0", Const(0))}
        return part * self.carry_size() + self.linear(self.assignment.output, inside, self.carried_extents)

    def add_carries(self, into: Buffer) -> None:
        """Emit the loop that adds what parts have carried, in their order."""
        if self.carries is None:
            return
        self.rounds_partial |= into.elem in ir.HALVES
        (name, format), *_ = self.plan.formats.items()
        rows, part = format.levels[0], self.fresh("part")
        inner = [Axis(rows.axis.mode, "inner")] if rows.axis.part == "outer" else []
        others = [Axis(index) for index in self.assignment.output.indices if index != rows.axis.mode]
        done = {name: State(len(f.levels), value=Const(0)) for name, f in self.plan.formats.items()}

        def over(env: Env, axes: list[Axis]) -> None:
            assert self.carries is not None
            if not axes:
                index, carry = (
                    self.linear(self.assignment.output, env.coordinates),
                    self.carries[self.carry_index(env, part)],
                )
                self.block.append(Reduce(into, index, self.monoid.combine, carry))
                return
            axis, rest = axes[0], axes[1:]
            var = self.fresh(axis.name)
            extent = self.split(axis.mode) if axis.part == "inner" else self.extents[axis.mode]
            with self.scope(lambda block: For(var, Const(0), extent, 1, block)):
                self.bind(env, axis, var, lambda e: over(e, rest), guard=True)

        with self.scope(lambda block: For(part, Const(1), PARTS, 1, block)):
            first, begin, stop = self.start_of(part)
            with self.scope(lambda block: If(ir.compare("lt", begin, stop), block)):
                row = first - 1
                coordinate = (
                    row
                    if rows.full
                    else rows.coordinate(self.arrays[name][0], Const(0), row, self.extent(rows.axis))
                )
                self.bind(
                    Env({}, done),
                    rows.axis,
                    self.let(rows.axis.name, coordinate),
                    lambda e: over(e, [*inner, *others]),
                )
