"""Operators travel: pickle, copy, other processes, joblib, torch. What is pickled is data, and is validated."""

import copy
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise as tw
from tensorwise.device.library import LIBRARY
from tensorwise.errors import InputError
from tensorwise.program.workload import workload
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.elements import value_dtype
from tensorwise.tuning.operator import MatrixOperator, Operator, bind
from tensorwise.tuning.saving import unpickled

MATRIX = sp.random_array((40, 30), density=0.2, format="csr", rng=np.random.default_rng(5))
X = np.random.default_rng(6).standard_normal((30, 3))


def spmv(**options: Any) -> Operator:
    made = tw.compile("C[i] += A[i,k] * B[k]", A=MATRIX, threads=2, **options)
    assert isinstance(made, Operator)
    return made


def again(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))  # noqa: S301 - ours


def call(op: Any, *operands: np.ndarray) -> np.ndarray:
    return np.asarray(op(*operands))


OPERATORS = {
    "default": lambda: spmv(),
    "by hand": lambda: spmv(format="(i,k) -> U(i1) C(k1) U(i0:4) U(k0:4)", schedule="parallel(i1,dynamic,4)"),
    "hybrid": lambda: spmv(
        format="(i,k) -> U(i) C(k); rows>8: (i,k) -> C(i) C(k)",
        schedule="parallel(i,dynamic,16); parallel(i,dynamic,1)",
    ),
    "transposed": lambda: spmv().T,
    "float32": lambda: spmv(dtype="float32"),
    "integers": lambda: tw.compile("C[i] += A[i,k] * B[k]", A=(10 * MATRIX).astype(np.int16)),
    "named otherwise": lambda: tw.compile("y[a] += S[a,b] * x[b]", S=MATRIX),
    "library": lambda: bind(LIBRARY["scipy"](), workload("spmv", entries_from(MATRIX)), 1),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_pickled_operators_compute_the_same(name: str) -> None:
    op = OPERATORS[name]()
    assert isinstance(op, MatrixOperator)
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        made = pickle.loads(pickle.dumps(op, protocol))  # noqa: S301 - ours
        x = np.random.default_rng(1).standard_normal(op.shape[1])
        np.testing.assert_array_equal(made @ x, op @ x)
        assert (made.shape, made.dtype, made.format, made.schedule, made.kernel, made.threads) == (
            op.shape, op.dtype, op.format, op.schedule, op.kernel, op.threads,
        )  # fmt: skip
        np.testing.assert_allclose(made.T @ (made @ x), op.T @ (op @ x), rtol=1e-6)
        assert made.result is None


def test_other_operations_and_halves() -> None:
    value_dtype("bfloat16")
    half = spmv(dtype="bfloat16")
    ones = np.ones(30, "bfloat16")
    np.testing.assert_array_equal(again(half)(ones), half(ones))
    sampled = tw.compile("C[i,j] += A[i,j] * B[i,k] * D[k,j]", A=MATRIX, sizes={"k": 3})
    Y = np.random.default_rng(7).standard_normal((40, 3))
    np.testing.assert_array_equal(again(sampled)(Y, X.T).data, sampled(Y, X.T).data)
    two = tw.compile("y[i] += A[i,k] * B[k]; z[k] += A[i,k] * y[i]", A=MATRIX)
    for made in (again(two), copy.copy(two), copy.deepcopy(two)):
        np.testing.assert_array_equal(made(X[:, 0]), two(X[:, 0]))


def test_composed_operators_travel_too() -> None:
    op = spmv()
    assert isinstance(op, MatrixOperator)
    np.testing.assert_allclose(again(2 * op.T @ op) @ X, 2 * (MATRIX.T @ (MATRIX @ X)))


def test_copies_are_the_operator_itself() -> None:
    """It never changes, so that a copy would only take memory."""
    op = spmv()
    held = {"op": op, "list": [op]}
    assert copy.copy(op) is op
    assert copy.deepcopy(held)["list"][0] is op


def test_arrays_are_pickled_once_and_not_packed() -> None:
    big = sp.random_array((2000, 2000), density=0.01, format="csr", rng=np.random.default_rng(0))
    op = tw.compile("C[i] += A[i,k] * B[k]", A=big)
    data = 16 * big.nnz  # two coordinates of 4 bytes and a value of 8
    op(np.ones(2000))
    assert data < len(pickle.dumps(op)) < data + 5000
    assert len(pickle.dumps([op, op])) < data + 5000


@pytest.mark.parametrize(
    "change",
    [
        lambda text, arrays: (text.replace('"C[i] += A[i,k] * B[k]"', '"C[i] += A[i,k] * B[k'), arrays),
        lambda text, arrays: ("{", arrays),
        lambda text, arrays: (text, {**arrays, "A.1": arrays["A.1"] + 30}),
        lambda text, arrays: (text, {**arrays, "A.0": arrays["A.0"][:-1]}),
        lambda text, arrays: (text, {}),
        lambda text, arrays: (text.replace('"kernel": "tensorwise"', '"kernel": "os.system"'), arrays),
        lambda text, arrays: (text.replace('"given": null', '"given": "float128"'), arrays),
        lambda text, arrays: (text.replace('"given": null', '"given": "int8"'), arrays),
    ],
)
def test_what_comes_out_of_pickle_is_validated(change: Any) -> None:
    _, (text, arrays) = spmv().__reduce__()
    made = unpickled(text, arrays)
    np.testing.assert_allclose(made(X[:, 0]), MATRIX @ X[:, 0])
    with pytest.raises(InputError):
        unpickled(*change(text, dict(arrays)))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_other_processes(method: str) -> None:
    op = spmv()
    with multiprocessing.get_context(method).Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(call, (op, X[:, 0])), op(X[:, 0]))


@pytest.mark.parametrize("backend", ["loky", "threading", "multiprocessing"])
def test_joblib(backend: str) -> None:
    joblib = pytest.importorskip("joblib")
    op = spmv()
    made = joblib.Parallel(n_jobs=2, backend=backend)(joblib.delayed(call)(op, X[:, k]) for k in range(3))
    np.testing.assert_allclose(np.stack(made, axis=1), MATRIX @ X)


def test_torch_saves_what_holds_one(tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    op = spmv()
    torch.save({"epoch": 3, "op": op}, tmp_path / "held.pt")
    loaded = torch.load(tmp_path / "held.pt", weights_only=False)
    np.testing.assert_array_equal(loaded["op"](X[:, 0]), op(X[:, 0]))
