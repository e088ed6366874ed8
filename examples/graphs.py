"""Train GCN, GraphSAGE or GAT on Cora or Citeseer with Tensorwise's graph operators, and beside it in plain torch.

    python examples/graphs.py gcn cora --data FOLDER

FOLDER holds ``cora.npz`` and ``citeseer.npz`` of the Planetoid data (features and graph as CSR arrays, labels, the
standard split); by default it is ``planetoid`` in the folder that ``TENSORWISE_CORPUS`` names. Prints accuracies on the
test nodes and the time of an epoch (forward, backward and the optimiser's step) of each way to compute, taken in turn.
Needs the extra ``torch``.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tensorwise.front import torch as tw


class Scattered:
    """The operators of the models in plain torch: rows gathered for each edge, and added with ``index_add``."""

    def __init__(self, u: Tensor, v: Tensor, nodes: int) -> None:
        self.u, self.v, self.nodes = u, v, nodes

    def weighted_sum(self, x: Tensor, weights: Tensor) -> Tensor:
        messages = x[self.u] * weights[:, None]
        return x.new_zeros(self.nodes, *x.shape[1:]).index_add(0, self.v, messages)

    def mean(self, x: Tensor) -> Tensor:
        degrees = torch.bincount(self.v, minlength=self.nodes).clamp(min=1)
        return x.new_zeros(self.nodes, *x.shape[1:]).index_add(0, self.v, x[self.u]) / degrees[:, None]

    def attention(self, x: Tensor, sources: Tensor, destinations: Tensor) -> Tensor:
        scores = functional.leaky_relu(sources[self.u] + destinations[self.v], 0.2)
        place = self.v[:, None].expand_as(scores)
        largest = scores.new_full((self.nodes, scores.shape[1]), -torch.inf)
        largest = largest.scatter_reduce(0, place, scores.detach(), "amax")
        powers = (scores - largest[self.v]).exp()
        weights = powers / torch.zeros_like(largest).index_add(0, self.v, powers)[self.v]
        return x.new_zeros(self.nodes, *x.shape[1:]).index_add(0, self.v, x[self.u] * weights[:, :, None])


class Multiplied(Scattered):
    """With ``torch.sparse`` where it has an operator: products with a CSR matrix."""

    def __init__(self, u: Tensor, v: Tensor, nodes: int) -> None:
        super().__init__(u, v, nodes)
        self.order = torch.argsort(v * nodes + u)
        self.columns = u[self.order]
        self.pointers = torch.cat([v.new_zeros(1), torch.bincount(v, minlength=nodes).cumsum(0)])
        self.shares = 1 / torch.bincount(v, minlength=nodes).clamp(min=1).float()[v]

    def weighted_sum(self, x: Tensor, weights: Tensor) -> Tensor:
        size = (self.nodes, self.nodes)
        return torch.sparse_csr_tensor(self.pointers, self.columns, weights[self.order], size) @ x

    def mean(self, x: Tensor) -> Tensor:
        return self.weighted_sum(x, self.shares)


class Tensorwise:
    """The same by Tensorwise: nothing has a row for each edge."""

    def __init__(self, u: Tensor, v: Tensor, nodes: int) -> None:
        self.graph = tw.Graph(u, v, (nodes, nodes))

    def weighted_sum(self, x: Tensor, weights: Tensor) -> Tensor:
        return tw.gspmm(self.graph, "mul", "sum", x, weights[:, None])

    def mean(self, x: Tensor) -> Tensor:
        return tw.gspmm(self.graph, "copy_lhs", "mean", x)

    def attention(self, x: Tensor, sources: Tensor, destinations: Tensor) -> Tensor:
        return tw.attention(self.graph, x, sources, destinations)


WAYS: dict[str, Callable[[Tensor, Tensor, int], Any]] = {
    "tensorwise": Tensorwise,
    "torch, index_add": Scattered,
    "torch.sparse": Multiplied,
}


class GCN(nn.Module):
    """Kipf and Welling: two layers, 16 hidden features, sums weighted by the degrees of both ends."""

    rate, decay, dropout, loops = 0.01, 5e-4, 0.5, True

    def __init__(self, features: int, classes: int, weights: Tensor) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(features, 16, bias=False), nn.Linear(16, classes, bias=False)
        self.weights = weights

    def forward(self, x: Tensor, ops: Any) -> Tensor:
        x = ops.weighted_sum(self.first(x), self.weights).relu()
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
        x = (self.own[0](x) + ops.mean(self.others[0](x))).relu()
        x = functional.dropout(x, self.dropout, self.training)
        return self.own[1](x) + ops.mean(self.others[1](x))


class GAT(nn.Module):
    """Velickovic et al.: 8 heads of 8 features, then one head; features are dropped, weights of edges are not."""

    rate, decay, dropout, loops = 0.005, 5e-4, 0.6, True

    def __init__(self, features: int, classes: int, weights: Tensor) -> None:
        super().__init__()
        self.sizes = [(8, 8), (1, classes)]
        self.values = nn.ModuleList(
            nn.Linear(inside, heads * width, bias=False)
            for inside, (heads, width) in zip((features, 64), self.sizes)
        )
        scores = [nn.init.xavier_uniform_(torch.empty(2, *size)) for size in self.sizes]
        self.scores = nn.ParameterList(scores)

    def layer(self, number: int, x: Tensor, ops: Any) -> Tensor:
        values = self.values[number](x).view(len(x), *self.sizes[number])
        sources, destinations = ((values * part).sum(-1) for part in self.scores[number])
        return ops.attention(values, sources, destinations).flatten(1)

    def forward(self, x: Tensor, ops: Any) -> Tensor:
        x = functional.dropout(functional.elu(self.layer(0, x, ops)), self.dropout, self.training)
        return self.layer(1, x, ops)


MODELS: dict[str, Any] = {"gcn": GCN, "sage": SAGE, "gat": GAT}


class Data:
    """A citation graph: normalised features, labels, split, and edges in both directions."""

    def __init__(self, path: Path, loops: bool) -> None:
        with np.load(path) as given:
            counts, shape = np.diff(given["x_indptr"]), tuple(given["x_shape"])
            rows = np.repeat(np.arange(shape[0]), counts)
            x = np.zeros(shape, np.float32)
            x[rows, given["x_indices"]] = given["x_data"]
            v = np.repeat(np.arange(shape[0]), np.diff(given["adj_indptr"]))
            u = given["adj_indices"].astype(np.int64)
            self.labels = torch.from_numpy(given["labels"].astype(np.int64))
            self.train, self.val, self.test = (
                torch.from_numpy(given[part].astype(np.int64)) for part in ("train", "val", "test")
            )
        self.x = torch.from_numpy(x / np.maximum(x.sum(1, keepdims=True), 1))
        nodes = torch.arange(shape[0])
        u, v = torch.from_numpy(u), torch.from_numpy(v)
        self.u, self.v = (torch.cat([u, nodes]), torch.cat([v, nodes])) if loops else (u, v)
        degrees = torch.bincount(self.v, minlength=shape[0]).float()
        self.weights = (degrees[self.u] * degrees[self.v]).rsqrt()
        self.classes = int(self.labels.max()) + 1


class Training:
    """A model that learns by one way to compute."""

    def __init__(self, kind: Any, data: Data, way: str, seed: int) -> None:
        torch.manual_seed(seed)
        self.data, self.ops = data, WAYS[way](data.u, data.v, len(data.x))
        self.model = kind(data.x.shape[1], data.classes, data.weights)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=kind.rate, weight_decay=kind.decay)
        self.best, self.accuracy = 0.0, 0.0

    def epoch(self) -> float:
        """Take a step; return its seconds."""
        data, start = self.data, time.perf_counter()
        self.model.train()
        self.optimiser.zero_grad()
        x = functional.dropout(data.x, self.model.dropout)
        loss = functional.cross_entropy(self.model(x, self.ops)[data.train], data.labels[data.train])
        loss.backward()
        self.optimiser.step()
        return time.perf_counter() - start

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
    asked = parser.parse_args()
    path = asked.data / f"{asked.graph}.npz"
    if not path.is_file():
        raise SystemExit(f"no file {path}; name its folder with --data, or the corpus with TENSORWISE_CORPUS")
    kind = MODELS[asked.model]
    data = Data(path, kind.loops)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for seed in range(asked.seeds):
        trainings = {way: Training(kind, data, way, seed) for way in WAYS}
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
    for way in WAYS:
        epoch_ms = 1e3 * statistics.median(seconds[way])
        print(f"{way:<18} accuracy {statistics.mean(found[way]):.3f}   epoch {epoch_ms:.2f} ms")


if __name__ == "__main__":
    main()
