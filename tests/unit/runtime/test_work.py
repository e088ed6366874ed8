"""The static work bound: known values, never less than what runs, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir
from tensorwise.lower.interpret import interpret
from tensorwise.lower.program import program_for
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.interpreted import InterpretedKernel
from tensorwise.runtime.work import check_work, work_bound
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tests.oracle.cases import draw

ROWS, COLUMNS, N, NNZ = 40, 30, 8, 100


def random_entries(rows: int, columns: int, nnz: int) -> Entries:
    rng = np.random.default_rng(1)
    flat = rng.choice(rows * columns, nnz, replace=False)
    return entries_from(
        ((rows, columns), list(np.unravel_index(flat, (rows, columns))), np.ones(nnz, np.float32))
    )


SPMM = workload("spmm", random_entries(ROWS, COLUMNS, NNZ), n=N)


@pytest.mark.parametrize(
    ("format", "schedule", "steps"),
    [
        ("(i,k) -> U(i) C(k)", "reorder(i,k,j)", ROWS + NNZ + NNZ * N),
        ("(i,k) -> U(i) C(k)", "reorder(i,j,k)", ROWS + ROWS * N + NNZ * N),
        ("(i,k) -> C(i) C(k)", "reorder(i,k,j)", ROWS + NNZ + NNZ * N),
        ("(i,k) -> U(i) U(k)", "reorder(i,k,j)", ROWS + ROWS * COLUMNS + ROWS * COLUMNS * N),
        ("(i,k) -> U(k) C(i)", "reorder(k,i,j)", COLUMNS + NNZ + NNZ * N),
        # discordant: every (k, i) is searched for, but only what is found goes on
        ("(i,k) -> U(i) C(k)", "reorder(k,i,j)", COLUMNS + COLUMNS * ROWS + NNZ * N),
        ("(i,k) -> U(i) C(k)", "reorder(j,k,i)", N + N * COLUMNS + N * COLUMNS * ROWS),
        ("(i,k) -> U(i1) C(k1) U(i0:4) U(k0:2)", "reorder(i1,k1,i0,k0,j)", 10 + NNZ * (1 + 4 + 8 + 8 * N)),
    ],
)
def test_known_values(format: str, schedule: str, steps: int) -> None:
    assert work_bound(program_for(SPMM, format, schedule), SPMM) == steps


def counted(kernel: ir.LoweredFunction) -> ir.LoweredFunction:
    """The kernel with a buffer that counts the iterations of its loops, without those that only fill outputs."""
    steps = ir.Buffer("steps", "i64", writable=True)
    step = ir.Reduce(steps, ir.Const(0), "add", ir.Const(1), atomic=True)

    def count(block: ir.Block) -> ir.Block:
        return tuple(
            replace(s, body=(step, *count(s.body)))
            if isinstance(s, ir.For)
            else replace(s, body=count(s.body))
            if isinstance(s, ir.If)
            else s
            for s in block
        )

    fill = [isinstance(s, ir.For) and s.var.name == "e" for s in kernel.body]
    body = tuple(s if f else count((s,))[0] for s, f in zip(kernel.body, fill, strict=True))
    return replace(kernel, buffers=(*kernel.buffers, steps), body=body)


def test_no_program_runs_more_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = np.zeros(1, np.int64)

    def counting(kernel: ir.LoweredFunction, buffers: dict[str, np.ndarray], *rest: object) -> bool:
        ran[0] = 0
        return interpret(counted(kernel), {**buffers, "steps": ran}, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("tensorwise.runtime.interpreted.interpret", counting)
    checked = 0
    for seed in range(150):
        try:
            case = draw(seed)
            bound = InterpretedKernel(case.program, np.random.default_rng(seed)).bind(case.workload)
        except ScheduleError:
            continue
        except Exception as error:
            assert type(error).__name__ == "FormatError"  # noqa: PT017
            continue
        if "merge-path" in case.program.schedule_text:  # a few more for each part, which are not in the bound
            continue
        bound.run(case.operands, np.zeros(case.workload.output_shape, case.workload.output_dtype))
        assert ran[0] <= work_bound(case.program, case.workload), str(case)
        checked += 1
    assert checked > 100


def test_hopeless_orders_are_refused_and_others_are_not() -> None:
    rows = 10**6
    wide = entries_from(((rows, rows), ([5, 7], [1, 999_999]), np.ones(2, np.float32)))
    work = workload("spmv", wide)
    check_work(program_for(work, "(i,k) -> U(i) C(k)", "reorder(i,k)"), work)
    with pytest.raises(
        ScheduleError, match=r"up to 1e\+12 loop iterations for 2 terms; put the loops in the order"
    ):
        check_work(program_for(work, "(i,k) -> U(i) C(k)", "reorder(k,i)"), work)


def test_much_work_is_no_reason_where_the_terms_need_it() -> None:
    many = Entries((2**20, 2**20), (np.zeros(2**20, np.int32),) * 2, np.zeros(2**20, np.float32), None)
    spmm = workload("spmm", many, n=2**20)
    assert work_bound(program_for(spmm, "(i,k) -> U(i) C(k)", "reorder(i,k,j)"), spmm) > 2**40
    check_work(program_for(spmm, "(i,k) -> U(i) C(k)", "reorder(i,k,j)"), spmm)


def test_an_empty_matrix_needs_no_work() -> None:
    empty = entries_from(((0, 5), ([], []), np.zeros(0, np.float32)))
    work = workload("spmv", empty)
    assert work_bound(program_for(work, "(i,k) -> U(i) C(k)", "reorder(i,k)"), work) == 0
    assert isinstance(work, Workload)
