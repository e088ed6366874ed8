"""Programs: text, masked forms, one kernel for many sizes, and directives that do not fit."""

from dataclasses import replace

import numpy as np
import pytest

from tensorwise.errors import FormatError, InputError, ScheduleError
from tensorwise.lower import ir
from tensorwise.lower.lower import lower
from tensorwise.lower.program import PlanKey, Program, kernel_text, program_for
from tensorwise.program.schedule import Schedule
from tensorwise.program.workload import Workload, einsum_workload, workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.interpreted import InterpretedKernel
from tensorwise.runtime.packed import PackedOperands
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.format import Format, csr

RNG = np.random.default_rng(5)


def matrix(rows: int, columns: int, density: float = 0.2) -> Entries:
    return entries_from(
        ((RNG.random((rows, columns)) < density) * RNG.standard_normal((rows, columns))).astype("f4")
    )


SPMM = workload("spmm", matrix(40, 30), n=8)
SDDMM = workload("sddmm", matrix(40, 30), n=8)


def text(work: Workload, format: str, schedule: str, threads: int = 3) -> str:
    """The C text that a packed workload gets."""
    program = program_for(work, format, schedule)
    return kernel_text(PlanKey(PackedOperands(program, work, threads).plan(program, None)))[0]


# -- one kernel for many --------------------------------------------------------------------------------


def test_sizes_chunks_threads_and_large_splits_bind_at_run_time() -> None:
    format, schedule = "(i,k) -> U(k1) U(i) C(k0:32)", "reorder(k1,i,j,k0) parallel(i,dynamic,32) tile(j,2x4)"
    base = text(SPMM, format, f"split(k,32) {schedule}")
    assert text(SPMM, format.replace("32", "17"), f"split(k,17) {schedule}") == base
    assert text(SPMM, format, f"split(k,32) {schedule}".replace("dynamic,32", "dynamic,4")) == base
    assert text(SPMM, format, f"split(k,32) {schedule}", threads=1) == base
    other = workload("spmm", matrix(7, 90), n=13)
    assert text(other, format, f"split(k,32) {schedule}") == base


@pytest.mark.parametrize(
    "change",
    [
        ("tile(j,2x4)", "tile(j,4x4)"),
        ("tile(j,2x4)", "tile(j,2x8)"),
        ("parallel(i,dynamic,32)", "parallel(k1,dynamic,32,private)"),
        ("split(k,32)", "split(k,16)"),
        ("reorder(k1,i,j,k0)", "reorder(k1,i,k0,j)"),
        ("tile(j,2x4)", "tile(j,2x4) unroll(k0,2)"),
    ],
)
def test_what_binds_at_compile_time_changes_the_text(change: tuple[str, str]) -> None:
    format, schedule = (
        "(i,k) -> U(k1) U(i) C(k0:32)",
        "split(k,32) reorder(k1,i,j,k0) parallel(i,dynamic,32) tile(j,2x4)",
    )
    other = schedule.replace(*change)
    wide = format.replace("32", "16") if "16" in other else format
    assert text(SPMM, wide, other) != text(SPMM, format, schedule)


def test_a_remainder_of_a_constant_split_needs_its_guard() -> None:
    format, schedule = "(i,k) -> U(i1) C(k) U(i0:4)", "reorder(i1,k,i0,j) unroll(i0)"
    exact, ragged = workload("spmm", matrix(40, 30), n=8), workload("spmm", matrix(41, 30), n=8)
    assert "if ((" not in text(exact, format, schedule).split("watched")[0]
    assert text(exact, format, schedule) != text(ragged, format, schedule)
    assert text(workload("spmm", matrix(44, 30), n=8), format, schedule) == text(exact, format, schedule)


def test_constants_are_part_of_the_kernel() -> None:
    """Two einsums that differed in the seventh digit once shared one."""
    a = matrix(3, 3, 1.0)
    for factor in (0.1234567, 0.1234568, 1e-9, 3.0):
        work = einsum_workload(f"C[i] += A[i,k] * {factor!r}", {"A": a}, {})
        plan = PackedOperands(program := program_for(work, csr(), ""), work, 1).plan(program, None)
        assert f"{factor!r}f" in kernel_text(PlanKey(plan))[0]


def test_the_text_before_packing_is_that_after_it() -> None:
    for format, schedule in (
        ("U(i) C(k)", "parallel(i,balanced,2) tile(j,2x4) reorder(i,j,k)"),
        ("U(i1) C(k) U(i0:4)", "unroll(i0) reorder(i1,k,i0,j)"),
    ):
        program = program_for(SPMM, f"(i,k) -> {format}", schedule)
        assert GeneratedKernel(program).texts(SPMM) == (text(SPMM, f"(i,k) -> {format}", schedule),)


