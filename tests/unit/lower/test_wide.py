"""64-bit indices: kernels made for them, and sizes around 2**31 without gigabytes of memory."""

from dataclasses import replace

import numpy as np
import pytest

from tensorwise.lower.program import PlanKey, kernel_text, program_for
from tensorwise.program.workload import Workload, einsum_workload, workload
from tensorwise.runtime.generated import BoundProgram
from tensorwise.runtime.interpreted import InterpretedKernel
from tensorwise.runtime.packed import PackedOperands
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.fibertree import Tensor
from tensorwise.tensor.pack import pack

EDGE = 2**31


def widened(tensor: Tensor) -> Tensor:
    """The same tensor with 64-bit positions and coordinates."""
    arrays = tuple({name: array.astype(np.int64) for name, array in level.items()} for level in tensor.arrays)
    return replace(tensor, arrays=arrays)


def matrix(rows: int = 30, columns: int = 20) -> Entries:
    rng = np.random.default_rng(2)
    return entries_from((rng.random((rows, columns)) < 0.2) * rng.standard_normal((rows, columns)))


@pytest.mark.parametrize(
    ("format", "schedule"),
    [
        ("(i,k) -> U(i) C(k)", "parallel(i,balanced,2) unroll(k,4)"),
        ("(i,k) -> U(i) C(k)", "reorder(i,k) tile(k,2x4)"),
        ("(i,k) -> C(i) C(k)", "reorder(k,i)"),
        ("(i,k) -> C(k) C(i)", "reorder(k,i) parallel(k,dynamic,2,private) prefetch(B,3)"),
        ("(i,k) -> U(i1) C(k1) U(i0:4) U(k0:4)", "reorder(i1,k1,i0,k0) unroll(i0) unroll(k0)"),
    ],
)
def test_kernels_for_wide_arrays(format: str, schedule: str) -> None:
    work = workload("spmv", matrix())
    program = program_for(work, format, schedule)
    tensors = {"A": widened(pack(work.entries, program.formats["A"]))}
    packed = PackedOperands(program, work, 2, tensors)
    text = kernel_text(PlanKey(packed.plan(program, None)))[0]
    assert "int32_t" not in text
    assert "const int64_t *restrict const A" in text
    operands, out = work.operands(np.random.default_rng(0)), np.full(30, np.nan)
    BoundProgram(program, work, 2, [packed]).run(operands, out)
    assert work.reference(operands).mismatch(out) is None


def test_each_array_has_its_own_width() -> None:
    """64-bit coordinates beside 32-bit positions: a mode is long, the entries are few."""
    a = entries_from(((EDGE + 10, 3), ([0, EDGE + 9], [2, 0]), np.array([5.0, 7.0])))
    program = program_for(workload("spmv", a), "(i,k) -> C(i) C(k)", "")
    widths = program.plan(tensors={"A": pack(a, program.formats["A"])}).widths["A"]
    assert widths == (("i32", "i64"), ("i32", "i32"))


@pytest.mark.parametrize("rows", [EDGE - 1, EDGE, EDGE + 10, 2**40])
def test_long_modes(rows: int) -> None:
    """Coordinates past 2**31 on a compressed level, in loops, searches, splits and outputs of other indices."""
    a = entries_from(
        ((rows, 3), ([0, rows - 1, rows - 1, rows // 2], [2, 0, 1, 2]), np.array([5.0, 7, 11, 13]))
    )
    work = einsum_workload("C[k] += A[i,k] * B[k]", {"A": a}, {})
    b = np.array([1.0, 10, 100])
    for format, schedule in (
        ("C(i) C(k)", "reorder(i,k)"),
        ("C(k) C(i)", "reorder(k,i) parallel(k,balanced,1) unroll(i,2)"),
        ("C(i) C(k)", "reorder(i,k) parallel(i,dynamic,1,private)"),
        ("C(i1) C(k) C(i0:4)", "reorder(i1,k,i0)"),
        ("C(k) C(i1) C(i0:1000)", "reorder(k,i1,i0)"),
        ("C(i) U(k)", "reorder(i,k)"),
    ):
        program = program_for(work, f"(i,k) -> {format}", schedule)
        for bound in (
            BoundProgram(program, work, 2),
            InterpretedKernel(program, np.random.default_rng(1)).bind(work),
        ):
            out = np.full(3, np.nan)
            bound.run([b], out)
            assert out.tolist() == [7, 110, 1800], program.name


def test_the_pattern_of_a_long_matrix() -> None:
    a = entries_from(((EDGE + 10, EDGE + 10), ([3, EDGE + 9], [EDGE + 5, 4]), np.array([2.0, 3.0])))
    work = einsum_workload("C[i,j] = A[i,j] * 2", {"A": a}, {})
    for format in ("C(i) C(j)", "C(j) C(i)"):
        loops = format[2] + "," + format[7]
        out = np.full(2, np.nan)
        BoundProgram(program_for(work, f"(i,j) -> {format}", f"reorder({loops})"), work, 2).run([], out)
        assert out.tolist() == [4, 6]


def test_addresses_of_dense_operands_are_computed_in_64_bits() -> None:
    """Row 2**31 / 8 and on of a matrix with 16 columns, of which only one page is ever touched."""
    rows = EDGE // 8 + 3
    a = entries_from(((2, rows), ([0, 1], [rows - 1, 0]), np.array([2.0, 3.0], np.float32)))
    work = workload("spmm", a, n=16)
    try:
        b = np.zeros((rows, 16), np.float32)  # virtual memory: nothing is written but two rows
    except MemoryError:
        pytest.skip("no 16 GiB of address space")
    b[0], b[-1] = np.arange(16), np.arange(16) + 100
    out = np.full((2, 16), np.nan, np.float32)
    for schedule in ("reorder(i,j,k) tile(j,2x8)", "reorder(i,k,j) prefetch(B,1)"):
        BoundProgram(program_for(work, "(i,k) -> U(i) C(k)", schedule), work, 1).run([b], out)
        assert out.tolist() == [(2 * b[-1]).tolist(), (3 * b[0]).tolist()]


def test_the_source_map_grows_with_the_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    work = einsum_workload("C[i,k] = A[i,k] * 2", {"A": matrix()}, {})
    program = program_for(work, "(i,k) -> U(k) C(i)", "reorder(k,i)")
    packed = PackedOperands(program, work, 1)
    assert "const int32_t *restrict const A_source" in kernel_text(PlanKey(packed.plan(program, None)))[0]
    source = packed.array("A_source")
    assert source is not None
    packed._made["A_source"] = source.astype(np.int64)
    plan = replace(packed.plan(program, None), source_elem="i64")
    assert "const int64_t *restrict const A_source" in kernel_text(PlanKey(plan))[0]


def test_sizes_that_no_array_has_reach_the_kernel_whole() -> None:
    huge = 2**62
    a = entries_from(((huge, 3), ([huge - 1], [1]), np.array([2.0])))
    work: Workload = einsum_workload("C[k] += A[i,k] * B[k]", {"A": a}, {})
    program = program_for(work, "(i,k) -> C(i) C(k)", "reorder(i,k)")
    bound, out = BoundProgram(program, work, 2), np.full(3, np.nan)
    bound.run([np.ones(3)], out)
    assert out.tolist() == [0, 2, 0]
