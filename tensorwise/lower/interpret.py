"""The slow interpreter: the oracle of the C printer, and a detector of races.

It turns every statement of the loop IR into a Python closure over NumPy scalars and runs them.
Parallel loops run in shuffled chunks on imaginary threads; every element of a writable buffer remembers how
and by which thread it was touched in the current parallel loop, so that two threads that meet at an element,
one of them writing, are reported.

A launch of a GPU runs block by block and team by team in shuffled order, the threads of a team one after the other up to
where they meet. What a team has for itself forgets there who touched it; threads that wait for different things are
reported as well.
"""

import operator
from collections.abc import Callable, Generator, Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np

from tensorwise.lower import ir

_NUMBERS: Final[dict[str, Callable[[Any], Any]]] = {
    "f32": np.float32,
    "f64": np.float64,
    "i32": int,
    "i64": int,
}
_NUMPY_CODES: Final = {"f32": "f4", "f64": "f8", "i32": "i4", "i64": "i8", "u16": "u2", "u32": "u4"}
IMAGINARY_THREADS: Final = 5
MOST_CHUNKS: Final = 24
"""Chunks of a parallel loop; a short loop gets a chunk an iteration, so that neighbours may race."""

MOST_BLOCKS: Final = 3
"""Blocks of a grid along each axis, so that a block often gets several iterations."""

Run = Callable[[], None]
Meeting = Generator[tuple[int, Any], Any, None]
"""What a thread runs until it waits for its team: yields (distance, value) of an exchange, (0, None) elsewhere."""
Value = Callable[[], Any]
_READ, _ATOMIC, _WRITE, _MANY = "reads", "updates atomically", "writes", -1


class RaceError(AssertionError):
    """Two threads of a parallel loop touched the same element, and one of them wrote."""


def interpret(
    kernel: ir.LoweredFunction,
    buffers: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    rng: np.random.Generator,
    bounds: np.ndarray | None = None,
) -> bool:
    """Run ``kernel`` on one-dimensional ``buffers``; writable ones are changed in place.

    Returns whether the kernel raised its flag.

    Args:
        bounds: part bounds of balanced parallel loops.

    Raises:
        RaceError: a parallel loop has a race.
        IndexError: an access lies outside its buffer.
    """
    names = {**sizes, ir.THREADS.name: IMAGINARY_THREADS, ir.THREAD.name: 0}
    machine = _Machine(buffers, names, rng, bounds, kernel)
    with np.errstate(all="ignore"):
        machine.block(kernel.body)()
    return machine.flag


