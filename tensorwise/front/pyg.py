"""Layers of PyG that compute with our graph operators: nothing has features for each edge.

    model = fuse(model)                              each layer that can be, in place: GCNConv, SAGEConv, GATConv, ...
    print(fusion_report(model).text())               which layers those are, and why the others stay PyG's
    GCNConv = fused(torch_geometric.nn.GCNConv)      a class of such layers
    class MyConv(Fused, MessagePassing): ...         the mix-in, for layers of your own

Parameters, their names, what a layer takes, prints and returns stay what they are. A layer is replaced where its code proves
what it computes (see `pyg_proof`). A call goes to our operators where its arguments are ones that they take. PyG does the
rest: layers with other messages, hooks, explanations, traces, transforms, odd tensors. A `Graph` may be given for an
``edge_index``: PyG's code is given its edges as one, so that it may add loops or normalise, and where these edges come to
``propagate`` as they are, the graph is used. A graph of other edges is made once and found again by equal contents.
"""

import copyreg
import math
import sys
import warnings
from functools import cache, wraps
from threading import local
from types import FrameType
from typing import Any, ClassVar, Final, TypeVar

from tensorwise.errors import InputError, MissingExtraError
from tensorwise.front.torch import Graph, attention, edge_softmax, gsddmm, gspmm

try:
    import torch
    import torch_geometric.nn
    from torch import Tensor
    from torch.nn import functional
    from torch.nn.utils import parametrize
    from torch_geometric.nn import MessagePassing
except ImportError as error:
    raise MissingExtraError("torch_geometric", "pyg", "layers of PyG") from error

from tensorwise.front.pyg_graphs import MOST_SEEN, forget_index, graph_of, graphs, index_of
from tensorwise.front.pyg_proof import REDUCTIONS, Proof, observer, other_aggregation, prove, reduction
from tensorwise.front.pyg_report import FusionReport, LayerReport, count_left_call, left_calls

__all__ = ["MOST_SEEN", "Fused", "FusionReport", "fuse", "fused", "fusion_report", "graph_of", "graphs"]

Model = TypeVar("Model", bound=torch.nn.Module)
_DTYPES: Final = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_CALL: Final = local()
"""Of the layer that is running in a thread: ``asked``, whether it was asked for the weights of attention; ``graphs``, the
graphs that it was given, each with its edges as PyG takes them."""


