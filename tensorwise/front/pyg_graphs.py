"""Graphs of PyG's edges, found again by equal contents.

Layers of a model receive the same edges call after call, and some make them anew for each call (self-loops), so graphs are
kept with a private copy of the edges that they were made of. Neither the address nor the version of a tensor says that its
contents are what they were: NumPy, ``.data``, and ``torch.inference_mode`` change them without a trace. So contents are
compared at each call, which reads both copies once, at the speed of memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from tensorwise.front.torch import Edges, Graph, plain_tensor

MOST_SEEN: Final = 16
"""Graphs of PyG's edges that are kept, with copies of these edges."""


@final
@dataclass(frozen=True, eq=False)
class _Seen:
    """A graph, and private copies of the tensors that it was made of."""

    tensors: tuple[Tensor, ...]
    rest: tuple[object, ...]
    graph: Graph

    def is_of(self, tensors: Sequence[Tensor], rest: tuple[object, ...]) -> bool:
        """Whether ``tensors`` hold now what the graph was made of."""
        return (
            self.rest == rest
            and len(self.tensors) == len(tensors)
            and all(
                a.shape == b.shape and a.dtype == b.dtype and a.device == b.device
                for a, b in zip(self.tensors, tensors)
            )
            and all(torch.equal(a, b) for a, b in zip(self.tensors, tensors))
        )


@final
class _Kept:
    """The graphs that are kept, the last one used first: one tuple, replaced as a whole, so that threads may race."""

    def __init__(self) -> None:
        self.seen: tuple[_Seen, ...] = ()


_KEPT: Final = _Kept()


@torch.compiler.disable  # type: ignore[untyped-decorator]
def graph_of(edges: Any, shape: tuple[int, int], flow: str = "source_to_target") -> Graph:
    """Return the graph of PyG's edges, made when they are first met; the last `MOST_SEEN` are kept.

    Args:
        edges: what `Graph.of` takes.
        shape: number of destinations and of sources, for a list of edges.
        flow: ``target_to_source`` turns edges of a list round.

    Raises:
        InputError: nodes lie outside the shape, ``edges`` is nothing of the kind, or operators are being traced.
    """
    if isinstance(edges, Graph):
        return edges
    given = Edges.of(edges, shape)
    turned = given.layout == "list" and flow == "target_to_source"
    if not all(isinstance(tensor, Tensor) for tensor in given.tensors):
        return given.graph(turned)
    rest = (given.layout, given.shape, turned)
    seen = _KEPT.seen
    found = next((one for one in seen if one.is_of(given.tensors, rest)), None)
    if found is None:
        copies = tuple(tensor.detach().clone() for tensor in given.tensors)
        found = _Seen(copies, rest, Edges(given.layout, copies, given.shape).graph(turned))
    if not seen or seen[0] is not found:
        _KEPT.seen = (found, *(one for one in seen if one is not found))[:MOST_SEEN]
    return found.graph


_INDICES: Final[WeakKeyDictionary[Graph, Tensor]] = WeakKeyDictionary()
"""Graphs -> their edges as PyG takes them."""


def index_of(graph: Graph) -> Tensor:
    """Return the edges of a graph as PyG's ``edge_index``: (2, edges), sources and destinations, as they were given."""
    if torch.compiler.is_compiling():
        return _compiled_index(graph)
    index = _INDICES.get(graph)
    if index is None or index._version:
        entries = graph.graph.entries
        rows = np.repeat(np.arange(graph.graph.shape[0]), np.diff(entries.row_pointers()))
        found = np.empty((2, len(rows)), np.int64)
        found[:, slice(None) if entries.numbers is None else entries.numbers] = entries.coordinates[1], rows
        index = _INDICES[graph] = plain_tensor(found)
    return index


def forget_index(graph: Graph) -> None:
    """Make the edges anew next time: a program may change those that it has got."""
    if not torch.compiler.is_compiling():
        _INDICES.pop(graph, None)


def _compiled_index(graph: Graph) -> Tensor:
    counts = graph.pointers.long().diff()
    nodes = torch.arange(len(counts), device=counts.device)
    rows = torch.repeat_interleave(nodes, counts, output_size=len(graph.sources))
    index = torch.stack([graph.sources.long(), rows])
    return index if graph.numbers is None else index.index_copy(1, graph.numbers.long(), index)


def graphs() -> list[Graph]:
    """Return the graphs that layers have met and that are kept, the last one first: to tune them (see `Graph.tune`)."""
    return [seen.graph for seen in _KEPT.seen]
