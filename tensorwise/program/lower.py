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

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final

from tensorwise.codegen import ir
from tensorwise.codegen.ir import Buffer, Const, Expr, For, If, Let, Ramp, Reg, Set, Stmt, Store, Type, Var
from tensorwise.errors import ScheduleError
from tensorwise.program import monoids
from tensorwise.program.einsum import Access, Assignment, Call, Constant, Expression
from tensorwise.program.schedule import CONSTANT_SPLIT, Schedule
from tensorwise.tensor.format import Format
from tensorwise.tensor.remap import Axis, join

MAX_ACCUMULATORS: Final = 64
"""More output slots than this are reduced in memory: no machine has the registers."""
MAX_REPLICAS: Final = 16
"""Unrolled copies get accumulators of their own while these stay within the vector registers."""
MAX_COPIES: Final = 600
"""Copies of the innermost statement, over all strips and unrolled loops: more take seconds to compile and
overflow the instruction cache."""
CACHE_LINE_BYTES: Final = 64


@dataclass(frozen=True)
class Plan:
    """Everything that lowering needs to know; equal plans give equal kernels.

    Attributes:
        formats: sparse operand -> format, its modes named by the operand's indices.
        widths: sparse operand -> (pos, crd) element types of each level ('' where there are none).
        elem: ``f32`` or ``f64``.
        column_major: dense operands whose first index is contiguous.
        keep_pattern: the output holds one value an entry of the first sparse operand.
        masked: consult the source map before a stored position contributes.
        exact: indices whose extent is a multiple of their constant split, so that no guard is needed.
    """

    assignment: Assignment
    formats: Mapping[str, Format]
    widths: Mapping[str, tuple[tuple[str, str], ...]]
    schedule: Schedule
    elem: str
    column_major: frozenset[str]
    keep_pattern: bool
    masked: bool
    exact: frozenset[str]
    source_elem: str = "i32"

    @property
    def padded(self) -> bool:
        """Whether some operand's values may hold padding."""
        return any(format.padded for format in self.formats.values())

    def uses_source(self, operand: str) -> bool:
        """Whether the kernel reads the source map of ``operand``."""
        if self.masked and self.formats[operand].padded:
            return True
        return (
            self.keep_pattern and operand == next(iter(self.formats)) and not self.formats[operand].order_kept
        )


@dataclass(frozen=True)
class _State:
    """How far a sparse operand is resolved: levels done, position there, value when all are."""

    levels: int = 0
    position: Expr = Const(0)
    value: Expr | None = None


@dataclass(frozen=True)
class _Lanes:
    """The innermost pseudo-loop of a strip: ``vectors`` x ``lanes`` elements from ``base``.

    ``leader`` is the operand whose compressed level the strip runs along; base is a position there.
    """

    axis: Axis
    base: Expr
    vectors: int
    lanes: int
    leader: str | None = None


