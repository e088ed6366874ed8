"""Lowering: einsum x formats x schedule -> loop IR.

The skeleton (one recursion over the loops, outermost first)::

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

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Final

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir
from tensorwise.lower.accumulate import Accumulation
from tensorwise.lower.hoist import hoist
from tensorwise.lower.ir import Buffer, BufferStore, Const, Expr, For, If, Let, Reg, Set, Stmt, Var
from tensorwise.lower.nest import Env, Lanes, Loop, State
from tensorwise.lower.plan import Plan
from tensorwise.lower.target import target_of
from tensorwise.lower.together import fold_together
from tensorwise.program.schedule import LoopPass
from tensorwise.tensor.remap import Axis, join, off_diagonal

MAX_REPLICAS: Final = 16
"""Unrolled copies get accumulators of their own while these stay within the vector registers."""
MAX_STRIPS: Final = 8
"""Strips of a bound index that need no loop."""
CACHE_LINE_BYTES: Final = 64


def lower(plan: Plan) -> ir.LoweredFunction:
    """Lower ``plan`` to the loop IR.

    Raises:
        ScheduleError: a directive does not fit the einsum and formats; the message says which.
    """
    passes = [directive for directive in plan.schedule.directives if isinstance(directive, LoopPass)]
    target = target_of(plan.schedule)
    if target is not None:
        if passes:
            raise ScheduleError(
                f"{passes[0]}: directives of other packages are for CPUs (got {plan.schedule})"
            )
        return target.lower(plan)
    kernel = emit_kernel(plan, Lowering)
    for directive in passes:
        kernel = directive.rewrite(kernel, plan)
    return hoist(fold_together(kernel))


def emit_kernel(plan: Plan, kind: "type[Lowering]") -> ir.LoweredFunction:
    """Return the loops of ``plan``, before any pass over them.

    Raises:
        ScheduleError: as ``lower``.
    """
    lowering = kind(plan)
    kernel = lowering.run()
    # Known only now: whether partial results wait depends on where accumulators open.
    return kind(plan, waits=True).run() if lowering.rounds_partial else kernel


class Lowering(Accumulation):
    """The nest of one plan, for CPUs; targets derive theirs."""

    def run(self) -> ir.LoweredFunction:
        """Emit the nest, then put initialisation before and the sum of copies in ``work`` behind it."""
        self.resolve(
            Env({}, dict.fromkeys(self.plan.formats, State())), lambda env: self.emit(env, self.loops)
        )
        self.add_carries(self.work if self.waits else self.output)
        total = self.output_size()
        before: list[Stmt] = []
        after: list[Stmt] = []
        if self.private or self.waits:
            identity = Const(self.monoid.components[0].identity, self.elem)
            e, t = Var("e"), Var("t")
            copies = ir.THREADS if self.private else Const(1)
            before.append(self._even(e, copies * total, (BufferStore(self.work, e, identity),)))
            finish: tuple[Stmt, ...] = (BufferStore(self.output, e, self.work[e]),)
            if self.private:
                merged = Var("merged", self.elem)
                step = Set(merged, ir.compute(self.monoid.combine, merged, self.work[t * total + e]))
                loop = For(t, Const(0), ir.THREADS, 1, (step,))
                start = self.output[e] if self.plan.accumulate else identity
                finish = (Reg(merged, start), loop, BufferStore(self.output, e, merged))
            after.append(self._even(e, total, finish))
        elif self.initial is not None and not self.plan.accumulate:
            e = Var("e")
            value = Const(self.initial, self.output[e].type)
            before.append(self._even(e, total, (BufferStore(self.output, e, value),)))
        before.extend(self.cleared())
        return ir.LoweredFunction(
            self.buffers(),
            self.sizes(),
            (*before, *self.block, *after),
            (str(self.assignment),),
            self.scratch_used(),
            self.joined,
        )

    def cleared(self) -> list[Stmt]:
        """Return what else has to run before the nest."""
        return []

    def scratch_used(self) -> tuple[tuple[Buffer, int], ...]:
        """Return the memory that each team of threads has for itself."""
        return ()

    def _even(self, var: Var, count: Expr, body: ir.Block) -> Stmt:
        return For(var, Const(0), count, 1, body, self.even_share())

    def even_share(self) -> ir.Workers | ir.Blocks | None:
        """Who gets the iterations of loops in which all cost the same."""
        return ir.Workers("even") if self.schedule.parallel else None

    # -- loops --------------------------------------------------------------------------------

    def emit(self, env: Env, loops: tuple[Loop, ...]) -> None:
        """Emit the nest of ``loops`` at this point."""
        if self.factors(env, loops):
            self.factor(env, loops)
            return
        if env.accumulators is None and self.opens(loops):
            self.accumulate(env, loops)
            return
        if not loops:
            self.leaf(env)
            return
        loop, rest = loops[0], loops[1:]
        if isinstance(loop, Lanes):
            self.lanes(env, loop, rest)
            return
        if loop.mode not in self.assignment.free_indices and env.accumulators is None:
            env = replace(env, reduced_outside=True)
        leader = self.leader(env, loop)
        tile = self.schedule.tile
        if tile and tile.loop == loop.name:
            self.strips(env, loop, rest)
        elif leader is not None:
            self.lead(env, loop, rest, leader)
        elif self.unrolled(loop):
            for number in range(self.schedule.splits[loop.mode]):
                inner = self.placed(env, loop, (loop.name, number))
                self.bind(
                    inner, loop, Const(number), lambda e: self.emit(e, rest), guard=self.reads(loop.mode, env)
                )
        else:
            var = self.fresh("place" if loop.name in self.visited else loop.name)
            env = self.shared(env, loop)
            self.repeat(
                env,
                loop,
                var,
                Const(0),
                self.range_end(env, loop),
                lambda e, at: self.bind(
                    e, loop, self.visiting(loop, at), lambda inner: self.emit(inner, rest)
                ),
            )

    def lanes(self, env: Env, loop: Lanes, rest: tuple[Loop, ...]) -> None:
        """Emit the vectors of a strip.

        Lanes along a diagonal may leave the matrix. One condition covers the whole strip, because all strips but the
        first and last few of a diagonal are inside. ``stride`` is the distance between the coordinates of two lanes::

            lanes over i   ->  first = k(i),             inside: 0 <= first and first + lanes <= N_k
            lanes over i1  ->  first = k(i1 * s + i0),   inside: 0 <= first and first + (lanes - 1) * s + 1 <= N_k
        """
        mode, numbers = loop.axis.mode, env.coordinates
        diagonals = self.diagonals_in_lanes(loop)
        if not diagonals:
            self.vectors(env, loop, rest)
            return
        along, stride = loop.base, ir.as_expr(1)
        if loop.axis.part == "inner":
            along = join(numbers[f"{mode}1"], along, self.split(mode))
        elif loop.axis.part == "outer":
            along, stride = join(along, numbers[f"{mode}0"], self.split(mode)), self.split(mode)
        # A strip along a compressed level counts positions, whose coordinates may be any.
        asked = [a for a in diagonals if loop.leader is None and a.along == mode and a.name in numbers]
        width = (loop.vectors * loop.lanes - 1) * stride + 1
        conditions: list[Expr] = []
        for axis in asked:
            first = self.let("first", off_diagonal(numbers[axis.name], along, self.extents[mode]))
            conditions.append(self.inside(axis, first, width))
        # Lanes outside read some element that is there, so that there has to be one.
        reached = [ir.compare("lt", Const(0), self.extents[axis.mode]) for axis in diagonals]
        if not asked:
            with self.scope(lambda body: If(reduce(ir.both, reached), body)):
                self.vectors(env, loop, rest)
            return
        inside = self.let("inside", reduce(ir.both, conditions))
        partly = reduce(ir.both, [ir.compare("eq", inside, Const(0)), *reached])
        others = [cond for axis, cond in zip(diagonals, reached, strict=True) if axis not in asked]
        wholly = reduce(ir.both, [inside, *others])
        for cond, known in ((wholly, frozenset(axis.name for axis in asked)), (partly, frozenset[str]())):
            with self.scope(lambda body, cond=cond: If(cond, body)):  # type: ignore[misc]
                self.vectors(replace(env, inside=known), loop, rest)

    def diagonals_in_lanes(self, loop: Lanes) -> list[Axis]:
        """Return the diagonals whose coordinates are vectors because lanes run over ``loop``."""
        if loop.lanes == 1:
            return []
        vectors, found = {loop.axis.mode}, list[Axis]()
        for _ in self.assignment.indices:  # a vector of coordinates may lead to others
            for format in self.plan.formats.values():
                if vectors & set(format.modes):
                    vectors |= {axis.mode for axis in format.followed}
            found = [axis for axis in self.diagonals if axis.along in vectors or axis == loop.axis]
            vectors |= {axis.mode for axis in found}
        return found

    def vectors(self, env: Env, loop: Lanes, rest: tuple[Loop, ...]) -> None:
        """Emit each vector of a strip with the lanes bound."""
        for value, key in self.vectors_of(loop):
            inside = self.placed(env, loop.axis, key)
            with self.there(value, loop.end):
                if loop.leader is not None:
                    state = env.states[loop.leader]
                    level = self.plan.formats[loop.leader].levels[state.levels]
                    states = {**env.states, loop.leader: State(state.levels + 1, value)}
                    inside = replace(inside, states=states)
                    arrays = self.arrays[loop.leader][state.levels]
                    value = self.let(
                        loop.axis.name,
                        level.coordinate(arrays, state.position, value, self.extent(level.axis)),
                    )
                stored = loop.leader is not None
                self.bind(inside, loop.axis, value, lambda inner: self.emit(inner, rest), stored=stored)

    def leader(self, env: Env, loop: Axis) -> str | None:
        """Return the operand whose next level is compressed and runs along ``loop``."""
        for name, format in self.plan.formats.items():
            state = env.states[name]
            if state.levels < len(format.levels):
                level = format.levels[state.levels]
                if level.axis == loop and not level.full:
                    return name
        return None

    def lead(self, env: Env, loop: Axis, rest: tuple[Loop, ...], name: str) -> None:
        """Iterate over the positions of a compressed level."""
        if loop.name in self.schedule.visits:
            raise ScheduleError(
                f"visit({loop.name},{self.schedule.visits[loop.name]}): {loop.name} is compressed in {name}, whose "
                "coordinates come as they are stored"
            )
        if self.schedule.unrolls.get(loop.name) == 0:
            raise ScheduleError(f"unroll({loop.name}): {loop.name} is compressed in {name}; give a factor")
        state = env.states[name]
        level, arrays = self.plan.formats[name].levels[state.levels], self.arrays[name][state.levels]
        lo, hi = self.stored(env, name)
        if loop.mode in self.assignment.free_indices:
            env = replace(env, skips_output=True)
        if not level.unique and not self.has_own_outputs(name):
            env = replace(env, reduced_outside=True, skips_output=True)
        env = self.shared(env, loop)
        cursor = self.cursor(level.cursor(arrays, state.position), loop)
        # Bound by a loop of its own, the other part meets coordinates that no entry has together with it.
        above = [other.axis for other in self.plan.formats[name].levels[: state.levels]]
        guard = Axis(loop.mode, "inner" if loop.part == "outer" else "outer") not in above

        def body(inner: Env, position: Expr) -> None:
            self.prefetch(inner, loop, rest, name, position)
            now = cursor
            if cursor is not None and not level.bit_array:  # masks of bits are followed in their register
                now = self.fresh("cursor")
                self.block.append(Let(now, cursor))  # so that proofs see one value
            extent = self.extent(level.axis)
            held = self.fetched(inner, level.coordinate(arrays, state.position, position, extent, now))
            coordinate = self.let(loop.name, held)
            if cursor is not None and now is not None:
                self.block.append(Set(cursor, level.advance(arrays, state.position, position, now)))
            states = {**inner.states, name: State(state.levels + 1, position)}
            self.bind(
                replace(inner, states=states),
                loop,
                coordinate,
                lambda e: self.emit(e, rest),
                guard=guard,
                stored=not guard,
            )

        var = self.fresh(f"{name.lower()}p")
        self.repeat_positions(env, name, loop, var, lo, hi, body)

    def repeat_positions(
        self,
        env: Env,
        name: str,
        loop: Axis,
        var: Var,
        lo: Expr,
        hi: Expr,
        body: Callable[[Env, Expr], None],
    ) -> None:
        """Emit the loop over positions of the next level of an operand."""
        self.repeat(env, loop, var, lo, hi, body)

    def visiting(self, loop: Axis, place: Expr) -> Expr:
        """Return the coordinate at a place of a dense loop."""
        visited = self.visited.get(loop.name)
        return place if visited is None else self.let(loop.name, visited[place])

    def cursor(self, start: Expr | None, loop: Axis) -> Var | None:
        """Declare the register that a level's coordinates are read from in order, if it asks for one."""
        if start is None:
            return None
        parallel = self.schedule.parallel
        if parallel and parallel.loop == loop.name:
            raise ScheduleError(f"{parallel}: the coordinates of {loop.name} can only be read in order")
        register = self.fresh("left")
        self.block.append(Reg(register, start))
        return register

    def repeat(
        self, env: Env, loop: Axis, var: Var, lo: Expr, hi: Expr, body: Callable[[Env, Expr], None]
    ) -> None:
        """Emit a loop, in copies if it is to be unrolled."""
        factor = self.schedule.unrolls.get(loop.name, 1)
        parallel = self.schedule.parallel
        if parallel and parallel.loop == loop.name and parallel.policy == "merge-path":
            self.cut(env, var, body)
            return
        if factor <= 1:
            with self.scope(lambda block: For(var, lo, hi, 1, block, self.handed(loop))):
                body(env, var)
            return
        lo, hi = self.let("lo", lo), self.let("hi", hi)
        main = self.let("main", lo + ((hi - lo) // factor) * factor)
        independent = (
            env.accumulators is not None and factor * len(env.accumulators.registers) <= MAX_REPLICAS
        )
        with self.scope(lambda block: For(var, lo, main, factor, block)):
            for number in range(factor):
                replica = (*env.replica, (loop.name, number)) if independent else env.replica
                body(replace(env, replica=replica), var + number)
        with self.scope(lambda block: For(var, main, hi, 1, block)):
            body(env, var)

    def strips(self, env: Env, loop: Axis, rest: tuple[Loop, ...]) -> None:
        """Cut a loop into strips: full ones, then halves, then overlapping ones or scalars."""
        tile = self.schedule.tile
        assert tile is not None
        leader, at, end = self.strip_range(env, loop, rest)
        is_output = loop.mode in self.assignment.free_indices
        # An overlapping strip computes elements twice, which only a plain store survives.
        overlaps = (
            is_output
            and not env.reduced_outside
            and not env.shared_output
            and not (self.plan.keep_pattern and loop.mode in self.plan.stored)
            and not self.plan.accumulate
            and self.accumulates(rest)
        )
        # Short rows pass all entries once for each strip; where the body is unrolled already, that many copies cost more.
        once = overlaps and loop.mode not in self.plan.stored and not self.schedule.unrolls

        def stage(start: Expr, vectors: int, lanes: int) -> Expr:
            width = vectors * lanes
            stop = self.let("stop", start + ((end - start) // width) * width)
            strip(start, stop, vectors, lanes)
            return stop

        def strip(start: Expr, stop: Expr, vectors: int, lanes: int) -> None:
            if isinstance(start, Const) and isinstance(stop, Const):
                bases = range(int(start.value), int(stop.value), vectors * lanes)
                if len(bases) <= MAX_STRIPS:
                    for base in bases:
                        self.emit(env, (*rest, Lanes(loop, Const(base), vectors, lanes, leader)))
                    return
            var = self.fresh(loop.name)
            with self.scope(lambda block: For(var, start, stop, vectors * lanes, block)):
                self.emit(env, (*rest, Lanes(loop, var, vectors, lanes, leader)))

        def pair(start: Expr) -> Expr:
            """Do what is left, if that is more than one vector and less than two, in two that overlap."""
            two = (*rest, Lanes(loop, start, 2, tile.lanes, leader, last=end - tile.lanes))
            if isinstance(start, Const) and isinstance(end, Const):
                if not tile.lanes < end.value - start.value < 2 * tile.lanes:
                    return start
                self.emit(env, two)
                return end
            more = ir.compare("lt", start + tile.lanes, end)
            fits = self.let("fits", ir.both(more, ir.compare("lt", end, start + 2 * tile.lanes)))
            with self.scope(lambda body: If(fits, body)):
                self.emit(env, two)
            return self.let("rest", ir.select(fits, end, start))

        vectors = tile.vectors
        while vectors >= 1:
            if vectors == 1 and once and min(tile.lanes, tile.vectors) > 1:
                at = pair(at)
            at = stage(at, vectors, tile.lanes)
            vectors //= 2
        if tile.lanes == 1:
            return
        if overlaps and isinstance(at, Const) and isinstance(end, Const):
            if at.value < end.value and tile.lanes <= end.value:
                strip(end - tile.lanes, end, 1, tile.lanes)
                return
        elif overlaps:
            fits = ir.compare("le", Const(tile.lanes), end)
            with (
                self.scope(lambda body: If(ir.compare("lt", at, end), body)),
                self.scope(lambda body: If(fits, body)),
            ):
                strip(end - tile.lanes, end, 1, tile.lanes)
            # Where a whole vector fits, the overlapping strip has done the rest.
            at = self.let("rest", ir.select(fits, end, at))
        lanes = tile.lanes // 2
        while lanes >= 4:
            at = stage(at, 1, lanes)
            lanes //= 2
        for scalars in (3, 2) if once and tile.lanes >= 4 else ():
            at = stage(at, scalars, 1)
        strip(at, end, 1, 1)

    def strip_range(self, env: Env, loop: Axis, rest: tuple[Loop, ...]) -> tuple[str | None, Expr, Expr]:
        """Name the range that strips cover, and return it behind the operand whose positions it counts, if it does."""
        tile, leader = self.schedule.tile, self.leader(env, loop)
        if leader is not None:
            state = env.states[leader]
            levels = self.plan.formats[leader].levels
            if (
                rest
                or levels[state.levels].coordinate_array is None
                or loop.part == "outer"
                or loop.mode not in self.assignment.reduced
                or state.levels + 1 < len(levels)
            ):
                raise ScheduleError(
                    f"{tile}: {loop.name} is compressed in {leader}; strips run along a compressed level "
                    "only where it is the last one, reduced and the innermost loop"
                )
            lo, hi = self.stored(env, leader)
            return leader, self.let("lo", lo), self.let("end", hi)
        end = self.let("end", self.range_end(env, loop))
        other = Axis(loop.mode, "inner" if loop.part == "outer" else "outer")
        if loop.part != "whole" and other.name not in env.coordinates:
            raise ScheduleError(
                f"{tile}: put {other.name} outside {loop.name}, so that strips know where they end"
            )
        return None, Const(0), end

    def prefetch(self, env: Env, loop: Axis, rest: tuple[Loop, ...], name: str, position: Expr) -> None:
        """Ask for the dense rows that later entries of this level need."""
        level = env.states[name].levels
        for directive in self.schedule.prefetches:
            access = self.assignment.access(directive.tensor)
            listed = self.plan.formats[name].levels[level].coordinate_array
            if loop.mode not in access.indices or listed is None or loop.part != "whole":
                continue
            ahead = ir.smaller(position + directive.distance, self.count(name, level) - 1)
            coordinates = {**env.coordinates, loop.mode: self.arrays[name][level][listed][ahead]}
            lanes = next((item for item in rest if isinstance(item, Lanes)), None)
            width = 1
            if lanes is not None and lanes.axis.mode in access.indices:
                outer = env.coordinates.get(f"{lanes.axis.mode}1")
                whole = lanes.base if outer is None else join(outer, lanes.base, self.split(lanes.axis.mode))
                coordinates[lanes.axis.mode] = whole
                width = lanes.vectors * lanes.lanes
            elif lanes is None:  # the row is walked further inside
                extents = [
                    self.extents[a.mode] for a in rest if isinstance(a, Axis) and a.mode in access.indices
                ]
                width = max([1, *(int(extent.value) for extent in extents if isinstance(extent, Const))])
            where = {index: coordinates.get(index, Const(0)) for index in access.indices}
            base = self.let("ahead", self.linear(access, where))
            asked = self.values[directive.tensor]
            for offset in range(0, width, CACHE_LINE_BYTES // asked.item_bytes):
                self.block.append(ir.PrefetchLine(asked, base + offset))

    def reads(self, index: str, env: Env) -> bool:
        """Whether going past the end of ``index`` would touch memory that is not there.

        Operands packed in blocks are padded; accumulators are written behind a guard of their own.
        """
        if env.accumulators is None or index in self.assignment.reduced or index in self.permutations:
            return True
        if any(Axis(index) in format.axes for format in self.plan.formats.values()):
            return True
        return any(index in a.indices for a in self.assignment.accesses if a.tensor not in self.plan.formats)

    def shared(self, env: Env, loop: Axis) -> Env:
        """Note when threads that run this loop update the same output elements."""
        parallel = self.schedule.parallel
        if parallel and parallel.loop == loop.name and self.has_shared_outputs(loop):
            return replace(env, shared_output=True)
        return env

    def placed(self, env: Env, axis: Axis, key: tuple[object, ...]) -> Env:
        """Note which accumulator a constant coordinate or a vector of lanes belongs to."""
        if axis.mode in self.assignment.free_indices:
            return replace(env, slot=(*env.slot, key))
        if key[0] == "lanes":
            return replace(env, replica=(*env.replica, key))
        return env
