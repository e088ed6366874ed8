"""The state of a lowering: what is bound and resolved at a point of the nest, and how it grows.

A coordinate is bound, then every level whose parents and coordinate are known is resolved: full
levels by arithmetic, compressed ones by binary search under a condition.
"""

import abc
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir
from tensorwise.lower.ir import Buffer, Const, Expr, If, Let, Ramp, Stmt, Type, Var
from tensorwise.lower.plan import Plan
from tensorwise.program.einsum import Access, Expression
from tensorwise.program.schedule import CONSTANT_SPLIT
from tensorwise.tensor.remap import Axis, join, off_diagonal

_ROOT = Const(0)
_C_WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile "
    "while asm typeof linux unix NULL alignas alignof bool constexpr false nullptr thread_local true typeof_unqual "
    "static_assert"
)
_CUDA_WORDS = (
    "and and_eq bitand bitor catch char8_t class compl concept const_cast consteval constinit decltype delete "
    "dynamic_cast explicit export friend mutable namespace new noexcept not not_eq operator or or_eq private protected "
    "public reinterpret_cast requires static_cast template this throw try typeid typename using virtual wchar_t xor "
    "xor_eq threadIdx blockIdx blockDim gridDim warpSize abs fabs fabsf exp expf max min atomicAdd atomicCAS"
)
_OWN_WORDS = (
    "buffers sizes lane thread threads parts out work cuts carries pieces cut e t merged raised_ flag_"
)
RESERVED: Final = frozenset(f"{_C_WORDS} {_CUDA_WORDS} {_OWN_WORDS}".split())
"""What an index may be called, but no variable of a kernel: words of C and CUDA C++, and names that kernels use already."""


Keys: TypeAlias = tuple[tuple[object, ...], ...]
"""Identifies an accumulator: a key for each loop that is unrolled or in lanes."""


@dataclass(frozen=True)
class State:
    """How far a sparse operand is resolved: levels done, position there, value when all are."""

    levels: int = 0
    position: Expr = _ROOT
    value: Expr | None = None


@dataclass(frozen=True)
class Lanes:
    """The innermost pseudo-loop of a strip: ``vectors`` x ``lanes`` elements from ``base``.

    ``leader`` is the operand whose compressed level the strip runs along; base is a position there.
    """

    axis: Axis
    base: Expr
    vectors: int
    lanes: int
    leader: str | None = None
    end: Expr | None = None
    """On a GPU: coordinates from here on are not there, which each thread asks for itself; None: all are."""
    last: Expr | None = None
    """Where the last vector begins, if it overlaps the one before; None: behind it."""


@dataclass(frozen=True)
class Piece:
    """What a part of a merge path, or a team of a GPU, has of the outer iteration that runs: positions of the level below.

    ``part`` is the part that goes on with an iteration, from ``begin`` on, that an earlier one has started; None:
    it has started the iteration itself, from its first position on. On a GPU a team has a piece of an iteration instead;
    ``whole`` says whether it is all of it, where outputs are shared otherwise.
    """

    end: Expr
    begin: Expr | None = None
    part: Expr | None = None
    whole: Expr | None = None


