"""The graphs of the papers that are made by a rule: Mycielskian and Kronecker graphs, and meshes like one of theirs."""

from collections.abc import Callable
from typing import Final

import numpy as np

from tensorwise.tensor.entries import Entries


def mycielskian(order: int) -> Entries:
    """Return the Mycielskian of chromatic number ``order``, as in SuiteSparse: 3 * 2**(order - 2) - 1 nodes.

    From K2 on each graph makes the next one: a copy of each node is linked to the node's neighbours, and one more node to
    all copies (Mycielski, 1955).
    """
    pointers, targets = np.array([0, 1, 2], np.int64), np.array([1, 0], np.int32)
    for _ in range(order - 2):
        nodes, degrees = len(pointers) - 1, np.diff(pointers)
        inside = np.arange(len(targets)) + np.repeat(
            pointers[:-1], degrees
        )  # row r begins at twice its pointer
        upper = np.empty(2 * len(targets), np.int32)
        upper[inside] = targets
        upper[inside + np.repeat(degrees, degrees)] = targets + np.int32(nodes)
        lower = np.insert(targets, pointers[1:], np.int32(2 * nodes))
        last = np.arange(nodes, 2 * nodes, dtype=np.int32)
        lengths = np.concatenate([2 * degrees, degrees + 1, [nodes]])
        pointers, targets = np.concatenate([[0], np.cumsum(lengths)]), np.concatenate([upper, lower, last])
    nodes = len(pointers) - 1
    return _entries(nodes, np.repeat(np.arange(nodes, dtype=np.int32), np.diff(pointers)), targets)


def kronecker(scale: int, seed: int = 0) -> Entries:
    """Return a Kronecker graph of 2**scale nodes, as DIMACS10's kron_g500-logn: 48 edges a node drawn, simple, undirected.

    Graph500's probabilities (0.57, 0.19, 0.19, 0.05), nodes shuffled. Another draw than DIMACS10's, of the same kind.
    """
    rng = np.random.default_rng(seed)
    drawn = 48 << scale
    keys = np.empty(2 * drawn, np.int64)
    shuffle = rng.permutation(1 << scale)
    for begin in range(0, drawn, 1 << 20):
        count = min(1 << 20, drawn - begin)
        ends = np.zeros((2, count), np.int64)
        for _ in range(scale):
            quarter = rng.random(count, dtype=np.float32)
            low = quarter >= 0.76
            ends *= 2
            ends[0] += low
            ends[1] += ((quarter >= 0.57) ^ low) | (quarter >= 0.95)
        a, b = shuffle[ends]
        keys[2 * begin : 2 * begin + count] = a << 32 | b
        keys[2 * begin + count : 2 * begin + 2 * count] = b << 32 | a
    keys.sort()
    kept = np.append(True, keys[1:] != keys[:-1]) & (keys >> 32 != keys & 0xFFFFFFFF)
    keys = keys[kept]
    return _entries(1 << scale, (keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32))


def mesh(sides: tuple[int, int, int]) -> Entries:
    """Return a mesh of points in space, each linked to 18 around it; packing-500x100x100-b050 has 16 links a point."""
    offsets = [
        (x, y, z)
        for x in (-1, 0, 1)
        for y in (-1, 0, 1)
        for z in (-1, 0, 1)
        if 0 < abs(x) + abs(y) + abs(z) < 3
    ]
    points = np.arange(np.prod(sides), dtype=np.int32)
    places = np.array(np.unravel_index(points, sides), np.int32)
    strides = (sides[1] * sides[2], sides[2], 1)
    targets = np.empty((len(points), len(offsets)), np.int32)
    for column, offset in enumerate(offsets):  # sorted, so that a row's targets are, too
        there = [place + step for place, step in zip(places, offset, strict=True)]
        inside = np.logical_and.reduce([(t >= 0) & (t < side) for t, side in zip(there, sides, strict=True)])
        targets[:, column] = np.where(inside, points + int(np.dot(offset, strides)), -1)
    met = targets >= 0
    return _entries(len(points), np.repeat(points, met.sum(axis=1)), targets[met])


def _entries(nodes: int, rows: np.ndarray, columns: np.ndarray) -> Entries:
    return Entries((nodes, nodes), (rows, columns), np.ones(len(rows), np.float32))


GRAPHS: Final[dict[str, Callable[[], Entries]]] = {
    "MYC": lambda: mycielskian(17),
    "KRO": lambda: kronecker(19),
    "PAC": lambda: mesh((215, 100, 100)),
    "MYC/8": lambda: mycielskian(14),
    "KRO/8": lambda: kronecker(17),
    "PAC/8": lambda: mesh((215, 36, 35)),
}
"""Name -> what makes it: HotTiles' graphs, and an eighth of SPADE's, whose KRO had 2**20 nodes. PAC is like theirs only."""
