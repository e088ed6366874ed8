"""A graph as numbers: size, density, effective diameter and degrees (MLCD, section III-A2)."""

from pathlib import Path
from typing import ClassVar, Final, final

import numpy as np

from tensorwise.analysis.featurizer import Featurizer, Field
from tensorwise.errors import CompilerError, InputError
from tensorwise.tensor.entries import Entries
from tensorwise.toolchain.routines import POINTER, SIZE, Routines

PATHS: Final = 10
"""Shortest paths that are sampled, between nodes drawn at random ..."""
MAX_DRAWS: Final = 20
"""... in at most so many draws: from many nodes there may be no way anywhere."""
QUARTILES: Final = (25, 50, 75)

WALKING: Final = Routines(
    "walk through a graph",
    "tw_graph_",
    {"distances": (None, (SIZE, POINTER, POINTER, SIZE, POINTER, POINTER))},
    Path(__file__).with_name("graph.c"),
)

_GRAPH_FIELDS: Final = (
    Field("nodes", "nodes", "the number of nodes."),
    Field(
        "edges", "edges", "the number of edges; of an undirected graph each counts twice, as it is stored."
    ),
    Field("size", "nodes and edges", "the number of nodes and edges together."),
    Field("density", "edges a node", "the number of edges over that of nodes."),
    Field("diameter", "edges", "the 90th percentile of the lengths of ten sampled shortest paths."),
    *(Field(f"out.q{q}", "edges", f"what {q} % of the nodes' out-degrees do not exceed.") for q in QUARTILES),
    *(Field(f"in.q{q}", "edges", f"what {q} % of the nodes' in-degrees do not exceed.") for q in QUARTILES),
)


@final
class GraphPattern(Featurizer[Entries]):
    """Statistics of a graph, given by its square adjacency matrix: entry (i, k) is an edge from i to k.

    All edges are read about once for each sampled path, so compute them where the graph is made, and pass them along. Paths
    are drawn the same way every time.
    """

    name: ClassVar[str] = "graph-pattern"
    version: ClassVar[int] = 1

    @property
    def fields(self) -> tuple[Field, ...]:
        return _GRAPH_FIELDS

    @property
    def units(self) -> dict[str, str]:
        """Field -> unit, as ``tensorwise.versions`` takes them."""
        return {field.name: field.unit for field in _GRAPH_FIELDS}

    def features(self, described: Entries) -> np.ndarray:
        """Return the numbers of a graph: float32, shape (len(fields),), all finite.

        Raises:
            InputError: the entries are not those of a square matrix, or 2**31 or more.
        """
        if described.order != 2 or described.shape[0] != described.shape[1]:
            raise InputError(f"{self.name} describes square adjacency matrices, got shape {described.shape}")
        nodes, edges = described.shape[0], described.nnz
        if max(nodes, edges) >= 2**31:
            raise InputError(f"{self.name} counts in 32 bits, got {nodes} nodes and {edges} edges")
        if not nodes:
            return np.zeros(len(_GRAPH_FIELDS), np.float32)
        pointers = described.row_pointers().astype(np.int32, copy=False)
        targets = described.coordinates[1].astype(np.int32, copy=False)
        lengths = _sampled(pointers, targets)
        degrees = np.diff(pointers), np.bincount(targets, minlength=nodes)
        numbers = [
            nodes,
            edges,
            nodes + edges,
            edges / nodes,
            float(np.percentile(lengths, 90)) if lengths else 0.0,
        ]
        numbers += [float(q) for degree in degrees for q in np.percentile(degree, QUARTILES)]
        return np.array(numbers, np.float32)


def _sampled(pointers: np.ndarray, targets: np.ndarray) -> list[int]:
    """Return the lengths of shortest paths from random nodes to random ones of those that can be reached from there."""
    rng, lengths, nodes = np.random.default_rng(0), list[int](), len(pointers) - 1
    for _ in range(MAX_DRAWS):
        distance = distances(pointers, targets, int(rng.integers(nodes)))
        reached = distance[distance > 0]
        if len(reached):
            lengths.append(int(reached[rng.integers(len(reached))]))
        if len(lengths) == PATHS:
            break
    return lengths


def distances(pointers: np.ndarray, targets: np.ndarray, source: int) -> np.ndarray:
    """Return each node's distance from ``source`` in edges, -1 where there is no way: (nodes,) int32.

    Compiled, or by NumPy where there is no compiler.

    Args:
        pointers, targets: rows of the adjacency matrix, (nodes + 1,) and (edges,) int32.
        source: where the walk begins.
    """
    try:
        WALKING.load()
    except CompilerError:
        return distances_plain(pointers, targets, source)
    nodes = len(pointers) - 1
    pointers, targets = np.ascontiguousarray(pointers), np.ascontiguousarray(targets)
    distance, queue = np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    WALKING(
        "distances", nodes, pointers.ctypes.data, targets.ctypes.data, source, distance.ctypes.data,
        queue.ctypes.data,
    )  # fmt: skip
    return distance


def distances_plain(pointers: np.ndarray, targets: np.ndarray, source: int) -> np.ndarray:
    """Do what ``distances`` does in NumPy, ring by ring."""
    distance = np.full(len(pointers) - 1, -1, np.int32)
    ring, far = np.array([source]), 0
    while len(ring):
        distance[ring] = far
        edges = np.concatenate([targets[pointers[node] : pointers[node + 1]] for node in ring])
        ring, far = np.unique(edges[distance[edges] < 0]), far + 1
    return distance
