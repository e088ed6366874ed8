"""Products of our arrays and of patched ones, against SciPy's."""

import copy
import os
import pickle
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorwise.sparse as ts
from tensorwise.errors import InputError
from tensorwise.sparse import products
from tensorwise.sparse.products import MOST_PRODUCTS, MOST_SCATTERS

CLASSES = (ts.csr_array, ts.csc_array, ts.csr_matrix, ts.csc_matrix)
CALLS = 4
"""Enough for a product that pays at once to be made, and computed by the quick way."""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """Kernels of ours from the first call on: what SciPy computes meanwhile would hide them."""
    monkeypatch.setattr(products, "MAKING_NS", 0)


def agrees(ours, theirs, magnitude, terms):
    """Whether two products differ by rounding only; NaN and Inf stand at the same places."""
    ours, theirs, magnitude = (np.asarray(one) for one in (ours, theirs, magnitude))
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    finite = np.isfinite(theirs)
    same = np.isnan(ours) == np.isnan(theirs)
    same &= np.where(np.isinf(theirs), ours == theirs, True)
    bound = 2 * (terms + 2) * np.finfo(theirs.dtype).eps * magnitude
    close = np.abs(np.where(finite, ours, 0) - np.where(finite, theirs, 0)) <= np.where(finite, bound, 0)
    return bool(np.all(same & (close | ~finite)))


@st.composite
def matrices(draw):
    """A CSR or CSC matrix with unsorted and repeated coordinates, and its SciPy twin."""
    rows, columns = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    count = draw(st.integers(0, 200))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    cls = draw(st.sampled_from(CLASSES))
    lines, minor = (rows, columns) if cls in (ts.csr_array, ts.csr_matrix) else (columns, rows)
    line = np.sort(rng.integers(lines, size=count))
    index = draw(st.sampled_from([np.int32, np.int64]))
    indptr = np.searchsorted(line, np.arange(lines + 1)).astype(index)
    indices = rng.integers(minor, size=count).astype(index)
    data = rng.standard_normal(count).astype(draw(st.sampled_from([np.float32, np.float64])))
    if draw(st.booleans()) and count:
        data[rng.integers(count)] = draw(st.sampled_from([np.nan, np.inf, -np.inf, 0.0]))
    theirs = getattr(sp, cls.__name__)((rows, columns), dtype=data.dtype)
    theirs.data, theirs.indices, theirs.indptr = data, indices, indptr
    return ts.asarray(theirs), theirs, rng


@settings(max_examples=150, deadline=None)
@given(
    matrices(),
    st.sampled_from([None, 1, 2, 3, 4, 5, 8, 16, 31, 40, 70]),
    st.sampled_from("CFS"),
    st.booleans(),
)
def test_products_are_scipys(made, columns, order, from_the_left):
    ours, theirs, rng = made
    length = theirs.shape[0] if from_the_left else theirs.shape[1]
    shape = (length,) if columns is None else (length, columns)
    dtype = rng.choice([theirs.dtype.type, np.float64, np.float32, np.int64])
    x = (10 * rng.standard_normal((2 * shape[0], *shape[1:]))).astype(dtype)[::2] if order == "S" else None
    if x is None:
        x = np.array(10 * rng.standard_normal(shape), dtype, order=order)
    terms = max(1, theirs.nnz)
    sizes = theirs.copy()
    sizes.data = np.abs(sizes.data)  # abs(theirs) would sum duplicates first, in place
    for _ in range(CALLS):
        if from_the_left:
            assert agrees(x.T @ ours, x.T @ theirs, np.abs(x.T) @ sizes, terms)
            assert agrees(ours.T @ x, theirs.T @ x, sizes.T @ np.abs(x), terms)
        else:
            assert agrees(ours @ x, theirs @ x, sizes @ np.abs(x), terms)
            assert agrees(ours.dot(x), theirs.dot(x), sizes @ np.abs(x), terms)


@pytest.fixture
def pair():
    rng = np.random.default_rng(3)
    theirs = sp.random_array((300, 200), density=0.05, format="csr", rng=rng)
    return ts.csr_array(theirs.copy()), theirs, rng.standard_normal(200)


@pytest.mark.parametrize("cls", CLASSES)
def test_classes_are_scipys_and_stay_in_the_family(cls, pair):
    ours = cls(pair[1])
    assert sp.issparse(ours)
    assert isinstance(ours, getattr(sp, cls.__name__))
    for other in (
        ours.T,
        ours.tocsr(),
        ours.tocsc(),
        ours.tocoo(),
        ours.tobsr(),
        ours + ours,
        ours[:5],
        ours.copy(),
    ):
        assert type(other).__module__ == "tensorwise.sparse.arrays"
    assert isinstance(ours, sp.spmatrix) == isinstance(ours.T, sp.spmatrix)


