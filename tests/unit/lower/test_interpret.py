"""The interpreter: what the IR means, accesses outside buffers, and races that it must see."""

import numpy as np
import pytest

from tensorwise.lower import ir
from tensorwise.lower.interpret import IMAGINARY_THREADS, RaceError, interpret
from tensorwise.lower.ir import (
    Buffer,
    BufferStore,
    Const,
    For,
    If,
    Let,
    Load,
    PrefetchLine,
    Ramp,
    Reduce,
    Reg,
    Set,
    Type,
    Var,
)

OUT, X, CRD = Buffer("out", "f64", writable=True), Buffer("x", "f64"), Buffer("crd", "i32")
AT, N, T = Var("i"), Var("n"), ir.THREAD
ONE = Const(1.0, Type("f64"))


def run(
    *body: ir.Stmt,
    out: int = 8,
    x: object = (),
    crd: object = (),
    n: int = 8,
    seed: int = 0,
    bounds: object = None,
) -> np.ndarray:
    """Run a kernel of these statements; return its output."""
    buffers = {"out": np.zeros(out), "x": np.array(x, float), "crd": np.array(crd, np.int32)}
    parts = None if bounds is None else np.array(bounds, np.int64)
    interpret(
        ir.LoweredFunction((OUT, X, CRD), (N,), body), buffers, {"n": n}, np.random.default_rng(seed), parts
    )
    return buffers["out"]


def parallel(*body: ir.Stmt, policy: str = "dynamic", hi: ir.Expr = N) -> For:
    return For(AT, Const(0), hi, 1, body, ir.Workers(policy))


# -- meaning -------------------------------------------------------------------------------------------


def test_loops_conditions_and_variables() -> None:
    acc = Var("acc", Type("f64"))
    body = (
        Reg(acc, Const(0.0, Type("f64"))),
        For(AT, Const(2), N, 3, (Set(acc, ir.compute("add", acc, X[AT])),)),
        If(ir.compare("lt", N, Const(9)), (BufferStore(OUT, Const(0), acc),)),
        If(ir.compare("lt", N, Const(8)), (BufferStore(OUT, Const(1), ONE),)),
        Let(Var("twice"), N * 2),
        BufferStore(OUT, Var("twice") - 14, ONE),
    )
    assert run(*body, x=range(8)).tolist() == [2 + 5, 0, 1, 0, 0, 0, 0, 0]


def test_vectors() -> None:
    four = Type("f64", 4)
    moved = ir.compute("mul", Load(X, Ramp(Const(1), 4)), Const(2.0, Type("f64")))
    gathered = Load(X, Load(CRD, Ramp(Const(0), 4)))
    folded = ir.Fold("max", gathered)
    body = (
        BufferStore(OUT, Ramp(Const(0), 4), moved),
        Let(Var("v", four), gathered),
        Reduce(OUT, Ramp(Const(2), 4), "add", Var("v", four)),
        BufferStore(OUT, Const(7), folded),
    )
    assert run(*body, x=range(6), crd=[5, 0, 0, 3]).tolist() == [2, 4, 6 + 5, 8, 0, 3, 0, 5]


def test_a_search_finds_its_coordinate_or_nothing() -> None:
    def found(wanted: int, lo: int, hi: int) -> float:
        search = ir.SearchSorted(CRD, Const(lo), Const(hi), Const(wanted))
        place = Var("p")
        body = (Let(place, search), BufferStore(OUT, ir.compute("add", place, Const(1)), ONE))
        return float(np.flatnonzero(run(*body, crd=[1, 4, 9, 2, 4]))[0]) - 1

    assert [found(*case) for case in ((4, 0, 3), (4, 3, 5), (9, 0, 2), (5, 0, 3), (1, 2, 2))] == [
        1,
        4,
        -1,
        -1,
        -1,
    ]


