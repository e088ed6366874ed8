"""Graph operators for PyTorch: custom operators over component tensors, with gradients, for eager and compiled code.

There is one operator, ``tensorwise::graph_einsum``: an assignment of the einsum language over the edges of a graph, which
is given by the tensors that it consists of. Its gradient is the same operator with another assignment (see
:mod:`tensorwise.program.gradient`), so that gradients have gradients; `gspmm`, `gsddmm`, `edge_softmax` and `attention`
say which assignments, the last two with gradients of their own. Operands are read where they lie; a graph keeps its
compiled kernels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from tensorwise.errors import InputError, MissingExtraError
from tensorwise.front import gnn, spelling
from tensorwise.front.graph_cache import GraphCache
from tensorwise.tensor.elements import value_dtype
from tensorwise.tuning.result import TuneResult

try:
    import torch
    from torch import Tensor
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    from tensorwise.front import torch_attention as attending
    from tensorwise.front import torch_derivatives as derivatives
except ImportError as error:
    raise MissingExtraError("torch", "torch", "graph operators on torch tensors") from error

_GRAPHS: Final = GraphCache()
_DTYPES: Final[dict[torch.dtype, np.dtype]] = {
    torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64), torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
}  # fmt: skip
"""What GPUs take: numbers, and where maxima were."""
_SPELT: Final[dict[torch.dtype, str]] = {torch.bfloat16: np.dtype(np.uint16).str} | {
    getattr(torch, name): np.dtype(name).str
    for name in ("bool", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128")
}  # fmt: skip
"""How NumPy's array interface spells what tensors hold."""
_TENSORS: Final = {array: tensor for tensor, array in _DTYPES.items()}


@final
class TorchGraph:
    """A directed graph, which never changes. Features may be on a GPU (extra ``cuda``).

    Its tensors, on the CPU, are copies for operators in compiled and traced code. Who writes to them changes what such code
    computes, and not this graph. A graph can be pickled: its edges are, and its kernels are compiled again.

    Attributes:
        pointers: (destinations + 1,) where the edges of each destination begin.
        sources: (edges,) where edges come from, destination by destination.
        numbers: (edges,) under which number each was given; None: in this order.
        columns: number of sources.
    """

    def __init__(self, sources: Any, destinations: Any, shape: tuple[int, int] | None = None) -> None:
        """Make the graph of DGL-style edges: from ``sources[e]`` to ``destinations[e]``; see `gnn.Graph`."""
        self._set(gnn.Graph(_integers(sources), _integers(destinations), shape))

    @classmethod
    def of(cls, edges: Any, shape: tuple[int, int] | None = None) -> "TorchGraph":
        """Make a graph of what others call one.

        Args:
            edges: a sparse tensor of torch (CSR, CSC or COO) or a ``SparseTensor`` with a row for each destination, as PyG's
                ``adj_t`` (its values are not read); an ``edge_index`` (2, edges) of sources and destinations, or an
                ``EdgeIndex``, as in PyG; or a pair (u, v) of them, as in DGL.
            shape: number of destinations and of sources, where a list of edges does not tell.

        Raises:
            InputError: it is none of these, or nodes lie outside.
        """
        return edges if isinstance(edges, TorchGraph) else Edges.of(edges, shape).graph()

    @classmethod
    def from_pointers(cls, pointers: Any, sources: Any, columns: int | None = None) -> "TorchGraph":
        """Make the graph of a CSR matrix with a row for each destination; see `gnn.Graph.from_pointers`."""
        made = cls.__new__(cls)
        made._set(gnn.Graph.from_pointers(_integers(pointers), _integers(sources), columns))
        return made

    def _set(self, graph: gnn.Graph) -> None:
        entries = graph.entries
        self.graph, self.columns = graph, graph.shape[1]
        self.pointers, self.sources = (
            plain_tensor(entries.row_pointers().copy()),
            plain_tensor(entries.coordinates[1].copy()),
        )
        self.numbers = None if entries.numbers is None else plain_tensor(entries.numbers.copy())
        _GRAPHS.register(graph, self.pointers.numpy(), self.sources.numpy())

    def einsum(self, text: str, *operands: Tensor) -> Tensor:
        """Evaluate an assignment ``for A[i,k]`` over the edges, such as ``C[i,f] += B[k,f] * E[A] for A[i,k]``.

        Args:
            operands: the dense operands in order of appearance; float32, float64, bfloat16 or float16.
        """
        made: Tensor
        if torch.compiler.is_compiling() or _observed() or not all(map(_plain, operands)):
            made = self._dispatched(text, operands)
        elif _differentiated(text, operands):
            made = derivatives.Recorded.apply(self, text, *operands)
        else:
            made = self._computed(text, operands)
        return made

    def _dispatched(self, text: str, operands: Sequence[Tensor]) -> Tensor:
        """By way of torch's dispatcher, which takes as long as a small kernel."""
        strange = [operand for operand in operands if not isinstance(operand, Tensor)]
        if strange:
            raise InputError(f"operands are tensors of torch, got {type(strange[0]).__name__}")
        made: Tensor = graph_einsum(
            self.pointers, self.sources, self.numbers, self.columns, text, list(operands)
        )
        return made

    def evaluate(self, text: str, operands: Sequence[Tensor]) -> Tensor:
        """``einsum`` without derivatives; the dispatcher is left out where no mode or tracer is to see the operator."""
        if _observed() or not all(map(_plain, operands)):
            return self._dispatched(text, operands)
        return self._computed(text, operands)

    def _computed(self, text: str, operands: Sequence[Tensor]) -> Tensor:
        if operands and operands[0].is_cuda:
            return _on_gpu(self.graph, text, operands)
        return _on_cpu(self.graph, text, operands)

    def tune(self, budget_s: float | None = None, **given: Any) -> list[TuneResult]:
        """Find the fastest kernel for all that was evaluated on this graph, forward and backward; see `gnn.Graph.tune`.

        Of what was evaluated on a GPU: ``graph.graph.on_gpu().tune()``.
        """
        return self.graph.tune(budget_s, **given)

    def __repr__(self) -> str:
        return repr(self.graph)

    def __reduce__(self) -> tuple[Any, ...]:
        return _graph_around, (self.graph,)


