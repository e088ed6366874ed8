"""The transposed operator: over what is stored or over a copy, and operators that were tuned for the transpose."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorwise as tw
from tensorwise.device.library import LIBRARY
from tensorwise.device.rounds import RoundTable
from tensorwise.errors import CompilerError, InputError
from tensorwise.lower.program import program_for
from tensorwise.program.workload import workload
from tensorwise.runtime.generated import BoundProgram, GeneratedKernel
from tensorwise.tensor.convert import entries_from
from tensorwise.toolchain.compiler import find_compiler
from tensorwise.tuning import transposed
from tensorwise.tuning.operator import Operator, bind, default_kernel
from tests.unit.device.cases import PATTERNS, matrix

CSR = "(i,k) -> U(i) C(k)"
CSC = "(i,k) -> U(k) C(i)"
BLOCKS = "(i,k) -> U(i1) C(k1) U(i0:4) U(k0:4)"
STORED = {
    "rows": (CSR, "reorder(i,J,k) parallel(i,balanced,2)"),
    "rows, gathered in vectors": (CSR, "reorder(i,k) parallel(i,balanced,2) tile(k,1x4)"),
    "rows, prefetched": (CSR, "reorder(i,J,k) parallel(i) prefetch(B,8)"),
    "occupied rows": ("(i,k) -> C(i) C(k)", "reorder(i,J,k)"),
    "sorted rows": ("(i:length,k) -> U(i) C(k)", "reorder(i,J,k) parallel(i)"),
    "columns": (CSC, "reorder(k,i,J) parallel(k,dynamic,4,private)"),
    "blocks": (BLOCKS, "reorder(i1,J,k1,i0,k0) parallel(i1,balanced,2) unroll(i0) unroll(k0)"),
    "strips of columns": ("(i,k) -> U(k1) U(i) C(k0:16)", "split(k,16) reorder(k1,i,J,k0) parallel(i)"),
    "slots": ("(i,k) -> U(i1) P(k#) U(i0:4) S(k)", "reorder(i1,J,i0,k#) parallel(i1)"),
    "diagonals": ("(i,k) -> U(i1) C(k-i) U(i0:8)", "split(i,8) reorder(i1,J,k-i,i0) parallel(i1)"),
    "a list": ("(i,k) -> N(i) S(k)", "reorder(i,J,k) parallel(i,dynamic,8,private)"),
    "a hybrid": (f"{CSR}; rows>6: (i,k) -> C(k1) C(i) C(k0:4)", "reorder(i,J,k) parallel(i); reorder(k1,i,J,k0)"),
    "a hybrid of blocks": (f"{BLOCKS}; rows>6: {CSR}", "reorder(i1,J,k1,i0,k0); reorder(i,J,k) parallel(i)"),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        find_compiler()
    except CompilerError as error:
        pytest.skip(str(error))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def a_matrix(rng: np.random.Generator) -> sp.csr_array:
    """45 x 32, rows of all lengths, some of them empty."""
    dense = rng.standard_normal((45, 32)) * (rng.random((45, 32)) < np.linspace(0, 0.5, 45)[:, None])
    return sp.csr_array(dense)


def operator(A: sp.csr_array, op: str = "spmv", stored: str = "rows", threads: int = 2) -> Operator:
    work = workload(op, entries_from(A), n=None if op.startswith("spmv") else 5)
    format, schedule = STORED[stored]
    schedule = schedule.replace("J", "j") if op.startswith("spmm") else schedule.replace(",J", "")
    return bind(GeneratedKernel(program_for(work, format, schedule)), work, threads)


def never(*_: object, **__: object) -> RoundTable:
    raise AssertionError("timed what needs no timing")


# -- over what is stored ---------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("op", ["spmv", "spmm", "spmv_t", "spmm_t"])
@pytest.mark.parametrize("stored", STORED)
def test_what_is_stored_serves_both(stored: str, op: str, threads: int, rng: np.random.Generator) -> None:
    A = a_matrix(rng)
    if "vectors" in stored and op != "spmv":
        pytest.skip("these lanes gather for this product only")
    if "prefetch" in STORED[stored][1] and op != "spmm":
        pytest.skip("no rows to ask for")
    one = operator(A, op, stored, threads)
    other = one.transpose(copy=False)
    assert other.tensors.keys() == one.tensors.keys()
    assert all(other.tensors[name] is one.tensors[name] for name in one.tensors)
    stands_for = A.T if op.endswith("_t") else A
    assert one.shape == stands_for.shape == other.shape[::-1]
    x, y = rng.standard_normal(one.shape[1]), rng.standard_normal(one.shape[0])
    for spoil in (1.0, np.nan, np.inf):
        y[7] = x[3] = spoil
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(one @ x, stands_for @ x, rtol=1e-11, atol=1e-13)
            np.testing.assert_allclose(other @ y, stands_for.T @ y, rtol=1e-11, atol=1e-13)
            np.testing.assert_allclose(one.rmatvec(y), stands_for.T @ y, rtol=1e-11, atol=1e-13)
    Y = rng.standard_normal((one.shape[0], 7))
    np.testing.assert_allclose(one.rmatmat(Y), stands_for.T @ Y, rtol=1e-11, atol=1e-13)
    assert one.T is other
    assert other.T is one


def test_columns_are_rows_of_the_transpose(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the default program would store is there already: nothing is asked, whatever its size."""
    monkeypatch.setattr(transposed, "SMALL_BYTES", 0)
    monkeypatch.setattr(transposed, "interleave", never)
    A = a_matrix(rng)
    for copy in (None, True, False):
        one = operator(A, "spmv", "columns")
        other = one.transpose(copy)
        assert other.tensors["A"] is one.tensors["A"]
        assert "private" not in other.schedule
        np.testing.assert_allclose(other @ np.ones(45), A.T @ np.ones(45))


