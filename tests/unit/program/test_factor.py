"""The directive factor: what it refuses, and what it computes where operands hold infinities and NaN."""

import numpy as np
import pytest

from tensorwise.errors import ScheduleError
from tensorwise.program.generated import GeneratedKernel
from tensorwise.program.interpreted import InterpretedKernel
from tensorwise.program.program import program_for
from tensorwise.program.schedule import Factor, Schedule
from tensorwise.program.workload import Workload, workload
from tensorwise.tensor.entries import entries_from

SDDMM = "reorder(i,j,k) tile(k,1x8) factor(k)"
CSF = "(i,k,l) -> U(i) C(k) C(l)"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def matrix(rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random((9, 14)) < 0.4, rng.normal(size=(9, 14)), 0).astype(np.float32)


def cube(rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random((5, 6, 7)) < 0.3, rng.normal(size=(5, 6, 7)), 0).astype(np.float32)


def check(work: Workload, format: str, schedule: str, operands: tuple[np.ndarray, ...]) -> None:
    program = program_for(work, format, schedule)
    expected = work.reference(operands)
    for kernel in (InterpretedKernel(program, np.random.default_rng(1)), GeneratedKernel(program)):
        out = np.empty(work.output_shape, work.output_dtype)
        kernel.bind(work, 2).run(operands, out)
        assert expected.mismatch(out, factored=True) is None, kernel.name


def test_it_is_read_and_printed() -> None:
    schedule = Schedule.parse("reorder(i,j,k) factor(k)")
    assert schedule.factor == Factor("k")
    assert str(schedule) == "reorder(i,j,k) factor(k)"
    with pytest.raises(ScheduleError, match="at most one factor"):
        Schedule.parse("factor(k) factor(j)").loops("ijk")
    with pytest.raises(ScheduleError, match="no loop 'l'"):
        Schedule.parse("factor(l)").loops("ijk")


@pytest.mark.parametrize("n", [1, 7, 8, 33])
def test_values_are_multiplied_once_an_entry(n: int, rng: np.random.Generator) -> None:
    work = workload("sddmm", entries_from(matrix(rng)), n=n)
    check(work, "(i,j) -> U(i) C(j)", SDDMM, tuple(work.operands(rng)))


def test_factors_are_multiplied_once_a_fibre(rng: np.random.Generator) -> None:
    work = workload("mttkrp", entries_from(cube(rng)), n=12)
    for tile in ("", " tile(r,1x8)", " tile(r,1x4) unroll(l,2)"):
        check(work, CSF, f"reorder(i,r,k,l){tile} factor(l)", tuple(work.operands(rng)))


@pytest.mark.parametrize("spoil", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_so(spoil: float, rng: np.random.Generator) -> None:
    given = matrix(rng)
    given[0, np.flatnonzero(given[0])[0]] = spoil
    work = workload("sddmm", entries_from(given), n=9)
    check(work, "(i,j) -> U(i) C(j)", SDDMM, tuple(work.operands(rng)))
    tensor = workload("mttkrp", entries_from(cube(rng)), n=9)
    operands = tuple(tensor.operands(rng))
    operands[0][2] = spoil
    check(tensor, CSF, "reorder(i,r,k,l) tile(r,1x8) factor(l)", operands)


@pytest.mark.parametrize(
    ("op", "format", "schedule", "message"),
    [
        ("spmm", "(i,k) -> U(i) C(k)", "reorder(i,j,k) factor(k)", "some factors of a sum of products"),
        ("sddmm", "(i,j) -> U(i) C(j)", "reorder(i,j,k) factor(j)", "some factors of a sum of products"),
        ("mttkrp", CSF, "reorder(i,k,l,r) factor(l)", "leaves room for accumulators"),
        ("mttkrp", "(i,k,l) -> U(i) U(k) C(l)", "reorder(i,r,k,l) factor(l)", "a sum of no terms"),
    ],
)
def test_refusals(op: str, format: str, schedule: str, message: str, rng: np.random.Generator) -> None:
    work = workload(op, entries_from(cube(rng) if op == "mttkrp" else matrix(rng)), n=4)
    with pytest.raises(ScheduleError, match=message):
        GeneratedKernel(program_for(work, format, schedule)).bind(work, 1)
