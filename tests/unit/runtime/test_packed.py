"""What a kernel is handed: balanced parts, masks of unreached outputs, arrays by name, and refusals."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorwise.errors import ScheduleError
from tensorwise.lower.program import Program, program_for
from tensorwise.program.einsum import Einsum
from tensorwise.program.schedule import Schedule
from tensorwise.program.workload import Workload, einsum_workload, workload
from tensorwise.runtime.generated import BoundProgram, GeneratedKernel
from tensorwise.runtime.packed import ROW_COST, PackedOperands, arranged, balanced_parts
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.format import Format
from tensorwise.tensor.pack import pack

FORMATS = (
    "U(i) C(k)",
    "C(i) C(k)",
    "U(i) U(k)",
    "U(i1) C(k) U(i0:3)",
    "U(k) C(i)",
    "C(k) U(i)",
    "U(i0:4) U(i1) C(k)",
)


def matrix(counts: list[int], width: int = 8) -> Entries:
    """A matrix with ``counts[i]`` entries in row i."""
    rows = np.repeat(np.arange(len(counts)), counts)
    columns = np.concatenate([np.arange(c) for c in counts]) if counts else np.zeros(0)
    return entries_from(
        ((len(counts), width), [rows, columns.astype(np.int64)], np.ones(len(rows), np.float32))
    )


@given(st.lists(st.integers(0, 8), max_size=40), st.integers(1, 20), st.sampled_from(FORMATS))
def test_parts_cover_everything_once_and_are_even(counts: list[int], parts: int, text: str) -> None:
    tensor = pack(matrix(counts), Format.parse(f"(i,k) -> {text}"))
    bounds = balanced_parts(tensor, parts)
    assert bounds.dtype == np.int64
    assert bounds.flags.c_contiguous
    assert len(bounds) == parts + 1
    assert bounds[0] == 0
    assert bounds[-1] == tensor.counts[0]
    assert (np.diff(bounds) >= 0).all()
    ends = np.arange(tensor.counts[0] + 1)
    for level, arrays, extent in list(zip(tensor.format.levels, tensor.arrays, tensor.extents, strict=True))[
        1:
    ]:
        ends = ends * extent if level.full else arrays["pos"][ends]
    cost = ends + ROW_COST * np.arange(tensor.counts[0] + 1)
    heaviest = np.diff(cost).max(initial=0)
    assert np.diff(cost[bounds]).max(initial=0) <= cost[-1] / parts + heaviest


def test_a_heavy_row_is_a_part_of_its_own() -> None:
    tensor = pack(matrix([1, 1, 100, 1, 1], width=100), Format.parse("(i,k) -> U(i) C(k)"))
    assert balanced_parts(tensor, 4).tolist() in ([0, 3, 3, 3, 5], [0, 2, 3, 3, 5])


@pytest.mark.parametrize(
    ("text", "unreached"),
    [
        ("C[i] max= A[i,k] * B[k]", [1]),
        ("C[i] prod= A[i,k] * B[k]", [1]),
        ("C[k] min= A[i,k] * B[k]", [2]),
        ("C[i,j] max= A[i,k] * B[k,j]", [1]),
        ("C[j,i] max= A[i,k] * B[k,j]", [[False, True, False]] * 2),
        ("C[j] max= A[i,k] * B[k,j]", None),
        ("C[i] += A[i,k] * B[k]", None),
        ("C[i] mean= A[i,k] * B[k]", None),
        ("C[i,k] max= A[i,k] * B[k]", None),
    ],
)
def test_outputs_that_no_entry_reaches(text: str, unreached: list[object] | None) -> None:
    a = entries_from(((3, 3), ([0, 2, 2], [0, 0, 1]), np.ones(3, np.float32)))
    work = einsum_workload(text, {"A": a}, {"j": 2} if "j" in text else {})
    packed = PackedOperands(program_for(work, "U(i) C(k)", ""), work, 1)
    if unreached is None:
        assert packed.unreached is None
    else:
        assert packed.unreached is not None
        assert packed.unreached.tolist() == unreached


@pytest.mark.parametrize(
    "text", ["C[j,i] max= A[i,k] * B[k,j]", "C[j,k] prod= A[i,k] + B[i,j]", "C[j] min= A[i,k] * B[k,j]"]
)
def test_no_entry_reaches_any_output_of_one_row(text: str) -> None:
    """Rows of the output need not be rows of the operand, also where both have one element."""
    work = einsum_workload(text, {"A": entries_from(((1, 1), ([], []), np.ones(0, np.float32)))}, {"j": 4})
    out = np.full(work.output_shape, np.nan, np.float32)
    operands = work.operands(np.random.default_rng(0))
    GeneratedKernel(program_for(work, "U(i) C(k)", "")).bind(work, 1).run(operands, out)
    assert not out.any()


def test_arrays_hold_what_the_kernel_reads() -> None:
    work = workload("spmv", matrix([2, 0, 1]))
    packed = PackedOperands(program_for(work, "U(i) C(k)", ""), work, 1)
    assert packed.array("A1_crd", "i32") is packed.array("A1_crd")
    with pytest.raises(ScheduleError, match="reads A1_crd as i64, but it is kept as int32"):
        packed.array("A1_crd", "i64")


def test_numbers_of_entries_are_as_wide_as_the_kernel_reads_them() -> None:
    """Whatever the width in which they are given."""
    entries = matrix([2, 0, 2])
    numbered = replace(entries, numbers=np.array([2, 0, 3, 1]))
    assert numbered.numbers.dtype == np.int64
    text = "G[k] += D[i] if P[i] == A else 0 for A[i,k]"
    work = einsum_workload(text, {"A": numbered}, {})
    operands = [np.array([5, 7, 11], np.float32), np.array([0, -1, 3], np.int32)]
    for schedule in ("", "locate(A)"):
        for wide in (False, True):
            program = program_for(work, "U(i) C(k)", schedule)
            packed = PackedOperands(program, work, 1, wide=wide)
            out = np.full(8, np.nan, np.float32)
            BoundProgram(program, work, 1, [packed]).run(operands, out)
            assert out.tolist() == [11.0, 5.0, *[0.0] * 6]


def test_nothing_is_reached_where_a_dense_reduction_is_empty() -> None:
    a = entries_from(((2, 2), ([0], [1]), np.ones(1, np.float32)))
    einsum = Einsum.parse("C[i,j] max= A[i,j] * B[i,k] * D[k,j]")
    work = Workload("einsum", einsum, {"A": a}, {"i": 2, "j": 2, "k": 0})
    operands = [np.zeros((2, 0), np.float32), np.zeros((0, 2), np.float32)]
    out = np.full(1, np.nan, np.float32)
    GeneratedKernel(program_for(work, "U(i) C(j)", "")).bind(work, 1).run(operands, out)
    assert out.tolist() == [0.0]


def test_names_of_operands_are_not_confused() -> None:
    """A's level 1 and A1's level 0 once met under one name."""
    a, b = matrix([2, 0, 1]), matrix([1, 1, 2])
    work = einsum_workload("C[i] += A[i,k] * A1[i,k]", {"A": a, "A1": b}, {})
    program = program_for(work, {"A": "U(i) C(k)", "A1": "C(i) C(k)"}, "")
    packed = PackedOperands(program, work, 1)
    assert packed.array("A1_crd") is packed.tensors["A"].arrays[1]["crd"]
    assert packed.array("A10_crd") is packed.tensors["A1"].arrays[0]["crd"]
    assert packed.size("n_A11") == b.nnz
    out = np.full(3, np.nan, np.float32)
    GeneratedKernel(program).bind(work, 2).run([], out)
    assert work.reference([]).mismatch(out) is None


@pytest.mark.parametrize("name", ["out", "work", "flag_", "raised_", "values", "B_values"])
def test_operands_may_have_any_name(name: str) -> None:
    work = einsum_workload(f"C[i] += A[i,k] * {name}[k]", {"A": matrix([2, 0, 1])}, {})
    program = program_for(work, "U(i1) C(k) U(i0:2)", "parallel(i1) reorder(i1,k,i0)")
    operands = work.operands(np.random.default_rng(1))
    out = np.full(3, np.nan, np.float32)
    GeneratedKernel(program).bind(work, 2).run(operands, out)
    assert work.reference(operands).mismatch(out) is None


SPMV = workload("spmv", matrix([2, 0, 1]))


def program(einsum: str, formats: dict[str, str], schedule: str = "") -> Program:
    parsed = {name: Format.parse(text) for name, text in formats.items()}
    return Program(Einsum.parse(einsum).single, parsed, Schedule.parse(schedule))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (program("C[k] += A[i,k] * B[i]", {"A": "(i,k) -> U(i) C(k)"}), "the program computes C[k] += A[i,k] * B[i]"),
        (
            program("C[i] += A[i,k] * B[k]", {"B": "(k,i) -> U(k) C(i)"}),
            "the program has formats for (B), the workload's sparse operands are (A)",
        ),
        (
            program("C[i] += A[i,k] * B[k]", {"A": "(k,i) -> U(i) C(k)"}),
            "format of A has the modes (k,i), but it is read as A[i,k]; name them (i,k), in this order",
        ),
        (
            program("C[i] += A[i,k] * B[k]", {"A": "(i,k) -> U(i1) C(k) U(i0:4)"}),
            "format of A splits i by 4, so the schedule needs split(i,4)",
        ),
    ],
)  # fmt: skip
def test_programs_that_are_not_for_a_workload(program: Program, message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        GeneratedKernel(program).bind(SPMV, 1)
    assert message in str(error.value)


def test_a_remembered_kernel_does_not_hide_a_wrong_split() -> None:
    """The text does not depend on sizes above 16, and is remembered without them: the check must not be."""
    formats = {"A": "(i,k) -> U(i1) C(k) U(i0:32)"}
    GeneratedKernel(program("C[i] += A[i,k] * B[k]", formats, "split(i,32)")).bind(SPMV, 1)
    with pytest.raises(ScheduleError, match="format of A splits i by 32"):
        GeneratedKernel(program("C[i] += A[i,k] * B[k]", formats, "split(i,20)")).bind(SPMV, 1)


def test_dense_operands_are_copied_only_where_they_must_be() -> None:
    by_rows, by_columns = np.ones((4, 6)), np.asfortranarray(np.ones((4, 6)))
    assert arranged(by_rows, False) is by_rows
    assert arranged(by_columns, True) is by_columns
    for operand, columns in (
        (by_rows, True),
        (by_columns, False),
        (by_rows[::2], False),
        (by_rows[::2], True),
    ):
        copy = arranged(operand, columns)
        assert copy is not operand
        assert copy.flags.f_contiguous if columns else copy.flags.c_contiguous
        np.testing.assert_array_equal(copy, operand)
