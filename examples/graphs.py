"""Train GCN, GraphSAGE or GAT on Cora or Citeseer with Tensorwise's graph operators, in plain torch and with PyG.

    python examples/graphs.py gcn citeseer --data FOLDER

FOLDER holds ``cora.npz`` and ``citeseer.npz`` of the Planetoid data (features and graph as CSR arrays, labels, the
standard split); by default it is ``planetoid`` in the folder that ``TENSORWISE_CORPUS`` names. Prints accuracies on the
test nodes and the time of an epoch (forward, backward and the optimiser's step) of each way to compute, taken in turn:
the same model, with the same first weights and dropped features. PyG gets the product of the sparse features from
``torch.sparse``, which is faster than the dense features of its own examples. Needs the extra ``torch``; PyG takes
part where it is installed.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tensorwise.front import torch as tw


class Scattered:
    """The operators of the models in plain torch: rows gathered for each edge, and added with ``index_add``."""

    def __init__(self, data: "Data") -> None:
        self.u, self.v, self.nodes = data.u, data.v, data.nodes
        self.rows = torch.repeat_interleave(torch.arange(self.nodes), data.pointers.diff())
        self.columns = data.columns

    def features(self, values: Tensor, weight: Tensor) -> Tensor:
        """The product of the sparse features and a layer's weight (outputs, features)."""
        parts = weight.T[self.columns] * values[:, None]
        return parts.new_zeros(self.nodes, len(weight)).index_add(0, self.rows, parts)

    def weighted_sum(self, x: Tensor, weights: Tensor) -> Tensor:
        messages = x[self.u] * weights[:, None]
        return x.new_zeros(self.nodes, *x.shape[1:]).index_add(0, self.v, messages)

    def mean(self, x: Tensor) -> Tensor:
        degrees = torch.bincount(self.v, minlength=self.nodes).clamp(min=1)
        return x.new_zeros(self.nodes, *x.shape[1:]).index_add(0, self.v, x[self.u]) / degrees[:, None]

    def attention(self, x: Tensor, sources: Tensor, destinations: Tensor, kept: Tensor | None) -> Tensor:
        scores = functional.leaky_relu(sources[self.u] + destinations[self.v], 0.2)
        place = self.v[:, None].expand_as(scores)
        largest = scores.new_full((self.nodes, scores.shape[1]), -torch.inf)
        largest = largest.scatter_reduce(0, place, scores.detach(), "amax")
        powers = (scores - largest[self.v]).exp()
        weights = powers / torch.zeros_like(largest).index_add(0, self.v, powers)[self.v]
        weights = weights if kept is None else weights * kept
        return x.new_zeros(self.nodes, *x.shape[1:]).index_add(0, self.v, x[self.u] * weights[:, :, None])


class Multiplied(Scattered):
    """With ``torch.sparse`` where it has an operator: products with a CSR matrix."""

    def __init__(self, data: "Data") -> None:
        super().__init__(data)
        degrees = torch.bincount(self.v, minlength=self.nodes)
        self.order = torch.argsort(self.v * self.nodes + self.u)
        self.sorted, self.shares = self.u[self.order], 1 / degrees.clamp(min=1).float()[self.v]
        self.pointers = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
        self.starts = data.pointers

    def features(self, values: Tensor, weight: Tensor) -> Tensor:
        size = (self.nodes, weight.shape[1])
        return torch.sparse_csr_tensor(self.starts, self.columns, values, size) @ weight.T

    def weighted_sum(self, x: Tensor, weights: Tensor) -> Tensor:
        size = (self.nodes, self.nodes)
        return torch.sparse_csr_tensor(self.pointers, self.sorted, weights[self.order], size) @ x

    def mean(self, x: Tensor) -> Tensor:
        return self.weighted_sum(x, self.shares)


class Geometric(Multiplied):
    """With PyG's message passing: layers without weights of their own, its softmax and its scatter."""

    def __init__(self, data: "Data") -> None:
        from torch_geometric.nn import SimpleConv

        super().__init__(data)
        self.edges = torch.stack([self.u, self.v])
        self.sums, self.means = SimpleConv(aggr="sum"), SimpleConv(aggr="mean")

    def weighted_sum(self, x: Tensor, weights: Tensor) -> Tensor:
        return self.sums(x, self.edges, weights)

    def mean(self, x: Tensor) -> Tensor:
        return self.means(x, self.edges)

    def attention(self, x: Tensor, sources: Tensor, destinations: Tensor, kept: Tensor | None) -> Tensor:
        from torch_geometric.utils import scatter, softmax

        scores = functional.leaky_relu(sources[self.u] + destinations[self.v], 0.2)
        weights = softmax(scores, self.v, num_nodes=self.nodes)
        weights = weights if kept is None else weights * kept
        return scatter(x[self.u] * weights[:, :, None], self.v, 0, self.nodes)


