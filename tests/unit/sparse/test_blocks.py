"""Products of BSR arrays, ours and patched ones, against SciPy's."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorwise.sparse as ts
from tensorwise.sparse import limits, products
from tensorwise.sparse import product as product_module
from tensorwise.sparse.kernels import BLOCK_LANES
from tensorwise.sparse.ways import CHANGED
from tests.unit.sparse.test_products import CALLS, agrees


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(products, "MAKING_NS", 0)


def array_of(rng, shape, blocks, block, dtype, *, index=np.int32, kind=sp.bsr_array):
    """A BSR array of ``shape`` in blocks, with unsorted and repeated ones."""
    height, width = block if isinstance(block, tuple) else (block, block)
    line = np.sort(rng.integers(shape[0], size=blocks)) if shape[0] else np.zeros(0, int)
    made = kind((shape[0] * height, shape[1] * width), blocksize=(height, width), dtype=dtype)
    made.indptr = np.searchsorted(line, np.arange(shape[0] + 1)).astype(index)
    made.indices = rng.integers(max(shape[1], 1), size=len(line)).astype(index)
    made.data = rng.standard_normal((len(line), height, width)).astype(dtype)
    return made


def is_ours(matrix):
    """Whether kernels of ours computed a product of ``matrix``."""
    known = products.products_of(matrix)
    return known is not None and bool(known.table.products)


def same_as_scipy(ours, theirs, x):
    sizes = theirs.copy()
    sizes.data = np.abs(sizes.data)
    with np.errstate(all="ignore"):
        expected, magnitude = theirs @ x, sizes @ np.abs(x)
        for _ in range(CALLS):
            assert agrees(ours @ x, expected, magnitude, theirs.data.size)


@settings(max_examples=80, deadline=None)
@given(
    block=st.sampled_from(sorted(BLOCK_LANES)),
    shape=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    blocks=st.integers(0, 60),
    dtype=st.sampled_from([np.float32, np.float64]),
    columns=st.sampled_from([None, 1, 2, 3, 4, 7, 8, 16, 31, 32, 40, 70]),
    cls=st.sampled_from([sp.bsr_array, sp.bsr_matrix]),
    special=st.sampled_from([None, np.nan, np.inf, -np.inf]),
    order=st.sampled_from("CF"),
    seed=st.integers(0, 2**32 - 1),
)
def test_products_are_scipys(block, shape, blocks, dtype, columns, cls, special, order, seed):
    rng = np.random.default_rng(seed)
    theirs = array_of(rng, shape, blocks, block, dtype, kind=cls)
    x = rng.standard_normal((theirs.shape[1],) if columns is None else (theirs.shape[1], columns))
    x = np.array(x.astype(dtype), order=order)
    if special is not None:
        where = x if rng.random() < 0.5 or not blocks else theirs.data
        where.flat[rng.integers(where.size)] = special
    ours = ts.asarray(theirs)
    assert ours.data is theirs.data
    same_as_scipy(ours, theirs, x)
    assert is_ours(ours)
    if columns is None:
        same_as_scipy(ours.T, theirs.T, theirs @ x)


@pytest.mark.parametrize("block", sorted(BLOCK_LANES))
@pytest.mark.parametrize("columns", [None, 5, 40])
def test_threads_compute_the_same_bits(monkeypatch, block, columns):
    rng = np.random.default_rng(block)
    theirs = array_of(rng, (700, 300), 6000, block, np.float64)
    x = rng.standard_normal((theirs.shape[1],) if columns is None else (theirs.shape[1], columns))
    found = {}
    for threads in (1, 2, 3):
        ours = ts.asarray(theirs.copy())
        monkeypatch.setattr(product_module, "allowed_threads", lambda threads=threads: threads)
        known = products.products_of(ours)
        product = known.table.product(products.library(True, known.table.family), True, columns)
        product._use_threads()
        out = np.full(product.out_shape, 7.0)
        assert product.multiply(product.ways[-1].address, id(x), id(out)) >= 0
        assert product.ways[-1].threads == threads or limits.allowed_threads() < threads
        found[threads] = out
    np.testing.assert_array_equal(found[1], found[2])
    np.testing.assert_array_equal(found[1], found[3])
    np.testing.assert_allclose(found[1], theirs @ x, rtol=1e-10, atol=1e-10)


def test_zeros_inside_blocks_meet_infinity_as_scipys_do():
    theirs = sp.bsr_array(np.eye(4), blocksize=(2, 2))
    x = np.array([np.inf, 1.0, np.nan, 2.0])
    ours = ts.bsr_array(theirs)
    with np.errstate(all="ignore"):
        for _ in range(CALLS):
            np.testing.assert_array_equal(ours @ x, theirs @ x)
    assert np.isnan(ours @ x)[1]
    assert is_ours(ours)


@pytest.mark.parametrize(
    ("block", "dtype", "index"),
    [
        (5, np.float64, np.int32),
        ((2, 3), np.float64, np.int32),
        ((4, 2), np.float32, np.int32),
        (2, np.complex128, np.int32),
        (2, np.int64, np.int32),
        (4, np.float64, np.int64),
    ],
)
def test_other_blocks_and_types_are_scipys(block, dtype, index):
    rng = np.random.default_rng(0)
    theirs = array_of(rng, (5, 7), 12, block, dtype, index=index)
    ours = ts.asarray(theirs)
    x = rng.standard_normal(theirs.shape[1]).astype(dtype)
    np.testing.assert_array_equal(ours @ x, theirs @ x)
    assert not is_ours(ours)


def test_other_operands():
    rng = np.random.default_rng(1)
    theirs = array_of(rng, (5, 7), 12, 4, np.float32)
    ours = ts.asarray(theirs)
    for x in (
        np.arange(28),
        rng.standard_normal(28),
        rng.standard_normal((28, 3))[:, ::-1].astype(np.float32),
        rng.standard_normal(56).astype(np.float32)[::2],
        1j * np.ones(28),
    ):
        same_as_scipy(ours, theirs, x)
    same_as_scipy(ours, theirs, np.ones((28, 0), np.float32))
    with pytest.raises(ValueError, match="dimension"):
        ours @ np.ones(27, np.float32)
    assert ((ours @ ours.T).toarray() == (theirs @ theirs.T).toarray()).all()
    empty = ts.bsr_array((0, 8), blocksize=(2, 2))
    assert (empty @ np.ones(8)).shape == (0,)
    assert not (ts.bsr_array((6, 4), blocksize=(2, 2)) @ np.ones(4)).any()


def test_changes_in_place_are_seen():
    rng = np.random.default_rng(2)
    theirs = array_of(rng, (5, 6), 12, 4, np.float64)
    ours = ts.asarray(theirs)
    x = rng.standard_normal(24)
    same_as_scipy(ours, theirs, x)
    ours.data[3] *= 5
    ours.indices[2] = (ours.indices[2] + 1) % 6
    same_as_scipy(ours, theirs, x)
    ours.update(2 * ours.data)
    same_as_scipy(ours, theirs, x)
    ours.data = 3 * ours.data
    theirs.data = ours.data
    same_as_scipy(ours, theirs, x)
    assert is_ours(ours)
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), ours.copy()):  # noqa: S301
        assert type(other) is ts.bsr_array
        same_as_scipy(other, theirs, x)


def test_blocks_of_another_shape_in_the_same_memory_are_noticed():
    """Nothing is read with the old block's height."""
    rng = np.random.default_rng(3)
    theirs = array_of(rng, (4, 4), 8, 4, np.float64)
    ours = ts.asarray(theirs)
    x = rng.standard_normal(16)
    same_as_scipy(ours, theirs, x)
    product = products.products_of(ours).last
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        ours.data.shape = (8, 2, 8)
    out = np.zeros(16)
    assert product.multiply(product.address, id(x), id(out)) == CHANGED
    assert not out.any()


