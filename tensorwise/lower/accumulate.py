"""The inside of a nest: accumulators, the term at the leaf, and how results reach memory."""

import abc
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir, monoids
from tensorwise.lower.ir import BufferStore, Const, Expr, If, Reg, Set, Stmt, Type, Var
from tensorwise.lower.merge_path import MergePath
from tensorwise.lower.nest import Accumulators, Env, Keys, Lanes, Loop
from tensorwise.program.einsum import Access, Apply, Constant, Expression, Index, product_of
from tensorwise.tensor.remap import Axis

MAX_ACCUMULATORS: Final = 64
"""More output slots than this are reduced in memory: no machine has the registers."""
MAX_COPIES: Final = 600
"""Copies of the innermost statement, over all strips and unrolled loops: more take seconds to compile and
overflow the instruction cache."""


@dataclass(frozen=True)
class AccumulatorSlot:
    """What a slot of accumulators fixes of one loop: a coordinate, or a vector of them, if it lies before ``end``."""

    axis: Axis
    value: Expr
    key: tuple[object, ...]
    end: Expr | None = None


class Accumulation(MergePath, abc.ABC):
    """A nest that knows where accumulators open, and what happens in them."""

    def opens(self, loops: tuple[Loop, ...]) -> bool:
        """Whether accumulators can hold all that the remaining loops produce."""
        slots, reductions = 1, False
        parallel = self.schedule.parallel
        for loop in loops:
            axis = loop.axis if isinstance(loop, Lanes) else loop
            if parallel and isinstance(loop, Axis) and parallel.loop == loop.name:
                return False
            if axis.mode in self.waited_for:  # where the results belong is known further inside only
                return False
            if axis.mode not in self.assignment.free_indices:
                reductions = True
            elif isinstance(loop, Lanes):
                slots *= loop.vectors
            elif self.unrolled(loop):
                slots *= self.schedule.splits[loop.mode]
            else:
                return False
        return reductions and slots <= MAX_ACCUMULATORS

    def accumulates(self, loops: tuple[Loop, ...]) -> bool:
        """Whether every reduction among ``loops`` happens in accumulators."""
        if not loops or self.opens(loops):
            return True
        axis = loops[0].axis if isinstance(loops[0], Lanes) else loops[0]
        return not self.has_shared_outputs(axis) and self.accumulates(loops[1:])

    def factors(self, env: Env, loops: tuple[Loop, ...]) -> bool:
        """Whether the schedule wants the sum over these loops by itself."""
        directive = self.schedule.factor
        at = loops[0] if loops else None
        return (
            directive is not None and env.term is None and isinstance(at, Axis) and at.name == directive.loop
        )

    def factor(self, env: Env, loops: tuple[Loop, ...]) -> None:
        """Sum the factors that change in the loops, and multiply the sum by the others."""
        directive, factors = self.schedule.factor, self.assignment.factors
        assert directive is not None
        inside = [factor for factor in factors if self.changes(factor, env)]
        outside = [factor for factor in factors if factor not in inside]
        if self.monoid.name != "sum" or not inside or not outside or not self.opens(loops):
            raise ScheduleError(
                f"{directive}: it takes a loop in which some factors of a sum of products change and others do not, "
                f"and which leaves room for accumulators (got {self.assignment}; {self.schedule})"
            )
        if self.may_be_empty(env, loops):
            raise ScheduleError(
                f"{directive}: a sum of no terms must not meet the other factors, which may be infinite; what is "
                f"stored along {directive.loop} and inside has to be compressed below a compressed level, as in C(k) C(l), "
                "and of a split index that is not a multiple, the inner part is not outside"
            )
        self.accumulate(replace(env, term=product_of(inside)), loops, product_of(outside))

    def may_be_empty(self, env: Env, loops: tuple[Loop, ...]) -> bool:
        """Whether it cannot be told beforehand that the loops meet an entry (extents of 0 have no such program)."""
        met = [loop.axis if isinstance(loop, Lanes) else loop for loop in loops]
        whole = {axis.mode for axis in met if axis.part != "outer"} | self.plan.exact
        # Of 10 = 8 + 2, inner part 1 has two outer parts, inner part 5 has one; of 1, inner part 1 has none.
        if any(axis.mode in self.assignment.reduced and axis.mode not in whole for axis in met):
            return True
        led = [loop for loop in loops if isinstance(loop, Axis)]
        for name, format in self.plan.formats.items():
            above, left = env.states[name].levels - 1, format.levels[env.states[name].levels :]
            if not left:
                continue
            levels = (*format.levels[above : above + 1], *left)
            if above < 0 or not all(level.listed and level.unique and not level.pads for level in levels):
                return True
            if [level.axis for level in left] != [loop for loop in led if any(loop == a.axis for a in left)]:
                return True
        return sum(env.states[name].levels < len(f.levels) for name, f in self.plan.formats.items()) > 1

    def changes(self, factor: Expression, env: Env) -> bool:
        """Whether a factor is not the same throughout what is left of the reduced loops."""
        match factor:
            case Access(tensor=name, indices=indices):
                if name in self.plan.formats:
                    return env.states[name].value is None
                return any(
                    index not in env.coordinates and index not in self.assignment.free_indices
                    for index in indices
                )
            case Apply(arguments=arguments):
                return any(self.changes(argument, env) for argument in arguments)
            case Index(name=name):
                return name not in env.coordinates
        return False

    def accumulate(self, env: Env, loops: tuple[Loop, ...], outside: Expression | None = None) -> None:
        """Open accumulators, emit the loops and write the results, multiplied by ``outside``."""
        accumulators = Accumulators(self.block, self.first_argument(env))
        local: list[list[AccumulatorSlot]] = []
        for loop in loops:
            if isinstance(loop, Lanes) and loop.axis.mode in self.assignment.free_indices:
                local.append(
                    [AccumulatorSlot(loop.axis, value, key, loop.end) for value, key in self.vectors_of(loop)]
                )
            elif isinstance(loop, Axis) and loop.mode in self.assignment.free_indices:
                local.append(
                    [
                        AccumulatorSlot(loop, Const(number), (loop.name, number))
                        for number in range(self.schedule.splits[loop.mode])
                    ]
                )
        slots = list(product(*local))
        for slot in slots:
            lanes = max((part.value.type.lanes for part in slot), default=1)
            self.registers(accumulators, tuple(part.key for part in slot), (), lanes)
        self.emit(replace(env, accumulators=accumulators, slot=(), replica=()), loops)
        if self.monoid.single:
            self.begin(accumulators)
        results = {slot: self.merged(accumulators, tuple(part.key for part in slot)) for slot in slots}
        if self.watch and outside is None:
            self.watched([result[0] for result in results.values()])
        for slot, result in results.items():
            self.write_slot(env, slot, result, outside)

    def registers(self, accumulators: Accumulators, slot: Keys, replica: Keys, lanes: int) -> tuple[Var, ...]:
        """Return the registers of a slot and replica, declared on first use with the identity.

        The merge distinguishes replicas by their arguments: only one may start with the first entry.
        """
        key = (slot, replica)
        if key not in accumulators.registers:
            registers = []
            for component in self.monoid.components:
                counts = "i64" if lanes == 1 else self.index_elem
                type = Type(counts if component.holds == "coordinate" else self.plan.elem, lanes)
                var = self.fresh("acc" if component.name == "value" else component.name, type)
                start = _start(var, component.identity)
                if component.holds == "coordinate" and accumulators.first is not None and not replica:
                    start = Reg(var, ir.narrow(accumulators.first, type))
                accumulators.declarations.append(start)
                registers.append(var)
            accumulators.registers[key] = tuple(registers)
        return accumulators.registers[key]

    def merged(self, accumulators: Accumulators, slot: Keys) -> tuple[Expr, ...]:
        """Combine all replicas of a slot: vectors of equal length first, then their lanes."""
        main = accumulators.registers[(slot, ())]
        replicas: dict[int, list[tuple[Var, ...]]] = {}
        for (other, replica), registers in accumulators.registers.items():
            if other == slot and replica:
                replicas.setdefault(registers[0].type.lanes, []).append(registers)
        results: list[tuple[Expr, ...]] = []
        for lanes, (first, *others) in replicas.items():
            if lanes == main[0].type.lanes:
                results.extend([first, *others])
                continue
            for registers in others:
                self.block.extend(monoids.combine(self.monoid, first, registers))
            folded = [ir.Fold(monoids.fold_operator(self.monoid, c), r) for c, r in enumerate(first)]
            results.append(tuple(folded))
        shared = self.threads > 1 and any(
            key[0] == "lanes" for other, replica in accumulators.registers for key in replica if other == slot
        )
        untouched = not shared and not any(
            isinstance(s, Set) and s.var == main[0] for s in ir.walk(tuple(self.block))
        )
        if self.monoid.single and untouched and len(results) == 1:
            accumulators.declarations.remove(_start(main[0], self.monoid.components[0].identity))
            return (self.let("total", results[0][0]),)
        for result in results:
            self.block.extend(monoids.combine(self.monoid, main, result))
        if shared:
            self.block.extend(self.combine_threads(main))
        return main

    def begin(self, accumulators: Accumulators) -> None:
        """Let accumulators start with their first term where it is certain to come first: 0 + x costs an addition."""
        block, identity = accumulators.declarations, self.monoid.components[0].identity
        for register, *_ in accumulators.registers.values():
            declared = block.index(_start(register, identity))
            for place in range(declared + 1, len(block)):
                statement = block[place]
                if isinstance(statement, Set) and statement.var == register:
                    match statement.value:
                        case ir.Op(args=(before, term)) if before == register:
                            block[place] = Reg(register, term)
                            del block[declared]
                    break
                if any(register in ir.variables(e) for s in ir.walk((statement,)) for e in ir.expressions(s)):
                    break

    def watched(self, results: list[Expr]) -> None:
        """Raise the flag when a result is NaN (also, harmlessly, when infinities cancel)."""
        total = results[0]
        for result in results[1:]:
            total = ir.compute("add", total, result)
        if total.type.lanes > 1:
            found = ir.compare("ne", ir.Fold("nan", total), Const(0, self.elem))
        else:
            total = self.let("watched", total)
            found = ir.compare("ne", total, total)
        self.block.append(If(found, (ir.RaiseFlag(),)))

    def write_slot(
        self,
        env: Env,
        slot: "tuple[AccumulatorSlot, ...]",
        result: tuple[Expr, ...],
        outside: Expression | None,
    ) -> None:
        """Bind the coordinates of a slot again, outside the loops that filled it, and write it."""
        if slot:
            part, rest = slot[0], slot[1:]
            guard = isinstance(part.value, Const)
            env = replace(env, slot=(*env.slot, part.key))
            with self.there(part.value, part.end):
                self.bind(
                    env,
                    part.axis,
                    part.value,
                    lambda inner: self.write_slot(inner, rest, result, outside),
                    guard=guard,
                )
            return
        if outside is not None:
            product = ir.compute("mul", result[0], self.evaluate(outside, env))
            if env.accumulators is not None:
                self.gather(env, (product,))
                return
            result = (self.let("total", product),)
            if self.watch:
                self.watched([result[0]])
        self.write(env, result)

    def leaf(self, env: Env) -> None:
        """Evaluate the term and reduce it into its accumulator or into memory."""
        self.copies += 1
        if self.copies > MAX_COPIES:
            raise ScheduleError(
                f"{self.schedule} makes more than {MAX_COPIES} copies of the innermost statement; "
                "unroll less, or use a smaller tile"
            )
        term = self.evaluate(env.term or self.assignment.expression, env)
        lane = max(
            (c.type.lanes for i, c in env.coordinates.items() if i in self.assignment.reduced), default=1
        )
        if env.accumulators is not None:  # a term that is the same in all lanes counts in each
            term = ir.widen(term, max(lane, term.type.lanes))
        state = monoids.lift(self.monoid, term, self.reduced_coordinate(env))
        if env.accumulators is not None:
            self.gather(env, state)
            return
        if self.threads > 1 and any(key[0] == "lanes" for key in env.replica):
            raise ScheduleError(
                f"{self.schedule.tile}: threads sum up in registers; put the loops of the output outside "
                f"{self.schedule.tile.loop if self.schedule.tile else ''} (got {self.schedule})"
            )
        # Where the lanes are elements of the output, each keeps its own term.
        if lane > self.output_index(env).type.lanes:
            state = tuple(
                ir.Fold(monoids.fold_operator(self.monoid, c), ir.widen(s, lane)) for c, s in enumerate(state)
            )
        if self.watch:
            self.watched([state[0]])
        self.write(env, state)

    def gather(self, env: Env, state: tuple[Expr, ...]) -> None:
        """Reduce a state into the open accumulators."""
        assert env.accumulators is not None
        known = env.accumulators.registers.items()
        widths = [registers[0].type.lanes for (slot, _), registers in known if slot == env.slot]
        lanes = max([state[0].type.lanes, *widths[:1]])
        registers = self.registers(env.accumulators, env.slot, env.replica, lanes)
        ascending = env.accumulators.first is not None
        self.block.extend(monoids.combine(self.monoid, registers, state, ascending))

    def first_argument(self, env: Env) -> Expr | None:
        """The number of the first entry that registers meet, where these are positions of one loop, as they stand."""
        name, reduced = self.assignment.argument, self.assignment.reduced
        if name is None or name not in self.plan.formats or name in self.sources or len(reduced) != 1:
            return None
        left = self.plan.formats[name].levels[env.states[name].levels :]
        if len(left) != 1 or left[0].full or left[0].axis != Axis(reduced[0]):
            return None
        if reduced[0] in self.schedule.splits:  # its loops search for entries, in another order
            return None
        lo, hi = self.stored(env, name)
        return self.let("first", ir.select(ir.compare("lt", lo, hi), lo, Const(-1)))

    def reduced_coordinate(self, env: Env) -> Expr:
        """What a reduction keeps of where its value comes from: a coordinate, or the number of an entry."""
        argument = self.assignment.argument
        return Const(0) if argument is None else env.coordinates[argument]

    def write(self, env: Env, state: tuple[Expr, ...]) -> None:
        """Store a finished result, or reduce a partial one into memory."""
        index = self.output_index(env)
        partial = env.reduced_outside or env.shared_output
        lanes = index.type.lanes
        buffer = self.work if self.waits else self.output
        whole = env.piece.whole if env.piece else None
        if partial and not self.monoid.single:
            raise ScheduleError(
                f"{self.monoid.name} needs all reduced loops inside the output's; "
                f"move {', '.join(self.assignment.reduced)} inwards (got {self.schedule})"
            )
        if partial or self.plan.accumulate:
            self.initial = self.monoid.components[0].identity
            self.rounds_partial = self.output.elem in ir.HALVES and not (self.private or self.waits)
            atomic = env.shared_output or whole is not None
            if env.shared_output and self.private:
                buffer, atomic = self.work, False
                index = ir.THREAD * self.output_size() + index
            value = ir.widen(state[0], lanes)
            reduced = ir.Reduce(buffer, index, self.monoid.combine, value, atomic)
            self.block.append(self.by_one_thread(env, self.placed_in(env, reduced)))
            return
        every = self.plan.keep_pattern and len(self.plan.formats) == 1 and not self.named
        every = every and self.assignment.fills(next(iter(self.plan.formats)))
        skips = env.skips_output and not every
        if skips and self.initial is None:  # wider strips may have asked for the identity
            self.initial = -1.0 if self.assignment.argument else 0.0
        result = ir.widen(monoids.finish(self.monoid, state), lanes)
        store = BufferStore(buffer, index, result)
        self.block.extend(self.finished(env, store))

    def finished(self, env: Env, store: BufferStore) -> list[Stmt]:
        """Return what stores a finished result."""
        return [self.by_one_thread(env, self.placed_in(env, store))]

    def output_index(self, env: Env) -> Expr:
        """Where the output element of this point lies."""
        if not self.plan.keep_pattern or self.assignment.output.indices[0] in self.plan.formats:
            return self.linear(self.assignment.output, env.coordinates)
        name = next(iter(self.plan.formats))
        position = env.states[name].position
        return self.sources[name][position] - 1 if name in self.sources else position

    def evaluate(self, expression: Expression, env: Env) -> Expr:
        """Evaluate the right-hand side at this point."""
        match expression:
            case Constant(value=number):
                return Const(number, self.elem)
            case Access(tensor=name):
                if name in self.plan.formats:
                    state = env.states[name]
                    if state.value is None:
                        format = self.plan.formats[name]
                        raise ScheduleError(
                            f"no loop of {self.schedule} reaches {format.levels[state.levels]} of {name} ({format})"
                        )
                    return state.value
                return self.values[name][self.linear(expression, env.coordinates)]
            case Index(name=name):
                return env.coordinates[name]
            case Apply(operator="where", arguments=(condition, chosen, other)):
                assert isinstance(condition, Apply)
                if self.named and expression == self.assignment.expression:
                    return self.evaluate(chosen, env)  # it is the entry that counts
                left, right = (self.evaluate(argument, env) for argument in condition.arguments)
                return ir.select(
                    ir.compare(condition.operator, left, right, self.index_elem),
                    self.evaluate(chosen, env),
                    self.evaluate(other, env),
                )
            case Apply(operator=operator, arguments=arguments):
                return ir.compute(operator, *(self.evaluate(argument, env) for argument in arguments))
        raise TypeError(expression)


def _start(register: Var, identity: float) -> Reg:
    """Return the declaration of an accumulator that starts with the identity."""
    return Reg(register, ir.widen(Const(identity, Type(register.type.elem)), register.type.lanes))
