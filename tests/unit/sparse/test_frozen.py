"""Arrays that only `update` writes to."""

import copy
import pickle
import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise.sparse as ts
from tensorwise.errors import InputError
from tensorwise.sparse import frozen as frozen_arrays
from tensorwise.sparse import products
from tensorwise.sparse.limits import reproducible
from tensorwise.sparse.summary import ProductTuning
from tensorwise.sparse.ways import ProductWay


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(products, "MAKING_NS", 0)


@pytest.fixture(params=[np.float64, np.float32, np.complex128, np.int16])
def pair(request):
    rng = np.random.default_rng(1)
    theirs = sp.random_array((90, 70), density=0.1, format="csr", rng=rng)
    theirs.data = (10 * theirs.data).astype(request.param)
    return ts.csr_array(theirs).freeze(), theirs


def test_a_frozen_array_is_a_copy_that_cannot_be_written_to(pair):
    frozen, theirs = pair
    theirs.data[:] = 0
    assert frozen.sum() != 0
    for name in ("data", "indices", "indptr"):
        array = getattr(frozen, name)
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.setflags(write=True)
    with pytest.raises(ValueError, match=r"__imul__ would write to a frozen array: A.update"):
        frozen *= 2 if frozen.dtype.kind != "i" else np.int16(2)


@pytest.mark.parametrize("columns", [None, 8])
def test_update_is_seen_by_all_products(pair, columns):
    frozen, theirs = pair
    shape = () if columns is None else (columns,)
    x, y = np.ones((70, *shape), theirs.dtype), np.ones((90, *shape), theirs.dtype)
    for scale in (1, 2, 3):
        theirs.data = theirs.data * theirs.dtype.type(scale)
        frozen.update(theirs.data)
        for _ in range(3):
            np.testing.assert_allclose(frozen @ x, theirs @ x, rtol=1e-5)
            np.testing.assert_allclose(frozen.T @ y, theirs.T @ y, rtol=1e-5)


def test_update_takes_only_what_fits(pair):
    frozen, theirs = pair
    before = frozen.toarray()
    with pytest.raises(InputError, match="shape"):
        frozen.update(theirs.data[:-1])
    with pytest.raises(InputError, match="do not fit"):
        frozen.update(
            theirs.data.astype(np.complex128) if theirs.dtype.kind != "c" else np.full(theirs.nnz, "a")
        )
    np.testing.assert_array_equal(frozen.toarray(), before)


def test_update_of_an_array_that_is_not_frozen_writes_in_place():
    matrix = ts.csr_array(np.eye(3))
    data = matrix.data
    matrix.update(np.arange(3))
    assert matrix.data is data
    np.testing.assert_array_equal(matrix @ np.ones(3), [0, 1, 2])
    matrix.data = np.broadcast_to(1.0, 3)
    with pytest.raises(InputError, match="freeze"):
        matrix.update(np.zeros(3))


def test_a_copy_is_not_frozen(pair):
    frozen, theirs = pair
    by_pickle = [pickle.loads(pickle.dumps(frozen, protocol)) for protocol in (2, 5)]  # noqa: S301 - our own, made here
    for made in (frozen.copy(), copy.copy(frozen), copy.deepcopy(frozen), *by_pickle):
        made.update(np.full(made.nnz, 2, made.dtype))
        assert made.sum() == 2 * made.nnz
        made.data[:] = 0
        assert made.sum() == 0
    np.testing.assert_array_equal(frozen.toarray(), theirs.toarray())


def test_empty_and_one_dimensional():
    assert ts.csr_array((3, 4)).freeze().nnz == 0
    with pytest.raises(InputError, match="two dimensions"):
        ts.csr_array(np.ones(4)).freeze()


def test_an_array_without_entries_can_be_frozen_and_updated():
    frozen = ts.csr_array((3, 4)).freeze()
    frozen.update(np.empty(0))
    assert (frozen @ np.ones(4)).tolist() == [0, 0, 0]
    assert not frozen.data.flags.writeable


@pytest.mark.parametrize(("call_s", "begins"), [(1e-5, True), (0.1, False)])
def test_a_search_begins_once_its_budget_suffices(monkeypatch, call_s, begins):
    arrays = frozen_arrays.FrozenArrays(np.ones(1), np.zeros(1, np.int32), np.array([0, 1], np.int32))
    monkeypatch.setattr(frozen_arrays, "machine_is_busy", lambda: None)
    monkeypatch.setattr(frozen_arrays.FrozenArrays, "_begin", lambda *_: SimpleNamespace(poll=lambda: None))
    way = ProductWay("in place", 2, False)
    product = SimpleNamespace(gather=True, columns=8, in_place=way, time_call=lambda way: call_s)
    for spent_s, expected in ((0.9, []), (1.1, None if begins else []), (20.0, None)):
        product.spent_ns = int(1e9 * spent_s)
        assert arrays.look(product, None) == expected


