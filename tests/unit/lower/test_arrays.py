"""Programs are proved to stay inside their arrays; what is changed in a kernel so that it does not is refused."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from tensorwise.errors import ScheduleError, UnprovenError
from tensorwise.lower import ir
from tensorwise.lower.arrays import check_bounds
from tensorwise.lower.interpret import RaceError, interpret
from tensorwise.lower.lower import lower
from tensorwise.lower.program import PlanKey, kernel_text, program_for
from tensorwise.lower.resolve import Resolver
from tensorwise.program.workload import Workload, einsum_workload
from tensorwise.runtime.interpreted import _operands
from tensorwise.runtime.packed import PackedOperands
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tests.oracle.judge import judge

SPMM, CHAIN, INNER = "C[i,j] += A[i,k] * B[k,j]", "C[i,j] += A[i,k] * S[k,j]", "C[i] += A[i,k] * S[i,j]"
BOTH = "C[i] += A[i,k] * S[i,j] * B[k] * D[j]"
DIAGONALS = [
    (SPMM, {"A": "(i,k) -> C(k-i) U(i)"}, "split(i,3) reorder(k-i,i0,i1,j) tile(i1,1x4)"),
    (SPMM, {"A": "(i,k) -> C(k-i) U(i)"}, "split(i,17) reorder(k-i,i0,i1,j) tile(i1,2x4)"),
    (SPMM, {"A": "(i,k) -> C(k-i) U(i)"}, "split(i,3) reorder(k-i,i1,i0,j) tile(i0,1x2)"),
    (SPMM, {"A": "(i,k) -> U(k-i) U(i)"}, "split(i,4) reorder(k-i,j,i0,i1) tile(i1,1x8)"),
    (SPMM, {"A": "(i,k) -> U(k1) C(i-k) U(k0:4)"}, "reorder(k1,i-k,k0,j) tile(k0,1x4)"),
    (CHAIN, {"A": "(i,k) -> U(i) C(k)", "S": "(k,j) -> C(j-k) U(k)"}, "reorder(i,j-k,k) tile(k,1x4)"),
    (CHAIN, {"A": "(i,k) -> C(k-i) U(i)", "S": "(k,j) -> C(j-k) U(k)"}, "reorder(k-i,j-k,i) tile(i,1x4)"),
    (CHAIN, {"A": "(i,k) -> C(k-i) U(i)", "S": "(k,j) -> U(j-k) U(k)"}, "reorder(k-i,j-k,i) tile(i,1x4)"),
    (INNER, {"A": "(i,k) -> C(k-i) U(i)", "S": "(i,j) -> C(j-i) U(i)"}, "reorder(k-i,j-i,i) tile(i,2x4)"),
    (INNER, {"A": "(i,k) -> C(k-i) U(i)", "S": "(i,j) -> C(j-i) U(i)"},
     "split(i,3) reorder(k-i,j-i,i0,i1) tile(i1,1x4)"),
    (BOTH, {"A": "(i,k) -> C(k-i) U(i)", "S": "(i,j) -> C(j-i) U(i)"}, "reorder(k-i,j-i,i) tile(i,1x4)"),
]  # fmt: skip
"""Lanes along diagonals: of an index whose parts are split, of one that is gathered, and of several operands."""


def entries(rows: int, columns: int, seed: int, density: float = 0.2) -> Entries:
    rng = np.random.default_rng(seed)
    row, column = np.nonzero(rng.random((rows, columns)) < density)
    return entries_from(((rows, columns), (row, column), rng.standard_normal(len(row)).astype(np.float32)))


def made(text: str, names: dict[str, str], shapes: tuple[tuple[int, int], ...], seed: int = 0) -> Workload:
    pairs = zip(names, shapes, strict=False)
    sparse = {name: entries(*shape, seed + place) for place, (name, shape) in enumerate(pairs)}
    return einsum_workload(text, sparse, {"j": 6} if "j" in text and len(names) == 1 else {})


@pytest.mark.parametrize(("text", "formats", "schedule"), DIAGONALS)
def test_lanes_along_diagonals(text: str, formats: dict[str, str], schedule: str) -> None:
    shapes = ((19, 11), (19, 14) if text in (INNER, BOTH) else (11, 14))
    for number, one in enumerate((shapes, tuple((b, a) for a, b in shapes) if len(formats) == 1 else shapes)):
        work = made(text, formats, one, seed=number)
        program = program_for(work, formats, schedule)
        packed = PackedOperands(program, work, 1)
        kernel = lower(packed.plan(program, None))
        rng = np.random.default_rng(1)
        operands = work.operands(rng)
        out = np.full(work.output_shape, np.nan, work.output_dtype)
        interpret(
            kernel, *_operands(kernel, packed, [*operands, out]), rng, None
        )  # IndexError where it leaves
        assert work.reference(operands).mismatch(out) is None


def test_the_condition_of_a_strip_is_what_makes_it_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    work = made(SPMM, {"A": ""}, ((37, 23),))
    program = program_for(work, DIAGONALS[0][1], DIAGONALS[0][2])
    check_bounds(program.plan(), lower(program.plan()))

    def neighbours(self: Resolver, axis: object, first: ir.Expr, width: object) -> ir.Expr:
        return inside(self, axis, first, 4 if isinstance(width, ir.Const) and width.value == 10 else width)  # type: ignore[arg-type]

    inside = Resolver.is_inside
    monkeypatch.setattr(Resolver, "is_inside", neighbours)
    with pytest.raises(
        UnprovenError,
        match=r"that B_values\[.*\] is inside of B_values, in `.*`: the index, .* may exceed .*This is a fault",
    ):
        check_bounds(program.plan(), lower(program.plan()))


def test_seeds_that_read_and_wrote_out_of_bounds() -> None:
    total = judge([727000615, 880004875])
    assert total.coverage.executed == 2
    assert not total.failures


CASES = [
    (SPMM, {"A": "(i,k) -> U(i) C(k)"}, "reorder(i,k,j) parallel(i,merge-path,2) tile(j,2x4) unroll(k,2) prefetch(B,4)"),
    (SPMM, {"A": "(i,k) -> U(i1) C(k1) U(i0:3) U(k0:2)"}, "reorder(i1,k1,i0,k0,j) tile(j,1x4) unroll(i0) unroll(k0)"),
    (SPMM, {"A": "(i,k) -> U(i1) C(k1) C(i0:17) C(k0:17)"}, "reorder(i1,k1,i0,k0,j) parallel(i1,dynamic,1,private)"),
    (SPMM, {"A": "(i:length8,k) -> U(i1) P(k#) U(i0:8) S16(k)"}, "reorder(i1,k#,i0,j) tile(j,1x4)"),
    (SPMM, {"A": "(i,k) -> B(i1) B(i0:4) B(k)"}, "split(i,4) reorder(i1,i0,k,j) unroll(k,2)"),
    (SPMM, {"A": "(i,k) -> N(i) S(k)"}, "reorder(i,k,j) tile(j,1x8) unroll(i,3)"),
    (SPMM, {"A": "(i,k) -> U(i) B(k)"}, "split(j,4) reorder(j1,k,i,j0) unroll(j0)"),
    (SPMM, {"A": "(i,k) -> C(k) C(i)"}, "split(k,4) reorder(k1,k0,i,j) tile(j,4x4) bound(j,6)"),
    ("C[i] += A[i,k] * B[k]", {"A": "(i,k) -> U(i) C(k)"}, "reorder(i,k) tile(k,2x4) parallel(i,balanced,2)"),
    ("C[i,j] = A[i,j] * S[i,j]", {"A": "(i,j) -> C(i) C(j)", "S": "(i,j) -> U(i) B(j)"}, "reorder(i,j)"),
    *DIAGONALS,
]  # fmt: skip


@pytest.mark.parametrize(("text", "formats", "schedule"), CASES)
def test_what_is_proved_stays_inside_and_changed_kernels_are_refused(
    text: str, formats: dict[str, str], schedule: str
) -> None:
    shapes = ((13, 13), (13, 13))
    work = made(text, formats, shapes, seed=3)
    program = program_for(work, formats, schedule)
    packed = PackedOperands(program, work, 5)
    plan = packed.plan(program, None)
    kernel = lower(plan)
    check_bounds(plan, kernel)
    rng = np.random.default_rng(2)
    operands = work.operands(rng)
    refused = 0
    for changed in mutants(kernel):
        try:
            check_bounds(plan, changed)
        except (UnprovenError, KeyError):
            refused += 1
            continue
        out = np.zeros(work.output_shape, work.output_dtype)
        try:
            interpret(changed, *_operands(changed, packed, [*operands, out]), rng, packed.bounds())
        except RaceError:
            continue  # what is computed may be wrong, but all of it was there
    assert refused >= 4, "the changes are such that some leave the arrays"


def mutants(kernel: ir.LoweredFunction) -> Iterator[ir.LoweredFunction]:
    """Yield the kernel with one loop a step longer, a condition left out, or an index moved."""
    places = sum(1 for _ in ir.walk(kernel.body))
    step = max(1, places // 12)
    for number in range(0, places, step):
        for change in (_longer, _earlier, _unconditional, _moved):
            body = _changed(kernel.body, number, change)
            if body != kernel.body:
                yield replace(kernel, body=body)


Change = Callable[[ir.Stmt], tuple[ir.Stmt, ...]]


def _longer(statement: ir.Stmt) -> tuple[ir.Stmt, ...]:
    return (replace(statement, hi=statement.hi + 1),) if isinstance(statement, ir.For) else (statement,)


def _earlier(statement: ir.Stmt) -> tuple[ir.Stmt, ...]:
    return (replace(statement, lo=statement.lo - 1),) if isinstance(statement, ir.For) else (statement,)


def _unconditional(statement: ir.Stmt) -> tuple[ir.Stmt, ...]:
    return statement.body if isinstance(statement, ir.If) else (statement,)


def _moved(statement: ir.Stmt) -> tuple[ir.Stmt, ...]:
    match statement:
        case ir.BufferStore(index=index) | ir.Reduce(index=index):
            return (replace(statement, index=index + 1),)
        case ir.Let(value=ir.Load(buffer=buffer, index=index)):
            return (replace(statement, value=buffer[index + 1]),)
    return (statement,)


def _changed(block: ir.Block, number: int, change: Change) -> ir.Block:
    """Return a block with the statement of that number, in the order of ``walk``, changed."""
    found: list[ir.Stmt] = []
    for statement in block:
        inside = isinstance(statement, ir.For | ir.If) and sum(1 for _ in ir.walk(statement.body))
        if number == 0:
            found.extend(change(statement))
        elif inside and 0 < number <= inside:
            found.append(replace(statement, body=_changed(statement.body, number - 1, change)))  # type: ignore[arg-type, type-var]
        else:
            found.append(statement)
        number -= 1 + int(inside)
    return tuple(found)


def test_a_program_that_is_not_proved_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    work = made(SPMM, {"A": ""}, ((5, 4),), seed=9)
    program = program_for(
        work, "(i,k) -> U(i) C(k)", "reorder(i,k,j) split(j,19)" if False else "reorder(i,k,j)"
    )

    def refuse(*_: object) -> None:
        raise UnprovenError("not certain")

    monkeypatch.setattr("tensorwise.lower.program.check_bounds", refuse)
    with pytest.raises(ScheduleError, match="not certain"):
        kernel_text.__wrapped__(PlanKey(program.plan()))  # type: ignore[attr-defined]
