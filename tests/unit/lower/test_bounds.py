"""Proofs that kernels stay inside their arrays: what is proved, what is refused, and that the first is right."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.errors import UnprovenError
from tensorwise.lower import ir
from tensorwise.lower.bounds import Array, Facts, prove_bounds
from tensorwise.lower.inequalities import Inequalities
from tensorwise.lower.ir import Buffer, BufferStore, Const, Expr, For, If, Let, Ramp, Var
from tensorwise.lower.polynomials import Poly

# ruff: noqa: E741 - a loop is called I
X, OUT, CRD, POS = (
    Buffer("x", "f32"),
    Buffer("out", "f32", writable=True),
    Buffer("crd", "i32"),
    Buffer("pos", "i32"),
)
N, M, I, J, P, S = (Var(name) for name in "nmijps")
ARRAYS = {
    "x": Array(N), "out": Array(N * M), "crd": Array(M, ((Const(0), N - 1),)),
    "pos": Array(N + 1, ((Const(0), M),), ascending=True),
}  # fmt: skip
ZERO = Const(0.0, ir.Type("f32"))


def proves(*body: ir.Stmt, sizes: tuple[Var, ...] = (N, M), least: int = 0) -> bool:
    facts = Facts(ARRAYS, {size.name: least for size in sizes})
    try:
        prove_bounds(ir.LoweredFunction((OUT, X, CRD, POS), sizes, body), facts)
    except UnprovenError:
        return False
    return True


def loop(var: Var, lo: Expr | int, hi: Expr | int, *body: ir.Stmt, step: int = 1) -> For:
    return For(var, ir.as_expr(lo), ir.as_expr(hi), step, body)


def write(index: Expr) -> BufferStore:
    return BufferStore(OUT, index, ir.widen(ZERO, index.type.lanes))


def test_loops_and_products() -> None:
    assert proves(loop(I, 0, N, loop(J, 0, M, write(I * M + J))))
    assert not proves(loop(I, 0, N, loop(J, 0, M, write(I * M + J + 1))))
    assert not proves(loop(I, 0, N, loop(J, 0, M, write(J * M + I))))
    assert not proves(loop(I, -1, N, loop(J, 0, M, write(I * M + J))))
    assert not proves(loop(I, 0, N + 1, loop(J, 0, M, write(I * M + J))))
    assert not proves(write(Const(0))), "there may be no element"
    assert proves(write(Const(0)), least=1)


def test_strips_of_vectors_and_what_is_left() -> None:
    size = N * M
    stop = Var("stop")
    body = (
        Let(stop, (size // 4) * 4),
        loop(I, 0, stop, write(Ramp(I, 4)), step=4),
        loop(J, stop, size, write(J)),
    )
    assert proves(*body)
    assert not proves(body[0], replace(body[1], step=2))
    assert not proves(body[0], loop(I, 0, stop, write(Ramp(I, 8)), step=4))
    assert proves(loop(I, 0, size, If(ir.compare("le", I + 4, size), (write(Ramp(I, 4)),)), step=3))
    assert not proves(loop(I, 0, size, If(ir.compare("le", I + 3, size), (write(Ramp(I, 4)),)), step=3))


def test_stored_positions_and_coordinates() -> None:
    read = Let(Var("v", ir.Type("f32")), X[CRD[P]])
    assert proves(loop(I, 0, N, loop(P, POS[I], POS[I + 1], read)))
    assert not proves(loop(I, 0, N + 1, loop(P, POS[I], POS[I + 1], read)))
    assert not proves(loop(I, 0, N, loop(P, POS[I], POS[I + 1] + 1, read)))
    assert not proves(loop(I, 0, N, loop(P, POS[I], POS[I + 1], Let(Var("v", ir.Type("f32")), X[P]))))
    # pos[0] is 0, so that a larger pointer is not the first.
    before = Let(Var("v", ir.Type("f32")), X[I - 1])
    assert proves(loop(I, 0, N + 1, If(ir.compare("lt", Const(0), POS[I]), (before,))))
    assert not proves(loop(I, 0, N + 1, If(ir.compare("le", Const(0), POS[I]), (before,))))
    # Positions cut in four: with a count that may not be negative.
    main = (POS[I + 1] - POS[I]) // 4 * 4 + POS[I]
    assert proves(loop(I, 0, N, loop(P, POS[I], main, Let(Var("v", ir.Type("f32")), X[CRD[P + 3]]), step=4)))


def test_split_indices() -> None:
    outer, inner = Var("outer"), Var("inner")
    whole = (N + (S - 1)) // S
    inside = loop(inner, 0, ir.smaller(S, N - outer * S), Let(Var("v", ir.Type("f32")), X[outer * S + inner]))
    facts = Facts(ARRAYS, {"n": 0, "m": 0, "s": 1})
    prove_bounds(ir.LoweredFunction((X,), (N, M, S), (loop(outer, 0, whole, inside),)), facts)
    for wrong in (
        loop(outer, 0, whole, replace(inside, hi=S)),
        loop(outer, 0, whole, replace(inside, hi=ir.smaller(S, N - outer))),
    ):
        with pytest.raises(
            UnprovenError,
            match=r"not proved: that x\[.*\] is inside of x, in `v = x.*`: the index, .*, may exceed the last one of n ",
        ):
            prove_bounds(ir.LoweredFunction((X,), (N, M, S), (wrong,)), facts)


def test_values_that_come_from_elsewhere_are_any() -> None:
    given_ = Buffer("given", "i64")
    arrays = {**ARRAYS, "given": Array(N)}

    def accepted(*body: ir.Stmt) -> bool:
        try:
            prove_bounds(ir.LoweredFunction((X, given_), (N, M), body), Facts(arrays, {"n": 0, "m": 0}))
        except UnprovenError:
            return False
        return True

    read = Let(Var("v", ir.Type("f32")), X[P])
    inside = ir.both(ir.compare("le", Const(0), P), ir.compare("lt", P, N))
    assert not accepted(loop(I, 0, N, Let(P, given_[I]), read))
    assert accepted(loop(I, 0, N, Let(P, given_[I]), If(inside, (read,))))
    assert not accepted(loop(I, 0, N, Let(P, given_[I]), If(inside, ()), read)), (
        "the condition holds inside only"
    )
    assert not accepted(BufferStore(Buffer("unknown", "f32", True), Const(0), ZERO))
    register = Var("register")
    assert not accepted(ir.Reg(register, Const(0)), loop(I, 0, N, Let(Var("v", ir.Type("f32")), X[register])))


def test_a_message_names_the_access() -> None:
    with pytest.raises(
        UnprovenError,
        match=r"that out\[\(\(i \* m\) \+ 1\)\] is inside of out, in `out\[.*`: the index, m \* i \+ 1, may exceed the last",
    ):
        prove_bounds(
            ir.LoweredFunction((OUT,), (N, M), (loop(I, 0, N, write(I * M + 1)),)),
            Facts(ARRAYS, {"n": 0, "m": 0}),
        )


SMALL = st.integers(-3, 3)


@settings(deadline=None)
@given(
    st.tuples(st.integers(-3, 3), st.integers(0, 5)),
    st.tuples(SMALL, st.integers(-4, 4), SMALL, st.integers(0, 6), st.integers(1, 3)),
    st.lists(st.tuples(SMALL, SMALL, st.integers(-1, 1), st.integers(-6, 6)), max_size=3),
    st.tuples(SMALL, SMALL, st.integers(-1, 1), st.integers(-1, 1), st.integers(-8, 8)),
)
def test_what_holds_does_for_all_integers(
    range_: tuple[int, int],
    bounds: tuple[int, int, int, int, int],
    assumed: list[tuple[int, int, int, int]],
    asked: tuple[int, int, int, int, int],
) -> None:
    (low, extent), (low_a, low_1, high_a, high_1, by) = range_, bounds
    known = Inequalities()
    a = known.unknown("a", Poly.constant(low), Poly.constant(low + extent))
    b = known.unknown("b")
    known.bound(b, Poly.constant(by), low=low_a * a + low_1, high=high_a * a + high_1)
    for left, right, both, constant in assumed:
        known.assume(left * a + right * b + both * a * b + constant)
    if not known.holds(asked[0] * a + asked[1] * b + asked[2] * a * b + asked[3] * b * b + asked[4]):
        return
    for x in range(low, low + extent + 1):
        for y in range(-30, 31):
            if not low_a * x + low_1 <= by * y <= high_a * x + high_1:
                continue
            if all(left * x + right * y + both * x * y + c >= 0 for left, right, both, c in assumed):
                assert asked[0] * x + asked[1] * y + asked[2] * x * y + asked[3] * y * y + asked[4] >= 0


def test_factors_of_unknown_sign_prove_nothing() -> None:
    known = Inequalities()
    a = known.unknown("a", Poly.constant(-3), Poly.constant(3))
    b = known.unknown("b", Poly.constant(-5), Poly.constant(2))
    assert not known.holds(a * b + 10), "3 * -5 + 10 is negative"
    assert not known.holds(10 - a * b), "10 - -3 * -5 is negative"
    assert known.holds((a + 3) * b + 30)
    assert not known.holds((a + 3) * b + 29)


def test_quotients_are_rounded_down() -> None:
    known = Inequalities()
    n = known.unknown("n", Poly.constant(0))
    quotient, less, more = (known.unknown(name) for name in ("n / 4", "less", "more"))
    four = Poly.constant(4)
    known.bound(quotient, four, low=n - 3, high=n)
    known.bound(less, four, high=n)
    known.bound(more, four, high=n + 1)
    assert known.holds(quotient - less), "what is not above n / 4 is not above n // 4"
    assert not known.holds(quotient - more), "(n + 1) // 4 is above n // 4 for n = 3"
    assert known.holds(4 * quotient - n + 3)
    assert not known.holds(4 * quotient - n + 2)


@given(st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=3), st.integers(-5, 5)), max_size=4))
def test_polynomials_are_rings(terms: list[tuple[list[int], int]]) -> None:
    value = np.array([3, -2, 5])
    made = Poly({})
    for unknowns, factor in terms:
        product = Poly.constant(factor)
        for unknown in unknowns:
            product = product * Poly.unknown(unknown)
        made = made + product

    def at(poly: Poly) -> int:
        return sum(factor * int(np.prod(value[list(m)], initial=1)) for m, factor in poly.terms.items())

    plain = sum(factor * int(np.prod(value[unknowns], initial=1)) for unknowns, factor in terms)
    assert at(made) == plain
    for unknown in range(3):
        factor, rest = made.split(unknown)
        assert at(factor) * value[unknown] + at(rest) == plain
    quotient, rest = made.parted(2 * Poly.unknown(1))
    assert 2 * at(quotient) * value[1] + at(rest) == plain
    assert (made - made).value == 0
    assert 1 - made == -(made - 1)