Graph = TorchGraph
"""The public name of the class, ``tensorwise.front.torch.Graph``."""


def _graph_around(graph: gnn.Graph) -> TorchGraph:
    """The graph of torch's that consists of another one, as unpickling makes it."""
    made = TorchGraph.__new__(TorchGraph)
    made._set(graph)
    return made


@final
@dataclass(frozen=True)
class Edges:
    """What others call a graph: the tensors that it consists of.

    Attributes:
        layout: how to read them: ``rows`` (pointers and sources, destination by destination), ``columns`` (pointers and
            destinations, source by source), ``matrix`` (2, edges) of destinations and sources, or ``list`` (2, edges) of
            sources and destinations, perhaps in two tensors.
        shape: number of destinations and of sources; None: as many as the largest number asks for.
    """

    layout: str
    tensors: tuple[Any, ...]
    shape: tuple[int, int] | None

    @classmethod
    def of(cls, edges: Any, shape: tuple[int, int] | None = None) -> "Edges":
        """Read what `TorchGraph.of` takes; ``shape`` is for a list of edges that does not tell."""
        layout = getattr(edges, "layout", None)
        if layout == torch.sparse_csr:
            return cls("rows", (edges.crow_indices(), edges.col_indices()), tuple(edges.shape))
        if layout == torch.sparse_csc:
            return cls("columns", (edges.ccol_indices(), edges.row_indices()), tuple(edges.shape))
        if layout == torch.sparse_coo:
            return cls("matrix", (edges._indices(),), tuple(edges.shape))
        if hasattr(edges, "sparse_sizes"):  # torch_sparse.SparseTensor
            return cls("rows", tuple(edges.csr()[:2]), tuple(edges.sparse_sizes()))
        if hasattr(edges, "sparse_size"):  # EdgeIndex: a row of its matrix is a source
            columns, rows = edges.sparse_size()
            shape = shape if shape or rows is None or columns is None else (rows, columns)
            edges = edges.as_tensor()
        if isinstance(edges, Tensor) and edges.ndim == 2 and len(edges) == 2:
            return cls("list", (edges,), shape)
        if isinstance(edges, tuple | list) and len(edges) == 2:
            return cls("list", tuple(edges), shape)
        told = f"a tensor of shape {tuple(edges.shape)}" if isinstance(edges, Tensor) else type(edges)
        raise InputError(
            f"a graph is a sparse tensor, an edge_index of shape (2, edges) or a pair (u, v); got {told}"
        )

    def graph(self, turned: bool = False) -> TorchGraph:
        """Make the graph; ``turned``: a list is of destinations and sources."""
        first, second = self.tensors if len(self.tensors) == 2 else self.tensors[0]
        if self.layout == "rows":
            assert self.shape is not None
            return TorchGraph.from_pointers(first, second, int(self.shape[1]))
        if self.layout == "columns":
            sources = torch.repeat_interleave(torch.arange(len(first) - 1, device=first.device), first.diff())
            return TorchGraph(sources, second, self.shape)
        if turned != (self.layout == "matrix"):
            first, second = second, first
        return TorchGraph(first, second, self.shape)


