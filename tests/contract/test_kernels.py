"""What every Kernel promises of ``run`` and ``ready``. Library routines are rows already; add a program to PROGRAMS."""

import gc
from typing import Final

import numpy as np
import pytest

from tensorwise.device.library import LIBRARY
from tensorwise.errors import CompilerError, InputError
from tensorwise.lower.program import program_for
from tensorwise.program.workload import Workload, einsum_workload, workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.interpreted import InterpretedKernel
from tensorwise.runtime.kernel import BoundKernel, Kernel
from tensorwise.tensor.convert import entries_from
from tensorwise.toolchain.compiler import find_compiler
from tests.unit.device.cases import spoiled, strided

CSR: Final = "(i,k) -> U(i) C(k)"
CSC: Final = "(i,k) -> U(k) C(i)"
BLOCKS: Final = "(i,k) -> U(i1) C(k1) U(i0:4) U(k0:4)"
PROGRAMS: Final = {
    "rows": ("spmv", CSR, "parallel(i,balanced,2)"),
    "shared rows": ("spmv", CSR, "parallel(i,merge-path,4)"),
    "shared rows of a matrix": ("spmm", CSR, "reorder(i,j,k) parallel(i,merge-path,8) tile(j,1x4)"),
    "padded blocks": ("spmm", BLOCKS, "reorder(i1,j,k1,i0,k0) tile(j,1x4)"),
    "private workspace": ("spmm", CSC, "reorder(k,i,j) parallel(k,dynamic,2,private)"),
    "hybrid": ("spmv", f"{CSR}; rows>5: {CSR}", ""),
    "hybrid of blocks": ("spmm", f"{CSR}; rows>5: {BLOCKS}", "reorder(i,j,k); reorder(i1,j,k1,i0,k0)"),
    "hybrid with a private workspace": ("spmv", f"{BLOCKS}; rows>5: {CSC}", "; reorder(k,i) parallel(k,dynamic,2,private)"),
    "parts that both add": ("sddmm", f"{CSR}; rows>5: {CSR}", ""),
    "factored, an operand by columns": ("sddmm", CSR, "reorder(i,j,k) tile(k,1x4) factor(k)"),
    "transposed": ("spmv_t", CSR, "reorder(i,k) parallel(i,dynamic,4,private)"),
    "rows without entries": ("C[i] max= A[i,k] * B[k]", CSR, ""),
    "coordinates": ("C[i] argmax= A[i,k] * B[k]", CSR, "parallel(i)"),
}  # fmt: skip
KERNELS: Final = [
    *((kind, row) for kind in ("compiled", "interpreted") for row in PROGRAMS),
    *((name, op) for name in LIBRARY for op in ("spmv", "spmm", "sddmm", "spmm_t")),
]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def work_of(op: str, rng: np.random.Generator) -> Workload:
    """Rows of all lengths, some of them empty."""
    entries = entries_from(np.where(rng.random((24, 20)) < np.linspace(0, 0.8, 24)[:, None], 1.5, 0))
    return einsum_workload(op, {"A": entries}, {}) if "=" in op else workload(op, entries)


def bound(kind: str, row: str, rng: np.random.Generator) -> tuple[BoundKernel, Workload]:
    work = work_of(PROGRAMS[row][0] if row in PROGRAMS else row, rng)
    kernel: Kernel
    if kind in LIBRARY:
        kernel = LIBRARY[kind]()
        if not LIBRARY[kind].installed() or LIBRARY[kind]().why_not(work):
            pytest.skip("not installed, or without such a routine")
    elif kind == "interpreted":
        kernel = InterpretedKernel(program_for(work, *PROGRAMS[row][1:]), rng)
    else:
        try:
            find_compiler()
        except CompilerError as error:
            pytest.skip(str(error))
        kernel = GeneratedKernel(program_for(work, *PROGRAMS[row][1:]))
    return kernel.bind(work, 2), work


def poisoned(work: Workload) -> np.ndarray:
    fill = np.nan if work.output_dtype.kind == "f" else -7
    return np.full(work.output_shape, fill, work.output_dtype)


@pytest.mark.parametrize("layout", ["as expected", "by columns", "strided", "read-only"])
@pytest.mark.parametrize(("kind", "row"), KERNELS)
def test_what_is_ready_reads_its_operands_anew(
    kind: str, row: str, layout: str, rng: np.random.Generator
) -> None:
    kernel, work = bound(kind, row, rng)
    operands = work.operands(rng)
    if layout == "by columns":
        operands = [np.asfortranarray(operand) for operand in operands]
    elif layout == "strided":
        operands = [strided(operand) for operand in operands]
    views = [operand.view() for operand in operands]
    for view in views:
        view.flags.writeable = layout != "read-only"
    out = poisoned(work)
    call, factored = kernel.ready(views, out), "factor" in row
    fresh = [work.operands(rng) for _ in range(2)]
    for contents in (operands, fresh[0], spoiled(fresh[1], rng), fresh[1]):
        for operand, given in zip(operands, contents, strict=True):
            operand[...] = given
        before = [operand.copy() for operand in operands]
        out[...] = poisoned(work)
        with np.errstate(invalid="ignore"):
            call()
            assert work.reference(operands).mismatch(out, factored=factored) is None
        for operand, copy in zip(operands, before, strict=True):
            np.testing.assert_array_equal(operand, copy)
    kernel.close()


@pytest.mark.parametrize(("kind", "row"), KERNELS)
def test_what_is_ready_outlives_its_kernel(kind: str, row: str, rng: np.random.Generator) -> None:
    kernel, work = bound(kind, row, rng)
    operands, out = work.operands(rng), poisoned(work)
    expected = work.reference(operands)
    call = kernel.ready(operands, out)
    del kernel, work
    gc.collect()
    call()
    assert expected.mismatch(out, factored="factor" in row) is None


@pytest.mark.parametrize("row", PROGRAMS)
def test_what_is_ready_has_its_pointers_in_place(
    row: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is timed is the kernel, also where there are two, where they add and where they share a workspace."""
    kernel, work = bound("compiled", row, rng)
    operands, out = work.operands(rng), poisoned(work)
    call = kernel.ready(operands, out)
    monkeypatch.setattr(kernel, "run", None)
    monkeypatch.setattr("tensorwise.runtime.generated.address", None)
    for _ in range(2):
        call()
        assert work.reference(operands).mismatch(out) is None


@pytest.mark.parametrize("row", ["rows", "hybrid"])
def test_an_output_that_does_not_fit_is_refused(row: str, rng: np.random.Generator) -> None:
    kernel, work = bound("compiled", row, rng)
    operands = work.operands(rng)
    for out in (np.empty(23), np.empty(24, np.float32), np.empty(48)[::2]):
        for call in (kernel.run, kernel.ready):
            with pytest.raises(
                InputError, match=r"out must be a C-contiguous float64 array of shape \(24,\)"
            ):
                call(operands, out)