class Fused:
    """Mix-in, to stand before `MessagePassing`: a layer whose messages are never made.

    Messages are the sources' features ``x``, multiplied by ``edge_weight`` where ``propagate`` is given one, and reduced
    by the layer's ``aggr``. A layer with other messages defines ``message_and_aggregate(self, graph, ...)``: it is called
    with a `Graph` and with what ``propagate`` was given, and says with the functions of `tensorwise.front.torch` what the
    layer's ``message`` and ``aggregate`` say edge by edge. Such a layer has no other way to compute: where steps of
    ``propagate`` are hooked, explained or traced without a `Graph`, it raises `InputError`.

    Raises:
        InputError: where a class is made that has other messages and does not say what they are.
    """

    _kind: ClassVar[Any] = None
    """The class of PyG's that a class made by `fused` replaces; None: the class is its own."""
    _proof: ClassVar[Proof | str] = "the class is a mix-in"
    _own: ClassVar[bool] = False
    """Whether the class defines ``message_and_aggregate(self, graph, ...)``."""
    _weight: ClassVar[str] = "edge_weight"
    """What ``propagate`` names the weights of messages."""

    def __init_subclass__(cls: Any, **given: Any) -> None:
        super().__init_subclass__(**given)
        if not issubclass(cls, MessagePassing):
            return
        home = next(base for base in cls.__mro__ if "message_and_aggregate" in vars(base))
        cls._own = issubclass(home, Fused)
        if cls._kind is None and cls.message is MessagePassing.message:
            cls.message = message
        _take_graphs(cls)
        cls._proof = prove(vars(cls).get("_kind") or cls, mixins=(Fused,))
        if isinstance(cls._proof, str) and not cls._own:
            raise InputError(
                f"messages of {cls.__name__} are not the sources' features or these times edge_weight "
                f"({cls._proof}); define message_and_aggregate(self, graph, ...) with the functions of "
                "tensorwise.front.torch"
            )

    def propagate(self: Any, edge_index: Any, size: Any = None, **given: Any) -> Tensor:
        """Reduce what reaches each destination; see `MessagePassing.propagate`."""
        edges = self._find_graph(edge_index)
        if self._own:
            return self._by_own_means(edges, size, given)
        graph: Graph | str = "propagate was given an edge_index, not a Graph"
        if isinstance(edges, Graph) or not torch.compiler.is_compiling():
            graph = self._graph(edges, size, given.get("x"), given.get(self._weight))
        if isinstance(graph, Graph):
            return self._computed(graph, edges, given)
        count_left_call(self, graph)
        if isinstance(edges, Graph):
            size = (edges.columns, edges.pointers.shape[0] - 1) if size is None else size
        return self._by_pyg(_as_index(edge_index, given.get("x")), size, given)

    def _find_graph(self: Any, edges: Any) -> Any:
        """The graph that edges are, where they are one or those of one that the layer was given; else the edges."""
        graph: Any = edges
        if not isinstance(edges, Graph):
            graph = next((graph for index, graph in getattr(_CALL, "graphs", ()) if index is edges), None)
            if graph is None:
                return edges
        if self.flow == "source_to_target":
            return graph
        return index_of(graph) if edges is graph else edges  # whose sources and destinations change places

    def _by_pyg(self: Any, edge_index: Any, size: Any, given: dict[str, Any]) -> Tensor:
        made: Tensor
        if self._kind is None and (self.explain or self.decomposed_layers != 1):
            made = MessagePassing.propagate(self, edge_index, size=size, **given)
        else:
            made = super().propagate(edge_index, size=size, **given)  # type: ignore[misc]
        return made

    def _by_own_means(self: Any, edge_index: Any, size: Any, given: dict[str, Any]) -> Tensor:
        """``message_and_aggregate(graph, ...)`` of a layer that says its messages with our functions."""
        graph = edge_index
        if not isinstance(graph, Graph):
            if not torch.compiler.is_compiling() and (problem := observer(self)):
                raise InputError(
                    f"{type(self).__name__} says its messages in message_and_aggregate(self, graph, ...) only, "
                    f"so that nobody else can compute them, but {problem}; if it is traced, give it a Graph"
                )
            shape = _shape(self, edge_index, size, given.get("x"))
            if isinstance(shape, str):
                raise InputError(f"{type(self).__name__}: {shape}; give propagate x= or size=")
            graph = graph_of(edge_index, shape, self.flow)
        out = self.message_and_aggregate(graph, **given)
        made: Tensor = self.update(
            out, **{name: given[name] for name in self.inspector.get_param_names("update")}
        )
        return made

    def _computed(self: Any, graph: Graph, edges: Any, given: dict[str, Any]) -> Tensor:
        """The reduced messages, by our operators."""
        x = given["x"]
        features, reduce = x if isinstance(x, Tensor) else x[0], REDUCTIONS[type(self.aggr_module)]
        weights = self._weights(edges, given.get("edge_weight"))
        if weights is None:
            return gspmm(graph, "copy_lhs", reduce, features)
        dtype = torch.promote_types(features.dtype, weights.dtype)
        return gspmm(graph, "mul", reduce, features.to(dtype), weights.view(-1, 1).to(dtype))

    def _weights(self: Any, edges: Any, given: Tensor | None) -> Tensor | None:
        """What messages are multiplied with: the values of a sparse matrix, or what was given."""
        if isinstance(edges, Tensor) and edges.layout != torch.strided:
            multiplied = self.fuse and self._proof.multiplies
            return edges.values() if multiplied or self._proof.weighs != "never" else None
        return None if self._proof.weighs == "never" else given

    def _graph(self: Any, edges: Any, size: Any, x: Any, weights: Any) -> Graph | str:
        """The graph of a call, or why PyG is to compute."""
        if problem := self._proof.objection(self) or observer(self):
            return problem
        if reduction(self) is None:
            return other_aggregation(self)
        pair = x if isinstance(x, tuple | list) else (x, None)
        if len(pair) != 2 or not isinstance(pair[0], Tensor):
            return "there are no features of sources"
        sources, destinations = pair
        if destinations is not None:
            if not isinstance(destinations, Tensor) or destinations.dim() != sources.dim():
                return "features of destinations have other dimensions than those of sources"
            if isinstance(edges, Graph) and destinations.shape[0] != edges.pointers.shape[0] - 1:
                raise InputError(
                    f"the graph has {edges.pointers.shape[0] - 1} destinations, and there are features of "
                    f"{destinations.shape[0]}"
                )
        if self.flow != "source_to_target":
            if isinstance(x, tuple | list) and destinations is not sources:
                return "a pair of features flows from targets to sources"
            if isinstance(
                edges, torch_geometric.EdgeIndex
            ):  # PyG multiplies a sorted one without regard to the flow
                return "the edges of an EdgeIndex flow from targets to sources"
        if problem := self._untaken(edges, pair[0], weights):
            return problem  # type: ignore[no-any-return]
        if isinstance(edges, Graph):
            return edges
        shape = _shape(self, edges, size, x)
        if isinstance(shape, str):
            return shape
        try:
            return graph_of(edges, shape, self.flow)  # type: ignore[no-any-return]
        except InputError:  # PyG says in its own words what is wrong
            return "edges lie outside of the nodes"

    def _untaken(self: Any, edges: Any, features: Tensor, weights: Any) -> str | None:
        """Why our operators do not take features, weights or edges."""
        if problem := _odd_features(features, isinstance(edges, Graph)):
            return problem
        if features.dim() != 2 or self.node_dim not in (0, -2):
            return "features have other dimensions than nodes and features"
        if isinstance(edges, Graph):
            return self._odd_weights(weights, features, edges.sources.shape[0])  # type: ignore[no-any-return]
        if problem := _odd_edges(edges):
            return problem
        if edges.layout == torch.strided:
            return self._odd_weights(weights, features, edges.shape[1])  # type: ignore[no-any-return]
        if weights is not None:
            return "a sparse matrix comes with an edge_weight"
        if torch.is_autocast_enabled("cpu"):
            return "a sparse matrix is multiplied under autocast"
        multiplied = self.fuse and self._proof.multiplies
        if edges.layout == torch.sparse_csc and not multiplied:
            return "a CSC matrix is taken for a list of edges"
        if edges.values().dim() != 1 or (
            edges.dtype != features.dtype and self._weights(edges, None) is not None
        ):
            return f"a sparse matrix has values of the dtype {edges.dtype}, or more than one for each edge"
        return None

    def _odd_weights(self: Any, weights: Any, features: Tensor, edges: int) -> str | None:
        weighs = self._proof.weighs
        if weighs == "never" or (weights is None and weighs == "given"):
            return None
        if type(weights) not in (Tensor, torch.nn.Parameter) or weights.numel() != edges:
            return "edge_weight is no tensor of a number for each edge"
        if weights.device != features.device or weights.layout != torch.strided or _is_negated(weights):
            return "edge_weight lies elsewhere than features"
        if torch.promote_types(weights.dtype, features.dtype) not in _DTYPES:
            return f"edge_weight has the dtype {weights.dtype}"
        return None

    # -- what PyG and torch do with a layer as a whole ----------------------------------------------------

    def _set_jittable_templates(self: Any, raise_on_error: bool = False) -> None:
        # PyG writes its propagate into the class: into the class that was replaced, of which it is.
        if self._kind is None:
            self.fuse = False  # a message_and_aggregate of ours takes a Graph, no matrix
        else:
            self._kind._set_jittable_templates(_as_pygs(self), raise_on_error)

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        reduced: Any = super().__reduce_ex__(max(2, int(protocol)))
        made, given, *rest = reduced
        if type(self) is vars(type(self)).get("_made") and made is copyreg.__newobj__:  # type: ignore[attr-defined]
            if _is_packaging(sys._getframe(1)):  # for machines that may not have Tensorwise
                return copyreg._reconstructor, (self._kind, object, None), *rest  # type: ignore[attr-defined]
            return _new, (self._kind,), *rest
        return made, given, *rest

    def __prepare_scriptable__(self: Any) -> Any:
        """Return the layer as PyG's own, which TorchScript compiles."""
        if type(self) is not vars(type(self)).get("_made"):
            return self
        count_left_call(self, "torch.jit.script made code of PyG's, counted when it is made")
        plain = _as_pygs(self)
        object.__setattr__(plain, "__dict__", {**self.__dict__, "_modules": dict(self._modules)})
        return plain


