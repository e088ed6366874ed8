"""What a program replaces after a layer was fused is seen: methods of classes, the code within them, parameters."""

import copy
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")
geometric = pytest.importorskip("torch_geometric")

from torch.nn.utils import parametrize  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch_geometric import nn as pyg  # noqa: E402
from torch_geometric.nn.aggr import Aggregation, SumAggregation  # noqa: E402
from torch_geometric.nn.aggr import base as aggregating  # noqa: E402
from torch_geometric.nn.conv import gat_conv  # noqa: E402

from tensorwise.errors import InputError  # noqa: E402
from tensorwise.front import pyg as front  # noqa: E402
from tensorwise.front import torch as tw  # noqa: E402
from tensorwise.front.pyg_graphs import index_of  # noqa: E402

NODES, EDGES, WIDTH = 9, 30, 4
pytestmark = [pytest.mark.usefixtures("one_torch_thread"), pytest.mark.filterwarnings("ignore")]


def edges() -> torch.Tensor:
    return torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(0))


def features(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (NODES, WIDTH)), generator=torch.Generator().manual_seed(1))


def pair(layer: torch.nn.Module) -> tuple[torch.nn.Module, torch.nn.Module]:
    ours = front.fuse(copy.deepcopy(layer))
    assert isinstance(ours, front.Fused)
    ours(features(), edges())
    return layer, ours


def typed() -> Any:
    """A layer of a class without a source file, as typed at a prompt: PyG writes no methods for it."""
    space: dict[str, Any] = {"MessagePassing": pyg.MessagePassing, "W": torch.linspace(0, 1, EDGES)}
    text = (
        "class Typed(MessagePassing):\n"
        " def forward(self, x, edge_index): return self.propagate(edge_index, x=x)\n"
        "class Weighed(Typed):\n"
        " def message(self, x_j, edge_weight=W):\n"
        "  return x_j if edge_weight is None else edge_weight.view(-1, 1) * x_j\n"
    )
    exec(text, space)
    return space


def doubled(function: Any) -> Any:
    return lambda *given, **named: 2 * function(*given, **named)


def replaced(name: str) -> Callable[[Any], Any]:
    def outer(function: Any) -> Any:
        def run(*given: Any) -> Any:
            found = function(*given)
            return found._replace(**{name: 2 * getattr(found, name)})

        return run

    return outer


REPLACED: dict[str, tuple[Any, Any, str, Callable[[Any], Any]]] = {
    "SumAggregation.forward": (
        lambda: pyg.SAGEConv(WIDTH, 3, aggr="sum"),
        SumAggregation,
        "forward",
        doubled,
    ),
    "Aggregation.reduce": (lambda: pyg.SAGEConv(WIDTH, 3, aggr="sum"), Aggregation, "reduce", doubled),
    "Aggregation.__call__": (lambda: pyg.SAGEConv(WIDTH, 3), Aggregation, "__call__", doubled),
    "scatter": (lambda: pyg.SAGEConv(WIDTH, 3), aggregating, "scatter", doubled),
    "softmax": (lambda: pyg.GATConv(WIDTH, 3), gat_conv, "softmax", doubled),
    "edge_updater": (lambda: pyg.GATConv(WIDTH, 3), pyg.GATConv, "edge_updater", doubled),
    "edge_collect": (lambda: pyg.GATConv(WIDTH, 3), pyg.GATConv, "edge_collect", replaced("alpha_j")),
    "collect": (lambda: pyg.SAGEConv(WIDTH, 3), pyg.SAGEConv, "collect", replaced("x_j")),
    "propagate": (lambda: pyg.SAGEConv(WIDTH, 3), pyg.SAGEConv, "propagate", doubled),
    "propagate of no source": (lambda: typed()["Typed"](), pyg.MessagePassing, "propagate", doubled),
    "_lift": (lambda: pyg.GCNConv(WIDTH, 3), pyg.MessagePassing, "_index_select", doubled),
}


@pytest.mark.parametrize("name", REPLACED)
def test_what_is_replaced_after_fuse_is_called(name: str) -> None:
    made, owner, attribute, change = REPLACED[name]
    plain, ours = pair(made())
    x, index = features(), edges()
    before = plain(x, index)
    with mock.patch.object(owner, attribute, change(getattr(owner, attribute))):
        wanted = plain(x, index)
        assert not torch.allclose(wanted, before)
        torch.testing.assert_close(ours(x, index), wanted)
    left = front.fusion_report(ours).layers[0].left
    torch.testing.assert_close(ours(x, index), before)
    assert front.fusion_report(ours).layers[0].left == left


class Mine(pyg.MessagePassing):
    def forward(self, x: Any, edge_index: Any) -> torch.Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: torch.Tensor) -> torch.Tensor:
        return x_j


def twice(self: Any, x_j: torch.Tensor) -> torch.Tensor:
    return 2 * x_j


def mirrored(self: Any, inputs: torch.Tensor) -> torch.Tensor:
    return -inputs


