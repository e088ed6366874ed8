"""How evenly threads share loops, against tasks handed out one by one."""

import heapq

import numpy as np
import pytest

from tensorwise.runtime.loads import COUNTED, Loads, even, uneven
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.orders import Places, permutation


def handed_out(costs: list[int]) -> float:
    """What the busier of two threads takes over half, each task going to whoever is free first."""
    threads = [0, 0]
    for cost in costs:
        heapq.heapreplace(threads, threads[0] + cost)
    return 2 * max(threads) / sum(threads)


def skewed(rows: int, seed: int = 0) -> Entries:
    rng = np.random.default_rng(seed)
    at = np.unique((rng.zipf(1.5, 4 * rows) % rows) * 64 + rng.integers(0, 64, 4 * rows))
    return entries_from(((rows, 64), [at // 64, at % 64], np.ones(len(at), np.float32)))


def loads(entries: Entries) -> Loads:
    return Loads(entries, Places(entries))


@pytest.mark.parametrize("order", ["", "length", "cluster"])
@pytest.mark.parametrize("coordinates", [1, 3, 64, 1000])
def test_tasks_go_to_whoever_is_free(order: str, coordinates: int) -> None:
    entries = skewed(500)
    counts = np.bincount(entries.coordinates[0], minlength=500) + 1
    if order:
        counts = counts[permutation(entries, 0, order)]
    tasks = [int(counts[at : at + coordinates].sum()) for at in range(0, 500, coordinates)]
    found = loads(entries)
    for _ in range(2):  # and once more, from what was counted
        assert found.share(0, order, coordinates) == pytest.approx(handed_out(tasks))


def test_parts_are_about_even_unless_a_row_is_longer() -> None:
    rows = np.repeat(np.arange(100), 5)
    flat = entries_from(((100, 500), [rows, np.arange(500)], np.ones(500, np.float32)))
    assert loads(flat).share(0, "", 1, 2) == 1
    assert loads(flat).share(0, "", 64, 2) == pytest.approx(
        2 * 64 / 100
    )  # of two tasks no better parts can be made
    one = entries_from(((100, 500), [np.zeros(500, int), np.arange(500)], np.ones(500, np.float32)))
    assert loads(one).share(0, "", 1, 4) == pytest.approx(2 * 501 / 600)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (5, 5)])
def test_a_pattern_without_entries(shape: tuple[int, int]) -> None:
    empty = entries_from((shape, [np.empty(0, int)] * 2, np.empty(0, np.float32)))
    assert loads(empty).share(0, "", 1) == (handed_out([1] * 5) if shape[0] else 1)
    assert loads(empty).share(0, "length", 2, 4) >= 1


def test_coordinates_beyond_counting_are_as_good_as_even() -> None:
    wide = entries_from(((2**33, 5), [np.array([0, 1, 2**32]), np.arange(3)], np.ones(3, np.float32)))
    found = loads(wide)
    assert (found.share(0, "", 32), found.share(0, "length", 2**33), found.share(0, "", 1, 4)) == (1, 2, 1)
    assert found.share(1, "", 1) == handed_out([2, 2, 2, 1, 1])


def test_many_tasks_are_about_as_uneven_as_counted() -> None:
    tasks = np.random.default_rng(0).integers(1, 100, 3 * COUNTED)
    assert uneven(tasks) == pytest.approx(handed_out(tasks.tolist()), rel=1e-3)
    tasks[0] = tasks.sum()
    assert uneven(tasks) == pytest.approx(handed_out(tasks.tolist()), rel=1e-3)


def test_equal_tasks() -> None:
    for tasks in range(1, 9):
        assert even(tasks) == pytest.approx(uneven(np.ones(tasks, np.int64)))
    assert even(0) == 1
