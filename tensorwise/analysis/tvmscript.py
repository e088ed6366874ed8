"""The LoopTree of a program of Apache TVM, from the text that it prints (TVMScript). TVM itself is not needed here.

The input is the body of a TIR function before blocks are lowered: loops with constant extents, blocks, stores. An index
need not be affine in the loops around it (fused loops are recovered by division), so strides are measured at random
iterations.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from tensorwise.analysis.loop_tree import (
    BufferAccess,
    Kind,
    Leaf,
    Loop,
    LoopTree,
    Mode,
    Node,
    merged,
    movement,
)
from tensorwise.errors import InputError
from tensorwise.reading import reading

SAMPLED_ITERATIONS: Final = 64
"""Iterations at which an access is looked at: only those of fused loops differ."""
LONGEST: Final = 4 * 2**20
"""Characters of a text that is read: a program of TVM has some ten thousand."""
MOST_ELEMENTS: Final = 2**62
"""Elements of a buffer; a place in it must fit into int64."""

_KINDS: Final[dict[str, Kind]] = {
    "range": "serial",
    "serial": "serial",
    "grid": "serial",
    "parallel": "parallel",
    "vectorized": "vectorized",
    "unroll": "unrolled",
    "thread_binding": "thread",
}
_THREADS: Final[dict[str, Kind]] = {"blockIdx": "block", "threadIdx": "thread", "vthread": "virtual"}
_UNROLL: Final = "pragma_auto_unroll_max_step"
_BUFFERS: Final = ("sblock_alloc_buffer", "alloc_buffer", "Buffer", "match_buffer", "decl_buffer")
_OPERATORS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "add", ast.Sub: "add", ast.USub: "add", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "div", ast.Mod: "div",
    ast.Eq: "compare", ast.NotEq: "compare", ast.Lt: "compare", ast.LtE: "compare", ast.Gt: "compare", ast.GtE: "compare",
}  # fmt: skip
_CALLS: Final = {
    "max": "compare", "min": "compare", "truncdiv": "div", "truncmod": "div", "floordiv": "div", "floormod": "div",
}  # fmt: skip
_FREE: Final = re.compile(r"Cast|likely|reinterpret|(u?int|float|bfloat|bool)[0-9_a-z]*")
"""Casts and literals: they are not counted."""
_COMPUTED: Final[dict[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.RShift: operator.rshift, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.Invert: operator.invert, ast.Not: lambda value: value == 0, ast.And: operator.and_, ast.Or: operator.or_,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
"""What is computed of arrays at an operator; powers and left shifts, whose numbers have no bounds, are refused."""
_TVM_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "max": np.maximum, "min": np.minimum, "floordiv": np.floor_divide, "floormod": np.mod, "truncdiv": np.floor_divide,
    "truncmod": np.mod, "Select": np.where, "if_then_else": np.where, "shift_right": np.right_shift,
    "shift_left": np.left_shift, "bitwise_and": np.bitwise_and,
}  # fmt: skip


def read_tvmscript(text: str, rng: np.random.Generator) -> LoopTree:
    """Return the loop tree of the one function in ``text``.

    Args:
        text: a ``T.prim_func``, as TVM prints it; rng: of the iterations looked at.

    Raises:
        InputError: it has no function, an extent is not constant, or something in it is not known here.
    """
    if len(text) > LONGEST:
        raise InputError(f"a text of {len(text)} characters is no program of TVM; at most {LONGEST} are read")
    with (
        reading("this is no TVMScript that can be read", "print the function with script() of TVM"),
        np.errstate(all="ignore"),
    ):
        try:
            functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InputError(f"this is no TVMScript: {error}") from error
        if len(functions) != 1:
            raise InputError(f"expected one function, got {len(functions)}")
        (function,) = functions
        scope = _Scope()
        for argument in function.args.args:
            if isinstance(argument.annotation, ast.Call) and _called(argument.annotation) in _BUFFERS:
                scope = scope.with_buffer(argument.arg, argument.annotation)
        return LoopTree(_Reader(rng).block(function.body, scope))


@dataclass(frozen=True)
class _Buffer:
    shape: tuple[int, ...]
    elem: str

    @property
    def item_bytes(self) -> int:
        bits = re.search(r"\d+", self.elem)
        return max(int(bits[0]) // 8, 1) if bits else 1


@dataclass(frozen=True)
class _Scope:
    """What is known where a statement stands: buffers, loops around it, and names for expressions of their variables."""

    buffers: Mapping[str, _Buffer] = field(default_factory=dict)
    loops: tuple[tuple[str, int], ...] = ()
    bound: tuple[tuple[str, ast.expr], ...] = ()
    threads: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """What GPUs number, ``threadIdx.x`` for instance -> name and extent of the loop that is."""
    unroll: int = 0

    def with_buffer(self, name: str, call: ast.Call) -> "_Scope":
        shape = call.args[0]
        if not isinstance(shape, ast.Tuple):
            raise InputError(f"buffer {name!r} has no constant shape")
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        elem = call.args[1] if len(call.args) > 1 else named.get("dtype")
        kind = elem.value if isinstance(elem, ast.Constant) else "float32"
        buffer = _Buffer(tuple(constant(extent) for extent in shape.elts), str(kind))
        if min(buffer.shape, default=0) < 0 or math.prod(buffer.shape) > MOST_ELEMENTS:
            raise InputError(f"buffer {name!r} has an impossible shape: {buffer.shape}")
        return replace(self, buffers={**self.buffers, name: buffer})

    def bind(self, name: str, value: ast.expr) -> "_Scope":
        return replace(self, bound=(*self.bound, (name, value)))


class _Reader:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.computed: dict[ast.expr, _Computed] = {}
        """How indices are computed: each is asked for some dozen times."""

    def block(self, body: Sequence[ast.stmt], scope: _Scope) -> tuple[Node, ...]:
        nodes: list[Node] = []
        run: list[ast.Assign] = []
        for statement in body:
            match statement:
                case ast.For():
                    nodes += self.leaf(run, scope)
                    run = []
                    nodes += self.loop(statement, scope)
                case ast.If(test=test, body=inside, orelse=other):
                    nodes += self.leaf(run, scope)
                    run = []
                    nodes += self.condition(test, inside, scope)
                    if other:
                        nodes += self.condition(ast.UnaryOp(ast.Not(), test), other, scope)
                case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)], body=inside):
                    if _called(call) == "init":
                        raise InputError("initial values have to be lowered first (LowerInitBlock)")
                    nodes += self.leaf(run, scope)
                    run = []
                    nodes += self.block(inside, scope)
                case ast.Assign(targets=[ast.Subscript()]):
                    run.append(statement)
                case ast.Assign(targets=[target], value=value):
                    scope = self.bind_names(target, value, scope)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    scope = scope.bind(name, value)
                case ast.Expr(value=ast.Call(args=[predicate]) as call) if _called(call) == "where":
                    rest = body[body.index(statement) + 1 :]
                    return (*nodes, *self.leaf(run, scope), *self.condition(predicate, rest, scope))
                case (
                    ast.Expr() | ast.Pass() | ast.Return()
                ):  # what is read and written is seen where it happens
                    pass
                case _:
                    raise InputError(f"unknown statement: {ast.unparse(statement)[:80]}")
        return (*nodes, *self.leaf(run, scope))

    def bind_names(self, target: ast.expr, value: ast.expr, scope: _Scope) -> _Scope:
        """A buffer, a variable of a block, or several."""
        if not isinstance(value, ast.Call):
            return scope.bind(ast.unparse(target), value)
        called = _called(value)
        if called in _BUFFERS and isinstance(target, ast.Name):
            return scope.with_buffer(target.id, value)
        if called == "remap" and isinstance(value.args[1], ast.List):
            targets = target.elts if isinstance(target, ast.Tuple) else [target]
            for one, expr in zip(targets, value.args[1].elts, strict=True):
                scope = scope.bind(ast.unparse(one), expr)
            return scope
        if called in ("spatial", "reduce", "opaque", "scan"):
            return scope.bind(ast.unparse(target), value.args[1])
        return scope.bind(ast.unparse(target), value)

    def loop(self, statement: ast.For, scope: _Scope) -> tuple[Node, ...]:
        call = statement.iter
        if not isinstance(call, ast.Call) or _called(call) not in _KINDS:
            raise InputError(f"unknown loop: {ast.unparse(call)[:80]}")
        kind = _KINDS[_called(call)]
        targets = statement.target.elts if isinstance(statement.target, ast.Tuple) else [statement.target]
        names = [ast.unparse(target) for target in targets]
        given = [constant(argument) for argument in call.args]
        starts = [0] * len(names)
        if _called(call) != "grid" and len(given) == 2:
            starts, given = given[:1], [given[1] - given[0]]
        for keyword in call.keywords:
            if keyword.arg == "thread" and isinstance(keyword.value, ast.Constant):
                tag = str(keyword.value.value)
                kind = _THREADS[tag.split(".")[0]]
                if tag in scope.threads:
                    return self.again(statement, names[0], given[0], scope.threads[tag], scope)
                scope = replace(scope, threads={**scope.threads, tag: (names[0], given[0])})
            if keyword.arg == "annotations":
                notes = ast.unparse(keyword.value)
                if found := re.search(rf"{_UNROLL}\W+(?:T\.int\d+\()?(\d+)", notes):
                    scope = replace(scope, unroll=int(found[1]))
        inside = replace(scope, loops=(*scope.loops, *zip(names, given, strict=True)))
        for name, start in zip(names, starts, strict=True):
            if start:
                moved = ast.BinOp(ast.Name(name), ast.Add(), ast.Constant(start))
                inside = inside.bind(name, moved)
        nodes = self.block(statement.body, inside)
        for extent in reversed(given):
            nodes = (Loop(_unrolled(kind, extent, nodes, scope.unroll), extent, nodes),)
        return nodes

    def again(
        self, statement: ast.For, name: str, extent: int, outer: tuple[str, int], scope: _Scope
    ) -> tuple[Node, ...]:
        """A loop over threads inside of one: the same threads, or the first of them, do what is in it, each once."""
        number, most = outer
        scope = scope.bind(name, ast.Name(number))
        if extent < most:
            first = ast.Compare(ast.Name(number), [ast.Lt()], [ast.Constant(extent)])
            return tuple(self.condition(first, statement.body, scope))
        return self.block(statement.body, scope)

    def condition(self, test: ast.expr, body: Sequence[ast.stmt], scope: _Scope) -> list[Node]:
        """A loop that runs where the test holds, as often as it holds at random iterations."""
        values = self.values(scope, self.points(scope))
        share = float(np.mean(np.broadcast_to(self.value(test, values), SAMPLED_ITERATIONS) != 0))
        inside = replace(scope, loops=(*scope.loops, (f"condition {len(scope.loops)}", 1)))
        return [Loop("condition", share, self.block(body, inside))]

    def leaf(self, run: Sequence[ast.Assign], scope: _Scope) -> list[Node]:
        if not run:
            return []
        operations: dict[str, float] = {}
        found: list[tuple[str, Mode, tuple[ast.expr, ...]]] = []
        for statement in run:
            (target,) = statement.targets
            assert isinstance(target, ast.Subscript)
            stored = ast.unparse(target)
            reads = _count(statement.value, scope, operations)
            _count(target.slice, scope, operations)
            same = [read for read in reads if ast.unparse(read) == stored]
            found.append((_name(target), "update" if same else "write", _indices(target)))
            found += [(_name(read), "read", _indices(read)) for read in reads if read not in same]
        points = self.points(scope)
        here = self.values(scope, points)
        onward = []
        for name, extent in scope.loops:
            before, after = dict(points), dict(points)
            if extent > 1:
                before[name] = points[name] % (extent - 1)
                after[name] = before[name] + 1
                onward.append((self.values(scope, before), self.values(scope, after)))
            else:
                onward.append((here, here))
        accesses = [self.access(*one, scope, onward) for one in found]
        return [Leaf(operations, merged(accesses))]

    def access(
        self,
        name: str,
        mode: Mode,
        indices: tuple[ast.expr, ...],
        scope: _Scope,
        onward: Sequence[tuple[dict[str, Any], dict[str, Any]]],
    ) -> BufferAccess:
        buffer = scope.buffers[name]
        widths = [math.prod(buffer.shape[k + 1 :]) for k in range(len(buffer.shape))]

        def place(values: dict[str, Any]) -> np.ndarray:
            parts = [
                np.asarray(self.value(i, values), np.int64) * w for i, w in zip(indices, widths, strict=True)
            ]
            return np.broadcast_to(sum(parts, np.zeros(1, np.int64)), (SAMPLED_ITERATIONS,))

        ones = np.ones(SAMPLED_ITERATIONS)
        steps = [
            (0.0, 0.0) if before is after else movement(place(before), place(after), ones)
            for before, after in onward
        ]
        strides, moves = zip(*steps, strict=True) if steps else ((), ())
        return BufferAccess(name, mode, buffer.item_bytes, float(math.prod(buffer.shape)), strides, moves)

    def points(self, scope: _Scope) -> dict[str, np.ndarray]:
        return {
            name: self.rng.integers(0, max(extent, 1), SAMPLED_ITERATIONS) for name, extent in scope.loops
        }

    def values(self, scope: _Scope, points: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Numbers of all names; that of a buffer gives some element of it, always the same at a place."""
        values: dict[str, Any] = {**{name: _Contents() for name in scope.buffers}, **points}
        for name, expr in scope.bound:
            values[name] = self.value(expr, values)
        return values

    def value(self, expr: ast.expr, values: dict[str, Any]) -> Any:
        """Evaluate an index or a condition at all iterations that are looked at."""
        if expr not in self.computed:
            self.computed[expr] = _computed(expr)
        try:
            return self.computed[expr](values)
        except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
            raise InputError(f"{ast.unparse(expr)[:80]} cannot be computed: {error}") from error


