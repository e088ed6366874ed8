"""Results: how what a nest computes reaches memory, once, or as a part of a reduction there."""

from tensorwise.lower import ir, monoids
from tensorwise.lower.builder import Builder
from tensorwise.lower.env import Env
from tensorwise.lower.ir import BufferStore, Const, Expr, If, Reduce
from tensorwise.lower.mapping import LoopMapping
from tensorwise.lower.operands import Operands
from tensorwise.lower.plan import Plan


class Results:
    """Writes the output of one kernel.

    Attributes:
        initial: what output elements have to hold before the nest; None: the nest writes all of them.
    """

    def __init__(self, plan: Plan, operands: Operands, builder: Builder, mapping: LoopMapping) -> None:
        self.plan, self.operands, self.builder, self.mapping = plan, operands, builder, mapping
        self.initial: float | None = None
        self._watches = plan.padded and not plan.masked

    def index(self, env: Env) -> Expr:
        """Return where the output element of this point lies."""
        plan, output = self.plan, self.plan.assignment.output
        if not plan.keep_pattern or output.indices[0] in plan.formats:
            return self.operands.index_of(output, env.coordinates)
        name = next(iter(plan.formats))
        return self.operands.entry_at(name, env.states[name].position)

    def write(self, env: Env, state: tuple[Expr, ...]) -> None:
        """BufferStore a finished result, or reduce a partial one into memory."""
        plan, monoid = self.plan, self.plan.monoid
        index = self.index(env)
        lanes, partial = index.type.lanes, env.reduced_outside or env.shared_output
        if partial or plan.accumulate:
            self.initial = monoid.components[0].identity
            shared = env.shared_output or (env.piece is not None and env.piece.whole is not None)
            value = ir.widen(state[0], lanes)
            reduced = Reduce(self.operands.output, index, monoid.combine, value, shared)
            self.builder.append(*self.mapping.write(env, reduced))
            return
        # Wider strips may have asked for the identity.
        if env.skips_output and not plan.fills_output and self.initial is None:
            self.initial = -1.0 if plan.assignment.argument else 0.0
        result = ir.widen(monoids.finish(monoid, state), lanes)
        self.builder.append(*self.mapping.write(env, BufferStore(self.operands.output, index, result)))

    def watch(self, results: list[Expr]) -> None:
        """Raise the flag when a result is NaN (also, harmlessly, when infinities cancel), where padding is multiplied::

        -> watched = r0 + r1 + ...;  if watched != watched: raise flag
        """
        if not self._watches:
            return
        total = results[0]
        for result in results[1:]:
            total = ir.compute("add", total, result)
        if total.type.lanes > 1:
            found = ir.compare("ne", ir.Fold("nan", total), Const(0, self.operands.elem))
        else:
            total = self.builder.let("watched", total)
            found = ir.compare("ne", total, total)
        self.builder.append(If(found, (ir.RaiseFlag(),)))