# -- the operator ----------------------------------------------------------------------------------------


# Defined without ``torch.library.custom_op``, whose checks and wrappers cost more than a small kernel takes.
torch.library.define(
    "tensorwise::graph_einsum",
    "(Tensor pointers, Tensor sources, Tensor? numbers, SymInt columns, str text, Tensor[] operands) -> Tensor",
)


def _evaluate(
    pointers: Tensor,
    sources: Tensor,
    numbers: Tensor | None,
    columns: int,
    text: str,
    operands: Sequence[Tensor],
) -> Tensor:
    """Evaluate ``text`` over the edges of the graph that the first four arguments are (see `TorchGraph`)."""
    graph = _graph(pointers, sources, numbers, columns)
    return _on_cpu(graph, text, operands)


def _evaluate_on_gpu(
    pointers: Tensor,
    sources: Tensor,
    numbers: Tensor | None,
    columns: int,
    text: str,
    operands: Sequence[Tensor],
) -> Tensor:
    """Do the same with operands in the memory of a GPU."""
    return _on_gpu(_graph(pointers, sources, numbers, columns), text, operands)


def _on_gpu(graph: gnn.Graph, text: str, operands: Sequence[Tensor]) -> Tensor:
    """Evaluate ``text`` on torch's stream, into a tensor of torch's: nothing is copied that lies as it is read."""
    device = operands[0].device
    if odd := {operand.device for operand in operands} - {device}:
        raise InputError(f"operands are on {device} and on {odd.pop()}; bring them to one with .to()")
    number = device.index or 0
    if number != torch.cuda.current_device():
        with torch.cuda.device(number):
            return _on_gpu(graph, text, operands)
    there = graph.on_gpu(number)
    try:
        described = tuple((tuple(operand.shape), _DTYPES[operand.dtype]) for operand in operands)
    except KeyError as error:
        raise InputError(
            f"graph operators on a GPU take float32 and float64, got {error.args[0]}; convert it with .float()"
        ) from None
    bound = there.bound(text, described)
    out = torch.empty(bound.output_shape, dtype=_TENSORS[bound.workload.output_dtype], device=device)
    if not out.numel():
        return out
    kept = [
        (operand.permute(*range(operand.ndim)[::-1]) if by_columns else operand).contiguous()
        for (_, by_columns), operand in zip(bound.dense, operands, strict=True)
    ]
    stream = torch.cuda.current_stream(number).cuda_stream
    addresses = {name: one.data_ptr() for (name, _), one in zip(bound.dense, kept)}
    addresses["out"] = out.data_ptr()
    bound.at(addresses, stream)
    if bound.unreached is not None:
        out.view(-1).index_fill_(0, torch.from_dlpack(bound.unreached), 0)
    return out


torch.library.impl("tensorwise::graph_einsum", "cpu", derivatives.untraced(_evaluate))
torch.library.impl("tensorwise::graph_einsum", "cuda", derivatives.untraced(_evaluate_on_gpu))


@torch.library.register_fake("tensorwise::graph_einsum")  # type: ignore[untyped-decorator]
def _fake(
    pointers: Tensor,
    sources: Tensor,
    numbers: Tensor | None,
    columns: int,
    text: str,
    operands: Sequence[Tensor],
) -> Tensor:
    assignment = spelling.parsed(text)
    assert assignment.pattern is not None
    sizes = spelling.extents(text, (pointers.shape[0] - 1, columns), [operand.shape for operand in operands])
    shape = [
        sources.shape[0] if index == assignment.pattern.tensor else sizes[index]
        for index in assignment.output.indices
    ]
    named = zip(spelling.operands_of(text), operands)
    kinds = {operand.dtype for name, operand in named if name not in assignment.chosen}
    dtype = kinds.pop() if len(kinds) == 1 else torch.float32
    if assignment.argument:
        dtype = torch.int64 if dtype == torch.float64 else torch.int32
    return (operands[0] if operands else pointers).new_empty(shape, dtype=dtype)