def test_a_coo_array_has_items_where_scipys_has(pair):
    """Since SciPy 1.16; before, indexing raises SciPy's own TypeError."""
    ours, theirs = ts.coo_array(pair[1]), sp.coo_array(pair[1])
    for key in ((slice(5), slice(3, None)), 2):
        try:
            expected = theirs[key]
        except TypeError as error:
            with pytest.raises(TypeError, match=str(error)):
                ours[key]
        else:
            assert type(ours[key]).__module__ == "tensorwise.sparse.arrays"
            np.testing.assert_array_equal(ours[key].toarray(), expected.toarray())


def test_the_transpose_shares_arrays_and_what_is_known(pair):
    ours, theirs, _ = pair
    y = np.ones(300)
    for _ in range(CALLS):
        assert np.allclose(ours.T @ y, theirs.T @ y)
    assert ours.T.data is ours.data
    assert ours.T.T.shape == ours.shape
    assert "A.T @ x" in str(ours.tuning)
    np.testing.assert_array_equal(ours.T.todense(), theirs.T.todense())


def test_entries_beyond_the_last_line_are_cut_from_a_transpose(pair):
    ours, theirs, _ = pair
    for one in (ours, theirs):
        one.indptr[-1] -= 2
    assert len(ours.T.data) == len(theirs.T.data) == len(ours.data) - 2


def test_a_matrix_whose_arrays_differ_in_length_has_no_transpose(pair):
    ours, theirs, _ = pair
    for one in (ours, theirs):
        one.data = np.append(one.data, 1.0)
        with pytest.raises(ValueError, match="same size"):
            one.T  # noqa: B018 - raises


def change_values(a):
    a.data[:] = a.data * 2


def change_array(a):
    a.data = a.data * 3


def change_structure(a):
    a[0, 0] = 7.0


def change_shape(a):
    a.resize((250, 150))


def enlarge(a):
    a.resize((300, 260))


def drop_entries(a):
    a.data[::3] = 0
    a.eliminate_zeros()


def shrink_in_place(a):
    a.indptr[-1] = a.indptr[-2]


@pytest.mark.parametrize(
    "change",
    [change_values, change_array, change_structure, change_shape, enlarge, drop_entries, shrink_in_place],
)
@pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")
def test_changes_are_seen(pair, change):
    ours, theirs, x = pair
    for _ in range(CALLS):
        ours @ x
        ours.T @ np.ones(300)
    change(ours)
    change(theirs)
    for matrix, twin in ((ours, theirs), (ours.T, theirs.T)):
        operand = np.linspace(-1, 1, twin.shape[1])
        for _ in range(CALLS):
            np.testing.assert_allclose(matrix @ operand, twin @ operand, rtol=1e-12, atol=1e-12)


def test_a_wrong_operand_is_refused_as_by_scipy(pair):
    ours, theirs, x = pair
    for _ in range(CALLS):
        ours @ x
    for wrong in (x[:-1], x[:, None].T, "text", 3.0):
        with pytest.raises(Exception) as theirs_raise:  # noqa: PT011 - whatever SciPy raises
            theirs @ wrong
        with pytest.raises(theirs_raise.type):
            ours @ wrong


def again(matrix):
    return pickle.loads(pickle.dumps(matrix))  # noqa: S301 - our own, made in this line


def test_copies_and_pickles_begin_anew(pair):
    ours, theirs, x = pair
    for _ in range(CALLS):
        ours @ x
    for made in (copy.copy(ours), copy.deepcopy(ours), again(ours), ours.copy()):
        assert type(made) is ts.csr_array
        made.data = made.data * 2
        np.testing.assert_allclose(made @ x, 2 * (theirs @ x))
        np.testing.assert_allclose(ours @ x, theirs @ x)


def test_matmul_writes_into_out(pair):
    ours, theirs, x = pair
    expected = theirs @ x
    out = np.full(300, np.nan)
    for _ in range(CALLS):
        assert ours.matmul(x, out=out) is out
        np.testing.assert_allclose(out, expected)
    ours.matmul(x, out=out, alpha=2.0, beta=0.5)
    np.testing.assert_allclose(out, 2.5 * expected)
    np.testing.assert_allclose(ours.matmul(x, alpha=3.0), 3 * expected)
    square = ts.csr_array(theirs[:200])
    for _ in range(CALLS):
        aliased = x.copy()
        square @ aliased
        square.matmul(aliased, out=aliased)
        np.testing.assert_allclose(aliased, expected[:200])


