"""The array of a tuned operator."""

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise as tw
import tensorwise.sparse.product as product_module
from tensorwise.errors import InputError


@pytest.mark.parametrize("columns", [None, 8])
def test_it_multiplies_by_the_operators_kernel_over_values_of_its_own(columns):
    rng = np.random.default_rng(0)
    matrix = sp.random_array((120, 90), density=0.1, format="csr", rng=rng)
    einsum = "C[i] += A[i,k] * B[k]" if columns is None else "C[i,j] += A[i,k] * B[k,j]"
    sizes = None if columns is None else {"j": columns}
    operator = tw.compile(einsum, A=matrix, sizes=sizes, format="(i,k) -> U(i1) C(k) U(i0:4)")
    array = operator.array
    x = rng.standard_normal((90,) if columns is None else (90, columns))
    assert array.tuning.products[0].way == operator.program.name
    np.testing.assert_allclose(array @ x, matrix @ x)
    array.update(3 * matrix.data)
    np.testing.assert_allclose(array @ x, 3 * (matrix @ x))
    np.testing.assert_allclose(operator(x), matrix @ x)
    x[0] = np.nan
    np.testing.assert_array_equal(np.isnan(array @ x), np.isnan(matrix @ x))
    np.testing.assert_allclose(array.T @ np.ones(120), 3 * matrix.sum(0))


def test_of_a_transpose_it_is_the_transposed_array():
    matrix = sp.random_array((30, 20), density=0.2, format="csr", rng=np.random.default_rng(0))
    operator = tw.compile("C[k] += A[i,k] * B[i]", A=matrix)
    assert operator.array.shape == operator.shape
    np.testing.assert_allclose(operator.array @ np.ones(30), operator @ np.ones(30))


def test_values_of_16_bits_have_none():
    operator = tw.compile("C[i] += A[i,k] * B[k]", A=sp.eye_array(8, format="csr"), dtype="float16")
    with pytest.raises(InputError, match="float32"):
        operator.array  # noqa: B018


def test_a_kernel_whose_first_result_differs_is_not_used(monkeypatch, caplog):
    monkeypatch.setattr(product_module, "agree", lambda *given: False)
    matrix = sp.random_array((120, 90), density=0.1, format="csr", rng=np.random.default_rng(0))
    operator = tw.compile("C[i] += A[i,k] * B[k]", A=matrix, format="(i,k) -> U(i1) C(k) U(i0:4)")
    with caplog.at_level("WARNING", "tensorwise"):
        array = operator.array
    assert "is not used" in caplog.text
    assert array.tuning.products[0].way.startswith("in place")
    np.testing.assert_allclose(array @ np.ones(90), matrix.sum(1))
