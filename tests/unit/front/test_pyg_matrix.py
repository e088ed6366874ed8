"""Every layer that `fuse` changes against PyG's own: flows, features, aggregations, edges, weights; values and gradients."""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch")
geometric = pytest.importorskip("torch_geometric")

from torch_geometric import nn as pyg  # noqa: E402

from tensorwise.front import pyg as front  # noqa: E402
from tensorwise.front.pyg_proof import prove  # noqa: E402

SOURCES, NODES, EDGES, WIDTH = 9, 12, 40, 4
FLOWS = ("source_to_target", "target_to_source")
pytestmark = [pytest.mark.usefixtures("one_torch_thread"), pytest.mark.filterwarnings("ignore")]


class Sum(pyg.MessagePassing):
    """A class of a user's, by PyG's default message."""

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None, size: Any = None) -> torch.Tensor:
        return self.propagate(edge_index, x=x, size=size)


LAYERS: dict[type, Callable[..., torch.nn.Module]] = {
    pyg.APPNP: lambda **given: pyg.APPNP(2, 0.1, **given),
    pyg.ARMAConv: lambda **given: pyg.ARMAConv(WIDTH, 3, num_stacks=2, **given),
    pyg.ClusterGCNConv: lambda **given: pyg.ClusterGCNConv(WIDTH, 3, **given),
    pyg.GATConv: lambda **given: pyg.GATConv(WIDTH, 2, heads=2, **given),
    pyg.GCN2Conv: lambda **given: pyg.GCN2Conv(WIDTH, 0.1, **given),
    pyg.GCNConv: lambda **given: pyg.GCNConv(WIDTH, 3, **given),
    pyg.GINConv: lambda **given: pyg.GINConv(torch.nn.Linear(WIDTH, 3), **given),
    pyg.GatedGraphConv: lambda **given: pyg.GatedGraphConv(WIDTH, 2, **given),
    pyg.GraphConv: lambda **given: pyg.GraphConv(WIDTH, 3, **given),
    pyg.LGConv: lambda **given: pyg.LGConv(**given),
    pyg.LabelPropagation: lambda **given: pyg.LabelPropagation(2, 0.9),
    pyg.MFConv: lambda **given: pyg.MFConv(WIDTH, 3, **given),
    pyg.MixHopConv: lambda **given: pyg.MixHopConv(WIDTH, 3, **given),
    pyg.PANConv: lambda **given: pyg.PANConv(WIDTH, 3, 2, **given),
    pyg.PDNConv: lambda **given: pyg.PDNConv(WIDTH, 3, 1, 4, **given),
    pyg.SAGEConv: lambda **given: pyg.SAGEConv(WIDTH, 3, **given),
    pyg.SGConv: lambda **given: pyg.SGConv(WIDTH, 3, K=2, **given),
    pyg.SSGConv: lambda **given: pyg.SSGConv(WIDTH, 3, alpha=0.1, K=2, **given),
    pyg.SignedConv: lambda **given: pyg.SignedConv(WIDTH, 3, first_aggr=True, **given),
    pyg.SimpleConv: lambda **given: pyg.SimpleConv(**given),
    pyg.TAGConv: lambda **given: pyg.TAGConv(WIDTH, 3, K=2, **given),
    pyg.WLConvContinuous: lambda **given: pyg.WLConvContinuous(**given),
    Sum: lambda **given: Sum(**given),
}
WEIGHTED = {pyg.APPNP, pyg.ARMAConv, pyg.GCN2Conv, pyg.GCNConv, pyg.GatedGraphConv, pyg.GraphConv, pyg.LGConv,
            pyg.MixHopConv, pyg.SGConv, pyg.SSGConv, pyg.SimpleConv, pyg.TAGConv, pyg.WLConvContinuous, Sum}  # fmt: skip
