"""Links between points: each to its nearest neighbours, and what else it takes to reach all from one."""

from collections.abc import Iterator
from typing import Final

import numpy as np

BLOCK: Final = 1024
"""Points compared with all others at a time: for twenty thousand points that takes 80 MB."""


def nearest(points: np.ndarray, k: int) -> np.ndarray:
    """Return the nearest other points of each point: int64, (n, min(k, n - 1)), nearest first.

    Exact up to rounding: all distances are computed, by matrix products. Of points at one distance the first are taken.

    Args:
        points: float32, (n, dimensions).
        k: neighbours of each.
    """
    k = max(min(k, len(points) - 1), 0)
    found = np.empty((len(points), k), np.int64)
    for rows, away in _distances(points) if k else ():
        away[np.arange(len(rows)), rows] = np.inf
        last = np.partition(away, k - 1, axis=1)[
            :, k - 1
        ]  # a value; `argpartition` would choose among equals by host
        which, others = np.nonzero(away <= last[:, None])
        order = np.lexsort((away[which, others], which))
        starts = np.searchsorted(which, np.arange(len(rows)))
        found[rows] = others[order][starts[:, None] + np.arange(k)]
    return found


def linked(points: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return links in both directions between each point and its nearest, by which every point is reached from every other.

    Where points lie in clusters, all neighbours of a point are of its own. So each cluster but the largest gets
    one more link, the shortest that leads out of it, until there is a single one (Boruvka's steps to a spanning tree).

    Args:
        points: float32, (n, dimensions).
        k: neighbours of each.

    Returns:
        starts, int64, (n + 1,), and links, int32: those of point p, ascending, are ``links[starts[p] : starts[p + 1]]``.
    """
    from scipy.sparse import coo_array  # only what builds a graph needs SciPy
    from scipy.sparse.csgraph import connected_components

    found = nearest(points, k)
    ends = [np.repeat(np.arange(len(points)), found.shape[1])], [found.ravel()]
    while True:
        here, there = np.concatenate(ends[0] + ends[1]), np.concatenate(ends[1] + ends[0])
        both = coo_array((np.ones(len(here), bool), (here, there)), shape=(len(points), len(points))).tocsr()
        both.sum_duplicates()  # sorts, too
        parts, part_of = connected_components(both, directed=False)
        if parts <= 1:
            return both.indptr.astype(np.int64), both.indices.astype(np.int32)
        for one, other in _ways_out(points, part_of):
            ends[0].append(np.array([one]))
            ends[1].append(np.array([other]))


def far_apart(points: np.ndarray, count: int) -> np.ndarray:
    """Return ``count`` points of which each is the farthest from those before it: int64, (min(count, n),).

    The first is the nearest to the middle. Points that lie on chosen ones are left out.

    Args:
        points: float32, (n, dimensions).
        count: how many.
    """
    if not len(points):
        return np.empty(0, np.int64)
    chosen = [int(np.argmin(np.square(points - points.mean(axis=0)).sum(axis=1)))]
    away = np.full(len(points), np.inf)
    while len(chosen) < count:
        away = np.minimum(away, np.square(points - points[chosen[-1]]).sum(axis=1))
        farthest = int(np.argmax(away))
        if away[farthest] <= 0:
            break
        chosen.append(farthest)
    return np.array(chosen, np.int64)


def _ways_out(points: np.ndarray, part_of: np.ndarray) -> list[tuple[int, int]]:
    """For each part but the largest the shortest link out of it: (from, to)."""
    largest = int(np.argmax(np.bincount(part_of)))
    shortest: dict[int, tuple[float, int, int]] = {}
    for rows, away in _distances(points, np.flatnonzero(part_of != largest)):
        away[part_of[rows][:, None] == part_of[None, :]] = np.inf
        there = np.argmin(away, axis=1)
        lengths = away[np.arange(len(rows)), there]
        for length, row, other in zip(lengths.tolist(), rows.tolist(), there.tolist(), strict=True):
            part = int(part_of[row])
            shortest[part] = min(shortest.get(part, (np.inf, -1, -1)), (length, row, other))
    return [(row, other) for _, row, other in shortest.values()]


def _distances(points: np.ndarray, rows: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield some rows at a time and their squared distances to all points: (rows, n)."""
    # Around the middle less is lost to rounding.
    middled = points - points.mean(axis=0)
    squares = np.square(middled).sum(axis=1)
    rows = np.arange(len(points)) if rows is None else rows
    for first in range(0, len(rows), BLOCK):
        some = rows[first : first + BLOCK]
        yield some, squares[some][:, None] + squares[None, :] - 2 * (middled[some] @ middled.T)
