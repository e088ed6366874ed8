"""PageRank of directed graphs in float32, until what is left is below 1e-6 (MLCD, section V-B; Table II)."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any, Final

import numpy as np
import scipy.sparse as sp

import tensorwise as tw
from selections.gpu import add_ranks
from selections.graphs import drawn, graph
from selections.laid_out import LaidOut, compiled
from tensorwise.analysis.graph import GraphPattern
from tensorwise.errors import InputError
from tensorwise.program.workload import workload
from tensorwise.selection import Selection
from tensorwise.tensor.convert import entries_from
from tensorwise.toolchain.threads import available_threads
from tensorwise.tuning.operator import default_kernel

VERSIONS: Final = {
    "pull": ("pagerank_pull", "nodes add up what their neighbours had (Ligra), one thread"),
    "pull, threads": ("pagerank_pull", "the same on all threads"),
    "gauss-seidel": ("pagerank_gauss_seidel", "nodes add up what their neighbours have by now, one thread"),
    "gauss-seidel, threads": ("pagerank_gauss_seidel", "the same on all threads, in no order (Galois)"),
    "inner": (
        "pagerank_inner",
        "the same without nodes that nothing leads to or that lead nowhere, one thread",
    ),
    "inner, threads": ("pagerank_inner", "the same on all threads"),
    "push": ("pagerank_push", "nodes give to their neighbours, one thread"),
    "delta": ("pagerank_delta", "nodes to which enough was added give it away (Ligra delta), one thread"),
    "own sparse": ("", "pull through the SpMV that Tensorwise generates"),
}
LIBRARIES: Final = {"igraph": "igraph's PRPACK", "graphblas": "pull in SuiteSparse:GraphBLAS"}
"""Versions that are measured where their package is installed and ``--libraries`` is given."""
DAMPING: Final = 0.85
TOLERANCE: Final = 1e-6
PARTS: Final = 8
"""Parts a thread, of about as many edges."""


def described(a: sp.csr_array) -> tuple[dict[str, float], float]:
    """Return the statistics of a graph by name, and the seconds that it took to compute them."""
    entries, pattern = entries_from(a), GraphPattern()
    start = time.perf_counter()
    numbers = pattern.features(entries)
    took_s = time.perf_counter() - start
    return dict(zip((field.name for field in pattern.fields), numbers.tolist(), strict=True)), took_s


def lay_out(a: sp.csr_array, libraries: bool = False) -> LaidOut:
    """Lay out the PageRank of a graph in every version; edges are kept by both ends, as the paper keeps them.

    Args:
        a: (nodes, nodes): entry (i, k) is an edge from i to k.
        libraries: in those of libraries, too.

    Raises:
        InputError: the matrix is not square, or has no row.
    """
    nodes = a.shape[0]
    if a.shape != (nodes, nodes) or not nodes:
        raise InputError(f"PageRank is of graphs with a square adjacency matrix, got shape {a.shape}")
    back, threads = sp.csr_array(a.T), available_threads()
    numbers, took_s = described(a)
    degrees = np.diff(a.indptr)
    share = np.divide(1.0, degrees, out=np.zeros(nodes, np.float32), where=degrees > 0, dtype=np.float32)
    scaled = sp.csr_array((share[back.indices], back.indices, back.indptr), shape=back.shape)
    made = LaidOut(tuple(numbers.values()), (scaled,), took_s)
    edges = [array.astype(np.int32) for array in (back.indptr, back.indices, a.indptr, a.indices)]
    cuts = np.linspace(0, back.nnz + nodes, PARTS * threads + 1)
    bounds = np.searchsorted(back.indptr + np.arange(nodes + 1), cuts).astype(np.int64)
    bounds[[0, -1]] = 0, nodes
    for name, (function, _) in VERSIONS.items():
        x, *room = np.zeros((3, nodes), np.float32)
        if function:
            sizes = (nodes, threads if name.endswith("threads") else 1, PARTS * threads)
            made.add(name, compiled(function, (*edges, share, x, *room, bounds), sizes), x)
        else:
            made.add(name, _with_own_spmv(scaled, x), x)
    for name, lay in (("igraph", _igraph), ("graphblas", _graphblas)) if libraries else ():
        made.add(name, *lay(a, share))
    return made


def _with_own_spmv(scaled: sp.csr_array, x: np.ndarray) -> Callable[[], None]:
    work, product = workload("spmv", entries_from(scaled)), np.zeros_like(x)
    multiply = default_kernel(work).bind(work, available_threads()).ready([x], product)
    begin, settle = (compiled(f"pagerank_{name}", (x, product), (len(x),)) for name in ("begin", "settle"))

    def call() -> None:
        begin()
        multiply()
        while settle():
            multiply()

    return call


def _igraph(a: sp.csr_array, share: np.ndarray) -> tuple[Callable[[], None], np.ndarray]:
    import igraph

    x, made = (
        np.zeros(len(share), np.float32),
        igraph.Graph(a.shape[0], np.column_stack(a.nonzero()), directed=True),
    )

    def call() -> None:
        x[:] = made.pagerank(damping=DAMPING)

    return call, x


def _graphblas(a: sp.csr_array, share: np.ndarray) -> tuple[Callable[[], None], np.ndarray]:
    import graphblas as gb

    nodes, base = len(share), (1 - DAMPING) / len(share)
    given = sp.csr_array((np.repeat(share, np.diff(a.indptr)), a.indices, a.indptr), shape=a.shape)
    matrix, out = gb.io.from_scipy_sparse(given), np.zeros(nodes, np.float32)

    def call() -> None:
        x = gb.Vector.from_scalar(base, nodes, dtype="FP32")
        left = 1.0
        while left > TOLERANCE:
            following = gb.Vector.from_scalar(base, nodes, dtype="FP32")
            following(gb.binary.plus) << gb.op.times(gb.semiring.plus_times(matrix.T @ x).new(), DAMPING)
            left = gb.unary.abs(gb.binary.minus(following & x).new()).new().reduce().new().value
            x = following
        out[:] = x.to_dense()
        out[:] /= out.sum(dtype=np.float64)

    return call, out


def agree(result: np.ndarray, expected: np.ndarray) -> str | None:
    """Say how ranks differ: each may be off by what the tolerance leaves, all of it together."""
    off, allowed = float(np.abs(result - expected).sum(dtype=np.float64)), 100 * TOLERANCE
    return None if off <= allowed else f"off by {off:.2g} in all, {allowed:g} is allowed"


def make(libraries: bool, **of: Any) -> tuple[LaidOut]:
    """Return the PageRank of a graph, laid out; for the parameters see `graphs.graph`."""
    return (lay_out(graph(**of), libraries),)


def inputs(ranges: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Draw an input (section IV-B2): 1.5 to 20 edges a node."""
    return drawn(ranges, round(float(rng.uniform(1.5, 20)), 1), rng)


def pagerank(name: str, ranges: Mapping[str, Any], libraries: bool = False) -> Selection:
    """Return PageRank with its versions."""
    made = tw.versions(
        name, features=attrgetter("features"), units=GraphPattern().units, make=partial(make, libraries),
        inputs=partial(inputs, ranges), agree=agree,
    )  # fmt: skip
    for version in (*VERSIONS, *(LIBRARIES if libraries else ())):
        made.version(methodcaller("run", version), name=version)
    add_ranks(made, DAMPING, TOLERANCE)
    return made
