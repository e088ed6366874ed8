"""Reductions on states: any order and any grouping of the terms gives what NumPy gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorwise.codegen import ir
from tensorwise.codegen.interpret import interpret
from tensorwise.codegen.ir import Buffer, Const, Reg, Store, Type, Var
from tensorwise.program import monoids
from tensorwise.program.ops import MONOIDS, Monoid

OUT, X = Buffer("out", "f64", writable=True), Buffer("x", "f64")
F64 = Type("f64")
EXPECTED = {
    "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": np.mean, "argmax": np.argmax, "argmin": np.argmin,
}  # fmt: skip
TERMS = st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, np.inf, np.nan]), min_size=1, max_size=6)


def state(monoid: Monoid, name: str) -> tuple[tuple[Var, ...], list[ir.Stmt]]:
    """Registers for a state, and the statements that make it that of no term."""
    types = [ir.I64 if part.holds == "coordinate" else F64 for part in monoid.components]
    registers = tuple(Var(f"{name}_{part.name}", type) for part, type in zip(monoid.components, types))
    starts = [
        Const(int(part.identity)) if type == ir.I64 else Const(part.identity, F64)
        for part, type in zip(monoid.components, types)
    ]
    return registers, [Reg(register, start) for register, start in zip(registers, starts)]


def reduced(monoid: Monoid, x: list[float], groups: list[list[int]]) -> float:
    """Reduce each group of places to a state, then these states in turn."""
    total, body = state(monoid, "total")
    for number, places in enumerate(groups):
        partial, fresh = state(monoid, f"partial{number}")
        body += fresh
        for place in places:
            body += monoids.combine(monoid, partial, monoids.lift(monoid, X[Const(place)], Const(place)))
        body += monoids.combine(monoid, total, partial)
    result = monoids.finish(monoid, total)
    out = Buffer("out", "i64", writable=True) if result.type == ir.I64 else OUT
    arrays = {"out": np.zeros(1, "i8" if result.type == ir.I64 else "f8"), "x": np.array(x)}
    kernel = ir.Kernel((out, X), (), (*body, Store(out, Const(0), result)))
    with np.errstate(invalid="ignore"):
        interpret(kernel, arrays, {}, np.random.default_rng(0))
    return float(arrays["out"][0])


def test_every_monoid_is_tested() -> None:
    assert EXPECTED.keys() == MONOIDS.keys()


@pytest.mark.parametrize("name", EXPECTED)
@given(x=TERMS, data=st.data())
def test_order_and_grouping_do_not_matter(name: str, x: list[float], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(x))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(x)), max_size=3)))
    groups = [order[low:high] for low, high in zip([0, *cuts], [*cuts, len(x)])]  # some are empty
    with np.errstate(invalid="ignore"):
        expected = float(EXPECTED[name](np.array(x)))
    assert reduced(MONOIDS[name], x, groups) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("name", EXPECTED)
def test_no_term_gives_the_identity(name: str) -> None:
    monoid = MONOIDS[name]
    empty = {"mean": 0.0, "argmax": -1.0, "argmin": -1.0}
    assert reduced(monoid, [], [[], []]) == empty.get(name, monoid.components[0].identity)
