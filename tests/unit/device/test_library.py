"""Library routines against the dense reference."""

import gc

import numpy as np
import pytest

from tensorwise.device.libraries.contraction import Contraction, contraction
from tensorwise.device.libraries.scipy import _public_product
from tensorwise.device.library import LIBRARY, available
from tensorwise.errors import InputError, MissingExtraError, TensorwiseError
from tensorwise.program.einsum import Einsum
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.kernel import Kernel
from tests.unit.device import cases

CASES = dict(cases.workloads(np.random.default_rng(7)))
MISSING = {
    name: pytest.mark.skip(reason=f"{name} is not installed")
    for name, cls in LIBRARY.items()
    if not cls.installed()
}
NAMES = [pytest.param(name, marks=MISSING.get(name, ())) for name in LIBRARY]
ABLE = [pytest.param(name, "", marks=mark) for name, mark in MISSING.items()] + [
    pytest.param(name, case)
    for name, cls in LIBRARY.items()
    for case, work in CASES.items()
    if name not in MISSING and cls().why_not(work) is None
]


def run(kernel: Kernel, work: Workload, operands: list[np.ndarray], threads: int = 2) -> np.ndarray:
    bound = kernel.bind(work, threads)
    out = np.full(work.output_shape, np.nan, work.output_dtype)
    bound.run(operands, out)
    again = np.full(work.output_shape, np.nan, work.output_dtype)
    bound.run(operands, again)
    bound.close()
    bound.close()
    np.testing.assert_allclose(again, out, rtol=1e-4, atol=1e-4)
    return out


@pytest.mark.parametrize(("name", "case"), ABLE)
def test_agrees_with_the_reference(name: str, case: str) -> None:
    work, kernel = CASES[case], LIBRARY[name]()
    operands = work.operands(np.random.default_rng(1))
    out = run(kernel, work, operands)
    assert work.reference(operands).mismatch(out) is None


@pytest.mark.parametrize("layout", ["strided", "C", "F", "reversed", "read-only"])
@pytest.mark.parametrize("op", ["spmv", "spmm", "sddmm", "mttkrp"])
@pytest.mark.parametrize("name", NAMES)
def test_operands_may_have_any_strides(name: str, op: str, layout: str) -> None:
    rng = np.random.default_rng(3)
    a = cases.tensor((9, 8, 7), 100, rng) if op == "mttkrp" else cases.matrix("random", rng)
    work, kernel = workload(op, a), LIBRARY[name]()
    if kernel.why_not(work) is not None:
        pytest.skip(str(kernel.why_not(work)))
    operands = work.operands(rng)
    if layout == "strided":
        operands = [cases.strided(operand) for operand in operands]
    elif layout == "reversed":
        operands = [np.ascontiguousarray(operand[::-1])[::-1] for operand in operands]
    elif layout == "read-only":
        for operand in operands:
            operand.setflags(write=False)
    else:
        operands = [np.array(operand, order=layout) for operand in operands]
    copies = [operand.copy() for operand in operands]
    assert work.reference(copies).mismatch(run(kernel, work, operands)) is None
    for operand, copy in zip(operands, copies, strict=True):
        np.testing.assert_array_equal(operand, copy)


@pytest.mark.parametrize("op", ["spmv", "spmm", "sddmm", "mttkrp", "ttv", "ttm"])
@pytest.mark.parametrize("name", NAMES)
def test_only_stored_entries_meet_nan_and_infinity(name: str, op: str) -> None:
    rng = np.random.default_rng(4)
    kernel = LIBRARY[name]()
    for seed in range(3):
        a = (
            cases.tensor((9, 8, 7), 60, rng)
            if op in ("mttkrp", "ttv", "ttm")
            else cases.matrix("random", rng)
        )
        work = workload(op, a)
        if kernel.why_not(work) is not None:
            pytest.skip(str(kernel.why_not(work)))
        operands = cases.spoiled(work.operands(rng), np.random.default_rng(seed))
        with np.errstate(invalid="ignore"):
            assert work.reference(operands).mismatch(run(kernel, work, operands)) is None


