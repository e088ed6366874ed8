"""A fused layer promises what PyG's does: whatever changes, traces, patches, hooks or copies it."""

import copy
import io
import pickle
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tensorwise.errors import InputError

torch = pytest.importorskip("torch")
geometric = pytest.importorskip("torch_geometric")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch_geometric import nn as pyg  # noqa: E402

from tensorwise.front import gnn  # noqa: E402
from tensorwise.front import pyg as front  # noqa: E402
from tensorwise.front import torch as tw  # noqa: E402

NODES, EDGES, WIDTH = 12, 40, 8
pytestmark = pytest.mark.usefixtures("one_torch_thread")


def edges(seed: int = 0) -> torch.Tensor:
    return torch.randint(0, NODES - 3, (2, EDGES), generator=torch.Generator().manual_seed(seed))


def features(seed: int = 0) -> torch.Tensor:
    return torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(seed))


def pair(layer: torch.nn.Module) -> tuple[torch.nn.Module, torch.nn.Module]:
    """A layer of PyG's, and a fused copy."""
    ours = front.fuse(torch.nn.ModuleList([copy.deepcopy(layer)]))[0]
    return layer, ours


LAYERS: dict[str, Callable[[], torch.nn.Module]] = {
    "GCNConv": lambda: pyg.GCNConv(WIDTH, 4),
    "GATConv": lambda: pyg.GATConv(WIDTH, 4, heads=2),
    "GraphConv": lambda: pyg.GraphConv(WIDTH, 4),
    "GINConv": lambda: pyg.GINConv(torch.nn.Linear(WIDTH, 4)),
}


# -- edges that change ------------------------------------------------------------------------------------


