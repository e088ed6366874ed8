"""Operands of other array libraries, Dask and joblib."""

import os

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


@pytest.mark.parametrize("cls", [ts.coo_array, ts.coo_matrix])
def test_products_of_coordinates_take_arrays_of_all_libraries(matrix, cls):
    strict = pytest.importorskip("array_api_strict")
    torch = pytest.importorskip("torch")
    matrix = cls(matrix)
    for shape in ((40,), (40, 3)):
        made = matrix @ strict.ones(shape)
        assert made.__array_namespace__().__name__ == "array_api_strict"
        agrees(np.from_dlpack(made), matrix @ np.ones(shape))
    assert isinstance(torch.ones(50, dtype=torch.float64) @ matrix, torch.Tensor)
    with pytest.raises(InputError, match=r"tensorwise\.nn\.spmm"):
        matrix @ torch.ones(40, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("cls", [ts.csr_matrix, ts.bsr_matrix, ts.coo_matrix])
def test_a_matrix_is_multiplied_by_a_star_from_either_side(matrix, cls):
    torch = pytest.importorskip("torch")
    matrix = cls(matrix)
    right, left = matrix * torch.ones(40, dtype=torch.float64), torch.ones(50, dtype=torch.float64) * matrix
    assert isinstance(right, torch.Tensor)
    assert isinstance(left, torch.Tensor)
    agrees(right, matrix * np.ones(40))
    agrees(left, np.ones(50) * matrix)


SCHEDULERS = ["synchronous", "threads", "processes"]
"""Schedulers of Dask."""


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_blocks_of_dask_are_multiplied(matrix, scheduler):
    da = pytest.importorskip("dask.array")
    x = np.random.default_rng(0).standard_normal((40, 8))
    blocks = da.from_array(x, chunks=(40, 4))
    made = blocks.map_blocks(matrix.__matmul__, chunks=((50,), (4, 4)), dtype=x.dtype)
    agrees(made.compute(scheduler=scheduler, num_workers=2), matrix @ x)


def multiply_in_worker(matrix, x):
    """Return the process and the products, both by kernels of this package."""
    products = [matrix @ x, matrix.T @ (matrix @ x)]
    assert [one.way.partition(",")[0] for one in matrix.tuning.products] == ["in place"] * 2
    return os.getpid(), type(matrix), products


def check_worker(made, matrix, x, in_this_process=False):
    process, kind, products = made
    assert (process == os.getpid()) == in_this_process
    assert kind is type(matrix)
    plain = sp.csr_array(matrix)
    agrees(products[0], plain @ x)
    agrees(products[1], plain.T @ (plain @ x))


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_arrays_and_results_are_tasks_of_dask(matrix, scheduler, is_frozen):
    dask = pytest.importorskip("dask")
    matrix = matrix.freeze() if is_frozen else matrix
    x = np.linspace(-1, 1, 40)
    matrix @ x  # what the array knows of its products stays in this process
    held = dask.delayed(matrix)
    task = dask.delayed(multiply_in_worker)(held, x)
    product, made = dask.compute(held @ x, task, scheduler=scheduler, num_workers=2)
    agrees(product, matrix @ x)
    check_worker(made, matrix, x, in_this_process=scheduler != "processes")


@pytest.mark.parametrize("is_frozen", [False, True])
def test_joblibs_processes_multiply(matrix, is_frozen):
    joblib = pytest.importorskip("joblib")
    matrix = matrix.freeze() if is_frozen else matrix
    operands = [np.full(40, value) for value in (1.0, 2.0, 3.0)]
    matrix @ operands[0]  # what the array knows of its products stays in this process
    run = joblib.Parallel(n_jobs=2, backend="loky")
    for made, x in zip(run(joblib.delayed(multiply_in_worker)(matrix, x) for x in operands), operands):
        check_worker(made, matrix, x)


def test_arrays_that_joblib_maps_into_memory_are_multiplied(matrix):
    """joblib does so with arrays above a megabyte, here above a hundred bytes."""
    joblib = pytest.importorskip("joblib")
    x = np.linspace(-1, 1, 40)
    run = joblib.Parallel(n_jobs=2, backend="loky", max_nbytes=100)
    for made in run(joblib.delayed(multiply_in_worker)(matrix, x) for _ in range(2)):
        check_worker(made, matrix, x)


@pytest.mark.parametrize(
    "other", [[1.0] * 40, np.ones((40, 1)), np.asmatrix(np.ones((40, 1))), sp.eye_array(40)]
)
def test_what_scipy_takes_is_taken_as_before(matrix, other):
    made, expected = matrix @ other, sp.csr_array(matrix) @ other
    assert sp.issparse(made) == sp.issparse(expected)
    if not sp.issparse(made):
        assert type(made) is type(expected)
        np.testing.assert_allclose(made, expected)