def _unrolled(kind: Kind, extent: int, nodes: tuple[Node, ...], most: int) -> Kind:
    """A serial loop of few statements in all is unrolled where a pragma asks for it (as TVM's UnrollLoop does)."""

    def steps(nodes: Sequence[Node]) -> float:
        return sum(1.0 if isinstance(node, Leaf) else node.extent * steps(node.body) for node in nodes)

    return "unrolled" if kind == "serial" and 1 < extent * steps(nodes) <= most else kind


class _Contents:
    """Integers in memory that indices are computed from: any will do that are spread widely, and stay the same."""

    def __getitem__(self, place: Any) -> Any:
        parts = place if isinstance(place, tuple) else (place,)
        return sum((np.asarray(part, np.int64) + 1) * 2_654_435_761 for part in parts) % 32_749


_Computed: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""(numbers of all names) -> numbers of an expression: a scalar, or (SAMPLED_ITERATIONS,)."""


def _computed(expr: ast.expr) -> _Computed:
    """Return how an index or a condition is computed; nothing in the text is ever run.

    Raises:
        InputError: it is no arithmetic: the text may come from a file.
    """
    match expr:
        case ast.Name(id=name):
            return lambda values: values[name]
        case ast.Constant(value=bool() | int() as value) if -(2**63) <= value < 2**63:
            number = np.int64(value)
            return lambda values: number
        case ast.Constant(value=float() | str() as other):
            return lambda values: other
        case ast.Tuple(elts=elements):
            parts = [_computed(element) for element in elements]
            return lambda values: tuple(part(values) for part in parts)
        case ast.UnaryOp(op=op, operand=inner) if type(op) in _COMPUTED:
            unary, of = _COMPUTED[type(op)], _computed(inner)
            return lambda values: unary(of(values))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _COMPUTED:
            return _joined(_COMPUTED[type(op)], left, right)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPUTED:
            return _joined(_COMPUTED[type(op)], left, right)
        case ast.BoolOp(op=op, values=[left, right]):
            return _joined(_COMPUTED[type(op)], left, right)
        case ast.BoolOp(op=op, values=[left, *others]):
            return _joined(_COMPUTED[type(op)], left, ast.BoolOp(op, others))
        case ast.Subscript(value=ast.Name(id=name), slice=place):
            at = _computed(place)
            return lambda values: _element(values[name], at(values))
        case ast.Call(func=ast.Attribute(value=ast.Name(id="T"), attr=name), args=arguments, keywords=[]):
            given = [_computed(argument) for argument in arguments if not _text(argument)]
            if name in _TVM_FUNCTIONS:
                function = _TVM_FUNCTIONS[name]
                return lambda values: function(*(one(values) for one in given))
            if given:  # casts and literals are the numbers themselves
                return given[0]
    raise InputError(f"{ast.unparse(expr)[:80]} is no arithmetic")


def _joined(function: Callable[..., Any], left: ast.expr, right: ast.expr) -> _Computed:
    first, second = _computed(left), _computed(right)
    return lambda values: function(first(values), second(values))


def _element(buffer: Any, place: Any) -> Any:
    if not isinstance(buffer, _Contents):
        raise TypeError("no buffer")
    return buffer[place]


def _count(expr: ast.expr, scope: _Scope, operations: dict[str, float]) -> list[ast.Subscript]:
    """Add up the operations of an expression, and return what it loads."""
    loads: list[ast.Subscript] = []

    def note(name: str) -> None:
        operations[name] = operations.get(name, 0.0) + 1.0

    def visit(node: ast.expr) -> bool:
        """Return whether the value is a float."""
        match node:
            case ast.Subscript(value=ast.Name(id=name)) if name in scope.buffers:
                loads.append(node)
                visit(node.slice)
                return "float" in scope.buffers[name].elem
            case ast.Constant(value=value):
                return isinstance(value, float)
            case ast.BinOp(left=left, op=operator, right=right):
                floats = [visit(left), visit(right)]
                kind = "float" if any(floats) else "int"
                note(f"{kind}_{_OPERATORS[type(operator)]}" if type(operator) in _OPERATORS else "logic")
                return any(floats)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return visit(operand)
            case ast.Compare(left=left, comparators=others):
                floats = [visit(part) for part in (left, *others)]
                note("float_compare" if any(floats) else "int_compare")
                return False
            case ast.BoolOp(values=values):
                for part in values:
                    visit(part)
                    note("logic")
                return False
            case ast.Call():
                return call(node)
            case ast.Tuple(elts=elements):
                for part in elements:
                    visit(part)
        return False

    def call(node: ast.Call) -> bool:
        name = _called(node)
        floats = [visit(argument) for argument in node.args if not _text(argument)]
        if _FREE.fullmatch(name):
            to = (
                str(node.args[0].value)
                if node.args and isinstance(node.args[0], ast.Constant) and _text(node.args[0])
                else name
            )
            return "float" in to or (name in ("likely", "reinterpret") and any(floats))
        if name in ("Select", "if_then_else"):
            note("select")
            return any(floats[1:])
        kind = "float" if any(floats) else "int"
        if name in _CALLS:
            note(f"{kind}_{_CALLS[name]}")
        else:
            note("float_math" if kind == "float" else "logic")
        return any(floats)

    visit(expr)
    return loads


def _text(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Constant) and isinstance(expr.value, str)


def _called(call: ast.Call) -> str:
    """The last part of what is called: ``parallel`` of ``T.parallel(4)``."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)


def constant(expr: ast.expr) -> int:
    """Return an integer that TVM has printed: ``T.int64(8)``; InputError for what is none."""
    match expr:
        case ast.Constant(value=int(value)) if abs(value) < 2**63:
            return int(value)
        case ast.Call(args=[inner]):
            return constant(inner)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -constant(inner)
    raise InputError(f"extents must be constant, got {ast.unparse(expr)[:80]}")


def _name(subscript: ast.Subscript) -> str:
    return ast.unparse(subscript.value)


def _indices(subscript: ast.Subscript) -> tuple[ast.expr, ...]:
    return tuple(subscript.slice.elts) if isinstance(subscript.slice, ast.Tuple) else (subscript.slice,)