def test_out_and_factors():
    rng = np.random.default_rng(4)
    theirs = array_of(rng, (5, 6), 12, 3, np.float64)
    ours = ts.asarray(theirs)
    x, out = rng.standard_normal(18), np.full(15, np.nan)
    for _ in range(CALLS):
        assert ours.matmul(x, out=out) is out
        np.testing.assert_allclose(out, theirs @ x)
    np.testing.assert_allclose(ours.matmul(x, out=np.ones(15), alpha=2.0, beta=3.0), 2 * (theirs @ x) + 3)
    assert "A @ x" in str(ours.tuning)
    assert ours.nbytes_held >= 0


@pytest.mark.parametrize("cls", [sp.bsr_array, sp.bsr_matrix])
def test_patched_classes_multiply_by_our_kernels_and_the_way_back(cls):
    rng = np.random.default_rng(5)
    theirs = array_of(rng, (50, 60), 300, 4, np.float64, kind=cls)
    x = rng.standard_normal((240, 3))
    expected = theirs @ x
    before = dict(vars(cls))
    ts.patch_scipy()
    try:
        for _ in range(CALLS):
            np.testing.assert_allclose(theirs @ x, expected, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(theirs @ x[:, 0], expected[:, 0], rtol=1e-12, atol=1e-12)
        assert is_ours(theirs)
        if cls is sp.bsr_matrix:
            np.testing.assert_allclose(theirs * x, expected, rtol=1e-12, atol=1e-12)
    finally:
        ts.unpatch_scipy()
    assert dict(vars(cls)) == before