class _Attention(Fused):
    """`GATConv`: weights of edges are made where they are dropped or asked for; else not even these."""

    _weight: ClassVar[str] = "alpha"

    def forward(
        self: Any,
        x: Any,
        edge_index: Any,
        edge_attr: Tensor | None = None,
        size: Any = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        if return_attention_weights is None and not getattr(_CALL, "asked", False):
            return super().forward(x, edge_index, edge_attr, size, return_attention_weights)  # type: ignore[misc]
        before, _CALL.asked = getattr(_CALL, "asked", False), return_attention_weights is not None
        try:
            return super().forward(x, edge_index, edge_attr, size, return_attention_weights)  # type: ignore[misc]
        finally:
            _CALL.asked = before

    def edge_updater(
        self: Any, edge_index: Any, size: Any = None, *, alpha: Any, edge_attr: Tensor | None = None
    ) -> Any:
        """Return the weights of edges (edges, heads), or ``alpha`` where nobody needs them."""
        edges = self._find_graph(edge_index)
        graph: Graph | str = (
            "weights of attention are asked for or depend on edges, so that PyG computes these"
        )
        needed = getattr(_CALL, "asked", False) or edge_attr is not None or alpha[1] is None
        if not needed and (isinstance(edges, Graph) or not torch.compiler.is_compiling()):
            graph = self._graph(edges, size, alpha, None)
        if not isinstance(graph, Graph):
            if needed:  # else propagate finds the same reason
                count_left_call(self, graph)
            return super().edge_updater(  # type: ignore[misc]
                _as_index(edge_index, alpha), size=size, alpha=alpha, edge_attr=edge_attr
            )
        dropped = self.training and self.dropout > 0
        if not dropped and self.negative_slope <= 1 and REDUCTIONS[type(self.aggr_module)] == "sum":
            return alpha
        scores = functional.leaky_relu(gsddmm(graph, "add", *alpha), self.negative_slope)
        return functional.dropout(edge_softmax(graph, scores), self.dropout, self.training)

    def _by_pyg(self: Any, edge_index: Any, size: Any, given: dict[str, Any]) -> Tensor:
        if not isinstance(given["alpha"], Tensor):  # weights that were not made are made now
            weights = super().edge_updater(edge_index, size=size, alpha=given["alpha"], edge_attr=None)  # type: ignore[misc]
            given = {**given, "alpha": weights}
        return super()._by_pyg(edge_index, size, given)

    def _computed(self: Any, graph: Graph, edges: Any, given: dict[str, Any]) -> Tensor:
        """Return (destinations, heads, features)."""
        features, alpha = given["x"][0], given["alpha"]
        if isinstance(alpha, Tensor):
            reduce = REDUCTIONS[type(self.aggr_module)]
            dtype = torch.promote_types(features.dtype, alpha.dtype)
            return gspmm(graph, "mul", reduce, features.to(dtype), alpha.unsqueeze(-1).to(dtype))
        sources, destinations = alpha
        out = attention(graph, features, sources, destinations, self.negative_slope)
        # The gradient reads the result, which a program may change in place where the layer adds nothing to it.
        exposed = self.concat and self.bias is None and getattr(self, "res", None) is None
        return out.clone() if exposed and out.requires_grad else out

    def _untaken(self: Any, edges: Any, features: Tensor, weights: Any) -> str | None:
        if problem := _odd_features(features, isinstance(edges, Graph)):
            return problem
        if isinstance(weights, Tensor):
            count = edges.sources.shape[0] if isinstance(edges, Graph) else None
            if type(weights) is not Tensor or weights.shape[1:] != features.shape[1:2]:
                return "weights of attention are no tensor of (edges, heads)"
            if count is not None and weights.shape[0] != count:
                return "there are other weights of attention than one for each edge"
        elif weights is not None and any(part is None or part.dtype != features.dtype for part in weights):
            return "attention has scores of another dtype than features"
        if type(self.negative_slope) not in (float, int) or not -math.inf < self.negative_slope < math.inf:
            return "negative_slope is no finite float"
        if isinstance(edges, Graph):
            return None
        if problem := _odd_edges(edges):
            return problem
        return "a sparse matrix is taken for a list of edges" if edges.layout != torch.strided else None


def _take_graphs(cls: Any) -> None:
    """Let ``forward`` of a class take a `Graph` for the edges: the code of PyG's is given these, as PyG takes them."""
    own = vars(cls).get("forward")
    if own is None and hasattr(cls.forward, "_takes_graphs"):
        return

    def forward(self: Any, *given: Any, **named: Any) -> Any:
        run = super(cls, self).forward if own is None else own.__get__(self)
        found = [one for one in (*given, *named.values()) if type(one) is Graph]
        if not found:
            return run(*given, **named)
        features = given[0] if given else named.get("x")
        indices = [(_as_index(graph, features), graph) for graph in found]
        before = getattr(_CALL, "graphs", ())
        _CALL.graphs = (*indices, *before)
        try:
            out = run(
                *[_changed(one, indices) for one in given],
                **{name: _changed(one, indices) for name, one in named.items()},
            )
        finally:
            _CALL.graphs = before
        if type(out) is not Tensor:  # the edges may be a part of it, which a program may change
            for graph in found:
                forget_index(graph)
        return out

    # Code of its own: the compiler counts how often it compiles one.
    forward.__code__ = forward.__code__.replace(co_name=f"forward_of_{cls.__name__}")
    forward._takes_graphs = True  # type: ignore[attr-defined]
    cls.forward = wraps(own or cls.forward)(forward)


def _changed(given: Any, indices: list[tuple[Tensor, Graph]]) -> Any:
    """What PyG's code is given instead: of a graph, its edges."""
    if type(given) is not Graph:
        return given
    return next(index for index, graph in indices if graph is given)


def _as_index(edges: Any, x: Any) -> Any:
    """The edges of a graph as PyG takes them, where features are; other edges as they are."""
    if not isinstance(edges, Graph):
        return edges
    index, part = index_of(edges), x[0] if isinstance(x, tuple | list) else x
    return index.to(part.device) if isinstance(part, Tensor) and not part.is_cpu else index


def _is_packaging(caller: FrameType) -> bool:
    """Whether it is ``torch.package`` that pickles: a package holds the modules that it names, so a layer is PyG's there."""
    return type(caller.f_locals.get("self")).__module__.startswith("torch.package.")


def _as_pygs(layer: Any) -> Any:
    """The layer as one of the class that was replaced: the same attributes, not a copy."""
    plain = layer._kind.__new__(layer._kind)
    object.__setattr__(plain, "__dict__", layer.__dict__)
    return plain


def _new(kind: Any) -> Any:
    """A layer of the class that replaces ``kind``, without attributes, as unpickling begins."""
    made = fused(kind)
    return made.__new__(made)


@cache
def fused(kind: Any) -> Any:
    """Return the class of layers as ``kind``, a class of PyG's or derived from one, that compute with our operators.

    Those of ``torch_geometric.nn`` are attributes of this module too, under the names that they have there.

    Raises:
        InputError: it is not proved what its messages are, or they are others than those of `Fused` and `GATConv`.
    """
    proof = prove(kind, mixins=(Fused,))
    if isinstance(proof, str):
        raise InputError(f"messages of {kind.__name__} are not known: {proof}")

    @wraps(kind.__init__)
    def make(self: Any, *args: Any, **given: Any) -> None:
        if type(self) is not made:  # a class that is derived from this one
            kind.__init__(self, *args, **given)
            return
        self.__class__ = kind  # PyG reads a class's source, and writes methods for it
        try:
            kind.__init__(self, *args, **given)
        finally:
            self.__class__ = made

    base = _Attention if proof.weighs == "attention" else Fused
    public = getattr(torch_geometric.nn, kind.__name__, None) is kind
    named = {"__module__": __name__ if public else kind.__module__, "__doc__": kind.__doc__}
    if not public:
        named["__qualname__"] = kind.__qualname__
    made: Any = type(kind.__name__, (base, kind), {**named, "__init__": make, "_kind": kind})
    made._made = made
    return made


def __getattr__(name: str) -> Any:
    kind = getattr(torch_geometric.nn, name, None) if not name.startswith("_") else None
    if (
        isinstance(kind, type)
        and issubclass(kind, MessagePassing)
        and not isinstance(prove(kind, (Fused,)), str)
    ):
        return fused(kind)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def fuse(model: Model) -> Model:
    """Let the layers of a model of PyG's compute with our operators, and return the model.

    Layers stay PyG's where it is not proved that our operators compute the same; `fusion_report` says which, and why. A
    warning says where all of them stay. Parameters stay where they are; so do an optimiser that has them, and names in a
    ``state_dict``.

    Raises:
        InputError: the model has no layer of PyG's.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, MessagePassing)]
    if not layers:
        raise InputError(
            f"expected a model with layers of PyG's, such as GCNConv; {type(model).__name__} has none"
        )
    for layer in layers:
        if not isinstance(layer, Fused) and _unfused_reason(layer) is None:
            layer.__class__ = _replacement(type(layer))
    if not any(isinstance(layer, Fused) for layer in layers):
        warnings.warn(f"no layer can be changed:\n{fusion_report(model).text()}", stacklevel=2)
    return model


def _replacement(kind: Any) -> Any:
    """The class of a layer that is fused. What torch parametrizes has a class of its own, over the one it goes back to."""
    if kind.__module__ != parametrize.__name__:
        return fused(kind)
    own = {name: one for name, one in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    return type(kind.__name__, (fused(kind.__bases__[0]),), own)


def fusion_report(model: torch.nn.Module) -> FusionReport:
    """Return for each message-passing layer of a model whether it computes with our operators, and if not, why.

    Of fused layers the report counts the calls in this process that were left to PyG, by reason.
    """
    reports = []
    for name, layer in model.named_modules():
        if isinstance(layer, Fused):
            reports.append(LayerReport(name, type(layer).__name__, True, left=left_calls(layer)))
        elif isinstance(layer, MessagePassing):
            reason = _unfused_reason(layer) or "fuse was not called"
            reports.append(LayerReport(name, type(layer).__name__, False, reason))
    return FusionReport(tuple(reports))


def _unfused_reason(layer: Any) -> str | None:
    """Why a layer of PyG's is not to be changed."""
    proof = prove(type(layer), mixins=(Fused,))
    if isinstance(proof, str):
        return proof
    if problem := proof.objection(layer):
        return problem
    return None if reduction(layer) else other_aggregation(layer)


def message(self: Any, x_j: Any, edge_weight: Any = None) -> Tensor:
    """What `Fused` says of messages, edge by edge."""
    return x_j if edge_weight is None else edge_weight.view(-1, 1) * x_j


def _shape(layer: Any, edges: Any, size: Any, x: Any) -> tuple[int, int] | str:
    """Number of destinations and of sources of a call, as PyG finds them; or what is wrong with them."""
    try:
        sizes = list(layer._check_input(edges, size))
    except ValueError:  # PyG says in its own words what is wrong
        return "edges or size are none of PyG's, or matrices flow from targets to sources"
    receives, sends = (1, 0) if layer.flow == "source_to_target" else (0, 1)
    parts = {sends: x} if not isinstance(x, tuple | list) else dict(enumerate(x))
    for place, part in parts.items():
        if isinstance(part, Tensor):
            if sizes[place] not in (None, part.shape[0]):
                return "size says another number of nodes than there are features of"
            sizes[place] = part.shape[0]
    known = next((extent for extent in (sizes[sends], sizes[receives]) if extent is not None), None)
    if known is None:
        return "the number of nodes is not known"
    found = [known if extent is None else extent for extent in sizes]
    return int(found[receives]), int(found[sends])


def _odd_features(part: Tensor, anywhere: bool) -> str | None:
    """Why our operators do not take features; ``anywhere``: be they on a GPU."""
    if type(part) not in (Tensor, torch.nn.Parameter):
        return f"features are a {type(part).__name__}"
    if not (part.is_cpu or (anywhere and part.is_cuda)):
        return f"features are on {part.device}"
    if part.layout != torch.strided or part.dtype not in _DTYPES or _is_negated(part):
        return f"features have the layout {part.layout} and the dtype {part.dtype}"
    return None


def _is_negated(part: Tensor) -> bool:
    """Whether memory holds the negative of it, which compiled code takes care of."""
    return not torch.compiler.is_compiling() and part.is_neg()


def _odd_edges(edges: Any) -> str | None:
    """Why our operators do not take edges, which are no `Graph`."""
    if not isinstance(edges, Tensor):
        return f"edges are a {type(edges).__name__}"
    if type(edges) is not Tensor and not isinstance(edges, torch_geometric.EdgeIndex):
        return f"edges are a {type(edges).__name__}"
    if not edges.is_cpu:
        return f"edges are on {edges.device}"
    if edges.layout == torch.strided:
        if edges.dim() != 2 or edges.shape[0] != 2 or edges.dtype not in (torch.int32, torch.int64):
            return f"edges of the dtype {edges.dtype} are no pairs of int32 or int64"
        return None
    if edges.layout not in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc) or edges.dim() != 2:
        return f"edges of the layout {edges.layout} are no matrix in COO, CSR or CSC"
    return (
        "a COO matrix is not coalesced"
        if edges.layout == torch.sparse_coo and not edges.is_coalesced()
        else None
    )
