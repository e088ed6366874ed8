"""Directives for GPUs: what they refuse, and races that the interpreter sees in launches."""

import re

import numpy as np
import pytest

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir
from tensorwise.lower.interpret import RaceError, interpret
from tensorwise.lower.ir import (
    LANE,
    Barrier,
    Blocks,
    Buffer,
    BufferStore,
    Const,
    For,
    If,
    Let,
    ShuffleXor,
    Type,
    Var,
)
from tensorwise.lower.program import program_for
from tensorwise.program.schedule import Schedule
from tensorwise.program.workload import Workload, einsum_workload, workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.interpreted import InterpretedKernel
from tensorwise.runtime.launched import LaunchedKernel
from tensorwise.runtime.packed import PackedOperands
from tensorwise.tensor.convert import entries_from

MATRIX = entries_from(np.eye(6, 5, dtype="f4"))
SPMM, SPMV = workload("spmm", MATRIX, n=8), workload("spmv", MATRIX)
DOT = einsum_workload("C[A] += L[k,j] * R[i,j] for A[i,k]", {"A": MATRIX}, {"j": 8})
CSR = "(i,k) -> U(i) C(k)"
ROWS = "reorder(i,j,k) bind(i,block,4)"


def test_directives_print_as_they_are_read() -> None:
    text = "bind(i,warp,2) bind(j,block) tile(j,2x64) bind(j,thread,32) stage(k,32,indices) visit(i,length) bound(j,64)"
    schedule = Schedule.parse(text)
    assert str(schedule) == text
    assert (schedule.threads, schedule.teams) == (32, 2)
    assert Schedule.parse("bind(i,warp,2) tile(j,1x8) bind(j,thread,8)").teams == 8


@pytest.mark.parametrize(
    ("work", "schedule", "complaint"),
    [
        (SPMM, "reorder(i,j,k) bind(i,grid,4)", "block, warp, thread or lane"),
        (SPMM, "reorder(i,j,k) bind(i,block,0)", "at least 1"),
        (SPMM, "reorder(i,j,k) stage(k,8)", "no loop is dealt to the blocks"),
        (SPMM, f"{ROWS} bind(k,block,2)", "a second loop distributed over blocks has to be the tile's"),
        (SPMM, f"{ROWS} bind(j,thread,4)", "threads are the lanes of a tile"),
        (SPMM, f"{ROWS} tile(j,1x4) bind(j,lane,4)", "write bind(j,thread,4)"),
        (DOT, "reorder(i,k,j) bind(i,block,4) tile(j,1x4) bind(j,thread,4)", "write bind(j,lane,4)"),
        (DOT, "reorder(i,k,j) bind(i,block,4) tile(j,1x64) bind(j,lane,64)", "power of two up to 32"),
        (SPMM, f"{ROWS} tile(j,1x48) bind(j,thread,48)", "a multiple of 32"),
        (SPMM, f"{ROWS} tile(j,1x12) bind(j,thread,4)", "1, 2 or 4 for each"),
        (SPMM, f"{ROWS} tile(j,1x8) bind(j,thread,4) bound(j,7)", "multiples of 2"),
        (SPMM, "reorder(i,j,k) bind(i,block,64) tile(j,1x32) bind(j,thread,32)", "more than the 1024"),
        (SPMM, f"{ROWS} tile(j,1x4) bind(j,thread,4) stage(i,4)", "stage a loop inside"),
        (SPMM, f"{ROWS} tile(j,1x4) bind(j,thread,4) stage(k,4,both)  stage(k,2)", "at most one stage"),
        (
            SPMM,
            "reorder(i,j,k) bind(i,block,64) tile(j,1x4) bind(j,thread,4) stage(k,1000)",
            "more than the 49152",
        ),
        (SPMM, f"{ROWS} stage(j,4)", "follows a compressed level"),
        (
            SPMV,
            "reorder(i,k) bind(i,block,4) tile(k,1x4) bind(k,lane,4) stage(k,4)",
            "distributed over blocks or threads",
        ),
        (SPMM, f"{ROWS} prefetch(B,8)", "hide latencies"),
        (SPMM, f"{ROWS} parallel(i,balanced,4)", "may only cut the rows"),
        (SPMM, f"{ROWS} visit(j,length)", "index of a sparse operand"),
        (SPMM, f"{ROWS} visit(k,length)", "compressed in A"),
        (SPMV, "reorder(i,k) bind(i,block,4) tile(k,1x8) bind(k,lane,4) bound(k,5)", "multiples of 2"),
    ],
)
def test_what_does_not_fit_is_refused(work: Workload, schedule: str, complaint: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(complaint)):
        program_for(work, CSR, schedule).lowered()


