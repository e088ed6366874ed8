"""Graph operators for PyTorch: custom operators over component tensors, with gradients, for eager and compiled code.

There is one operator, ``tensorwise::graph_einsum``: an assignment of the einsum language over the edges of a graph, which
is given by the tensors that it consists of. Its gradient is the same operator with another assignment (see
:mod:`tensorwise.program.gradient`), so that gradients have gradients; `gspmm`, `gsddmm`, `edge_softmax` and `attention`
say which assignments. Operands are read where they lie; a graph keeps its compiled kernels.
"""

import warnings
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, final
from weakref import WeakValueDictionary

import numpy as np

from tensorwise.errors import InputError, MissingExtraError
from tensorwise.front import gnn
from tensorwise.tensor.elements import value_dtype

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise MissingExtraError("torch", "torch", "graph operators on torch tensors") from error

_GRAPHS: Final[WeakValueDictionary[tuple[int, ...], gnn.Graph]] = WeakValueDictionary()
"""Graphs by the addresses of their tensors, which stay where they are while somebody holds the graph."""
_REBUILT: Final[OrderedDict[tuple[int, ...], tuple[gnn.Graph, tuple[Tensor, ...]]]] = OrderedDict()
MOST_REBUILT: Final = 8
"""Graphs made anew from their tensors, as in a program that was exported, which are kept with these tensors."""


