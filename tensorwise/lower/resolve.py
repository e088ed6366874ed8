"""Coordinates and positions: a coordinate is bound, then every level whose parents and coordinate are known is resolved.

::

    bind i = 3   ->   U(i): position 3, by arithmetic        S(k): k = A2_crd[position], the only coordinate there
                      C(i): p = search(A1_crd, 3); if 0 <= p: ...

The caller's ``then`` emits what follows, under the conditions of resolving: the resolver does not know the loops.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from tensorwise.lower import ir
from tensorwise.lower.builder import Builder
from tensorwise.lower.env import Env, State
from tensorwise.lower.ir import Const, Expr, If, Let
from tensorwise.lower.operands import Operands
from tensorwise.lower.plan import Plan
from tensorwise.tensor.remap import Axis, join, off_diagonal

Then: TypeAlias = Callable[[Env], None]
"""Emits what follows where more is known."""


class Resolver:
    """Binds coordinates and resolves levels of one kernel.

    Attributes:
        joined: coordinates put together from two parts that stored entries have -> the extent (see ``LoweredFunction``).
    """

    def __init__(self, plan: Plan, operands: Operands, builder: Builder) -> None:
        self.plan, self.operands, self.builder = plan, operands, builder
        self.plan = plan
        self.joined: dict[Expr, Expr] = {}

    def position_range(self, env: Env, name: str) -> tuple[Expr, Expr]:
        """Return first and past-the-last position of an operand's next level, which is not full, below this point."""
        state = env.states[name]
        level, arrays = self.plan.formats[name].levels[state.levels], self.operands.arrays[name][state.levels]
        lo, hi = level.bounds(arrays, state.position)
        if env.piece is not None and state.levels == 1 and name == next(iter(self.plan.formats)):
            begin, end = env.piece.begin, env.piece.end
            return (lo, ir.smaller(hi, end)) if begin is None else (begin, end)
        return lo, hi

    def dense_end(self, env: Env, axis: Axis) -> Expr:
        """Return the end of the dense range of ``axis``, tightened by the other part where that is bound.

        Tightening makes every coordinate that a dense loop reaches valid, so that no guard is
        needed behind it.
        """
        extent, size = self.operands.extents[axis.mode], self.operands.split(axis.mode)
        outer, inner = env.coordinates.get(f"{axis.mode}1"), env.coordinates.get(f"{axis.mode}0")
        exact = axis.mode in self.plan.exact
        if axis.part == "inner" and outer is not None:
            return size if exact else ir.smaller(size, extent - outer * size)
        if axis.part == "outer" and inner is not None and not exact:
            return (extent - inner + (size - 1)) // size
        return self.operands.extent(axis)

    # -- coordinates ------------------------------------------------------------------------------

    def bind(
        self, env: Env, axis: Axis, value: Expr, then: Then, guard: bool = False, stored: bool = False
    ) -> None:
        """Bind a coordinate, resolve what it makes known and go on with ``then``.

        Args:
            guard: whether both parts of a split index may lead past its end, so that a condition is needed.
            stored: whether both are parts of one entry's coordinate.
        """
        if axis.part == "whole":
            self._bind_mode(env, axis.mode, value, then)
            return
        env = replace(env, coordinates={**env.coordinates, axis.name: value})
        outer, inner = env.coordinates.get(f"{axis.mode}1"), env.coordinates.get(f"{axis.mode}0")
        if axis.part not in ("outer", "inner") or outer is None or inner is None:
            self._follow_diagonals(env, then)
            return
        extent = self.operands.extents[axis.mode]
        joined = join(outer, inner, self.operands.split(axis.mode))
        if stored:
            self.joined[joined] = extent
        whole = self.builder.let(axis.mode, joined)
        if guard and axis.mode not in self.plan.exact:
            with self.builder.scope(lambda body: If(ir.compare("lt", whole, extent), body)):
                self._bind_mode(env, axis.mode, whole, then)
            return
        self._bind_mode(env, axis.mode, whole, then)

    def bind_outermost(self, position: Expr, then: Then) -> None:
        """Bind the coordinate at a position of the first operand's outermost level, where no entry is read any more."""
        (name, format), *_ = self.plan.formats.items()
        level, extent = format.levels[0], self.operands.extent(format.levels[0].axis)
        if not level.full:
            coordinate = level.coordinate(self.operands.arrays[name][0], Const(0), position, extent)
        else:
            coordinate = position
        done = {name: State(len(f.levels), value=Const(0)) for name, f in self.plan.formats.items()}
        self.bind(Env({}, done), level.axis, self.builder.let(level.axis.name, coordinate), then)

    def _bind_mode(self, env: Env, mode: str, place: Expr, then: Then) -> None:
        """Bind an index by the place where it is stored: its coordinate, unless a format permutes it."""
        bound = {mode: place}
        permutations = self.operands.permutations
        if mode in permutations:
            bound = {f"{mode}'": place, mode: self.builder.let(mode, permutations[mode][1][place])}
        self._follow_diagonals(replace(env, coordinates={**env.coordinates, **bound}), then)

    def is_inside(self, axis: Axis, first: Expr, width: Expr | int) -> Expr:
        """Whether ``width`` coordinates from ``first`` on, reached along a diagonal, are coordinates of the mode."""
        ends = ir.compare("le", first + width, self.operands.extents[axis.mode])
        return ir.both(ir.compare("le", Const(0), first), ends)

    def _follow_diagonals(self, env: Env, then: Then) -> None:
        """Bind what a diagonal and the index along it determine, resolve levels and go on with ``then``."""
        extents = self.operands.extents
        for axis in self.plan.diagonals:
            number, along = env.coordinates.get(axis.name), env.coordinates.get(axis.along)
            if number is None or along is None or axis.mode in env.coordinates:
                continue
            whole = self.builder.let(axis.mode, off_diagonal(number, along, extents[axis.along]))
            if whole.type.lanes == 1:
                with self.builder.scope(
                    lambda body, whole=whole, axis=axis: If(self.is_inside(axis, whole, 1), body)  # type: ignore[misc]
                ):
                    self._bind_mode(env, axis.mode, whole, then)
            elif axis.name in env.inside:
                self._bind_mode(env, axis.mode, whole, then)
            else:
                # Lanes that leave the matrix hold padding: they may read any element that is there.
                last = extents[axis.mode] - 1
                some = ir.compute("min", ir.compute("max", whole, Const(0)), last)
                self._bind_mode(env, axis.mode, some, then)
            return
        self.resolve(env, then)

    # -- levels -----------------------------------------------------------------------------------

    def resolve(self, env: Env, then: Then) -> None:
        """Resolve every level whose parents and coordinate are known, then go on with ``then``."""
        for name, format in self.plan.formats.items():
            state = env.states[name]
            while state.levels < len(format.levels):
                level = format.levels[state.levels]
                if name in self.plan.selected and state.levels + 1 == len(format.levels):
                    if all(index in env.coordinates for index in self.plan.selected[name].indices):
                        self._resolve_by_number(env, name, then)
                        return
                    break
                if level.single:
                    self._resolve_single(env, name, then)
                    return
                permuted = level.axis.part == "whole" and level.axis.mode in self.operands.permutations
                coordinate = env.coordinates.get(f"{level.axis.mode}'" if permuted else level.axis.name)
                if coordinate is None:
                    break
                if not level.full:
                    self._resolve_by_search(env, name, coordinate, then)
                    return
                position = level.locate({}, state.position, coordinate, self.operands.extent(level.axis))
                state = State(state.levels + 1, self.builder.let(f"{name.lower()}p", position))
                env = replace(env, states={**env.states, name: state})
            if state.levels == len(format.levels) and state.value is None:
                if self.plan.masked and format.padded:
                    self._resolve_masked(env, name, then)
                    return
                held = read_staged(env, self.operands.value_at(name, state.position))
                value = self.builder.let(f"{name.lower()}v", held)
                env = replace(env, states={**env.states, name: replace(state, value=value)})
                env = self._bind_number(env, name)
        then(env)

    def _resolve_single(self, env: Env, name: str, then: Then) -> None:
        """Resolve a level that has one coordinate at the parent's position: bind it, or compare it with the bound one."""
        state = env.states[name]
        level, arrays = self.plan.formats[name].levels[state.levels], self.operands.arrays[name][state.levels]
        env = replace(env, states={**env.states, name: State(state.levels + 1, state.position)})
        held = level.coordinate(arrays, state.position, state.position, self.operands.extent(level.axis))
        coordinate = self.builder.let(level.axis.name, read_staged(env, held))
        known = env.coordinates.get(level.axis.name)
        if known is None:
            self.bind(env, level.axis, coordinate, then)
            return
        env = replace(env, skips_output=True)
        with self.builder.scope(lambda body: If(ir.compare("eq", coordinate, known), body)):
            self.resolve(env, then)

    def _resolve_by_search(self, env: Env, name: str, coordinate: Expr, then: Then) -> None:
        """Resolve a level that is not full: what follows happens where the coordinate is found."""
        state, format = env.states[name], self.plan.formats[name]
        level, arrays = format.levels[state.levels], self.operands.arrays[name][state.levels]
        place = level.find(arrays, state.position, coordinate)
        if place is None:
            listed = level.coordinate_array
            assert listed is not None  # as it is searchable
            place = ir.SearchSorted(arrays[listed], *self.position_range(env, name), coordinate)
        found = self.builder.fresh(f"{name.lower()}p")
        self.builder.append(Let(found, place))
        env = replace(env, states={**env.states, name: State(state.levels + 1, found)}, skips_output=True)
        with self.builder.scope(lambda body: If(ir.compare("le", Const(0), found), body)):
            self.resolve(env, then)

    def _resolve_masked(self, env: Env, name: str, then: Then) -> None:
        """Read the value of an operand where the source map says that its position holds an entry."""
        state = env.states[name]
        present = ir.compare("lt", Const(0), self.operands.sources[name][state.position])
        valued = replace(state, value=self.operands.value_at(name, state.position))
        env = self._bind_number(replace(env, states={**env.states, name: valued}, skips_output=True), name)
        with self.builder.scope(lambda body: If(present, body)):
            self.resolve(env, then)

    def _resolve_by_number(self, env: Env, name: str, then: Then) -> None:
        """Resolve the last level of an operand by the number of its entry, if there is one below this point."""
        holds, state = self.plan.selected[name], env.states[name]
        level, arrays = self.plan.formats[name].levels[state.levels], self.operands.arrays[name][state.levels]
        index = self.operands.index_of(holds, env.coordinates)
        number = self.builder.let(f"{name.lower()}e", self.operands.values[holds.tensor][index])
        lo, hi = self.position_range(env, name)

        def resolve_at(position: Expr) -> None:
            with self.builder.scope(lambda body: If(_is_between(lo, position, hi), body)):
                inner = replace(
                    env,
                    coordinates={**env.coordinates, name: number},
                    states={**env.states, name: State(state.levels + 1, position)},
                    skips_output=True,
                )
                extent = self.operands.extent(level.axis)
                coordinate = level.coordinate(arrays, state.position, position, extent)
                self.bind(inner, level.axis, self.builder.let(level.axis.name, coordinate), then)

        if name not in self.operands.places:
            resolve_at(number)
            return
        entries = self.operands.num_entries()
        with self.builder.scope(lambda body: If(_is_between(Const(0), number, entries), body)):
            resolve_at(self.builder.let(f"{name.lower()}p", self.operands.places[name][number]))

    def _bind_number(self, env: Env, name: str) -> Env:
        """Bind the number of the entry of an operand that is resolved, where the einsum reads it."""
        if name not in self.plan.assignment.counted or name in self.plan.selected:
            return env
        number = self.operands.entry_at(name, env.states[name].position)
        return replace(
            env, coordinates={**env.coordinates, name: self.builder.let(f"{name.lower()}e", number)}
        )


def read_staged(env: Env, expr: Expr) -> Expr:
    """Return an expression that reads what the team has fetched from where it is kept."""
    if env.staged is None:
        return expr
    at, kept = env.staged
    known: dict[Expr, Expr] = {
        load: kept[load.buffer][load.index - at] for load in ir.loads(expr) if load.buffer in kept
    }
    return ir.substituted(expr, known)


def _is_between(lo: Expr, value: Expr, hi: Expr) -> Expr:
    """Whether ``lo`` <= ``value`` < ``hi``."""
    return ir.both(ir.compare("le", lo, value), ir.compare("lt", value, hi))