@pytest.mark.parametrize(
    ("name", "owner", "new"), [("message", Mine, twice), ("update", pyg.MessagePassing, mirrored)]
)
def test_code_that_is_replaced_in_place(
    name: str, owner: Any, new: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As IPython's autoreload does."""
    plain, ours = pair(Mine())
    monkeypatch.setattr(getattr(owner, name), "__code__", new.__code__)
    torch.testing.assert_close(ours(features(), edges()), plain(features(), edges()))
    assert f"{name} of the class was replaced" in front.fusion_report(ours).text()


def test_a_weight_by_default_is_pygs() -> None:
    layer = typed()["Weighed"]()
    with pytest.warns(UserWarning, match="message is not"):
        ours = front.fuse(copy.deepcopy(layer))
    for one in (layer, ours):
        with pytest.raises(AttributeError):  # which PyG does not find
            one(features(), edges())


def test_a_sorted_edge_index_that_flows_to_its_sources() -> None:
    index = edges()[:, edges()[1].argsort(stable=True)].contiguous()
    plain, ours = pair(pyg.GraphConv(WIDTH, 3, flow="target_to_source"))
    given = geometric.EdgeIndex(index, sort_order="col", sparse_size=(NODES, NODES))
    for one in (given, index):
        torch.testing.assert_close(ours(features(), one), plain(features(), one))


@pytest.mark.parametrize("shape", [(NODES,), (NODES, 3, 2)])
def test_features_of_destinations_that_pyg_does_not_take(shape: tuple[int, ...]) -> None:
    for layer in pair(pyg.SAGEConv((WIDTH, WIDTH), 3, root_weight=False)):
        with pytest.raises((IndexError, ValueError)):
            layer((features(), features(*shape)), edges())


class Twice(torch.nn.Module):
    def forward(self, w: torch.Tensor) -> torch.Tensor:
        return 2 * w


@pytest.mark.parametrize(("kind", "name"), [(pyg.GATConv, "att_src"), (pyg.GCNConv, "bias")])
def test_parametrized_layers(kind: Any, name: str) -> None:
    plain, ours = pair(kind(WIDTH, 3))
    x, index = features(), edges()
    fused = type(ours)
    for layer in (plain, ours):
        parametrize.register_parametrization(layer, name, Twice())
    torch.testing.assert_close(ours(x, index), plain(x, index))
    later = front.fuse(copy.deepcopy(plain))
    torch.testing.assert_close(later(x, index), plain(x, index))
    for layer in (plain, ours, later):
        parametrize.remove_parametrizations(layer, name)
    for layer in (ours, later):
        assert type(layer) is fused
        torch.testing.assert_close(layer(x, index), plain(x, index))
        assert front.fusion_report(layer).layers[0].left == ()


def test_classes_that_are_derived_from_a_fused_one() -> None:
    class My(front.GATConv):
        pass

    layer = My(WIDTH, 3)
    plain = pyg.GATConv(WIDTH, 3)
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(features(), edges()), plain(features(), edges()))
    assert front.fusion_report(layer).layers[0].left == ()


def test_graphs_lie_in_main_memory_whatever_is_the_default() -> None:
    plain, ours = pair(pyg.SAGEConv(WIDTH, 3))
    grads = []
    index = torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(5))
    for within in (torch.device("meta"), torch.inference_mode()):
        with within:
            graph = tw.Graph.of(index, (NODES, NODES))
            made = index_of(graph)
            front.graph_of(index, (NODES, NODES))
        for one in (graph.pointers, graph.sources, graph.numbers, made):
            assert one.is_cpu
            assert not one.is_inference()
    for layer in (plain, ours):
        x = features().requires_grad_()
        layer(x, index).sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("slope", [np.float64(0.3), True, float("-inf"), float("inf"), float("nan")])
def test_slopes_that_cannot_be_spelled_are_pygs(slope: Any) -> None:
    plain, ours = pair(pyg.GATConv(WIDTH, 3, negative_slope=slope))
    torch.testing.assert_close(ours(features(), edges()), plain(features(), edges()), equal_nan=True)
    assert "negative_slope is no finite float" in front.fusion_report(ours).text()


@pytest.mark.parametrize("text", ["C[i] += 1 for A[i,k]", "C[A] = 1 for A[i,k]"])
def test_assignments_without_operands_compile(text: str) -> None:
    torch.compiler.reset()
    graph = tw.Graph.of(edges(), (NODES, NODES))
    compiled = torch.compile(lambda: graph.einsum(text), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(), graph.einsum(text))


class Seen(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        self.names.append(str(function))
        return function(*given, **(named or {}))


def test_a_function_mode_sees_graph_operators() -> None:
    graph = tw.Graph.of(edges(), (NODES, NODES))
    with Seen() as seen:
        tw.gspmm(graph, "copy_lhs", "sum", features())
    assert any("graph_einsum" in name for name in seen.names)


def test_batches_of_gradients_are_refused_by_name() -> None:
    ours = pair(pyg.GCNConv(WIDTH, 3))[1]
    with pytest.raises(InputError, match=r"not is_grads_batched or vectorize=True"):
        torch.autograd.functional.jacobian(lambda x: ours(x, edges()), features(), vectorize=True)


def test_reasons_do_not_grow_with_the_calls() -> None:
    layer = front.fuse(pyg.GraphConv(WIDTH, 3))
    for count in range(1, 9):
        index = edges()[:, :count]
        for odd in (
            torch.sparse_coo_tensor(index, torch.ones(count).bfloat16(), (NODES, NODES))
            .coalesce()
            .to_sparse_csr(),
            torch.zeros(3, count, dtype=torch.long),
            index + NODES - 1 + count,
        ):
            try:
                layer(features(), odd)
            except (ValueError, IndexError, RuntimeError):
                continue
        try:
            layer(features(), index, size=(count, count))
        except ValueError:
            continue
    assert 3 <= len(front.fusion_report(layer).layers[0].left) <= 4
