"""Slices: packed without a search, of the matrix's own lines or across them, and read by kernels compiled before."""

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise.sparse as ts
from tensorwise.lower.program import program_for
from tensorwise.runtime.packed import packed_parts
from tensorwise.sparse import frozen as frozen_arrays
from tensorwise.sparse import product as product_module
from tensorwise.sparse import slices, trials, ways
from tensorwise.sparse.given import GivenArrays
from tensorwise.sparse.kernels import SLICED_KERNELS
from tensorwise.sparse.library import library
from tensorwise.sparse.limits import reproducible
from tensorwise.sparse.slices import sliced_ways, slices_ns
from tensorwise.sparse.table import IN_PLACE


def whole(lengths, minor, dtype=np.float64, index=np.int32, seed=0):
    """Data, indices and indptr: lines of these lengths, whose indices are in no order; values are whole numbers."""
    rng = np.random.default_rng(seed)
    indptr = np.concatenate(([0], np.cumsum(lengths))).astype(index)
    indices = rng.integers(0, minor, indptr[-1]).astype(index)
    return rng.integers(1, 9, indptr[-1]).astype(dtype), indices, indptr


MATRICES = {
    "one row": ([5], 7),
    "rows that fill no slice": ([3, 0, 2, 5, 1, 4, 4], 9),
    "no entries in most rows": ([0] * 50 + [4] + [0] * 70 + [3], 11),
    "windows": (np.random.default_rng(1).integers(0, 30, 1500), 800),
    "rows longer than are told apart": ([1100, 1050, 1030, 2000, 3, 2, 1, 0, 5], 3000),
    "more columns than 16 bits tell apart": (np.random.default_rng(2).integers(1, 9, 601), 70_000),
    "rows of one length": ([6] * 203, 50),
    "rows of one length, many columns": ([3] * 64, 70_000),
    "as many columns as 16 bits tell apart": (np.random.default_rng(3).integers(1, 9, 601), 65_536),
}


def sliced_way(arrays, minor, gather, threads):
    ways = sliced_ways(arrays, minor, gather, threads, alone=False)
    return ways[0] if ways else None


def multiplied(way, x, rows):
    out = np.full(rows, np.nan, x.dtype)
    assert library().multiply(way.address, id(x), id(out)) >= 0
    return out


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("gather", [True, False])
@pytest.mark.parametrize("name", MATRICES)
def test_products_and_new_values_are_exact(monkeypatch, name, gather, dtype, index, threads):
    """Of whole numbers a product is the same in any order."""
    monkeypatch.setattr(slices, "MOST_PADDED", 1e9)
    lengths, minor = MATRICES[name]
    arrays = whole(lengths, minor, dtype, index)
    way = sliced_way(arrays, minor, gather, threads)
    lines = len(lengths)
    matrix = sp.csr_array(arrays, shape=(lines, minor))
    matrix = matrix if gather else matrix.T
    x = np.random.default_rng(5).integers(-4, 5, matrix.shape[1]).astype(dtype)
    np.testing.assert_array_equal(multiplied(way, x, matrix.shape[0]), matrix @ x)
    values = np.random.default_rng(6).integers(1, 9, len(arrays[0])).astype(dtype)
    way.refresh(values)
    matrix = sp.csr_array((values, *arrays[1:]), shape=(lines, minor))
    matrix = matrix if gather else matrix.T
    np.testing.assert_array_equal(multiplied(way, x, matrix.shape[0]), matrix @ x)
    held = way.packed._columns.nbytes + way.packed._values.nbytes + 4 * len(way.packed._values)
    assert held < way.nbytes < held + 8 * (3 * lines + 2 * minor + len(values)) + 500


@pytest.mark.parametrize(("least", "order"), [(0, "(i:length512,k)"), (11, "(i,k)")])
@pytest.mark.parametrize("minor", [470, 70_000])
def test_they_are_what_the_general_packing_makes_of_the_format(minor, least, order):
    arrays = whole(np.random.default_rng(4).integers(least, 12, 1030), minor)
    matrix = sp.csr_array(arrays, shape=(1030, minor))
    matrix.sum_duplicates()
    arrays = matrix.data, matrix.indices, matrix.indptr
    way = sliced_way(arrays, minor, True, 2)
    work = GivenArrays.of(matrix, "spmv", None).workload
    program = program_for(work, *way.name.split("; "))
    assert program.name == way.name
    assert way.name.startswith(order)
    (part,), _ = packed_parts(program, work, 2)
    (tensor,) = part.tensors.values()
    mine = way.packed
    np.testing.assert_array_equal(mine._values, tensor.values)
    np.testing.assert_array_equal(
        mine._columns[mine._values != 0], tensor.arrays[3]["crd"][tensor.values != 0]
    )
    np.testing.assert_array_equal(mine._positions, tensor.arrays[1]["pos"])
    if least:
        assert mine._order is None
        assert tensor.permutations == {}
    else:
        np.testing.assert_array_equal(mine._order, tensor.permutations["i"])