def test_matmul_writes_columns_in_fortran_order_into_out(pair):
    ours, theirs, x = pair
    columns = np.asfortranarray(np.stack([x, -x, 2 * x], 1))
    square = ts.csr_array(theirs[:200])
    for operand in (columns, np.repeat(columns, 2, 1)[:, ::2]):
        out = np.full((300, 3), np.nan)
        for _ in range(CALLS):
            assert ours.matmul(operand, out=out) is out
            np.testing.assert_allclose(out, theirs @ operand)
            memory = columns.copy(order="F")
            assert square.matmul(memory, out=memory) is memory
            np.testing.assert_allclose(memory, theirs[:200] @ columns)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"beta": 1.0}, "pass out="),
        ({"out": np.zeros(3)}, "shape"),
        ({"out": np.zeros(300, np.float32)}, "float64"),
        ({"out": [0.0] * 300}, "list"),
        ({"out": np.broadcast_to(np.zeros(1), (300,))}, "read-only"),
    ],
)
def test_matmul_refuses(pair, options, said):
    ours, _, x = pair
    with pytest.raises(InputError, match=said):
        ours.matmul(x, **options)


def test_threads_may_multiply_and_replace_arrays_at_once(pair):
    ours, theirs, x = pair
    y = np.ones(300)
    scales, wrong = (1.0, 2.0), []
    expected = [[scale * one for scale in scales] for one in (theirs @ x, theirs.T @ y)]

    def multiply():
        for _ in range(2000):
            for made, allowed in zip((ours @ x, ours.T @ y), expected):
                if not any(np.allclose(made, one) for one in allowed):
                    wrong.append(made)

    def replace():
        for step in range(2000):
            ours.data = theirs.data * scales[step % 2]

    threads = [threading.Thread(target=one) for one in (multiply, multiply, replace)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_multiplies(pair):
    ours, theirs, x = pair
    for _ in range(CALLS):
        ours @ x
    child = os.fork()
    if not child:
        os._exit(
            0
            if np.allclose(ours @ x, theirs @ x)
            and np.allclose(ours.T @ np.ones(300), theirs.T @ np.ones(300))
            else 1
        )
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("given", [sp.dok_array((4, 5)), sp.lil_matrix((4, 5)), sp.coo_array((4, 5))])
def test_asarray_takes_every_format(given):
    assert ts.asarray(given).shape == (4, 5)
    assert type(ts.asarray(given)).__module__ == "tensorwise.sparse.arrays"


def test_asarray_shares_arrays_and_refuses_others(pair):
    _, theirs, _ = pair
    made = ts.asarray(theirs)
    assert made.data is theirs.data
    assert ts.asarray(made) is made
    with pytest.raises(InputError, match="ndarray"):
        ts.asarray(np.eye(2))


@pytest.mark.parametrize("dtype", [np.complex128, np.int32, bool, np.longdouble])
def test_types_without_kernels_are_scipys(dtype, pair):
    theirs = abs(pair[1]).astype(dtype)
    ours = ts.asarray(theirs.copy())
    for operand in (pair[2], pair[2].astype(np.complex64)):
        for _ in range(CALLS):
            made, expected = ours @ operand, theirs @ operand
            assert made.dtype == expected.dtype
            np.testing.assert_array_equal(made, expected)


def test_many_numbers_of_columns_in_turn_are_all_kept():
    matrix = ts.csr_array(sp.random_array((50, 40), density=0.1, rng=np.random.default_rng(0)))
    rng = np.random.default_rng(1)
    for _ in range(2):
        for columns in range(2, 40):
            matrix @ rng.standard_normal((40, columns))
    table = matrix.__dict__["_tensorwise"].table
    known = dict(table.products)
    assert len(known) == 38
    matrix @ rng.standard_normal((40, 7))
    assert table.products == known, "nothing is made anew"
    for columns in range(40, 200):
        matrix @ rng.standard_normal((40, columns))
    matrix @ np.ones(40)
    assert len(table.products) == MOST_PRODUCTS + 1, "those with a vector stay"


def test_products_that_scatter_are_fewer():
    """They may hold outputs for each thread."""
    matrix = ts.csc_array(sp.random_array((400, 400), density=0.05, rng=np.random.default_rng(0)))
    for columns in range(1, 40):
        matrix @ np.ones((400, columns))
        np.ones((columns, 400)) @ matrix
    kept = list(matrix.__dict__["_tensorwise"].table.products)
    assert sum(not gather for gather, columns in kept if columns) == MOST_SCATTERS
    assert sum(gather for gather, columns in kept if columns) == 38


def test_a_product_that_is_forgotten_takes_no_more_calls():
    """It would not learn of new values."""
    frozen = ts.csr_array(sp.random_array((50, 40), density=0.1, rng=np.random.default_rng(0))).freeze()
    mine, x = frozen.T, np.ones((50, 2))
    first = mine @ x
    forgotten = mine.__dict__["_tensorwise"].last
    assert forgotten.x_shape == x.shape
    mine.dot(np.ones((50, 2)))
    for columns in range(3, 3 + MOST_SCATTERS):
        frozen.T @ np.ones((50, columns))
    assert forgotten.x_shape is None
    forgotten.go_on_with(forgotten.current)
    assert forgotten.x_shape is None
    frozen.update(2 * frozen.data)
    np.testing.assert_allclose(mine @ x, 2 * first, rtol=1e-14)
