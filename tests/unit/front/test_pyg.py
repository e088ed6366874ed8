"""Layers of PyG on our operators: the same training curves, whatever says which edges there are."""

import copy
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tensorwise.errors import InputError, MissingExtraError

torch = pytest.importorskip("torch")
geometric = pytest.importorskip("torch_geometric")

from torch_geometric import nn as pyg  # noqa: E402

from tensorwise.front import pyg as front  # noqa: E402
from tensorwise.front import torch as tw  # noqa: E402

NODES, EDGES, WIDTH, CLASSES = 60, 300, 12, 4
pytestmark = pytest.mark.usefixtures("one_torch_thread")


def edges(seed: int = 0) -> torch.Tensor:
    """In no order, some parallel, some from a node to itself; the last two nodes are never reached."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.randint(0, NODES, (EDGES,), generator=generator)
    v = torch.randint(0, NODES - 2, (EDGES,), generator=generator)
    return torch.stack([u, v])


class Two(torch.nn.Module):
    """Two layers of a kind."""

    def __init__(self, layer: Callable[[int, int], torch.nn.Module]) -> None:
        super().__init__()
        self.first, self.second = layer(WIDTH, 16), layer(16, CLASSES)

    def forward(self, x: torch.Tensor, *given: Any) -> torch.Tensor:
        return self.second(torch.nn.functional.elu(self.first(x, *given)), *given)


def perceptron(inside: int, outside: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(inside, 8), torch.nn.ELU(), torch.nn.Linear(8, outside))


LAYERS: dict[str, Callable[[int, int], torch.nn.Module]] = {
    "GCNConv": lambda a, b: pyg.GCNConv(a, b),
    "GCNConv cached": lambda a, b: pyg.GCNConv(a, b, cached=True),
    "SAGEConv mean": lambda a, b: pyg.SAGEConv(a, b),
    "SAGEConv max": lambda a, b: pyg.SAGEConv(a, b, aggr="max", project=True),
    "GINConv": lambda a, b: pyg.GINConv(perceptron(a, b), train_eps=True),
    "GATConv": lambda a, b: pyg.GATConv(a, b // 2, heads=2),
    "GATConv dropout": lambda a, b: pyg.GATConv(a, b, heads=2, concat=False, dropout=0.4),
    "GraphConv": lambda a, b: pyg.GraphConv(a, b, aggr="min"),
    "TAGConv": lambda a, b: pyg.TAGConv(a, b, K=2),
}


def losses(model: torch.nn.Module, given: Any, epochs: int) -> list[float]:
    """Cross entropy in each epoch of a training."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(NODES, WIDTH, generator=generator)
    labels = torch.randint(0, CLASSES, (NODES,), generator=generator)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    found = []
    for epoch in range(epochs):
        torch.manual_seed(epoch)  # the same is dropped
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, given), labels)
        loss.backward()
        optimiser.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("name", LAYERS)
def test_training_is_what_it_is_with_pyg(name: str) -> None:
    torch.manual_seed(0)
    model = Two(LAYERS[name])
    ours = front.fuse(copy.deepcopy(model))
    assert all(isinstance(layer, front.Fused) for layer in (ours.first, ours.second))
    assert list(ours.state_dict()) == list(model.state_dict())
    wanted = losses(model, edges(), 20)
    assert wanted[-1] < wanted[0]
    assert losses(ours, edges(), 20) == pytest.approx(wanted, rel=2e-5)


@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv max", "GINConv", "GATConv", "GATConv dropout"])
def test_pyg_does_not_compute(name: str) -> None:
    """That the comparison compares something: a fused layer makes no message, and leaves no call to PyG."""
    layer = front.fuse(LAYERS[name](WIDTH, 16))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        layer(torch.randn(NODES, WIDTH), edges())
    assert "tensorwise::graph_einsum" in {event.key for event in seen.key_averages()}
    assert front.fusion_report(layer).layers[0].left == ()


