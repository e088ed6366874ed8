"""GCN and GraphSAGE as kernels that are all products, and where a planner puts them (MLCD, section V-E)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter, methodcaller
from typing import Any, Final, final

import numpy as np
import scipy.sparse as sp

import tensorwise as tw
from benchmarks.corpus import root
from selections.gemm import GPU, UNITS, VERSIONS, add_gpu, lay_out
from selections.graphs import graph
from tensorwise.data.record import Record
from tensorwise.device.libraries.mkl import MklKernel
from tensorwise.errors import InputError
from tensorwise.model.cases import config_name, features_of
from tensorwise.model.choosing import TreeModel
from tensorwise.plan.graph import Graph, Network, Step
from tensorwise.plan.place import place, total_s
from tensorwise.selection import Selection

DATA: Final = {"cora": (2708, 1433, 7), "citeseer": (3327, 3703, 6)}
"""Nodes, features and classes."""
CLASSES: Final = 7
"""Of synthetic graphs."""
MOST_DENSE: Final = 20_000_000
"""Entries of a matrix that is kept as a dense one, too."""
SPARSE_FEATURES: Final = 0.99
"""Share of zeros in synthetic features: words in documents, as Cora has them."""
AFTER_RELU: Final = 0.5
ONE_THREAD: Final = ("naive", "rows", "own sparse, one thread")


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
    with np.load(root() / "planetoid" / f"{name}.npz") as held:
        return sp.csr_array(
            (held["x_data"], held["x_indices"], held["x_indptr"]), shape=tuple(held["x_shape"])
        )


def adjacency(data: str = "", **of: Any) -> sp.csr_array:
    """Return a graph as GCN has it: with itself, both ways, scaled by the roots of degrees, float32."""
    if data:
        with np.load(root() / "planetoid" / f"{data}.npz") as held:
            nodes = DATA[data][0]
            given = sp.csr_array(
                (np.ones(len(held["adj_indices"]), np.float32), held["adj_indices"], held["adj_indptr"]),
                shape=(nodes, nodes),
            )
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
    add_gpu(made)
    return made


@final
class Measured:
    """What products took, operands in place, and what a model says that they would.

    Args:
        records: of `kernels_of_networks`.
        model: learned from GEMM, and not from these.
        gpu: figures of a GPU that takes the place of one that was not measured; see values.toml.
    """

    def __init__(self, records: Iterable[Record], model: TreeModel, gpu: Mapping[str, float]) -> None:
        self.took: dict[str, dict[str, float]] = {}
        self._said: dict[str, dict[str, float]] = {}
        known = {config_name(config): config for config in model.configs}
        for record in records:
            if not record.ok:
                continue
            key = json.dumps(json.loads(str(record.provenance["input"])), sort_keys=True)
            moving_s = float(record.provenance.get("moving_s", 0.0))  # type: ignore[arg-type]
            version = config_name(record.config)
            self.took.setdefault(key, {})[version] = record.seconds - moving_s
            said = self._said.setdefault(key, {})
            numbers = features_of(record.workload)
            point = np.array([[numbers[field] for field in model.fields]])
            if version in known:
                said[version] = float(model.latency(known[version], point)[0])
            elif version in GPU:
                said[version] = record.seconds - moving_s
            if "gpu" not in said:
                work = 2 * numbers["stored"]
                said["gpu"] = gpu["launch_s"] + min(
                    work / gpu["sparse_flops"], 2 * numbers["terms"] / gpu["dense_flops"]
                )
        self.has_gpu = all(any(name in GPU for name in took) for took in self.took.values())
        for key, took in self.took.items():
            if self.has_gpu:
                del self._said[key]["gpu"]
            else:
                took["gpu"] = self._said[key]["gpu"]

    def chosen(self, key: str, versions: Sequence[str]) -> tuple[float, float, float]:
        """Return of the version that the model takes for the fastest what it says and what it took, and the least taken."""
        took, said = self.took[key], self._said[key]
        able = [name for name in versions if name in took and name in said]
        best = min(able, key=said.__getitem__)
        return said[best], took[best], min(took[name] for name in able)

    def versions(self, gpu: bool) -> list[str]:
        """Return the names of all versions that were measured, on GPUs or elsewhere."""
        names = dict.fromkeys(name for took in self.took.values() for name in took)
        return [name for name in names if (name in GPU or name == "gpu") == gpu]


def planned(
    kernels: Sequence[Kernel], measured: Measured, devices: Mapping[str, Sequence[str]], network: Network
) -> dict[str, Any]:
    """Place a network by what a model says, and judge the placement by what was measured.

    Args:
        kernels: of the network.
        measured: knows all of them.
        devices: name -> versions that run there.
        network: the devices and their links.

    Returns:
        ``planned_s``, ``ideal_s`` (the best placement of the fastest versions), ``alone_s`` by device, and ``moves``:
        names of the kernels that read something which was moved, after the first.
    """
    of = {
        (kernel.key, device): measured.chosen(kernel.key, names)
        for kernel in kernels
        for device, names in devices.items()
    }

    def graph_by(which: int) -> Graph:
        steps = (
            Step(
                kernel.name, {device: of[kernel.key, device][which] for device in devices}, kernel.result_bytes,
                kernel.after, kernel.given_bytes,
            )
            for kernel in kernels
        )  # fmt: skip
        return Graph(tuple(steps))

    said, true = graph_by(0), graph_by(1)
    placed = place(said, network).devices
    costs = true.costs(network)
    numbers = [network.devices.index(device) for device in placed]
    alone = {
        device: total_s(true, *costs, [network.devices.index(device)] * len(kernels)) for device in devices
    }
    moves = [
        kernel.name
        for kernel, device in zip(kernels, placed, strict=True)
        if any(placed[said.number[earlier]] != device for earlier in kernel.after)
    ]
    return {
        "planned_s": total_s(true, *costs, numbers),
        "ideal_s": place(graph_by(2), network).seconds,
        "alone_s": alone,
        "moves": moves,
    }


def drawn(ranges: Mapping[str, Any], count: int, seed: int) -> dict[str, list[Kernel]]:
    """Return networks by name: both kinds on each data set, and ``count`` on synthetic graphs of the paper's ranges."""
    made: dict[str, list[Kernel]] = {}
    rng = np.random.default_rng(seed)
    for kind in ("gcn", "graphsage"):
        for data in DATA:
            for hidden in ranges["hidden"]:
                made[f"{kind} {data} 2 {hidden}"] = network(kind, {"data": data}, 2, hidden)
    while len(made) < 2 * len(DATA) * len(ranges["hidden"]) + count:
        nodes, wide = int(rng.choice(ranges["nodes"])), int(rng.choice(ranges["features"]))
        ratio, layers, hidden = (int(rng.choice(ranges[name])) for name in ("ratio", "layers", "hidden"))
        of = {"graph": {"kind": "rmat", "nodes": nodes, "ratio": float(ratio), "seed": 0}, "features": wide}
        for kind in ("gcn", "graphsage"):
            made[f"{kind} {nodes} {ratio} {wide} {layers} {hidden}"] = network(kind, of, layers, hidden)
    return made


def measure(kernels: Iterable[Kernel], **limits: Any) -> None:
    """Measure the products that are not in the store; ``limits`` go to `Selection.train`."""
    listed = list({kernel.key: kernel.what for kernel in kernels}.values())
    kernels_of_networks().train(listed, **limits)