def test_padded_formats_and_halves_are_refused() -> None:
    with pytest.raises(ScheduleError, match="without padding"):
        program_for(SPMM, "(i,k) -> U(i) U(k)", ROWS).lowered()
    plan = program_for(SPMM, CSR, ROWS).plan(halves={"B": "f16"})
    with pytest.raises(ScheduleError, match="16 bits"):
        plan.check()


def test_a_cpu_visits_rows_in_an_order_too() -> None:
    rng = np.random.default_rng(0)
    matrix = entries_from((rng.random((20, 9)) < rng.random((20, 1))).astype("f4"))
    work = workload("spmm", matrix, n=4)
    operands, out = work.operands(rng), np.empty(work.output_shape, "f4")
    program = program_for(work, CSR, "reorder(i,j,k) parallel(i,dynamic,2) visit(i,length)")
    for bound in (GeneratedKernel(program).bind(work, 2), InterpretedKernel(program, rng).bind(work)):
        out.fill(np.nan)
        bound.run(operands, out)
        assert work.reference(operands).mismatch(out) is None
    visited = PackedOperands(program, work, 2).array("i_visited")
    assert visited is not None
    assert np.all(np.diff(np.bincount(matrix.coordinates[0], minlength=20)[visited]) <= 0)


def test_each_kind_of_program_has_its_own_kernel() -> None:
    with pytest.raises(ScheduleError, match="runs it there"):
        GeneratedKernel(program_for(SPMM, CSR, ROWS)).bind(SPMM, 1)
    with pytest.raises(ScheduleError, match="no loop is dealt"):
        LaunchedKernel(program_for(SPMM, CSR, "parallel(i)"), None).bind(SPMM)  # type: ignore[arg-type]
    assert "__global__" in program_for(SPMM, CSR, ROWS).source()


# -- races in launches ---------------------------------------------------------------------------------

OUT, KEPT = Buffer("out", "f64", writable=True), Buffer("kept", "f64", writable=True)
AT, N = Var("i"), Var("n")
ONE, F64 = Const(1.0, Type("f64")), Type("f64")


def launch(*body: ir.Stmt, threads: int = 4) -> np.ndarray:
    """Run a launch of two teams a block over 12 iterations, more than there are teams; return 48 outputs."""
    loop = For(AT, Const(0), N, 1, body, Blocks("x", 2, threads))
    buffers = {"out": np.zeros(48)}
    interpret(
        ir.LoweredFunction((OUT,), (N,), (loop,), (), ((KEPT, 4),)),
        buffers,
        {"n": 12},
        np.random.default_rng(0),
    )
    return buffers["out"]


def test_threads_that_write_apart_do_not_race() -> None:
    assert launch(BufferStore(OUT, AT * 4 + LANE, ONE)).tolist() == [1.0] * 48


def test_threads_that_write_to_one_place_race() -> None:
    with pytest.raises(RaceError, match="out"):
        launch(BufferStore(OUT, AT, ONE))


def test_what_another_thread_has_fetched_is_there_behind_a_meeting() -> None:
    number = ir.compute("mul", ONE, Const(2.0, F64))
    fetch = (Barrier(), BufferStore(KEPT, LANE, number), Barrier())
    other = KEPT[Const(3) - LANE]
    assert launch(*fetch, BufferStore(OUT, AT * 4 + LANE, other)).tolist() == [2.0] * 48
    with pytest.raises(RaceError, match="kept"):
        launch(fetch[0], fetch[1], BufferStore(OUT, AT * 4 + LANE, other))
    with pytest.raises(RaceError, match="kept"):  # the next iteration overwrites what is still read
        launch(fetch[1], fetch[2], BufferStore(OUT, AT * 4 + LANE, other))


def test_values_are_exchanged_inside_a_team() -> None:
    mine, theirs = Var("mine", F64), Var("theirs", F64)
    body = (
        Let(mine, ONE),
        If(ir.compare("eq", LANE, Const(2)), (BufferStore(KEPT, Const(0), ONE),)),
        ShuffleXor(theirs, mine, 2),
        BufferStore(OUT, AT * 4 + LANE, ir.compute("add", mine, theirs)),
    )
    assert launch(*body).tolist() == [2.0] * 48


def test_threads_that_do_not_all_come_are_reported() -> None:
    with pytest.raises(RaceError, match="wait for different things"):
        launch(If(ir.compare("lt", LANE, Const(2)), (Barrier(),)))


def test_a_block_may_be_full() -> None:
    schedule = "reorder(i,j,k) bind(i,block,32) tile(j,1x32) bind(j,thread,32)"
    assert program_for(SPMM, CSR, schedule).lowered().buffers