class Tensorwise:
    """The same by Tensorwise: nothing has features for each edge. Sparse features are a graph from words to nodes."""

    def __init__(self, data: "Data") -> None:
        self.graph = tw.Graph(data.u, data.v, (data.nodes, data.nodes))
        self.sparse = tw.Graph.from_pointers(data.pointers, data.columns, data.width)

    def features(self, values: Tensor, weight: Tensor) -> Tensor:
        return tw.gspmm(self.sparse, "mul", "sum", weight.T.contiguous(), values[:, None])

    def weighted_sum(self, x: Tensor, weights: Tensor) -> Tensor:
        return tw.gspmm(self.graph, "mul", "sum", x, weights[:, None])

    def mean(self, x: Tensor) -> Tensor:
        return tw.gspmm(self.graph, "copy_lhs", "mean", x)

    def attention(self, x: Tensor, sources: Tensor, destinations: Tensor, kept: Tensor | None) -> Tensor:
        if kept is None:
            return tw.attention(self.graph, x, sources, destinations)
        scores = functional.leaky_relu(tw.gsddmm(self.graph, "add", sources, destinations), 0.2)
        weights = tw.edge_softmax(self.graph, scores) * kept
        return tw.gspmm(self.graph, "mul", "sum", x, weights[:, :, None])


WAYS: dict[str, Callable[["Data"], Any]] = {
    "tensorwise": Tensorwise,
    "torch, index_add": Scattered,
    "torch.sparse": Multiplied,
    **({"pyg": Geometric} if find_spec("torch_geometric") else {}),
}


class GCN(nn.Module):
    """Kipf and Welling: two layers, 16 hidden features, sums weighted by the degrees of both ends."""

    rate, decay, dropout, loops = 0.01, 5e-4, 0.5, True

    def __init__(self, features: int, classes: int, weights: Tensor) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(features, 16, bias=False), nn.Linear(16, classes, bias=False)
        self.weights = weights

    def forward(self, x: Tensor, ops: Any) -> Tensor:
        x = ops.weighted_sum(ops.features(x, self.first.weight), self.weights).relu()
        x = functional.dropout(x, self.dropout, self.training)
        return ops.weighted_sum(self.second(x), self.weights)


class SAGE(nn.Module):
    """Hamilton, Ying and Leskovec: two layers, 32 hidden features, a node's own and the mean of its neighbours'."""

    rate, decay, dropout, loops = 0.01, 5e-4, 0.5, False

    def __init__(self, features: int, classes: int, weights: Tensor) -> None:
        super().__init__()
        sizes = [(features, 32), (32, classes)]
        self.own = nn.ModuleList(nn.Linear(*size) for size in sizes)
        self.others = nn.ModuleList(nn.Linear(*size, bias=False) for size in sizes)

    def forward(self, x: Tensor, ops: Any) -> Tensor:
        own, others = ops.features(x, self.own[0].weight), ops.features(x, self.others[0].weight)
        x = (own + self.own[0].bias + ops.mean(others)).relu()
        x = functional.dropout(x, self.dropout, self.training)
        return self.own[1](x) + ops.mean(self.others[1](x))


class GAT(nn.Module):
    """Velickovic et al.: 8 heads of 8 features, then one head; features and weights of edges are dropped."""

    rate, decay, dropout, loops = 0.005, 5e-4, 0.6, True

    def __init__(self, features: int, classes: int, weights: Tensor) -> None:
        super().__init__()
        self.sizes, self.edges = [(8, 8), (1, classes)], len(weights)
        self.values = nn.ModuleList(
            nn.Linear(inside, heads * width, bias=False)
            for inside, (heads, width) in zip((features, 64), self.sizes)
        )
        limits = [(6 / (heads + width)) ** 0.5 for heads, width in self.sizes]
        self.scores = nn.ParameterList(
            torch.empty(2, *size).uniform_(-limit, limit) for size, limit in zip(self.sizes, limits)
        )
        self.biases = nn.ParameterList(torch.zeros(heads * width) for heads, width in self.sizes)

    def layer(self, number: int, x: Tensor, ops: Any) -> Tensor:
        weight, size = self.values[number].weight, self.sizes[number]
        values = ops.features(x, weight) if number == 0 else functional.linear(x, weight)
        values = values.view(len(values), *size)
        kept = None
        if self.training:
            kept = functional.dropout(torch.ones(self.edges, size[0]), self.dropout)
        sources, destinations = ((values * part).sum(-1) for part in self.scores[number])
        return ops.attention(values, sources, destinations, kept).flatten(1) + self.biases[number]

    def forward(self, x: Tensor, ops: Any) -> Tensor:
        x = functional.dropout(functional.elu(self.layer(0, x, ops)), self.dropout, self.training)
        return self.layer(1, x, ops)


