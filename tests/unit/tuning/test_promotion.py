"""Operators follow NumPy's promotion of dtypes: nothing is narrowed, whatever matrix and operand are of."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla

import tensorwise as tw
from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.device.library import LIBRARY
from tensorwise.errors import InputError
from tensorwise.program.workload import workload
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.elements import value_dtype
from tensorwise.tuning.operator import MatrixOperator, default_kernel

KINDS = "?bBhHiIqQfdgFDG"
"""dtypes that SciPy multiplies sparse matrices with."""
MATRICES = "?bBhHiIqQfdg"
EINSUMS = {
    "spmv": "C[i] += A[i,k] * B[k]",
    "spmm": "C[i,j] += A[i,k] * B[k,j]",
    "spmv_t": "C[k] += A[i,k] * B[i]",
    "spmm_t": "C[k,j] += A[i,k] * B[i,j]",
}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Small integers where the dtype has them, so that sums in any order are exact; other numbers elsewhere."""
    drawn = rng.integers(0, 2 if kind == "?" else 5, shape).astype(kind)
    if kind in "fdg":  # float64 holds all of them
        drawn = (drawn + rng.random(shape).astype(kind)).astype("f" if kind == "f" else "d").astype(kind)
    if kind in "FDG":
        drawn += (rng.random(shape) + 1j * rng.random(shape)).astype(kind)
    return drawn


def a_matrix(rng: np.random.Generator, kind: str, shape: tuple[int, int] = (23, 17)) -> sp.csr_array:
    return sp.csr_array(np.where(rng.random(shape) < 0.3, numbers(rng, shape, kind), 0).astype(kind))


def compiled(A: Any, op: str = "spmv", n: int = 3, **options: Any) -> MatrixOperator:
    sizes = {"j": n} if op.startswith("spmm") else {}
    made = tw.compile(EINSUMS[op], A=A, sizes=sizes, threads=1, **options)
    assert isinstance(made, MatrixOperator)
    return made


def agree(made: np.ndarray, expected: np.ndarray) -> None:
    """Same dtype and shape, and the accuracy of that dtype."""
    assert made.dtype == expected.dtype
    assert made.shape == expected.shape
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(made, expected)
    else:
        eps = np.finfo(expected.dtype).eps
        np.testing.assert_allclose(made, expected, rtol=100 * float(eps), atol=100 * float(eps))


@pytest.mark.parametrize("op", EINSUMS)
@pytest.mark.parametrize("kind", MATRICES)
def test_every_pair_of_dtypes(kind: str, op: str, rng: np.random.Generator) -> None:
    A = a_matrix(rng, kind)
    made = compiled(A, op)
    M = A.T if op.endswith("_t") else A
    assert made.dtype == A.dtype
    for other in KINDS:
        x, X, y = (
            numbers(rng, (M.shape[1],), other),
            numbers(rng, (M.shape[1], 3), other),
            numbers(rng, (M.shape[0],), other),
        )
        agree(made @ x, M @ x)
        agree(made(X), M @ X)
        agree(made.matvec(x[:, None]), M @ x[:, None])
        agree(made.rmatvec(y), M.T @ y)
        agree(made @ X[:, :0], (M @ X)[:, :0])
        agree(y @ made, y @ M)


def test_float32_does_not_swallow_float64(rng: np.random.Generator) -> None:
    """A solver that is asked for 1e-12 gets there, as with the matrix."""
    A = sp.csr_array(sp.diags_array([-1.0, 2.01, -1.0], offsets=[-1, 0, 1], shape=(200, 200))).astype(
        np.float32
    )
    b = rng.standard_normal(200)
    for op in ("spmv", "spmm"):
        x, failed = sla.cg(compiled(A, op), b, rtol=1e-12, maxiter=2000)
        assert failed == 0
        assert x.dtype == np.float64
        assert np.linalg.norm(A.astype(np.float64) @ x - b) < 1e-11 * np.linalg.norm(b)


