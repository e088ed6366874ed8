"""Vectors that an innermost loop would read again in each iteration are read once before it.

C compilers leave them where they are: they cannot tell that stores of the loop do not change them.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Final

from tensorwise.lower import ir
from tensorwise.lower.ir import Expr, For, If, Let, Load, Stmt, Var

REGISTERS: Final = 14
"""Vector registers that accumulators and held vectors share; machines have 16 at least, and operands need some."""


def hoist(kernel: ir.LoweredFunction) -> ir.LoweredFunction:
    """Return the kernel with unchanging vector loads in front of innermost sequential loops::

        for p: out[p] = fold(C[i:+8] * D[j[p]:+8])   ->   held = C[i:+8];  for p: out[p] = fold(held * D[j[p]:+8])

    What stands under a condition inside the loop stays there: its address may be no good elsewhere.
    """
    names = count()
    return replace(kernel, body=_block(kernel.body, names))


def _block(block: ir.Block, names: Iterator[int]) -> ir.Block:
    found: list[Stmt] = []
    for statement in block:
        match statement:
            case For(body=body) if any(isinstance(s, For) for s in ir.walk(body)):
                found.append(replace(statement, body=_block(body, names)))
            case For(bind=None):
                found.extend(_loop(statement, names))
            case If(body=body):
                found.append(replace(statement, body=_block(body, names)))
            case _:
                found.append(statement)
    return tuple(found)


def _loop(loop: For, names: Iterator[int]) -> Iterator[Stmt]:
    """Yield the vectors held for an innermost loop, and the loop that uses them."""
    changing = {loop.var} | {s.var for s in ir.walk(loop.body) if isinstance(s, Let | ir.Reg | ir.Set)}
    loads = dict.fromkeys(
        load
        for statement in loop.body
        for expr in ir.expressions(statement)
        for load in _vector_loads(expr)
        if changing.isdisjoint(ir.variables(load.index))
    )
    busy = {s.var for s in ir.walk(loop.body) if isinstance(s, ir.Reg | ir.Set) and s.var.type.lanes > 1}
    room = max(0, REGISTERS - len(busy))
    held: dict[Expr, Expr] = {load: Var(f"held{next(names)}_", load.type) for load in list(loads)[:room]}
    for load, var in held.items():
        assert isinstance(var, Var)
        yield Let(var, load)
    if held:
        loop = replace(loop, body=tuple(s if isinstance(s, If) else ir.rewritten(s, held) for s in loop.body))
    yield loop


def _vector_loads(expr: Expr) -> Iterator[Load]:
    neighbours = isinstance(expr, Load) and isinstance(expr.index, ir.Ramp)
    # vectors of integers have no registers: printers read them lane by lane
    if isinstance(expr, Load) and neighbours and expr.type.is_float and not expr.buffer.writable:
        yield expr
    for child in ir.children(expr):
        yield from _vector_loads(child)