def kinds_of_edges() -> dict[str, Any]:
    index = edges()
    values = torch.ones(EDGES)
    with warnings.catch_warnings(action="ignore"):  # that CSR is new to torch
        coo = torch.sparse_coo_tensor(index.flip(0), values, (NODES, NODES))
        csr = coo.coalesce().to_sparse_csr()
    order = torch.argsort(index[1], stable=True)
    return {
        "int32": index.int(),
        "EdgeIndex": geometric.EdgeIndex(index, sparse_size=(NODES, NODES)),
        "sorted EdgeIndex": geometric.EdgeIndex(
            index[:, order], sparse_size=(NODES, NODES), sort_order="col"
        ),
        "coo": coo.coalesce(),
        "csr": csr,
        "csc": csr.to_sparse_csc(),
    }


@pytest.mark.parametrize("kind", kinds_of_edges())
@pytest.mark.parametrize("name", ["SAGEConv mean", "GraphConv"])
def test_whatever_says_which_edges_there_are(kind: str, name: str) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name](WIDTH, 16).double()
    if name == "SAGEConv mean":
        layer.aggr = "sum"  # parallel edges are one in a matrix: twice the weight
        layer.aggr_module = pyg.SumAggregation()
    else:
        layer = pyg.GraphConv(WIDTH, 16).double()
    x = torch.randn(NODES, WIDTH, dtype=torch.float64)
    given = kinds_of_edges()[kind]
    if getattr(given, "layout", torch.strided) != torch.strided:
        given = given.double()
    torch.testing.assert_close(front.fuse(copy.deepcopy(layer))(x, given), layer(x, edges()))


@pytest.mark.parametrize("kind", ["coo", "csr"])
def test_weights_are_values_of_sparse_tensors(kind: str) -> None:
    torch.manual_seed(0)
    layer, x = pyg.GCNConv(WIDTH, 5).double(), torch.randn(NODES, WIDTH, dtype=torch.float64)
    given = kinds_of_edges()[kind].double() * 1.5
    torch.testing.assert_close(front.fuse(copy.deepcopy(layer))(x, given), layer(x, given))


def test_two_kinds_of_nodes_and_edges_turned_round() -> None:
    index, sources, destinations = edges(), torch.randn(NODES, 5), torch.randn(NODES + 3, 7)
    torch.manual_seed(0)
    for layer in (
        pyg.SAGEConv((5, 7), 6),
        pyg.GATConv((5, 7), 6, heads=2, add_self_loops=False),
        pyg.GATConv((5, 7), 6, add_self_loops=False, edge_dim=2),
    ):
        attributes = (torch.randn(EDGES, 2),) if getattr(layer, "lin_edge", None) is not None else ()
        given = ((sources, destinations), index, *attributes)
        torch.testing.assert_close(front.fuse(copy.deepcopy(layer))(*given), layer(*given))
    turned = pyg.GraphConv(5, 6, flow="target_to_source")
    torch.testing.assert_close(front.fuse(copy.deepcopy(turned))(sources, index), turned(sources, index))


def test_attention_weights_are_returned_where_they_are_asked_for() -> None:
    torch.manual_seed(0)
    layer, x = pyg.GATConv(WIDTH, 4, heads=3), torch.randn(NODES, WIDTH)
    out, (index, weights) = layer(x, edges(), return_attention_weights=True)
    got, (other, ours) = front.fuse(copy.deepcopy(layer))(x, edges(), return_attention_weights=True)
    torch.testing.assert_close(got, out)
    torch.testing.assert_close(other, index)
    torch.testing.assert_close(ours, weights)


def test_gradients_of_edge_weights_and_double_precision() -> None:
    torch.manual_seed(0)
    layer = front.fuse(pyg.GCNConv(3, 2).double())
    weights = (torch.rand(EDGES, dtype=torch.float64) + 0.5).requires_grad_()
    x = torch.randn(NODES, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *given: layer(given[0], edges(), given[1]), (x, weights))


