"""Hybrids: two formats of one operand, whose results are added."""

import numpy as np
import pytest

from tensorwise.errors import FormatError, ScheduleError
from tensorwise.lower import ir
from tensorwise.lower.lower import lower
from tensorwise.lower.program import Program, program_for
from tensorwise.program.workload import Workload, einsum_workload, workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.interpreted import InterpretedKernel
from tensorwise.runtime.kernel import Kernel
from tensorwise.runtime.packed import packed_parts
from tensorwise.runtime.work import work_bound
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries

CSR = "(i,k) -> U(i) C(k)"
LONG = "rows>5: (i,k) -> C(k1) C(i) C(k0:4)"
SHARED = "reorder(k1,i,k0) parallel(k1,dynamic,1)"


def matrix() -> Entries:
    """20 x 30, row 3 nearly full, one to three entries elsewhere, row 7 empty."""
    rng = np.random.default_rng(0)
    dense = np.zeros((20, 30))
    for row in range(20):
        dense[row, rng.permutation(30)[: 27 if row == 3 else row % 4]] = rng.standard_normal()
    dense[7] = 0
    return entries_from(dense)


def kernels(program: Program) -> list[Kernel]:
    return [GeneratedKernel(program), InterpretedKernel(program, np.random.default_rng(0))]


def check(work: Workload, program: Program) -> None:
    operands = work.operands(np.random.default_rng(1))
    for kernel in kernels(program):
        bound, out = kernel.bind(work, 3), np.full(work.output_shape, np.nan, work.output_dtype)
        for _ in range(2):
            bound.run(operands, out)
            assert work.reference(operands).mismatch(out) is None
        assert bound.conversion_s > 0


@pytest.mark.parametrize(
    ("op", "n", "format", "schedule"),
    [
        ("spmv", None, f"{CSR}; {LONG}", f"parallel(i,balanced,2); {SHARED} tile(k0,1x4)"),
        ("spmv", None, f"(i:length,k) -> U(i1) P(k#) U(i0:4) S(k); {LONG}", f"reorder(i1,i0,k#) tile(i0,1x4); {SHARED}"),
        ("spmv", None, f"{CSR}; rows>5: {CSR}", "; parallel(k,dynamic,2,private)"),
        ("spmm", 13, f"{CSR}; {LONG}", "reorder(i,j,k) tile(j,2x4); reorder(k1,i,j,k0) tile(j,2x4) parallel(k1)"),
        ("spmm", 5, f"{CSR}; columns>1/4: (i,k) -> C(i1) C(k) U(i0:4)", "; reorder(i1,j,k,i0) tile(j,1x4) unroll(i0)"),
        ("spmm", 11, f"{CSR}; rows>2: {CSR}", "reorder(i,j,k); reorder(i,j,k) tile(j,1x8)"),
        ("sddmm", 6, "(i,j) -> U(i) C(j); rows>5: (i,j) -> C(j) C(i)", "tile(k,1x4); parallel(j,dynamic,1)"),
        ("sddmm", 6, "(i,j) -> U(i1) C(j) U(i0:2); columns>1/4: (i,j) -> U(i) U(j)", ""),
    ],
)  # fmt: skip
def test_both_parts_make_the_result(op: str, n: int | None, format: str, schedule: str) -> None:
    work = workload(op, matrix(), n=n)
    check(work, program_for(work, format, schedule))


@pytest.mark.parametrize("rule", ["rows>0", "rows>99"])
@pytest.mark.parametrize("op", ["spmm", "sddmm"])
def test_either_part_may_be_empty(op: str, rule: str) -> None:
    work = workload(op, matrix(), n=4)
    check(work, program_for(work, f"{CSR}; {rule}: (i,k) -> C(i) C(k)", ""))


@pytest.mark.parametrize(
    "einsum",
    [
        "C[i] += max(A[i,k], B[k]) + 2",
        "C[i,k] = A[i,k] * B[k]",
        "C[i,k,r] = A[i,k] * B[r]",
        "C[k] += A[i,k] - B[i]",
        "C[k,i] = A[i,k] * B[i]",
    ],
)
def test_any_sum_over_the_entries_can_be_divided(einsum: str) -> None:
    work = einsum_workload(einsum, {"A": matrix()}, {"r": 5} if "r" in einsum else {})
    check(work, program_for(work, "(i,k) -> U(i1) C(k) U(i0:4); columns>1: (i,k) -> U(k) C(i)", ""))


@pytest.mark.parametrize("spoil", [np.nan, np.inf])
@pytest.mark.parametrize(
    "format",
    [
        f"(i,k) -> U(i1) C(k1) U(i0:2) U(k0:2); rows>5: {CSR}",
        f"{CSR}; rows>5: (i,k) -> U(i1) C(k1) U(i0:2) U(k0:2)",
        "(i,k) -> U(i1) C(k1) U(i0:2) U(k0:2); rows>5: (i,k) -> U(i) U(k)",
    ],
)
def test_when_one_part_meets_what_is_no_number_both_are_computed_again(spoil: float, format: str) -> None:
    work = workload("spmv", matrix())
    program = program_for(work, format, "")
    operand = np.ones(30)
    operand[[4, 11]] = spoil
    for kernel in kernels(program):
        bound, out = kernel.bind(work, 2), np.empty(20)
        for given in (operand, np.ones(30), operand):
            bound.run([given], out)
            assert work.reference([given]).mismatch(out) is None


