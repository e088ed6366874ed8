"""The directive factor: what it refuses, and what it computes where operands hold infinities and NaN."""

from dataclasses import replace

import numpy as np
import pytest

from tensorwise.errors import ScheduleError
from tensorwise.lower.program import Program, program_for
from tensorwise.program.einsum import Einsum
from tensorwise.program.schedule import Factor, Schedule
from tensorwise.program.workload import Workload, einsum_workload, workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.interpreted import InterpretedKernel
from tensorwise.tensor.convert import entries_from

FACTORED = "reorder(i,j,k) tile(k,1x8) factor(k)"
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
    check(work, "(i,j) -> U(i) C(j)", FACTORED, tuple(work.operands(rng)))


def test_factors_are_multiplied_once_a_fibre(rng: np.random.Generator) -> None:
    work = workload("mttkrp", entries_from(cube(rng)), n=12)
    for tile in ("", " tile(r,1x8)", " tile(r,1x4) unroll(l,2)"):
        check(work, CSF, f"reorder(i,r,k,l){tile} factor(l)", tuple(work.operands(rng)))


CALLED = "C[i,j] += A[i,j] * abs(B[i,k] - 1) * D[k,j]"
SCALED = "C[i,j] += A[i,k] * B[k,j] * D[i]"
SAMPLED = "C[i,j] += A[i,j] * B[i,k] * D[k,j]"
MATRICISED = "C[i,r] += A[i,k,l] * B[k,r] * D[l,r]"
CHANGES, EMPTY = (
    "some factors of a sum of products change",
    "a sum of no terms must not meet the other factors",
)


def factored(einsum: str, format: str, schedule: str) -> tuple[Workload, Program]:
    """A program over a matrix or tensor with empty rows."""
    shape = (6, 5, 4) if "l" in einsum else (6, 5)
    rng = np.random.default_rng(2)
    stored = np.where(rng.random(shape) < 0.4, rng.standard_normal(shape), 0)
    stored[[0, 3]] = 0
    sizes = {index: 7 for index in "jkr" if index in einsum.replace("A[i,j]", "").replace("A[i,k", "")}
    known = dict(zip(einsum.split("A[")[1].split("]")[0].split(","), shape, strict=True))
    work = einsum_workload(einsum, {"A": entries_from(stored)}, {**sizes, **known})
    return work, program_for(work, format, schedule)


@pytest.mark.parametrize(
    ("einsum", "format", "schedule", "why"),
    [
        (SCALED, "(i,k) -> C(i) C(k)", "factor(i) reorder(i,k,j)", CHANGES),  # of the output
        (SCALED, "(i,k) -> C(i) C(k)", "factor(k) reorder(i,k,j)", CHANGES),  # no room for all of j
        ("C[i,j] max= A[i,k] * B[k,j] * D[i]", "(i,k) -> C(i) C(k)", "factor(k) reorder(i,j,k)", CHANGES),
        ("C[i,j] += A[i,k] + B[k,j] * D[i]", "(i,k) -> C(i) C(k)", "factor(k) reorder(i,j,k)", CHANGES),
        ("C[i] += A[i,k] * B[k]", "(i,k) -> C(i) C(k)", "factor(k)", CHANGES),  # nothing stays
        (SAMPLED, "(i,j) -> U(i) C(j)", "factor(j) reorder(i,j,k)", CHANGES),
        (MATRICISED, "(i,k,l) -> U(i) C(k) C(l)", "factor(k) reorder(i,r,k,l)", CHANGES),
        (SCALED, "(i,k) -> U(i) C(k)", "factor(k) reorder(i,j,k)", EMPTY),
        (SCALED, "(i,k) -> C(k) C(i)", "factor(k) reorder(i,j,k)", EMPTY),
        (SCALED, "(i,k) -> C(i1) C(k) U(i0:2)", "factor(k) reorder(i1,j,k,i0) unroll(i0)", EMPTY),
        (MATRICISED, "(i,k,l) -> C(i) U(k) C(l)", "factor(l) reorder(i,k,r,l)", EMPTY),
        (MATRICISED, "(i,k,l) -> C(i) C(k) U(l)", "factor(l) reorder(i,k,r,l)", EMPTY),
        (SAMPLED, "(i,j) -> U(i) C(j)", "split(k,4) reorder(k0,i,j,k1) factor(k1)", EMPTY),
        (SAMPLED, "(i,j) -> U(i) C(j)", "split(k,8) reorder(i,j,k0,k1) tile(k1,1x1) unroll(k0) factor(k1)", EMPTY),
    ],
)  # fmt: skip
def test_sums_that_cannot_be_factored(einsum: str, format: str, schedule: str, why: str) -> None:
    work, program = factored(einsum, format, schedule)
    with pytest.raises(ScheduleError) as error:
        GeneratedKernel(program).bind(work, 1)
    assert str(error.value).startswith("factor(")
    assert why in str(error.value)


