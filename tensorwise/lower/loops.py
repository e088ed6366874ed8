"""Kernels as indented text for people; the printers for compilers are in files of their own."""

from collections.abc import Iterator
from typing import Final

from tensorwise.lower.ir import (
    Barrier,
    Block,
    Blocks,
    BufferStore,
    Const,
    Expr,
    Fold,
    Folds,
    For,
    If,
    Let,
    Load,
    LoweredFunction,
    Op,
    PrefetchLine,
    RaiseFlag,
    Ramp,
    Reduce,
    Reg,
    SearchSorted,
    Set,
    ShuffleXor,
    Splat,
    Stmt,
    Var,
    Workers,
)


def printed(kernel: LoweredFunction) -> str:
    """Return the kernel as indented text."""
    lines = [f"# {note}" for note in kernel.notes]
    lines.extend(f"scratch {buffer.name}: {buffer.elem} x{length}" for buffer, length in kernel.scratch)
    lines.extend(_lines(kernel.body, 0))
    return "\n".join(lines)


_SYMBOLS: Final = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "bitand": "&",
    "shl": "<<",
    "shr": ">>",
    "lt": "<",
    "le": "<=",
    "nle": "!<=",
    "eq": "==",
    "ne": "!=",
}


def text(expr: Expr) -> str:
    """Return an expression as text for people."""
    match expr:
        case Const(value=value):
            return f"{value:g}" if isinstance(value, float) else str(value)
        case Var(name=name):
            return name
        case Load(buffer=buffer, index=index):
            return f"{buffer.name}[{text(index)}]"
        case Op(name=name, args=(left, right)) if name in _SYMBOLS:
            return f"({text(left)} {_SYMBOLS[name]} {text(right)})"
        case Op(name=name, args=args):
            return f"{name}({', '.join(map(text, args))})"
        case SearchSorted(buffer=buffer, lo=lo, hi=hi, coordinate=coordinate):
            return f"search({text(coordinate)} in {buffer.name}[{text(lo)}:{text(hi)}])"
        case Splat(value=value):
            return text(value)
        case Ramp(base=base, lanes=lanes):
            return f"{text(base)}:+{lanes}"
        case Fold(operator=operator, vector=vector):
            return f"fold_{operator}({text(vector)})"
        case Folds(operator=operator, vectors=vectors):
            return f"folds_{operator}({', '.join(map(text, vectors))})"


def _how(bind: Workers | Blocks) -> str:
    if isinstance(bind, Workers):
        return f"parallel[{bind.policy}]"
    return f"blocks[{bind.axis}, {bind.teams} teams of {bind.threads}]"


def head(statement: Stmt) -> str:
    """Return a statement as text, of a loop or a condition its first line."""
    return next(_lines((statement,), 0))


def _lines(block: Block, depth: int) -> Iterator[str]:
    pad = "  " * depth
    for statement in block:
        match statement:
            case For(var=var, lo=lo, hi=hi, step=step, body=body, bind=bind):
                how = f"{_how(bind)} " if bind else ""
                by = f", step {step}" if step != 1 else ""
                yield f"{pad}{how}for {var.name} in {text(lo)} .. {text(hi)}{by}:"
                yield from _lines(body, depth + 1)
            case If(cond=cond, body=body):
                yield f"{pad}if {text(cond)}:"
                yield from _lines(body, depth + 1)
            case Let(var=var, value=value):
                yield f"{pad}{var.name} = {text(value)}"
            case Reg(var=var, init=init):
                lanes = f" x{var.type.lanes}" if var.type.lanes > 1 else ""
                yield f"{pad}var {var.name}: {var.type.elem}{lanes} = {text(init)}"
            case Set(var=var, value=value):
                yield f"{pad}{var.name} := {text(value)}"
            case BufferStore(buffer=buffer, index=index, value=value):
                yield f"{pad}{buffer.name}[{text(index)}] = {text(value)}"
            case Reduce(buffer=buffer, index=index, operator=operator, value=value, atomic=atomic):
                how = " atomically" if atomic else ""
                yield f"{pad}{buffer.name}[{text(index)}] {operator}= {text(value)}{how}"
            case RaiseFlag():
                yield f"{pad}flag"
            case Barrier():
                yield f"{pad}meet"
            case ShuffleXor(var=var, value=value, distance=distance):
                yield f"{pad}{var.name} = {text(value)} of lane ^ {distance}"
            case PrefetchLine(buffer=buffer, index=index):
                yield f"{pad}prefetch {buffer.name}[{text(index)}]"