class _Machine:
    def __init__(
        self,
        buffers: Mapping[str, np.ndarray],
        names: dict[str, Any],
        rng: np.random.Generator,
        bounds: np.ndarray | None,
        kernel: ir.LoweredFunction,
    ) -> None:
        self.names, self.rng, self.bounds = names, rng, bounds
        kept = {b.name: np.zeros(length, _NUMPY_CODES[b.elem]) for b, length in kernel.scratch}
        self.buffers: dict[str, np.ndarray] = {**buffers, **kept}
        self.own = frozenset(kept)
        self.joined = kernel.joined
        self.flag = False
        self.touched: dict[tuple[str, int], tuple[str, int]] | None = None  # None: not in a parallel loop
        self.touched_own: dict[tuple[str, int], tuple[str, int]] = {}

    # -- statements ---------------------------------------------------------------------------

    def block(self, block: ir.Block) -> Run:
        statements = [self.statement(statement) for statement in block]

        def run() -> None:
            for statement in statements:
                statement()

        return run

    def statement(self, statement: ir.Stmt) -> Run:
        names = self.names
        match statement:
            case ir.For(bind=ir.Workers()):
                return self.parallel(statement)
            case ir.For() if ir.launches(statement):
                return self.launch(statement)
            case ir.For(var=var, step=step):
                lo, hi, body = self.value(statement.lo), self.value(statement.hi), self.block(statement.body)

                def loop() -> None:
                    for number in range(lo(), hi(), step):
                        names[var.name] = number
                        body()

                return loop
            case ir.If(cond=cond):
                holds, body = self.value(cond), self.block(statement.body)
                return lambda: body() if holds() else None
            case ir.Let(var=var, value=expr) | ir.Set(var=var, value=expr) | ir.Reg(var=var, init=expr):
                value = self.value(expr)
                return lambda: operator.setitem(names, var.name, value())
            case ir.BufferStore(buffer=buffer, index=index, value=expr):
                return self.update(buffer, index, expr, _WRITE, lambda _, new: new)
            case ir.Reduce(buffer=buffer, index=index, operator=name, value=expr, atomic=atomic):
                return self.update(buffer, index, expr, _ATOMIC if atomic else _WRITE, OPERATORS[name])
            case ir.RaiseFlag():
                return lambda: setattr(self, "flag", True)
            case ir.PrefetchLine(index=index):
                value = self.value(index)  # evaluated for what it loads; the address may lie anywhere

                def prefetch() -> None:
                    value()

                return prefetch
        raise TypeError(statement)

    def update(
        self, buffer: ir.Buffer, index: ir.Expr, expr: ir.Expr, how: str, combine: Callable[[Any, Any], Any]
    ) -> Run:
        """Combine the elements at ``index`` with a value."""
        place, value, array = self.value(index), self.value(expr), self.buffers[buffer.name]

        def one(at: int, new: Any) -> None:
            self.touch(buffer, at, how)
            array[at] = combine(array[at], new)

        def scalar() -> None:
            one(place(), value())

        def vector() -> None:
            for at, new in zip(place().tolist(), value(), strict=True):
                one(at, new)

        return vector if index.type.lanes > 1 else scalar

    def parallel(self, loop: ir.For) -> Run:
        lo, hi, body = self.value(loop.lo), self.value(loop.hi), self.block(loop.body)
        names, rng = self.names, self.rng
        assert isinstance(loop.bind, ir.Workers)
        balanced = loop.bind.policy == "balanced"

        def run() -> None:
            first, last = lo(), hi()
            if balanced and self.bounds is not None:
                cuts = self.bounds.tolist()
            elif last - first < MOST_CHUNKS:
                cuts = list(range(first, last + 1))
            else:
                cuts = sorted({first, last, *rng.integers(first, last, size=MOST_CHUNKS - 1).tolist()})
            chunks = list(pairwise(cuts))
            outside, self.touched = self.touched, {}
            saved = dict(names)
            for place in rng.permutation(len(chunks)).tolist():
                names.clear()
                names.update(saved)
                names[ir.THREAD.name] = int(rng.integers(IMAGINARY_THREADS))
                begin, end = chunks[place]
                for number in range(begin, end, loop.step):
                    names[loop.var.name] = number
                    body()
            names.clear()
            names.update(saved)
            self.touched = outside

        return run

    # -- GPUs ---------------------------------------------------------------------------------

    def launch(self, statement: ir.For) -> Run:
        """Run all blocks, team by team: teams of a block have nothing to do with each other."""
        dealt = ir.launches(statement)
        body, names, rng = self.meeting(statement), self.names, self.rng
        teams, threads = dealt["x"].teams, dealt["x"].threads

        def run() -> None:
            outside, self.touched = self.touched, {}
            saved = dict(names)
            shape = {f"blocks_{axis}": int(rng.integers(1, MOST_BLOCKS + 1)) for axis in "xy"}
            if "y" not in dealt:
                shape["blocks_y"] = 1
            number = 0
            for place in rng.permutation(shape["blocks_x"] * shape["blocks_y"] * teams).tolist():
                block, team = divmod(place, teams)
                y, x = divmod(block, shape["blocks_x"])
                for name in self.own:
                    poisoned = self.buffers[name]
                    poisoned[:] = np.nan if poisoned.dtype.kind == "f" else 2**15 - 1
                where = {"block_x": x, "block_y": y, "team": team, **shape}
                states = [
                    {**saved, **where, ir.LANE.name: lane, ir.THREAD.name: number + lane}
                    for lane in range(threads)
                ]
                number += threads
                self.run_team(states, [body() for _ in states])
            names.clear()
            names.update(saved)
            self.touched = outside

        return run

    def run_team(self, states: list[dict[str, Any]], running: list[Meeting]) -> None:
        """Run the threads of a team, in shuffled order between two places where they meet."""
        answers: list[Any] = [None] * len(states)
        self.touched_own.clear()
        while True:
            asked: list[tuple[int, Any] | None] = [None] * len(states)
            for lane in self.rng.permutation(len(states)).tolist():
                self.names.clear()
                self.names.update(states[lane])
                try:
                    asked[lane] = running[lane].send(answers[lane])
                except StopIteration:
                    continue
                states[lane] = dict(self.names)
            kinds = {None if one is None else one[0] for one in asked}
            if len(kinds) > 1:
                raise RaceError(f"threads of a team wait for different things: {sorted(map(str, kinds))}")
            (distance,) = kinds
            if distance is None:
                return
            self.touched_own.clear()
            answers = [asked[lane ^ distance][1] for lane in range(len(states))]  # type: ignore[index]

    def meeting(self, statement: ir.Stmt) -> Callable[[], Meeting]:
        """Return what one thread does for a statement, stopping where it meets its team."""
        names = self.names
        match statement:
            case ir.Barrier():

                def wait_at_barrier() -> Meeting:
                    yield 0, None

                return wait_at_barrier
            case ir.ShuffleXor(var=var, value=expr, distance=distance):
                value = self.value(expr)

                def exchange() -> Meeting:
                    names[var.name] = yield distance, value()

                return exchange
            case ir.For(var=var, step=step, bind=bind):
                lo, hi, body = (
                    self.value(statement.lo),
                    self.value(statement.hi),
                    self.together(statement.body),
                )
                axis = bind.axis if isinstance(bind, ir.Blocks) else ""
                teams = bind.teams if isinstance(bind, ir.Blocks) else 1

                def loop() -> Meeting:
                    first, by = lo(), step
                    if axis:
                        team = names["team"] if axis == "x" else 0
                        first += (names[f"block_{axis}"] * teams + team) * step
                        by = names[f"blocks_{axis}"] * teams * step
                    for number in range(first, hi(), by):
                        names[var.name] = number
                        yield from body()

                return loop
            case ir.If(cond=cond):
                holds, inside = self.value(cond), self.together(statement.body)

                def choose() -> Meeting:
                    if holds():
                        yield from inside()

                return choose
        plain = self.statement(statement)

        def alone() -> Meeting:
            plain()
            return
            yield

        return alone

    def together(self, block: ir.Block) -> Callable[[], Meeting]:
        """Return what one thread does for a block."""
        if not any(
            isinstance(s, ir.Barrier | ir.ShuffleXor)
            or (isinstance(s, ir.For) and isinstance(s.bind, ir.Blocks))
            for s in ir.walk(block)
        ):
            plain = self.block(block)

            def alone() -> Meeting:
                plain()
                return
                yield

            return alone
        statements = [self.meeting(statement) for statement in block]

        def run() -> Meeting:
            for statement in statements:
                yield from statement()

        return run

    def touch(self, buffer: ir.Buffer, place: int, how: str) -> None:
        """Check that an element exists and note who touches it."""
        size = len(self.buffers[buffer.name])
        if not 0 <= place < size:
            raise IndexError(f"{buffer.name}[{place}] lies outside its {size} elements")
        if self.touched is None or not buffer.writable:
            return
        thread = self.names[ir.THREAD.name]
        touched, at = (self.touched_own if buffer.name in self.own else self.touched), (buffer.name, place)
        before, toucher = touched.setdefault(at, (how, thread))
        if before == how != _WRITE:
            touched[at] = (how, thread if thread == toucher else _MANY)
        elif toucher == thread:
            touched[at] = (_WRITE, thread)
        else:
            other = "other threads" if toucher == _MANY else f"thread {toucher}"
            raise RaceError(
                f"thread {thread} {how} {buffer.name}[{place}], which {other} {before} in the same parallel loop"
            )

    # -- expressions --------------------------------------------------------------------------

    def value(self, expr: ir.Expr) -> Value:
        """Return a function that evaluates ``expr``: a number, or an array of lanes."""
        names = self.names
        match expr:
            case ir.Const(value=number, type=type):
                plain = _NUMBERS[type.elem](number)
                constant = plain if type.lanes == 1 else np.full(type.lanes, plain)
                return lambda: constant
            case ir.Var(name=name):
                return lambda: names[name]
            case ir.Load():
                return self.load(expr)
            case ir.Op(name=name, args=(left, right)):
                apply, a, b = OPERATORS[name], self.value(left), self.value(right)
                if name == "add" and expr in self.joined:
                    return self.below(self.value(self.joined[expr]), lambda: apply(a(), b()))
                return lambda: apply(a(), b())
            case ir.Op(name="narrow", args=(inner,), type=type) if type.lanes > 1:  # a scalar is repeated
                a = self.value(inner)
                return lambda: np.broadcast_to(a(), type.lanes)
            case ir.Op(name=name, args=args):
                apply, values = OPERATORS[name], [self.value(argument) for argument in args]
                return lambda: apply(*[value() for value in values])
            case ir.SearchSorted():
                return self.search(expr)
            case ir.Splat(value=inner, lanes=lanes):
                a = self.value(inner)
                return lambda: np.full(lanes, a())
            case ir.Ramp(base=base, lanes=lanes):
                a, ramp = self.value(base), np.arange(lanes)
                return lambda: a() + ramp
            case ir.Fold(operator=name, vector=vector):
                a = self.value(vector)
                return lambda: _folded(name, a())
            case ir.Folds(operator=name, vectors=vectors):
                values = [self.value(vector) for vector in vectors]
                return lambda: np.array([_folded(name, value()) for value in values])
        raise TypeError(expr)

    @staticmethod
    def below(extent: Value, value: Value) -> Value:
        """Return what evaluates a coordinate that a kernel says lies below its extent, and checks that."""

        def run() -> Any:
            found = value()
            if np.max(found) >= extent():
                raise IndexError(f"a coordinate put together is {found}, of {extent()}")
            return found

        return run

    def load(self, expr: ir.Load) -> Value:
        buffer, array, place = expr.buffer, self.buffers[expr.buffer.name], self.value(expr.index)
        convert: Callable[[Any], Any] = _NUMBERS[expr.type.elem]
        if expr.type.is_float and buffer.elem == expr.type.elem:
            convert = lambda element: element  # noqa: E731 - an array's own element will do

        def one(at: int) -> Any:
            self.touch(buffer, at, _READ)
            return convert(array[at])

        if expr.index.type.lanes == 1:
            return lambda: one(place())
        return lambda: np.array([one(at) for at in place().tolist()])

    def search(self, expr: ir.SearchSorted) -> Value:
        """One by one: whether the coordinates ascend is the binary search's concern."""
        coordinates: list[int] = self.buffers[expr.buffer.name].tolist()
        lo, hi, wanted = self.value(expr.lo), self.value(expr.hi), self.value(expr.coordinate)

        def run() -> int:
            first, last = lo(), hi()
            if first < last:
                self.touch(expr.buffer, first, _READ)
                self.touch(expr.buffer, last - 1, _READ)
            try:
                return coordinates.index(wanted(), first, last)
            except ValueError:
                return -1

        return run


def _folded(name: str, vector: np.ndarray) -> Any:
    first, *others = vector
    for lane in others:
        first = OPERATORS[name](first, lane)
    return first


OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": np.divide,
    "floordiv": operator.floordiv,
    "max": np.maximum,
    "min": np.minimum,
    "neg": operator.neg,
    "abs": np.abs,
    "nan": lambda a, b: np.nan if a != a or b != b else 0.0,
    "bitand": operator.and_,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "popcount": lambda bits: int(bits).bit_count(),
    "lt": operator.lt,
    "le": operator.le,
    "nle": lambda a, b: np.logical_not(a <= b),
    "eq": operator.eq,
    "ne": operator.ne,
    "and": np.logical_and,
    "or": np.logical_or,
    "select": lambda c, a, b: np.where(c, a, b) if np.ndim(c) else a if c else b,
    "exp": np.exp,
    "narrow": lambda a: a,
}