@final
@dataclass(frozen=True, eq=False)
class _Tensors:
    """A graph of which nothing but its tensors is known, as where programs are traced: the operator's first arguments."""

    pointers: Tensor
    sources: Tensor
    numbers: Tensor | None
    columns: int

    def einsum(self, text: str, *operands: Tensor) -> Tensor:
        """Run the operator, by way of torch's dispatcher."""
        made: Tensor = graph_einsum(
            self.pointers, self.sources, self.numbers, self.columns, text, list(operands)
        )
        return made

    def evaluate(self, text: str, operands: Sequence[Tensor]) -> Tensor:
        """The same without derivatives; an outer transform takes its own."""
        given = self.pointers, self.sources, self.numbers, self.columns, text, list(operands)
        with derivatives.below():
            made: Tensor = graph_einsum(*given)
        return made


# Registered without ``torch.library.register_autograd``, which looks through lists of tensors for 150 microseconds.
@torch.library.impl("tensorwise::graph_einsum", "Autograd")  # type: ignore[untyped-decorator]
@derivatives.untraced
def _recorded(
    pointers: Tensor,
    sources: Tensor,
    numbers: Tensor | None,
    columns: int,
    text: str,
    operands: Sequence[Tensor],
) -> Tensor:
    graph = _Tensors(pointers, sources, numbers, columns)
    if _differentiated(text, operands):
        return derivatives.recorded(graph, text, operands)
    return graph.evaluate(text, operands)


@torch.library.register_vmap("tensorwise::graph_einsum")  # type: ignore[untyped-decorator]
def _batched(
    info: Any,
    dims: Sequence[Any],
    pointers: Tensor,
    sources: Tensor,
    numbers: Tensor | None,
    columns: int,
    text: str,
    operands: Sequence[Tensor],
) -> tuple[Tensor, int]:
    if any(dim is not None for dim in dims[:4]):
        raise InputError("vmap goes over features; a graph is the same for the whole batch")
    widened, moved = derivatives.batched(text, operands, dims[5])
    return graph_einsum(pointers, sources, numbers, columns, widened, moved), 1


graph_einsum: Final = torch.ops.tensorwise.graph_einsum.default


def _plain(operand: Tensor) -> bool:
    """Whether it is a tensor in the memory of a CPU or a GPU, and nothing that stands for one."""
    return type(operand) in (Tensor, torch.nn.Parameter) and (operand.is_cpu or operand.is_cuda)


def _differentiated(text: str, operands: Sequence[Tensor]) -> bool:
    """Whether derivatives of the result may be asked for; numbers of edges have none."""
    wanted = derivatives.has_tangents() or (
        torch.is_grad_enabled() and any(operand.requires_grad for operand in operands)
    )
    return wanted and spelling.parsed(text).argument is None


def _observed() -> bool:
    """Whether operators are to be seen: by modes, transforms, a tracer or a profiler."""
    return bool(
        torch._C._len_torch_dispatch_stack()
        or derivatives.transformed()
        or torch._C._get_tracing_state() is not None
        or torch.autograd._profiler_enabled()
        or derivatives.function_mode()
    )


# -- functions -------------------------------------------------------------------------------------------


def gspmm(
    graph: TorchGraph,
    message: str,
    reduce: str,
    lhs: Tensor | None = None,
    rhs: Tensor | None = None,
    lhs_target: str = "u",
    rhs_target: str = "e",
) -> Tensor:
    """Reduce the messages that reach each destination, with gradients; arguments as of `gnn.gspmm`, but tensors."""
    return _run(graph, message, reduce, lhs, rhs, lhs_target, rhs_target)


def gsddmm(
    graph: TorchGraph,
    message: str,
    lhs: Tensor | None = None,
    rhs: Tensor | None = None,
    lhs_target: str = "u",
    rhs_target: str = "v",
) -> Tensor:
    """Compute a message for each edge, with gradients; arguments as of `gnn.gsddmm`, but tensors."""
    return _run(graph, message, None, lhs, rhs, lhs_target, rhs_target)


def edge_softmax(graph: TorchGraph, scores: Tensor) -> Tensor:
    """Softmax of (edges, *features) over the edges that end in the same destination, with gradients.

    Totals of halves are float32.
    """
    flat = scores.reshape(scores.shape[0], math.prod(scores.shape[1:]))
    return attending.softmax(graph, flat).reshape(scores.shape)


