"""The LoopTree of a lowered program on given operands, from samples of its iterations.

Row lengths and gathered addresses depend on the operands. So many random paths through the loop nest are sampled in one
vectorised pass. Unknown quantities are means over the paths, each weighted by the iterations it represents. Nothing is run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tensorwise.analysis.loop_tree import BufferAccess, Kind, Leaf, Loop, LoopTree, Node, merged, movement
from tensorwise.errors import InputError
from tensorwise.lower import ir
from tensorwise.lower.interpret import OPERATORS
from tensorwise.lower.program import Program
from tensorwise.program.workload import Workload
from tensorwise.runtime.interpreted import InterpretedKernel

PATHS: Final = 256
"""Walks from the outermost loop to a leaf: a mean row length is known to a tenth where lengths vary by 150 %."""

_COUNTED: Final[dict[str, str]] = {
    **dict.fromkeys(("add", "sub", "neg"), "add"),
    "mul": "mul",
    **dict.fromkeys(("div", "floordiv"), "div"),
    **dict.fromkeys(("max", "min", "abs", "nan", "lt", "le", "nle", "eq", "ne"), "compare"),
    "exp": "math",
}
_LOGIC: Final = ("and", "or", "bitand", "shl", "shr", "popcount")
_Values = dict[str, Any]


def program_tree(program: Program, workload: Workload, rng: np.random.Generator) -> LoopTree:
    """Return the loop tree of all parts of a program on a workload; dense operands count by their shapes.

    Raises:
        InputError: the program is one for a GPU.
    """
    kernels = InterpretedKernel(program, rng).bind(workload).kernels()
    trees = [measured_tree(*kernel, rng) for kernel in kernels]
    return LoopTree(tuple(node for tree in trees for node in tree.nodes))


def measured_tree(
    kernel: ir.LoweredFunction,
    buffers: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    rng: np.random.Generator,
) -> LoopTree:
    """Return the loop tree of ``kernel`` on one-dimensional ``buffers``.

    Vectors become a loop over their lanes, innermost.

    Args:
        buffers: those of coordinates are read; of others only how long they are counts.
        sizes: name -> number; rng: of the paths.

    Raises:
        InputError: the kernel is one for a GPU.
    """
    if any(ir.launches(statement) for statement in kernel.body):
        raise InputError("loop trees are made of programs for CPUs; this one is for a GPU")
    walk = _Walk(buffers, rng)
    given = {**sizes, ir.THREADS.name: 1, ir.THREAD.name: 0}
    start = tuple(
        _Bound(name, lambda _, number=number: np.full(PATHS, number)) for name, number in given.items()
    )
    return LoopTree(walk.block(kernel.body, _Path(start, (), np.ones(PATHS))))


@dataclass(frozen=True)
class _Bound:
    """A name and how its values follow from earlier ones; ``step`` iterations further on for a loop variable."""

    name: str
    value: Callable[..., Any]
    loop: bool = False


@dataclass(frozen=True)
class _Path:
    """Where the walks are: what is bound, the loops around (as places in ``bound``), and the weight of each path."""

    bound: tuple[_Bound, ...]
    loops: tuple[int, ...]
    weights: np.ndarray

    def values(self, further: int = -1) -> _Values:
        """All values; with the loop at place ``further`` one iteration on."""
        values: _Values = {}
        for place, one in enumerate(self.bound):
            values[one.name] = one.value(values, int(place == further)) if one.loop else one.value(values)
        return values

    def bind(self, one: _Bound) -> "_Path":
        return replace(self, bound=(*self.bound, one))


class _Walk:
    def __init__(self, buffers: Mapping[str, np.ndarray], rng: np.random.Generator) -> None:
        self.buffers, self.rng = buffers, rng

    def block(self, block: ir.Block, path: _Path) -> tuple[Node, ...]:
        nodes: list[Node] = []
        run: list[ir.Stmt] = []
        for statement in block:
            match statement:
                case ir.For():  # what its bounds read is read before it
                    nodes += [*self.leaf([*run, statement], path), self.loop(statement, path)]
                    run = []
                case ir.If():
                    nodes += [*self.leaf([*run, statement], path), self.condition(statement, path)]
                    run = []
                case ir.Let(var=var, value=expr) | ir.Reg(var=var, init=expr):
                    run.append(statement)
                    if not expr.type.is_float:
                        path = path.bind(_Bound(var.name, lambda v, expr=expr: self.value(expr, v)))
                case _:
                    run.append(statement)
        return (*nodes, *self.leaf(run, path))

    def loop(self, loop: ir.For, path: _Path) -> Loop:
        values = path.values()
        lo, hi = (self.value(bound, values) for bound in (loop.lo, loop.hi))
        trips = np.maximum(-(-(hi - lo) // loop.step), 0)
        weights = path.weights * trips
        at = (self.rng.random(PATHS) * trips).astype(np.int64)
        onward = np.where(at + 1 < trips, 1, np.where(at > 0, -1, 0))  # from the last iteration back

        def place(values: _Values, further: int) -> np.ndarray:
            return np.asarray(self.value(loop.lo, values) + (at + further * onward) * loop.step)

        inside = _Path(
            (*path.bound, _Bound(loop.var.name, place, True)), (*path.loops, len(path.bound)), weights
        )
        kind: Kind = "parallel" if loop.bind is not None else "serial"
        return Loop(kind, _mean(trips, path.weights), self.block(loop.body, inside))

    def condition(self, statement: ir.If, path: _Path) -> Loop:
        """A condition on numbers that only a run would know is taken to hold."""
        known = not any(part.type.is_float for part in ir.parts(statement.cond))
        found = self.value(statement.cond, path.values()) if known else np.ones(PATHS, np.int64)
        holds = (found != 0).reshape(PATHS, -1).any(axis=1)
        # It is a loop around what it guards: nothing moves with it.
        bound = (*path.bound, _Bound(f"if{len(path.bound)}", lambda v, _: np.zeros(PATHS, np.int64), True))
        inside = _Path(bound, (*path.loops, len(path.bound)), path.weights * holds)
        return Loop("condition", _mean(holds, path.weights), self.block(statement.body, inside))

    def leaf(self, run: Sequence[ir.Stmt], path: _Path) -> list[Node]:
        """What a run of statements computes and touches; nothing where it touches no memory."""
        parts = [part for statement in run for expr in ir.expressions(statement) for part in ir.parts(expr)]
        touching = [s for s in run if isinstance(s, ir.BufferStore | ir.Reduce)]
        places: list[tuple[ir.Buffer, str, ir.Expr]] = [
            *((part.buffer, "read", part.index) for part in parts if isinstance(part, ir.Load)),
            *((part.buffer, "read", part.lo) for part in parts if isinstance(part, ir.SearchSorted)),
            *((s.buffer, "update" if isinstance(s, ir.Reduce) else "write", s.index) for s in touching),
        ]
        lanes = max([1, *(part.type.lanes for part in parts)])
        operations: dict[str, float] = {}
        for part in parts:
            if isinstance(part, ir.Op) and part.name != "narrow":
                name = _operation(part)
                operations[name] = operations.get(name, 0.0) + part.type.lanes / lanes
            elif isinstance(part, ir.Fold | ir.Folds):
                operations["float_add"] = operations.get("float_add", 0.0) + 1.0
        for s in touching:
            if isinstance(s, ir.Reduce):
                name = f"float_{_COUNTED[s.operator]}"
                operations[name] = operations.get(name, 0.0) + s.value.type.lanes / lanes
        if not places:
            return []
        now = path.values()
        onward = [path.values(place) for place in path.loops]
        accesses = [self.access(*place, lanes, path, now, onward) for place in places]
        leaf = Leaf(operations, merged(accesses))
        return [Loop("vectorized", lanes, (leaf,)) if lanes > 1 else leaf]

    def access(
        self,
        buffer: ir.Buffer,
        mode: Any,
        index: ir.Expr,
        lanes: int,
        path: _Path,
        now: _Values,
        onward: Sequence[_Values],
    ) -> BufferAccess:
        here = self.value(index, now)
        first = here if here.ndim == 1 else here[:, 0]
        steps = []
        for values in onward:
            there = self.value(index, values)
            steps.append(movement(first, there if there.ndim == 1 else there[:, 0], path.weights))
        if lanes > 1:
            second = here[:, 1] if here.ndim == 2 else first
            steps.append(movement(first, second, path.weights))
        size = len(self.buffers[buffer.name])
        strides, moves = zip(*steps, strict=True) if steps else ((), ())
        return BufferAccess(buffer.name, mode, buffer.item_bytes, size, strides, moves)

    def value(self, expr: ir.Expr, values: _Values) -> np.ndarray:
        """Evaluate integers along all paths: (paths,), of vectors (paths, lanes).

        A step on may lead out of a row or an array: what is read there is the nearest element.
        """
        match expr:
            case ir.Const(value=number, type=type):
                shape = (PATHS,) if type.lanes == 1 else (PATHS, type.lanes)
                return np.full(shape, int(number))
            case ir.Var(name=name):
                return np.asarray(values[name])
            case ir.Load(buffer=buffer, index=index):
                array = self.buffers[buffer.name]
                if not len(array):
                    return np.zeros(PATHS, np.int64)
                place = np.clip(self.value(index, values), 0, len(array) - 1)
                return np.asarray(array[place], np.int64)
            case ir.Op(name="popcount", args=(inner,)):
                bits = self.value(inner, values)
                return np.array([int(one).bit_count() for one in bits.tolist()])
            case ir.Op(name="select", args=(condition, chosen, other)):
                return np.where(*(self.value(part, values) for part in (condition, chosen, other)))
            case ir.Op(name="floordiv", args=(left, right)):
                return np.asarray(self.value(left, values) // np.maximum(self.value(right, values), 1))
            case ir.Op(name=name, args=args):
                return np.asarray(OPERATORS[name](*(self.value(part, values) for part in args)), np.int64)
            case ir.SearchSorted(buffer=buffer, lo=lo, hi=hi, coordinate=coordinate):
                array = self.buffers[buffer.name]
                ends = (self.value(part, values).tolist() for part in (lo, hi, coordinate))
                return np.array([_find_coordinate(array, *one) for one in zip(*ends, strict=True)])
            case ir.Splat(value=inner, lanes=lanes):
                return np.repeat(self.value(inner, values)[:, None], lanes, axis=1)
            case ir.Ramp(base=base, lanes=lanes):
                return np.asarray(self.value(base, values)[:, None] + np.arange(lanes))
        raise TypeError(expr)


def _find_coordinate(array: np.ndarray, lo: int, hi: int, coordinate: int) -> int:
    place = lo + int(np.searchsorted(array[lo:hi], coordinate))
    return place if place < min(hi, len(array)) and array[place] == coordinate else -1


def _operation(part: ir.Op) -> str:
    if part.name == "select":
        return "select"
    if part.name in _LOGIC:
        return "logic"
    floats = any(argument.type.is_float for argument in part.args)
    return f"{'float' if floats else 'int'}_{_COUNTED[part.name]}"


def _mean(values: np.ndarray, weights: np.ndarray) -> float:
    total = float(weights.sum())
    return float((values * weights).sum()) / total if total else 0.0