# -- padding ----------------------------------------------------------------------------------------------

BLOCKS = "(i,k) -> U(i1) C(k1) U(i0:2) U(k0:2)"


@pytest.mark.parametrize(
    ("einsum", "format", "form"),
    [
        ("C[i] += A[i,k] * B[k]", "(i,k) -> U(i) C(k)", "plain"),
        ("C[i] += A[i,k] * B[k]", BLOCKS, "watched"),
        ("C[i] += A[i,k] - B[k]", BLOCKS, "masked"),
        ("C[i] max= A[i,k] * B[k]", BLOCKS, "masked"),
        ("C[i] mean= A[i,k] * B[k]", BLOCKS, "masked"),
        ("C[i,k] = A[i,k] * B[k]", BLOCKS, "masked"),
        ("C[i,k] = A[i,k] * B[k]", "(i,k) -> U(k) C(i)", "plain"),
    ],
)
def test_which_programs_consult_the_source_map(einsum: str, format: str, form: str) -> None:
    work = einsum_workload(einsum, {"A": matrix(6, 6)}, {})
    program = program_for(work, format, "" if "0:" not in format else "reorder(i1,k1,i0,k0) unroll(i0)")
    plan = program.plan()
    assert ("masked" if plan.masked else "watched" if plan.padded else "plain") == form
    kernel = lower(plan)
    names = {buffer.name for buffer in kernel.buffers}
    assert any(isinstance(s, ir.RaiseFlag) for s in ir.walk(kernel.body)) == (form == "watched")
    assert ("A_source" in names) == (form == "masked" or (work.keeps_pattern and "U(k)" in format))


def test_the_masked_form_has_no_lanes_over_stored_indices() -> None:
    program = program_for(SPMM, BLOCKS, "reorder(i1,k1,i0,k0,j) tile(j,2x4)")
    assert program.masked() is program
    tiled = program_for(SPMM, BLOCKS, "reorder(i1,k1,i0,j,k0) tile(k0,1x2)")
    assert tiled.masked().schedule.tile is None
    assert tiled.masked() == replace(
        tiled, schedule=Schedule.parse("split(i,2) split(k,2) reorder(i1,k1,i0,j,k0)")
    )


