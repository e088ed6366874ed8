"""Layers of PyG that compute with our graph operators: nothing has features for each edge.

    model = fuse(model)                              each layer that can be, in place: GCNConv, SAGEConv, GATConv, ...
    GCNConv = fused(torch_geometric.nn.GCNConv)      a class of such layers
    class MyConv(Fused, MessagePassing): ...         the mix-in, for layers of your own

Parameters, their names and what a layer returns stay what they are; so does what it takes: an ``edge_index``, an
``EdgeIndex``, sparse tensors of torch, a ``SparseTensor``, and a `Graph` as it is. A graph is made once and found again: by
identity, or by equal contents, since layers that add self-loops make their edges anew for each call. Where a layer is
explained, hooked, or given what our operators do not take, PyG computes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any, Final, TypeVar, final

from tensorwise.errors import InputError, MissingExtraError
from tensorwise.front.torch import Edges, Graph, attention, edge_softmax, gsddmm, gspmm

try:
    import torch
    from torch import Tensor
    from torch.nn import functional
    from torch_geometric.nn import GATConv, MessagePassing
except ImportError as error:
    raise MissingExtraError("torch_geometric", "pyg", "layers of PyG") from error

Model = TypeVar("Model", bound=torch.nn.Module)
MOST_SEEN: Final = 16
"""Graphs of PyG's edges that are kept, with these edges."""
_REDUCTIONS: Final = {"add": "sum", "sum": "sum", "mean": "mean", "max": "max", "min": "min"}
"""PyG's ``aggr`` -> ours."""
_DTYPES: Final = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_HOOKS: Final = tuple(
    f"_{method}_forward_{when}hooks"
    for method in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("pre_", "")
)


@final
@dataclass(frozen=True)
class _Seen:
    """A graph, and the tensors that it was made of as they were then."""

    tensors: tuple[Tensor, ...]
    versions: tuple[int, ...]
    rest: tuple[object, ...]
    graph: Graph

    def means(self, tensors: Sequence[Tensor], rest: tuple[object, ...]) -> bool:
        """Whether ``tensors`` hold the same; nobody may have written to them since."""
        return (
            self.rest == rest
            and len(self.tensors) == len(tensors)
            and all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(self.tensors, tensors))
            and self.versions == tuple(map(_version, self.tensors))
            and all(_same(a, b) or torch.equal(a, b) for a, b in zip(self.tensors, tensors))
        )


_SEEN: Final[list[_Seen]] = []


@torch.compiler.disable  # type: ignore[untyped-decorator]
def graph_of(edges: Any, shape: tuple[int, int], flow: str = "source_to_target") -> Graph:
    """Return the graph of PyG's edges, made when they are first met; the last `MOST_SEEN` are kept.

    Args:
        edges: what `Graph.of` takes.
        shape: number of destinations and of sources, for a list of edges.
        flow: ``target_to_source`` turns edges of a list round.

    Raises:
        InputError: nodes lie outside the shape, or ``edges`` is nothing of the kind.
    """
    if isinstance(edges, Graph):
        return edges
    given = Edges.of(edges, shape)
    turned = given.layout == "list" and flow == "target_to_source"
    if not all(isinstance(tensor, Tensor) for tensor in given.tensors):
        return given.graph(turned)
    rest = (given.layout, given.shape, turned)
    for place, seen in enumerate(_SEEN):
        if seen.means(given.tensors, rest):
            _SEEN.insert(0, _SEEN.pop(place))
            return seen.graph
    graph = given.graph(turned)
    _SEEN.insert(0, _Seen(given.tensors, tuple(map(_version, given.tensors)), rest, graph))
    del _SEEN[MOST_SEEN:]
    return graph


def graphs() -> list[Graph]:
    """Return the graphs that layers have met and that are kept, the last one first: to tune them (see `Graph.tune`)."""
    return [seen.graph for seen in _SEEN]