def test_an_output_for_each_thread_must_fit(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transposed, "MOST_PRIVATE_BYTES", 8 * 31)
    one = operator(a_matrix(rng))
    with pytest.raises(InputError, match="leave copy=False out"):
        one.transpose(copy=False)
    assert one.T.tensors["A"] is not one.tensors["A"]


def test_a_library_stores_what_it_wants(rng: np.random.Generator) -> None:
    A = a_matrix(rng)
    work = workload("spmv", entries_from(A))
    one = bind(LIBRARY["scipy"](), work, 1)
    with pytest.raises(InputError, match="what is stored cannot serve the transposed product"):
        one.transpose(copy=False)
    np.testing.assert_allclose(one.T @ np.ones(45), A.T @ np.ones(45))


# -- numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_path_gives_the_numbers_that_scipy_gives(
    pattern: str, dtype: str, rng: np.random.Generator
) -> None:
    """Within the bound of the reference, which holds for every order of summation."""
    a = matrix(pattern, rng, dtype)
    rows, columns = a.shape
    turned = a.to_scipy().T
    x, X = rng.standard_normal(rows).astype(dtype), rng.standard_normal((rows, 5)).astype(dtype)
    vector, vectors = workload("spmv_t", a), workload("spmm_t", a, n=5)
    expected = {1: vector.reference([x]), 2: vectors.reference([X])}

    def is_right(found: np.ndarray) -> None:
        assert found.dtype == dtype
        assert expected[found.ndim].mismatch(found) is None

    is_right(turned @ x)
    is_right(turned @ X)
    for work in (workload("spmv", a), workload("spmm", a, n=5), vector, vectors):
        for kernel in (default_kernel(work), LIBRARY["scipy"]()):
            for copy in (None, True, False):
                one = bind(kernel, work, 2)
                if copy is False and kernel.name == "scipy":
                    continue
                other = one.transpose(copy)
                straight, back = (one, other) if work.op.endswith("_t") else (other, one)
                assert (straight.shape, back.shape) == ((columns, rows), (rows, columns))
                for found in (
                    straight @ x, straight.matvec(x[:, None])[:, 0], back.rmatvec(x), x @ back,
                    straight @ X, straight.matmat(X), back.rmatmat(X), (X.T @ back).T,
                    sla.aslinearoperator(back).adjoint() @ X,
                ):  # fmt: skip
                    is_right(found)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_random_matrices_through_everything_that_is_stored(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    shape = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    filled = rng.random(shape) < data.draw(st.sampled_from([0.0, 0.02, 0.2, 1.0])) * rng.random((shape[0], 1))
    one = operator(
        sp.csr_array(np.where(filled, rng.standard_normal(shape), 0)),
        "spmv",
        data.draw(st.sampled_from(sorted(STORED))),
        data.draw(st.integers(1, 3)),
    )
    y = rng.standard_normal(shape[0])
    other = one.transpose(copy=False)
    assert all(other.tensors[name] is tensor for name, tensor in one.tensors.items())
    assert other.workload.reference([y]).mismatch(other @ y) is None


# -- or over a copy ----------------------------------------------------------------------------------------


def test_a_small_copy_is_made_unasked(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transposed, "interleave", never)
    A = a_matrix(rng)
    one = operator(A)
    assert one.T.tensors["A"] is not one.tensors["A"]
    assert one.T.workload.entries is one.workload.entries  # what was given is not stored a second time
    assert one.T is one.transpose() is one.T
    np.testing.assert_allclose(one.T @ np.ones(45), A.T @ np.ones(45))


@pytest.mark.parametrize(("walked", "copied"), [(1.0, 2.0), (2.0, 1.0)])
@pytest.mark.parametrize("copy", [None, True])
def test_the_faster_one_is_kept(
    walked: float, copied: float, copy: bool | None, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rounds(calls: Mapping[str, Callable[[], object]], *_: object, **__: object) -> RoundTable:
        for call in calls.values():
            call()
        row = dict(zip(calls, (walked, copied), strict=True))
        return RoundTable(tuple(calls), (row,) * 3, (False,) * 3, "warm", 0.1)

    monkeypatch.setattr(transposed, "SMALL_BYTES", 0)
    monkeypatch.setattr(transposed, "interleave", rounds if copy is None else never)
    A = a_matrix(rng)
    one = operator(A, "spmm", "blocks")
    other = one.transpose(copy)
    shares = other.tensors["A"] is one.tensors["A"]
    assert shares == (copy is None and walked < copied)
    np.testing.assert_allclose(other @ np.ones((45, 5)), A.T @ np.ones((45, 5)))


def test_another_answer_can_be_had_later(rng: np.random.Generator) -> None:
    one = operator(a_matrix(rng))
    copied = one.T
    walked = one.transpose(copy=False)
    assert one.T is walked is not copied
    assert walked.tensors["A"] is one.tensors["A"]


# -- operators for the transpose -------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["spmv_t", "spmm_t"])
def test_what_was_tuned_for_the_transpose_stands_for_it(op: str, rng: np.random.Generator) -> None:
    A = a_matrix(rng)
    tuned = tw.tune(A, op, trials=3, threads=1, store=False, n=4 if op == "spmm_t" else None)
    assert tuned.shape == (32, 45)
    x, X, Y = rng.standard_normal(45), rng.standard_normal((45, 3)), rng.standard_normal((32, 3))
    for left, right in (
        (tuned @ x, A.T @ x),
        (tuned.matvec(x[:, None]), A.T @ x[:, None]),
        (tuned @ X, A.T @ X),
        (tuned.rmatvec(Y[:, 0]), A @ Y[:, 0]),
        (tuned.rmatmat(Y), A @ Y),
        (tuned.T @ Y, A @ Y),
        (Y.T @ tuned, Y.T @ A.T),
        (sla.aslinearoperator(tuned).adjoint() @ Y, A @ Y),
    ):
        np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-13)
    with pytest.raises(InputError, match=r"shape \(45,\) or \(45, 1\), got \(32,\)"):
        tuned.matvec(Y[:, 0])
    nearest = sla.lsqr(tuned, Y[:, 0], atol=1e-12, btol=1e-12)[0]
    np.testing.assert_allclose(A.T @ nearest, A.T @ np.linalg.pinv(A.T.toarray()) @ Y[:, 0], atol=1e-6)
    exact = np.linalg.svd(A.toarray(), compute_uv=False)
    found = sla.svds(tuned, k=3, return_singular_vectors=False, rng=rng)
    np.testing.assert_allclose(np.sort(found), np.sort(exact[:3]), rtol=1e-6)


@pytest.mark.parametrize("copy", [True, False])
def test_a_transposed_operator_in_a_file(copy: bool, tmp_path: Path, rng: np.random.Generator) -> None:
    A = a_matrix(rng)
    one = operator(A, "spmv", "blocks")
    other = one.transpose(copy)
    other.save(tmp_path / "other")
    one.save(tmp_path / "one")
    back: Any = tw.load(tmp_path / "other")
    assert (back.format, back.schedule, back.shape) == (other.format, other.schedule, (32, 45))
    np.testing.assert_allclose(back @ np.ones(45), A.T @ np.ones(45))
    np.testing.assert_allclose(tw.load(tmp_path / "one").T @ np.ones(45), A.T @ np.ones(45))


# -- several vectors at once -------------------------------------------------------------------------------------


def test_several_vectors_share_what_is_stored_alike(rng: np.random.Generator) -> None:
    A = a_matrix(rng)
    work = workload("spmv", entries_from(A))
    one = bind(default_kernel(work), work, 2)
    for n in (3, 2, 9):
        X = rng.standard_normal((32, n))
        np.testing.assert_allclose(one @ X, A @ X, rtol=1e-11, atol=1e-13)
    bounds = [bound for _, bound in one._others.values()]
    assert len(bounds) == 3
    assert all(isinstance(b, BoundProgram) and b.tensors["A"] is one.tensors["A"] for b in bounds)
    np.testing.assert_allclose(one.T @ np.ones((45, 3)), A.T @ np.ones((45, 3)))


def test_several_vectors_store_the_matrix_once(rng: np.random.Generator) -> None:
    """The default format is not that of blocks, but the same for all numbers of vectors."""
    A = a_matrix(rng)
    one = operator(A, "spmv", "blocks")
    for n in (3, 2, 9):
        np.testing.assert_allclose(one @ np.ones((32, n)), A @ np.ones((32, n)), rtol=1e-11, atol=1e-13)
    tensors = {id(bound.tensors["A"]) for _, bound in one._others.values() if isinstance(bound, BoundProgram)}
    assert len(tensors) == 1