def by_numpy(index: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
    index.numpy()[:] = fresh.numpy()
    return index


def by_data(index: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
    index.data.copy_(fresh)
    return index


def in_inference_mode(index: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return index.clone().copy_(fresh)


def through_a_buffer(index: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
    buffer = np.asarray(index.numpy())
    buffer[:] = fresh.numpy()
    return torch.from_numpy(buffer)


CHANGES = [by_numpy, by_data, in_inference_mode, through_a_buffer]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["GraphConv", "GATConv"])
def test_edges_that_change_make_another_graph(name: str, change: Callable[..., torch.Tensor]) -> None:
    plain, ours = pair(LAYERS[name]())
    index = edges()
    ours(features(), index)
    for seed in (1, 2):
        index = change(index, edges(seed))
        torch.testing.assert_close(ours(features(), index), plain(features(), index))


def test_edges_written_within_inference_mode() -> None:
    plain, ours = pair(LAYERS["GraphConv"]())
    with torch.inference_mode():
        index = edges().clone()
        for seed in (1, 2):
            index.copy_(edges(seed))
            torch.testing.assert_close(ours(features(), index), plain(features(), index))


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_sparse_matrices_that_change(layout: str) -> None:
    plain, ours = pair(LAYERS["GraphConv"]())
    index = torch.unique(edges(), dim=1)
    matrix = torch.sparse_coo_tensor(index, torch.rand(index.shape[1]), (NODES, NODES)).coalesce()
    matrix = matrix.to_sparse_csr() if layout == "csr" else matrix
    ours(features(), matrix)
    indices = matrix.col_indices() if layout == "csr" else matrix.indices()[1]
    indices.numpy()[:] = np.sort(indices.numpy())
    matrix.values().numpy()[:] *= 2
    torch.testing.assert_close(ours(features(), matrix), plain(features(), matrix))


def test_a_graph_does_not_change_with_what_it_was_made_of() -> None:
    index, x = edges(), features()
    graph = tw.Graph.of(index, (NODES, NODES))
    wanted = tw.gspmm(graph, "copy_lhs", "sum", x)
    index.numpy()[:] = 0
    graph.sources.zero_()
    torch.testing.assert_close(tw.gspmm(graph, "copy_lhs", "sum", x), wanted)


def test_the_operator_reads_its_tensors_and_not_their_addresses() -> None:
    index, x = edges(), features()
    graph = tw.Graph.of(index, (NODES, NODES))
    text = "C[i,f] += L[k,f] for A[i,k]"

    def run(numbers: torch.Tensor | None, text: str, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.tensorwise.graph_einsum(graph.pointers, graph.sources, numbers, NODES, text, [x])

    run(graph.numbers, text, x)
    for fresh in (0, 3):
        graph.sources.numpy()[:] = fresh
        degrees = (graph.pointers[1:] - graph.pointers[:-1]).float()[:, None]
        torch.testing.assert_close(run(graph.numbers, text, x), degrees * x[fresh])
    weights = torch.arange(EDGES, dtype=torch.float32)[:, None]
    assert graph.numbers is not None
    weighed = "C[i,f] += E[A,f] for A[i,k]"
    one, other = run(graph.numbers, weighed, weights), run(None, weighed, weights)
    rows = torch.repeat_interleave(torch.arange(NODES), graph.pointers.long().diff())
    wanted = torch.zeros(NODES, 1).index_add(0, rows, weights)
    torch.testing.assert_close(other, wanted)
    torch.testing.assert_close(one, torch.zeros(NODES, 1).index_add(0, rows, weights[graph.numbers.long()]))


# -- traces -----------------------------------------------------------------------------------------------


class OfTensors(torch.nn.Module):
    """A layer that torch.export takes, whose inputs are two tensors."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return self.layer(x, index)


TRACED = {**LAYERS, "GATConv": lambda: pyg.GATConv(WIDTH, 4, heads=2, add_self_loops=False)}
"""Without self-loops, whose number is another for other edges: that no trace follows."""
TRACES: dict[str, Callable[[torch.nn.Module], Any]] = {
    "jit.trace": lambda layer: torch.jit.trace(layer, (features(), edges())),
    "jit.script": torch.jit.script,
    "make_fx": lambda layer: make_fx(layer)(features(), edges()),
    "make_fx fake": lambda layer: make_fx(layer, tracing_mode="fake", _allow_non_fake_inputs=True)(
        features(), edges()
    ),
    "make_fx symbolic": lambda layer: make_fx(layer, tracing_mode="symbolic", _allow_non_fake_inputs=True)(
        features(), edges()
    ),
    "export": lambda layer: torch.export.export(OfTensors(layer), (features(), edges())).module(),
    "export strict": lambda layer: torch.export.export(
        OfTensors(layer), (features(), edges()), strict=True
    ).module(),
    "compile": lambda layer: torch.compile(layer, backend="aot_eager", fullgraph=True),
}


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("name", ["GraphConv", "GATConv"])
@pytest.mark.filterwarnings("ignore")
def test_a_trace_holds_no_graph(name: str, trace: str) -> None:
    torch.compiler.reset()
    if name == "GATConv" and trace == "jit.script":
        pytest.skip("PyG's own GATConv is none that TorchScript compiles")
    plain, ours = pair(TRACED[name]())
    ours(features(), edges())  # the graph is known when the trace begins
    traced = TRACES[trace](ours)
    traced(features(), edges())
    torch.testing.assert_close(traced(features(1), edges(1)), plain(features(1), edges(1)))
    assert front.fusion_report(ours).layers[0].left, "nothing says that PyG's code was traced"


def test_transforms_of_functions() -> None:
    plain, ours = pair(LAYERS["GraphConv"]())
    index = edges()
    many = torch.stack([features(seed) for seed in range(3)])
    for transform in (
        lambda layer: torch.func.vmap(lambda x: layer(x, index))(many),
        lambda layer: torch.func.grad(lambda x: layer(x, index).square().sum())(features()),
        lambda layer: torch.func.jvp(lambda x: layer(x, index), (features(),), (features(1),))[1],
        lambda layer: torch.func.functional_call(layer, dict(layer.named_parameters()), (features(), index)),
    ):
        torch.testing.assert_close(transform(ours), transform(plain))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(features(), features(1))
        tangents = [
            torch.autograd.forward_ad.unpack_dual(layer(dual, index)).tangent for layer in (ours, plain)
        ]
    torch.testing.assert_close(*tangents)


@pytest.mark.parametrize("name", ["GraphConv", "GATConv"])
def test_a_given_graph_is_compiled_without_a_break(name: str) -> None:
    torch.compiler.reset()
    plain, ours = pair(TRACED[name]())
    graphs = [tw.Graph.of(edges(seed), (NODES, NODES)) for seed in range(2)]
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    for seed, graph in enumerate(graphs):
        torch.testing.assert_close(compiled(features(), graph), plain(features(), edges(seed)))


def test_a_graph_is_not_made_within_a_trace() -> None:
    def made(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return tw.gspmm(tw.Graph.of(index, (NODES, NODES)), "copy_lhs", "sum", x)

    for trace in (torch.jit.trace, lambda function, given: make_fx(function)(*given)):
        with pytest.raises(InputError, match="make the graph before it is traced"):
            trace(made, (features(), edges()))


# -- what a program changes -------------------------------------------------------------------------------


def twice(self: Any, x_j: torch.Tensor, edge_weight: Any = None) -> torch.Tensor:
    return 2 * x_j


class OwnPropagate(pyg.GraphConv):
    def propagate(self, edge_index: Any, size: Any = None, **given: Any) -> torch.Tensor:
        return super().propagate(edge_index, size=size, **given) + 1


class OwnMessage(pyg.GraphConv):
    def message(self, x_j: torch.Tensor, edge_weight: Any) -> torch.Tensor:
        return 2 * x_j


class OwnUpdate(pyg.GraphConv):
    def update(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + 1


class OwnAggregate(pyg.GraphConv):
    def aggregate(self, inputs: torch.Tensor, index: torch.Tensor, dim_size: Any = None) -> torch.Tensor:
        return super().aggregate(inputs, index, dim_size=dim_size) + 1


class OwnLift(pyg.GraphConv):
    def _index_select(self, src: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return super()._index_select(src, index) + 1


class OwnWeight(pyg.MessagePassing):
    """Its message takes no weight, though propagate is given one."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.propagate(edge_index, x=x, edge_weight=torch.full((EDGES,), 3.0))


class OwnForward(pyg.GCNConv):
    """What stays PyG's does so because of what propagates, not because it is derived."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x, edge_index) * 2


class OwnScores(pyg.GATConv):
    def edge_update(
        self, alpha_j: Any, alpha_i: Any, edge_attr: Any, index: Any, ptr: Any, dim_size: Any
    ) -> Any:
        return alpha_j.sigmoid()


@pytest.mark.parametrize(
    "kind", [OwnPropagate, OwnMessage, OwnUpdate, OwnAggregate, OwnLift, OwnForward, OwnScores]
)
@pytest.mark.filterwarnings("ignore:no layer can be changed")
def test_classes_that_override_a_step(kind: type) -> None:
    plain, ours = pair(kind(WIDTH, 4))
    torch.testing.assert_close(ours(features(), edges()), plain(features(), edges()))
    assert isinstance(ours, front.Fused) == (kind is OwnForward)


def test_a_weight_that_no_message_takes() -> None:
    plain, ours = pair(OwnWeight())
    assert isinstance(ours, front.Fused)
    torch.testing.assert_close(ours(features(), edges()), plain(features(), edges()))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.filterwarnings("ignore:no layer can be changed")
def test_a_message_that_is_set_on_the_layer(when: str) -> None:
    plain = pyg.GraphConv(WIDTH, 4)
    ours = copy.deepcopy(plain)
    ours = ours if when == "before" else front.fuse(ours)
    for layer in (plain, ours):
        layer.message = types.MethodType(twice, layer)
    ours = front.fuse(ours) if when == "before" else ours
    torch.testing.assert_close(ours(features(), edges()), plain(features(), edges()))
    assert "message is set on the layer itself" in front.fusion_report(ours).text()


@pytest.mark.parametrize("owner", [pyg.GraphConv, front.GraphConv])
def test_a_message_that_is_set_on_the_class(owner: type) -> None:
    plain, ours = pair(LAYERS["GraphConv"]())
    x, index = features(), edges()
    with mock.patch.object(pyg.GraphConv, "message", twice):
        wanted = plain(x, index)
    with mock.patch.object(owner, "message", twice):
        torch.testing.assert_close(ours(x, index), wanted)
    torch.testing.assert_close(ours(x, index), plain(x, index))


def test_an_aggregation_that_is_replaced() -> None:
    plain, ours = pair(LAYERS["GraphConv"]())
    for module in (
        pyg.MulAggregation(),
        pyg.MaxAggregation(),
        pyg.SoftmaxAggregation(),
        pyg.SumAggregation(),
    ):
        plain.aggr_module = ours.aggr_module = module
        torch.testing.assert_close(ours(features(), edges()), plain(features(), edges()))
    handle = ours.aggr_module.register_forward_hook(lambda module, given, out: out + 1)
    torch.testing.assert_close(ours(features(), edges()), plain(features(), edges()))
    handle.remove()


HOOKS = ["propagate", "message", "aggregate", "message_and_aggregate"]


@pytest.mark.parametrize("step", HOOKS)
def test_hooks_see_every_step(step: str) -> None:
    plain, ours = pair(LAYERS["GraphConv"]())
    index: Any = edges()
    if step == "message_and_aggregate":
        index = torch.unique(index, dim=1)
        index = torch.sparse_coo_tensor(index, torch.rand(index.shape[1]), (NODES, NODES))
        index = index.coalesce().to_sparse_csr()
    seen: list[str] = []
    for layer in (plain, ours):
        getattr(layer, f"register_{step}_forward_pre_hook")(lambda *given: seen.append("before"))
        getattr(layer, f"register_{step}_forward_hook")(lambda *given: given[-1] + 1)
    torch.testing.assert_close(ours(features(), index), plain(features(), index))
    assert seen == ["before"] * 2


def test_edge_update_hooks_and_decomposition() -> None:
    plain, ours = pair(LAYERS["GATConv"]())
    for layer in (plain, ours):
        layer.register_edge_update_forward_hook(lambda module, given, out: out * 2)
    torch.testing.assert_close(ours(features(), edges()), plain(features(), edges()))
    plain, ours = pair(LAYERS["GCNConv"]())
    for layers in (2, 1):
        for layer in (plain, ours):
            layer.decomposed_layers = layers
        torch.testing.assert_close(ours(features(), edges()), plain(features(), edges()))


@pytest.mark.parametrize("name", ["GraphConv", "GATConv"])
@pytest.mark.parametrize("made", ["fuse", "fused"])
def test_explained_layers_are_masked(name: str, made: str) -> None:
    plain, ours = pair(LAYERS[name]())
    if made == "fused":
        state, width = ours.state_dict(), {"heads": 2} if name == "GATConv" else {}
        ours = front.fused(getattr(pyg, name))(WIDTH, 4, **width)
        ours.load_state_dict(state)
    for layer in (plain, ours):
        layer.explain = True
        layer._edge_mask = torch.linspace(-1, 1, EDGES)
        layer._loop_mask = edges()[0] != edges()[1]
    torch.testing.assert_close(ours(features(), edges()), plain(features(), edges()))
    for layer in (plain, ours):
        layer.explain = False
    torch.testing.assert_close(ours(features(), edges()), plain(features(), edges()))


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_features_may_be_changed_in_place(aggr: str) -> None:
    """PyG's layers keep none of them for their gradients."""
    grads = []
    for layer in pair(pyg.SimpleConv(aggr=aggr)):
        x = features().requires_grad_()
        doubled = 2 * x
        out = layer(doubled, edges())
        (out * doubled.relu_().detach()).sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


def test_results_may_be_changed_in_place() -> None:
    """PyG's layers keep none of them for their gradients."""
    grads = []
    for layer in pair(pyg.GATConv(WIDTH, 4, heads=2, bias=False)):
        x = features().requires_grad_()
        layer(x, edges()).relu_().square().sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


# -- layers of one's own ----------------------------------------------------------------------------------


class Largest(front.Fused, pyg.MessagePassing):
    def __init__(self) -> None:
        super().__init__(aggr="max")

    def forward(self, x: torch.Tensor, edge_index: Any) -> torch.Tensor:
        return self.propagate(edge_index, x=x)

    def message_and_aggregate(self, graph: tw.Graph, x: torch.Tensor) -> torch.Tensor:
        return tw.gspmm(graph, "sub", "max", x, x, "u", "v")


class Weighed(front.Fused, pyg.MessagePassing):
    def forward(self, x: torch.Tensor, edge_index: Any, edge_weight: torch.Tensor) -> torch.Tensor:
        return self.propagate(edge_index, x=x, edge_weight=edge_weight)


def test_a_layer_of_ones_own_says_what_nobody_else_can_compute() -> None:
    layer = Largest()
    layer.register_message_forward_hook(lambda *given: None)
    with pytest.raises(InputError, match="but a step of propagate has a hook"):
        layer(features(), edges())
    with pytest.raises(InputError, match="give it a Graph"):
        make_fx(Largest())(features(), edges())
    graph = tw.Graph.of(edges(), (NODES, NODES))
    traced = make_fx(lambda x: Largest()(x, graph))(features())
    torch.testing.assert_close(traced(features(1)), Largest()(features(1), edges()))


def test_a_layer_of_ones_own_with_weights_is_pygs_too() -> None:
    layer, weights = Weighed(), torch.rand(EDGES)
    wanted = layer(features(), edges(), weights)
    layer.register_message_forward_hook(lambda *given: None)
    torch.testing.assert_close(layer(features(), edges(), weights), wanted)


# -- copies -----------------------------------------------------------------------------------------------

Model = torch.nn.Sequential


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    made = pyg.Sequential(
        "x, index",
        [
            (pyg.GCNConv(WIDTH, 6), "x, index -> x"),
            (pyg.GATConv(6, 4, heads=2), "x, index -> x"),
            (OwnForward(8, 4), "x, index -> x"),
        ],
    )
    return front.fuse(made)


def loaded(saved: bytes) -> Any:
    return torch.load(io.BytesIO(saved), weights_only=False)


def saved(one: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(one, buffer)
    return buffer.getvalue()


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),  # noqa: S301
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "torch.save": lambda one: loaded(saved(one)),
    "averaged": lambda one: torch.optim.swa_utils.AveragedModel(one).module,
}


@pytest.mark.parametrize("way", COPIES)
def test_layers_are_copied_as_fused(way: str) -> None:
    for layer in (front.fuse(OwnForward(WIDTH, 4)), *(pair(make())[1] for make in LAYERS.values())):
        x, index = features(), edges()
        wanted = layer(x, index)
        made = COPIES[way](layer)
        assert isinstance(made, front.Fused)
        assert type(made) is type(layer)
        torch.testing.assert_close(made(x, index), wanted)
        assert front.fusion_report(made).layers[0].left == ()


@pytest.mark.parametrize("way", list(COPIES)[:4])
def test_graphs_are_copied_as_their_edges(way: str) -> None:
    x, weights = features(), torch.rand(EDGES, WIDTH)
    for graph in (tw.Graph.of(edges(), (NODES, NODES)), tw.Graph.from_pointers([0, 1, 3], [0, 0, 5], 6)):
        given = (x[: graph.columns], weights[: graph.graph.edges])
        wanted = tw.gspmm(graph, "mul", "sum", *given)
        made = COPIES[way](graph)
        torch.testing.assert_close(tw.gspmm(made, "mul", "sum", *given), wanted)
        assert made.graph.threads == graph.graph.threads
        other = COPIES[way](graph.graph)
        assert isinstance(other, gnn.Graph)
        np.testing.assert_allclose(
            gnn.gspmm(other, "mul", "sum", *(array.numpy() for array in given)), wanted.numpy(), rtol=1e-6
        )


def test_a_pickled_layer_is_read_where_nothing_was_fused() -> None:
    """As in a worker that is spawned: neither PyG's templates nor our classes were made there before."""
    layer = front.fuse(pyg.GATConv(WIDTH, 4, heads=2, add_self_loops=False))
    x, index = (features(), features()[:9]), edges()
    text = pickle.dumps((layer, x, index, tw.Graph.of(index, (9, NODES)), layer(x, index)))
    script = (
        "import pickle, sys, torch\n"
        "layer, x, index, graph, wanted = pickle.load(sys.stdin.buffer)\n"
        "torch.testing.assert_close(layer(x, index), wanted)\n"
        "torch.testing.assert_close(layer(x, graph), wanted)\n"
        "layer.explain = True\n"
        "layer._edge_mask = torch.full((index.shape[1],), -100.0)\n"
        "torch.testing.assert_close(layer(x, index), layer.bias.expand_as(wanted))\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], input=text, check=True)


def fused_in_worker(batch: list[Any]) -> torch.Tensor:
    layer, index = batch[0]
    return layer(features(), index).detach()


def test_workers_of_a_loader_compute() -> None:
    layer = pair(LAYERS["GCNConv"]())[1]
    items = [(layer, edges(seed)) for seed in range(2)]
    loader = torch.utils.data.DataLoader(
        items, batch_size=1, num_workers=1, collate_fn=fused_in_worker, multiprocessing_context="fork"
    )
    for (_, index), got in zip(items, loader):
        torch.testing.assert_close(got, layer(features(), index).detach())


def test_a_package_holds_pygs_layers(tmp_path: Any) -> None:
    """It names the modules that it needs, and a machine that reads it may not have Tensorwise."""
    plain, ours = pair(LAYERS["GraphConv"]())
    with torch.package.PackageExporter(tmp_path / "model.pt") as package:
        for name in ("torch_geometric.**", "_operator"):
            package.extern(name)
        package.save_pickle("models", "model.pkl", ours)
    read = torch.package.PackageImporter(tmp_path / "model.pt").load_pickle("models", "model.pkl")
    assert type(read) is pyg.GraphConv
    torch.testing.assert_close(read(features(), edges()), plain(features(), edges()))


def test_the_memory_of_results_can_be_resized() -> None:
    """Invertible networks free what they compute again."""
    out = pair(LAYERS["GraphConv"]())[1](features(), edges())
    out = tw.gspmm(tw.Graph.of(edges(), (NODES, NODES)), "copy_lhs", "sum", out.detach())
    out.untyped_storage().resize_(0)
    assert out.untyped_storage().nbytes() == 0


# -- the report -------------------------------------------------------------------------------------------


def test_the_report_says_which_layers_stay_pygs_and_why() -> None:
    model = torch.nn.ModuleDict(
        {
            "gcn": pyg.GCNConv(WIDTH, 4),
            "many": pyg.SAGEConv(WIDTH, 4, aggr=["mean", "max"]),
            "edge": pyg.EdgeConv(torch.nn.Linear(2 * WIDTH, 4)),
        }
    )
    assert front.fusion_report(model["gcn"]).text() == "(model): GCNConv stays PyG's: fuse was not called"
    front.fuse(model)
    model["gcn"](features().half().float().to(torch.complex64).real.double().float(), edges())
    handle = model["gcn"].register_message_forward_hook(lambda *given: None)
    model["gcn"](features(), edges())
    handle.remove()
    gcn, many, edge = front.fusion_report(model).layers
    assert (gcn.fused, many.fused, edge.fused) == (True, False, False)
    assert gcn.left == (("a step of propagate has a hook", 1),)
    assert "MultiAggregation" in many.reason
    assert "message is not" in edge.reason
    assert (
        "gcn: GCNConv fused\n    1 calls left to PyG: a step of propagate has a hook"
        in front.fusion_report(model).text()
    )


COMPILED = "compiled or exported code is PyG's (counted when it is made): "


def test_compiled_code_of_pygs_is_counted_on_each_layer() -> None:
    torch.compiler.reset()
    model = torch.nn.Sequential(*(pair(TRACED[name]())[1] for name in ("GraphConv", "GATConv")))
    first, second = (torch.compile(layer, backend="aot_eager", fullgraph=True) for layer in model)
    for _ in range(2):
        first(features(), edges())
    reason = COMPILED + "propagate was given an edge_index, not a Graph"
    assert [layer.left for layer in front.fusion_report(model).layers] == [((reason, 1),), ()]
    second(features(), edges())
    second(features(), tw.Graph.of(edges(), (NODES, NODES)))
    assert [layer.left for layer in front.fusion_report(model).layers] == [((reason, 1),)] * 2
    assert f"0: GraphConv fused\n    1 calls left to PyG: {reason}" in front.fusion_report(model).text()


def test_compiled_code_of_pygs_is_counted_with_a_graph_too() -> None:
    torch.compiler.reset()
    graph = tw.Graph.of(edges(), (NODES, NODES))
    loops, odd = pyg.GCNConv(WIDTH, 3), pyg.GraphConv(WIDTH, 3)
    for layer in (loops, odd):
        front.fuse(layer)
    odd.message = types.MethodType(twice, odd)
    for layer in (loops, odd):
        torch.compile(layer, backend="eager", fullgraph=True)(features(), graph)
    assert front.fusion_report(loops).layers[0].left[0][0].startswith(COMPILED + "propagate was given")
    assert front.fusion_report(odd).layers[0].left == ((COMPILED + "message is set on the layer itself", 1),)


@pytest.mark.parametrize("compiled", [False, True])
def test_weights_of_attention_that_pyg_computes_are_counted(compiled: bool) -> None:
    torch.compiler.reset()
    layer = front.fuse(pyg.GATConv(WIDTH, 3, add_self_loops=False))
    run = torch.compile(layer, backend="eager") if compiled else layer
    run(features(), tw.Graph.of(edges(), (NODES, NODES)), return_attention_weights=True)
    ((reason, calls),) = front.fusion_report(layer).layers[0].left
    assert calls == 1
    assert reason.startswith(COMPILED) == compiled
    assert "weights of attention are asked for" in reason


def test_a_version_of_pyg_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorwise.front import pyg_proof

    pyg_proof._unknown_file.cache_clear()
    assert pyg_proof._unknown_file() is None, (
        "read the new version of this file of PyG's, then add its digest"
    )
    monkeypatch.setitem(pyg_proof.KNOWN_FILES, "nn/aggr/base.py", ("0" * 12,))
    pyg_proof._unknown_file.cache_clear()
    with pytest.warns(UserWarning, match=r"has another nn/aggr/base\.py"):
        front.fuse(pyg.GCNConv(WIDTH, 4))
    pyg_proof._unknown_file.cache_clear()
