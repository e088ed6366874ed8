"""spmm and sddmm on torch tensors: every layout, gradients, and what is refused."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.errors import InputError

torch = pytest.importorskip("torch")

import tensorwise as tw  # noqa: E402

ROWS, INNER, COLUMNS = 6, 8, 4
pytestmark = [
    pytest.mark.usefixtures("one_torch_thread"),
    pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR|invariant)"),
]


def dense(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    rng = np.random.default_rng(1)
    made = rng.standard_normal((ROWS, INNER)) * (rng.random((ROWS, INNER)) < 0.4)
    made[2] = 0
    return torch.from_numpy(made).to(dtype)


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


LAYOUTS: dict[str, Callable[[torch.Tensor], object]] = {
    "csr": torch.Tensor.to_sparse_csr,
    "csc": torch.Tensor.to_sparse_csc,
    "coo": torch.Tensor.to_sparse,
    "bsr": lambda matrix: matrix.to_sparse_bsr((2, 4)),
    "scipy": lambda matrix: sp.csr_array(matrix.numpy()),
    "scipy csc": lambda matrix: sp.csc_array(matrix.numpy()),
    "layer": tw.nn.SparseLinear,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_are_those_of_the_dense_matrix(layout: str, dtype: torch.dtype) -> None:
    whole = dense(dtype)
    A = LAYOUTS[layout](whole)
    for X in (drawn(INNER, dtype=dtype), drawn(INNER, 5, dtype=dtype), drawn(5, INNER, dtype=dtype).t()):
        torch.testing.assert_close(tw.nn.spmm(A, X), whole @ X)
    X, Y = drawn(ROWS, COLUMNS, dtype=dtype), drawn(COLUMNS, INNER, dtype=dtype)
    sampled = tw.nn.sddmm(A, X, Y)
    assert sampled.layout is torch.sparse_csr
    torch.testing.assert_close(sampled.to_dense(), whole * (X @ Y))


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr"])
def test_sparse_tensors_get_gradients(layout: str) -> None:
    A = LAYOUTS[layout](dense()).requires_grad_()
    X = drawn(INNER, 3).requires_grad_()
    of_A, of_X = torch.autograd.grad(tw.nn.spmm(A, X).square().sum(), (A, X))
    whole = dense().requires_grad_()
    wanted = torch.autograd.grad((whole @ X).square().sum(), (whole, X))
    stored = LAYOUTS[layout](dense()).coalesce() if layout == "coo" else LAYOUTS[layout](dense())
    stored.values().fill_(1)
    torch.testing.assert_close(of_A.to_dense(), wanted[0] * stored.to_dense())
    torch.testing.assert_close(of_X, wanted[1])


def test_derivatives_of_values_and_dense_operands() -> None:
    pattern = dense().to_sparse_csr()

    def matrix(values: torch.Tensor) -> torch.Tensor:
        return torch.sparse_csr_tensor(pattern.crow_indices(), pattern.col_indices(), values, pattern.shape)

    values = pattern.values().clone().requires_grad_()
    X, Y = drawn(ROWS, 3).requires_grad_(), drawn(3, INNER).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda v, x: tw.nn.spmm(matrix(v), x), (values, drawn(INNER, 2).requires_grad_())
    )
    assert torch.autograd.gradcheck(
        lambda v, x: tw.nn.spmm(matrix(v), x), (values, drawn(INNER).requires_grad_())
    )
    assert torch.autograd.gradcheck(lambda v, x, y: tw.nn.sddmm(matrix(v), x, y).values(), (values, X, Y))


def test_sddmm_then_spmm_is_sparse_attention() -> None:
    mask = (dense() != 0).double().to_sparse_csr()
    Q, K, V = (drawn(n, 3).requires_grad_() for n in (ROWS, INNER, INNER))
    out = tw.nn.spmm(tw.nn.sddmm(mask, Q, K.t()), V)
    wanted = ((Q @ K.t()) * (dense() != 0)) @ V
    torch.testing.assert_close(out, wanted)
    found = torch.autograd.grad(out.square().sum(), (Q, K, V))
    for one, other in zip(found, torch.autograd.grad(wanted.square().sum(), (Q, K, V)), strict=True):
        torch.testing.assert_close(one, other)


def test_values_changed_in_place_and_patterns_are_seen() -> None:
    A, X = dense().to_sparse_csr(), drawn(INNER, 3)
    tw.nn.spmm(A, X)
    A.values().mul_(2)
    torch.testing.assert_close(tw.nn.spmm(A, X), 2 * dense() @ X)
    A.col_indices().fill_(INNER)
    with pytest.raises(InputError, match="outside"):
        tw.nn.spmm(A, X)


def test_autocast_converts_both_operands() -> None:
    A, X = dense(torch.float32).to_sparse_csr(), drawn(INNER, 3, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.float16):
        out = tw.nn.spmm(A, X)
    assert out.dtype is torch.float16
    torch.testing.assert_close(out.float(), dense(torch.float32) @ X, atol=0.05, rtol=0.02)


def test_compiled_code_takes_the_tensors_of_a_matrix() -> None:
    layer, X = tw.nn.SparseLinear(dense()), drawn(INNER, 3)
    run = torch.compile(tw.nn.spmm, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(run(layer, X), dense() @ X)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "dense": (lambda: tw.nn.spmm(dense(), drawn(INNER)), r"to_sparse_csr\(\)"),
    "inner": (lambda: tw.nn.spmm(dense().to_sparse_csr(), drawn(INNER + 1)), r"\(8,\) or \(8, columns\)"),
    "three dimensions": (lambda: tw.nn.spmm(dense().to_sparse_csr(), drawn(INNER, 2, 2)), "got"),
    "dtype": (lambda: tw.nn.spmm(dense().to_sparse_csr(), drawn(INNER).float()), "torch.float64"),
    "integers": (lambda: tw.nn.spmm(dense().long().to_sparse_csr(), drawn(INNER)), "torch.int64"),
    "array": (lambda: tw.nn.spmm(dense().to_sparse_csr(), np.ones(INNER)), "got ndarray"),
    "batch": (lambda: tw.nn.spmm(torch.stack([dense()] * 2).to_sparse_csr(), drawn(INNER)), "2 dimensions"),
    "sddmm": (lambda: tw.nn.sddmm(dense().to_sparse_csr(), drawn(ROWS, 2), drawn(INNER, 2)), r"\(inner, 8\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_with_a_remedy(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        make()


def test_importing_tensorwise_imports_neither_torch_nor_jax() -> None:
    import subprocess
    import sys

    code = "import sys, tensorwise; assert not {'torch', 'jax'} & set(sys.modules); tensorwise.nn.spmm"
    subprocess.run([sys.executable, "-c", code], check=True)
