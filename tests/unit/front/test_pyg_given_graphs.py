"""A `Graph` given for an ``edge_index`` computes what its edges do, eagerly and compiled, whatever PyG does with them."""

import copy
import types
from collections.abc import Callable
from typing import Any

import pytest

from tensorwise.errors import InputError

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch_geometric import nn as pyg  # noqa: E402

from tensorwise.front import pyg as front  # noqa: E402
from tensorwise.front import torch as tw  # noqa: E402

NODES, EDGES, WIDTH = 9, 30, 4
pytestmark = [pytest.mark.usefixtures("one_torch_thread"), pytest.mark.filterwarnings("ignore")]

LAYERS: dict[str, Callable[..., torch.nn.Module]] = {
    "APPNP": lambda **given: pyg.APPNP(2, 0.1, **given),
    "ARMAConv": lambda **given: pyg.ARMAConv(WIDTH, 3, num_stacks=2, **given),
    "ClusterGCNConv": lambda **given: pyg.ClusterGCNConv(WIDTH, 3, **given),
    "GATConv": lambda **given: pyg.GATConv(WIDTH, 2, heads=2, **given),
    "GATConv without loops": lambda **given: pyg.GATConv(WIDTH, 2, add_self_loops=False, **given),
    "GATConv of a steep slope": lambda **given: pyg.GATConv(WIDTH, 2, negative_slope=1.5, **given),
    "GCN2Conv": lambda **given: pyg.GCN2Conv(WIDTH, 0.1, **given),
    "GCNConv": lambda **given: pyg.GCNConv(WIDTH, 3, **given),
    "GCNConv cached": lambda **given: pyg.GCNConv(WIDTH, 3, cached=True, **given),
    "GCNConv plain": lambda **given: pyg.GCNConv(WIDTH, 3, normalize=False, **given),
    "GINConv": lambda **given: pyg.GINConv(torch.nn.Linear(WIDTH, 3), **given),
    "GatedGraphConv": lambda **given: pyg.GatedGraphConv(WIDTH, 2, **given),
    "GraphConv": lambda **given: pyg.GraphConv(WIDTH, 3, **given),
    "LGConv": lambda **given: pyg.LGConv(**given),
    "LabelPropagation": lambda **given: pyg.LabelPropagation(2, 0.9, **given),
    "MFConv": lambda **given: pyg.MFConv(WIDTH, 3, **given),
    "MixHopConv": lambda **given: pyg.MixHopConv(WIDTH, 3, **given),
    "PDNConv": lambda **given: pyg.PDNConv(WIDTH, 3, 1, 4, **given),
    "SAGEConv": lambda **given: pyg.SAGEConv(WIDTH, 3, **given),
    "SAGEConv max": lambda **given: pyg.SAGEConv(WIDTH, 3, aggr="max", **given),
    "SGConv": lambda **given: pyg.SGConv(WIDTH, 3, K=2, **given),
    "SSGConv": lambda **given: pyg.SSGConv(WIDTH, 3, alpha=0.1, K=2, **given),
    "SignedConv": lambda **given: pyg.SignedConv(WIDTH, 3, first_aggr=True, **given),
    "SimpleConv with loops": lambda **given: pyg.SimpleConv(combine_root="self_loop", **given),
    "TAGConv": lambda **given: pyg.TAGConv(WIDTH, 3, K=2, **given),
    "WLConvContinuous": lambda **given: pyg.WLConvContinuous(**given),
}


def edges() -> torch.Tensor:
    """Some parallel, some from a node to itself, in no order; nobody sends to the last two nodes."""
    generator = torch.Generator().manual_seed(0)
    u = torch.randint(0, NODES, (EDGES,), generator=generator)
    return torch.stack([u, torch.randint(0, NODES - 2, (EDGES,), generator=generator)])


def features(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (NODES, WIDTH)), generator=torch.Generator().manual_seed(1))


def graph() -> tw.Graph:
    return tw.Graph.of(edges(), (NODES, NODES))


def pair(layer: torch.nn.Module) -> tuple[torch.nn.Module, torch.nn.Module]:
    ours = front.fuse(copy.deepcopy(layer))
    assert isinstance(ours, front.Fused)
    return layer, ours


def arguments(name: str, index: Any) -> tuple[Any, ...]:
    x = features()
    more = {"GCN2Conv": (x * 2, index), "SignedConv": (index, index), "PDNConv": (index, features(EDGES, 1))}
    return x, *more.get(name, (index,))


