"""A directive: a dense loop from its end to its start."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir
from tensorwise.lower.plan import Plan
from tensorwise.program.legality import LoopPass
from tensorwise.program.loop_nest import LoopNest


@final
@dataclass(frozen=True)
class Reverse(LoopPass):
    """Run a dense loop backwards::

    for k in 0..K: body   ->   for n in 0..K: k = K - 1 - n; body
    """

    loop: str

    def __str__(self) -> str:
        return f"reverse({self.loop})"

    def check(self, nest: LoopNest) -> None:
        """Raise ScheduleError where the order of terms counts."""
        if not nest.assignment.monoid.single:
            raise ScheduleError(f"{self}: {nest.assignment.monoid.name} depends on the order of its terms")

    def rewrite(self, kernel: ir.LoweredFunction, plan: Plan) -> ir.LoweredFunction:
        """Count the loop by another variable, from which its own follows.

        Raises ScheduleError where the loop is not dense, or runs in strips.
        """
        body = tuple(self._turned(kernel.body))
        if body == kernel.body:
            raise ScheduleError(
                f"{self}: there is no dense loop {self.loop} without strips (got {plan.schedule})"
            )
        return replace(kernel, body=body)

    def _turned(self, block: ir.Block) -> Iterator[ir.Stmt]:
        for statement in block:
            if isinstance(statement, ir.For | ir.If):
                statement = replace(statement, body=tuple(self._turned(statement.body)))
            if isinstance(statement, ir.For) and statement.var.name == self.loop and statement.step == 1:
                count = ir.Var(f"{self.loop}_backwards")
                place = ir.Let(statement.var, statement.lo + statement.hi - 1 - count)
                statement = replace(statement, var=count, body=(place, *statement.body))
            yield statement