def _plain(cls: type) -> bool:
    """Whether a class says what its messages are: as `Fused`, or in ``message_and_aggregate``.

    PyG's layers that have one promise that their message is the source's features, weighed if they take ``edge_weight``.
    """
    methods = ("message", "aggregate", "update", "message_and_aggregate")
    homes = [next((base for base in cls.__mro__ if name in vars(base)), object) for name in methods]
    message, aggregate, update, both = homes
    if (issubclass(both, Fused) and both is not Fused) or not issubclass(cls, MessagePassing):
        return True
    if aggregate is not MessagePassing or update is not MessagePassing:
        return False
    return message is MessagePassing or (
        message.__module__.startswith("torch_geometric.nn.")
        and "message_and_aggregate" in vars(message)
        and set(signature(vars(message)["message"]).parameters) <= {"self", "x_j", "edge_weight"}
    )


def _attends(cls: type) -> bool:
    methods = ("forward", "message", "aggregate", "update", "edge_update")
    return issubclass(cls, GATConv) and all(getattr(cls, name) is getattr(GATConv, name) for name in methods)


class Fused:
    """Mix-in, to stand before `MessagePassing`: a layer whose messages are never made.

    Messages are the sources' features ``x``, multiplied by ``edge_weight`` where ``propagate`` is given one, and reduced
    by the layer's ``aggr``. A layer with other messages defines ``message_and_aggregate(self, graph, ...)``: it is called
    with a `Graph` and with what ``propagate`` was given, and says with the functions of `tensorwise.front.torch` what the
    layer's ``message`` and ``aggregate`` say edge by edge.

    Raises:
        InputError: where a class is made that has other messages and does not say what they are.
    """

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if not _plain(cls):
            raise InputError(
                f"messages of {cls.__name__} are not the sources' features or these times edge_weight; define "
                "message_and_aggregate(self, graph, ...) with the functions of tensorwise.front.torch"
            )
        for name in ("propagate", "edge_updater"):  # else PyG writes its own into a layer's class
            if name not in vars(cls) and hasattr(cls, name):
                setattr(cls, name, getattr(cls, name))

    def propagate(self: Any, edge_index: Any, size: Any = None, **given: Any) -> Tensor:
        """Reduce what reaches each destination; see `MessagePassing.propagate`."""
        graph = self._graph(edge_index, size, given.get("x"))
        if graph is None:
            made: Tensor = super().propagate(edge_index, size=size, **given)  # type: ignore[misc]
            return made
        if (
            type(self).message_and_aggregate is Fused.message_and_aggregate
            and given.get("edge_weight") is None
        ):
            given["edge_weight"] = self._values(edge_index)
        out = self.message_and_aggregate(graph, **given)
        made = self.update(out, **{name: given[name] for name in self.inspector.get_param_names("update")})
        return made

    def message_and_aggregate(self: Any, graph: Graph, x: Any, edge_weight: Any = None) -> Tensor:
        """Return (destinations, features): the sources' features, weighed and reduced."""
        # ``edge_weight`` is a tensor or None, which PyG, reading annotations, does not know how to write.
        reduce, features = _REDUCTIONS[self.aggr], self._sources(x)
        if edge_weight is None:
            return gspmm(graph, "copy_lhs", reduce, features)
        dtype = torch.promote_types(features.dtype, edge_weight.dtype)
        weights = edge_weight.view(-1, *(1,) * (features.dim() - 1))
        return gspmm(graph, "mul", reduce, features.to(dtype), weights.to(dtype))

    def _sources(self: Any, x: Any) -> Tensor:
        """The sources' part of what a layer has for nodes: one tensor for all, or a pair."""
        found: Tensor = x if isinstance(x, Tensor) else x[self.flow == "target_to_source"]
        return found

    def _values(self: Any, edges: Any) -> Tensor | None:
        """The values of a sparse tensor, which PyG takes for weights; of a ``SparseTensor`` where they are asked for."""
        if hasattr(edges, "sparse_sizes"):
            weighs = "edge_weight" in self.inspector.get_param_names("message")
            return edges.storage.value() if weighs else None
        layout = getattr(edges, "layout", torch.strided)
        if layout == torch.strided:
            return None
        return edges._values() if layout == torch.sparse_coo else edges.values()

    def _graph(self: Any, edges: Any, size: Any, x: Any) -> Graph | None:
        """The graph of a layer's edges; None where PyG is to compute."""
        if self.explain or self.aggr not in _REDUCTIONS or any(getattr(self, name) for name in _HOOKS):
            return None
        pair = x if isinstance(x, tuple | list) else (x, x)
        known = [part for part in pair if part is not None]
        if not known or not all(_taken(part, self.node_dim) for part in known):
            return None
        if isinstance(edges, Graph):
            return edges
        sizes = self._check_input(edges, size)
        rows = [
            len(part) if extent is None and part is not None else extent for extent, part in zip(sizes, pair)
        ]
        rows = [rows[1 - place] if extent is None else extent for place, extent in enumerate(rows)]
        turned = self.flow == "target_to_source"
        return graph_of(edges, (rows[not turned], rows[turned]), self.flow)  # type: ignore[no-any-return]


