"""The loop nest: one recursion over the loops, outermost first.

The skeleton::

    emit(loops): loop, rest = loops
      the loop is driven by a compressed level on its axis whose parents are bound (the leader),
        or else runs over its dense range
      bind the coordinate; resolve every level whose parents and coordinate are now known:
        full levels by arithmetic, compressed ones by binary search under a condition
      accumulators open where the remaining loops are reductions, unrolled loops and vector lanes
      emit(rest), or at the leaf: reduce the term into its accumulator or into memory

Only stored entries contribute: where padding could be reached, a *masked* program asks the source map
(0 = padding). A program that multiplies padding along instead *watches* its results for NaN, and
its caller runs the masked program again when one appears.
"""

from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import Final

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir, monoids
from tensorwise.lower.accumulators import Accumulators
from tensorwise.lower.builder import Builder
from tensorwise.lower.env import Env, Keys, Lanes, Loop, State, axis_of
from tensorwise.lower.ir import Const, Expr, For, If, Let, Reg, Set, Var
from tensorwise.lower.mapping import Body, LoopMapping, StripRange
from tensorwise.lower.operands import Operands
from tensorwise.lower.plan import Plan
from tensorwise.lower.prefetch import prefetch_rows
from tensorwise.lower.reductions import fits_registers, reduces_in_registers, wants_factoring
from tensorwise.lower.resolve import Resolver, read_staged
from tensorwise.lower.results import Results
from tensorwise.lower.terms import evaluate
from tensorwise.program.einsum import Expression
from tensorwise.program.factoring import split_factors
from tensorwise.tensor.remap import Axis, join, off_diagonal

MAX_REPLICAS: Final = 16
"""Unrolled copies get accumulators of their own while these stay within the vector registers."""
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