@pytest.mark.parametrize("writes", [0, 1])
def test_packed_forms_of_older_values_are_stale(monkeypatch, writes):
    arrays = frozen_arrays.FrozenArrays(np.ones(1), np.zeros(1, np.int32), np.array([0, 1], np.int32))
    search = SimpleNamespace(poll=lambda: [], cpu_s=1.0, note="")
    way = ProductWay("packed", 1, False)
    monkeypatch.setattr(frozen_arrays, "machine_is_busy", lambda: None)
    monkeypatch.setattr(frozen_arrays.FrozenArrays, "_begin", lambda *_: search)
    monkeypatch.setattr(frozen_arrays.FrozenArrays, "_ways", lambda *_: [way])
    product = SimpleNamespace(
        gather=True, columns=8, spent_ns=10**15, in_place=way, time_call=lambda way: 1e-3
    )
    assert arrays.look(product, None) is None
    for _ in range(writes):
        arrays.write(np.zeros(1))
    assert arrays.look(product, None) == [way]
    assert way.is_stale == bool(writes)


@pytest.mark.parametrize(("call_s", "tried"), [(2e-5, True), (5e-6, False), (-3e-9, True)])
def test_only_forms_that_may_be_faster_are_tried(monkeypatch, call_s, tried):
    """A negative time says that the way in use may not run now, and nothing of its speed."""
    arrays = frozen_arrays.FrozenArrays(np.ones(1), np.zeros(1, np.int32), np.array([0, 1], np.int32))
    way, found = ProductWay("packed", 1, False), SimpleNamespace(expected_s=1e-5)
    monkeypatch.setattr(frozen_arrays, "way_packed", lambda *_: way)
    product = SimpleNamespace(
        ways=[], current=way, library=None, refused=frozenset(), time_call=lambda way: call_s
    )
    table = SimpleNamespace(data=np.ones(1), products={})
    assert arrays._ways([found], product, table) == ([way] if tried else [])


@pytest.mark.parametrize(
    "cls", [ts.csr_array, ts.csc_array, ts.csr_matrix, partial(ts.bsr_array, blocksize=(1, 1))]
)
@pytest.mark.parametrize("shape", [(2, 2), (6, 6), (4, 2), (2, 4)])
def test_a_frozen_array_that_is_resized_stays_as_it_was(cls, shape):
    frozen = cls(np.arange(1.0, 17.0).reshape(4, 4)).freeze()
    with pytest.raises(ValueError, match=r"resize would write to a frozen array: A.update.*A.copy\(\)"):
        frozen.resize(shape)
    np.testing.assert_array_equal(frozen.toarray(), np.arange(1.0, 17.0).reshape(4, 4))
    copied = frozen.copy()
    copied.resize(shape)
    assert copied.shape == shape


def test_a_copy_shares_arrays_that_replaced_those_of_a_frozen_array():
    frozen = ts.csr_array(np.eye(3)).freeze()
    frozen.data = np.ones(6)[::-2]
    shallow = copy.copy(frozen)
    assert shallow.data is frozen.data
    assert shallow.indices.flags.writeable
    assert not np.shares_memory(shallow.indices, frozen.indices)


@pytest.mark.parametrize("cls", [ts.csr_array, ts.csc_array, ts.csr_matrix])
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("__setitem__", lambda A: A.__setitem__((0, 1), 7.0)),  # stored
        ("__imul__", lambda A: A.__imul__(2)),
        ("__itruediv__", lambda A: A.__itruediv__(2)),
        ("eliminate_zeros", lambda A: A.eliminate_zeros()),
        ("sum_duplicates", lambda A: A.sum_duplicates()),
        ("sort_indices", lambda A: A.sort_indices()),
    ],
)
def test_a_change_in_place_of_a_frozen_array_names_update_and_copy(cls, name, change):
    data, indices = np.array([1.0, 0.0, 2.0, 3.0]), np.array([2, 1, 1, 2], np.int32)
    arrays = data, indices, np.array([0, 4, 4, 4, 4], np.int32)
    ordinary = cls(arrays, shape=(4, 4))
    frozen = ordinary.freeze()
    before = frozen.toarray()
    with pytest.raises(ValueError, match=rf"{name} would write to a frozen array: A.update.*A.copy\(\)"):
        change(frozen)
    np.testing.assert_array_equal(frozen.toarray(), before)
    change(frozen.copy())


def test_what_has_nothing_to_do_is_done_to_frozen_arrays():
    frozen = ts.csr_array(np.eye(3)).freeze()
    frozen.sort_indices()
    frozen.sum_duplicates()
    frozen += ts.csr_array(np.eye(3))  # another array
    assert frozen.data.flags.writeable


