"""Motifs of three or four nodes in undirected graphs, counted as induced subgraphs (MLCD, section V-D; Table II).

All versions count triangles, cycles of four nodes, cliques and what is in several triangles, and conclude the rest by
formulas (PGD: Ahmed, Neville, Rossi, Duffield, ICDM 2015; ESCAPE: Pinar, Seshadhri, Vishal, WWW 2017).
"""

from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any, Final

import numpy as np
import scipy.sparse as sp

import tensorwise as tw
from selections.gpu import add_counts
from selections.graphs import drawn, graph, undirected
from selections.laid_out import LaidOut, compiled
from selections.pagerank import described
from tensorwise.errors import InputError
from tensorwise.selection import Selection
from tensorwise.toolchain.threads import available_threads

MOTIFS: Final = {
    3: ("wedge", "triangle"),
    4: ("path", "star", "cycle", "tailed triangle", "diamond", "clique"),
}
FIELDS: Final = ("nodes", "edges", "density", "diameter", "out.q25", "out.q50", "out.q75")
UNITS: Final = {
    "k": "nodes of a motif",
    "nodes": "nodes",
    "edges": "edges",
    "density": "edges a node",
    "diameter": "edges",
    **{f"out.q{quartile}": "edges" for quartile in (25, 50, 75)},
    "wedges": "pairs of edges that share a node",
}
VERSIONS: Final = {
    "merge": ("motifs_merge", "sorted intersections at every edge, one thread"),
    "merge, threads": ("motifs_merge", "the same on all threads"),
    "bits": ("motifs_bits", "neighbours as bits, one thread"),
    "marks": ("motifs_marks", "marks on neighbours, nodes in the order of their degrees, one thread"),
    "marks, threads": ("motifs_marks", "the same on all threads"),
    "algebra": ("", "products of sparse matrices, by SciPy"),
}
MOST_WEDGES: Final = 300_000
"""Of a graph that products of sparse matrices are tried on: they take fifty times as long as others, and memory."""
MOST_BITS: Final = 4096
"""Nodes of a graph that is kept as bits: memory and time grow with their square."""


def induced(counts: np.ndarray, wedges: int, stars: int, paths: int) -> list[int]:
    """Return how often each motif occurs as an induced subgraph, in the order of ``MOTIFS``, first those of three nodes.

    Args:
        counts: (5,) int64: what motifs.c counts.
        wedges, stars, paths: pairs and triples of neighbours of a node, and the sum of (d_u - 1) (d_v - 1) over all edges.
    """
    triangles, tailed, diamonds, cycles, cliques = counts.tolist()
    diamonds -= 6 * cliques
    cycles -= diamonds + 3 * cliques
    tailed -= 4 * diamonds + 12 * cliques
    stars -= tailed + 2 * diamonds + 4 * cliques
    paths -= 3 * triangles + 4 * cycles + 2 * tailed + 6 * diamonds + 12 * cliques
    return [wedges - 3 * triangles, triangles, paths, stars, cycles, tailed, diamonds, cliques]


def algebra(a: sp.csr_array, k: int, counts: np.ndarray) -> None:
    """Count what motifs.c counts by products of sparse matrices: A A, and pairs of neighbours of both ends of an edge."""
    square = sp.csr_array(a @ a)
    at_edge = sp.csr_array(square * a)  # triangles at each edge, both ways
    counts[:] = 0
    counts[0] = int(at_edge.sum()) // 6
    if k == 3:
        return
    degrees = np.diff(a.indptr).astype(np.int64)
    t, rows = at_edge.data.astype(np.int64), np.repeat(np.arange(a.shape[0]), np.diff(at_edge.indptr))
    counts[1] = int((t * (degrees[rows] + degrees[at_edge.indices] - 4)).sum()) // 4
    counts[2] = int((t * (t - 1)).sum()) // 4
    ways = sp.triu(square, 1).data.astype(np.int64)
    counts[3] = int((ways * (ways - 1)).sum()) // 4
    ends = sp.triu(at_edge, 1).tocoo()
    both = sp.csr_array(a[ends.row] * a[ends.col])  # a row an edge: who is next to both ends
    counts[4] = int(sp.csr_array((both @ a) * both).sum()) // 12


def lay_out(a: sp.csr_array, k: int) -> LaidOut:
    """Lay out the counting of motifs of ``k`` nodes in every version.

    Args:
        a: the graph as `graphs.undirected` returns it.
        k: 3 or 4.

    Raises:
        InputError: k is something else, or the graph has a loop, or an edge in one direction only.
    """
    if k not in MOTIFS:
        raise InputError(f"motifs of {' or '.join(map(str, MOTIFS))} nodes are counted, not of {k}")
    if a.shape[0] != a.shape[1] or a.diagonal().any() or abs(a - a.T).nnz:
        raise InputError("motifs are counted in undirected graphs: no node with itself, each edge both ways")
    numbers, took_s = described(a)
    pointers, targets = a.indptr.astype(np.int32), a.indices.astype(np.int32)
    degrees, nodes, threads = np.diff(pointers).astype(np.int64), a.shape[0], available_threads()
    less = degrees - 1
    wedges, stars = int((degrees * less // 2).sum()), int((degrees * less * (degrees - 2) // 6).sum())
    paths = int((np.repeat(less, degrees) * less[targets]).sum()) // 2
    features = (k, *(numbers[name] for name in FIELDS), wedges)
    made = LaidOut(features, (a, k, (wedges, stars, paths)), took_s)
    exact = sp.csr_array((a.data.astype(np.int64), a.indices, a.indptr), shape=a.shape)
    for name, (function, _) in VERSIONS.items():
        counts, result = np.zeros(5, np.int64), np.zeros(len(MOTIFS[k]), np.int64)
        if (function == "motifs_bits" and nodes > MOST_BITS) or (not function and wedges > MOST_WEDGES):
            continue
        count: Callable[[], object] = partial(algebra, exact, k, counts)
        if function:
            sizes = (nodes, k, threads if name.endswith("threads") else 1)
            count = compiled(function, (pointers, targets, counts), sizes)
        made.add(name, partial(_finished, count, counts, (wedges, stars, paths), result), result)
    return made


def _finished(
    count: Callable[[], object], counts: np.ndarray, known: tuple[int, int, int], result: np.ndarray
) -> None:
    if count():
        raise MemoryError("there is no room for counting")
    found = induced(counts, *known)
    result[:] = found[: len(MOTIFS[3])] if len(result) == len(MOTIFS[3]) else found[len(MOTIFS[3]) :]


def make(k: int, **of: Any) -> tuple[LaidOut]:
    """Return the counting of motifs in a graph, laid out; for the parameters see `graphs.graph`."""
    return (lay_out(undirected(graph(**of)), k),)


def inputs(ranges: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Draw an input (section IV-B4): motifs of 3 or 4 nodes, from 2 to 20 edges a node."""
    return {"k": int(rng.choice([3, 4])), **drawn(ranges, float(rng.integers(2, 21)), rng)}


def motifs(name: str, ranges: Mapping[str, Any]) -> Selection:
    """Return the counting of motifs with its versions."""
    made = tw.versions(
        name, features=attrgetter("features"), units=UNITS, make=make, inputs=partial(inputs, ranges)
    )
    for version in VERSIONS:
        made.version(methodcaller("run", version), name=version)
    add_counts(made, induced)
    return made
