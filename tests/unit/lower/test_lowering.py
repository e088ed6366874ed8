"""Lowering by composition: collaborators of the nest by themselves, and the passes that surround it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir
from tensorwise.lower.accumulators import Accumulators
from tensorwise.lower.builder import Builder
from tensorwise.lower.c import print_c
from tensorwise.lower.cpu import CpuMapping
from tensorwise.lower.env import Env, Lanes, State
from tensorwise.lower.first_terms import start_with_first_terms
from tensorwise.lower.ir import Buffer, BufferStore, Const, Fold, For, If, Let, Reduce, Reg, Set, Var
from tensorwise.lower.lower import lower
from tensorwise.lower.mapping import StripRange
from tensorwise.lower.operands import Operands
from tensorwise.lower.outputs import fill_output, privatize, round_once, rounds_partial_results
from tensorwise.lower.plan import Plan
from tensorwise.lower.program import Program
from tensorwise.lower.reductions import fits_registers
from tensorwise.lower.resolve import Resolver
from tensorwise.program.einsum import Einsum
from tensorwise.program.ops import MONOIDS
from tensorwise.program.schedule import Schedule
from tensorwise.tensor.format import Format
from tensorwise.tensor.levels import Compressed, Dense
from tensorwise.tensor.remap import Axis

F32 = ir.Type("f32")
OUT, IN = Buffer("out", "f32", writable=True), Buffer("x", "f32")
ROW, N, E, T = Var("i"), Var("N_i"), Var("e"), Var("t")
ZERO = Const(0.0, F32)


def plan(schedule: str = "", format: str = "(i,k) -> U(i) C(k)", text: str = "C[i] += A[i,k] * B[k]") -> Plan:
    einsum, formats = Einsum.parse(text).single, {"A": Format.parse(format)}
    return Program(einsum, formats, Schedule.parse(schedule)).plan()


def parts(plan: Plan) -> tuple[Plan, Operands, Builder, Resolver]:
    operands = Operands(plan)
    builder = Builder(operands.names())
    return plan, operands, builder, Resolver(plan, operands, builder)


# -- the builder --------------------------------------------------------------------------------------


def test_names_differ_from_each_other_from_operands_and_from_words_of_c() -> None:
    builder = Builder(["acc", "acc_1"])
    names = [builder.fresh(stem).name for stem in ("acc", "acc", "i", "i", "int", "k'")]
    assert names == ["acc_2", "acc_3", "i", "i_1", "int_1", "k_"]


def test_a_scope_collects_a_body_and_an_empty_one_makes_nothing() -> None:
    builder = Builder([])
    with builder.scope(lambda body: If(N, body)):
        builder.append(Reg(ROW, Const(0)))
    with builder.scope(lambda body: If(ROW, body)):
        pass
    with builder.separate() as other:
        builder.let("size", N * 2)
    assert builder.block == [If(N, (Reg(ROW, Const(0)),))]
    assert other == [Let(Var("size"), N * 2)]


def test_numbers_and_names_need_no_name() -> None:
    builder = Builder([])
    assert builder.let("x", N) == N
    assert builder.let("x", Const(3)) == Const(3)
    assert not builder.block


# -- passes over the output ---------------------------------------------------------------------------


def kernel(statement: ir.Stmt, output: Buffer = OUT) -> ir.LoweredFunction:
    inner = If(N, (For(ROW, Const(0), N, 1, (statement,)),))
    return ir.LoweredFunction((output, IN), (N,), (inner,))


def nested(statement: ir.Stmt) -> ir.Stmt:
    return If(N, (For(ROW, Const(0), N, 1, (statement,)),))


def test_an_output_is_filled_before() -> None:
    given = kernel(Reduce(OUT, ROW, "add", IN[ROW]))
    binding = ir.Workers("even")
    filled = fill_output(given, N, -1.0, binding)
    assert filled == replace(
        given, body=(For(E, Const(0), N, 1, (BufferStore(OUT, E, Const(-1.0, F32)),), binding), *given.body)
    )


def test_threads_reduce_into_copies_of_their_own() -> None:
    work = Buffer("work", "f32", writable=True)
    made = privatize(kernel(Reduce(OUT, ROW, "add", IN[ROW], True)), N, "add", ZERO, False, None)
    merged = Var("merged", F32)
    add = Set(merged, ir.compute("add", merged, work[T * N + E]))
    assert made.buffers == (OUT, IN, work)
    assert made.body == (
        For(E, Const(0), ir.THREADS * N, 1, (BufferStore(work, E, ZERO),)),
        nested(Reduce(work, ir.THREAD * N + ROW, "add", IN[ROW])),
        For(
            E, Const(0), N, 1,
            (Reg(merged, ZERO), For(T, Const(0), ir.THREADS, 1, (add,)), BufferStore(OUT, E, merged)),
        ),
    )  # fmt: skip


def test_copies_are_added_to_what_the_output_holds() -> None:
    made = privatize(kernel(Reduce(OUT, ROW, "add", IN[ROW], True)), N, "add", ZERO, True, None)
    *_, merge = made.body
    assert isinstance(merge, For)
    assert merge.body[0] == Reg(Var("merged", F32), OUT[E])


@pytest.mark.parametrize("statement", [BufferStore(OUT, ROW, IN[ROW]), Reduce(OUT, ROW, "add", IN[ROW])])
def test_what_no_other_thread_updates_stays_in_the_output(statement: ir.Stmt) -> None:
    made = privatize(kernel(statement), N, "add", ZERO, False, None)
    assert made.body[1] == nested(statement)


def test_outputs_of_16_bits_are_rounded_once() -> None:
    half, work = replace(OUT, elem="f16"), Buffer("work", "f32", writable=True)
    reduced, stored = (
        kernel(s, half) for s in (Reduce(half, ROW, "add", IN[ROW]), BufferStore(half, ROW, IN[ROW]))
    )
    assert rounds_partial_results(reduced)
    assert not rounds_partial_results(stored)
    assert not rounds_partial_results(kernel(Reduce(OUT, ROW, "add", IN[ROW])))
    made = round_once(reduced, N, ZERO, None)
    assert made.buffers == (half, IN, work)
    assert made.body == (
        For(E, Const(0), N, 1, (BufferStore(work, E, ZERO),)),
        nested(Reduce(work, ROW, "add", IN[ROW])),
        For(E, Const(0), N, 1, (BufferStore(half, E, work[E]),)),
    )


# -- accumulators -------------------------------------------------------------------------------------

ACC = Var("acc", F32)
ADD = Set(ACC, ir.compute("add", ACC, IN[ROW]))


def test_an_accumulator_starts_with_its_first_term() -> None:
    block: list[ir.Stmt] = [Reg(ACC, ZERO), Reg(ROW, Const(0)), ADD, ADD]
    start_with_first_terms(block, [ACC], 0.0)
    assert block == [Reg(ROW, Const(0)), Reg(ACC, IN[ROW]), ADD]


@pytest.mark.parametrize(
    "first",
    [For(ROW, Const(0), N, 1, (ADD,)), If(N, (ADD,)), BufferStore(OUT, ROW, ACC), Set(ACC, IN[ROW])],
    ids=["in a loop", "under a condition", "read before", "no term is added"],
)
def test_an_accumulator_whose_first_term_is_uncertain_starts_with_the_identity(first: ir.Stmt) -> None:
    block = [Reg(ACC, ZERO), first, ADD]
    before = list(block)
    start_with_first_terms(block, [ACC], 0.0)
    assert block == before


def test_replicas_in_lanes_are_added_before_they_are_folded() -> None:
    builder = Builder([])
    accumulators = Accumulators(MONOIDS["sum"], "f32", builder, None, None)
    accumulators.registers((), (), 1)
    vectors = [ir.Load(IN, ir.Ramp(Const(8 * n), 8)) for n in range(2)]
    with builder.scope(lambda body: For(ROW, Const(0), N, 1, body)):
        for number, vector in enumerate(vectors):
            accumulators.reduce((), (("lanes", number, 8),), (vector,))
    total = accumulators.merge(())
    first, second = Var("acc_1", ir.Type("f32", 8)), Var("acc_2", ir.Type("f32", 8))
    assert total == (Var("total", F32),)
    assert builder.block[-2:] == [
        Set(first, ir.compute("add", first, second)),
        Let(Var("total", F32), Fold("add", first)),
    ]


# -- resolving, reductions and mapping ----------------------------------------------------------------


def test_a_compressed_level_is_searched_and_what_follows_is_conditional() -> None:
    made, operands, builder, resolver = parts(plan("reorder(k,i)"))
    env = Env({}, dict.fromkeys(made.formats, State()))
    reached: list[Env] = []
    resolver.bind(
        env, Axis("k"), Var("k"), lambda outer: resolver.bind(outer, Axis("i"), ROW, reached.append)
    )
    search, condition = builder.block
    assert isinstance(search, Let)
    assert isinstance(search.value, ir.SearchSorted)
    assert search.value.buffer == operands.arrays["A"][1]["crd"]
    assert isinstance(condition, If)
    assert condition.cond == ir.compare("le", Const(0), search.var)
    (found,) = reached
    assert found.skips_output
    assert found.states["A"].levels == 2
    assert condition.body == (Let(Var("av", F32), operands.values["A"][search.var]),)


@pytest.mark.parametrize(
    ("schedule", "depth", "fits"),
    [
        ("reorder(i,k)", 1, True),
        ("reorder(i,k)", 2, False),
        ("reorder(i,k)", 0, False),
        ("reorder(k,i)", 0, False),
    ],
)
def test_registers_hold_what_remaining_loops_reduce(schedule: str, depth: int, fits: bool) -> None:
    made = plan(schedule)
    assert fits_registers(made, made.loops[depth:]) is fits


def test_strips_get_narrower_towards_an_end_that_is_not_known() -> None:
    made = plan("reorder(i,j,k) tile(j,2x8)", text="C[i,j] += A[i,k] * B[k,j]")
    _, operands, builder, resolver = parts(made)
    mapping, shapes = CpuMapping(made, operands, builder, resolver), list[tuple[int, int]]()

    def emit(strip: Lanes) -> None:
        shapes.append((strip.vectors, strip.lanes))
        builder.append(ir.RaiseFlag())

    end = operands.extents["j"]
    mapping.cut_strips(StripRange(Axis("j"), None, Const(0), end, False, True), emit)
    assert shapes == [(2, 8), (1, 8), (1, 4), (1, 1)]
    shapes.clear()
    mapping.cut_strips(StripRange(Axis("j"), None, Const(0), Const(24), False, True), emit)
    assert shapes == [(2, 8), (1, 8)]


def test_two_arrays_of_one_name_are_refused() -> None:
    einsum = Einsum.parse("C[i] += A[i,k] * A1_pos[k]").single
    formats = {"A": Format.parse("(i,k) -> U(i) C(k)")}
    operands = Operands(Program(einsum, formats, Schedule()).plan())
    assert "A1_pos_values" in {buffer.name for buffer in operands.buffers()}
    operands.values["A1_pos"] = operands.arrays["A"][1]["pos"]
    with pytest.raises(ScheduleError, match="the same name"):
        operands.buffers()


# -- levels --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneColumn(Compressed):
    """A level whose answers are plain numbers: all entries are in column 0, and the cursor starts at 0."""

    letter: ClassVar[str] = "O"
    sequential: ClassVar[bool] = True

    def cursor(self, arrays: Mapping[str, Any], parent: Any) -> Any:
        return 0

    def coordinate(
        self, arrays: Mapping[str, Any], parent: Any, position: Any, extent: Any, cursor: Any = None
    ) -> Any:
        return 0

    def advance(self, arrays: Mapping[str, Any], parent: Any, position: Any, cursor: Any) -> Any:
        return 1


def test_what_a_level_answers_may_be_a_plain_number() -> None:
    stored = Format(("i", "k"), (Dense(Axis("i")), OneColumn(Axis("k"))))
    einsum = Einsum.parse("C[i] += A[i,k] * B[k]").single
    text = print_c(lower(Program(einsum, {"A": stored}, Schedule.parse("")).plan()))
    assert "left = 0;" in text
    assert "left = 1;" in text
    assert "B_values[0]" in text
