"""Links between points."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from tensorwise.search import nearest as module
from tensorwise.search.nearest import far_apart, linked, nearest


def points(n: int, dimensions: int = 7, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, dimensions)).astype(np.float32)


def graph(starts: np.ndarray, links: np.ndarray) -> csr_array:
    return csr_array((np.ones(len(links)), links, starts), shape=(len(starts) - 1,) * 2)


@pytest.mark.parametrize("block", [16, 1024])
def test_the_nearest_are_found(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    some = points(130) + 100  # far from the origin, where rounding would be felt
    _, expected = cKDTree(some).query(some, 6)
    np.testing.assert_array_equal(nearest(some, 5), expected[:, 1:])


def test_more_neighbours_than_there_are() -> None:
    assert np.sort(nearest(points(3), 9)).tolist() == [[1, 2], [0, 2], [0, 1]]
    assert nearest(points(1), 4).shape == (1, 0)
    assert nearest(points(0), 4).shape == (0, 0)


def test_links_go_both_ways_and_hold_the_nearest() -> None:
    some = points(300)
    starts, links = linked(some, 4)
    found = graph(starts, links).toarray()
    assert (found == found.T).all()
    assert found.diagonal().sum() == 0
    assert all(found[row, other] for row, others in enumerate(nearest(some, 4)) for other in others)
    assert all((np.diff(links[a:b]) > 0).all() for a, b in pairwise(starts))


def test_clusters_are_joined_where_they_are_closest() -> None:
    """Five heaps on a line, with more points in each than neighbours are asked for."""
    some = np.concatenate([points(20, 3, seed) * 0.01 + [10 * seed, 0, 0] for seed in range(5)]).astype(
        np.float32
    )
    joined = graph(*linked(some, 3))
    assert connected_components(joined, directed=False)[0] == 1
    heap = np.arange(100) // 20
    rows, others = joined.nonzero()
    bridges = {(min(a, b), max(a, b)) for a, b in zip(heap[rows], heap[others], strict=True) if a != b}
    assert bridges == {(0, 1), (1, 2), (2, 3), (3, 4)}


def test_points_that_coincide_are_still_reached() -> None:
    some = np.repeat(points(6), 30, axis=0)
    assert connected_components(graph(*linked(some, 4)), directed=False)[0] == 1
    assert connected_components(graph(*linked(np.zeros((50, 3), np.float32), 4)), directed=False)[0] == 1


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_points(n: int) -> None:
    starts, links = linked(points(n), 4)
    assert starts.tolist() == [[0], [0, 0], [0, 1, 2]][n]
    assert links.tolist() == [[], [], [1, 0]][n]


def test_entry_points_are_far_apart() -> None:
    some = np.concatenate([points(40, 2, seed) * 0.01 + [10 * seed, 0] for seed in range(5)]).astype(
        np.float32
    )
    chosen = far_apart(some, 5)
    assert sorted(chosen // 40) == [0, 1, 2, 3, 4]
    assert chosen[0] // 40 == 2  # in the middle
    assert len(set(far_apart(some, 50).tolist())) == 50


def test_points_on_each_other_are_one_entry_point() -> None:
    some = np.repeat(points(4), 10, axis=0)
    assert len(far_apart(some, 20)) == 4
    assert len(far_apart(some[:0], 3)) == 0