def test_the_second_part_adds_and_initialises_nothing() -> None:
    work = workload("spmm", matrix(), n=8)
    program = program_for(
        work, f"{CSR}; {LONG}", "reorder(i,j,k) tile(j,1x8); reorder(k1,i,j,k0) parallel(k1)"
    )
    rest, apart = program.parts
    assert (rest.accumulate, apart.accumulate) == (False, True)
    kinds = [
        {type(s) for s in ir.walk(part.lowered().body)} & {ir.BufferStore, ir.Reduce}
        for part in (rest, apart)
    ]
    assert kinds == [{ir.BufferStore}, {ir.Reduce}]


def test_strips_that_add_do_not_overlap() -> None:
    work = workload("spmm", matrix(), n=11)
    rest, apart = program_for(
        work, f"{CSR}; rows>2: {CSR}", "reorder(i,j,k) tile(j,1x8); reorder(i,j,k) tile(j,1x8)"
    ).parts
    assert ("rest = (" in rest.source(), "rest = (" in apart.source()) == (True, False)


def test_entries_of_a_kept_pattern_are_named_as_in_the_whole_operand() -> None:
    work = workload("sddmm", matrix(), n=4)
    program = program_for(work, f"{CSR}; rows>5: (i,k) -> C(i) C(k)", "")
    assert [part.accumulate for part in program.parts] == [True, True]
    packed, _ = packed_parts(program, work, 1)
    sources = [part.array("A_source") for part in packed]
    assert sorted(np.concatenate(sources)) == list(range(1, work.entries.nnz + 1))


def test_texts_are_read_back() -> None:
    work = workload("spmv", matrix())
    program = program_for(work, f" {CSR} ; {LONG}", f"parallel(i); {SHARED}")
    assert program.format_text == f"{CSR}; {LONG}"
    assert program.schedule_text == f"parallel(i,dynamic,32); split(k,4) {SHARED}"
    assert program_for(work, program.format_texts, program.schedule_text) == program
    assert program.name == f"{program.format_text}; {program.schedule_text}"
    assert str(program).splitlines()[1] == f"A: {CSR}"
    assert f"A (rows>5): {LONG.partition(': ')[2]}" in str(program).splitlines()
    assert program.source().count("int TW_SYMBOL(") == 2
    assert GeneratedKernel(program).bind(work, 2).source == "\n".join(GeneratedKernel(program).texts(work))
    one = program_for(work, CSR, "")
    assert work_bound(program, work) > work_bound(one, work)


def test_what_a_bound_hybrid_holds() -> None:
    work = workload("spmm", matrix(), n=4)
    bound = GeneratedKernel(program_for(work, f"{CSR}; {LONG}", "reorder(i,j,k); reorder(k1,i,j,k0)")).bind(
        work, 2
    )
    assert list(bound.tensors) == ["A", "A rows>5"]
    assert len(bound.tensors["A"].values) + len(bound.tensors["A rows>5"].values) == work.entries.nnz
    assert bound.bytes_held >= sum(tensor.values.nbytes for tensor in bound.tensors.values())
    wide = workload("spmm", work.entries, n=9)
    operands, out = wide.operands(np.random.default_rng(0)), np.empty((20, 9))
    bound.resized(wide).run(operands, out)
    assert wide.reference(operands).mismatch(out) is None


def test_the_shortest_call_runs_both_parts() -> None:
    work = workload("spmv", matrix())
    for format in (f"{CSR}; {LONG}", f"(i,k) -> U(i1) C(k1) U(i0:2) U(k0:2); rows>5: {CSR}"):
        quick = GeneratedKernel(program_for(work, format, "")).bind(work, 2).fast_call()
        assert quick is not None
        operand = np.ones(30)
        for value in (1, np.nan, np.inf, 2):
            operand[4] = value
            made = quick(operand)
            assert made is not None
            assert work.reference([operand]).mismatch(made) is None
        assert quick(operand[::-1]) is None
        assert quick(operand.astype(np.float32)) is None
    sampled = workload("sddmm", matrix(), n=4)
    assert (
        GeneratedKernel(program_for(sampled, f"{CSR}; rows>5: {CSR}", "")).bind(sampled, 2).fast_call()
        is None
    )


@pytest.mark.parametrize("reduction", ["max", "prod", "mean", "argmax"])
def test_only_sums_are_divided(reduction: str) -> None:
    work = einsum_workload(f"C[i] {reduction}= A[i,k] * B[k]", {"A": matrix()}, {})
    program = program_for(work, f"{CSR}; rows>5: {CSR}", "")
    with pytest.raises(
        ScheduleError, match=f"the parts of a hybrid are added up, but .* reduces by {reduction}"
    ):
        GeneratedKernel(program).texts(work)
    with pytest.raises(ScheduleError, match="the parts of a hybrid are added up"):
        GeneratedKernel(program).bind(work, 1)


def test_what_is_no_hybrid() -> None:
    work = workload("spmv", matrix())
    with pytest.raises(FormatError, match="'rows' is no rule of a hybrid"):
        program_for(work, f"{CSR}; rows: {CSR}", "")
    with pytest.raises(FormatError, match="format of A ' nothing'"):
        program_for(work, f"{CSR}; rows>5: nothing", "")
    with pytest.raises(
        ScheduleError, match=r"a second schedule is given \(parallel\(i\)\), but the format has one"
    ):
        program_for(work, CSR, "; parallel(i)")
    with pytest.raises(ScheduleError, match="no index 'q'"):
        lower(program_for(work, f"{CSR}; rows>5: {CSR}", "; split(q,4)").parts[1].plan())
    two = einsum_workload("C[i] += A[i,k] * S[i,k]", {"A": matrix(), "S": matrix()}, {})
    with pytest.raises(ScheduleError, match=r"a hybrid divides the only sparse operand, but .* has A, S"):
        program_for(two, {"A": f"{CSR}; rows>5: {CSR}", "S": CSR}, "")