class Nest:
    """The loops of one kernel. It knows its collaborators; none of them knows it."""

    def __init__(
        self,
        plan: Plan,
        operands: Operands,
        builder: Builder,
        resolver: Resolver,
        mapping: LoopMapping,
        results: Results,
    ) -> None:
        self.plan, self.operands, self.builder = plan, operands, builder
        self.resolver, self.mapping, self.results = resolver, mapping, results
        self.schedule = plan.schedule
        self._copies = 0

    def emit_all(self) -> None:
        """Emit all loops of the iteration space."""
        nothing = Env({}, dict.fromkeys(self.plan.formats, State()))
        self.resolver.resolve(nothing, lambda env: self.emit(env, self.plan.loops))

    def emit(self, env: Env, loops: tuple[Loop, ...]) -> None:
        """Emit the nest of ``loops`` at this point."""
        if wants_factoring(self.plan, env, loops):
            inside, outside = split_factors(self.plan, axis_of(loops[0]).name)
            self.accumulate(replace(env, term=inside), loops, outside)
            return
        if env.accumulators is None and fits_registers(self.plan, loops):
            self.accumulate(env, loops)
            return
        if not loops:
            self.emit_leaf(env)
            return
        loop, rest = loops[0], loops[1:]
        if isinstance(loop, Lanes):
            self.emit_lanes(env, loop, rest)
            return
        if loop.mode not in self.plan.assignment.free_indices and env.accumulators is None:
            env = replace(env, reduced_outside=True)
        leader = self.plan.reach.leaders.get(loop.name)
        tile = self.schedule.tile
        if tile and tile.loop == loop.name:
            self.emit_strips(env, loop, rest)
        elif leader is not None:
            self.emit_positions(env, loop, rest, leader)
        elif self.plan.is_unrolled(loop):
            self.emit_copies(env, loop, rest)
        else:
            self.emit_range(env, loop, rest)

    # -- loops ------------------------------------------------------------------------------------

    def emit_range(self, env: Env, loop: Axis, rest: tuple[Loop, ...]) -> None:
        """Emit a loop over a dense range."""
        visited = self.operands.visited.get(loop.name)
        var = self.builder.fresh(loop.name if visited is None else "place")

        def body(inner: Env, place: Expr) -> None:
            at = place if visited is None else self.builder.let(loop.name, visited[place])
            self.resolver.bind(inner, loop, at, lambda e: self.emit(e, rest))

        env = self.note_sharing(env, loop)
        self.repeat(env, loop, var, Const(0), self.resolver.dense_end(env, loop), body)

    def emit_copies(self, env: Env, loop: Axis, rest: tuple[Loop, ...]) -> None:
        """Emit a loop of constant extent in as many copies."""
        guard = self.needs_guard(env, loop.mode)
        for number in range(self.schedule.splits[loop.mode]):
            inner = self.enter(env, loop, (loop.name, number))
            self.resolver.bind(inner, loop, Const(number), lambda e: self.emit(e, rest), guard=guard)

    def emit_positions(self, env: Env, loop: Axis, rest: tuple[Loop, ...], name: str) -> None:
        """Emit a loop over the positions of a level that lists coordinates."""
        state, arrays = env.states[name], self.operands.arrays[name][env.states[name].levels]
        level = self.plan.formats[name].levels[state.levels]
        lo, hi = self.resolver.position_range(env, name)
        if loop.mode in self.plan.assignment.free_indices:
            env = replace(env, skips_output=True)
        if not level.unique and not self.plan.has_own_outputs(name):
            env = replace(env, reduced_outside=True, skips_output=True)
        env = self.note_sharing(env, loop)
        cursor = self.open_cursor(level.cursor(arrays, state.position))
        # Bound by a loop of its own, the other part meets coordinates that no entry has together with it.
        above = [other.axis for other in self.plan.formats[name].levels[: state.levels]]
        guard = Axis(loop.mode, "inner" if loop.part == "outer" else "outer") not in above

        def body(inner: Env, position: Expr) -> None:
            prefetch_rows(self.plan, self.operands, self.builder, inner, loop, rest, name, position)
            now = cursor
            if cursor is not None and not level.bit_array:  # masks of bits are followed in their register
                now = self.builder.fresh("cursor")
                self.builder.append(Let(now, cursor))  # so that proofs see one value
            extent = self.operands.extent(level.axis)
            held = read_staged(
                inner, ir.as_expr(level.coordinate(arrays, state.position, position, extent, now))
            )
            coordinate = self.builder.let(loop.name, held)
            if cursor is not None and now is not None:
                after = ir.as_expr(level.advance(arrays, state.position, position, now))
                self.builder.append(Set(cursor, after))
            inner = replace(inner, states={**inner.states, name: State(state.levels + 1, position)})
            self.resolver.bind(
                inner, loop, coordinate, lambda e: self.emit(e, rest), guard=guard, stored=not guard
            )

        var = self.builder.fresh(f"{name.lower()}p")
        with self.mapping.fetch(env, loop, name, lo, hi) as (inner, at, end):
            self.repeat(inner, loop, var, at, end, body)

    def open_cursor(self, start: Expr | int | None) -> Var | None:
        """Declare the register that a level's coordinates are read from in order, if it asks for one."""
        if start is None:
            return None
        register = self.builder.fresh("left")
        self.builder.append(Reg(register, ir.as_expr(start)))
        return register

    def repeat(self, env: Env, loop: Axis, var: Var, lo: Expr, hi: Expr, body: Body) -> None:
        """Emit a loop, in copies if it is to be unrolled."""
        if self.mapping.cuts_iterations(loop):

            def body_of_part(env: Env, at: Expr) -> None:
                self._copies = 0  # counted nest by nest
                body(env, at)

            self.mapping.iterate_parts(env, loop, var, body_of_part)
            return
        builder, factor = self.builder, self.schedule.unrolls.get(loop.name, 1)
        if factor <= 1:
            with builder.scope(lambda block: For(var, lo, hi, 1, block, self.mapping.binding(loop))):
                body(env, var)
            return
        lo, hi = builder.let("lo", lo), builder.let("hi", hi)
        main = builder.let("main", lo + ((hi - lo) // factor) * factor)
        independent = env.accumulators is not None and factor * len(env.accumulators) <= MAX_REPLICAS
        with builder.scope(lambda block: For(var, lo, main, factor, block)):
            for number in range(factor):
                replica = (*env.replica, (loop.name, number)) if independent else env.replica
                body(replace(env, replica=replica), var + number)
        with builder.scope(lambda block: For(var, main, hi, 1, block)):
            body(env, var)

    # -- strips -------------------------------------------------------------------------------------

    def emit_strips(self, env: Env, loop: Axis, rest: tuple[Loop, ...]) -> None:
        """Emit a tiled loop: around all others, in strips."""
        leader, start, end = self.find_strip_range(env, loop)
        # An overlapping strip computes elements twice, which only a plain store survives.
        overlaps = (
            loop.mode in self.plan.assignment.free_indices
            and not env.reduced_outside
            and not env.shared_output
            and not (self.plan.keep_pattern and loop.mode in self.plan.stored)
            and not self.plan.accumulate
            and reduces_in_registers(self.plan, rest)
        )
        is_short = loop.mode not in self.plan.stored and not self.schedule.unrolls
        self.mapping.cut_strips(
            StripRange(loop, leader, start, end, overlaps, is_short),
            lambda strip: self.emit(env, (*rest, strip)),
        )

    def find_strip_range(self, env: Env, loop: Axis) -> tuple[str | None, Expr, Expr]:
        """Name the range that strips cover, and return it behind the operand whose positions it counts, if it does."""
        leader = self.plan.reach.leaders.get(loop.name)
        if leader is not None:
            lo, hi = self.resolver.position_range(env, leader)
            return leader, self.builder.let("lo", lo), self.builder.let("end", hi)
        end = self.builder.let("end", self.resolver.dense_end(env, loop))
        return None, Const(0), end

    def emit_lanes(self, env: Env, strip: Lanes, rest: tuple[Loop, ...]) -> None:
        """Emit the vectors of a strip.

        Lanes along a diagonal may leave the matrix. One condition covers the whole strip, because all strips but the
        first and last few of a diagonal are inside. ``step`` is the distance between the coordinates of two lanes::

            lanes over i   ->  first = k(i),             inside: 0 <= first and first + lanes <= N_k
            lanes over i1  ->  first = k(i1 * s + i0),   inside: 0 <= first and first + (lanes - 1) * s + 1 <= N_k
        """
        mode, numbers, extents = strip.axis.mode, env.coordinates, self.operands.extents
        diagonals = self.find_diagonals(strip)
        if not diagonals:
            self.emit_vectors(env, strip, rest)
            return
        along, step, split = strip.base, ir.as_expr(1), self.operands.split(mode)
        if strip.axis.part == "inner":
            along = join(numbers[f"{mode}1"], along, split)
        elif strip.axis.part == "outer":
            along, step = join(along, numbers[f"{mode}0"], split), split
        # A strip along a compressed level counts positions, whose coordinates may be any.
        asked = [a for a in diagonals if strip.leader is None and a.along == mode and a.name in numbers]
        width = (strip.vectors * strip.lanes - 1) * step + 1
        conditions: list[Expr] = []
        for axis in asked:
            first = self.builder.let("first", off_diagonal(numbers[axis.name], along, extents[mode]))
            conditions.append(self.resolver.is_inside(axis, first, width))
        # Lanes outside read some element that is there, so that there has to be one.
        reached = [ir.compare("lt", Const(0), extents[axis.mode]) for axis in diagonals]
        if not asked:
            with self.builder.scope(lambda body: If(reduce(ir.both, reached), body)):
                self.emit_vectors(env, strip, rest)
            return
        inside = self.builder.let("inside", reduce(ir.both, conditions))
        partly = reduce(ir.both, [ir.compare("eq", inside, Const(0)), *reached])
        others = [cond for axis, cond in zip(diagonals, reached, strict=True) if axis not in asked]
        wholly = reduce(ir.both, [inside, *others])
        for cond, known in ((wholly, frozenset(axis.name for axis in asked)), (partly, frozenset[str]())):
            with self.builder.scope(lambda body, cond=cond: If(cond, body)):  # type: ignore[misc]
                self.emit_vectors(replace(env, inside=known), strip, rest)

    def find_diagonals(self, strip: Lanes) -> list[Axis]:
        """Return the diagonals whose coordinates are vectors because lanes run over ``strip``."""
        if strip.lanes == 1:
            return []
        vectors, found = {strip.axis.mode}, list[Axis]()
        for _ in self.plan.assignment.indices:  # a vector of coordinates may lead to others
            for format in self.plan.formats.values():
                if vectors & set(format.modes):
                    vectors |= {axis.mode for axis in format.followed}
            found = [axis for axis in self.plan.diagonals if axis.along in vectors or axis == strip.axis]
            vectors |= {axis.mode for axis in found}
        return found

    def emit_vectors(self, env: Env, strip: Lanes, rest: tuple[Loop, ...]) -> None:
        """Emit each vector of a strip with the lanes bound."""
        leader = strip.leader
        for value, key in self.mapping.vectors_of(strip):
            inside = self.enter(env, strip.axis, key)
            with self.mapping.guard(value, strip.end):
                if leader is not None:
                    state = env.states[leader]
                    level = self.plan.formats[leader].levels[state.levels]
                    inside = replace(inside, states={**env.states, leader: State(state.levels + 1, value)})
                    arrays, extent = (
                        self.operands.arrays[leader][state.levels],
                        self.operands.extent(level.axis),
                    )
                    coordinate = level.coordinate(arrays, state.position, value, extent)
                    value = self.builder.let(strip.axis.name, coordinate)
                self.resolver.bind(
                    inside, strip.axis, value, lambda e: self.emit(e, rest), stored=leader is not None
                )

    # -- what becomes known on the way in --------------------------------------------------------------

    def note_sharing(self, env: Env, loop: Axis) -> Env:
        """Note when threads that run this loop update the same output elements."""
        if self.plan.is_parallel(loop) and self.plan.has_shared_outputs(loop):
            return replace(env, shared_output=True)
        return env

    def enter(self, env: Env, axis: Axis, key: tuple[object, ...]) -> Env:
        """Note which accumulator a constant coordinate or a vector of lanes belongs to."""
        if axis.mode in self.plan.assignment.free_indices:
            return replace(env, slot=(*env.slot, key))
        if key[0] == "lanes":
            return replace(env, replica=(*env.replica, key))
        return env

    def needs_guard(self, env: Env, index: str) -> bool:
        """Whether going past the end of ``index`` would touch memory that is not there.

        Operands packed in blocks are padded; accumulators are written behind a guard of their own.
        """
        assignment, formats = self.plan.assignment, self.plan.formats
        if env.accumulators is None or index in assignment.reduced or index in self.operands.permutations:
            return True
        if any(Axis(index) in format.axes for format in formats.values()):
            return True
        return any(index in a.indices for a in assignment.accesses if a.tensor not in formats)

    # -- reductions -------------------------------------------------------------------------------------

    def accumulate(self, env: Env, loops: tuple[Loop, ...], outside: Expression | None = None) -> None:
        """Open accumulators, emit the loops and write the results, multiplied by ``outside``."""
        combine_threads = self.mapping.combine_threads if self.plan.schedule.threads > 1 else None
        accumulators = Accumulators(
            self.plan.monoid, self.plan.elem, self.builder, combine_threads, self.find_first_argument(env)
        )
        slots = self.list_slots(loops)
        for slot in slots:
            lanes = max((part.value.type.lanes for part in slot), default=1)
            accumulators.registers(_keys(slot), (), lanes)
        self.emit(replace(env, accumulators=accumulators, slot=(), replica=()), loops)
        accumulators.start_with_first_terms()
        results = {slot: accumulators.merge(_keys(slot)) for slot in slots}
        if outside is None:
            self.results.watch([result[0] for result in results.values()])
        for slot, result in results.items():
            self.write_slot(env, slot, result, outside)

    def list_slots(self, loops: tuple[Loop, ...]) -> list[tuple[AccumulatorSlot, ...]]:
        """Return the output elements, or vectors of them, that the loops meet."""
        found: list[list[AccumulatorSlot]] = []
        for loop in loops:
            if isinstance(loop, Lanes) and loop.axis.mode in self.plan.assignment.free_indices:
                vectors = self.mapping.vectors_of(loop)
                found.append([AccumulatorSlot(loop.axis, value, key, loop.end) for value, key in vectors])
            elif isinstance(loop, Axis) and loop.mode in self.plan.assignment.free_indices:
                numbers = range(self.schedule.splits[loop.mode])
                found.append([AccumulatorSlot(loop, Const(n), (loop.name, n)) for n in numbers])
        return list(product(*found))

    def write_slot(
        self,
        env: Env,
        slot: tuple[AccumulatorSlot, ...],
        result: tuple[Expr, ...],
        outside: Expression | None,
    ) -> None:
        """Bind the coordinates of a slot again, outside the loops that filled it, and write it."""
        if slot:
            part, rest = slot[0], slot[1:]
            env = replace(env, slot=(*env.slot, part.key))
            with self.mapping.guard(part.value, part.end):
                self.resolver.bind(
                    env,
                    part.axis,
                    part.value,
                    lambda inner: self.write_slot(inner, rest, result, outside),
                    guard=isinstance(part.value, Const),
                )
            return
        if outside is not None:
            factor = evaluate(outside, env, self.plan, self.operands)
            product = ir.compute("mul", result[0], factor)
            if env.accumulators is not None:
                env.accumulators.reduce(env.slot, env.replica, (product,))
                return
            result = (self.builder.let("total", product),)
            self.results.watch([result[0]])
        self.results.write(env, result)

    def find_first_argument(self, env: Env) -> Expr | None:
        """Name the first entry that registers meet, where these are positions of one loop, as they stand."""
        name, reduced = self.plan.assignment.argument, self.plan.assignment.reduced
        if (
            name is None
            or name not in self.plan.formats
            or name in self.operands.sources
            or len(reduced) != 1
        ):
            return None
        left = self.plan.formats[name].levels[env.states[name].levels :]
        if len(left) != 1 or left[0].full or left[0].axis != Axis(reduced[0]):
            return None
        if reduced[0] in self.schedule.splits:  # its loops search for entries, in another order
            return None
        lo, hi = self.resolver.position_range(env, name)
        return self.builder.let("first", ir.select(ir.compare("lt", lo, hi), lo, Const(-1)))

    def emit_leaf(self, env: Env) -> None:
        """Evaluate the term and reduce it into its accumulator or into memory."""
        self._copies += 1
        if self._copies > MAX_COPIES:
            raise ScheduleError(
                f"{self.schedule} makes more than {MAX_COPIES} copies of the innermost statement; "
                "unroll less, or use a smaller tile"
            )
        assignment, monoid = self.plan.assignment, self.plan.monoid
        term = evaluate(env.term or assignment.expression, env, self.plan, self.operands)
        lanes = max(
            (c.type.lanes for index, c in env.coordinates.items() if index in assignment.reduced), default=1
        )
        if env.accumulators is not None:  # a term that is the same in all lanes counts in each
            term = ir.widen(term, max(lanes, term.type.lanes))
        argument = assignment.argument
        state = monoids.lift(monoid, term, Const(0) if argument is None else env.coordinates[argument])
        if env.accumulators is not None:
            env.accumulators.reduce(env.slot, env.replica, state)
            return
        # Where the lanes are elements of the output, each keeps its own term.
        if lanes > self.results.index(env).type.lanes:
            state = tuple(
                ir.Fold(monoids.fold_operator(monoid, c), ir.widen(s, lanes)) for c, s in enumerate(state)
            )
        self.results.watch([state[0]])
        self.results.write(env, state)


def _keys(slot: tuple[AccumulatorSlot, ...]) -> Keys:
    return tuple(part.key for part in slot)