@dataclass
class Accumulators:
    """Registers that hold partial results: (output slot, replica) -> one register a state component."""

    declarations: list[Stmt]
    first: Expr | None = None
    """Where arguments are met in ascending order: the first of them, or -1 where there is none."""
    registers: dict[tuple[Keys, Keys], tuple[Var, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Env:
    """What is known at a point of the nest."""

    coordinates: Mapping[str, Expr]
    states: Mapping[str, State]
    accumulators: Accumulators | None = None
    slot: Keys = ()
    replica: Keys = ()
    skips_output: bool = False
    reduced_outside: bool = False
    shared_output: bool = False
    inside: frozenset[str] = frozenset()
    """Diagonals along which lanes are known to stay inside the matrix, by name."""
    piece: Piece | None = None
    """Where threads share outer iterations; None: each is one thread's alone."""
    staged: tuple[Expr, Mapping[Buffer, Buffer]] | None = None
    """The first position that the team has fetched, and what of: buffer -> the buffer that keeps it."""
    term: Expression | None = None
    """What is summed here, where other factors are multiplied later; None: the whole right-hand side."""


Loop = Axis | Lanes


def sizes_of(plan: Plan) -> tuple[dict[str, Expr], dict[str, Expr]]:
    """Return extents of indices and factors of splits: numbers where the plan fixes them, else sizes of the kernel."""
    bounds = plan.schedule.bounds
    extents: dict[str, Expr] = {
        index: Const(bounds[index]) if index in bounds else Var(f"N_{index}")
        for index in plan.assignment.indices
    }
    splits: dict[str, Expr] = {
        index: Const(size) if size <= CONSTANT_SPLIT else Var(f"s_{index}")
        for index, size in plan.schedule.splits.items()
    }
    return extents, splits


class Nest(abc.ABC):
    """Names, statements and operands of one kernel under construction."""

    def __init__(self, plan: Plan, waits: bool = False) -> None:
        self.plan = plan
        self.waits = waits
        """Results are collected in ``work``, because the output's elements would round partial ones."""
        self.rounds_partial = False
        self.assignment = plan.assignment
        self.schedule = plan.schedule
        self.monoid = plan.assignment.monoid
        plan.check()
        followed = {axis for format in plan.formats.values() for axis in format.followed}
        located, named = plan.schedule.located, plan.assignment.selector
        self.named = {located: named} if located is not None and named is not None else {}
        """Operands whose entries are found by their numbers -> where these are read."""
        followed |= {plan.formats[name].axes[-1] for name in self.named}
        every = plan.schedule.loops(plan.assignment.indices)
        self.loops = tuple(axis for axis in every if axis not in followed)
        self.waited_for = {
            above.axis.mode
            for format in plan.formats.values()
            for depth, level in enumerate(format.levels)
            if level.single and level.axis.mode in self.assignment.free_indices
            for above in format.levels[:depth]
        }
        for name, holds in self.named.items():
            if plan.formats[name].axes[-1].mode in self.assignment.free_indices:
                self.waited_for |= set(holds.indices)
        self.diagonals = tuple(axis for axis in every if axis.part == "diagonal")
        for axis in self.diagonals:
            if axis.mode in self.assignment.free_indices:
                self.waited_for |= {axis.mode, axis.along}
        self.elem = Type(plan.elem)
        self.block: list[Stmt] = []
        self.names: dict[str, int] = {}
        self.joined: dict[Expr, Expr] = {}
        self.copies = 0
        self.initial: float | None = None
        self.extents, self.splits = sizes_of(plan)
        self.counts: dict[tuple[str, int], Var] = {}
        self.index_elem = ir.integer_elem(plan.elem)
        output_elem = plan.halves.get(self.assignment.output.tensor, plan.elem)
        self.output = Buffer(
            "out", self.index_elem if self.assignment.argument else output_elem, writable=True
        )
        self.work = Buffer("work", plan.elem, writable=True)
        self.arrays = {
            name: [
                {
                    array: Buffer(f"{name}{place}_{array}", width)
                    for array, width in zip(level.arrays, widths, strict=False)
                }
                for place, (level, widths) in enumerate(zip(format.levels, plan.widths[name], strict=False))
            ]
            for name, format in plan.formats.items()
        }
        self.permutations = {
            mode: (name, Buffer(f"{name}_{mode}_order", plan.widths[name][-1][0]))
            for name, format in plan.formats.items()
            for mode in format.orders
        }
        self.threads = self.schedule.threads
        self.visited = {loop: Buffer(f"{loop}_visited", "i32") for loop in self.schedule.visits}
        read = dict.fromkeys(access.tensor for access in self.assignment.accesses)
        elems = {**plan.halves, **dict.fromkeys(self.assignment.chosen, self.index_elem)}
        self.values = {name: Buffer(f"{name}_values", elems.get(name, plan.elem)) for name in read}
        self.sources = {
            name: Buffer(f"{name}_source", plan.source_elem)
            for name in plan.formats
            if plan.uses_source(name)
        }
        self.places = {
            name: Buffer(f"{name}_place", plan.source_elem) for name in self.named if name in plan.renumbered
        }
        self.given = frozenset(self._argument_names())
        """Names of buffers and sizes, which no variable may have."""
        self.watch = plan.padded and not plan.masked
        parallel = self.schedule.parallel
        self.private = bool(
            parallel
            and parallel.reduction == "private"
            and self.has_shared_outputs(Axis.from_name(parallel.loop))  # type: ignore[arg-type]
        )

    def _argument_names(self) -> Iterator[str]:
        for name, format in self.plan.formats.items():
            for place, arrays in enumerate(self.arrays[name]):
                yield f"n_{name}{place}"
                yield from (buffer.name for buffer in arrays.values())
            yield from (f"{name}_{mode}_order" for mode in format.orders)
        for buffers in (self.values, self.sources, self.places, self.visited):
            yield from (buffer.name for buffer in buffers.values())
        for sizes in (self.extents, self.splits):
            yield from (size.name for size in sizes.values() if isinstance(size, Var))

    @abc.abstractmethod
    def emit(self, env: Env, loops: tuple[Loop, ...]) -> None:
        """Emit the nest of ``loops`` at this point."""

    def buffers(self) -> tuple[Buffer, ...]:
        """Buffers in the order of the call."""
        listed: list[Buffer] = [self.output]
        for name in self.assignment.operands:
            for arrays in self.arrays.get(name, ()):
                listed.extend(arrays.values())
            listed.extend(buffer for owner, buffer in self.permutations.values() if owner == name)
            if name in self.values:
                listed.append(self.values[name])
            if name in self.sources:
                listed.append(self.sources[name])
            if name in self.places:
                listed.append(self.places[name])
        listed.extend(self.visited.values())
        if self.private or self.waits:
            listed.append(self.work)
        names = [buffer.name for buffer in listed]
        levels = [
            f"{name}{k}" for name, format in self.plan.formats.items() for k in range(len(format.levels))
        ]
        if len(set(names)) < len(names) or len(set(levels)) < len(levels):
            raise ScheduleError(
                f"the operands {', '.join(self.assignment.operands)} give two arrays of a kernel the same name; "
                "call one of them differently"
            )
        return tuple(listed)

    def sizes(self) -> tuple[Var, ...]:
        """Sizes in the order of the call: extents, run-time splits, numbers of positions."""
        given = (*self.extents.values(), *self.splits.values(), *self.counts.values())
        return tuple(size for size in given if isinstance(size, Var))

    def output_size(self) -> Expr:
        """Number of output elements."""
        first, *others = indices = self.assignment.output.indices
        size: Expr = Const(1)
        if self.plan.keep_pattern:
            indices = tuple(others) if first in self.plan.formats else ()
            size = self.counts.setdefault(("", 0), Var("n_entries"))
        for index in indices:
            size = size * self.extents[index]
        return size

    def count(self, operand: str, level: int) -> Var:
        """Return the size that holds the number of positions of a level."""
        return self.counts.setdefault((operand, level), Var(f"n_{operand}{level}"))

    # -- who runs what: on a CPU a thread runs all of an iteration ---------------------------------

    def handed(self, loop: Axis) -> ir.Workers | ir.Blocks | None:
        """Who gets the iterations of a loop: threads, or nobody else."""
        parallel = self.schedule.parallel
        if parallel is None or parallel.loop != loop.name:
            return None
        return ir.Workers("dynamic" if parallel.policy == "merge-path" else parallel.policy)

    def vectors_of(self, strip: Lanes) -> Iterator[tuple[Expr, tuple[object, ...]]]:
        """Yield where each vector of a strip lies, and the key of its accumulator."""
        for number in range(strip.vectors):
            start = strip.base + number * strip.lanes
            if strip.last is not None and number == strip.vectors - 1:
                start = strip.last
            yield Ramp(start, strip.lanes) if strip.lanes > 1 else start, ("lanes", number, strip.lanes)

    @contextmanager
    def there(self, place: Expr, end: Expr | None) -> Iterator[None]:
        """Emit what follows under the condition that ``place`` lies before ``end``; None: it does."""
        assert end is None
        yield

    def by_one_thread(self, env: Env, statement: Stmt) -> Stmt:
        """Return a statement that one thread runs."""
        return statement

    def combine_threads(self, registers: tuple[Var, ...]) -> list[Stmt]:
        """Return what combines the state that each thread of a team has: nothing for one thread."""
        return []

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
        stem = re.sub(r"\W", "_", stem)
        number = self.names.get(stem, int(stem in RESERVED))
        while (name := f"{stem}_{number}" if number else stem) in self.given:
            number += 1
        self.names[stem] = number + 1
        return Var(name, type)

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

    def extent(self, axis: Axis) -> Expr:
        """Number of coordinates of an axis."""
        along = self.extents.get(axis.along, Const(1))
        return axis.extent(self.extents[axis.mode], self.split(axis.mode), along)  # type: ignore[no-any-return]

    def has_shared_outputs(self, loop: Axis) -> bool:
        """Whether iterations of ``loop`` meet at the same output elements."""
        if loop.mode not in self.assignment.free_indices:
            return True
        return any(
            level.axis == loop and (not level.unique or loop.part in ("slot", "diagonal"))
            for name, format in self.plan.formats.items()
            for level in format.levels
            if not self.has_own_outputs(name)
        )

    def has_own_outputs(self, operand: str) -> bool:
        """Whether the output holds one element for each position of ``operand``, which thus never meet."""
        return self.plan.keep_pattern and operand == next(iter(self.plan.formats))

    def linear(
        self, access: Access, coordinates: Mapping[str, Expr], extents: Mapping[str, Expr] | None = None
    ) -> Expr:
        """Linear index of a dense tensor, row-major unless it is column-major."""
        indices, extents = access.indices, extents or self.extents
        if access.tensor in self.plan.column_major:
            indices = indices[::-1]
        first, *others = indices
        position = coordinates[first]
        for index in others:
            position = position * extents[index] + coordinates[index]
        return position

    def stored(self, env: Env, name: str) -> tuple[Expr, Expr]:
        """First and last position of an operand's next level, which is compressed, below this point."""
        state = env.states[name]
        level, arrays = self.plan.formats[name].levels[state.levels], self.arrays[name][state.levels]
        lo, hi = level.bounds(arrays, state.position)
        if env.piece is not None and state.levels == 1 and name == next(iter(self.plan.formats)):
            begin, end = env.piece.begin, env.piece.end
            return (lo, ir.smaller(hi, end)) if begin is None else (begin, end)
        return lo, hi

    def range_end(self, env: Env, axis: Axis) -> Expr:
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
        return self.extent(axis)

    def bind(
        self,
        env: Env,
        axis: Axis,
        value: Expr,
        then: Callable[[Env], None],
        guard: bool = False,
        stored: bool = False,
    ) -> None:
        """Bind a coordinate, resolve what it makes known and go on with ``then``.

        Args:
            guard: whether both parts of a split index may lead past its end, so that a condition is needed.
            stored: whether both are parts of one entry's coordinate.
        """
        if axis.part == "whole":
            self.place(env, axis.mode, value, then)
            return
        env = replace(env, coordinates={**env.coordinates, axis.name: value})
        outer, inner = env.coordinates.get(f"{axis.mode}1"), env.coordinates.get(f"{axis.mode}0")
        if axis.part not in ("outer", "inner") or outer is None or inner is None:
            self.follow(env, then)
            return
        joined = join(outer, inner, self.split(axis.mode))
        if stored:
            self.joined[joined] = self.extents[axis.mode]
        whole = self.let(axis.mode, joined)
        if guard and axis.mode not in self.plan.exact:
            with self.scope(lambda body: If(ir.compare("lt", whole, self.extents[axis.mode]), body)):
                self.place(env, axis.mode, whole, then)
            return
        self.place(env, axis.mode, whole, then)

    def place(self, env: Env, mode: str, place: Expr, then: Callable[[Env], None]) -> None:
        """Bind an index by the place where it is stored: its coordinate, unless a format permutes it."""
        bound = {mode: place}
        if mode in self.permutations:
            bound = {f"{mode}'": place, mode: self.let(mode, self.permutations[mode][1][place])}
        self.follow(replace(env, coordinates={**env.coordinates, **bound}), then)

    def inside(self, axis: Axis, first: Expr, width: Expr | int) -> Expr:
        """Whether ``width`` coordinates from ``first`` on, reached along a diagonal, are coordinates of the mode."""
        ends = ir.compare("le", first + width, self.extents[axis.mode])
        return ir.both(ir.compare("le", Const(0), first), ends)

    def follow(self, env: Env, then: Callable[[Env], None]) -> None:
        """Bind what a diagonal and the index along it determine, resolve levels and go on with ``then``."""
        for axis in self.diagonals:
            number, along = env.coordinates.get(axis.name), env.coordinates.get(axis.along)
            if number is None or along is None or axis.mode in env.coordinates:
                continue
            whole = self.let(axis.mode, off_diagonal(number, along, self.extents[axis.along]))
            if whole.type.lanes == 1:
                with self.scope(lambda body, whole=whole, axis=axis: If(self.inside(axis, whole, 1), body)):  # type: ignore[misc]
                    self.place(env, axis.mode, whole, then)
            elif axis.name in env.inside:
                self.place(env, axis.mode, whole, then)
            else:
                # Lanes that leave the matrix hold padding: they may read any element that is there.
                last = self.extents[axis.mode] - 1
                some = ir.compute("min", ir.compute("max", whole, Const(0)), last)
                self.place(env, axis.mode, some, then)
            return
        self.resolve(env, then)

    def resolve(self, env: Env, then: Callable[[Env], None]) -> None:
        """Resolve every level whose parents and coordinate are known, then go on with ``then``."""
        for name, format in self.plan.formats.items():
            state = env.states[name]
            while state.levels < len(format.levels):
                level = format.levels[state.levels]
                arrays = self.arrays[name][state.levels]
                if name in self.named and state.levels + 1 == len(format.levels):
                    if all(index in env.coordinates for index in self.named[name].indices):
                        self.locate(env, name, then)
                        return
                    break
                if level.single:
                    env = replace(env, states={**env.states, name: State(state.levels + 1, state.position)})
                    held = self.fetched(
                        env, level.coordinate(arrays, state.position, state.position, self.extent(level.axis))
                    )
                    coordinate = self.let(level.axis.name, held)
                    known = env.coordinates.get(level.axis.name)
                    if known is None:
                        self.bind(env, level.axis, coordinate, then)
                        return
                    env = replace(env, skips_output=True)
                    same = ir.compare("eq", coordinate, known)
                    with self.scope(lambda body, same=same: If(same, body)):  # type: ignore[misc]
                        self.resolve(env, then)
                    return
                permuted = level.axis.part == "whole" and level.axis.mode in self.permutations
                bound = env.coordinates.get(f"{level.axis.mode}'" if permuted else level.axis.name)
                if bound is None:
                    break
                coordinate = bound
                if level.full:
                    position = level.locate({}, state.position, coordinate, self.extent(level.axis))
                    state = State(state.levels + 1, self.let(f"{name.lower()}p", position))
                    env = replace(env, states={**env.states, name: state})
                    continue
                if coordinate.type.lanes > 1 or state.position.type.lanes > 1:
                    raise ScheduleError(
                        f"{self.schedule.tile}: lanes reach {level.axis.name}, which is compressed in {name} "
                        f"({format}); they run over dense levels only"
                    )
                place = level.find(arrays, state.position, coordinate)
                if place is None:
                    listed = level.coordinate_array
                    if listed is None or not (level.unique and level.ordered):
                        raise ScheduleError(
                            f"{level} of {name} cannot be searched; put a loop {level.axis.name} where it is stored"
                        )
                    place = ir.SearchSorted(arrays[listed], *self.stored(env, name), coordinate)
                found = self.fresh(f"{name.lower()}p")
                self.block.append(Let(found, place))
                env = replace(
                    env, states={**env.states, name: State(state.levels + 1, found)}, skips_output=True
                )
                with self.scope(lambda body, found=found: If(ir.compare("le", Const(0), found), body)):  # type: ignore[misc]
                    self.resolve(env, then)
                return
            if state.levels == len(format.levels) and state.value is None:
                if self.plan.masked and format.padded:
                    present = ir.compare("lt", Const(0), self.sources[name][state.position])
                    valued = replace(state, value=self.stored_value(name, state.position))
                    env = self.numbered(
                        replace(env, states={**env.states, name: valued}, skips_output=True), name
                    )
                    with self.scope(lambda body, present=present: If(present, body)):  # type: ignore[misc]
                        self.resolve(env, then)
                    return
                held = self.fetched(env, self.stored_value(name, state.position))
                value = self.let(f"{name.lower()}v", held)
                env = replace(env, states={**env.states, name: replace(state, value=value)})
                env = self.numbered(env, name)
        then(env)

    def locate(self, env: Env, name: str, then: Callable[[Env], None]) -> None:
        """Resolve the last level of an operand by the number of its entry, if there is one below this point."""
        holds, state = self.named[name], env.states[name]
        level, arrays = self.plan.formats[name].levels[state.levels], self.arrays[name][state.levels]
        number = self.let(f"{name.lower()}e", self.values[holds.tensor][self.linear(holds, env.coordinates)])
        lo, hi = self.stored(env, name)

        def at(position: Expr) -> None:
            with self.scope(lambda body: If(self.between(lo, position, hi), body)):
                inner = replace(
                    env,
                    coordinates={**env.coordinates, name: number},
                    states={**env.states, name: State(state.levels + 1, position)},
                    skips_output=True,
                )
                coordinate = level.coordinate(arrays, state.position, position, self.extent(level.axis))
                self.bind(inner, level.axis, self.let(level.axis.name, coordinate), then)

        if name not in self.places:
            at(number)
            return
        entries = self.counts.setdefault(("", 0), Var("n_entries"))
        with self.scope(lambda body: If(self.between(Const(0), number, entries), body)):
            at(self.let(f"{name.lower()}p", self.places[name][number]))

    @staticmethod
    def between(lo: Expr, value: Expr, hi: Expr) -> Expr:
        """Whether ``lo`` <= ``value`` < ``hi``."""
        return ir.both(ir.compare("le", lo, value), ir.compare("lt", value, hi))

    def stored_value(self, name: str, position: Expr) -> Expr:
        """Value of an operand at a position; any where only its pattern is read."""
        return self.values[name][position] if name in self.values else Const(1.0, self.elem)

    def fetched(self, env: Env, expr: Expr) -> Expr:
        """Return an expression that reads what the team has fetched from where it is kept."""
        if env.staged is None:
            return expr
        at, kept = env.staged
        known: dict[Expr, Expr] = {
            load: kept[load.buffer][load.index - at] for load in ir.loads(expr) if load.buffer in kept
        }
        return ir.substituted(expr, known)

    def numbered(self, env: Env, name: str) -> Env:
        """Bind the number of the entry of an operand that is resolved, where somebody asks for it."""
        if name not in self.assignment.counted or name in self.named:
            return env
        position = env.states[name].position
        number = self.sources[name][position] - 1 if name in self.sources else position
        return replace(env, coordinates={**env.coordinates, name: self.let(f"{name.lower()}e", number)})

    def unrolled(self, loop: Axis) -> bool:
        """Whether the loop is unrolled completely."""
        return self.schedule.unrolls.get(loop.name) == 0