@pytest.mark.parametrize("name", LAYERS)
def test_a_graph_is_its_edges(name: str) -> None:
    for flow in ("source_to_target", "target_to_source"):
        if name == "LabelPropagation" and flow == "target_to_source":
            continue
        given = {"flow": flow} if name != "LabelPropagation" else {}
        plain, ours = pair(LAYERS[name](**given))
        wanted = plain(*arguments(name, edges()))
        for _ in range(2):
            torch.testing.assert_close(ours(*arguments(name, graph())), wanted)
        torch.testing.assert_close(ours.forward(*arguments(name, graph())), wanted)


@pytest.mark.parametrize("name", ["GCNConv", "TAGConv", "SimpleConv with loops", "SAGEConv"])
def test_a_compiled_layer_takes_a_graph_for_its_edges(name: str) -> None:
    torch.compiler.reset()
    plain, ours = pair(LAYERS[name]())
    compiled = torch.compile(ours, backend="eager")
    torch.testing.assert_close(compiled(features(), graph()), plain(features(), edges()))


def test_a_given_graph_is_used_and_not_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PyG's code gives its edges on as they are."""
    monkeypatch.setattr(front, "graph_of", None)
    for name in ("SAGEConv", "GATConv without loops", "GCNConv plain"):
        ours = pair(LAYERS[name]())[1]
        ours(features(), graph())
        assert front.fusion_report(ours).layers[0].left == ()


def other(self: Any, alpha_j: Any, alpha_i: Any, edge_attr: Any, index: Any, ptr: Any, dim_size: Any) -> Any:
    return alpha_j


def twice(self: Any, x_j: torch.Tensor, edge_weight: Any = None) -> torch.Tensor:
    return 2 * x_j


def set_on(name: str, function: Any) -> Callable[[Any], None]:
    return lambda layer: setattr(layer, name, types.MethodType(function, layer))


UNTAKEN: dict[str, tuple[Any, Any, tuple[Any, ...], dict[str, Any]]] = {
    "attributes": (
        lambda: pyg.GATConv(WIDTH, 3, edge_dim=2, add_self_loops=False),
        None,
        (features(EDGES, 2),),
        {},
    ),
    "weights are asked for": (
        lambda: pyg.GATConv(WIDTH, 3, add_self_loops=False),
        None,
        (),
        {"return_attention_weights": True},
    ),
    "edge_update": (
        lambda: pyg.GATConv(WIDTH, 3, add_self_loops=False),
        set_on("edge_update", other),
        (),
        {},
    ),
    "message": (lambda: pyg.GraphConv(WIDTH, 3), set_on("message", twice), (), {}),
    "hooks": (
        lambda: pyg.GraphConv(WIDTH, 3),
        lambda layer: layer.register_message_forward_hook(lambda module, given, out: 3 * out),
        (),
        {},
    ),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", UNTAKEN)
def test_what_our_operators_do_not_compute_is_pygs_with_a_graph_too(name: str, compiled: bool) -> None:
    torch.compiler.reset()
    made, change, more, named = UNTAKEN[name]
    plain, ours = pair(made())
    for layer in (plain, ours):
        if change is not None:
            change(layer)
    # PyG's compiled code calls no hooks.
    wanted = (torch.compile(plain, backend="eager") if compiled else plain)(
        features(), edges(), *more, **named
    )
    torch.compiler.reset()
    run = torch.compile(ours, backend="eager") if compiled else ours
    torch.testing.assert_close(run(features(), graph(), *more, **named), wanted)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_class_that_is_patched_and_features_of_three_dimensions(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.compiler.reset()
    plain, ours = pair(pyg.SAGEConv(WIDTH, 3))
    run = torch.compile(ours, backend="eager") if compiled else ours
    many = features(NODES, NODES, WIDTH)
    torch.testing.assert_close(run(many, graph()), plain(many, edges()))
    monkeypatch.setattr(pyg.SAGEConv, "message", twice)
    torch.testing.assert_close(run(features(), graph()), plain(features(), edges()))


def test_edges_that_a_layer_returns_may_be_changed() -> None:
    plain, ours = pair(pyg.GATConv(WIDTH, 3, add_self_loops=False))
    one = graph()
    wanted = plain(features(), edges(), return_attention_weights=True)
    for _ in range(2):
        out, (index, weights) = ours(features(), one, return_attention_weights=True)
        torch.testing.assert_close((out, (index, weights)), wanted)
        index.numpy()[:] = 0


def test_features_of_other_destinations_than_the_graph_has() -> None:
    with pytest.raises(InputError, match="the graph has 9 destinations, and there are features of 8"):
        pair(pyg.SAGEConv((WIDTH, WIDTH), 3))[1]((features(), features()[:8]), graph())
