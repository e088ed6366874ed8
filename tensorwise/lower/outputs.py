"""Passes that surround a nest with loops over the output: filled before, in copies of threads, or rounded once."""

from collections.abc import Callable
from dataclasses import replace

from tensorwise.lower import ir
from tensorwise.lower.ir import (
    Binding,
    Buffer,
    BufferStore,
    Const,
    Expr,
    For,
    If,
    Reduce,
    Reg,
    Set,
    Stmt,
    Type,
    Var,
)

_E, _T = Var("e"), Var("t")


def fill_output(kernel: ir.LoweredFunction, size: Expr, value: float, binding: Binding) -> ir.LoweredFunction:
    """Return the kernel with an output of ``size`` elements that starts from ``value``::

    for k: out[i] += x   ->   for e in 0 .. size: out[e] = value
                              for k: out[i] += x
    """
    output = kernel.buffers[0]
    store = BufferStore(output, _E, Const(value, output[_E].type))
    return replace(kernel, body=(_over(size, binding, store), *kernel.body))


def rounds_partial_results(kernel: ir.LoweredFunction) -> bool:
    """Whether the kernel reduces into an output of 16 bits, which rounds what it holds."""
    output = kernel.buffers[0]
    reduces = (isinstance(s, Reduce) and s.buffer == output for s in ir.walk(kernel.body))
    return output.elem in ir.HALVES and any(reduces)


def round_once(
    kernel: ir.LoweredFunction, size: Expr, identity: Const, binding: Binding
) -> ir.LoweredFunction:
    """Return the kernel with results collected as wide as what is computed in, the type of ``identity``::

    for k: out[i] += x   ->   for e in 0 .. size: work[e] = identity
                              for k: work[i] += x
                              for e in 0 .. size: out[e] = work[e]
    """
    output, work = kernel.buffers[0], _work(identity.type)
    body = (
        _over(size, binding, BufferStore(work, _E, identity)),
        *_rewrite_writes(kernel.body, output, lambda statement: replace(statement, buffer=work)),
        _over(size, binding, BufferStore(output, _E, work[_E])),
    )
    return replace(kernel, buffers=(*kernel.buffers, work), body=body)


def privatize(
    kernel: ir.LoweredFunction, size: Expr, operator: str, identity: Const, accumulate: bool, binding: Binding
) -> ir.LoweredFunction:
    """Return the kernel with atomic reductions made in copies of the output, one a thread::

        parallel for k: out[i] += x, atomically   ->   for e in 0 .. threads * size: work[e] = identity
                                                       parallel for k: work[thread * size + i] += x
                                                       for e in 0 .. size: out[e] = sum over t of work[t * size + e]

    Equal parts of the loop give equal bits. With ``accumulate`` the sum is added to what the output holds.
    """
    output, work = kernel.buffers[0], _work(identity.type)

    def redirect(statement: BufferStore | Reduce) -> BufferStore | Reduce:
        if not isinstance(statement, Reduce) or not statement.atomic:
            return statement
        return replace(statement, buffer=work, index=ir.THREAD * size + statement.index, atomic=False)

    merged = Var("merged", identity.type)
    add = Set(merged, ir.compute(operator, merged, work[_T * size + _E]))
    merge = (
        Reg(merged, output[_E] if accumulate else identity),
        For(_T, Const(0), ir.THREADS, 1, (add,)),
        BufferStore(output, _E, merged),
    )
    body = (
        _over(ir.THREADS * size, binding, BufferStore(work, _E, identity)),
        *_rewrite_writes(kernel.body, output, redirect),
        _over(size, binding, *merge),
    )
    return replace(kernel, buffers=(*kernel.buffers, work), body=body)


def _work(type: Type) -> Buffer:
    return Buffer("work", type.elem, writable=True)


def _over(size: Expr, binding: Binding, *body: Stmt) -> For:
    return For(_E, Const(0), size, 1, body, binding)


def _rewrite_writes(
    block: ir.Block, output: Buffer, rewrite: Callable[[BufferStore | Reduce], BufferStore | Reduce]
) -> ir.Block:
    """Return the block with each statement that writes to ``output`` rewritten."""

    def inside(statement: Stmt) -> Stmt:
        match statement:
            case For(body=body) | If(body=body):
                return replace(statement, body=_rewrite_writes(body, output, rewrite))
            case BufferStore(buffer=buffer) | Reduce(buffer=buffer) if buffer == output:
                return rewrite(statement)
        return statement

    return tuple(map(inside, block))
