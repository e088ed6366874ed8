"""Reductions on states: any order and any grouping of the terms gives what NumPy gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorwise.lower import ir, monoids
from tensorwise.lower.interpret import interpret
from tensorwise.lower.ir import Buffer, BufferStore, Const, Reg, Type, Var
from tensorwise.lower.program import program_for
from tensorwise.program.ops import MONOIDS, Monoid
from tensorwise.program.workload import einsum_workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.interpreted import InterpretedKernel
from tensorwise.tensor.convert import entries_from

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
    kernel = ir.LoweredFunction((out, X), (), (*body, BufferStore(out, Const(0), result)))
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


@pytest.mark.parametrize("reduction", ["argmax", "argmin"])
@pytest.mark.parametrize(
    "schedule",
    [
        "reorder(i,k)",
        "split(k,4) reorder(i,k0,k1)",
        "split(k,4) reorder(i,k1,k0)",
        "split(k,3) split(i,2) reorder(i1,i0,k0,k1) parallel(i1,dynamic,1)",
        "split(k,4) reorder(i,k0,k1) unroll(k0)",
        "reorder(i,k) unroll(k,3)",
        "reorder(i,f,k) unroll(k,3) tile(f,1x4)",
        "reorder(i,f,k) unroll(k,2) tile(f,2x2) parallel(i,balanced,2)",
    ],
)
def test_of_equal_extremes_the_first_entry_is_meant(reduction: str, schedule: str) -> None:
    """Also where loops search for entries in another order than they are stored in."""
    rng = np.random.default_rng(0)
    a = entries_from(np.where(rng.random((9, 11)) < 0.7, 1.0, 0.0))
    text = "P[i,f] {}= B[k,f] * E[A,f] for A[i,k]" if "f" in schedule else "P[i] {}= B[k] * E[A] for A[i,k]"
    work = einsum_workload(text.format(reduction), {"A": a}, {"f": 9} if "f" in schedule else {})
    program = program_for(work, "(i,k) -> U(i) C(k)", schedule)
    for values in (
        [0.0, 1.0],
        [-np.inf, np.inf, 0.0],
        [np.nan, 1.0],
        [np.inf, np.nan],
        [-np.inf, np.nan, -1.0],
    ):
        operands = [rng.choice(values, work.shape(name)) for name in work.dense]
        with np.errstate(invalid="ignore"):
            expected = work.reference(operands).value
        for kernel in (GeneratedKernel(program), InterpretedKernel(program, rng)):
            out = np.empty(work.output_shape, work.output_dtype)
            kernel.bind(work, 2).run(operands, out)
            np.testing.assert_array_equal(out, expected, err_msg=kernel.name)
