"""The loop IR: arithmetic that folds, and its text for people."""

import itertools

import pytest

from tensorwise.lower import ir
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
    Splat,
    Type,
    Var,
)
from tensorwise.lower.loops import printed

AT, N = Var("i"), Var("n")
X = Buffer("x", "f32")
OUT = Buffer("out", "f32", writable=True)


@pytest.mark.parametrize(
    ("expression", "folded"),
    [
        (AT + 0, AT),
        (0 + AT, AT),
        (AT - 0, AT),
        (AT * 1, AT),
        (1 * AT, AT),
        (AT // 1, AT),
        (AT * 0, Const(0)),
        (Const(7) + 5, Const(12)),
        (Const(7) * 5, Const(35)),
        (Const(7) - 5, Const(2)),
        (Const(7) // 5, Const(1)),
        (AT + Ramp(N, 4), Ramp(ir.Op("add", (AT, N), ir.I64), 4)),
        (Ramp(N, 4) + 0, Ramp(N, 4)),
        (Ramp(Const(2), 4) + 3, Ramp(Const(5), 4)),
        (ir.smaller(Const(3), Const(2)), Const(2)),
    ],
)
def test_index_arithmetic_folds(expression: ir.Expr, folded: ir.Expr) -> None:
    assert expression == folded


def test_lanes_spread() -> None:
    strided = Ramp(Const(0), 4) * N
    assert strided.type == Type("i64", 4)
    assert strided == ir.Op("mul", (Ramp(Const(0), 4), Splat(N, 4)), Type("i64", 4))
    assert (Ramp(Const(0), 4) * 0).type.lanes == 4
    scaled = ir.compute("mul", Load(X, Ramp(AT, 8)), Var("s", Type("f32")))
    assert scaled.type == Type("f32", 8)
    assert ir.Fold("add", scaled).type == Type("f32")
    assert Load(Buffer("crd", "i32"), AT).type == ir.I64  # integers widen
    assert Load(Buffer("crd", "i32"), Ramp(AT, 2)).type == Type("i64", 2)


def test_walks_reach_everything() -> None:
    inner = (Let(Var("a"), X[AT]), If(ir.compare("lt", AT, N), (BufferStore(OUT, AT, X[Var("a")]),)))
    block = (For(AT, Const(0), N * 2, 1, inner), Reg(Var("r"), Const(0)))
    kinds = [type(statement).__name__ for statement in ir.walk(block)]
    assert kinds == ["For", "Let", "If", "BufferStore", "Reg"]
    names = {v.name for s in ir.walk(block) for e in ir.expressions(s) for v in ir.variables(e)}
    assert names == {"n", "i", "a"}


def test_every_kind_of_expression_knows_its_children() -> None:
    search = ir.SearchSorted(Buffer("crd", "i32"), AT, N, Var("c"))
    for expression, names in (
        (search, ["i", "n", "c"]),
        (Splat(AT, 4), ["i"]),
        (Ramp(N, 2), ["n"]),
        (ir.Fold("add", Load(X, Ramp(AT, 2))), ["i"]),
        (ir.Op("select", (AT, N, Const(1)), ir.I64), ["i", "n"]),
        (Const(1), []),
    ):
        assert [v.name for v in ir.variables(expression)] == names


def test_text_for_people() -> None:
    acc = Var("acc", Type("f32", 8))
    body = (
        Reg(acc, Const(0.0, Type("f32", 8))),
        For(
            AT,
            Const(0),
            N - 1,
            8,
            (Set(acc, ir.compute("add", acc, Load(X, Ramp(AT, 8)))),),
            ir.Workers("dynamic"),
        ),
        Let(Var("p"), ir.SearchSorted(Buffer("crd", "i32"), Const(0), N, AT + 1)),
        If(ir.compare("le", Const(0), Var("p")), (PrefetchLine(X, Var("p")),)),
        Reduce(OUT, Const(0), "max", ir.Fold("max", acc), atomic=True),
        BufferStore(OUT, Ramp(AT * 8, 8), ir.compute("neg", acc)),
    )
    assert printed(ir.LoweredFunction((), (), body, ("note",))).splitlines() == [
        "# note",
        "var acc: f32 x8 = 0",
        "parallel[dynamic] for i in 0 .. (n - 1), step 8:",
        "  acc := (acc + x[i:+8])",
        "p = search((i + 1) in crd[0:n])",
        "if (0 <= p):",
        "  prefetch x[p]",
        "out[0] max= fold_max(acc) atomically",
        "out[(i * 8):+8] = neg(acc)",
    ]


def test_statements_are_values() -> None:
    """Equal programs give equal IR, so that kernels can be compared and remembered."""
    makers = [
        lambda: BufferStore(OUT, AT + 1, X[N]),
        lambda: For(AT, Const(0), N, 1, (Let(Var("a"), AT * 2),)),
    ]
    for make in makers:
        assert make() == make()
        assert hash(make()) == hash(make())
    assert not any(a() == b() for a, b in itertools.combinations(makers, 2))
