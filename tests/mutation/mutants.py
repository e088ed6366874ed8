"""Mutants of a Python file: one small change each, as a mutation testing tool makes them.

Text is replaced at the place of a syntax node, so the rest of the file keeps its lines. Docstrings, annotations, messages of
errors, ``__repr__`` and blocks for type checkers are left as they are: no test should depend on them.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMPARISONS: Final = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
ARITHMETIC: Final = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*", ast.Pow: "*",
    ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
CALLS: Final = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "sorted": "list",
    "ceil": "floor",
    "floor": "ceil",
}


@dataclass(frozen=True)
class Mutant:
    """A file with one change.

    Attributes:
        path: of the file, relative to the root.
        line: of the change, from 1; start, end: offsets in the UTF-8 text.
        old, new: text there.
    """

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str

    @property
    def id(self) -> str:
        """Name of the mutant, the same in every run on the same file."""
        return f"{self.path}:{self.line}:{self.start}:{self.new}"

    def text(self, root: Path) -> bytes:
        """Return the changed file."""
        source = (root / self.path).read_bytes()
        assert source[self.start : self.end].decode() == self.old, f"{self.path} has changed"
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutants(root: Path, path: Path) -> Iterator[Mutant]:
    """Yield the mutants of a file, each of which parses."""
    source = path.read_bytes()
    starts = [0]
    for one in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(one))
    for node, new in _changes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        old = source[start:end].decode()
        made = Mutant(str(path.relative_to(root)), node.lineno, start, end, old, new)
        if old != new and _parses(source[:start] + new.encode() + source[end:]):
            yield made


def _parses(source: bytes) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield nodes below ``node`` with the text that takes their place."""
    for child in _children(node):
        yield from _changed(child)
        yield from _changes(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Raise() | ast.Assert() | ast.Import() | ast.ImportFrom():
            return
        case ast.If(test=test, orelse=orelse) if "TYPE_CHECKING" in ast.dump(test):
            yield from orelse
            return
        case ast.FunctionDef(name="__repr__" | "__str__"):
            return
    for name, value in ast.iter_fields(node):
        if name in (
            "annotation",
            "returns",
            "decorator_list",
            "type_params",
            "bases",
            "keywords",
        ) and not isinstance(node, ast.Call):
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST):
                yield one


def _changed(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in COMPARISONS:
            yield node, f"({ast.unparse(left)}) {COMPARISONS[type(operator)]} ({ast.unparse(right)})"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in ARITHMETIC:
            if not any(
                isinstance(one, ast.Constant | ast.JoinedStr) and _is_text(one) for one in (left, right)
            ):
                yield node, f"(({ast.unparse(left)}) {ARITHMETIC[type(operator)]} ({ast.unparse(right)}))"
        case ast.BoolOp(op=operator, values=values):
            word = " or " if isinstance(operator, ast.And) else " and "
            yield node, "(" + word.join(f"({ast.unparse(one)})" for one in values) + ")"
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value)):
            yield node, str(value + 1)
        case ast.Constant(value=float(value)) if value == value and abs(value) < 1e300:
            yield node, repr(value * 2 if value else 1.0)
        case ast.Call(func=ast.Name(id=name) as function) if name in CALLS:
            yield function, CALLS[name]
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield test, f"not ({ast.unparse(test)})"
        case ast.Expr(value=ast.Call() as call):
            yield call, "None"
        case ast.AugAssign():
            yield node, "pass"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield value, "None"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
