"""Merge-path parts: threads share rows, and what they carry is added afterwards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorwise.errors import ScheduleError
from tensorwise.lower.lower import lower
from tensorwise.lower.program import program_for
from tensorwise.program.workload import Workload, einsum_workload, workload
from tensorwise.runtime.generated import BoundProgram, GeneratedKernel
from tensorwise.runtime.interpreted import InterpretedKernel
from tensorwise.runtime.kernel import Kernel
from tensorwise.runtime.packed import PackedOperands, merge_path_parts
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.elements import value_dtype
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.format import Format
from tensorwise.tensor.pack import pack
from tests.unit.lower.test_wide import widened
from tests.unit.runtime.test_packed import matrix

CSR = "(i,k) -> U(i) C(k)"
FORMATS = (
    CSR,
    "(i,k) -> C(i) C16(k)",
    "(i,k) -> U(i1) C(k) U(i0:3)",
    "(i,k) -> C(i1) C(k1) U(i0:2) U(k0:2)",
    "(i:length,k) -> U(i) C(k)",
    "(i,k) -> U(i) C(k1) B(k0:4)",
)
MATRICES = {
    "one full row": matrix([0, 1, 90, 2, 0], 90),
    "empty rows at borders": matrix([0, 0, 40, 0, 0, 0, 40, 0, 0], 40),
    "all in one row": matrix([0, 0, 64, 0], 64),
    "a single row": matrix([50], 60),
    "rows of one": matrix([1] * 12),
    "no entries": matrix([0, 0, 0]),
    "no rows": entries_from(((0, 8), ([], []), np.zeros(0, np.float32))),
    "even": matrix([7, 8, 7, 8, 7]),
}


@given(st.lists(st.integers(0, 30), max_size=25), st.integers(1, 40), st.sampled_from(FORMATS))
def test_parts_cover_everything_once_and_are_even(counts: list[int], parts: int, text: str) -> None:
    tensor = pack(matrix(counts, 30), Format.parse(text))
    cuts = merge_path_parts(tensor, parts)
    starts = tensor.arrays[1]["pos"]
    assert cuts.shape == (parts + 1, 2)
    assert cuts[0].tolist() == [0, 0]
    assert cuts[-1].tolist() == [tensor.counts[0], starts[-1]]
    assert (np.diff(cuts, axis=0) >= 0).all()
    for rows, position in cuts.tolist():
        low, high = (int(starts[rows - 1]), int(starts[rows])) if rows else (0, 0)
        assert low <= position <= high
        assert position > low or low == high, "a part that starts a row has its first entry"
    values = np.arange(starts[-1] + 1)  # before each position
    for level, arrays, extent in list(zip(tensor.format.levels, tensor.arrays, tensor.extents, strict=True))[
        2:
    ]:
        values = values * extent if level.full else arrays["pos"][values]
    cost = values[cuts[:, 1]] + cuts[:, 0]
    assert np.diff(cost).max() <= cost[-1] / parts + 2 * (1 + np.diff(values).max(initial=0))


def test_a_heavy_row_is_shared() -> None:
    tensor = pack(matrix([1, 1, 100, 1, 1], width=100), Format.parse(CSR))
    assert merge_path_parts(tensor, 4).tolist() == [[0, 0], [3, 24], [3, 51], [3, 78], [5, 104]]


def test_fibres_are_cut_by_what_is_below_them() -> None:
    """Two fibres of 60 and of 4 x 1 entries: the first one is half of a row that four parts share."""
    places = [[0] * 64, [0] * 60 + [1, 2, 3, 4], [*range(60), 0, 0, 0, 0]]
    a = entries_from(((1, 5, 60), places, np.ones(64, np.float32)))
    cuts = merge_path_parts(pack(a, Format.parse("(i,k,l) -> U(i) C(k) C(l)")), 4)
    assert cuts.tolist() == [[0, 0], [1, 1], [1, 1], [1, 1], [1, 5]]


def check(work: Workload, format: str, schedule: str, operands: list[np.ndarray]) -> None:
    program = program_for(work, format, schedule)
    expected = work.reference(operands)
    kernels: list[Kernel] = [GeneratedKernel(program), InterpretedKernel(program, np.random.default_rng(0))]
    for kernel in kernels:
        bound = kernel.bind(work, 3)
        for _ in range(2):
            out = np.full(work.output_shape, np.nan, work.output_dtype)
            bound.run(operands, out)
            assert expected.mismatch(out) is None


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize(
    ("einsum", "format", "schedule"),
    [
        ("C[i] += A[i,k] * B[k]", CSR, "parallel(i,merge-path,1) unroll(k,4)"),
        ("C[i] += A[i,k] * B[k]", CSR, "parallel(i,merge-path,16) tile(k,2x4)"),
        ("C[i] += A[i,k] * B[k]", "(i:length,k) -> C(i) C(k)", "parallel(i,merge-path,2)"),
        ("C[i] += A[i,k] * B[k]", "(i,k) -> U(i1) C(k1) U(i0:2) U(k0:2)", "reorder(i1,k1,i0,k0) parallel(i1,merge-path,5)"),
        ("C[i] += A[i,k] * B[k]", "(i:length,k) -> C(i1) C(k) U(i0:3)", "reorder(i1,k,i0) parallel(i1,merge-path,2)"),
        ("C[i] += A[i,k] * B[k]", CSR, "split(k,4) reorder(i,k0,k1) parallel(i,merge-path,2)"),
        ("C[i,j] += A[i,k] * B[k,j]", CSR, "reorder(i,j,k) parallel(i,merge-path,3) tile(j,1x4)"),
        ("C[i,j] += A[i,k] * B[k,j]", CSR, "reorder(i,k,j) parallel(i,merge-path,3)"),
        ("C[j,i] += A[i,k] * B[k,j]", CSR, "reorder(i,j,k) parallel(i,merge-path,3) tile(j,1x4)"),
        ("C[k] += A[i,k] * B[i]", CSR, "reorder(i,k) parallel(i,merge-path,3,private)"),
        ("C[k] += A[i,k] * B[i]", CSR, "reorder(i,k) parallel(i,merge-path,3)"),
        ("C[i] max= A[i,k] * B[k]", "(i,k) -> C(i) C(k)", "parallel(i,merge-path,3)"),
        ("C[i,k] += A[i,k] * B[i,j] * D[j,k]", CSR, "reorder(i,k,j) parallel(i,merge-path,3)"),
        ("C[i,k,j] = A[i,k] * B[j]", CSR, "reorder(i,k,j) parallel(i,merge-path,3)"),
        ("C[i] += A[i,k] * B[k]", f"{CSR}; rows>5: {CSR}", "parallel(i,merge-path,2); parallel(i,merge-path,3)"),
    ],
)  # fmt: skip
def test_results_are_right_wherever_rows_are_cut(name: str, einsum: str, format: str, schedule: str) -> None:
    work = einsum_workload(einsum, {"A": MATRICES[name]}, {"j": 5} if "j" in einsum else {})
    operands = work.operands(np.random.default_rng(1))
    check(work, format, schedule, operands)
    for operand in operands:
        operand.flat[:1], operand.flat[3:4] = np.inf, np.nan
    check(work, format, schedule, operands)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_carries_are_as_exact_as_sums(dtype: str) -> None:
    """Halves are rounded once, although a row comes from several threads."""
    rng = np.random.default_rng(3)
    a = entries_from(rng.standard_normal((2, 400)))
    work = workload("spmm", a.astype(value_dtype(dtype)), n=3)
    check(work, CSR, "reorder(i,j,k) parallel(i,merge-path,16)", work.operands(rng))


def test_sums_of_tensors_share_fibres() -> None:
    rng = np.random.default_rng(4)
    a = entries_from((rng.random((3, 20, 10)) < 0.3) * rng.standard_normal((3, 20, 10)))
    work = workload("mttkrp", a, n=6)
    schedule = "reorder(i,k,r,l) parallel(i,merge-path,4) tile(r,1x4)"
    for format in ("(i,k,l) -> U(i) C(k) C(l)", "(i,k,l) -> C(i) C(k) C(l)"):
        check(work, format, schedule, work.operands(rng))
    check(work, "(i,k,l) -> C(i) C(k) C(l)", f"{schedule} factor(l)", work.operands(rng))


def test_no_piece_without_entries_meets_an_infinite_factor() -> None:
    """0 * Inf, the product of a sum of no terms, would spoil what other parts have summed."""
    a = matrix([3, 40, 3], 40)
    work = einsum_workload("C[i] += A[i,k] * B[k] * D[i]", {"A": a}, {})
    operands = [np.ones(40, np.float32), np.full(3, np.inf, np.float32)]
    for parts in range(1, 24):
        check(work, "(i,k) -> C(i) C(k)", f"parallel(i,merge-path,{parts}) factor(k)", operands)


def test_wide_positions() -> None:
    work = workload("spmv", MATRICES["one full row"])
    program = program_for(work, CSR, "parallel(i,merge-path,4)")
    packed = PackedOperands(program, work, 2, {"A": widened(pack(work.entries, program.formats["A"]))})
    operands, out = work.operands(np.random.default_rng(0)), np.full(5, np.nan, np.float32)
    BoundProgram(program, work, 2, [packed]).run(operands, out)
    assert work.reference(operands).mismatch(out) is None


def test_equal_parts_give_equal_bits() -> None:
    rng = np.random.default_rng(5)
    a: Entries = entries_from(rng.standard_normal((3, 5000)).astype(np.float32))
    work = workload("spmv", a)
    bound = GeneratedKernel(program_for(work, CSR, "parallel(i,merge-path,4)")).bind(work, 2)
    operands = work.operands(rng)
    found = set()
    for _ in range(50):
        out = np.full(3, np.nan, np.float32)
        bound.run(operands, out)
        found.add(out.tobytes())
    assert len(found) == 1


def test_carries_are_counted_among_the_bytes_held() -> None:
    work = workload("spmm", MATRICES["one full row"], n=7)
    kernel = GeneratedKernel(program_for(work, CSR, "reorder(i,j,k) parallel(i,merge-path,4)"))
    assert kernel.workspace_bytes(work, 3) == 3 * 4 * 7 * 4
    shared = GeneratedKernel(program_for(work, CSR, "reorder(i,j,k) parallel(i,balanced,4)"))
    assert shared.workspace_bytes(work, 3) == 0


@pytest.mark.parametrize(
    ("einsum", "format", "schedule", "message"),
    [
        ("C[i] += A[i,k] * B[k]", "U(i) U(k)", "parallel(i,merge-path)", "a list of coordinates that lies below i"),
        ("C[i] += A[i,k] * B[k]", "U(i1) U(i0:4) C(k)", "parallel(i1,merge-path)", "lies below i1, as in U(i) C(k)"),
        ("C[i] += A[i,k] * B[k]", "U(i) B(k)", "parallel(i,merge-path)", "a list of coordinates that lies below i"),
        ("C[i] += A[i,k] * B[k]", "U(i) C(k)", "reorder(k,i) parallel(k,merge-path)", "use dynamic for k"),
        ("C[i] += A[i,k] * B[k]", "C(i0:2) C(i1) C(k)", "reorder(i0,i1,k) parallel(i0,merge-path)", "store the outer part"),
        ("C[i] mean= A[i,k] * B[k]", "U(i) C(k)", "parallel(i,merge-path)", "mean needs an iteration of i in one piece"),
        ("C[i] argmax= A[i,k] * B[k]", "U(i) C(k)", "parallel(i,merge-path)", "argmax needs an iteration of i"),
    ],
)  # fmt: skip
def test_refusals(einsum: str, format: str, schedule: str, message: str) -> None:
    work = einsum_workload(einsum, {"A": matrix([2, 0, 1])}, {})
    with pytest.raises(ScheduleError) as error:
        lower(program_for(work, f"(i,k) -> {format}", schedule).plan())
    assert message in str(error.value)