@pytest.mark.parametrize(
    ("arrays", "minor", "why"),
    [
        (whole([0, 0], 3), 3, "there are no entries"),
        (whole([1, 1, 1, 9], 10), 10, "padding"),
        ((np.ones(4), np.array([0, 1, 2, 3], np.int32), np.array([0, 4], np.int32)), 3, "a column outside"),
        ((np.ones(4), np.array([0, -1, 2, 2], np.int32), np.array([0, 4], np.int32)), 3, "a negative column"),
        ((np.ones(4), np.zeros(4, np.int32), np.array([0, 3, 2, 4], np.int32)), 3, "descending pointers"),
        ((np.ones(4), np.zeros(4, np.int32), np.array([0, 5], np.int32)), 3, "too few entries"),
        ((np.ones(4), np.zeros(4, np.int32), np.array([1, 4], np.int32)), 3, "a first pointer of 1"),
    ],
)
@pytest.mark.parametrize("gather", [True, False])
def test_what_does_not_fit_has_none(gather, arrays, minor, why):
    if not gather and why == "padding":
        pytest.skip("its columns have one length")
    assert sliced_way(arrays, minor, gather, 2) is None


def test_there_are_none_without_their_kernels(monkeypatch):
    arrays = whole([3, 3, 3, 3], 9)
    assert sliced_way(arrays, 9, True, 2) is not None
    monkeypatch.setattr(slices, "library", lambda wait, family: None)
    assert sliced_way(arrays, 9, True, 2) is None
    found = library(False, SLICED_KERNELS)
    monkeypatch.setattr(type(found), "layout", lambda *_: {}["lost"])
    monkeypatch.setattr(slices, "library", lambda wait, family: found)
    assert sliced_way(arrays, 9, True, 2) is None


def try_early(monkeypatch):
    """Let trials begin early and end after few calls."""
    monkeypatch.setattr(frozen_arrays, "slices_ns", lambda entries, gather: 0.0)
    monkeypatch.setattr(ways, "SETTLE_NS", 1)
    monkeypatch.setattr(trials, "COUNTED_NS", 1)


def a_frozen_array(monkeypatch, cls=ts.csr_array):
    """One whose trials begin early and end after few calls."""
    try_early(monkeypatch)
    return cls(sp.random_array((300, 200), density=0.05, rng=np.random.default_rng(0))).freeze()


def product_of(frozen):
    (product,) = frozen.__dict__["_tensorwise"].table.products.values()
    return product


def try_ways(frozen, x):
    """Multiply until the first trial is over; return the results."""
    frozen @ x
    product = product_of(frozen)
    product.left_ns = -1
    results = [frozen @ x for _ in range(30)]
    assert product.x_shape is not None, "the trial has not ended"
    return results