@pytest.mark.parametrize("name", NAMES)
def test_blocks_with_holes_are_not_filled_in(name: str) -> None:
    """A library that reblocks the matrix must not multiply its padding with infinities."""
    rng = np.random.default_rng(5)
    array = np.kron(rng.random((20, 20)) < 0.2, np.ones((4, 4))) * (rng.random((80, 80)) < 0.9)
    for op in ("spmv", "spmm", "sddmm"):
        work = workload(op, cases.entries_from(array.astype(np.float32)))
        operands = cases.spoiled(work.operands(rng), rng)
        if LIBRARY[name]().why_not(work) is None:
            with np.errstate(invalid="ignore"):
                assert work.reference(operands).mismatch(run(LIBRARY[name](), work, operands)) is None


@pytest.mark.parametrize("name", NAMES)
def test_values_of_ones_and_nan_values(name: str) -> None:
    rng = np.random.default_rng(6)
    base = cases.matrix("random", rng)
    for values in (np.ones(base.nnz, np.float32), np.full(base.nnz, np.nan, np.float32)):
        for op in ("spmm", "sddmm"):
            work = workload(op, base.with_values(values))
            if LIBRARY[name]().why_not(work) is None:
                operands = work.operands(rng)
                assert work.reference(operands).mismatch(run(LIBRARY[name](), work, operands)) is None


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_threads(name: str, threads: int) -> None:
    rng = np.random.default_rng(8)
    work = workload("spmm", cases.tensor((500, 400), 20_000, rng), n=8)
    operands = work.operands(rng)
    assert work.reference(operands).mismatch(run(LIBRARY[name](), work, operands, threads)) is None


@pytest.mark.parametrize("name", NAMES)
def test_conversion_is_reported(name: str) -> None:
    work = CASES["spmm random n=7 float32"]
    bound = LIBRARY[name]().bind(work, 1)
    assert bound.conversion_s > 0
    assert bound.bytes_held >= work.entries.nnz * 8
    del bound
    gc.collect()


@pytest.mark.parametrize("name", NAMES)
def test_a_structure_outlives_its_workload(name: str) -> None:
    rng = np.random.default_rng(9)
    work = workload("spmv", cases.tensor((300, 300), 3000, rng))
    operands = work.operands(rng)
    expected = work.reference(operands)
    bound = LIBRARY[name]().bind(work, 1)
    del work
    gc.collect()
    _ballast = [np.full(3000, 1e9, np.float32) for _ in range(20)]
    out = np.empty(300, np.float32)
    bound.run(operands, out)
    assert expected.mismatch(out) is None


def einsum(text: str, rng: np.random.Generator, **sizes: int) -> Workload:
    parsed = Einsum.parse(text)
    shape = tuple(sizes[index] for index in parsed.single.access("A").indices)
    return Workload("einsum", parsed, {"A": cases.tensor(shape, min(40, int(np.prod(shape))), rng)}, sizes)


