"""Numbers of loop nests, by hand."""

import numpy as np
import pytest

from tensorwise.analysis.nest import ProgramNest, WorkloadNest
from tensorwise.lower.program import program_for
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.work import work_bound
from tensorwise.space.cpu import cpu_space_of
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries

ROWS, COLUMNS, N, NNZ = 64, 32, 16, 128


def scattered(*shape: int, nnz: int = NNZ) -> Entries:
    flat = np.random.default_rng(1).choice(int(np.prod(shape)), nnz, replace=False)
    return entries_from((shape, list(np.unravel_index(flat, shape)), np.ones(nnz, np.float32)))


SPMM = workload("spmm", scattered(ROWS, COLUMNS), n=N)
TERMS = NNZ * N


def numbers(format: str, schedule: str, work: Workload = SPMM) -> dict[str, float]:
    nest = ProgramNest()
    found = nest.features(WorkloadNest.of(program_for(work, format, schedule), work))
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    return dict(zip([field.name for field in nest.fields], found.tolist(), strict=True))


def log2(count: float) -> float:
    return pytest.approx(np.log2(count), abs=1e-5)


def test_rows_of_compressed_columns() -> None:
    found = numbers("(i,k) -> U(i) C(k)", "reorder(i,k,j) parallel(i,dynamic,16) tile(j,2x8)")
    assert (found["nest.loops"], found["nest.hybrid"], found["nest.stored"]) == (3, 0, 0)
    assert found["nest.steps"] == log2((ROWS + NNZ + TERMS) / TERMS)
    assert found["nest.searches"] == log2(1 / TERMS)
    assert (found["inner.steps"], found["inner.starts"], found["inner.trips"]) == (0, log2(1 / N), log2(N))
    assert (found["inner.stored"], found["inner.kept"], found["inner.sparse"]) == (0, 1, 0)
    assert (found["middle.stored"], found["middle.kept"], found["middle.sparse"]) == (1, 0, 1)
    assert (found["outer.starts"], found["outer.trips"]) == (log2(1 / TERMS), log2(ROWS))
    # a row of the output and of the operand; rows of it for all columns; all of both
    touched = [4 * 2 * N, 4 * (N + COLUMNS * N), 4 * (ROWS * N + COLUMNS * N)]
    assert [found[f"{loop}.touched"] for loop in ("inner", "middle", "outer")] == [
        log2(1 + t) for t in touched
    ]
    assert (found["output.reached"], found["output.passes"]) == (0, log2(TERMS / (ROWS * N)))
    assert found["input.passes"] == log2(TERMS / (COLUMNS * N))
    assert (found["inner.along"], found["inner.across"]) == (2, 0)
    assert (found["tile.values"], found["tile.trips"], found["tile.inner"]) == (4, 0, 1)
    assert found["tile.steps"] == log2(1 / 8)
    assert (found["parallel.extent"], found["parallel.starts"]) == (log2(ROWS), log2(1 / TERMS))
    assert found["parallel.tasks"] == log2(4 / TERMS)
    assert (found["parallel.atomic"], found["parallel.private"]) == (log2(1 / TERMS), log2(1 / TERMS))


def test_the_busier_thread_has_more_where_rows_or_tasks_are_uneven() -> None:
    rows = np.concatenate(
        [np.zeros(COLUMNS, int), np.arange(1, 1 + COLUMNS)]
    )  # a full one, and as many single entries
    work = workload(
        "spmm",
        entries_from(
            ((ROWS, COLUMNS), [rows, np.tile(np.arange(COLUMNS), 2)], np.ones(2 * COLUMNS, np.float32))
        ),
        n=N,
    )

    def share(schedule: str, format: str = "(i,k) -> U(i) C(k)") -> float:
        return numbers(format, schedule, work)["parallel.share"]

    everything = ROWS + 2 * COLUMNS  # a row costs as much as an entry
    assert share("reorder(i,k,j)") == 1
    assert share("reorder(i,k,j) parallel(i,dynamic,64)") == 1
    # the first half of the rows has all entries but one
    assert share("reorder(i,k,j) parallel(i,dynamic,32)") == log2(2 * (64 + 31) / everything)
    assert share("split(i,32) reorder(i1,i0,k,j) parallel(i1,dynamic,1)") == log2(2 * (64 + 31) / everything)
    assert share("reorder(i,k,j) parallel(i,dynamic,1)") == 0
    assert share("reorder(i,k,j) parallel(i,balanced,1)") == log2(2 * 65 / everything)
    assert share("reorder(i,k,j) parallel(i,merge-path,1)") == 0
    assert share("split(j,8) reorder(i,j1,k,j0) parallel(j1,dynamic,1)") == 0


def test_a_sum_inside_jumps_through_an_operand() -> None:
    found = numbers("(i,k) -> U(i) C(k)", "reorder(i,j,k)")
    assert (found["inner.stored"], found["inner.along"], found["inner.across"]) == (1, 0, 1)
    assert found["output.passes"] == 0
    assert (found["tile.values"], found["parallel.extent"]) == (0, 0)


def test_padding_searches_and_threads_that_share_the_output() -> None:
    padded = numbers("(i,k) -> U(i) U(k)", "reorder(i,k,j)")
    assert padded["nest.stored"] == log2(ROWS * COLUMNS / NNZ)
    searched = numbers("(i,k) -> U(i) C(k)", "reorder(k,i,j)")
    assert searched["nest.searches"] == log2((1 + ROWS * COLUMNS) / TERMS)
    added = numbers("(i,k) -> C(k) C(i)", "reorder(k,i,j) parallel(k,dynamic,8)")
    assert (added["parallel.atomic"], added["parallel.private"]) == (0, log2(1 / TERMS))
    copied = numbers("(i,k) -> C(k) C(i)", "reorder(k,i,j) parallel(k,dynamic,8,private)")
    assert copied["parallel.private"] == log2(ROWS * N / TERMS)
    inside = numbers("(i,k) -> U(i) C(k)", "reorder(i,k,j) parallel(j,dynamic,8)")
    assert inside["parallel.starts"] == log2(NNZ / TERMS)


def test_an_output_with_the_pattern_of_an_operand_has_a_value_an_entry() -> None:
    found = numbers("(i,j) -> U(i) C(j)", "reorder(i,j,k)", workload("sddmm", scattered(ROWS, COLUMNS), n=N))
    assert found["output.passes"] == 0
    assert (found["inner.kept"], found["inner.sparse"]) == (0, 0)


@pytest.mark.parametrize(
    "work", [SPMM, workload("spmv", scattered(9, 7, nnz=0)), workload("mttkrp", scattered(9, 8, 7), n=4)]
)
def test_whatever_a_space_draws_is_finite_and_in_proportion(work: Workload) -> None:
    space, rng, nest = cpu_space_of(work), np.random.default_rng(0), ProgramNest()
    names = [field.name for field in nest.fields]
    for _ in range(50):
        program = space.program(work, space.sample(work, rng))
        found = dict(zip(names, nest.features(WorkloadNest.of(program, work)).tolist(), strict=True))
        assert np.isfinite(list(found.values())).all()
        if program.remainder is None:
            assert found["nest.steps"] == log2(max(work_bound(program, work), 1) / max(work.terms, 1))
            assert found["inner.steps"] <= found["nest.steps"] + 1e-5
