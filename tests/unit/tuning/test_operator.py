"""The Operator in place of the matrix: calls of all shapes and layouts, SciPy's solvers, threads and forks."""

import os
import threading
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla

import tensorwise as tw
from tensorwise.device.library import LIBRARY
from tensorwise.errors import CompilerError, InputError
from tensorwise.lower.program import program_for
from tensorwise.program.workload import workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.tensor.convert import entries_from
from tensorwise.toolchain.compiler import find_compiler
from tensorwise.tuning.operator import MatrixOperator, Operator, bind, default_kernel
from tests.unit.device.cases import strided

CLOSE = {"float32": {"rtol": 2e-4, "atol": 1e-5}, "float64": {"rtol": 1e-11, "atol": 1e-13}}


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        find_compiler()
    except CompilerError as error:
        pytest.skip(str(error))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def a_matrix(
    rng: np.random.Generator, shape: tuple[int, int] = (70, 50), dtype: str = "float64"
) -> sp.csr_array:
    return sp.csr_array(sp.random_array(shape, density=0.1, rng=rng, dtype=np.float64)).astype(dtype)


def spd(size: int = 60) -> sp.csr_array:
    """The 1D Laplacian, shifted."""
    return sp.csr_array(sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(size, size)))


def operator(A: Any, op: str, *, kernel: str = "default", threads: int = 2, **options: Any) -> Operator:
    work = workload(op, entries_from(A), **options)
    if kernel == "default":
        return bind(default_kernel(work), work, threads)
    if kernel in LIBRARY:
        return bind(LIBRARY[kernel](), work, threads)
    format, schedule = kernel.replace("ORDER", "k,i" if op == "spmv" else "k,i,j").split(";")
    return bind(GeneratedKernel(program_for(work, format, schedule)), work, threads)


BLOCKS = "(i,k) -> U(i1) C(k1) U(i0:4) U(k0:4);"
PRIVATE = "(i,k) -> U(k) C(i); reorder(ORDER) parallel(k,dynamic,4,private)"
KERNELS = ["default", "scipy", BLOCKS + " parallel(i1,dynamic,4)", PRIVATE]


# -- calls -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_layouts_of_the_operand(kernel: str, dtype: str, rng: np.random.Generator) -> None:
    A = a_matrix(rng, dtype=dtype)
    op = operator(A, "spmm", n=6, kernel=kernel)
    B = rng.standard_normal((50, 6)).astype(dtype)
    for given in (B, np.asfortranarray(B), strided(B), B[::-1][::-1], np.broadcast_to(B[:, :1], (50, 6))):
        np.testing.assert_allclose(op(given), A @ given, **CLOSE[dtype])
    vector = operator(A, "spmv", kernel=kernel)
    x = rng.standard_normal(50).astype(dtype)
    for given in (x, strided(x), x[::-1], B[:, 2]):
        np.testing.assert_allclose(vector(given), A @ given, **CLOSE[dtype])


@pytest.mark.parametrize("kernel", KERNELS)
def test_other_widths(kernel: str, rng: np.random.Generator) -> None:
    A = a_matrix(rng)
    op = operator(A, "spmm", n=16, kernel=kernel)
    for n in (1, 3, 16, 17, 40, 2, 5, 6, 7, 8, 9, 10, 1):  # more than are kept
        B = rng.standard_normal((50, n))
        np.testing.assert_allclose(op(B), A @ B, **CLOSE["float64"])


def test_other_ranks_of_sddmm(rng: np.random.Generator) -> None:
    A = a_matrix(rng)
    op = operator(A, "sddmm", n=8)
    for n in (8, 3, 20):
        B, D = rng.standard_normal((70, n)), rng.standard_normal((n, 50))
        made = op(B, D)
        np.testing.assert_allclose(made.toarray(), A.multiply(B @ D).toarray(), **CLOSE["float64"])
        values = np.empty(A.nnz)
        assert op(B, D, out=values) is values
        np.testing.assert_array_equal(values, made.data)
    with pytest.raises(InputError):
        op(rng.standard_normal((70, 8)), rng.standard_normal((9, 50)))