PAIRS = {pyg.GATConv, pyg.GINConv, pyg.GraphConv, pyg.MFConv, pyg.SAGEConv, pyg.SignedConv, pyg.SimpleConv,
         pyg.WLConvContinuous, Sum}  # fmt: skip
AGGREGATED = {
    pyg.GATConv,
    pyg.GINConv,
    pyg.GraphConv,
    pyg.SAGEConv,
    pyg.SimpleConv,
    pyg.GCNConv,
    pyg.TAGConv,
    Sum,
}
AGGREGATIONS: dict[str, Callable[[], Any]] = {
    "sum": lambda: "sum",
    "mean": lambda: "mean",
    "max": lambda: "max",
    "min": lambda: "min",
    "mul": lambda: "mul",
    "std": lambda: "std",
    "median": lambda: "median",
    "softmax": lambda: "softmax",
    "list": lambda: ["mean", "max"],
    "list of one": lambda: ["sum"],
    "module": lambda: pyg.MaxAggregation(),
    "learned": lambda: pyg.SoftmaxAggregation(learn=True),
}


def edges(sources: int = NODES, count: int = EDGES) -> torch.Tensor:
    """Some parallel, some from a node to itself; nobody sends to the last three nodes."""
    generator = torch.Generator().manual_seed(0)
    u = torch.randint(0, sources, (count,), generator=generator)
    return torch.stack([u, torch.randint(0, NODES - 3, (count,), generator=generator)])


def tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def run(layer: torch.nn.Module, *given: Any, leaves: Any = (), **named: Any) -> Any:
    """What a layer returns, and the gradients of all that takes one; or the kind of what it raises."""
    parts = [part for one in given for part in (one if isinstance(one, tuple) else (one,))]
    leaves = [*leaves, *parts, *named.values(), *layer.parameters()]
    leaves = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    try:
        out = layer(*given, **named)
    except Exception as error:
        return type(error)
    out = (
        torch.cat([part.flatten() for part in out if isinstance(part, torch.Tensor)])
        if isinstance(out, tuple)
        else out
    )
    if not (out.requires_grad and leaves):
        return out, []
    loss = (out * torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)).abs().sum()
    try:
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
    except RuntimeError as error:
        return type(error)
    return out, [
        None if one is None else one.to_dense() if one.layout != torch.strided else one for one in gradients
    ]


def compare(
    layer: torch.nn.Module,
    given: Callable[[], tuple[Any, ...]],
    told: str,
    pygs: Callable[[], tuple[Any, ...]] | None = None,
) -> bool:
    """Whether PyG computes it; a fused copy gives the same values and gradients, or raises the same.

    ``pygs`` are the arguments for PyG where those that are compared are others.
    """
    layer = layer.double()
    wanted, got = run(layer, *(pygs or given)()), run(front.fuse(copy.deepcopy(layer)), *given())
    same(got, wanted, told)
    return isinstance(wanted, tuple)


def same(got: Any, wanted: Any, told: str) -> None:
    """Assert that two results of `run` are one."""
    if not isinstance(wanted, tuple):
        assert got is wanted, f"{told}: PyG raises {wanted.__name__}, ours gives {got}"
        return
    assert isinstance(got, tuple), f"{told}: ours raises {got.__name__}"
    torch.testing.assert_close(got, wanted, equal_nan=True, msg=lambda text: f"{told}: {text}")