@pytest.mark.parametrize(
    ("text", "kernels"),
    [
        ("Y[a,b] += A[a,c] * X[c,b]", {"scipy", "mkl", "torch"}),
        ("Y[a,b] += X[b,c] * A[a,c]", {"scipy", "mkl", "torch"}),
        ("Y[a,b,d] += A[a,c] * X[b,c,d]", {"scipy", "mkl", "torch"}),
        ("Y[c,b] += A[a,c] * X[a,b]", {"scipy"}),
        ("Y[b] += A[a,c] * X[c,b]", {"scipy"}),
        ("Y[a,c] += X[d,a] * Z[c,d] * A[a,c]", {"scipy", "torch"}),
        ("Y[a,c] += A[a,c] * X[a,d,e] * Z[c,d,e]", {"scipy", "torch"}),
        ("Y[a,c] += A[a,c] * X[d]", {"scipy"}),
        ("Y[a,c] += A[a,c] * X[c]", {"scipy"}),
        ("Y[a,b] += A[a,c] * X[c,b] * Z[b]", {"scipy"}),
        ("Y[a,b] += A[a,c] * X[c,d] * Z[d,b]", {"scipy"}),
        ("Y[a,b] += A[a,c] * X[c,b] * Z[a,b]", {"scipy"}),
        ("Y[a,d] += A[a,b,c] * X[b,c,d]", {"scipy"}),
        ("Y[b,a] += A[a,c] * X[c,b]", set()),
        ("Y[a] max= A[a,c] * X[c]", set()),
        ("Y[a] += A[a,c] + X[c]", set()),
        ("Y[a] += A[a,c]", set()),
    ],
)
def test_einsums_written_by_hand(text: str, kernels: set[str]) -> None:
    rng = np.random.default_rng(11)
    work = einsum(text, rng, a=6, b=5, c=7, d=4, e=3)
    able = {name for name, cls in LIBRARY.items() if cls().why_not(work) is None}
    assert able == kernels
    assert {kernel.name for kernel in available(work)} == {n for n in kernels if LIBRARY[n].installed()}
    operands = work.operands(rng)
    for name in able:
        if LIBRARY[name].installed():
            assert work.reference(operands).mismatch(run(LIBRARY[name](), work, operands)) is None


def test_contraction_names_its_parts() -> None:
    shape = contraction(CASES["spmm random n=7 float32"])
    assert isinstance(shape, Contraction)
    assert shape.product is not None
    assert shape.sampled is None
    shape = contraction(CASES["sddmm random n=20 float32"])
    assert isinstance(shape, Contraction)
    assert shape.sampled is not None


def test_refusals_are_readable() -> None:
    work = CASES["mttkrp (9, 8, 7) mode 0 float32"]
    if LIBRARY["mkl"].installed():
        with pytest.raises(InputError, match="MKL has routines for"):
            LIBRARY["mkl"]().bind(work, 1)
    with pytest.raises(InputError, match="threads must be at least 1"):
        LIBRARY["scipy"]().bind(work, 0)


def test_missing_libraries_name_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIBRARY["torch"], "installed", classmethod(lambda cls: False))
    with pytest.raises(MissingExtraError, match=r"tensorwise\[torch\]"):
        LIBRARY["torch"]().bind(CASES["spmv random n=None float32"], 1)
    assert "torch" not in {kernel.name for kernel in available(CASES["spmv random n=None float32"])}
    assert issubclass(MissingExtraError, TensorwiseError)


def test_a_closed_mkl_kernel_refuses() -> None:
    if not LIBRARY["mkl"].installed():
        pytest.skip("no MKL")
    work = CASES["spmv random n=None float32"]
    bound = LIBRARY["mkl"]().bind(work, 1)
    bound.close()
    with pytest.raises(InputError, match="closed"):
        bound.run(work.operands(np.random.default_rng(0)), np.empty(work.output_shape, np.float32))


def test_public_scipy_product_adds_into_its_output() -> None:
    rng = np.random.default_rng(12)
    y = np.ones(6, np.float32)
    pointers, indices = np.array([0, 1, 3], np.int32), np.array([2, 0, 1], np.int32)
    x = rng.random(9).astype(np.float32)
    _public_product(2, 3, 3, pointers, indices, np.array([1, 2, 3], np.float32), x, y)
    expected = 1 + np.array([[0, 0, 1], [2, 3, 0]]) @ x.reshape(3, 3)
    np.testing.assert_allclose(y.reshape(2, 3), expected, rtol=1e-6)


def test_large_chunks_cross_rows() -> None:
    """More entries than a chunk holds: rows that span chunks are added up."""
    rng = np.random.default_rng(13)
    a = cases.tensor((30, 200, 100), 60_000, rng)
    for mode in range(3):
        work = workload("mttkrp", a, n=40, mode=mode)
        operands = work.operands(rng)
        assert work.reference(operands).mismatch(run(LIBRARY["scipy"](), work, operands)) is None
    work = workload("sddmm", cases.tensor((300, 200), 20_000, rng), n=64)
    operands = work.operands(rng)
    assert work.reference(operands).mismatch(run(LIBRARY["scipy"](), work, operands)) is None
