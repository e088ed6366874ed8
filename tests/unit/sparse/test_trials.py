"""Which way a product goes, as calls are timed."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise
import tensorwise.sparse as ts
from tensorwise.errors import InputError
from tensorwise.sparse import limits, products
from tensorwise.sparse import product as product_module
from tensorwise.sparse.trials import (
    CALLS_EACH,
    COUNTED_NS,
    FIRST_NS,
    MOST_TIMES,
    TURNS,
    WayTrial,
)
from tensorwise.sparse.ways import SETTLE_NS, ProductWay


def ways(count, same_bits=True):
    return [ProductWay(f"way {number}", number + 1, same_bits) for number in range(count)]


def run(trial, takes_ns):
    """Let a trial go to its end; each way takes what ``takes_ns`` says. Return how often each was called."""
    calls = dict.fromkeys(takes_ns, 0)
    for _ in range(1000):
        way = trial.next_way()
        if way is None:
            return calls
        calls[way] += 1
        trial.note(way, takes_ns[way])
    raise AssertionError("the trial does not end")


LONG = SETTLE_NS + 1
"""Nanoseconds of calls of which one is enough to settle."""


def test_the_faster_way_stays():
    one, two = ways(2)
    trial = WayTrial(one, [two])
    calls = run(trial, {one: 2 * LONG, two: LONG})
    assert trial.fastest() is two
    assert calls == {one: TURNS * CALLS_EACH, two: TURNS * (CALLS_EACH + 1)}


def test_a_way_settles_before_its_calls_count():
    """Its threads have fallen asleep while another way ran on one, and have other data in their caches."""
    one, two = ways(2)
    trial, before, turn_ns = WayTrial(one, [two]), one, 0
    while (way := trial.next_way()) is not None:
        turn_ns = 0 if way is not before else turn_ns
        took = 7000 if way is one else 20_000 if turn_ns < SETTLE_NS else 5000
        trial.note(way, took)
        turn_ns, before = turn_ns + took, way
    assert trial.fastest() is two
    assert set(two.took_ns) == {5000}
    assert sum(two.took_ns) >= COUNTED_NS


def test_the_better_turn_of_a_way_counts():
    one, two = ways(2)
    trial, turns, before = WayTrial(one, [two]), {one: 0, two: 0}, None
    while (way := trial.next_way()) is not None:
        turns[way] += way is not before
        disturbed = turns[way] == 2
        trial.note(way, (1.4 if disturbed else 1) * (3 * LONG if way is one else 2.5 * LONG))
        before = way
    assert turns == {one: TURNS, two: TURNS}
    assert (set(one.took_ns), set(two.took_ns)) == ({3 * LONG}, {2.5 * LONG})
    assert trial.fastest() is two


@pytest.mark.parametrize("takes_ns", [(1000, 600), (20_000, 12_000), (200_000, 120_000)])
@pytest.mark.parametrize("which", range(4))
def test_one_call_that_is_disturbed_does_not_decide(takes_ns, which):
    """Neither while it settles nor when it counts, in the first turn."""
    one, two = ways(2)
    settles = max(1, -(-SETTLE_NS // takes_ns[1]))
    trial, noted = WayTrial(one, [two]), 0
    while (way := trial.next_way()) is not None:
        disturbed = way is two and noted == (0, settles - 1, settles, settles + 1)[which]
        noted += way is two
        trial.note(way, 4_000_000 if disturbed else takes_ns[way is two])
    assert trial.fastest() is two


@pytest.mark.parametrize("takes_ns", [(0, 1000), (1000, 0), (0, 0)])
def test_a_clock_that_stands_still_does_not_keep_a_trial_from_ending(takes_ns):
    one, two = ways(2)
    trial = WayTrial(one, [two])
    for _ in range(4 * TURNS * MOST_TIMES):
        if (way := trial.next_way()) is None:
            break
        trial.note(way, takes_ns[way is two])
    else:
        raise AssertionError("the trial does not end")
    assert trial.fastest() is (two if takes_ns == (1000, 0) else one)


def test_a_trial_is_given_up_when_only_other_threads_compute():
    one, two = ways(2)
    trial = WayTrial(one, [two])
    with ThreadPoolExecutor(1) as elsewhere:
        found = [elsewhere.submit(trial.next_way).result() for _ in range(MOST_TIMES)]
    assert found == [one] * (MOST_TIMES - 1) + [None]
    assert trial.fastest() is one


def test_a_way_that_is_hardly_faster_does_not_replace_the_current_one():
    one, two = ways(2)
    trial = WayTrial(one, [two])
    run(trial, {one: 1000, two: 990})
    assert trial.fastest() is one


def test_a_way_that_is_clearly_slower_is_called_twice_at_most():
    one, two, three = ways(3)
    trial = WayTrial(one, [two, three])
    calls = run(trial, {one: 2 * LONG, two: 50 * LONG, three: LONG})
    assert calls[two] == 2
    assert trial.fastest() is three


def test_a_trial_of_a_slow_way_costs_little_of_what_was_spent_before():
    one, two = ways(2)
    trial = WayTrial(one, [two])
    takes_ns = {one: 2000, two: 20_000}
    calls = run(trial, takes_ns)
    assert calls[two] * (takes_ns[two] - takes_ns[one]) < FIRST_NS / 2


def test_a_way_that_is_dropped_in_a_call_of_a_solver_gives_way_to_the_current_one():
    one, two, three = ways(3, same_bits=False)
    begun, call, after = object(), object(), object()
    trial = WayTrial(one, [two, three], begun)
    for _ in range(CALLS_EACH):
        trial.note(trial.next_way(begun), LONG)
    assert trial.next_way(call) is two
    trial.drop(two)
    assert trial.next_way(call) is one
    trial.drop(three)
    assert trial.next_way(call) is one
    assert trial.next_way(after) is None


def test_a_trial_ends_where_the_current_way_may_not_run():
    """As under a limit of threads; a slower way that may run must not replace it."""
    one, two = ways(2)
    trial = WayTrial(one, [two])
    trial.drop(one)
    trial.note(two, LONG)
    assert trial.next_way() is None
    assert trial.fastest() is one


def test_other_threads_drop_nothing():
    """A scatter on several threads is refused while another thread is in it."""
    one, two = ways(2)
    trial = WayTrial(one, [two])
    with ThreadPoolExecutor(1) as elsewhere:
        for way in (one, two):
            elsewhere.submit(trial.drop, way).result()
    run(trial, {one: 2 * LONG, two: LONG})
    assert trial.fastest() is two


def test_a_way_that_may_not_run_is_dropped():
    one, two = ways(2)
    trial = WayTrial(one, [two])
    trial.drop(two)
    assert trial.next_way() is None
    assert trial.fastest() is one


def test_a_call_that_ends_after_its_turn_does_not_count():
    """A call inside of another, as in a signal handler, may end the turn of the outer one."""
    one, two = ways(2)
    trial = WayTrial(one, [two])
    outer = trial.next_way()
    for _ in range(CALLS_EACH):
        trial.note(trial.next_way(), LONG)
    assert trial.next_way() is two
    trial.note(outer, 90 * LONG)
    trial.note(two, LONG)
    takes_ns = {one: 2 * LONG, two: LONG}
    calls = run(trial, takes_ns)
    assert calls[two] == TURNS * (CALLS_EACH + 1) - 1
    trial.note(one, LONG)  # the trial is over


def test_a_way_that_is_dropped_after_a_turn_does_not_stay():
    one, two, three = ways(3)
    trial = WayTrial(one, [two, three])
    takes_ns = {one: 3 * LONG, two: LONG, three: 2 * LONG}
    while (way := trial.next_way()) is not three:
        trial.note(way, takes_ns[way])
    trial.drop(two)
    assert run(trial, takes_ns)[two] == 0
    assert trial.fastest() is three


@pytest.fixture
def patched():
    tensorwise.patch_scipy()
    yield
    tensorwise.unpatch_scipy()


@pytest.fixture
def product(monkeypatch):
    """A product of a scatter, whose ways differ in their bits, that is about to try the other way."""
    monkeypatch.setattr(products, "MAKING_NS", 0)
    monkeypatch.setattr(product_module, "allowed_threads", lambda: 2)
    rng = np.random.default_rng(0)
    matrix = ts.csc_array(sp.random_array((2000, 2000), density=0.02, rng=rng))
    x = rng.standard_normal(2000)
    for _ in range(3):
        matrix @ x
    found = matrix.__dict__["_tensorwise"].last
    found._use_threads()
    found._next_trial_ns = 0
    found.left_ns = 0
    return matrix, x, found


def test_a_trial_is_made_on_calls_and_ends(product):
    matrix, x, found = product
    matrix @ x
    assert found.x_shape is None
    for _ in range(2 * TURNS * (CALLS_EACH + 1 + (SETTLE_NS + COUNTED_NS) // 1000)):
        matrix @ x
    assert found.x_shape == (2000,)
    assert all(way.took_ns for way in found.ways)


def test_a_call_of_a_solver_keeps_its_way():
    one, two = ways(2, same_bits=False)
    begun, *calls = (object() for _ in range(100))
    trial = WayTrial(one, [two], begun)
    for _ in range(20):
        assert trial.next_way(begun) is one
        trial.note(one, 2 * LONG)
    used = []
    for call in calls:
        found = {trial.next_way(call) for _ in range(5)}
        assert len(found) == 1
        used += found
        if found == {None}:
            break
        for _ in range(2):
            trial.note(next(iter(found)), LONG if found == {two} else 2 * LONG)
    # the call in which the trial began was a turn; the first of two products of each turn of the second way settles
    assert used == [two, two, one, two, two, None]
    assert trial.fastest() is two


def test_a_solver_does_not_end_with_a_way_that_is_clearly_slower(product, monkeypatch):
    """Its call keeps one way: each is timed before."""
    matrix, x, found = product
    slow = {id(found.ways[0]): 1.0, id(found.ways[1]): 10.0}
    monkeypatch.setattr(product_module, "solver_call", lambda: "a call")
    monkeypatch.setattr(product_module.Product, "time_call", lambda self, way: slow[id(way)])
    found.go_on_with(found.ways[0])
    found.left_ns = -1
    matrix @ x
    assert found._trial is None
    slow[id(found.ways[1])] = 1.4
    found._next_trial_ns, found.left_ns = 0, -1
    matrix @ x
    assert found._trial is not None


def test_calls_of_solvers_are_told_apart(product):
    matrix, _, _ = product
    seen = []
    symmetric = matrix + matrix.T + 100 * sp.eye_array(2000)

    def watched(v):
        seen.append(limits.solver_call())
        return symmetric @ v

    operator = sp.linalg.LinearOperator((2000, 2000), matvec=watched, dtype=float)
    for _ in range(2):
        sp.linalg.cg(operator, np.ones(2000), maxiter=2)
    assert len(set(map(id, seen))) == 2
    assert None not in seen
    assert limits.solver_call() is None


def test_reproducible_products_have_the_same_bits_whatever_the_threads(product):
    matrix, x, found = product
    with ts.reproducible():
        found.current, found.address = found.ways[1], found.ways[1].address
        first = matrix @ x
        found.current, found.address = found.ways[0], found.ways[0].address
        np.testing.assert_array_equal(first, matrix @ x)
        found.left_ns = 0
        matrix @ x
        assert found.x_shape is not None  # no trial


def test_a_process_may_be_reproducible_as_a_whole(monkeypatch):
    monkeypatch.setattr(product_module, "THREADS_NS", 0)
    monkeypatch.setattr(product_module, "allowed_threads", lambda: 2)
    rng = np.random.default_rng(0)
    made = sp.random_array((2000, 2000), density=0.02, rng=rng).tocsc()
    x = rng.standard_normal(2000)
    before = ts.csc_array(made)
    before @ x  # a product of two threads, made before
    monkeypatch.setenv("TENSORWISE_REPRODUCIBLE", "1")
    try:
        results = [matrix @ x for matrix in (ts.csc_array(made), before) for _ in range(20)]
        assert {one.tobytes() for one in results} == {results[0].tobytes()}
        new = ts.csc_array(made)
        new @ x
        assert new.__dict__["_tensorwise"].last.current.threads == 1
    finally:
        monkeypatch.delenv("TENSORWISE_REPRODUCIBLE")
        limits.apply_limits()


def test_a_limit_of_threads_is_obeyed_at_the_next_call(product):
    matrix, x, found = product
    found.current, found.address = found.ways[1], found.ways[1].address
    before = matrix @ x
    ts.limit_threads(1)
    try:
        serial = matrix @ x
        found.current, found.address = found.ways[0], found.ways[0].address
        np.testing.assert_array_equal(serial, matrix @ x)
    finally:
        ts.limit_threads(None)
    np.testing.assert_allclose(before, serial)


def test_a_limit_of_threads_ends_with_its_block():
    ts.limit_threads(3)
    try:
        with ts.limit_threads(1):
            assert limits.threads_limit == 1
        assert limits.threads_limit == 3
    finally:
        ts.limit_threads(None)


def test_limits_of_threadpoolctl_are_obeyed(product):
    pools = pytest.importorskip("threadpoolctl")
    matrix, x, found = product
    ts.csr_array(sp.eye_array(3)) @ np.ones(3)  # a product that is made after threadpoolctl was imported
    found.current, found.address = found.ways[1], found.ways[1].address
    before = limits.threads_limit
    with pools.threadpool_limits(limits=1):
        assert limits.allowed_threads() == 1
        one = matrix @ x
        found.current, found.address = found.ways[0], found.ways[0].address
        np.testing.assert_array_equal(one, matrix @ x)
    assert limits.threads_limit == before, "no limit, and not the threads of just now"
    with ts.limit_threads(1), pools.threadpool_limits(limits=1):
        pass
    assert limits.threads_limit == before
    assert "tensorwise" in {info["internal_api"] for info in pools.threadpool_info()}


def test_no_trial_with_autotuning_off(monkeypatch):
    monkeypatch.setenv("TENSORWISE_AUTOTUNE", "off")
    monkeypatch.setattr(products, "MAKING_NS", 0)
    matrix = ts.csr_array(sp.random_array((3000, 3000), density=0.02, rng=np.random.default_rng(0)))
    x = np.ones(3000)
    for _ in range(300):
        matrix @ x
    assert not any(way.took_ns for way in matrix.__dict__["_tensorwise"].last.ways)


def test_a_mode_that_there_is_not_is_refused(monkeypatch):
    monkeypatch.setenv("TENSORWISE_AUTOTUNE", "sometimes")
    with pytest.raises(InputError, match="sometimes"):
        limits.autotune()


def test_scipy_computes_until_a_product_pays_under_a_patch(monkeypatch, patched):
    monkeypatch.setattr(products, "MAKING_NS", 1 << 60)
    made = sp.random_array((50, 50), density=0.1, rng=np.random.default_rng(0))
    theirs, ours = made.tocsr(), ts.csr_array(made)
    for _ in range(20):
        np.testing.assert_allclose(theirs @ np.ones(50), ours @ np.ones(50))
    (spent_ns,) = theirs.__dict__["_tensorwise"].table.scipy_ns.values()
    assert not theirs.__dict__["_tensorwise"].table.products
    assert len(ours.tuning.products) == 1  # who takes our class multiplies more than once
    monkeypatch.setattr(products, "MAKING_NS", spent_ns)
    theirs @ np.ones(50)
    assert theirs.__dict__["_tensorwise"].table.products
