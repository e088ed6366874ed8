"""Unrolled copies that each fold a vector fold four at a time, and store their results as one vector.

A fold costs more instructions than the products before it, where vectors are few. Four vectors transposed and
added have their four sums side by side after half as many.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

from tensorwise.lower import ir
from tensorwise.lower.ir import (
    BufferStore,
    Const,
    Expr,
    Fold,
    For,
    If,
    Let,
    Load,
    Op,
    Reduce,
    Reg,
    Set,
    Stmt,
    Var,
)

COUNT: Final = 4
"""Vectors folded together: as many as lanes of the shortest vectors, so that the last step needs no shuffle more."""
LANES: Final = {"f32": (4, 8, 16), "f64": (4, 8, 16)}
"""Lengths of vectors that the prelude folds together."""


def fold_together(kernel: ir.LoweredFunction) -> ir.LoweredFunction:
    """Return the kernel with folds of unrolled loops made four at a time::

        out[p] = fold(a) * v[p];  out[p+1] = fold(b) * v[p+1];  ...   ->   out[p:+4] = folds(a, b, c, d) * v[p:+4]

    Loops with conditions inside stay as they are.
    """
    names = count()
    return replace(kernel, body=_block(kernel.body, names))


def _block(block: ir.Block, names: Iterator[int]) -> ir.Block:
    found: list[Stmt] = []
    for statement in block:
        match statement:
            case For(body=body, bind=None) if not any(isinstance(s, For | If) for s in ir.walk(body)):
                found.append(replace(statement, body=_Body(body, names).rewritten()))
            case For(body=body) | If(body=body):
                found.append(replace(statement, body=_block(body, names)))
            case _:
                found.append(statement)
    return tuple(found)


class _Body:
    """The body of an innermost loop."""

    def __init__(self, body: ir.Block, names: Iterator[int]) -> None:
        self.body, self.names = body, names
        self.lets: Mapping[Expr, Expr] = {s.var: s.value for s in body if isinstance(s, Let)}
        self.last_set = {s.var: place for place, s in enumerate(body) if isinstance(s, Set)}

    def rewritten(self) -> ir.Block:
        """Return the body with as many groups of four as it has."""
        if not all(isinstance(s, Let | Reg | Set | BufferStore | Reduce) for s in self.body):
            return self.body
        written = {s.buffer for s in self.body if isinstance(s, BufferStore | Reduce)}
        if any(_reads(expr, written) for s in self.body for expr in ir.expressions(s)):
            return self.body
        stores = [(place, s) for place, s in enumerate(self.body) if isinstance(s, BufferStore | Reduce)]
        gone: set[int] = set()
        after: list[Stmt] = []
        for first in range(0, len(stores) - COUNT + 1, COUNT):
            group = stores[first : first + COUNT]
            made = self.group([store for _, store in group])
            if made:
                after.extend(made)
                gone |= {place for place, _ in group}
        if not after:
            return self.body
        kept = [s for place, s in enumerate(self.body) if place not in gone]
        return tuple([*_used(kept, after), *after])

    def group(self, stores: Sequence[BufferStore | Reduce]) -> list[Stmt] | None:
        """Return the statements that take the place of four stores or updates, where each holds one fold."""
        folds = [self.fold(store.value) for store in stores]
        found = [fold for fold in folds if fold is not None]
        if any(self.sets_after(store, fold) for store, fold in zip(stores, folds, strict=True) if fold):
            return None
        if (
            len(found) < COUNT
            or len({_target(s) for s in stores}) > 1
            or len({f.vector.type for f in found}) > 1
        ):
            return None
        type = found[0].vector.type
        if found[0].operator != "add" or type.lanes not in LANES.get(type.elem, ()):
            return None
        var = Var(f"folded{next(self.names)}_", ir.Type(type.elem, COUNT))
        index = self.packed([store.index for store in stores], {})
        value = self.packed([store.value for store in stores], {fold: var for fold in found})
        if index is None or value is None:
            return None
        return [
            Let(var, ir.Folds("add", tuple(f.vector for f in found))),
            replace(stores[0], index=index, value=value),
        ]

    def sets_after(self, store: BufferStore | Reduce, fold: Fold) -> bool:
        """Whether a register that is folded is used again behind its copy, so that the fold cannot wait."""
        place = self.body.index(store)
        return any(self.last_set.get(var, -1) > place for var in ir.variables(fold.vector))

    def fold(self, expr: Expr) -> Fold | None:
        """Return the only fold in an expression, looking behind names; None where there is none, or several."""
        if isinstance(expr, Fold):
            return expr
        inside = [expr] if expr in self.lets else list(ir.children(expr))
        found = [f for part in inside if (f := self.fold(self.lets.get(part, part))) is not None]
        return found[0] if len(found) == 1 else None

    def packed(self, parts: Sequence[Expr], known: Mapping[Expr, Expr]) -> Expr | None:
        """Return the vector whose lanes are ``parts``, or None where no single expression gives it."""
        first = parts[0]
        if all(part in known for part in parts):
            return known[first]
        if all(part in self.lets for part in parts):
            return self.packed([self.lets[part] for part in parts], known)
        fixed = self.last_set.keys().isdisjoint(v for part in parts for v in ir.variables(part))
        if fixed and all(part == first for part in parts) and not isinstance(first, Fold):
            return ir.widen(first, COUNT)
        if fixed and all(_apart(first, part) == number for number, part in enumerate(parts)):
            return ir.Ramp(first, COUNT)
        if any(part.type.lanes > 1 for part in parts):
            return None
        match first:
            case Load(buffer=buffer):
                if not all(isinstance(part, Load) and part.buffer == buffer for part in parts):
                    return None
            case Op(name=name):
                if not all(isinstance(part, Op) and part.name == name for part in parts):
                    return None
            case _:
                return None
        inside = [self.packed(column, known) for column in zip(*map(ir.children, parts), strict=True)]
        whole = [part for part in inside if part is not None]
        if len(whole) < len(inside):
            return None
        return Load(first.buffer, whole[0]) if isinstance(first, Load) else ir.compute(first.name, *whole)


def _target(statement: BufferStore | Reduce) -> tuple[object, ...]:
    how = (statement.operator, statement.atomic) if isinstance(statement, Reduce) else ()
    return (statement.buffer, *how)


def _apart(start: Expr, expr: Expr) -> int | None:
    """How far an index lies behind ``start``; None where that is not known."""
    if expr == start:
        return 0
    match expr:
        case Op(name="add", args=(base, Const(value=value))) if base == start:
            return int(value)
    return None


def _reads(expr: Expr, buffers: set[ir.Buffer]) -> bool:
    inside = any(_reads(child, buffers) for child in ir.children(expr))
    return inside or (isinstance(expr, Load) and expr.buffer in buffers)


def _used(kept: Sequence[Stmt], after: Sequence[Stmt]) -> list[Stmt]:
    """Leave out names that nothing asks for any more."""
    found: list[Stmt] = []
    wanted = {v for s in after for e in ir.expressions(s) for v in ir.variables(e)}
    for statement in reversed(kept):
        if isinstance(statement, Let) and statement.var not in wanted:
            continue
        wanted |= {v for e in ir.expressions(statement) for v in ir.variables(e)}
        found.append(statement)
    return found[::-1]