def test_selects_and_logic() -> None:
    both = ir.Op("and", (ir.compare("le", Const(3), N), ir.compare("ne", N, Const(8))), ir.I64)
    either = ir.Op("or", (both, ir.compare("eq", N, Const(8))), ir.I64)
    chosen = ir.Op("select", (either, Const(2), Const(5)), ir.I64)
    assert run(BufferStore(OUT, chosen, ONE)).tolist() == [0, 0, 1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("policy", ["dynamic", "even", "balanced"])
def test_parallel_loops_cover_their_range_once(policy: str) -> None:
    for n in (0, 1, 7, 100):
        body = parallel(Reduce(OUT, AT, "add", ONE), policy=policy)
        assert run(body, out=100, n=n, seed=n).tolist() == [1.0] * n + [0.0] * (100 - n)


def test_balanced_parts_are_the_ones_given() -> None:
    body = parallel(Reduce(OUT, AT, "add", ONE), policy="balanced")
    assert run(body, bounds=[0, 0, 3, 5]).tolist() == [1, 1, 1, 1, 1, 0, 0, 0]


def test_variables_do_not_leak_between_chunks() -> None:
    kept = Var("kept")
    first = If(ir.compare("eq", AT, Const(0)), (Let(kept, Const(3)),))
    with pytest.raises(KeyError):
        run(parallel(first, BufferStore(OUT, ir.binary("add", kept, AT), ONE)), out=40, n=30)


# -- what must not happen --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        BufferStore(OUT, Const(8), ONE),
        BufferStore(OUT, Const(-1), ONE),
        BufferStore(OUT, Ramp(Const(5), 4), ir.widen(ONE, 4)),
        Reduce(OUT, Const(8), "add", ONE),
        BufferStore(OUT, Const(0), X[8]),
        BufferStore(OUT, Const(0), ir.Fold("add", Load(X, Ramp(Const(6), 4)))),
        BufferStore(OUT, ir.SearchSorted(CRD, Const(0), Const(4), Const(1)), ONE),
    ],
)
def test_accesses_outside_buffers_are_reported(statement: ir.Stmt) -> None:
    with pytest.raises(IndexError, match=r"(out|x|crd)\[-?\d+\] lies outside its \d elements"):
        run(statement, x=range(8), crd=[0, 1, 2])


def test_a_prefetch_may_point_anywhere_but_not_read_there() -> None:
    run(PrefetchLine(X, Const(10**9)), x=[1.0])
    with pytest.raises(IndexError, match=r"crd\[7\] lies outside"):
        run(PrefetchLine(X, CRD[7]), x=[1.0], crd=[1])


RACES = {
    "all threads store one element": BufferStore(OUT, Const(3), ONE),
    "neighbours store one element": BufferStore(OUT, ir.Op("floordiv", (AT, Const(2)), ir.I64), ONE),
    "vectors overlap": BufferStore(OUT, Ramp(AT, 2), ir.widen(ONE, 2)),
    "a plain update is not atomic": Reduce(OUT, Const(0), "add", ONE),
    "a reader beside a writer": BufferStore(OUT, ir.Op("min", (AT + 1, N - 1), ir.I64), Load(OUT, AT)),
    "a reader beside atomic updates": Reduce(OUT, Const(0), "add", Load(OUT, Const(0)), atomic=True),
}  # fmt: skip


@pytest.mark.parametrize("name", RACES)
def test_races_are_reported(name: str) -> None:
    for seed in range(10):
        with pytest.raises(RaceError, match=r"thread \d .* out\[\d\], which .* in the same parallel loop"):
            run(parallel(RACES[name]), out=9, seed=seed)


def test_atomic_and_plain_updates_do_not_mix() -> None:
    mixed = (
        If(ir.compare("lt", AT, Const(4)), (Reduce(OUT, Const(0), "add", ONE, atomic=True),)),
        If(ir.compare("le", Const(4), AT), (BufferStore(OUT, Const(0), ONE),)),
    )
    for seed in range(10):
        with pytest.raises(RaceError):
            run(parallel(*mixed), seed=seed)


@pytest.mark.parametrize(
    ("statement", "result"),
    [
        (BufferStore(OUT, AT, ONE), [1.0] * 8),
        (Reduce(OUT, AT, "add", ONE), [1.0] * 8),
        (Reduce(OUT, Const(2), "add", ONE, atomic=True), [0, 0, 8.0, 0, 0, 0, 0, 0]),
        (BufferStore(OUT, AT, X[0]), [5.0] * 8),  # all read, none writes
    ],
)
def test_what_is_no_race(statement: ir.Stmt, result: list[float]) -> None:
    for seed in range(10):
        assert run(parallel(statement), x=[5.0], seed=seed).tolist() == result


def test_private_copies_are_no_race() -> None:
    for seed in range(5):
        out = run(parallel(Reduce(OUT, T * 1, "add", ONE)), n=50, seed=seed)
        assert out.sum() == 50
        assert (out[IMAGINARY_THREADS:] == 0).all()
        assert np.count_nonzero(out) > 1


def test_threads_may_meet_in_different_loops() -> None:
    assert (
        run(parallel(BufferStore(OUT, AT, ONE)), parallel(BufferStore(OUT, N - 1 - AT, ONE))).tolist()
        == [1.0] * 8
    )


def test_a_racy_kernel_in_a_short_loop() -> None:
    """Two iterations are two chunks: chance must not put them into one."""
    found = 0
    for seed in range(50):
        try:
            run(parallel(Reduce(OUT, Const(0), "add", ONE)), n=2, seed=seed)
        except RaceError:
            found += 1
    assert found > 25  # both on the same of five threads is no race
