"""Graphs of the kinds that MLCD draws from (section IV-B), and real ones."""

import csv
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np
import scipy.sparse as sp

from benchmarks.corpus import root
from benchmarks.splits import splits
from tensorwise.collect.corpus import read_pattern
from tensorwise.errors import InputError

KINDS: Final = ("rmat", "erdos-renyi", "barabasi-albert", "small-world")
QUADRANTS: Final = (0.57, 0.76, 0.95)
"""Of the Graph500's Kronecker graphs, added up: 0.57, 0.19, 0.19 and 0.05."""
REWIRED: Final = 0.1
CORPUS: Final = "corpus"


def graph(kind: str, nodes: int = 0, ratio: float = 0.0, seed: int = 0, name: str = "") -> sp.csr_array:
    """Return a directed graph without loops: entry (i, k), 1 in float32, is an edge from i to k.

    Args:
        kind: one of ``KINDS``, or ``corpus``.
        nodes: how many; of a real graph as many as it has.
        ratio: edges a node; those drawn twice count once.
        seed: of the topology.
        name: of a square matrix of the corpus, whose pattern it is.

    Raises:
        InputError: there is no such kind, or it has fewer than two nodes or no edge.
    """
    if kind == CORPUS:
        found = read_pattern(root() / real_graphs()[name][0]).to_scipy().tocoo()
        nodes, sources, targets = found.shape[0], found.row, found.col
    elif kind in KINDS:
        if nodes < 2 or ratio <= 0:
            raise InputError(f"a graph needs two nodes and some edges, got {nodes} nodes, {ratio} edges each")
        rng = np.random.default_rng([seed, nodes, KINDS.index(kind)])
        sources, targets = _EDGES[kind](nodes, round(nodes * ratio), rng)
    else:
        raise InputError(f"there is no kind of graph {kind!r}; there are {', '.join((*KINDS, CORPUS))}")
    kept = sources != targets
    made = sp.csr_array(
        (np.ones(kept.sum(), np.float32), (sources[kept], targets[kept])), shape=(nodes, nodes)
    )
    made.sum_duplicates()
    made.data[:] = 1
    return made


def undirected(given: sp.csr_array) -> sp.csr_array:
    """Return the graph with each edge in both directions; its rows are sorted."""
    both = sp.csr_array(given + given.T)
    both.sort_indices()
    both.data[:] = 1
    return both


def _rmat(nodes: int, edges: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Kronecker: each edge goes down into one of four quadrants again and again; names are shuffled afterwards."""
    sources, targets = np.zeros((2, edges), np.int64)
    for _ in range(int(np.ceil(np.log2(nodes)))):
        drawn = rng.random(edges, np.float32)
        sources = 2 * sources + (drawn >= QUADRANTS[1])
        targets = 2 * targets + (((drawn >= QUADRANTS[0]) & (drawn < QUADRANTS[1])) | (drawn >= QUADRANTS[2]))
    name = rng.permutation(nodes)
    return name[sources % nodes], name[targets % nodes]


def _erdos_renyi(nodes: int, edges: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Any two nodes."""
    return rng.integers(nodes, size=edges), rng.integers(nodes, size=edges)


def _barabasi_albert(nodes: int, edges: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Preferential attachment: an edge leads to an end of an earlier edge (Sanders and Schulz, IPL 2016)."""
    edge = np.arange(edges)
    end = (rng.random(edges) * (2 * edge + 1)).astype(
        np.int64
    )  # 2 e is where e comes from, 2 e + 1 where it leads
    while (chained := np.flatnonzero(end % 2)).size:
        end[chained] = end[end[chained] // 2]
    return _either_way(edge * nodes // edges, end // 2 * nodes // edges, rng)


def _small_world(nodes: int, edges: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A ring whose nodes know their neighbours, some edges of which lead anywhere (Watts and Strogatz)."""
    edge = np.arange(edges)
    targets = (edge + 1 + edge // nodes) % nodes
    anywhere = rng.random(edges) < REWIRED
    targets[anywhere] = rng.integers(nodes, size=int(anywhere.sum()))
    return _either_way(edge % nodes, targets, rng)


def _either_way(a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    turned = rng.random(len(a)) < 0.5
    return np.where(turned, b, a), np.where(turned, a, b)


_EDGES: Final = dict(zip(KINDS, (_rmat, _erdos_renyi, _barabasi_albert, _small_world), strict=True))


@cache
def real_graphs(most_entries: int | None = None) -> dict[str, tuple[str, str]]:
    """Return the square matrices of the corpus: name -> file and family; none where there is no corpus.

    Args:
        most_entries: larger ones are left out.
    """
    try:
        with open(root() / "MANIFEST.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["order"] == "2"]
    except SystemExit:
        return {}
    square = [row for row in rows if len(set(row["dims"].split("x"))) == 1]
    return {
        row["name"]: (row["file"], splits().family(row["name"], row["group"]))
        for row in square
        if most_entries is None or int(row["nnz"]) <= most_entries
    }


def drawn(ranges: Mapping[str, Any], ratio: float, rng: np.random.Generator) -> dict[str, Any]:
    """Draw parameters of ``graph``, with so many edges a node or a real one.

    A cell is all graphs of one kind, size and ratio, or all real ones of one family. Nodes go from ``2**least_power`` to
    ``2**most_power`` by square roots of two.
    """
    real = real_graphs(ranges["most_real"])
    if real and rng.random() < ranges["share_real"]:
        name = str(rng.choice(list(real)))
        return {"kind": CORPUS, "name": name, "cell": f"{CORPUS} {real[name][1]}"}
    power = rng.integers(2 * ranges["least_power"], 2 * ranges["most_power"] + 1) / 2
    kind, nodes = str(rng.choice(KINDS)), round(2**power)
    return {
        "kind": kind, "nodes": nodes, "ratio": ratio, "seed": int(rng.integers(ranges["topologies"])),
        "cell": f"{kind} {nodes} {round(ratio)}",
    }  # fmt: skip