def test_copies_are_made_once_shared_and_counted(rng: np.random.Generator) -> None:
    A = a_matrix(rng, "f")
    made = compiled(A)
    before = made.bytes_held
    made @ rng.random(17)
    wide = made._in(np.dtype(np.float64))
    assert made._in(np.dtype(np.float64)) is wide
    assert made.bytes_held == before + wide.bytes_held + 8 * A.nnz
    assert made.T._in(np.dtype(np.float64)) is wide.T
    assert wide.T.T is wide


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_halves(half: str, rng: np.random.Generator) -> None:
    dtype = value_dtype(half)
    A = a_matrix(rng, "b").astype(np.float32)
    made = compiled(A, dtype=half)
    x = numbers(rng, (17,), "b")
    assert made.dtype == dtype
    assert (made @ x.astype(dtype)).dtype == dtype
    for other in ("f", "d", "F", "D", "h", "i"):
        expected = A.astype(np.float32) @ x.astype(other)
        agree(made @ x.astype(other), expected)
    # The stored halves serve float32 operands, too.
    assert made._in(np.dtype(np.float32)).tensors["A"] is made.tensors["A"]
    mixed = compiled(A, dtype={"A": half, "B": "float32"})
    exact = rng.random(17)
    agree(mixed @ exact, A.astype(np.float64) @ exact)
    agree(mixed.rmatvec(rng.random(23) * 0 + 1), A.T.astype(np.float64) @ np.ones(23))
    narrow = compiled(A, dtype={"B": half})
    exact32 = rng.random(17).astype(np.float32)
    agree(narrow @ exact32, A @ exact32)


def test_real_times_complex_is_exact(rng: np.random.Generator) -> None:
    """The imaginary part of a real matrix is no zero that infinity meets."""
    made = compiled(sp.csr_array(np.array([[2.0, 0.0], [0.0, 3.0]])))
    np.testing.assert_array_equal(made @ np.array([np.inf + 1j, 1 + 2j]), [np.inf + 2j, 3 + 6j])


def test_out_is_of_the_promoted_dtype(rng: np.random.Generator) -> None:
    A = a_matrix(rng, "f")
    made = compiled(A)
    x = rng.random(17)
    with pytest.raises(InputError, match="float64"):
        made(x, out=np.empty(23, np.float32))
    out = np.empty(23)
    assert made(x, out=out) is out
    agree(out, A @ x)
    for other in (1j * x, np.ones(17, np.longdouble)):
        with pytest.raises(InputError, match="leave out= out"):
            made(other, out=out)


@pytest.mark.parametrize(
    "strange", [np.array(["a"] * 17), np.ones(17, object), np.ones(17, "M8[s]"), {"a": 1}]
)
def test_what_is_no_number_is_refused(strange: Any, rng: np.random.Generator) -> None:
    with pytest.raises(InputError):
        compiled(a_matrix(rng, "f")) @ strange


@pytest.mark.parametrize("kernel", ["tensorwise", *LIBRARY])
def test_kernels_that_are_bound_by_hand_refuse_other_dtypes(kernel: str, rng: np.random.Generator) -> None:
    work = workload("spmv", entries_from(a_matrix(rng, "f")))
    made = default_kernel(work) if kernel == "tensorwise" else LIBRARY[kernel]()
    if isinstance(made, LibraryKernel) and not made.installed():
        pytest.skip(f"{kernel} is not installed")
    bound, out = made.bind(work, 1), np.zeros(23, np.float32)
    if kernel in ("tensorwise", "mkl"):  # others check, or compute, by themselves
        for wrong in (np.ones(17), np.ones(17, np.float16), np.ones(17, np.int32)):
            with pytest.raises(InputError):
                bound.run([wrong], out)
    bound.run([np.ones(17, np.float32)], out)
    assert out.any()