MODELS: dict[str, Any] = {"gcn": GCN, "sage": SAGE, "gat": GAT}


class Data:
    """A citation graph: labels, split, edges in both directions, and features: those not 0; a node's add up to 1."""

    def __init__(self, path: Path, loops: bool) -> None:
        with np.load(path) as given:
            self.nodes, self.width = (int(extent) for extent in given["x_shape"])
            self.pointers = torch.from_numpy(given["x_indptr"].astype(np.int64))
            self.columns = torch.from_numpy(given["x_indices"].astype(np.int64))
            rows = np.repeat(np.arange(self.nodes), np.diff(given["x_indptr"]))
            sums = np.bincount(rows, given["x_data"], self.nodes)[rows]
            self.x = torch.from_numpy((given["x_data"] / sums).astype(np.float32))
            v = np.repeat(np.arange(self.nodes), np.diff(given["adj_indptr"]))
            u = given["adj_indices"].astype(np.int64)
            self.labels = torch.from_numpy(given["labels"].astype(np.int64))
            self.train, self.val, self.test = (
                torch.from_numpy(given[part].astype(np.int64)) for part in ("train", "val", "test")
            )
        nodes = torch.arange(self.nodes)
        u, v = torch.from_numpy(u), torch.from_numpy(v)
        self.u, self.v = (torch.cat([u, nodes]), torch.cat([v, nodes])) if loops else (u, v)
        degrees = torch.bincount(self.v, minlength=self.nodes).float()
        self.weights = (degrees[self.u] * degrees[self.v]).rsqrt()
        self.classes = int(self.labels.max()) + 1


class Training:
    """A model that learns by one way to compute."""

    def __init__(self, kind: Any, data: Data, way: str, seed: int) -> None:
        torch.manual_seed(seed)
        self.data, self.ops = data, WAYS[way](data)
        self.model = kind(data.width, data.classes, data.weights)
        for layer in self.model.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=kind.rate, weight_decay=kind.decay)
        self.best, self.accuracy = 0.0, 0.0
        self.losses: list[float] = []

    def epoch(self) -> float:
        """Take a step; return its seconds."""
        data, start = self.data, time.perf_counter()
        self.model.train()
        self.optimiser.zero_grad()
        x = functional.dropout(data.x, self.model.dropout)
        loss = functional.cross_entropy(self.model(x, self.ops)[data.train], data.labels[data.train])
        loss.backward()
        self.optimiser.step()
        seconds = time.perf_counter() - start
        self.losses.append(loss.item())
        return seconds

    def judge(self) -> None:
        """Keep the accuracy on the test nodes where that on the validation nodes is the best so far."""
        self.model.eval()
        with torch.no_grad():
            right = self.model(self.data.x, self.ops).argmax(1) == self.data.labels
        val = right[self.data.val].float().mean().item()
        if val >= self.best:
            self.best, self.accuracy = val, right[self.data.test].float().mean().item()


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("graph", choices=["cora", "citeseer"])
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("TENSORWISE_CORPUS", "."), "planetoid")
    )
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1, help="how often training is repeated")
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS, default=list(WAYS), help="ways to compute, taken in turn"
    )
    asked = parser.parse_args()
    path = asked.data / f"{asked.graph}.npz"
    if not path.is_file():
        raise SystemExit(f"no file {path}; name its folder with --data, or the corpus with TENSORWISE_CORPUS")
    kind = MODELS[asked.model]
    data = Data(path, kind.loops)
    seconds: dict[str, list[float]] = {way: [] for way in asked.ways}
    found: dict[str, list[float]] = {way: [] for way in asked.ways}
    for seed in range(asked.seeds):
        trainings = {way: Training(kind, data, way, seed) for way in asked.ways}
        for number in range(asked.epochs):
            for way, training in trainings.items():
                torch.manual_seed(1000 * seed + number)  # the same is dropped in each way
                seconds[way].append(training.epoch())
                training.judge()
        for way, training in trainings.items():
            found[way].append(training.accuracy)
    print(
        f"{asked.model} on {asked.graph}: {asked.epochs} epochs, {asked.seeds} times, {torch.get_num_threads()} threads"
    )
    for way in asked.ways:
        epoch_ms = 1e3 * statistics.median(seconds[way])
        print(f"{way:<18} accuracy {statistics.mean(found[way]):.3f}   epoch {epoch_ms:.2f} ms")


if __name__ == "__main__":
    main()
