"""Results of two ways are compared before the second is used."""

import logging

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise.sparse as ts
from tensorwise.sparse import frozen as frozen_arrays
from tensorwise.sparse import trials, ways
from tensorwise.sparse.agreement import agree


def arrays(matrix):
    return matrix.data, matrix.indices, matrix.indptr


@pytest.fixture(params=[(True, None), (False, None), (True, 3), (False, 3)])
def case(request):
    """A matrix, whether it gathers, an operand and the product."""
    gather, columns = request.param
    rng = np.random.default_rng(0)
    matrix = sp.random_array((90, 70), density=0.2, rng=rng, format="csr" if gather else "csc")
    x = rng.standard_normal(70 if columns is None else (70, columns))
    return matrix, gather, x, matrix @ x


def agrees(matrix, gather, x, made, expected):
    extents = matrix.shape if gather else matrix.shape[::-1]
    told = agree(arrays(matrix), extents, gather, x, made, expected)
    assert told is not None
    return told


def test_another_order_of_additions_agrees(case):
    matrix, gather, x, expected = case
    terms = matrix.toarray()[:, ::-1]
    assert agrees(matrix, gather, x, expected, expected)
    assert agrees(matrix, gather, x, terms @ x[::-1], expected)
    assert agrees(matrix, gather, x, np.longdouble(terms) @ x[::-1], expected)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array])
def test_cancelled_terms_count(kind):
    """A sum that is nearly zero may differ by as much as its terms allow."""
    matrix, x = kind(np.ones((2, 3))), np.array([1.0, 1e-3, -1.001])
    for by, right in ((1e-16, True), (1e-15, True), (1e-13, False)):
        assert agrees(matrix, kind is sp.csr_array, x, np.array([by, 0]), np.zeros(2)) == right


@pytest.mark.parametrize("by", [1e-9, np.nan, np.inf])
def test_one_wrong_element_is_found(case, by):
    matrix, gather, x, expected = case
    made = expected.copy()
    made.flat[-1] += by
    assert not agrees(matrix, gather, x, made, expected)


def test_nan_and_infinity(case):
    matrix, gather, x, _ = case
    for value in (np.nan, np.inf):
        x = x.copy()
        x[3] = value
        with np.errstate(invalid="ignore"):
            expected = matrix @ x
        assert agrees(matrix, gather, x, expected, expected)
        finite = np.isfinite(expected)
        assert finite.any()
        assert not agrees(matrix, gather, x, np.where(finite, expected + 1, expected), expected)


def test_zeros_and_overflow_tell_nothing(case):
    matrix, gather, x, expected = case
    extents = matrix.shape if gather else matrix.shape[::-1]
    zeros = np.zeros_like(expected)
    assert agree(arrays(matrix), extents, gather, 0 * x, zeros, zeros) is None
    assert not agrees(matrix, gather, 0 * x, zeros + 1e-9, zeros)
    nan = np.full_like(expected, np.nan)
    assert agree(arrays(matrix), extents, gather, nan[:70].copy(), nan, nan) is None


def test_each_element_has_a_bound_of_its_own():
    """One long row must not hide errors in others."""
    rng = np.random.default_rng(0)
    rows = np.concatenate((np.zeros(200_000, int), np.arange(1, 100)))
    columns = np.concatenate((np.arange(200_000), rng.integers(0, 200_000, 99)))
    matrix = sp.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(100, 200_000))
    x = rng.random(200_000).astype(np.float32)
    expected = matrix @ x
    made = expected.copy()
    made[0] *= np.float32(1 + 1e-4)
    assert agrees(matrix, True, x, made, expected)
    made[50] *= np.float32(1 + 1e-4)
    assert not agrees(matrix, True, x, made, expected)


def test_terms_that_underflow_are_allowed_for():
    matrix = sp.csr_array(np.full((5, 60), 0.3, np.float32))
    x = np.full(60, 1e-42, np.float32)
    exact = matrix @ x
    assert agrees(matrix, True, x, exact + np.float32(3e-44), exact)
    assert agrees(matrix, True, x, 0 * exact, exact), "flushed to zero"


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_more_values_than_indices(index):
    """Those beyond the last line belong to nothing."""
    matrix = sp.random_array((30, 20), density=0.3, rng=np.random.default_rng(0), format="csr")
    held = np.append(matrix.data, [np.nan] * 3), matrix.indices.astype(index), matrix.indptr.astype(index)
    x = np.ones(20)
    assert agree(held, matrix.shape, True, x, matrix @ x, matrix @ x) is True


@pytest.fixture
def frozen(monkeypatch):
    """An array that is about to try slices."""
    monkeypatch.setattr(frozen_arrays, "slices_ns", lambda entries, gather: 0.0)
    monkeypatch.setattr(ways, "SETTLE_NS", 1)
    monkeypatch.setattr(trials, "COUNTED_NS", 1)
    return ts.csr_array(sp.random_array((300, 200), density=0.05, rng=np.random.default_rng(0))).freeze()


def test_a_packed_form_with_wrong_values_is_not_used(monkeypatch, frozen, caplog):
    made = frozen_arrays.sliced_ways

    def wrong(*arguments):
        found = made(*arguments)
        found[0].packed._values[7] += 1e-6
        return found

    monkeypatch.setattr(frozen_arrays, "sliced_ways", wrong)
    x = np.random.default_rng(1).standard_normal(200)
    expected = sp.csr_array(frozen) @ x
    frozen @ x
    (product,) = frozen.__dict__["_tensorwise"].table.products.values()
    product.left_ns = -1
    with caplog.at_level(logging.WARNING):
        for _ in range(40):
            np.testing.assert_allclose(frozen @ x, expected, rtol=1e-13, atol=1e-13)
    assert not product.current.is_packed
    packed = [way for way in product.ways if way.is_packed]
    assert not any(way.took_ns for way in packed)
    assert "another product" in caplog.text
    assert product.refused
    assert not product.refused & {way.name for way in product.ways}


def test_the_first_result_of_a_packed_form_is_compared(monkeypatch, frozen):
    compared = []
    monkeypatch.setattr(
        "tensorwise.sparse.product.agree", lambda *given: compared.append(given) or agree(*given)
    )
    x = np.ones(200)
    frozen @ x
    (product,) = frozen.__dict__["_tensorwise"].table.products.values()
    product.left_ns = -1
    for _ in range(40):
        frozen @ x
    packed = [way for way in product.ways if way.is_packed]
    assert len(compared) == len(packed) > 0
    assert all(way.is_verified and way.took_ns for way in packed)


@pytest.mark.parametrize("told", [None, MemoryError, ValueError])
def test_a_form_of_which_nothing_is_told_waits_for_the_next_trial(monkeypatch, frozen, told):
    def agreed(*given):
        if told is not None:
            raise told
        return None

    monkeypatch.setattr("tensorwise.sparse.product.agree", agreed)
    x = np.ones(200)
    expected = sp.csr_array(frozen) @ x
    frozen @ x
    (product,) = frozen.__dict__["_tensorwise"].table.products.values()
    product.left_ns = -1
    for _ in range(40):
        np.testing.assert_allclose(frozen @ x, expected, rtol=1e-13)
    assert not product.current.is_packed
    assert product.x_shape is not None, "the trial has ended"
    monkeypatch.setattr("tensorwise.sparse.product.agree", agree)
    product._next_trial_ns, product.left_ns = 0, -1
    for _ in range(40):
        frozen @ x
    assert all(way.is_verified for way in product.ways if way.is_packed)
