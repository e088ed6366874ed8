"""The slow interpreter: the oracle of the C printer, and a detector of races.

It executes the loop IR with NumPy scalars. Parallel loops run in shuffled chunks on imaginary
threads; every element of a writable buffer remembers which thread wrote it in the current
parallel loop, so that an update that another thread could interleave with is reported.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np

from tensorwise.codegen import ir

DTYPES: Final = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}
IMAGINARY_THREADS: Final = 5


class RaceError(AssertionError):
    """Two threads of a parallel loop touched the same element, and one of them wrote."""


def interpret(
    kernel: ir.Kernel,
    buffers: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    rng: np.random.Generator,
) -> None:
    """Run ``kernel`` on one-dimensional ``buffers``; writable ones are changed in place.

    Raises:
        RaceError: a parallel loop has a race.
        IndexError: an access lies outside its buffer.
    """
    machine = _Machine(buffers, {**sizes, "threads": IMAGINARY_THREADS}, rng)
    with np.errstate(all="ignore"):
        machine.block(kernel.body)


class _Machine:
    def __init__(
        self, buffers: Mapping[str, np.ndarray], names: dict[str, Any], rng: np.random.Generator
    ) -> None:
        self.buffers = buffers
        self.names: dict[str, Any] = {**names, "thread": 0}
        self.rng = rng
        self.writers: dict[tuple[str, int], int] | None = None

    def block(self, block: ir.Block) -> None:
        for statement in block:
            self.statement(statement)

    def statement(self, statement: ir.Stmt) -> None:
        match statement:
            case ir.For(var=var, step=step, body=body, bind=bind):
                lo, hi = int(self.value(statement.lo)), int(self.value(statement.hi))
                if bind is not None:
                    self.parallel(statement, lo, hi)
                    return
                for number in range(lo, hi, step):
                    self.names[var.name] = number
                    self.block(body)
            case ir.If(cond=cond, body=body):
                if self.value(cond):
                    self.block(body)
            case ir.Let(var=var, value=value) | ir.Set(var=var, value=value) | ir.Reg(var=var, init=value):
                self.names[var.name] = self.value(value)
            case ir.Store(buffer=buffer, index=index, value=value):
                places, result = self.places(index), self.value(value)
                for lane, place in enumerate(places):
                    # Every thread stores the same flag, so that the order does not matter.
                    self.touch(buffer, place, writes=buffer.name != "status")
                    self.buffers[buffer.name][place] = result[lane] if index.type.lanes > 1 else result
            case ir.Reduce(buffer=buffer, index=index, operator=operator, value=value, atomic=atomic):
                places, result = self.places(index), self.value(value)
                for lane, place in enumerate(places):
                    self.touch(buffer, place, writes=not atomic)
                    old = self.buffers[buffer.name][place]
                    new = result[lane] if index.type.lanes > 1 else result
                    self.buffers[buffer.name][place] = apply(operator, (old, new))
            case ir.Prefetch(index=index):
                self.value(index)

    def parallel(self, loop: ir.For, lo: int, hi: int) -> None:
        outside, self.writers = self.writers, {}
        saved = dict(self.names)
        cuts = sorted({lo, hi, *(int(c) for c in self.rng.integers(lo, hi + 1, size=6))}) if hi > lo else []
        chunks = list(pairwise(cuts))
        for place in self.rng.permutation(len(chunks)):
            first, last = chunks[int(place)]
            self.names = {**saved, "thread": int(self.rng.integers(IMAGINARY_THREADS))}
            for number in range(first, last, loop.step):
                self.names[loop.var.name] = number
                self.block(loop.body)
        self.names, self.writers = saved, outside

    def touch(self, buffer: ir.Buffer, place: int, writes: bool) -> None:
        if not 0 <= place < len(self.buffers[buffer.name]):
            raise IndexError(
                f"{buffer.name}[{place}] lies outside its {len(self.buffers[buffer.name])} elements"
            )
        if self.writers is None or not writes:
            return
        thread = self.names["thread"]
        writer = self.writers.setdefault((buffer.name, place), thread)
        if writer != thread:
            raise RaceError(
                f"{buffer.name}[{place}] is written by threads {writer} and {thread} of one parallel loop"
            )

    def places(self, index: ir.Expr) -> list[int]:
        value = self.value(index)
        return [int(place) for place in value] if index.type.lanes > 1 else [int(value)]

    def value(self, expr: ir.Expr) -> Any:
        match expr:
            case ir.Const(value=value, type=type):
                number: Any = value
                scalar = int(number) if type.elem == "i64" else DTYPES[type.elem](number)
                return scalar if type.lanes == 1 else np.full(type.lanes, scalar)
            case ir.Var(name=name):
                return self.names[name]
            case ir.Load(buffer=buffer, index=index):
                loaded = []
                for place in self.places(index):
                    self.touch(buffer, place, writes=False)
                    loaded.append(self.buffers[buffer.name][place])
                if not expr.type.is_float:
                    loaded = [int(element) for element in loaded]
                return np.array(loaded) if index.type.lanes > 1 else loaded[0]
            case ir.Op(name=name, args=args):
                return apply(name, tuple(self.value(argument) for argument in args))
            case ir.Search(buffer=buffer, coordinate=coordinate):
                lo, hi = int(self.value(expr.lo)), int(self.value(expr.hi))
                wanted = int(self.value(coordinate))
                for place in range(lo, hi):
                    self.touch(buffer, place, writes=False)
                    if self.buffers[buffer.name][place] == wanted:
                        return place
                return -1
            case ir.Splat(value=inner, lanes=lanes):
                return np.full(lanes, self.value(inner))
            case ir.Ramp(base=base, lanes=lanes):
                return int(self.value(base)) + np.arange(lanes)
            case ir.Fold(operator=operator, vector=vector):
                lanes_value = self.value(vector)
                result = lanes_value[0]
                for lane in lanes_value[1:]:
                    result = apply(operator, (result, lane))
                return result


_APPLY: Final[dict[str, Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": np.divide,
    "floordiv": lambda a, b: a // b,
    "max": np.maximum,
    "min": np.minimum,
    "neg": lambda a: -a,
    "abs": np.abs,
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "and": lambda a, b: int(bool(a) and bool(b)),
    "or": lambda a, b: int(bool(a) or bool(b)),
    "select": lambda c, a, b: a if c else b,
}


def apply(name: str, arguments: tuple[Any, ...]) -> Any:
    """Apply a named operator to NumPy scalars or vectors."""
    return _APPLY[name](*arguments)