@pytest.mark.parametrize("cls", [ts.csr_array, ts.csc_array])
@pytest.mark.parametrize("turned", [False, True])
def test_calls_of_a_frozen_array_try_them_early(monkeypatch, cls, turned):
    frozen = a_frozen_array(monkeypatch, cls)
    matrix = frozen.T if turned else frozen
    x = np.random.default_rng(1).standard_normal(matrix.shape[1])
    expected = matrix.toarray() @ x
    for result in try_ways(matrix, x):
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)
    product = product_of(matrix)
    way, alone = (way for way in product.ways if way.is_packed)
    assert (way.threads > 1, alone.threads) == (True, 1)
    for one in (way, alone):
        assert one.took_ns, "no call has tried it"
        assert one.name in str(matrix.tuning)
    assert frozen.nbytes_held >= way.nbytes > 0
    product.left_ns = -1
    assert matrix @ x is not None
    assert sum(way.is_packed for way in product.ways) == 2, "packed once"
    assert alone.nbytes == 0, "it reads the same slices"
    for one in (way, alone):
        product.go_on_with(one)
        np.testing.assert_allclose(matrix @ x, expected, rtol=1e-12, atol=1e-12)
        frozen.update(-frozen.data)
        expected = -expected
        assert product.current is one, "an update goes on with what was in use"
        np.testing.assert_allclose(matrix @ x, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("turned", [False, True])
def test_new_values_of_a_large_array_are_written_by_all_threads(monkeypatch, turned, limit):
    """Whatever computes the product: here it is one thread."""
    written = []
    update = IN_PLACE.function("update")
    noted = lambda driver, threads, *given: written.append(threads) or update(driver, threads, *given)  # noqa: E731
    function = type(IN_PLACE).function
    monkeypatch.setattr(
        type(IN_PLACE),
        "function",
        lambda self, name: noted if name == "update" else function(self, name),
    )
    monkeypatch.setattr(slices, "allowed_threads", lambda: limit)
    monkeypatch.setattr(frozen_arrays, "allowed_threads", lambda: 2)
    monkeypatch.setattr(product_module, "allowed_threads", lambda: 2)
    monkeypatch.setattr(product_module, "THREADS_NS", 1e9)
    try_early(monkeypatch)
    matrix = sp.random_array((3000, 2000), density=0.01, rng=np.random.default_rng(0), format="csr")
    frozen = ts.csr_array(matrix).freeze()
    mine = frozen.T if turned else frozen
    x = np.random.default_rng(1).standard_normal(mine.shape[1])
    try_ways(mine, x)
    one = next(way for way in product_of(mine).ways if way.is_packed and way.threads == 1)
    product_of(mine).go_on_with(one)
    for values in (-matrix.data, matrix.data[::-1], (7 * matrix.data).astype(np.float32)):
        written.clear()
        frozen.update(values)
        plain = values.flags.c_contiguous and values.dtype == np.float64
        assert written == [limit] * (2 if plain else 1)
        np.testing.assert_array_equal(frozen.data, values)
        expected = sp.csr_array((values.astype(float), matrix.indices, matrix.indptr), shape=matrix.shape)
        np.testing.assert_allclose(mine @ x, (expected.T if turned else expected) @ x, rtol=1e-12, atol=1e-12)
    frozen.update(frozen.data)
    frozen.update(frozen.data[::-1])
    np.testing.assert_array_equal(frozen.data, (7 * matrix.data).astype(np.float32)[::-1])


def test_nan_and_infinity_count_where_entries_are(monkeypatch):
    """Padding multiplies the first element of the operand by zero."""
    frozen = a_frozen_array(monkeypatch)
    matrix = sp.csr_array(frozen)
    x = np.ones(200)
    try_ways(frozen, x)
    product_of(frozen).go_on_with(next(way for way in product_of(frozen).ways if way.is_packed))
    for place, value in ((0, np.nan), (0, np.inf), (7, -np.inf)):
        x = np.ones(200)
        x[place] = value
        with np.errstate(invalid="ignore"):
            expected = matrix @ x
        assert not np.isfinite(expected).all()
        assert np.isfinite(expected).any()
        np.testing.assert_allclose(frozen @ x, expected, rtol=1e-12)


@pytest.mark.parametrize("why", ["off", "reproducible", "too few calls", "several columns", "no room"])
def test_there_are_none_where_they_are_not_wanted(monkeypatch, why):
    frozen = a_frozen_array(monkeypatch)
    x = np.ones((200, 3)) if why == "several columns" else np.ones(200)
    if why == "off":
        monkeypatch.setenv("TENSORWISE_AUTOTUNE", "off")
    elif why == "too few calls":
        monkeypatch.setattr(frozen_arrays, "slices_ns", slices_ns)
    elif why == "no room":
        monkeypatch.setattr(frozen_arrays, "MOST_HELD", 0.1)
    if why == "reproducible":
        with reproducible():
            try_ways(frozen, x)
    else:
        try_ways(frozen, x)
    assert not any(way.is_packed for way in product_of(frozen).ways)


def test_packing_may_take_a_tenth_of_what_calls_have_taken():
    assert slices_ns(10**6, True) == pytest.approx(41e6)
    assert slices_ns(10**6, False) > 2 * slices_ns(10**6, True)