@pytest.mark.parametrize("spoil", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("schedule", ["", "parallel(i1) unroll(i0) unroll(k0)", "tile(k0,1x2) parallel(i1)"])
def test_padding_never_meets_what_is_no_number(spoil: float, schedule: str) -> None:
    a = entries_from(((4, 4), ([0, 1, 3], [0, 3, 1]), np.array([1, 2, 3], "f4")))
    work = workload("spmv", a)
    program = program_for(work, BLOCKS, f"reorder(i1,k1,i0,k0) {schedule}")
    b = np.array([1, 5, 7, spoil], np.float32)  # row 0 holds padding in column 1; row 1 stores column 3
    for kernel in (GeneratedKernel(program), InterpretedKernel(program, np.random.default_rng(0))):
        bound, out = kernel.bind(work, 2), np.empty(4, np.float32)
        for operand, expected in (
            (b, [1, 2 * spoil, 0, 15]),
            (np.ones(4, "f4"), [1, 2, 0, 3]),
            (b, [1, 2 * spoil, 0, 15]),
        ):
            bound.run([operand], out)
            np.testing.assert_array_equal(out, expected)


# -- text ---------------------------------------------------------------------------------------------------


def test_a_program_prints_its_loops() -> None:
    program = program_for(SPMM, csr(), "reorder(i,k,j) parallel(i)")
    lines = str(program).splitlines()
    assert lines[:3] == [
        "C[i,j] += A[i,k] * B[k,j]",
        "A: (i,k) -> U(i) C(k)",
        "reorder(i,k,j) parallel(i,dynamic,32)",
    ]
    assert "parallel[dynamic] for i in 0 .. N_i:" in lines
    assert program.name == "(i,k) -> U(i) C(k); reorder(i,k,j) parallel(i,dynamic,32)"
    assert program.source().count("int TW_SYMBOL(") == 1
    assert "double" in program.source("f64")


def test_formats_may_use_other_names_and_bring_their_splits() -> None:
    program = program_for(SDDMM, "(row,col) -> U(row1) C(col) U(row0:4)", "")
    assert str(program.formats["A"]) == "(i,j) -> U(i1) C(j) U(i0:4)"
    assert program.schedule.splits == {"i": 4}
    assert program_for(SDDMM, {"A": csr()}, Schedule()).formats["A"] == csr().renamed(("i", "j"))


@pytest.mark.parametrize(
    ("formats", "schedule", "error", "message"),
    [
        (
            {"X": "U(i) C(k)"},
            "",
            ScheduleError,
            "formats are given for ['X'], but the sparse operands are ['A']",
        ),
        ("(i,k,l) -> U(i) C(k) C(l)", "", FormatError, "has 3 modes, got 2 names: i, k"),
        ("(i,k) -> U(i)", "", FormatError, "format of A '(i,k) -> U(i)': mode 'k' is not stored"),
        ("U(i) C(k)", "tile", ScheduleError, "cannot read schedule at 'tile'"),
    ],
)
def test_what_is_no_program(
    formats: str | dict[str, str], schedule: str, error: type[InputError], message: str
) -> None:
    with pytest.raises(error) as caught:
        program_for(SPMM, formats, schedule)
    assert message in str(caught.value)


PRODUCT = "C[i,j] += A[i,k] * B[k,j]"


@pytest.mark.parametrize(
    ("einsum", "format", "schedule", "message"),
    [
        (PRODUCT, "U(i) C(k)", "parallel(j,balanced) reorder(j,i,k)", "balanced over the outermost loop"),
        (PRODUCT, "U(i) C(k)", "parallel(i,balanced) reorder(j,i,k)", "use dynamic for i"),
        (PRODUCT, "U(i) C(k)", "prefetch(A,4)", "'A' is no dense operand of C[i,j]"),
        (PRODUCT, "U(i) C(k)", "prefetch(X,4)", "'X' is no dense operand"),
        (PRODUCT, "U(i) C(k)", "tile(k,1x4) reorder(i,k,j)", "k is compressed in A; strips run"),
        (PRODUCT, "U(i) C(k)", "split(j,8) reorder(j0,i,k,j1) tile(j0,1x4)", "put j1 outside j0"),
        (PRODUCT, "C(k) U(i)", "tile(k,1x4) reorder(i,j,k)", "k is compressed in A"),
        (PRODUCT, "U(i) C(k1) C(k0:4)", "unroll(k0) reorder(i,k1,k0,j)", "give a factor"),
        (PRODUCT, "U(k) C(i)", "tile(k,1x4) reorder(i,j,k)", "lanes reach i, which is compressed in A"),
        (PRODUCT.replace("+", "max"), "U(i) U(k)", "tile(k,1x4) reorder(i,j,k)", "a stored index cannot be masked"),
        (PRODUCT.replace("+", "argmax"), "U(i) C(k)", "tile(k,1x4) reorder(i,j,k)", "argmax keeps a coordinate"),
        (PRODUCT.replace("+", "argmax"), "U(i) C(k)", "reorder(i,k,j)", "inside the output's; move k inwards"),
        (PRODUCT.replace("+", "mean"), "U(i) C(k)", "reorder(k,i,j)", "mean needs all reduced loops inside"),
        (
            PRODUCT,
            "U(i1) U(k1) U(i0:16) U(k0:16)",
            "reorder(i1,k1,j,i0,k0) unroll(i0) unroll(k0) unroll(j,8)",
            "makes more than 600 copies of the innermost statement; unroll less",
        ),
    ],
)  # fmt: skip
def test_directives_that_do_not_fit(einsum: str, format: str, schedule: str, message: str) -> None:
    work = einsum_workload(einsum, {"A": SPMM.entries}, {"j": 8})
    program = program_for(work, f"(i,k) -> {format}", schedule)
    with pytest.raises(ScheduleError) as error:
        lower(program.plan())
    assert message in str(error.value)


def test_balanced_parts_are_those_of_the_operand_that_leads() -> None:
    """The parts counted A's rows while the loop ran over S's positions, past their end."""
    a = matrix(40, 30)
    s = entries_from(((40, 30), ([3, 9], [1, 2]), np.ones(2, "f4")))
    work = einsum_workload("C[i] += A[i,k] * S[i,k]", {"A": a, "S": s}, {})
    with pytest.raises(ScheduleError, match="the loop follows the compressed level of another operand"):
        GeneratedKernel(
            program_for(work, {"A": "U(i) C(k)", "S": "C(i) C(k)"}, "parallel(i,balanced,2)")
        ).bind(work, 2)
    out = np.full(40, np.nan, "f4")
    formats = {"A": "C(i) C(k)", "S": "C(i) C(k)"}
    GeneratedKernel(program_for(work, formats, "parallel(i,balanced,2)")).bind(work, 2).run([], out)
    assert work.reference([]).mismatch(out) is None


@pytest.mark.parametrize("text", ["C[i,j] += A[i,j] * B[i,k] * B[k,j]", "C[i,j] = B[i] * A[i,j] * B[j]"])
def test_one_operand_read_in_two_ways(text: str) -> None:
    """B[i,k] by rows and B[k,j] by columns were once two layouts of one array."""
    work = einsum_workload(text, {"A": matrix(12, 12)}, {"k": 12} if "k" in text else {})
    operands = work.operands(RNG)
    out = np.full(work.output_shape, np.nan, "f4")
    GeneratedKernel(program_for(work, "(i,j) -> U(j) C(i)", "parallel(j) ")).bind(work, 2).run(operands, out)
    assert work.reference(operands).mismatch(out) is None


@pytest.mark.parametrize(
    ("row", "column"),
    [("int", "double"), ("sizes", "buffers"), ("thread", "threads"), ("e", "t"), ("linux", "out")],
)
@pytest.mark.parametrize("order", ["{row},{column}", "{column},{row}"])
def test_indices_may_be_called_what_c_and_kernels_use(row: str, column: str, order: str) -> None:
    work = einsum_workload(f"C[{row}] += A[{row},{column}] * B[{column}]", {"A": matrix(9, 7)}, {})
    loops = order.format(row=row, column=column)
    schedule = f"reorder({loops}) parallel({loops.split(',')[0]},dynamic,2,private)"
    operands, out = work.operands(RNG), np.full(9, np.nan, "f4")
    GeneratedKernel(program_for(work, csr(), schedule)).bind(work, 3).run(operands, out)
    assert work.reference(operands).mismatch(out) is None


def test_index_entries_is_not_the_number_of_entries() -> None:
    work = einsum_workload("C[i,entries] += A[i,entries] * B[i,k]", {"A": matrix(9, 7)}, {"k": 3})
    operands, out = work.operands(RNG), np.full(work.output_shape, np.nan, "f4")
    GeneratedKernel(program_for(work, csr(), "reorder(k,i,entries)")).bind(work, 1).run(operands, out)
    assert work.reference(operands).mismatch(out) is None


def test_zeros_lose_their_sign_in_lanes_too() -> None:
    a = entries_from(((2, 2), ([0, 1], [0, 1]), np.array([-0.0, -0.0], "f4")))
    work = einsum_workload("C[i,j] += 1 / abs(A[i,k] * B[k,j])", {"A": a}, {"j": 8})
    for schedule in ("reorder(i,k,j)", "reorder(i,k,j) tile(j,1x8)", "reorder(i,j,k) tile(j,2x4)"):
        out = np.full((2, 8), np.nan, "f4")
        GeneratedKernel(program_for(work, csr(), schedule)).bind(work, 1).run([np.ones((2, 8), "f4")], out)
        assert (out == np.inf).all(), schedule


def test_a_wrong_output_array_is_refused() -> None:
    bound = GeneratedKernel(program_for(SPMM, csr(), "")).bind(SPMM, 1)
    operands = SPMM.operands(RNG)
    for out in (np.zeros((40, 8)), np.zeros((8, 40), "f4"), np.asfortranarray(np.zeros((40, 8), "f4"))):
        with pytest.raises(
            InputError, match=r"out must be a C-contiguous float32 array of shape \(40, 8\), got"
        ):
            bound.run(operands, out)


def test_hand_made_programs_are_checked_as_well() -> None:
    program = Program(
        SPMM.assignment, {"A": Format.parse("(i,k) -> U(i) C(k)")}, Schedule.parse("parallel(x)")
    )
    with pytest.raises(ScheduleError, match="no loop 'x'; there are i, j, k"):
        GeneratedKernel(program).bind(SPMM, 1)


def test_many_threads_may_call_one_program() -> None:
    """A private workspace is shared by its calls; a flag is each call's own."""
    from concurrent.futures import ThreadPoolExecutor

    work = workload("spmv", matrix(200, 150, 0.1))
    for format, schedule in (
        ("U(k) C(i)", "reorder(k,i) parallel(k,dynamic,8,private)"),
        ("U(i1) C(k1) U(i0:4) U(k0:4)", "reorder(i1,k1,i0,k0) parallel(i1)"),
    ):
        bound = GeneratedKernel(program_for(work, f"(i,k) -> {format}", schedule)).bind(work, 2)
        operands = [work.operands(np.random.default_rng(n)) for n in range(8)]
        operands[3][0][5] = np.inf
        references = [work.reference(given) for given in operands]

        def call(n: int) -> str | None:
            out = np.full(200, np.nan, "f4")
            bound.run(operands[n % 8], out)  # noqa: B023
            return references[n % 8].mismatch(out)  # noqa: B023

        with ThreadPoolExecutor(4) as pool:
            assert [problem for problem in pool.map(call, range(200)) if problem] == []


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_strips_that_reduce_in_memory_and_strips_that_do_not_share_an_output(dtype: str) -> None:
    """Full strips have more sums than registers, narrower ones hold theirs: the output starts as the identity."""
    rng = np.random.default_rng(0)
    coordinates = (rng.integers(0, 40, 60), rng.integers(0, 30, 60))
    a = entries_from(((40, 30), coordinates, rng.random(60) + 0.5), dtype)
    work = einsum_workload("C[i,j] max= A[i,k] * B[k,j]", {"A": a}, {"j": 150})
    schedule = "split(i,8) reorder(i1,j,k,i0) unroll(i0) tile(j,16x8)"
    program = program_for(work, "(i,k) -> C(i1) C(k) U(i0:8)", schedule)
    b = -(rng.random((30, 150)) + 0.5).astype(dtype)
    out = np.empty(work.output_shape, work.output_dtype)
    for kernel in (GeneratedKernel(program), InterpretedKernel(program, rng)):
        kernel.bind(work, 1).run([b], out)
        assert work.reference([b]).mismatch(out) is None


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("reduction", ["+=", "max=", "min=", "prod=", "mean=", "argmax="])
def test_coordinates_that_an_entry_has_not_are_zero_beside_its_number(reduction: str, numbers: bool) -> None:
    """C[A,k] has an element for each k, and the entry one k: the others held what was in memory before."""
    rng, a = np.random.default_rng(3), matrix(6, 9, 0.4)
    if numbers:
        a = replace(a, numbers=rng.permutation(a.nnz).astype(np.int32))
    work = einsum_workload(f"C[A,k] {reduction} B[i,f] - 9 for A[i,k]", {"A": a}, {"f": 5})
    program = program_for(work, "(i,k) -> U(i) C(k)", "reorder(i,k,f) parallel(i)")
    (b,), out = work.operands(rng), np.empty(work.output_shape, work.output_dtype)
    for kernel in (GeneratedKernel(program), InterpretedKernel(program, rng)):
        out.fill(77)
        kernel.bind(work, 2).run([b], out)
        assert work.reference([b]).mismatch(out) is None
    reached = np.zeros(out.shape, bool)
    reached[np.arange(a.nnz) if a.numbers is None else a.numbers, a.coordinates[1]] = True
    assert set(out[~reached]) == {-1 if reduction == "argmax=" else 0}


@pytest.mark.parametrize("einsum", ["C[i,j] += A[i,k] * B[k,j]", "C[i,j] argmax= A[i,k] * B[k,j]"])
@pytest.mark.parametrize("tile", ["1x4", "2x4", "4x4", "12x4", "2x8"])
def test_one_kernel_serves_rows_of_any_length(tile: str, einsum: str) -> None:
    rng, a = np.random.default_rng(1), matrix(6, 9, 0.4)
    for n in (1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16, 17, 23, 33, 53):
        work = einsum_workload(einsum, {"A": a}, {"j": n})
        program = program_for(work, "(i,k) -> U(i) C(k)", f"reorder(i,j,k) parallel(i) tile(j,{tile})")
        (b,), out = work.operands(rng), np.empty(work.output_shape, work.output_dtype)
        for kernel in (GeneratedKernel(program), InterpretedKernel(program, rng)):
            kernel.bind(work, 2).run([b], out)
            assert work.reference([b]).mismatch(out) is None


@pytest.mark.parametrize(
    ("n", "tile", "passes"),
    [
        (1, "1x4", 1),
        (2, "1x4", 1),
        (3, "1x4", 1),
        (5, "2x4", 1),
        (7, "1x4", 2),
        (7, "2x4", 1),
        (12, "2x8", 1),
    ],
)
def test_short_rows_pass_the_entries_once(n: int, tile: str, passes: int) -> None:
    work = workload("spmm", matrix(6, 9), n=n)
    schedule = f"reorder(i,j,k) tile(j,{tile}) bound(j,{n})"
    assert str(program_for(work, "(i,k) -> U(i) C(k)", schedule)).count("in A1_pos[i] ..") == passes