def test_out(rng: np.random.Generator) -> None:
    A = a_matrix(rng)
    op = operator(A, "spmm", n=4)
    B = rng.standard_normal((50, 4))
    out = np.full((70, 4), np.nan)
    assert op(B, out=out) is out
    np.testing.assert_allclose(out, A @ B, **CLOSE["float64"])
    wrong: list[Any] = [
        np.empty((70, 5)),
        np.empty((70, 4), np.float32),
        np.empty((4, 70)).T,
        np.empty((70, 8))[:, ::2],
        [[0.0]],
    ]
    for bad in wrong:
        with pytest.raises(InputError, match="out must be"):
            op(B, out=bad)
    out.flags.writeable = False
    with pytest.raises(InputError, match="read-only"):
        op(B, out=out)


def test_out_must_not_be_an_operand(rng: np.random.Generator) -> None:
    op = operator(spd(50), "spmv")
    x = rng.standard_normal(50)
    with pytest.raises(InputError, match="shares memory"):
        op(x, out=x)


def test_wrong_operands_are_named(rng: np.random.Generator) -> None:
    op = operator(a_matrix(rng), "spmm", n=4)
    with pytest.raises(InputError, match=r"\(50, n\).*\(51, 4\)"):
        op(np.ones((51, 4)))
    with pytest.raises(InputError, match="takes 1 operands"):
        op()
    with pytest.raises(InputError, match="takes 1 operands"):
        op(np.ones((50, 4)), np.ones((50, 4)))
    with pytest.raises(InputError):
        op(np.ones((50, 4, 1)))
    with pytest.raises(InputError, match="NumPy array, got list"):
        op([[1.0] * 4] * 50, out=np.empty((70, 4)))
    with pytest.raises(InputError):
        op(np.ones(50), out=np.empty(70))
    with pytest.raises(InputError):
        op(np.ones((50, 0)), out=np.empty((70, 0)))
    with pytest.raises(InputError, match="masked"):
        op(np.ma.masked_invalid(np.ones((50, 4))))
    sampled = operator(a_matrix(rng), "sddmm", n=4)
    with pytest.raises(InputError, match=r"float64.*float32.*astype\(numpy.float64\)"):
        sampled(np.ones((70, 4), np.float32), np.ones((4, 50)))
    with pytest.raises(InputError, match="MaskedArray"):
        sampled(np.ma.masked_invalid(np.ones((70, 4))), np.ones((4, 50)))


@pytest.mark.parametrize("kernel", KERNELS)
def test_padding_never_meets_nan(kernel: str, rng: np.random.Generator) -> None:
    A = a_matrix(rng)
    op = operator(A, "spmv", kernel=kernel)
    x = rng.standard_normal(50)
    x[[3, 17]] = np.nan, np.inf
    for _ in range(2):
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(op(x), A @ x, **CLOSE["float64"])


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (1, 9), (9, 1), (4, 4)])
def test_empty_and_thin(shape: tuple[int, int], rng: np.random.Generator) -> None:
    dense = np.ones(shape) if 1 in shape else np.zeros(shape)
    op = operator(sp.csr_array(dense), "spmv")
    x, y = rng.standard_normal(shape[1]), rng.standard_normal(shape[0])
    np.testing.assert_allclose(op(x), dense @ x)
    np.testing.assert_allclose(op.rmatvec(y), dense.T @ y)
    np.testing.assert_allclose(op @ x.reshape(-1, 1), dense @ x.reshape(-1, 1))
    assert (op @ np.ones((shape[1], 0))).shape == (shape[0], 0)


# -- in place of the matrix --------------------------------------------------------------------------------


