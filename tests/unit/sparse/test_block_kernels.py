"""Products of BSR arrays from both sides, what they do to values and arrays, and the kernels themselves."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorwise as tw
import tensorwise.sparse as ts
from tensorwise.lower.program import PlanKey, kernel_text
from tensorwise.sparse import limits, prepare, products
from tensorwise.sparse import product as product_module
from tensorwise.sparse.kernels import BLOCK_LANES, BLOCK_SHAPES
from tests.unit.sparse.test_products import CALLS, agrees

SQUARES = [(size, size) for size in (1, *BLOCK_LANES)]
OTHERS = [(5, 5), (2, 3), (4, 1), (16, 16)]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(products, "MAKING_NS", 0)


def made_of(cls, blocksize, lines, blocks, rng, dtype=np.float64, index=np.int32):
    """A BSR array with unsorted and repeated blocks, and rows without any; ``lines`` x ``lines + 1`` blocks."""
    line = np.sort(rng.integers(lines, size=blocks))
    made = cls((lines * blocksize[0], (lines + 1) * blocksize[1]), blocksize=blocksize, dtype=dtype)
    made.indptr = np.searchsorted(line, np.arange(lines + 1)).astype(index)
    made.indices = rng.integers(lines + 1, size=blocks).astype(index)
    made.data = rng.standard_normal((blocks, *blocksize)).astype(dtype)
    made.data[rng.random(made.data.shape) < 0.3] = 0
    return made


def sizes_of(matrix):
    """A copy with absolute values: ``abs`` would sum duplicates first."""
    made = matrix.copy()
    made.data = np.abs(matrix.data)
    return made


@settings(max_examples=200, deadline=None)
@given(
    blocksize=st.sampled_from(SQUARES + OTHERS),
    lines=st.integers(1, 12),
    blocks=st.integers(0, 60),
    dtype=st.sampled_from([np.float32, np.float64]),
    index=st.sampled_from([np.int32, np.int32, np.int64]),
    columns=st.sampled_from([None, 1, 2, 3, 5, 8, 16, 31, 70]),
    order=st.sampled_from("CFS"),
    special=st.sampled_from([None, np.nan, np.inf, -np.inf]),
    name=st.sampled_from(["bsr_array", "bsr_matrix"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_products_are_scipys(blocksize, lines, blocks, dtype, index, columns, order, special, name, seed):
    rng = np.random.default_rng(seed)
    theirs = made_of(getattr(sp, name), blocksize, lines, blocks, rng, dtype, index)
    ours = ts.asarray(theirs)
    assert type(ours).__module__ == "tensorwise.sparse.arrays"
    operands = []
    for length in theirs.shape[::-1]:
        shape = (length,) if columns is None else (length, columns)
        kind = rng.choice([dtype, np.float64, np.float32, np.int64])
        x = np.array(10 * rng.standard_normal((2 * length, *shape[1:])), kind)[::2]
        operands.append(x if order == "S" else np.array(x, order=order))
    if special is not None:
        if blocks:
            theirs.data[rng.integers(blocks), 0, 0] = special  # ours shares the array
        elif operands[0].dtype.kind == "f":
            operands[0][rng.integers(len(operands[0]))] = special  # an infinity meets zeros inside of blocks
    x, y = operands
    sizes, terms = sizes_of(theirs), max(1, theirs.nnz)
    with np.errstate(all="ignore"):
        for _ in range(CALLS):
            assert agrees(ours @ x, theirs @ x, sizes @ np.abs(x), terms)
            assert agrees(y.T @ ours, y.T @ theirs, np.abs(y.T) @ sizes, terms)
            assert agrees(ours.T @ y, theirs.T @ y, sizes.T @ np.abs(y), terms)


@pytest.mark.parametrize("where", ["matrix", "operand"])
@pytest.mark.parametrize("special", [np.nan, np.inf])
@pytest.mark.parametrize("size", BLOCK_LANES)
def test_zeros_inside_of_blocks_are_multiplied_as_by_scipy(size, special, where):
    theirs = made_of(sp.bsr_array, (size, size), 6, 20, np.random.default_rng(size))
    x, y = np.ones(theirs.shape[1]), np.ones(theirs.shape[0])
    theirs.data[:, -1, :] = 0
    if where == "matrix":
        theirs.data[::3, 0, -1] = special
    else:
        x[::2] = y[::2] = special
    ours = ts.asarray(theirs)
    for _ in range(CALLS):
        for made, expected in ((ours @ x, theirs @ x), (y @ ours, y @ theirs)):
            np.testing.assert_array_equal(np.isnan(made), np.isnan(expected))
            assert np.isnan(made).any() or (where, special) == ("matrix", np.inf)
    assert ours.tuning.products


@pytest.fixture(params=[2, 3, 8])
def pair(request):
    theirs = made_of(sp.bsr_array, (request.param,) * 2, 40, 300, np.random.default_rng(4))
    return ts.bsr_array(theirs.copy()), theirs, np.linspace(-1, 1, theirs.shape[1])


def test_kernels_of_ours_compute(pair):
    ours, theirs, x = pair
    y = np.ones(theirs.shape[0])
    for _ in range(CALLS):
        for operand in (x, np.stack([x, x], axis=1)):
            ours @ operand
        y @ ours
    assert [one.product for one in ours.tuning.products] == ["A @ x", "A @ X, 2 columns", "A.T @ x"]


def replace_by_other_blocks(a):
    wide = a.tobsr(blocksize=(1, 1))
    a.data, a.indices, a.indptr = wide.data, wide.indices, wide.indptr


def shrink_in_place(a):
    a.indptr[-1] = a.indptr[-2]


def forget_last_blocks(a):
    a.data = a.data[:-5].copy()
    a.indptr = np.minimum(a.indptr, len(a.data))


def change_values(a):
    a.data *= 2


def sort_and_sum(a):
    a.sum_duplicates()


def drop_zero_blocks(a):
    a.data[::3] = 0
    a.eliminate_zeros()


@pytest.mark.parametrize(
    "change",
    [
        replace_by_other_blocks,
        shrink_in_place,
        forget_last_blocks,
        change_values,
        sort_and_sum,
        drop_zero_blocks,
    ],
)
def test_changes_are_seen(pair, change):
    ours, theirs, x = pair
    y = np.ones(theirs.shape[0])
    for _ in range(CALLS):
        ours @ x
        y @ ours
    change(ours)
    change(theirs)
    for _ in range(CALLS):
        np.testing.assert_allclose(ours @ x, theirs @ x, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(y @ ours, y @ theirs, rtol=1e-12, atol=1e-12)


def test_arrays_that_lost_memory_are_not_read(pair):
    """An array resized in place has as many rows as before, but no longer a block in each."""
    ours, _, x = pair
    ours.data = ours.data.copy()
    for _ in range(CALLS):
        ours @ x
    product = ours.__dict__["_tensorwise"].last
    given, out = np.zeros(product.shape_given), np.empty(product.out_shape)
    assert product.run(given, out)
    ours.data.resize((len(ours.data), 1, 1), refcheck=False)
    assert not product.run(given, out)


def test_wrong_operands_are_refused_as_by_scipy(pair):
    ours, theirs, x = pair
    y = np.ones(theirs.shape[0])
    for _ in range(CALLS):
        ours @ x
        y @ ours
    for multiply in (lambda a: a @ x[:-1], lambda a: y[:-1] @ a, lambda a: 3.0 @ a, lambda a: a @ "text"):
        with pytest.raises(Exception) as theirs_raise:  # noqa: PT011 - whatever SciPy raises
            multiply(theirs)
        with pytest.raises(theirs_raise.type):
            multiply(ours)


def test_matmul_freeze_and_update(pair):
    ours, theirs, x = pair
    out = np.full(theirs.shape[0], np.nan)
    frozen = ours.freeze()
    assert frozen.blocksize == ours.blocksize
    for _ in range(CALLS):
        ours.matmul(x, out=out)
        np.testing.assert_allclose(out, theirs @ x)
        np.testing.assert_allclose(frozen @ x, theirs @ x)
    with pytest.raises(ValueError, match="read-only"):
        frozen.data *= 2
    for one in (ours, frozen):
        one.update(3 * theirs.data)
        np.testing.assert_allclose(one @ x, 3 * (theirs @ x))
        np.testing.assert_allclose(one.matmul(x, out=out, alpha=2.0), 6 * (theirs @ x))


def test_a_frozen_array_is_not_searched_for(pair, monkeypatch):
    monkeypatch.setenv("TENSORWISE_AUTOTUNE", "full")
    monkeypatch.setattr("tensorwise.sparse.frozen.SEARCH_NS", 0)
    monkeypatch.setattr("tensorwise.sparse.frozen.FormatSearch", None)  # a call would raise
    frozen, x = pair[0].freeze(), pair[2]
    for _ in range(CALLS):
        frozen @ x
    product = frozen.__dict__["_tensorwise"].last
    product.review()
    assert not any(way.is_packed for way in product.ways)


@pytest.mark.parametrize("size", BLOCK_LANES)
def test_results_are_equal_to_the_last_bit_on_any_number_of_threads(size, monkeypatch):
    theirs = made_of(sp.bsr_array, (size, size), 300, 3000, np.random.default_rng(1))
    x, y = np.linspace(-1, 1, theirs.shape[1]), np.linspace(-1, 1, theirs.shape[0])
    results = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(limits, "available_threads", lambda threads=threads: threads)
        monkeypatch.setattr(product_module, "THREADS_NS", 0)
        with ts.reproducible():
            ours = ts.asarray(theirs.copy())
            results.append((ours @ x, ours @ np.stack([x, -x], 1), y @ ours))
            assert ours.tuning.products
            assert max(way.threads for way in ours.__dict__["_tensorwise"].last.ways) == threads
    for others in results[1:]:
        for one, other in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("cls", [sp.bsr_array, sp.bsr_matrix])
def test_patched_scipy_multiplies_blocks(cls):
    theirs = made_of(cls, (3, 3), 20, 90, np.random.default_rng(2))
    x, y = np.ones(theirs.shape[1]), np.ones(theirs.shape[0])
    expected = theirs @ x, y @ theirs
    tw.patch_scipy()
    try:
        for _ in range(CALLS):
            np.testing.assert_allclose(theirs @ x, expected[0])
            np.testing.assert_allclose(y @ theirs, expected[1])
            if cls is sp.bsr_matrix:
                np.testing.assert_allclose(theirs * x, expected[0])
                np.testing.assert_allclose(y * theirs, expected[1])
    finally:
        tw.unpatch_scipy()
    assert theirs.__dict__["_tensorwise"].last.x_shape == x.shape


@pytest.mark.parametrize("shape", BLOCK_SHAPES, ids=lambda shape: shape.name)
def test_kernels_have_no_guards(shape, monkeypatch):
    """Blocks divide the shape and hold no padding: kernels neither compare with the extents nor watch for NaN."""
    plans = []
    monkeypatch.setattr(prepare, "kernel_text", lambda key: plans.append(key.plan) or ("", {}, ()))
    prepare.kernel_of(shape, "f64", "i32")
    (plan,) = plans
    guards = ("flag_", "< N_i)", "< N_k)", "min_i64")
    plain, careful = PlanKey(plan), PlanKey(replace(plan, filled=False, exact=frozenset()))
    assert plain != careful
    assert not any(guard in kernel_text(plain)[0] for guard in guards)
    assert sum(guard in kernel_text(careful)[0] for guard in guards) >= 2
