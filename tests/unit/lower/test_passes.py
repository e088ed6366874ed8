"""Passes over the loop IR: vectors held before a loop, folds of unrolled copies made together."""

import numpy as np
import pytest

from tensorwise.lower import ir
from tensorwise.lower.hoist import REGISTERS, hoist
from tensorwise.lower.ir import Buffer, BufferStore, Const, Fold, For, If, Let, Load, Ramp, Reg, Set, Var
from tensorwise.lower.program import program_for
from tensorwise.lower.together import COUNT, fold_together
from tensorwise.program.workload import workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.interpreted import InterpretedKernel
from tensorwise.tensor.convert import entries_from

A, B, OUT = Buffer("A", "f32"), Buffer("B", "f32"), Buffer("out", "f32", writable=True)
P, N = Var("p"), Var("N_p")


def kernel(*body: ir.Stmt) -> ir.LoweredFunction:
    return ir.LoweredFunction((A, B, OUT), (N,), body)


def loop(*body: ir.Stmt, step: int = 1) -> For:
    return For(P, Const(0), N, step, body)


def test_what_an_innermost_loop_reads_again_is_held() -> None:
    same, other = Load(A, Ramp(Const(8), 8)), Load(B, Ramp(P * 8, 8))
    store = BufferStore(OUT, Ramp(P * 8, 8), ir.compute("mul", same, other))
    first, after = hoist(kernel(loop(store))).body
    held = Var("held0_", same.type)
    assert first == Let(held, same)
    assert after == loop(BufferStore(OUT, Ramp(P * 8, 8), ir.compute("mul", held, other)))


def test_no_more_is_held_than_registers_are_free() -> None:
    vector = ir.Type("f32", 8)
    busy = [Reg(Var(f"v{n}", vector), ir.widen(Const(0.0, ir.Type("f32")), 8)) for n in range(4)]
    sets = [
        Set(
            Var(f"v{n % 4}", vector),
            ir.compute("add", Var(f"v{n % 4}", vector), Load(A, Ramp(Const(8 * n), 8))),
        )
        for n in range(20)
    ]
    held = [s for s in hoist(kernel(*busy, loop(*sets))).body if isinstance(s, Let)]
    assert len(held) == REGISTERS - 4


@pytest.mark.parametrize(
    "inside",
    [
        If(N, (BufferStore(OUT, Ramp(P * 8, 8), Load(A, Ramp(Const(0), 8))),)),
        BufferStore(OUT, Ramp(P * 8, 8), Load(OUT, Ramp(Const(0), 8))),
        BufferStore(OUT, P, Load(A, Const(3))),
    ],
    ids=["under a condition", "written meanwhile", "no vector"],
)
def test_what_stays_in_the_loop(inside: ir.Stmt) -> None:
    given = kernel(loop(inside))
    assert hoist(given) == given


def copies(count: int, index_step: int = 1) -> list[ir.Stmt]:
    body: list[ir.Stmt] = []
    for n in range(count):
        vector, total = Var(f"v{n}", ir.Type("f32", 8)), Var(f"t{n}", ir.Type("f32"))
        body.append(Let(vector, Load(A, Ramp((P + n) * 8, 8))))
        body.append(Let(total, Fold("add", vector)))
        value = ir.compute("mul", total, Load(B, P + n))
        body.append(BufferStore(OUT, P + n * index_step, value))
    return body


def test_folds_of_copies_are_made_together() -> None:
    (made,) = fold_together(kernel(loop(*copies(COUNT), step=COUNT))).body
    assert isinstance(made, For)
    folded = Var("folded0_", ir.Type("f32", COUNT))
    vectors = tuple(Var(f"v{n}", ir.Type("f32", 8)) for n in range(COUNT))
    assert made.body[-2:] == (
        Let(folded, ir.Folds("add", vectors)),
        BufferStore(OUT, Ramp(P, COUNT), ir.compute("mul", folded, Load(B, Ramp(P, COUNT)))),
    )
    assert not any(isinstance(s, Let) and isinstance(s.value, Fold) for s in made.body)


def test_copies_that_do_not_line_up_stay() -> None:
    for body in (copies(COUNT, index_step=2), copies(COUNT - 1)):
        given = kernel(loop(*body, step=COUNT))
        assert fold_together(given) == given


def test_copies_that_share_a_register_stay() -> None:
    vector = Var("v", ir.Type("f32", 8))
    body: list[ir.Stmt] = []
    for n in range(COUNT):
        body.append(Set(vector, Load(A, Ramp((P + n) * 8, 8))))
        body.append(BufferStore(OUT, P + n, Fold("add", vector)))
    given = kernel(Reg(vector, ir.widen(Const(0.0, ir.Type("f32")), 8)), loop(*body, step=COUNT))
    assert fold_together(given) == given


@pytest.mark.parametrize("elem", ["float32", "float64", "float16"])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize(
    ("format", "schedule"),
    [
        ("(i,j) -> U(i) C(j)", "reorder(i,j,k) tile(k,1x{lanes}) bound(k,{n}) unroll(j,4)"),
        ("(i,j) -> U(i) C16(j)", "reorder(i,j,k) tile(k,1x{lanes}) bound(k,{n}) unroll(j,8) factor(k)"),
        (
            "(i,j) -> U(j1) U(i) C(j0:32)",
            "split(j,32) reorder(j1,i,j0,k) tile(k,1x{lanes}) bound(k,{n}) unroll(j0,4) factor(k)",
        ),
        ("(i,j) -> U(i) C(j)", "split(k,16) reorder(k1,i,j,k0) tile(k0,1x{lanes}) unroll(j,4) factor(k0)"),
    ],
)
def test_sampled_products_in_groups(elem: str, lanes: int, format: str, schedule: str) -> None:
    rng = np.random.default_rng(lanes)
    matrix = np.where(rng.random((37, 70)) < 0.3, rng.normal(size=(37, 70)), 0).astype(elem)
    for n in (32, 21):
        work = workload("sddmm", entries_from(matrix), n=n)
        operands = work.operands(rng)
        expected = work.reference(operands)
        program = program_for(work, format, schedule.format(n=n, lanes=lanes))
        (text,) = GeneratedKernel(program).texts(work)
        if n == 32:  # no rest that is summed apart
            assert ("tw_folds_add" in text) == (lanes > 2)
        for one in (InterpretedKernel(program, rng), GeneratedKernel(program)):
            out = np.empty(work.output_shape, work.output_dtype)
            one.bind(work, 1).run(operands, out)
            assert expected.mismatch(out) is None, one.name
