"""The short story, for every commit: pack, compile, run, compare. A few seconds."""

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise as tw
from tensorwise.tensor.format import bcsr
from tensorwise.tensor.pack import pack


@pytest.fixture
def matrix() -> sp.csr_array:
    rng = np.random.default_rng(7)
    return sp.random_array((37, 29), density=0.2, format="csr", rng=rng, dtype=np.float64)


def test_spmv_and_spmm_agree_with_scipy(matrix: sp.csr_array) -> None:
    x, B = np.arange(29.0), np.ones((29, 11))
    spmv = tw.compile("C[i] += A[i,k] * B[k]", A=matrix, schedule="parallel(i) unroll(k,2)")
    spmm = tw.compile(
        "C[i,j] += A[i,k] * B[k,j]",
        A=matrix,
        format="(i,k) -> U(i1) C(k1) U(i0:2) U(k0:2)",
        schedule="reorder(i1,j,k1,i0,k0) unroll(i0) unroll(k0) tile(j,2x4)",
        sizes={"j": 11},
    )
    np.testing.assert_allclose(spmv(x), matrix @ x, rtol=1e-12)
    np.testing.assert_allclose(spmm(B), matrix @ B, rtol=1e-12)


def test_a_format_stores_what_it_was_given(matrix: sp.csr_array) -> None:
    packed = pack(tw.entries_from(matrix), bcsr(2, 2))
    assert packed.values.sum() == pytest.approx(matrix.sum())
    assert "U(i1) C(k1)" in str(packed)


def test_padding_never_contributes(matrix: sp.csr_array) -> None:
    x = np.full(29, np.inf)
    blocks = tw.compile(
        "C[i] += A[i,k] * B[k]",
        A=matrix,
        format="(i,k) -> U(i1) C(k1) U(i0:4) U(k0:4)",
        schedule="reorder(i1,k1,i0,k0)",
    )
    np.testing.assert_array_equal(blocks(x), matrix @ x)


def test_wrong_input_is_refused(matrix: sp.csr_array) -> None:
    matrix.indices[3] = 10**6
    with pytest.raises(tw.TensorwiseError, match="1000000"):
        tw.entries_from(matrix)