class _Attention(Fused):
    """`GATConv`: weights of edges are made where they are dropped or asked for; else not even these."""

    def forward(
        self: Any,
        x: Any,
        edge_index: Any,
        edge_attr: Tensor | None = None,
        size: Any = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        self._asked = bool(return_attention_weights)
        return super().forward(x, edge_index, edge_attr, size, return_attention_weights)  # type: ignore[misc]

    def edge_updater(
        self: Any, edge_index: Any, size: Any = None, *, alpha: Any, edge_attr: Tensor | None = None
    ) -> Any:
        """Return the weights of edges (edges, heads), or ``alpha`` where nobody needs them."""
        graph = self._graph(edge_index, size, alpha)
        if edge_attr is not None or alpha[1] is None or graph is None:
            return super().edge_updater(edge_index, size=size, alpha=alpha, edge_attr=edge_attr)  # type: ignore[misc]
        dropped = self.training and self.dropout > 0
        if not (self._asked or dropped) and self.negative_slope <= 1 and _REDUCTIONS[self.aggr] == "sum":
            return alpha
        scores = functional.leaky_relu(gsddmm(graph, "add", *self._turned(alpha)), self.negative_slope)
        return functional.dropout(edge_softmax(graph, scores), self.dropout, self.training)

    def message_and_aggregate(self: Any, graph: Graph, x: Any, alpha: Any) -> Tensor:  # type: ignore[override]
        """Return (destinations, heads, features)."""
        if isinstance(alpha, Tensor):
            return gspmm(graph, "mul", _REDUCTIONS[self.aggr], self._sources(x), alpha.unsqueeze(-1))
        sources, destinations = self._turned(alpha)
        return attention(graph, self._sources(x), sources, destinations, self.negative_slope)

    def _turned(self: Any, pair: Any) -> Any:
        """Sources' and destinations' part, in this order."""
        return pair[::-1] if self.flow == "target_to_source" else pair


@cache
def fused(kind: type) -> type:
    """Return the class of layers as ``kind``, a class of PyG's, that compute with our operators.

    Raises:
        InputError: its messages are others than those of `Fused`, nor is it `GATConv`.
    """
    base = _Attention if _attends(kind) else Fused
    return type(
        f"Fused{kind.__name__}", (base, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__}
    )


def fuse(model: Model) -> Model:
    """Let the layers of a model of PyG's compute with our operators, and return the model.

    Layers with other messages than those of `Fused` and `GATConv` stay as they are. Parameters stay where they are; so do an
    optimiser that has them, and names in a ``state_dict``.

    Raises:
        InputError: there is no layer that can be changed.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, MessagePassing)]
    for layer in layers:
        if not isinstance(layer, Fused) and (_attends(type(layer)) or _plain(type(layer))):
            kind: Any = type(layer)
            layer.__class__ = fused(kind)
    if not any(isinstance(layer, Fused) for layer in layers):
        names = ", ".join(sorted({type(layer).__name__ for layer in layers})) or "none of PyG's"
        raise InputError(
            f"no layer can be changed; expected such as GCNConv, SAGEConv or GATConv, got {names}"
        )
    return model


def _taken(part: Tensor, node_dim: int) -> bool:
    """Whether our operators take features: a row a node, in main memory."""
    rows = node_dim if node_dim >= 0 else part.dim() + node_dim
    return bool(rows == 0 and part.device.type == "cpu" and part.dtype in _DTYPES)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _same(a: Tensor, b: Tensor) -> bool:
    return bool(a.data_ptr() == b.data_ptr() and a.stride() == b.stride())