def made(kind: type, **given: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    return LAYERS[kind](**given)


def arguments(kind: type, x: Any, index: Any, weights: Any = None) -> tuple[Any, ...]:
    if kind is pyg.GCN2Conv:
        return (x, tensor(NODES, WIDTH, seed=3), index) if weights is None else (x, x, index, weights)
    if kind is pyg.SignedConv:
        return x, index, index
    if kind is pyg.PDNConv:
        return x, index, tensor(index.shape[1], 1, seed=4) if index.layout == torch.strided else None
    return (x, index) if weights is None else (x, index, weights)


def test_all_layers_that_are_proved_are_compared() -> None:
    def derived(kind: type) -> Iterator[type]:
        for one in kind.__subclasses__():
            yield one
            yield from derived(one)

    kinds = {kind for kind in derived(pyg.MessagePassing) if kind.__module__.startswith("torch_geometric.")}
    proved = {
        kind for kind in kinds if not isinstance(prove(kind), str) and not issubclass(kind, front.Fused)
    }
    assert proved <= set(LAYERS)
    for kind in LAYERS:
        assert isinstance(front.fuse(made(kind)), front.Fused), kind


@pytest.mark.parametrize("kind", LAYERS)
def test_flows_and_features(kind: type) -> None:
    computed = 0
    for flow, shape in product(FLOWS, ("one", "pair", "same", "none")):
        if shape != "one" and kind not in PAIRS:
            continue

        def given(shape: str = shape) -> tuple[Any, ...]:
            x = tensor(NODES, WIDTH).requires_grad_()
            if shape == "one":
                return arguments(kind, x, edges())
            sources = tensor(SOURCES, WIDTH, seed=1).requires_grad_()
            pair = {"pair": (sources, x), "same": (x, x), "none": (sources, None)}[shape]
            return arguments(kind, pair, edges(SOURCES))

        flows = {"flow": flow} if kind is not pyg.LabelPropagation else {}
        if kind is pyg.GATConv and shape == "pair":
            flows["add_self_loops"] = False
        computed += compare(made(kind, **flows), given, f"{flow}, {shape}")
    assert computed or kind is pyg.PANConv  # which needs torch_sparse


@pytest.mark.parametrize("kind", sorted(AGGREGATED, key=lambda kind: kind.__name__))
def test_aggregations(kind: type) -> None:
    for name, flow in product(AGGREGATIONS, FLOWS):
        if kind is pyg.GATConv and name.startswith("list"):
            continue  # PyG gives rows of another width

        def given() -> tuple[Any, ...]:
            return arguments(kind, tensor(NODES, WIDTH).requires_grad_(), edges())

        layer = made(kind, aggr=AGGREGATIONS[name](), flow=flow)
        assert compare(layer, given, f"{name}, {flow}") or name in ("list", "median", "std")
        if flow == FLOWS[0]:
            replaced = made(kind)
            replaced.aggr_module = layer.aggr_module
            compare(replaced, given, f"{name} instead")


def layouts(weights: torch.Tensor) -> dict[str, Callable[[], Any]]:
    index = torch.unique(edges(), dim=1).contiguous()

    def coo() -> torch.Tensor:
        return torch.sparse_coo_tensor(index.flip(0), weights, (NODES, NODES)).coalesce()

    order = index[1].argsort(stable=True)
    return {
        "int64": lambda: index,
        "sorted": lambda: index[:, order],
        "int32": lambda: index.int(),
        "int16": lambda: index.short(),
        "transposed": lambda: index.t().contiguous().t(),
        "EdgeIndex": lambda: geometric.EdgeIndex(index.contiguous(), sparse_size=(NODES, NODES)),
        "EdgeIndex of no size": lambda: geometric.EdgeIndex(index.contiguous()),
        "sorted EdgeIndex": lambda: geometric.EdgeIndex(
            index[:, order], sparse_size=(NODES, NODES), sort_order="col"
        ),
        "coo": coo,
        "uncoalesced": lambda: torch.sparse_coo_tensor(edges(), weights.new_ones(EDGES), (NODES, NODES)),
        "csr": lambda: coo().to_sparse_csr(),
        "csc": lambda: coo().to_sparse_csc(),
        "float32 csr": lambda: coo().float().to_sparse_csr(),
    }


@pytest.mark.parametrize("kind", LAYERS)
def test_layouts_of_edges(kind: type) -> None:
    count = torch.unique(edges(), dim=1).shape[1]
    computed = []
    for name, learned in product(layouts(tensor(count)), (False, True)):

        def given(name: str = name, learned: bool = learned) -> tuple[Any, ...]:
            weights = tensor(count, seed=2).abs().requires_grad_(learned)
            index = layouts(weights)[name]()
            x = tensor(NODES, WIDTH).requires_grad_()
            return arguments(kind, x, index)

        if name == "csc" and learned:
            continue  # torch has no gradient of a CSC matrix's values; ours has
        # torch's gather takes the wrong gradients by contiguous indices of 32 bits, and PyG's matrices are float32.
        instead = {"int32": "int64", "sorted EdgeIndex": "sorted"}.get(name, name)
        pygs = partial(given, instead, learned)
        if compare(made(kind), given, f"{name}, {'learned' if learned else 'constant'}", pygs):
            computed.append(name)
    assert "int32" in computed or kind is pyg.PANConv


@pytest.mark.parametrize("kind", [pyg.GraphConv, pyg.SAGEConv, pyg.SimpleConv, pyg.GCNConv, Sum])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_learned_values_of_sparse_matrices(kind: type, aggr: str) -> None:
    """Their gradients reach the leaf they come from, or a matrix that is a leaf itself."""
    index = torch.unique(edges(), dim=1)
    computed = 0
    for layout, multiplied, leaf in product(("coo", "csr"), (True, False), (True, False)):
        layer = made(kind, aggr=aggr).double()
        layer.fuse = layer.fuse and multiplied
        found = []
        for one in (layer, front.fuse(copy.deepcopy(layer))):
            weights = tensor(index.shape[1], seed=2).abs().requires_grad_(not leaf)
            matrix = torch.sparse_coo_tensor(index, weights, (NODES, NODES)).coalesce()
            matrix = matrix if layout == "coo" else matrix.to_sparse_csr()
            if leaf:
                weights = matrix.detach().requires_grad_()
                found.append(run(one, tensor(NODES, WIDTH).requires_grad_(), weights))
            else:
                found.append(run(one, tensor(NODES, WIDTH).requires_grad_(), matrix, leaves=[weights]))
        same(found[1], found[0], f"{layout}, {multiplied}, {leaf}")
        computed += isinstance(found[0], tuple)
    assert computed


@pytest.mark.parametrize("kind", sorted(WEIGHTED, key=lambda kind: kind.__name__))
def test_weights_of_edges(kind: type) -> None:
    shapes = {
        "plain": (EDGES,),
        "column": (EDGES, 1),
        "one": (1,),
        "short": (EDGES - 1,),
        "many": (EDGES, WIDTH),
    }
    for (name, shape), flow, learned in product(shapes.items(), FLOWS, (False, True)):

        def given(shape: tuple[int, ...] = shape, learned: bool = learned) -> tuple[Any, ...]:
            weights = tensor(*shape, seed=2).abs().requires_grad_(learned)
            return arguments(kind, tensor(NODES, WIDTH).requires_grad_(), edges(), weights)

        compare(made(kind, flow=flow), given, f"{name}, {flow}, {'learned' if learned else 'constant'}")
    for dtype in (torch.int64, torch.bool, torch.float32, torch.float16, torch.complex64):
        compare(made(kind), lambda dtype=dtype: arguments(
            kind, tensor(NODES, WIDTH), edges(), tensor(EDGES, seed=2).abs().to(dtype)), str(dtype))  # fmt: skip


def test_attributes_of_edges_and_shapes_of_attention() -> None:
    for flow, dropout, slope, heads, concat in product(FLOWS, (0.0, 0.5), (0.2, 1.5), (1, 2), (True, False)):
        given = {"flow": flow, "dropout": dropout, "negative_slope": slope, "concat": concat, "heads": heads}
        told = str(given)
        for edge_dim, residual, bias in ((None, False, True), (3, True, False)):
            layer = pyg.GATConv(WIDTH, 2, edge_dim=edge_dim, residual=residual, bias=bias, **given).double()
            ours = front.fuse(copy.deepcopy(layer))
            attributes = () if edge_dim is None else (tensor(EDGES, 3, seed=5).requires_grad_(),)
            found = []
            for one in (layer, ours):
                torch.manual_seed(0)
                found.append(run(one, tensor(NODES, WIDTH).requires_grad_(), edges(), *attributes))
            same(found[1], found[0], told)
            asked = [
                one.eval()(tensor(NODES, WIDTH), edges(), *attributes, return_attention_weights=True)
                for one in (layer, ours)
            ]
            torch.testing.assert_close(asked[1], asked[0])


@pytest.mark.parametrize("kind", sorted(PAIRS, key=lambda kind: kind.__name__))
def test_sizes(kind: type) -> None:
    if kind in (pyg.SignedConv, pyg.MFConv):
        pytest.skip("it takes no size" if kind is pyg.SignedConv else "it counts degrees of its own")
    for flow, size, pair in product(
        FLOWS, (None, (SOURCES, NODES), (NODES, SOURCES), (NODES, NODES), (3, 3)), (True, False)
    ):
        layer = made(kind, flow=flow, **({"add_self_loops": False} if kind is pyg.GATConv else {})).double()
        ours = front.fuse(copy.deepcopy(layer))
        x = tensor(NODES, WIDTH).requires_grad_()
        given: Any = (tensor(SOURCES, WIDTH, seed=1).requires_grad_(), None) if pair else x
        index = edges(SOURCES)
        wanted, got = run(layer, given, index, size=size), run(ours, given, index, size=size)
        same(got, wanted, f"{flow}, {size}, {pair}")


@pytest.mark.parametrize("kind", LAYERS)
def test_odd_graphs_and_features(kind: type) -> None:
    outside = edges().clone()
    outside[0, 3] = NODES
    negative = edges().clone()
    negative[1, 3] = -1
    loops = torch.arange(NODES).repeat(2, 1)
    graphs = {"none": edges(count=0), "loops": loops, "one edge": edges(count=1), "outside": outside, "negative": negative,
              "same edge": edges(count=1).repeat(1, 5), "three rows": torch.zeros(3, 4, dtype=torch.long)}  # fmt: skip
    for name, index in graphs.items():
        compare(
            made(kind),
            lambda index=index: arguments(kind, tensor(NODES, WIDTH).requires_grad_(), index),
            name,
        )
    odd = {
        "infinite": tensor(NODES, WIDTH).index_fill(0, torch.tensor([1]), torch.inf),
        "not a number": tensor(NODES, WIDTH).index_fill(0, torch.tensor([2]), torch.nan),
        "strided": tensor(WIDTH, NODES).t(),
        "expanded": tensor(NODES, 1).expand(NODES, WIDTH),
        "negated": torch.view_as_complex(tensor(NODES, WIDTH, 2)).conj().imag,
        "three dimensions": tensor(2, NODES, WIDTH),
        "sparse": tensor(NODES, WIDTH).relu().to_sparse(),
    }
    for name, x in odd.items():
        compare(made(kind), lambda x=x: arguments(kind, x, edges()), name)


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_extremes_of_what_is_no_number(reduce: str) -> None:
    for value in (torch.nan, torch.inf, -torch.inf):
        x = tensor(NODES, WIDTH).index_fill(0, edges()[0, :2], value)
        compare(made(pyg.SAGEConv, aggr=reduce), lambda x=x: (x, edges()), f"{reduce} of {value}")


def test_second_derivatives() -> None:
    for kind in (pyg.GCNConv, pyg.GATConv, pyg.SAGEConv):
        layer = made(kind).double()
        found = []
        for one in (layer, front.fuse(copy.deepcopy(layer))):
            x = tensor(NODES, WIDTH).requires_grad_()
            (first,) = torch.autograd.grad(one(x, edges()).pow(3).sum(), x, create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), [x, *one.parameters()], allow_unused=True))
        torch.testing.assert_close(found[1], found[0])