def test_what_is_asked_for_is_honoured_unless_numbers_are_lost(rng: np.random.Generator) -> None:
    A = a_matrix(rng, "d")
    made = compiled(A, dtype="float32")
    assert (made @ np.ones(17, np.float32)).dtype == np.float32
    agree(made @ np.ones(17), A.astype(np.float32).astype(np.float64) @ np.ones(17))
    assert compiled(a_matrix(rng, "i"), dtype="float32").dtype == np.float32
    for lossy, dtype in (
        (np.array([[2**24 + 1]], np.int32), "float32"),
        (np.array([[1e300]]), "float32"),
        (np.array([[70000.0]]), "float16"),
        (np.array([[2**53 + 1]]), None),
    ):
        with pytest.raises(InputError, match="of entry 0"):
            compiled(sp.csr_array(lossy), dtype=dtype)
    with pytest.raises(InputError, match="complex"):
        compiled(a_matrix(rng, "D"), dtype="float64")


def test_operands_that_do_not_go_together_are_refused(rng: np.random.Generator) -> None:
    A = a_matrix(rng, "f")
    sampled = tw.compile("C[i,j] += A[i,j] * B[i,k] * D[k,j]", A=A, sizes={"k": 3})
    with pytest.raises(InputError, match="float32"):
        sampled(rng.random((23, 3)), rng.random((3, 17)))
    with pytest.raises(InputError, match="float64 goes with float64 only"):
        tw.compile("C[i] += A[i,k] * B[i,k] * D[k]", A=A, B=a_matrix(rng, "d"))


def test_longdouble_goes_where_scipy_computes_it(rng: np.random.Generator) -> None:
    if np.dtype("g").itemsize == 8:
        pytest.skip("longdouble is float64 here")
    A = a_matrix(rng, "g")
    assert compiled(A).dtype == np.longdouble
    with pytest.raises(InputError, match="longdouble"):
        tw.compile("C[i,j] += A[i,j] * B[i,k] * D[k,j]", A=A, sizes={"k": 3})
    A.data[0] = np.longdouble(1) / 3
    with pytest.raises(InputError, match="would round"):
        compiled(A)
    assert compiled(A, dtype="float64").dtype == np.float64


def test_a_matrix_of_a_wider_dtype_is_not_loaded_into_a_narrower_one(
    tmp_path: Any, rng: np.random.Generator
) -> None:
    A = a_matrix(rng, "f")
    path = tmp_path / "op.tw"
    compiled(A).save(path)
    fresh = A.astype(np.float64)
    fresh.data = rng.random(A.nnz)
    with pytest.raises(InputError, match="round the float64 values"):
        tw.load(path, fresh)
    rounded = tw.load(path, fresh, rounding=True)
    agree(rounded @ np.ones(17, np.float32), fresh.astype(np.float32) @ np.ones(17, np.float32))
    counted = compiled(a_matrix(rng, "b"))
    counted.save(path)
    assert tw.load(path).dtype == np.int8


@pytest.mark.parametrize("kind", "bBhHiIqQ")
def test_duplicates_add_up_as_scipys_do(kind: str) -> None:
    """They wrap around in the dtype of the product, and in no narrower one."""
    values = np.array([100, 100, 3]).astype(kind)
    for make in (sp.csr_array, sp.csc_array, sp.coo_array):
        A = make(sp.coo_array((values, ([0, 0, 1], [1, 1, 0])), shape=(2, 2)))
        duplicated = sp.csr_array((values, np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
        A = duplicated if make is sp.csr_array else A
        made = compiled(A)
        for operand in KINDS:
            x = np.ones(2, operand)
            agree(made @ x, A @ x)


def test_a_longdouble_matrix_is_rounded_where_that_is_allowed(
    tmp_path: Any, rng: np.random.Generator
) -> None:
    A = a_matrix(rng, "d")
    compiled(A).save(tmp_path / "op.tw")
    third = A.astype(np.longdouble) / 3
    agree(tw.load(tmp_path / "op.tw", third, rounding=True) @ np.ones(17), third.astype(float) @ np.ones(17))
