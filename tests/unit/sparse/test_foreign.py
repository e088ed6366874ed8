"""Operands of other array libraries, and Dask."""

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise.sparse as ts
from tensorwise.errors import InputError


@pytest.fixture
def matrix():
    return ts.csr_array(sp.random_array((50, 40), density=0.1, rng=np.random.default_rng(0)))


def agrees(made, expected):
    np.testing.assert_allclose(np.asarray(made), expected, rtol=1e-5, atol=1e-6)


def test_pytorchs_tensors_give_tensors(matrix):
    torch = pytest.importorskip("torch")
    x = torch.linspace(-1, 1, 40, dtype=torch.float64)
    made = matrix @ x
    assert isinstance(made, torch.Tensor)
    agrees(made, matrix @ x.numpy())
    agrees(matrix @ torch.ones(40, 3, dtype=torch.float32), matrix @ np.ones((40, 3)))
    assert isinstance(torch.ones(50, dtype=torch.float64) @ matrix, torch.Tensor)
    with pytest.raises(InputError, match=r"tensorwise\.nn\.spmm"):
        matrix @ x.requires_grad_()
    with pytest.raises(InputError, match="CPU"):
        matrix @ torch.ones(40, device="meta")


def test_jaxs_arrays_give_arrays(matrix):
    jax = pytest.importorskip("jax")
    made = matrix @ jax.numpy.ones((40, 2))
    assert isinstance(made, jax.Array)
    agrees(made, matrix @ np.ones((40, 2)))


def test_arrays_of_the_standard_give_such_arrays(matrix):
    strict = pytest.importorskip("array_api_strict")
    made = matrix @ strict.ones(40)
    assert made.__array_namespace__().__name__ == "array_api_strict"
    agrees(np.from_dlpack(made), matrix @ np.ones(40))


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_blocks_of_dask_are_multiplied(matrix, scheduler):
    da = pytest.importorskip("dask.array")
    x = np.random.default_rng(0).standard_normal((40, 8))
    blocks = da.from_array(x, chunks=(40, 4))
    made = blocks.map_blocks(matrix.__matmul__, chunks=((50,), (4, 4)), dtype=x.dtype)
    agrees(made.compute(scheduler=scheduler), matrix @ x)


@pytest.mark.parametrize(
    "other", [[1.0] * 40, np.ones((40, 1)), np.asmatrix(np.ones((40, 1))), sp.eye_array(40)]
)
def test_what_scipy_takes_is_taken_as_before(matrix, other):
    made, expected = matrix @ other, sp.csr_array(matrix) @ other
    assert sp.issparse(made) == sp.issparse(expected)
    if not sp.issparse(made):
        assert type(made) is type(expected)
        np.testing.assert_allclose(made, expected)