@pytest.mark.parametrize("spoil", [1.0, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("einsum", "format", "schedule"),
    [
        (SAMPLED, "(i,j) -> U(i) C(j)", "reorder(i,j,k) factor(k)"),
        (SAMPLED, "(i,j) -> U(i) C(j)", "reorder(i,j,k) factor(k) tile(k,1x4) unroll(j,4)"),
        (CALLED, "(i,j) -> U(i) C(j)", "reorder(i,j,k) factor(k)"),
        (SAMPLED, "(i,j) -> U(i1) C(j) U(i0:2)", "reorder(i1,j,i0,k) factor(k) parallel(i1) unroll(i0)"),
        (SAMPLED, "(i,j) -> U(j) C(i)", "split(k,4) reorder(j,i,k1,k0) factor(k1) parallel(j)"),
        (SAMPLED, "(i,j) -> U(i) C(j)", "split(k,4) reorder(k1,i,j,k0) factor(k0)"),
        (SAMPLED, "(i,j) -> U(i) C(j)", "split(k,7) reorder(k0,i,j,k1) factor(k1)"),
        (SAMPLED, "(i,j) -> U(i) C(j)", "split(k,4) reorder(i,j,k0,k1) factor(k0)"),
        (SCALED, "(i,k) -> C(i) C(k)", "reorder(i,j,k) factor(k)"),
        (SCALED, "(i,k) -> C(i) C(k)", "reorder(i,j,k) factor(k) tile(j,1x4) parallel(i)"),
        (MATRICISED, "(i,k,l) -> U(i) C(k) C(l)", "reorder(i,r,k,l) factor(l) tile(r,1x4)"),
        (MATRICISED, "(i,k,l) -> C(i) C(k) C(l)", "reorder(i,k,r,l) factor(l) parallel(i)"),
    ],
)
def test_factored_sums_are_the_sums(einsum: str, format: str, schedule: str, spoil: float) -> None:
    """Also of rows without entries, whose sum would be NaN as soon as it met an infinite factor."""
    work, program = factored(einsum, format, schedule)
    plain = replace(
        program, schedule=Schedule.parse(str(program.schedule).replace(f" {program.schedule.factor}", ""))
    )
    assert plain.schedule.factor is None
    assert GeneratedKernel(program).texts(work) != GeneratedKernel(plain).texts(work)
    rng = np.random.default_rng(3)
    operands = work.operands(rng)
    for name in (None, *work.dense, "A"):
        given, values = [operand.copy(order="K") for operand in operands], work.entries.values.copy()
        for array in (values if name == "A" else given[work.dense.index(name)],) if name else ():
            array.flat[rng.integers(0, array.size, 3)] = spoil
        spoiled = replace(work, sparse={"A": work.entries.with_values(values)})
        with np.errstate(invalid="ignore"):
            expected = spoiled.reference(given)
            for kernel in (GeneratedKernel(program), InterpretedKernel(program, rng)):
                out = np.full(work.output_shape, -7.0)
                kernel.bind(spoiled, 2).run(given, out)
                assert expected.mismatch(out, factored=True) is None, (kernel.name, name)
                if not work.keeps_pattern:
                    assert not out[[0, 3]].any()


def test_infinities_that_cancel_may_come_out_as_infinities() -> None:
    """5 inf - 2 inf is NaN, 3 inf is not: what the directive says, and why it is one."""
    a = entries_from(((1, 1), ([0], [0]), np.array([np.inf])))
    work = workload("sddmm", a, n=2)
    operands = [np.array([[5.0, -2.0]]), np.ones((2, 1), order="F")]
    for schedule, expected in (("reorder(i,j,k)", np.nan), ("reorder(i,j,k) factor(k)", np.inf)):
        out = np.empty(1)
        GeneratedKernel(program_for(work, "(i,j) -> U(i) C(j)", schedule)).bind(work, 1).run(operands, out)
        np.testing.assert_array_equal(out, [expected])


def test_a_sum_over_nothing_is_not_factored() -> None:
    """An extent of 0 leaves the directive out: what is multiplied may be infinite, and the sum is 0."""
    a = entries_from(((1, 1), ([0], [0]), np.array([np.inf])))
    work = Workload("sddmm", Einsum.parse(SAMPLED), {"A": a}, {"i": 1, "j": 1, "k": 0})
    out = np.full(1, np.nan)
    program = program_for(work, "(i,j) -> U(i) C(j)", "reorder(i,j,k) factor(k)")
    GeneratedKernel(program).bind(work, 1).run([np.ones((1, 0)), np.ones((0, 1))], out)
    assert out == 0