@final
class Graph:
    """A directed graph on the CPU; its tensors are what the operators take.

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
    def of(cls, edges: Any, shape: tuple[int, int] | None = None) -> "Graph":
        """Make a graph of what others call one.

        Args:
            edges: a ``torch.sparse_csr`` tensor with a row for each destination (its values are not read); an
                ``edge_index`` (2, edges) of sources and destinations, as in PyG; or a pair (u, v) of them, as in DGL.
            shape: number of destinations and of sources, where a list of edges does not tell.

        Raises:
            InputError: it is none of these, or nodes lie outside.
        """
        if isinstance(edges, Tensor) and edges.layout == torch.sparse_csr:
            return cls.from_pointers(edges.crow_indices(), edges.col_indices(), int(edges.shape[1]))
        if isinstance(edges, Graph):
            return edges
        if (isinstance(edges, Tensor) and edges.ndim == 2 and len(edges) == 2) or (
            isinstance(edges, tuple | list) and len(edges) == 2
        ):
            return cls(edges[0], edges[1], shape)
        raise InputError(
            f"a graph is a torch.sparse_csr tensor, an edge_index of shape (2, edges) or a pair (u, v); got {type(edges)}"
        )

    @classmethod
    def from_pointers(cls, pointers: Any, sources: Any, columns: int | None = None) -> "Graph":
        """Make the graph of a CSR matrix with a row for each destination; see `gnn.Graph.from_pointers`."""
        made = cls.__new__(cls)
        made._set(gnn.Graph.from_pointers(_integers(pointers), _integers(sources), columns))
        return made

    def _set(self, graph: gnn.Graph) -> None:
        entries = graph.entries
        self.graph, self.columns = graph, graph.shape[1]
        self.pointers, self.sources = _shared(entries.row_pointers()), _shared(entries.coordinates[1])
        self.numbers = None if entries.numbers is None else _shared(entries.numbers)
        _GRAPHS[_key(self.pointers, self.sources, self.columns)] = graph

    def einsum(self, text: str, *operands: Tensor) -> Tensor:
        """Evaluate an assignment ``for A[i,k]`` over the edges, such as ``C[i,f] += B[k,f] * E[A] for A[i,k]``.

        Args:
            operands: the dense operands in order of appearance; float32, float64, bfloat16 or float16.
        """
        made: Tensor = graph_einsum(
            self.pointers, self.sources, self.numbers, self.columns, text, list(operands)
        )
        return made

    def __repr__(self) -> str:
        return repr(self.graph)


# -- the operator ----------------------------------------------------------------------------------------


@torch.library.custom_op("tensorwise::graph_einsum", mutates_args=(), device_types="cpu")  # type: ignore[untyped-decorator]
def graph_einsum(
    pointers: Tensor,
    sources: Tensor,
    numbers: Tensor | None,
    columns: int,
    text: str,
    operands: Sequence[Tensor],
) -> Tensor:
    """Evaluate ``text`` over the edges of the graph that the first four arguments are (see `Graph`)."""
    graph = _graph(pointers, sources, numbers, columns)
    return _tensor(graph.evaluate(text, [_array(operand) for operand in operands]))


@graph_einsum.register_fake  # type: ignore[untyped-decorator]
def _fake(
    pointers: Tensor,
    sources: Tensor,
    numbers: Tensor | None,
    columns: int,
    text: str,
    operands: Sequence[Tensor],
) -> Tensor:
    assignment = gnn.parsed(text)
    assert assignment.pattern is not None
    sizes = gnn.extents(text, (pointers.shape[0] - 1, columns), [operand.shape for operand in operands])
    shape = [
        sources.shape[0] if index == assignment.pattern.tensor else sizes[index]
        for index in assignment.output.indices
    ]
    named = zip(gnn.operands_of(text), operands)
    kinds = {operand.dtype for name, operand in named if name not in assignment.chosen}
    dtype = kinds.pop() if len(kinds) == 1 else torch.float32
    if assignment.argument:
        dtype = torch.int64 if dtype == torch.float64 else torch.int32
    return operands[0].new_empty(shape, dtype=dtype)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    pointers, sources, numbers, ctx.columns, ctx.text, operands = inputs
    ctx.save_for_backward(pointers, sources, numbers, *operands)


def _backward(ctx: Any, given: Tensor) -> tuple[Any, ...]:
    pointers, sources, numbers, *operands = ctx.saved_tensors
    text, names = ctx.text, gnn.operands_of(ctx.text)
    output = gnn.parsed(text).output.tensor
    known = {**dict(zip(names, operands)), f"d{output}": given}

    def run(derived: str) -> Tensor:
        for name in gnn.operands_of(derived):
            if name == f"a{output}" and name not in known:  # which edges were chosen
                plain = [operand.detach() for operand in operands]
                known[name] = graph_einsum(pointers, sources, numbers, ctx.columns, gnn.chosen(text), plain)
            elif name == f"n{output}" and name not in known:  # the share of each edge in a mean
                known[name] = (pointers[1:] - pointers[:-1]).clamp(min=1).to(given.dtype).reciprocal()
        taken = [known[name] for name in gnn.operands_of(derived)]
        made: Tensor = graph_einsum(pointers, sources, numbers, ctx.columns, derived, taken)
        return made

    gradients: list[Tensor | None] = []
    for name, operand, needed in zip(names, operands, ctx.needs_input_grad[5]):
        parts = [run(derived) for derived in gnn.derivatives(text, name)] if needed else []
        gradients.append(sum(parts[1:], parts[0]).to(operand.dtype) if parts else None)
    return None, None, None, None, None, gradients


graph_einsum.register_autograd(_backward, setup_context=_setup)


# -- functions -------------------------------------------------------------------------------------------


def gspmm(
    graph: Graph,
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
    graph: Graph,
    message: str,
    lhs: Tensor | None = None,
    rhs: Tensor | None = None,
    lhs_target: str = "u",
    rhs_target: str = "v",
) -> Tensor:
    """Compute a message for each edge, with gradients; arguments as of `gnn.gsddmm`, but tensors."""
    return _run(graph, message, None, lhs, rhs, lhs_target, rhs_target)


def edge_softmax(graph: Graph, scores: Tensor) -> Tensor:
    """Softmax of (edges, *features) over the edges that end in the same destination, with gradients."""
    flat = scores.reshape(scores.shape[0], -1)
    largest = graph.einsum(gnn.SOFTMAX[0], flat.detach())  # what is subtracted cancels, also in gradients
    total = graph.einsum(gnn.SOFTMAX[1], flat, largest)
    return graph.einsum(gnn.SOFTMAX[2], flat, largest, total).reshape(scores.shape)


def attention(
    graph: Graph, values: Tensor, sources: Tensor, destinations: Tensor, slope: float = 0.2
) -> Tensor:
    """The inside of a GAT layer, with gradients; arguments as of `gnn.attention`, but tensors.

    Neither forward nor backward has anything with a row an edge: scores are computed again where they are needed.
    """
    scores, sums, weighed = gnn.attention_texts(slope)
    largest = graph.einsum(scores, sources.detach(), destinations.detach())
    total = graph.einsum(sums, sources, destinations, largest)
    return graph.einsum(weighed, sources, destinations, largest, total, values)


def _run(
    graph: Graph,
    message: str,
    reduce: str | None,
    lhs: Tensor | None,
    rhs: Tensor | None,
    lhs_target: str,
    rhs_target: str,
) -> Tensor:
    # Dynamo traces what a cache holds, and warns of the cache.
    spell = gnn.spell.__wrapped__ if torch.compiler.is_compiling() else gnn.spell
    spelled = spell(message, reduce, gnn.features_of(lhs), gnn.features_of(rhs), lhs_target, rhs_target)
    made: Tensor = spelled.run(lambda text, operands: graph.einsum(text, *operands), lhs, rhs)
    return made


# -- between torch and NumPy -----------------------------------------------------------------------------


def _key(pointers: Tensor, sources: Tensor, columns: int) -> tuple[int, ...]:
    return pointers.data_ptr(), sources.data_ptr(), len(pointers), len(sources), columns


def _graph(pointers: Tensor, sources: Tensor, numbers: Tensor | None, columns: int) -> gnn.Graph:
    """The graph that consists of these tensors; it is made where nobody holds it."""
    key = _key(pointers, sources, columns)
    known = _GRAPHS.get(key)
    if known is not None:
        return known
    kept = _REBUILT.get(key)
    if kept is None:
        made = gnn.Graph.from_pointers(pointers.numpy(), sources.numpy(), columns)
        if numbers is not None:
            made.renumber(numbers.numpy())
        held = (pointers, sources) if numbers is None else (pointers, sources, numbers)
        kept = _REBUILT[key] = made, held
        if len(_REBUILT) > MOST_REBUILT:
            _REBUILT.popitem(last=False)
    return kept[0]


def _integers(given: Any) -> Any:
    return given.detach().cpu().numpy() if isinstance(given, Tensor) else given


def _shared(array: np.ndarray) -> Tensor:
    """A tensor of the same memory, which nobody writes to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch cannot mark it as read-only
        return torch.from_numpy(array)


def _array(operand: Tensor) -> np.ndarray:
    """An operand as NumPy sees it, where it lies."""
    plain = operand.detach()
    if plain.dtype == torch.bfloat16:
        bits: np.ndarray = plain.view(torch.uint16).numpy()
        return bits.view(value_dtype("bfloat16"))
    array: np.ndarray = plain.numpy()
    return array


def _tensor(array: np.ndarray) -> Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)