@pytest.mark.parametrize("op_name", ["spmv", "spmm"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_it_multiplies_like_the_matrix(op_name: str, kernel: str, rng: np.random.Generator) -> None:
    A = a_matrix(rng)
    op = operator(A, op_name, kernel=kernel)
    assert op.shape == A.shape
    assert op.ndim == 2
    assert op.dtype == A.dtype
    x, X = rng.standard_normal(50), rng.standard_normal((50, 5))
    y, Y = rng.standard_normal(70), rng.standard_normal((70, 5))
    for left, right in (
        (op @ x, A @ x),
        (op @ X, A @ X),
        (op.matvec(x), A @ x),
        (op.matvec(x[:, None]), (A @ x)[:, None]),
        (op.matmat(X), A @ X),
        (op.matmat(np.asfortranarray(X)), A @ X),
        (op.rmatvec(y), A.T @ y),
        (op.rmatmat(Y), A.T @ Y),
        (op.T @ y, A.T @ y),
        (op.T.T @ x, A @ x),
        (op @ np.arange(50), A @ np.arange(50)),
        (op @ x.astype(np.float32), A @ x.astype(np.float32)),
        (y @ op, y @ A),
        (Y.T @ op, Y.T @ A),
    ):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-12)
        assert isinstance(left, np.ndarray)
    assert op.T.shape == (50, 70)


def test_wrong_shapes_for_a_matrix(rng: np.random.Generator) -> None:
    op = operator(a_matrix(rng), "spmv")
    wrong: list[Any] = [
        np.ones(51),
        np.ones((49, 2)),
        np.ones((25, 2)),
        np.ones((1, 50)),
        np.ones((2, 2, 2)),
        3.0,
    ]
    for bad in wrong:
        with pytest.raises(InputError):
            op @ bad
    with pytest.raises(InputError):
        op.matvec(np.ones((25, 2)))
    with pytest.raises(InputError):
        op.matvec(np.ones((1, 50)))
    with pytest.raises(InputError, match="toarray"):
        op.matvec(sp.csr_array(np.ones((50, 1))))
    with pytest.raises(InputError):
        op @ sp.csr_array(np.eye(49))
    with pytest.raises(InputError, match="sddmm"):
        operator(a_matrix(rng), "sddmm").T  # noqa: B018


@pytest.mark.parametrize("op_name", ["spmv", "spmm"])
def test_scipy_solvers(op_name: str, rng: np.random.Generator) -> None:
    A = spd()
    op = operator(A, op_name)
    b = rng.standard_normal(60)
    solution = sla.spsolve(A.tocsc(), b)
    for solve in (sla.cg, sla.gmres, sla.bicgstab, sla.minres):
        found, failed = solve(op, b, rtol=1e-10)
        assert failed == 0
        np.testing.assert_allclose(found, solution, rtol=1e-6)
    assert sla.aslinearoperator(op).shape == A.shape


def test_scipy_eigenvalues(rng: np.random.Generator) -> None:
    A = spd()
    exact = np.linalg.eigvalsh(A.toarray())
    for op in (operator(A, "spmv"), operator(A, "spmm", n=4)):
        largest = sla.eigsh(op, k=3, which="LA", return_eigenvectors=False)
        np.testing.assert_allclose(np.sort(largest), exact[-3:], rtol=1e-8)
        found, _ = sla.lobpcg(op, rng.standard_normal((60, 3)), maxiter=400, tol=1e-8)
        np.testing.assert_allclose(np.sort(found), exact[-3:], rtol=1e-5)


def test_scipy_singular_values(rng: np.random.Generator) -> None:
    A = a_matrix(rng)
    exact = np.linalg.svd(A.toarray(), compute_uv=False)
    for solver in ("arpack", "lobpcg", "propack"):
        found = sla.svds(operator(A, "spmv"), k=3, solver=solver, return_singular_vectors=False, rng=rng)
        np.testing.assert_allclose(np.sort(found), np.sort(exact[:3]), rtol=1e-5)


SPELLINGS = {
    "y[a] += S[a,b] * x[b]": False,
    "y[b] += x[a] * S[a,b]": True,
    "Y[a,n] += S[a,b] * X[b,n]": False,
    "Y[b,n] += X[a,n] * S[a,b]": True,
}
"""Product with a matrix, however it is named -> whether it is that with the transposed one."""


@pytest.mark.parametrize("einsum", SPELLINGS)
def test_a_product_is_recognised_however_it_is_spelled(einsum: str, rng: np.random.Generator) -> None:
    S = a_matrix(rng)
    op = tw.compile(einsum, S=S, sizes={"n": 4} if "n" in einsum else {})
    assert isinstance(op, MatrixOperator)
    M = S.T if SPELLINGS[einsum] else S
    for n in (1, 3, 4):
        X, Y = rng.standard_normal((M.shape[1], n)), rng.standard_normal((M.shape[0], n))
        for made, right in ((op @ X, M @ X), (op.T @ Y, M.T @ Y), (op.T.T @ X, M @ X), (Y.T @ op, Y.T @ M)):
            np.testing.assert_allclose(made, right, **CLOSE["float64"])


@pytest.mark.parametrize(
    "einsum",
    [
        "y[n,a] += S[a,b] * x[n,b]",
        "y[a,n] += S[a,b] * x[n,b]",
        "y[a] += 2 * S[a,b] * x[b]",
        "y[a] max= S[a,b] * x[b]",
    ],
)
def test_what_is_no_such_product_stands_in_for_no_matrix(einsum: str, rng: np.random.Generator) -> None:
    op = tw.compile(einsum, S=a_matrix(rng), sizes={"n": 4} if "n" in einsum else {})
    assert not isinstance(op, sla.LinearOperator)
    assert not hasattr(op, "matvec")
    with pytest.raises(InputError, match="this one computes"):
        op.T  # noqa: B018
    with pytest.raises(InputError, match="this one computes"):
        op @ np.ones(50)
    with pytest.raises(AttributeError):
        op.nothing  # noqa: B018


def test_it_is_a_linear_operator(rng: np.random.Generator) -> None:
    A, B = spd(30), a_matrix(rng, (30, 30))
    op, other = operator(A, "spmv"), operator(B, "spmm", n=3)
    assert isinstance(op, MatrixOperator)
    assert isinstance(other, MatrixOperator)
    assert isinstance(op, sla.LinearOperator)
    assert sla.aslinearoperator(op) is op
    X = rng.standard_normal((30, 4)) + 1j * rng.standard_normal((30, 4))
    linear = sla.aslinearoperator(B)
    for made, right in (
        (op + other, A + B),
        (op - linear, A - B),
        (linear @ op, B @ A),
        (2 * op, 2 * A),
        (op * 2j, A * 2j),
        (op / 2, A / 2),
        (-op, -A),
        (other**3, B @ B @ B),
        (op.H, A.T),
        (other.adjoint(), B.T),
        (op @ other.H, A @ B.T),
        (1j * other.T, 1j * B.T),
        (op.dot(other), A @ B),
    ):
        assert isinstance(made, sla.LinearOperator)
        assert made.dtype == right.dtype
        for x in (X, X[:, :1], X[:, 0]):
            np.testing.assert_allclose(made @ x, right @ x, **CLOSE["float64"])
            np.testing.assert_allclose(made.H @ x, right.conj().T @ x, **CLOSE["float64"])
    assert op(X[:, 0].tolist()).shape == (30,)
    assert isinstance(op.matvec(np.matrix(np.ones((30, 1)))), np.matrix)
    assert isinstance(op.matmat(np.matrix(np.ones((30, 2)))), np.matrix)
    np.testing.assert_allclose(op.trace(), A.trace())
    np.testing.assert_array_equal(operator(a_matrix(rng), "spmv").T.diagonal().shape, (50,))
    np.testing.assert_array_equal(other.diagonal(), B.diagonal())


def test_sparse_operands_give_sparse_products(rng: np.random.Generator) -> None:
    A, X, Y = a_matrix(rng), a_matrix(rng, (50, 9)), a_matrix(rng, (70, 1))
    op = operator(A.astype("f4"), "spmv")
    for made, right in (
        (op @ X, A.astype("f4") @ X),
        (op.T @ Y, A.astype("f4").T @ Y),
        ((2 * op) @ X, 2 * A.astype("f4") @ X),
        (op.rmatmat(Y), A.astype("f4").T @ Y),
        (op.H @ Y, A.astype("f4").T @ Y),
    ):
        assert sp.issparse(made)
        assert made.dtype == right.dtype
        np.testing.assert_allclose(made.toarray(), right.toarray(), **CLOSE["float64"])


def test_linear_operators_compose(rng: np.random.Generator) -> None:
    A = a_matrix(rng)
    linear = sla.aslinearoperator(operator(A, "spmv"))
    x = rng.standard_normal(50)
    np.testing.assert_allclose((linear.T @ linear) @ x, A.T @ (A @ x), rtol=1e-10)
    np.testing.assert_allclose(linear.adjoint() @ (linear @ x), A.T @ (A @ x), rtol=1e-10)


# -- threads and forks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_two_python_threads_at_once(kernel: str, rng: np.random.Generator) -> None:
    A = a_matrix(rng, (2000, 1500))
    op = operator(A, "spmm", n=8, kernel=kernel)
    operands = [rng.standard_normal((1500, n)) for n in (8, 8, 5, 8)]
    operands[1][3] = np.nan  # asks for the masked program where there is padding
    with np.errstate(invalid="ignore"):
        expected = [A @ B for B in operands]
    wrong: list[str] = []

    def work(B: np.ndarray, right: np.ndarray) -> None:
        for _ in range(25):
            made = op(B)
            if not np.allclose(made, right, rtol=1e-9, atol=1e-12, equal_nan=True):
                wrong.append(f"{B.shape}: {np.nanmax(np.abs(made - right))}")

    threads = [threading.Thread(target=work, args=pair) for pair in zip(operands, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_call_after_a_fork(kernel: str, rng: np.random.Generator) -> None:
    A = a_matrix(rng, (500, 400))
    op = operator(A, "spmv", kernel=kernel)
    x = rng.standard_normal(400)
    expected = op(x)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if np.allclose(op(x), expected) and np.allclose(op @ x[:, None], expected[:, None]) else 3)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    np.testing.assert_allclose(op(x), expected)


# -- telling -------------------------------------------------------------------------------------------------


def test_it_tells_what_it_is(rng: np.random.Generator) -> None:
    generated, library = operator(a_matrix(rng), "spmv"), operator(a_matrix(rng), "spmv", kernel="scipy")
    assert generated.kernel == "tensorwise"
    assert "U(i) C(k)" in generated.format
    assert "TW_SYMBOL" in generated.source()
    assert generated.bytes_held > 0
    assert generated.conversion_s >= 0
    assert "spmv (70, 50) float64" in repr(generated)
    assert (library.kernel, library.format, library.schedule, library.source()) == ("scipy", "", "", "")
    assert "kernel scipy" in library.report()


def test_a_result_with_the_operands_pattern_is_a_matrix_of_its_own(rng: np.random.Generator) -> None:
    A = sp.random_array((6, 5), density=0.5, format="csr", rng=rng)
    op = tw.compile("C[i,j] += A[i,j] * B[i,k] * D[k,j]", A=A, sizes={"k": 3})
    made = op(rng.random((6, 3)), rng.random((3, 5)))
    before = made.copy()
    made *= 2
    np.testing.assert_array_equal(made.toarray(), 2 * before.toarray())
    made.data[0] = 0
    made.eliminate_zeros()
    assert made.nnz == A.nnz - 1
    assert op(rng.random((6, 3)), rng.random((3, 5))).nnz == A.nnz


def test_results_without_out_are_those_with_it(rng: np.random.Generator) -> None:
    A = sp.random_array((6, 5), density=0.5, format="csr", rng=rng, dtype=np.float32)
    for text, sizes in (
        ("C[i,k] argmax= A[i,k] * B[k,j]", {"j": 3}),
        ("C[A,h] = B[i,h] * D[k,h] for A[i,k]", {"h": 2}),
        ("C[A,h] = B[i,h] * A[i,k]", {"h": 2}),
    ):
        op = tw.compile(text, A=A, sizes=sizes)
        operands = op.workload.operands(rng)
        out = np.empty(op.workload.output_shape, op.workload.output_dtype)
        op(*operands, out=out)
        made = op(*operands)
        made = made if isinstance(made, np.ndarray) else made.data
        assert made.dtype == out.dtype
        np.testing.assert_array_equal(made, out)


def test_tensors_of_pytorch_give_tensors() -> None:
    torch = pytest.importorskip("torch")
    matrix = sp.random_array((50, 40), density=0.2, format="csr", rng=np.random.default_rng(0))
    operator = tw.compile("C[i] += A[i,k] * B[k]", A=matrix)
    x = np.linspace(-1, 1, 40)
    wide, tall = np.linspace(0, 1, 120).reshape(40, 3), np.linspace(0, 1, 150).reshape(50, 3)
    for made, expected in (
        (operator @ torch.from_numpy(x), matrix @ x),
        (operator(torch.from_numpy(x)), matrix @ x),
        (operator.matvec(torch.from_numpy(x)), matrix @ x),
        (operator.matmat(torch.from_numpy(wide)), matrix @ wide),
        (operator @ torch.from_numpy(wide).T.clone().T, matrix @ wide),
        (operator @ torch.arange(40), matrix @ np.arange(40)),
        (operator.rmatmat(torch.from_numpy(tall)), matrix.T @ tall),
        (operator.T @ torch.from_numpy(tall), matrix.T @ tall),
        (torch.from_numpy(tall).T @ operator, tall.T @ matrix),
    ):
        assert isinstance(made, torch.Tensor)
        assert made.dtype == torch.float64
        np.testing.assert_allclose(made.numpy(), expected, atol=1e-12)
    out = np.empty(50)
    assert operator(torch.from_numpy(x), out=out) is out
    np.testing.assert_allclose(out, matrix @ x, atol=1e-12)
    with pytest.raises(InputError, match="gradients"):
        operator @ torch.ones(40, dtype=torch.float64, requires_grad=True)
    with pytest.raises(InputError, match="CPU"):
        operator @ torch.ones(40, device="meta")


def test_operators_of_several_operands_take_arrays_of_all_libraries() -> None:
    torch = pytest.importorskip("torch")
    strict = pytest.importorskip("array_api_strict")
    rng = np.random.default_rng(0)
    pattern = sp.random_array((30, 20), density=0.2, format="csr", rng=rng)
    left, right = rng.standard_normal((30, 4)), rng.standard_normal((4, 20))
    sampled = tw.compile("C[i,j] += A[i,j] * B[i,k] * D[k,j]", A=pattern, sizes={"k": 4})
    np.testing.assert_allclose(
        sampled(torch.from_numpy(left), right).toarray(), sampled(left, right).toarray()
    )
    matrix = tw.compile("C[i,j] += A[i,k] * B[k,j]", A=pattern, sizes={"j": 4})
    made = matrix(strict.asarray(right.T.copy()))
    assert made.__array_namespace__().__name__ == "array_api_strict"
    np.testing.assert_allclose(np.from_dlpack(made), matrix(right.T.copy()))