def test_a_graph_is_made_once_and_again_when_edges_change() -> None:
    index = edges()
    first = front.graph_of(index, (NODES, NODES))
    assert front.graph_of(index, (NODES, NODES)) is first
    assert front.graphs()[0] is first
    assert front.graph_of(index.clone(), (NODES, NODES)) is first
    assert front.graph_of(index, (NODES, NODES), "target_to_source") is not first
    index[0, 0] = (index[0, 0] + 1) % NODES
    other = front.graph_of(index, (NODES, NODES))
    assert other is not first
    assert front.graph_of(first, (NODES, NODES)) is first
    for seed in range(2 * front.MOST_SEEN):
        front.graph_of(edges(seed), (NODES, NODES))
    assert len(front.graphs()) == front.MOST_SEEN
    with pytest.raises(InputError, match="outside 0 to 3"):
        front.graph_of(index, (4, 4))


class Difference(front.Fused, pyg.MessagePassing):
    """A layer of one's own: the largest difference to a neighbour."""

    def __init__(self) -> None:
        super().__init__(aggr="max")

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.propagate(edge_index, x=x)

    def message_and_aggregate(self, graph: tw.Graph, x: torch.Tensor) -> torch.Tensor:
        return tw.gspmm(graph, "sub", "max", x, x, "u", "v")


def test_layers_of_ones_own() -> None:
    x, index = torch.randn(NODES, 3), edges()
    u, v = index
    wanted = torch.zeros(NODES, 3).scatter_reduce(
        0, v[:, None].expand(-1, 3), x[u] - x[v], "amax", include_self=False
    )
    torch.testing.assert_close(Difference()(x, index), wanted)

    class Sum(front.Fused, pyg.MessagePassing):
        def forward(self, x: torch.Tensor, edge_index: Any) -> torch.Tensor:
            return self.propagate(edge_index, x=x)

    wanted = torch.zeros(NODES, 3).index_add(0, v, x[u])
    torch.testing.assert_close(Sum()(x, index), wanted)
    torch.testing.assert_close(Sum()(x, tw.Graph(u, v, (NODES, NODES))), wanted)
    with pytest.raises(InputError, match="messages of Other are not"):

        class Other(front.Fused, pyg.MessagePassing):
            def message(self, x_j: torch.Tensor) -> torch.Tensor:
                return 2 * x_j


def test_what_is_not_ours_is_pygs() -> None:
    x, index = torch.randn(NODES, WIDTH), edges()
    torch.manual_seed(0)
    layer = pyg.SAGEConv(WIDTH, 4)
    ours, seen = front.fuse(copy.deepcopy(layer)), []
    ours.register_message_forward_hook(lambda *given: seen.append(1))
    torch.testing.assert_close(ours(x, index), layer(x, index))
    assert seen == [1]
    model = front.fuse(torch.nn.ModuleList([pyg.EdgeConv(perceptron(2 * WIDTH, 4)), pyg.GCNConv(WIDTH, 4)]))
    assert not isinstance(model[0], front.Fused)
    with pytest.warns(UserWarning, match="EdgeConv stays PyG's: message is not the sources' features"):
        assert type(front.fuse(model[0])) is pyg.EdgeConv
    with pytest.raises(InputError, match="Linear has none"):
        front.fuse(torch.nn.Linear(2, 2))


def test_a_class_of_layers() -> None:
    torch.manual_seed(0)
    layer = front.fused(pyg.SAGEConv)(WIDTH, 4)
    assert isinstance(layer, front.Fused)
    assert repr(layer) == "SAGEConv(12, 4, aggr=mean)"
    assert front.SAGEConv is type(layer)
    torch.manual_seed(0)
    plain, x = pyg.SAGEConv(WIDTH, 4), torch.randn(NODES, WIDTH)
    torch.testing.assert_close(layer(x, edges()), plain(x, edges()))
    with pytest.raises(InputError, match="messages of EdgeConv"):
        front.fused(pyg.EdgeConv)


def test_without_pyg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric.nn", None)
    monkeypatch.delitem(sys.modules, "tensorwise.front.pyg")
    with pytest.raises(MissingExtraError, match=r"tensorwise\[pyg\]"):
        import tensorwise.front.pyg  # noqa: F401