@dataclass
class _Accumulators:
    """Registers that hold partial results: (output slot, replica) -> one register a state component."""

    declarations: list[Stmt]
    registers: dict[tuple[object, ...], tuple[Var, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Env:
    """What is known at a point of the nest."""

    coordinates: Mapping[str, Expr]
    states: Mapping[str, _State]
    accumulators: _Accumulators | None = None
    slot: tuple[object, ...] = ()
    replica: tuple[object, ...] = ()
    skips_output: bool = False
    reduced_outside: bool = False
    shared_output: bool = False


_Loop = Axis | _Lanes


def lower(plan: Plan) -> ir.Kernel:
    """Lower ``plan`` to the loop IR.

    Raises:
        ScheduleError: a directive does not fit the einsum and formats; the message says which.
    """
    return _Lowering(plan).run()


class _Lowering:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.assignment = plan.assignment
        self.schedule = plan.schedule
        self.monoid = plan.assignment.monoid
        self.loops = plan.schedule.loops(plan.assignment.indices)
        self.elem = Type(plan.elem)
        self.block: list[Stmt] = []
        self.names: dict[str, int] = {}
        self.copies = 0
        self.initial: float | None = None
        self.extents = {index: Var(f"N_{index}") for index in self.assignment.indices}
        self.splits: dict[str, Expr] = {
            index: Const(size) if size <= CONSTANT_SPLIT else Var(f"s_{index}")
            for index, size in self.schedule.splits.items()
        }
        self.counts: dict[tuple[str, int], Var] = {}
        output_elem = "i64" if self.monoid.name in ("argmax", "argmin") else plan.elem
        self.output = Buffer("out", output_elem, writable=True)
        self.work = Buffer("work", plan.elem, writable=True)
        self.status = Buffer("status", "i64", writable=True)
        self.arrays = {
            name: [
                {
                    array: Buffer(f"{name}{place}_{array}", width)
                    for array, width in zip(level.arrays, widths, strict=False)
                }
                for place, (level, widths) in enumerate(zip(format.levels, plan.widths[name], strict=True))
            ]
            for name, format in plan.formats.items()
        }
        self.values = {name: Buffer(f"{name}_values", plan.elem) for name in self.assignment.operands}
        self.sources = {
            name: Buffer(f"{name}_source", plan.source_elem)
            for name in plan.formats
            if plan.uses_source(name)
        }
        self.watch = plan.padded and not plan.masked
        self.stored = {index for name in plan.formats for index in self.assignment.access(name).indices}
        parallel = self.schedule.parallel
        self.private = bool(
            parallel
            and parallel.reduction == "private"
            and Axis.named(parallel.loop).mode not in self.assignment.output.indices  # type: ignore[union-attr]
        )
        self._check()

    def _check(self) -> None:
        for name, format in self.plan.formats.items():
            for mode, size in format.splits.items():
                if self.schedule.splits.get(mode) != size:
                    raise ScheduleError(
                        f"format of {name} splits {mode} by {size}, so the schedule needs split({mode},{size}); "
                        f"it has {self.schedule}"
                    )
            for axis in format.axes:
                if (
                    axis.part == "whole"
                    and self.plan.keep_pattern
                    and axis.mode not in self.assignment.indices
                ):
                    raise ScheduleError(f"format of {name} has no index {axis.mode!r}")
        tile, parallel = self.schedule.tile, self.schedule.parallel
        if tile and not self.monoid.single and tile.lanes * tile.vectors > 1 and self.monoid.name != "mean":
            raise ScheduleError(f"{tile}: {self.monoid.name} keeps a coordinate and runs in scalars only")
        if tile and self.plan.masked and Axis.named(tile.loop).mode in self.stored:  # type: ignore[union-attr]
            raise ScheduleError(f"{tile}: lanes over a stored index cannot be masked")
        for prefetch in self.schedule.prefetches:
            if prefetch.tensor not in self.assignment.operands or prefetch.tensor in self.plan.formats:
                raise ScheduleError(
                    f"{prefetch}: {prefetch.tensor!r} is no dense operand of {self.assignment}"
                )
        if parallel and parallel.policy == "balanced":
            first = next(iter(self.plan.formats.values()), None)
            if first is None or first.axes[0].name != parallel.loop or self.loops[0].name != parallel.loop:
                raise ScheduleError(
                    f"{parallel}: parts are balanced over the outermost loop when it is the outermost level "
                    f"of the sparse operand; use dynamic for {parallel.loop}"
                )

    # -- the whole kernel ---------------------------------------------------------------------

    def run(self) -> ir.Kernel:
        """Emit the nest, then put initialisation before and the sum of private copies behind it."""
        self.resolve(
            _Env({}, dict.fromkeys(self.plan.formats, _State())), lambda env: self.emit(env, self.loops)
        )
        total = self.output_size()
        before: list[Stmt] = []
        after: list[Stmt] = []
        if self.private:
            self.initial = None
            identity = Const(self.monoid.components[0].identity, self.elem)
            e, t = Var("e"), Var("t")
            before.append(self._even(e, ir.THREADS * total, (Store(self.work, e, identity),)))
            merged = Var("merged", self.elem)
            step = Set(merged, ir.compute(self.monoid.combine, merged, self.work[t * total + e]))
            after.append(
                self._even(
                    e,
                    total,
                    (
                        Reg(merged, identity),
                        For(t, Const(0), ir.THREADS, 1, (step,)),
                        Store(self.output, e, merged),
                    ),
                )
            )
        elif self.initial is not None:
            e = Var("e")
            value = Const(self.initial, Type(self.output.elem))
            before.append(self._even(e, total, (Store(self.output, e, value),)))
        return ir.Kernel(
            self.buffers(), self.sizes(), (*before, *self.block, *after), (str(self.assignment),)
        )

    def _even(self, var: Var, count: Expr, body: ir.Block) -> Stmt:
        bind = ir.Workers("even") if self.schedule.parallel else None
        return For(var, Const(0), count, 1, body, bind)

    def buffers(self) -> tuple[Buffer, ...]:
        """Buffers in the order of the call."""
        listed: list[Buffer] = [self.output]
        for name in self.assignment.operands:
            for arrays in self.arrays.get(name, ()):
                listed.extend(arrays.values())
            listed.append(self.values[name])
            if name in self.sources:
                listed.append(self.sources[name])
        if self.private:
            listed.append(self.work)
        if self.watch:
            listed.append(self.status)
        return tuple(listed)

    def sizes(self) -> tuple[Var, ...]:
        """Sizes in the order of the call: extents, run-time splits, numbers of positions."""
        splits = [size for size in self.splits.values() if isinstance(size, Var)]
        return (*self.extents.values(), *splits, *self.counts.values())

    def output_size(self) -> Expr:
        """Number of output elements."""
        if self.plan.keep_pattern:
            return self.counts.setdefault(("", 0), Var("N_entries"))
        size: Expr = Const(1)
        for index in self.assignment.output.indices:
            size = size * self.extents[index]
        return size

    def count(self, operand: str, level: int) -> Var:
        """Return the size that holds the number of positions of a level."""
        return self.counts.setdefault((operand, level), Var(f"n_{operand}{level}"))

    # -- building blocks ----------------------------------------------------------------------

    @contextmanager
    def scope(self, wrap: Callable[[ir.Block], Stmt]) -> Iterator[None]:
        """Collect statements into the body of the statement that ``wrap`` makes."""
        outer, self.block = self.block, []
        yield
        body, self.block = tuple(self.block), outer
        if body:
            self.block.append(wrap(body))

    def fresh(self, stem: str, type: Type = ir.I64) -> Var:
        """Return a variable with a name of its own."""
        number = self.names.get(stem, 0)
        self.names[stem] = number + 1
        return Var(f"{stem}_{number}" if number else stem, type)

    def let(self, stem: str, value: Expr) -> Expr:
        """Name a scalar value, unless it is a name or a number already."""
        if isinstance(value, Const | Var) or value.type.lanes > 1:
            return value
        var = self.fresh(stem, value.type)
        self.block.append(Let(var, value))
        return var

    def split(self, index: str) -> Expr:
        """Inner extent of a split index."""
        return self.splits.get(index, Const(1))

    def range_end(self, env: _Env, axis: Axis) -> Expr:
        """End of the dense range of ``axis``, tightened by the other part where that is bound.

        Tightening makes every coordinate that a dense loop reaches valid, so that no guard is
        needed behind it.
        """
        extent, size = self.extents[axis.mode], self.split(axis.mode)
        outer, inner = env.coordinates.get(f"{axis.mode}1"), env.coordinates.get(f"{axis.mode}0")
        exact = axis.mode in self.plan.exact
        if axis.part == "inner" and outer is not None:
            return size if exact else ir.smaller(size, extent - outer * size)
        if axis.part == "outer" and inner is not None and not exact:
            return (extent - inner + (size - 1)) // size
        return axis.extent(extent, size)  # type: ignore[no-any-return]

    def bind(
        self, env: _Env, axis: Axis, value: Expr, then: Callable[[_Env], None], guard: bool = False
    ) -> None:
        """Bind a coordinate, resolve what it makes known and go on with ``then``."""
        coordinates = {**env.coordinates, axis.name: value}
        outer, inner = coordinates.get(f"{axis.mode}1"), coordinates.get(f"{axis.mode}0")
        if axis.part != "whole" and outer is not None and inner is not None:
            whole = self.let(axis.mode, join(outer, inner, self.split(axis.mode)))
            coordinates[axis.mode] = whole
            if guard and axis.mode not in self.plan.exact:
                with self.scope(lambda body: If(ir.compare("lt", whole, self.extents[axis.mode]), body)):
                    self.resolve(replace(env, coordinates=coordinates), then)
                return
        self.resolve(replace(env, coordinates=coordinates), then)

    def resolve(self, env: _Env, then: Callable[[_Env], None]) -> None:
        """Resolve every level whose parents and coordinate are known, then go on with ``then``."""
        for name, format in self.plan.formats.items():
            state = env.states[name]
            while state.levels < len(format.levels):
                level = format.levels[state.levels]
                coordinate = env.coordinates.get(level.axis.name)
                if coordinate is None:
                    break
                if level.full:
                    extent = level.axis.extent(self.extents[level.axis.mode], self.split(level.axis.mode))
                    position = level.locate({}, state.position, coordinate, extent)
                    state = _State(state.levels + 1, self.let(f"{name.lower()}p", position))
                    env = replace(env, states={**env.states, name: state})
                    continue
                if coordinate.type.lanes > 1 or state.position.type.lanes > 1:
                    raise ScheduleError(
                        f"{self.schedule.tile}: lanes reach {level.axis.name}, which is compressed in {name} "
                        f"({format}); they run over dense levels only"
                    )
                lo, hi = level.bounds(self.arrays[name][state.levels], state.position)
                found = self.fresh(f"{name.lower()}p")
                self.block.append(
                    Let(found, ir.Search(self.arrays[name][state.levels]["crd"], lo, hi, coordinate))
                )
                env = replace(
                    env, states={**env.states, name: _State(state.levels + 1, found)}, skips_output=True
                )
                with self.scope(lambda body, found=found: If(ir.compare("le", Const(0), found), body)):  # type: ignore[misc]
                    self.resolve(env, then)
                return
            if state.levels == len(format.levels) and state.value is None:
                if self.plan.masked and format.padded:
                    present = ir.compare("lt", Const(0), self.sources[name][state.position])
                    valued = replace(state, value=self.values[name][state.position])
                    env = replace(env, states={**env.states, name: valued}, skips_output=True)
                    with self.scope(lambda body, present=present: If(present, body)):  # type: ignore[misc]
                        self.resolve(env, then)
                    return
                value = self.let(f"{name.lower()}v", self.values[name][state.position])
                env = replace(env, states={**env.states, name: replace(state, value=value)})
        then(env)

    # -- loops --------------------------------------------------------------------------------

    def emit(self, env: _Env, loops: tuple[_Loop, ...]) -> None:
        """Emit the nest of ``loops`` at this point."""
        if env.accumulators is None and self.opens(loops):
            self.accumulate(env, loops)
            return
        if not loops:
            self.leaf(env)
            return
        loop, rest = loops[0], loops[1:]
        if isinstance(loop, _Lanes):
            for number in range(loop.vectors):
                start = loop.base + number * loop.lanes
                value = Ramp(start, loop.lanes) if loop.lanes > 1 else start
                inside = self.placed(env, loop.axis, ("lanes", number, loop.lanes))
                if loop.leader is not None:
                    state = env.states[loop.leader]
                    level = self.plan.formats[loop.leader].levels[state.levels]
                    states = {**env.states, loop.leader: _State(state.levels + 1, value)}
                    inside = replace(inside, states=states)
                    value = self.let(
                        loop.axis.name, level.coordinate(self.arrays[loop.leader][state.levels], value)
                    )
                self.bind(inside, loop.axis, value, lambda inner: self.emit(inner, rest))
            return
        if loop.mode not in self.assignment.output.indices and env.accumulators is None:
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
            var = self.fresh(loop.name)
            env = self.shared(env, loop)
            self.repeat(
                env,
                loop,
                var,
                Const(0),
                self.range_end(env, loop),
                lambda e, at: self.bind(e, loop, at, lambda inner: self.emit(inner, rest)),
            )

    def leader(self, env: _Env, loop: Axis) -> str | None:
        """Return the operand whose next level is compressed and runs along ``loop``."""
        for name, format in self.plan.formats.items():
            state = env.states[name]
            if state.levels < len(format.levels):
                level = format.levels[state.levels]
                if level.axis == loop and not level.full:
                    return name
        return None

    def lead(self, env: _Env, loop: Axis, rest: tuple[_Loop, ...], name: str) -> None:
        """Iterate over the positions of a compressed level."""
        if self.schedule.unrolls.get(loop.name) == 0:
            raise ScheduleError(f"unroll({loop.name}): {loop.name} is compressed in {name}; give a factor")
        state = env.states[name]
        level, arrays = self.plan.formats[name].levels[state.levels], self.arrays[name][state.levels]
        lo, hi = level.bounds(arrays, state.position)
        if loop.mode in self.assignment.output.indices:
            env = replace(env, skips_output=True)
        env = self.shared(env, loop)

        def body(inner: _Env, position: Expr) -> None:
            self.prefetch(inner, loop, rest, name, position)
            coordinate = self.let(loop.name, level.coordinate(arrays, position))
            states = {**inner.states, name: _State(state.levels + 1, position)}
            # The other part, if bound already, ran over its whole range, also where this one ends early.
            self.bind(
                replace(inner, states=states), loop, coordinate, lambda e: self.emit(e, rest), guard=True
            )

        self.repeat(env, loop, self.fresh(f"{name.lower()}p"), lo, hi, body)

    def repeat(
        self, env: _Env, loop: Axis, var: Var, lo: Expr, hi: Expr, body: Callable[[_Env, Expr], None]
    ) -> None:
        """Emit a loop, in copies if it is to be unrolled."""
        factor = self.schedule.unrolls.get(loop.name, 1)
        parallel = self.schedule.parallel
        bind = ir.Workers(parallel.policy) if parallel and parallel.loop == loop.name else None
        if factor <= 1:
            with self.scope(lambda block: For(var, lo, hi, 1, block, bind)):
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

    def strips(self, env: _Env, loop: Axis, rest: tuple[_Loop, ...]) -> None:
        """Cut a loop into strips: full ones, then halves, then an overlapping one or scalars."""
        tile = self.schedule.tile
        assert tile is not None
        leader = self.leader(env, loop)
        at: Expr = Const(0)
        if leader is not None:
            state = env.states[leader]
            levels = self.plan.formats[leader].levels
            if (
                rest
                or loop.part == "outer"
                or loop.mode not in self.assignment.reduced
                or state.levels + 1 < len(levels)
            ):
                raise ScheduleError(
                    f"{tile}: {loop.name} is compressed in {leader}; strips run along a compressed level only where it "
                    "is the last one, reduced and the innermost loop"
                )
            lo, hi = levels[state.levels].bounds(self.arrays[leader][state.levels], state.position)
            at, end = self.let("lo", lo), self.let("end", hi)
        else:
            end = self.let("end", self.range_end(env, loop))
        is_output = loop.mode in self.assignment.output.indices
        other = Axis(loop.mode, "inner" if loop.part == "outer" else "outer")
        if leader is None and loop.part != "whole" and other.name not in env.coordinates:
            raise ScheduleError(
                f"{tile}: put {other.name} outside {loop.name}, so that strips know where they end"
            )
        # An overlapping strip computes elements twice, which only a plain store survives.
        overlaps = (
            is_output and not env.reduced_outside and not self.plan.keep_pattern and self.accumulates(rest)
        )

        def stage(start: Expr, vectors: int, lanes: int) -> Expr:
            width = vectors * lanes
            stop = self.let("stop", start + ((end - start) // width) * width)
            strip(start, stop, vectors, lanes)
            return stop

        def strip(start: Expr, stop: Expr, vectors: int, lanes: int) -> None:
            var = self.fresh(loop.name)
            with self.scope(lambda block: For(var, start, stop, vectors * lanes, block)):
                self.emit(env, (*rest, _Lanes(loop, var, vectors, lanes, leader)))

        vectors = tile.vectors
        while vectors >= 1:
            at = stage(at, vectors, tile.lanes)
            vectors //= 2
        if tile.lanes == 1:
            return
        if overlaps:
            fits = ir.compare("le", Const(tile.lanes), end)
            with (
                self.scope(lambda body: If(ir.compare("lt", at, end), body)),
                self.scope(lambda body: If(fits, body)),
            ):
                strip(end - tile.lanes, end, 1, tile.lanes)
            # Where a whole vector fits, the overlapping strip has done the rest.
            start = self.fresh("rest")
            self.block.append(Let(start, ir.Op("select", (fits, end, at), ir.I64)))
            at = start
        lanes = tile.lanes // 2
        while lanes >= 4:
            at = stage(at, 1, lanes)
            lanes //= 2
        strip(at, end, 1, 1)

    def prefetch(self, env: _Env, loop: Axis, rest: tuple[_Loop, ...], name: str, position: Expr) -> None:
        """Ask for the dense rows that later entries of this level need."""
        level = env.states[name].levels
        for directive in self.schedule.prefetches:
            access = self.assignment.access(directive.tensor)
            if loop.mode not in access.indices or loop.part != "whole":
                continue
            ahead = ir.smaller(position + directive.distance, self.count(name, level) - 1)
            coordinates = {**env.coordinates, loop.mode: self.arrays[name][level]["crd"][ahead]}
            lanes = next((item for item in rest if isinstance(item, _Lanes)), None)
            width = 1
            if lanes is not None and lanes.axis.mode in access.indices:
                outer = env.coordinates.get(f"{lanes.axis.mode}1")
                whole = lanes.base if outer is None else join(outer, lanes.base, self.split(lanes.axis.mode))
                coordinates[lanes.axis.mode] = whole
                width = lanes.vectors * lanes.lanes
            where = {index: coordinates.get(index, Const(0)) for index in access.indices}
            base = self.let("ahead", self.linear(access, where))
            step = CACHE_LINE_BYTES // (4 if self.plan.elem == "f32" else 8)
            for offset in range(0, width, step):
                self.block.append(ir.Prefetch(self.values[directive.tensor], base + offset))

    def unrolled(self, loop: Axis) -> bool:
        """Whether the loop is unrolled completely."""
        return self.schedule.unrolls.get(loop.name) == 0

    def reads(self, index: str, env: _Env) -> bool:
        """Whether going past the end of ``index`` would touch memory that is not there.

        Operands packed in blocks are padded; accumulators are written behind a guard of their own.
        """
        if env.accumulators is None or index in self.assignment.reduced:
            return True
        if any(Axis(index) in format.axes for format in self.plan.formats.values()):
            return True
        return any(index in a.indices for a in self.assignment.accesses if a.tensor not in self.plan.formats)

    def shared(self, env: _Env, loop: Axis) -> _Env:
        """Note when threads that run this loop update the same output elements."""
        parallel = self.schedule.parallel
        if parallel and parallel.loop == loop.name and loop.mode not in self.assignment.output.indices:
            return replace(env, shared_output=True)
        return env

    def placed(self, env: _Env, axis: Axis, key: tuple[object, ...]) -> _Env:
        """Note which accumulator a constant coordinate or a vector of lanes belongs to."""
        if axis.mode in self.assignment.output.indices:
            return replace(env, slot=(*env.slot, key))
        if key[0] == "lanes":
            return replace(env, replica=(*env.replica, key))
        return env

    # -- accumulators and the leaf ------------------------------------------------------------

    def opens(self, loops: tuple[_Loop, ...]) -> bool:
        """Whether accumulators can hold all that the remaining loops produce."""
        slots, reductions = 1, False
        parallel = self.schedule.parallel
        for loop in loops:
            axis = loop.axis if isinstance(loop, _Lanes) else loop
            if parallel and isinstance(loop, Axis) and parallel.loop == loop.name:
                return False
            if axis.mode not in self.assignment.output.indices:
                reductions = True
            elif isinstance(loop, _Lanes):
                slots *= loop.vectors
            elif self.unrolled(loop):
                slots *= self.schedule.splits[loop.mode]
            else:
                return False
        return reductions and slots <= MAX_ACCUMULATORS

    def accumulates(self, loops: tuple[_Loop, ...]) -> bool:
        """Whether every reduction among ``loops`` happens in accumulators."""
        if not loops or self.opens(loops):
            return True
        axis = loops[0].axis if isinstance(loops[0], _Lanes) else loops[0]
        return axis.mode in self.assignment.output.indices and self.accumulates(loops[1:])

    def accumulate(self, env: _Env, loops: tuple[_Loop, ...]) -> None:
        """Open accumulators, emit the loops and write the results."""
        accumulators = _Accumulators(self.block)
        local: list[list[tuple[Axis, Expr, tuple[object, ...]]]] = []
        for loop in loops:
            if isinstance(loop, _Lanes) and loop.axis.mode in self.assignment.output.indices:
                starts = [loop.base + number * loop.lanes for number in range(loop.vectors)]
                local.append(
                    [
                        (
                            loop.axis,
                            Ramp(start, loop.lanes) if loop.lanes > 1 else start,
                            ("lanes", number, loop.lanes),
                        )
                        for number, start in enumerate(starts)
                    ]
                )
            elif isinstance(loop, Axis) and loop.mode in self.assignment.output.indices:
                local.append(
                    [
                        (loop, Const(number), (loop.name, number))
                        for number in range(self.schedule.splits[loop.mode])
                    ]
                )
        slots = list(product(*local))
        for slot in slots:
            lanes = max((value.type.lanes for _, value, _ in slot), default=1)
            self.registers(accumulators, tuple(key for _, _, key in slot), (), lanes)
        self.emit(replace(env, accumulators=accumulators, slot=(), replica=()), loops)
        results = {slot: self.merged(accumulators, tuple(key for _, _, key in slot)) for slot in slots}
        if self.watch:
            self.watched([result[0] for result in results.values()])
        for slot, result in results.items():
            self.write_slot(env, slot, result)

    def registers(
        self, accumulators: _Accumulators, slot: tuple[object, ...], replica: tuple[object, ...], lanes: int
    ) -> tuple[Var, ...]:
        """Return the registers of a slot and replica, declared on first use with the identity."""
        key = (slot, replica)
        if key not in accumulators.registers:
            registers = []
            for component in self.monoid.components:
                type = Type("i64" if component.holds == "coordinate" else self.plan.elem, lanes)
                var = self.fresh("acc" if component.name == "value" else component.name, type)
                zero = Const(component.identity, Type(type.elem))
                accumulators.declarations.append(Reg(var, ir.widen(zero, lanes)))
                registers.append(var)
            accumulators.registers[key] = tuple(registers)
        return accumulators.registers[key]

    def merged(self, accumulators: _Accumulators, slot: tuple[object, ...]) -> tuple[Expr, ...]:
        """Combine all replicas of a slot into its first registers."""
        main = accumulators.registers[(slot, ())]
        for (other, replica), registers in accumulators.registers.items():
            if other == slot and replica:
                lanes = registers[0].type.lanes
                folded: tuple[Expr, ...] = registers
                if lanes > main[0].type.lanes:
                    folded = tuple(
                        ir.Fold(monoids.fold_operator(self.monoid, c), r) for c, r in enumerate(registers)
                    )
                self.block.extend(monoids.combine(self.monoid, main, folded))
        return main

    def watched(self, results: list[Expr]) -> None:
        """Raise the status flag when a result is NaN (also, harmlessly, when infinities cancel)."""
        total = results[0]
        for result in results[1:]:
            total = ir.compute("add", total, result)
        if total.type.lanes > 1:
            total = ir.Fold("add", total)
        total = self.let("watched", total)
        self.block.append(If(ir.compare("ne", total, total), (Store(self.status, Const(0), Const(1)),)))

    def write_slot(
        self, env: _Env, slot: tuple[tuple[Axis, Expr, tuple[object, ...]], ...], result: tuple[Expr, ...]
    ) -> None:
        """Bind the coordinates of a slot again, outside the loops that filled it, and write it."""
        if not slot:
            self.write(env, result)
            return
        (axis, value, _), rest = slot[0], slot[1:]
        guard = isinstance(value, Const)
        self.bind(env, axis, value, lambda inner: self.write_slot(inner, rest, result), guard=guard)

    def leaf(self, env: _Env) -> None:
        """Evaluate the term and reduce it into its accumulator or into memory."""
        self.copies += 1
        if self.copies > MAX_COPIES:
            raise ScheduleError(
                f"{self.schedule} makes more than {MAX_COPIES} copies of the innermost statement; "
                "unroll less, or use a smaller tile"
            )
        term = self.evaluate(self.assignment.expression, env)
        state = monoids.lift(self.monoid, term, self.reduced_coordinate(env))
        if env.accumulators is not None:
            lanes = max(
                term.type.lanes,
                next(
                    iter(
                        r[0].type.lanes for (s, _), r in env.accumulators.registers.items() if s == env.slot
                    ),
                    1,
                ),
            )
            registers = self.registers(env.accumulators, env.slot, env.replica, lanes)
            self.block.extend(monoids.combine(self.monoid, registers, state))
            return
        lane = next(
            (
                c.type.lanes
                for i, c in env.coordinates.items()
                if c.type.lanes > 1 and i in self.assignment.reduced
            ),
            1,
        )
        if lane > 1:
            state = tuple(
                ir.Fold(monoids.fold_operator(self.monoid, c), ir.widen(s, lane)) for c, s in enumerate(state)
            )
        if self.watch:
            self.watched([state[0]])
        self.write(env, state)

    def reduced_coordinate(self, env: _Env) -> Expr:
        """Coordinate of the reduced index, for reductions that keep it."""
        reduced = self.assignment.reduced
        return env.coordinates[reduced[0]] if len(reduced) == 1 else Const(0)

    def write(self, env: _Env, state: tuple[Expr, ...]) -> None:
        """Store a finished result, or reduce a partial one into memory."""
        index = self.output_index(env)
        partial = env.reduced_outside
        lanes = index.type.lanes
        if partial and not self.monoid.single:
            raise ScheduleError(
                f"{self.monoid.name} needs all reduced loops inside the output's; "
                f"move {', '.join(self.assignment.reduced)} inwards (got {self.schedule})"
            )
        if partial:
            self.initial = self.monoid.components[0].identity
            buffer = self.output
            atomic = env.shared_output
            if env.shared_output and self.private:
                buffer, atomic = self.work, False
                index = ir.THREAD * self.output_size() + index
            value = ir.widen(state[0], lanes)
            self.block.append(ir.Reduce(buffer, index, self.monoid.combine, value, atomic))
            return
        if env.skips_output and not (self.plan.keep_pattern and len(self.plan.formats) == 1):
            self.initial = -1.0 if self.output.elem == "i64" else 0.0
        self.block.append(Store(self.output, index, ir.widen(monoids.finish(self.monoid, state), lanes)))

    def output_index(self, env: _Env) -> Expr:
        """Where the output element of this point lies."""
        if not self.plan.keep_pattern:
            return self.linear(self.assignment.output, env.coordinates)
        name = next(iter(self.plan.formats))
        position = env.states[name].position
        return self.sources[name][position] - 1 if name in self.sources else position

    def linear(self, access: Access, coordinates: Mapping[str, Expr]) -> Expr:
        """Linear index of a dense tensor, row-major unless it is column-major."""
        indices = access.indices
        if access.tensor in self.plan.column_major:
            indices = indices[::-1]
        position: Expr = Const(0)
        for index in indices:
            position = position * self.extents[index] + coordinates[index]
        return position

    def evaluate(self, expression: Expression, env: _Env) -> Expr:
        """Evaluate the right-hand side at this point."""
        match expression:
            case Constant(value=number):
                return Const(number, self.elem)
            case Access(tensor=name):
                if name in self.plan.formats:
                    value = env.states[name].value
                    assert value is not None, f"{name} is not resolved at the leaf"
                    return value
                return self.values[name][self.linear(expression, env.coordinates)]
            case Call(operator=operator, arguments=arguments):
                return ir.compute(operator, *(self.evaluate(argument, env) for argument in arguments))
        raise TypeError(expression)
