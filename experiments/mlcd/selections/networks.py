"""GCN and GraphSAGE as kernels that are all products (MLCD, section V-E)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from operator import attrgetter, methodcaller
from typing import Any, Final, final

import numpy as np
import scipy.sparse as sp

import tensorwise as tw
from benchmarks.corpus import root
from selections.gemm import UNITS, VERSIONS, lay_out
from selections.gpu import add_products
from selections.graphs import graph
from tensorwise.collect.corpus import read_pattern
from tensorwise.device.libraries.mkl import MklKernel
from tensorwise.errors import InputError
from tensorwise.selection import Selection

DATA: Final = {"cora": (2708, 1433, 7), "citeseer": (3327, 3703, 6), "pubmed": (19717, 500, 3)}
"""Nodes, features and classes; of Pubmed only the graph is at hand."""
PUBMED_FEATURES: Final = 0.1
"""Share of its features that are not zero."""
CLASSES: Final = 7
"""Of synthetic graphs."""
MOST_DENSE: Final = 20_000_000
"""Entries of a matrix that is kept as a dense one, too."""
SPARSE_FEATURES: Final = 0.99
"""Share of zeros in synthetic features: words in documents, as Cora has them."""
AFTER_RELU: Final = 0.5


@final
@dataclass(frozen=True)
class Kernel:
    """A product in a network.

    Attributes:
        name: unique in its network.
        what: parameters of ``make``.
        after: names of the kernels whose results it reads.
        result_bytes: size of its result.
        given_bytes: what it reads that is neither the graph nor weights, which all devices have.
    """

    name: str
    what: Mapping[str, Any]
    after: tuple[str, ...]
    result_bytes: float
    given_bytes: float = 0.0

    @property
    def key(self) -> str:
        """The same for equal products."""
        return json.dumps(dict(self.what), sort_keys=True)


def network(kind: str, of: Mapping[str, Any], layers: int, hidden: int) -> list[Kernel]:
    """Return the kernels of a GCN (A relu(...) W a layer) or of a GraphSAGE (relu([H, A H] W) a layer), in order.

    Args:
        kind: ``gcn`` or ``graphsage``.
        of: ``data``, a name in ``DATA``; or ``graph`` (parameters of `graphs.graph`) and ``features``.
        layers: how many.
        hidden: width between them.
    """
    if "data" in of:
        nodes, wide, classes = DATA[of["data"]]
        where: dict[str, Any] = {"data": of["data"]}
        given = 8.0 * features(of["data"]).nnz
    else:
        nodes, wide, classes = of["graph"]["nodes"], of["features"], CLASSES
        where, given = {"graph": dict(of["graph"])}, 8.0 * (1 - SPARSE_FEATURES) * nodes * of["features"]
    kernels: list[Kernel] = []
    last = ""
    for layer in range(1, layers + 1):
        inner, outer = wide if layer == 1 else hidden, classes if layer == layers else hidden
        before, first = (last,) if last else (), given if layer == 1 else 0.0
        size = 4.0 * nodes
        if kind == "gcn":
            own = _combine(where, nodes, inner, outer, layer, relu=False)
            kernels.append(Kernel(f"combine {layer}", own, before, size * outer, first))
            spread = {"of": "aggregate", **where, "n": outer, "relu": layer < layers}
            kernels.append(Kernel(f"aggregate {layer}", spread, (f"combine {layer}",), size * outer))
            last = f"aggregate {layer}"
        else:
            spread = {"of": "aggregate", **where, "n": inner, "relu": False}
            kernels.append(Kernel(f"aggregate {layer}", spread, before, size * inner, first))
            both = _combine(where, nodes, 2 * inner, outer, layer, relu=layer < layers)
            kernels.append(
                Kernel(f"combine {layer}", both, (*before, f"aggregate {layer}"), size * outer, first)
            )
            last = f"combine {layer}"
    return kernels


def _combine(where: Mapping[str, Any], m: int, k: int, n: int, layer: int, relu: bool) -> dict[str, Any]:
    if layer == 1 and "data" in where and k == DATA[where["data"]][1]:
        return {"of": "combine", **where, "n": n, "relu": relu}
    return {
        "of": "combine", "m": m, "k": k, "n": n, "sparsity": SPARSE_FEATURES if layer == 1 else AFTER_RELU, "relu": relu,
    }  # fmt: skip


@cache
def features(name: str) -> sp.csr_array:
    """Return the features of a data set, (nodes, features) float32."""
    if name == "pubmed":
        drawn = sp.random_array(
            DATA[name][:2], density=PUBMED_FEATURES, rng=np.random.default_rng(0), dtype=np.float32
        )
        return sp.csr_array(drawn)
    with np.load(root() / "planetoid" / f"{name}.npz") as held:
        return sp.csr_array(
            (held["x_data"], held["x_indices"], held["x_indptr"]), shape=tuple(held["x_shape"])
        )


def adjacency(data: str = "", **of: Any) -> sp.csr_array:
    """Return a graph as GCN has it: with itself, both ways, scaled by the roots of degrees, float32."""
    if data == "pubmed":
        given = sp.csr_array(read_pattern(root() / "matrices" / "planetoid_pubmed.mtx.gz").to_scipy())
    elif data:
        with np.load(root() / "planetoid" / f"{data}.npz") as held:
            ones = np.ones(len(held["adj_indices"]), np.float32)
            given = sp.csr_array((ones, held["adj_indices"], held["adj_indptr"]), shape=(DATA[data][0],) * 2)
    else:
        given = graph(**of)
    whole = sp.csr_array(given + given.T + sp.eye_array(given.shape[0], dtype=np.float32, format="csr"))
    whole.data[:] = 1
    roots = 1 / np.sqrt(np.diff(whole.indptr), dtype=np.float32)
    whole.data *= np.repeat(roots, np.diff(whole.indptr)) * roots[whole.indices]
    whole.sort_indices()
    return whole


def make(of: str, n: int, relu: bool, **about: Any) -> tuple[Any]:
    """Return a kernel's product, laid out.

    Raises:
        InputError: it is neither ``combine`` nor ``aggregate``.
    """
    rng = np.random.default_rng(0)
    if of == "aggregate":
        a = adjacency(**about) if "data" in about else adjacency(**about["graph"])
    elif of == "combine" and "data" in about:
        a = features(about["data"])
    elif of == "combine":
        shape = about["m"], about["k"]
        drawn = sp.random_array(shape, density=1 - about["sparsity"], rng=rng, dtype=np.float32)
        a = sp.csr_array(drawn)
    else:
        raise InputError(f"a kernel is one of combine and aggregate, got {of!r}")
    sparsity = 1 - a.nnz / (a.shape[0] * a.shape[1])
    b = rng.random((a.shape[1], n), np.float32)
    return (lay_out(a, b, sparsity, relu, dense=a.shape[0] * a.shape[1] <= MOST_DENSE),)


def kernels_of_networks() -> Selection:
    """Return the products of networks with the versions of GEMM, and those of a GPU if there is one."""
    made = tw.versions("gnn", features=attrgetter("features"), units=UNITS, make=make)
    names = [name for name in VERSIONS if MklKernel.installed() or not name.startswith("mkl")]
    for version in sorted(
        names, key=lambda name: name != "own sparse"
    ):  # the first one has to run on all of them
        made.version(methodcaller("run", version), name=version)
    add_products(made)
    return made


def drawn(ranges: Mapping[str, Any], count: int, seed: int) -> dict[str, list[Kernel]]:
    """Return networks by name: both kinds on each data set, ``count`` on synthetic graphs of the paper, `swept`."""
    made: dict[str, list[Kernel]] = {}
    rng = np.random.default_rng(seed)
    for kind in ("gcn", "graphsage"):
        for data in DATA:
            for hidden in ranges["hidden"]:
                made[f"{kind} {data} 2 {hidden}"] = network(kind, {"data": data}, 2, hidden)
    while len(made) < 2 * len(DATA) * len(ranges["hidden"]) + count:
        nodes, wide = int(rng.choice(ranges["nodes"])), int(rng.choice(ranges["features"]))
        ratio, layers, hidden = (int(rng.choice(ranges[name])) for name in ("ratio", "layers", "hidden"))
        for kind in ("gcn", "graphsage"):
            made |= _synthetic(kind, nodes, ratio, wide, layers, hidden)
    return swept(ranges) | made


def swept(ranges: Mapping[str, Any]) -> dict[str, list[Kernel]]:
    """Return the networks of Figure 7: the deepest and narrowest GCN on the smallest graphs, by edges and features."""
    nodes, layers, hidden = min(ranges["nodes"]), max(ranges["layers"]), min(ranges["hidden"])
    made: dict[str, list[Kernel]] = {}
    for ratio, wide in product(ranges["ratio"], ranges["features"]):
        made |= _synthetic("gcn", nodes, ratio, wide, layers, hidden)
    return made


def _synthetic(
    kind: str, nodes: int, ratio: int, wide: int, layers: int, hidden: int
) -> dict[str, list[Kernel]]:
    of = {"graph": {"kind": "rmat", "nodes": nodes, "ratio": float(ratio), "seed": 0}, "features": wide}
    return {f"{kind} {nodes} {ratio} {wide} {layers} {hidden}": network(kind, of, layers, hidden)}


def measure(kernels: Iterable[Kernel], **limits: Any) -> None:
    """Measure the products that are not in the store; ``limits`` go to `Selection.train`."""
    listed = list({kernel.key: kernel.what for kernel in kernels}.values())
    kernels_of_networks().train(listed, **limits)