def test_update_takes_values_and_no_array():
    matrix = ts.csr_array(np.eye(3))
    for one in (matrix, matrix.freeze()):
        with pytest.raises(TypeError, match=r"got csr_array; pass its values, A.update\(B.data\)"):
            one.update(2 * matrix)


def test_what_a_search_does_is_said(monkeypatch):
    frozen = ts.csr_array(np.eye(30)).freeze()
    assert frozen @ np.ones(30) is not None
    (told,) = frozen.tuning.products
    assert re.fullmatch(
        r"no search of formats yet: it begins when calls have taken 500 ms, 500 ms more", told.search
    )
    table = frozen.__dict__["_tensorwise"].table
    product = table.products[True, None]
    state = table.frozen._states.setdefault((True, None), frozen_arrays._Search())

    class Running:
        note, cpu_s, found = "", 0.25, None

        def poll(self):
            return self.found

    state.running = running = Running()
    assert "is running (250 ms of CPU time so far)" in str(frozen.tuning)
    running.found, running.note = [], "there is too little memory"
    assert "has ended; the next calls try" in str(frozen.tuning)
    assert table.frozen.look(product, table) == []
    said = "a search of formats took 250 ms of CPU time and found nothing better (there is too little memory)"
    assert said in str(frozen.tuning)
    monkeypatch.setenv("TENSORWISE_AUTOTUNE", "off")
    state.outcome = ""
    assert "no search of formats: TENSORWISE_AUTOTUNE is off" in str(frozen.tuning)


def test_an_array_that_is_not_frozen_says_that_it_is_not_searched():
    assert "A.freeze() returns a copy that is searched" in said(ts.csr_array(np.eye(30)))
    assert "BSR arrays have no packed forms" in said(ts.bsr_array(np.eye(4), blocksize=(2, 2)))


def said(matrix, x=None):
    assert matrix @ (np.ones(matrix.shape[1]) if x is None else x) is not None
    return str(matrix.tuning)


def test_who_computes_and_how_to_get_our_kernels_is_said():
    """Nothing is said of seconds that nobody measured."""
    for made, why in (
        (
            ts.csr_array(np.eye(3, dtype=np.int64)),
            "values are int64; kernels of Tensorwise read float64 and float32",
        ),
        (ts.csr_array(np.eye(3, dtype=complex)), "values are complex128; kernels"),
        (
            ts.bsr_array(np.eye(5), blocksize=(5, 5)),
            "blocks of 5 x 5 and int32 indices; .* of 1, 2, 3, 4, 6, 8 and",
        ),
    ):
        text = said(made)
        assert re.search(f"SciPy computes all products: its? .*{why}", text), text
        assert "SciPy took" not in text
    text = said(ts.csr_array(np.eye(3, dtype=np.float32)), np.ones(3))
    assert "SciPy multiplied operands of float64 by these values of float32: convert the operand" in text
    assert "SciPy took" not in text
    text = said(ts.csr_array(np.eye(3)), np.ones(3, complex))
    assert "of complex128 by these values of float64: kernels of Tensorwise give float32 and float64" in text


def test_times_are_in_units_that_suit_them():
    told = ProductTuning("A @ x", "in place, 1 thread", 2.5, {"in place, 1 thread": 0.0123, "other": None})
    assert str(told) == "A @ x: in place, 1 thread; 2.50 s in calls; tried: in place, 1 thread 12.3 ms"


def test_nothing_is_searched_where_equal_bits_are_asked_for(monkeypatch):
    monkeypatch.setattr(frozen_arrays, "SEARCH_NS", 0)
    monkeypatch.setattr(frozen_arrays, "needed_s", lambda *_: 0.0)
    monkeypatch.setattr(frozen_arrays, "background_work", lambda: None)
    monkeypatch.setattr(frozen_arrays, "machine_is_busy", lambda: None)
    begun = []
    monkeypatch.setattr(
        frozen_arrays.FrozenArrays, "_begin", lambda *_: begun.append(1) or SimpleNamespace(poll=lambda: None)
    )
    frozen = ts.csr_array(sp.random_array((30, 30), density=0.1, rng=np.random.default_rng(0))).freeze()
    frozen @ np.ones(30)
    table = frozen.__dict__["_tensorwise"].table
    (product,) = table.products.values()
    with reproducible():
        assert table.frozen.look(product, table) == []
        assert "equal bits are asked for" in str(frozen.tuning)
    assert not begun
    monkeypatch.setattr(frozen_arrays, "sliced_ways", lambda *_: [])
    assert table.frozen.look(product, table) is None
    assert begun