def attention(
    graph: TorchGraph, values: Tensor, sources: Tensor, destinations: Tensor, slope: float = spelling.SLOPE
) -> Tensor:
    """The inside of a GAT layer, with gradients; arguments as of `gnn.attention`, but tensors.

    The weights of edges, one a head, are kept for the gradients while they take at most 16 MiB; in larger graphs neither
    forward nor backward has anything with a row an edge. Totals of halves are float32.
    """
    return attending.attention(graph, slope, values, sources, destinations)


def _run(
    graph: TorchGraph,
    message: str,
    reduce: str | None,
    lhs: Tensor | None,
    rhs: Tensor | None,
    lhs_target: str,
    rhs_target: str,
) -> Tensor:
    if any(
        operand is not None and operand.is_nested for operand in (lhs, rhs) if isinstance(operand, Tensor)
    ):
        raise InputError("features are one dense tensor, got a nested one; join its parts with torch.cat")
    # Dynamo traces what a cache holds, and warns of the cache.
    spell = spelling.spell.__wrapped__ if torch.compiler.is_compiling() else spelling.spell
    spelled = spell(
        message, reduce, spelling.features_of(lhs), spelling.features_of(rhs), lhs_target, rhs_target
    )
    made: Tensor = spelled.run(lambda text, operands: graph.einsum(text, *operands), lhs, rhs)
    return made


# -- between torch and NumPy -----------------------------------------------------------------------------


def _graph(pointers: Tensor, sources: Tensor, numbers: Tensor | None, columns: int) -> gnn.Graph:
    """The graph that consists of these tensors, as they are now; it is made where nobody holds it."""
    return _GRAPHS.find(
        pointers.numpy(), sources.numpy(), columns, None if numbers is None else numbers.numpy()
    )


def plain_tensor(array: np.ndarray) -> Tensor:
    """A tensor of an array that nobody else has: in main memory, whatever device or mode is the default now."""
    with torch.inference_mode(False):
        return torch.from_numpy(array)


def _integers(given: Any) -> Any:
    if not isinstance(given, Tensor):
        return given
    if torch._C._get_tracing_state() is not None or get_proxy_mode() is not None:
        raise InputError(
            "a trace would take these edges for all others: make the graph before it is traced, and give the Graph"
        )
    try:
        return given.detach().cpu().numpy()
    except (RuntimeError, TypeError) as error:  # on the meta device, fake, of a batch
        raise InputError(
            f"a graph is made of the numbers of its edges, which this tensor does not have here ({error}); make the graph "
            "outside of torch.func transforms and tracers, from tensors with data"
        ) from error


class _Read:
    """The memory of a dense tensor, for NumPy. ``Tensor.numpy`` would forbid for ever that programs resize its storage."""

    __slots__ = ("__array_interface__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        address, size = tensor.data_ptr(), tensor.element_size()
        spelt = _SPELT.get(tensor.dtype)
        if spelt is None or tensor.layout is not torch.strided or not (address or not tensor.numel()):
            raise TypeError(f"{tensor.dtype}, {tensor.layout}, on {tensor.device}")
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(tensor.shape),
            "typestr": spelt,
            "data": (address, False),
            "strides": tuple(size * stride for stride in tensor.stride()),
        }


def _array(operand: Tensor) -> np.ndarray:
    """An operand as NumPy sees it, where it lies; a view that negates or conjugates is computed first."""
    try:
        plain = operand.detach().resolve_conj().resolve_neg()
        if not plain.is_cpu:
            raise TypeError(f"one on {plain.device}")
        array = np.asarray(_Read(plain))
    except (
        RuntimeError,
        TypeError,
    ) as error:  # no numbers in memory: quantized, sparse, a batch of is_grads_batched
        raise InputError(
            "graph operators take dense tensors of float32, float64, bfloat16 or float16, and batches through "
            "torch.func.vmap, not is_grads_batched or vectorize=True (use torch.func.jacrev, or vectorize=False); "
            f"got one that NumPy cannot read: {error}"
        ) from error
    return array.view(value_dtype("bfloat16")) if plain.dtype is torch.bfloat16 else array


def _on_cpu(graph: gnn.Graph, text: str, operands: Sequence[Tensor]) -> Tensor:
    """Evaluate ``text`` into memory of torch's own, which programs may resize, as they may that of torch's operators."""
    made: list[Tensor] = []

    def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        kind = torch.bfloat16 if dtype.kind == "V" else _TENSORS.get(dtype, torch.float16)
        made.append(torch.empty(shape, dtype=kind, device="cpu"))
        return _array(made[0])

    graph.evaluate(text, [_array(operand) for operand in operands], empty)
    return made[0]
