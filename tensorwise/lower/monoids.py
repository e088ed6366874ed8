"""Reductions on symbolic states: how a term becomes a state, how states combine and what comes out."""

from collections.abc import Sequence

from tensorwise.lower import ir
from tensorwise.lower.ir import Const, Expr, Stmt, Type, Var
from tensorwise.program.ops import Monoid


def lift(monoid: Monoid, term: Expr, coordinate: Expr) -> tuple[Expr, ...]:
    """Return the state of a single term."""
    if monoid.single:
        return (term,)
    if monoid.name == "mean":
        return term, ir.widen(Const(1.0, Type(term.type.elem)), term.type.lanes)
    return term, coordinate


def combine(
    monoid: Monoid, into: Sequence[Var], state: Sequence[Expr], ascending: bool = False
) -> list[Stmt]:
    """Return the statements that fold ``state`` into the registers ``into``.

    Args:
        ascending: coordinates come in ascending order, and registers have started with the first of them: of equal
            values the first one stays, and who asks for no other has half as much to compare.
    """
    lanes = into[0].type.lanes
    if monoid.combine in ("argmax", "argmin"):
        if lanes > 1:
            value, argument = into
            term, coordinate = ir.widen(state[0], lanes), ir.narrow(state[1], argument.type)
            return [  # coordinates differ, so that the argument tells whether it was replaced
                ir.Set(
                    argument,
                    ir.select(_better(monoid, into, (term, coordinate), ascending), coordinate, argument),
                ),
                ir.Set(value, ir.select(ir.compare("eq", argument, coordinate), term, value)),
            ]
        return [
            ir.If(
                _better(monoid, into, state, ascending),
                (ir.Set(into[0], state[0]), ir.Set(into[1], state[1])),
            )
        ]
    operator = "add" if monoid.combine == "mean" else monoid.combine
    return [
        ir.Set(register, ir.compute(operator, register, ir.widen(part, lanes)))
        for register, part in zip(into, state, strict=True)
    ]


def fold_operator(monoid: Monoid, component: int) -> str:
    """Return the operator that folds the lanes of a component's vector."""
    return "add" if monoid.combine == "mean" else monoid.combine


def finish(monoid: Monoid, state: Sequence[Expr]) -> Expr:
    """Return the result of a reduction from its state."""
    if monoid.name == "mean":
        one = ir.widen(Const(1.0, Type(state[0].type.elem)), state[0].type.lanes)
        return ir.compute("div", state[0], ir.compute("max", state[1], one))
    return state[-1]


def _better(monoid: Monoid, into: Sequence[Var], state: Sequence[Expr], ascending: bool) -> Expr:
    """Whether ``state`` replaces ``into``: more extreme, NaN first, lowest coordinate on ties."""
    value, argument = into
    term, coordinate = state

    def both(a: Expr, b: Expr) -> Expr:
        return ir.Op("and", (a, b), a.type)

    def either(a: Expr, b: Expr) -> Expr:
        return ir.Op("or", (a, b), a.type)

    low, high = (value, term) if monoid.combine == "argmax" else (term, value)
    if ascending:
        return both(ir.compare("nle", high, low), ir.compare("eq", value, value))
    beats = ir.compare("lt", low, high)
    zero = ir.widen(Const(0, Type(argument.type.elem)), argument.type.lanes)
    first_nan = both(ir.compare("ne", term, term), ir.compare("eq", value, value))
    valid = ir.compare("le", zero, coordinate)
    tie = either(
        ir.compare("eq", term, value), both(ir.compare("ne", term, term), ir.compare("ne", value, value))
    )
    earlier = either(ir.compare("lt", argument, zero), ir.compare("lt", coordinate, argument))
    return both(valid, either(either(beats, first_nan), both(tie, earlier)))
