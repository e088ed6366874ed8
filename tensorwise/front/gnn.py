"""Graph operators on NumPy arrays: g-SpMM, g-SDDMM, edge softmax and attention, by the semantics of DGL.

A `Graph` is a pattern A[i,k]: an edge sends from source k to destination i, and has the number under which it was
given. Every operator here is a line of the einsum language over that pattern (see :mod:`tensorwise.program.einsum`),
compiled once for a graph and its feature sizes::

    gspmm(g, "copy_lhs", "max", x)           C[i,f] max= L[k,f] for A[i,k]
    gspmm(g, "mul", "sum", x, w)             C[i,f,g] += L[k,f,g] * R[A,f] for A[i,k]
    gsddmm(g, "dot", q, k)                   C[A,f] += L[k,f,g] * R[i,f,g] for A[i,k]

Nothing that is as large as edges times features is made, unless it is the result.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.front.spelling import (
    SLOPE,
    SOFTMAX,
    attention_texts,
    backward,
    extents,
    features_of,
    keeps_weights,
    operands_of,
    parsed,
    spell,
    weighed_texts,
)
from tensorwise.lower.program import Program
from tensorwise.model import CostModel
from tensorwise.program.einsum import Access, Einsum
from tensorwise.program.workload import Workload
from tensorwise.reading import shown
from tensorwise.runtime.generated import BoundProgram
from tensorwise.runtime.work import worth_sharing
from tensorwise.space.cpu import cpu_space
from tensorwise.store.store import Store
from tensorwise.tensor.canonical import stable_order
from tensorwise.tensor.checks import (
    checked_indices,
    checked_integers,
    checked_pointers,
    checked_shape,
    coordinate_dtype,
)
from tensorwise.tensor.elements import is_half, value_dtype
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.format import Format
from tensorwise.tensor.memory import available_bytes
from tensorwise.tensor.pack import source_map
from tensorwise.tensor.pointers import pointers_of, rows_of
from tensorwise.toolchain.threads import granted_threads
from tensorwise.tuning.advice import SHIPPED
from tensorwise.tuning.limits import Progress
from tensorwise.tuning.result import TuneResult
from tensorwise.tuning.retuning import retuned

if TYPE_CHECKING:
    from tensorwise.front.on_gpu import OnGpu

_DEFAULTS: Final[dict[tuple[object, ...], Program]] = {}
MOST_DEFAULTS: Final = 1024
"""Default programs that are kept."""
MOST_KERNELS: Final = 256
"""Kernels that a graph keeps, one for each assignment and feature size: what was made first is made again when needed."""
CACHE_LINE_BYTES: Final = 64
_BY_COLUMNS: Final = Format.parse("(i,k) -> U(k) C(i)")


@final
class Graph:
    """A directed graph with a compiled kernel for each operator and feature size that it has met.

    Both directions are kept by rows, the reversed one from its first use on. Edges may be parallel and come in any
    order; features of edges are in the order in which the edges were given.

    Attributes:
        shape: number of destinations and of sources.
        edges: number of edges.
        entries: the pattern, a row for each destination.
    """

    def __init__(
        self,
        sources: Any,
        destinations: Any,
        shape: tuple[int, int] | None = None,
        threads: int | None = None,
    ) -> None:
        """Make the graph of the edges from ``sources[e]`` to ``destinations[e]``, as DGL's ``(u, v)``.

        Args:
            sources, destinations: (edges,) integers.
            shape: number of destinations and of sources (default: as many as the largest number asks for, of both).
            threads: most threads of a call (default: what this process may use); a call of little work takes one.

        Raises:
            InputError: they differ in length, or lie outside the shape.
        """
        u, v = checked_integers(sources, "sources"), checked_integers(destinations, "destinations")
        if len(u) != len(v):
            raise InputError(f"a graph has as many sources as destinations, got {len(u)} and {len(v)}")
        if shape is None:
            nodes = 1 + max((int(ends.max()) for ends in (u, v) if len(ends)), default=-1)
            shape = nodes, nodes
        rows, columns = _checked_nodes(shape)
        index = coordinate_dtype((rows, columns))
        u, v = _inside(u, columns, index, "source"), _inside(v, rows, index, "destination")
        self._set(_sorted(v, u, (rows, columns)), threads)

    @classmethod
    def from_pointers(
        cls, pointers: Any, sources: Any, columns: int | None = None, threads: int | None = None
    ) -> "Graph":
        """Make the graph of a CSR matrix with a row for each destination; its entries are the edges, in their order.

        Args:
            pointers: (destinations + 1,) integers.
            sources: (edges,) integers.
            columns: number of sources (default: as many as destinations).

        Raises:
            InputError: pointers fall, or sources lie outside.
        """
        made = cls.__new__(cls)
        ends, given = checked_integers(pointers, "pointers"), checked_integers(sources, "sources")
        rows = len(ends) - 1
        shape = _checked_nodes((rows, rows if columns is None else columns))
        starts = checked_pointers(ends, rows, len(given), "graph", "destination")
        index = coordinate_dtype(shape)
        inner = _inside(given, shape[1], index, "source")
        made._set(_entries(shape, rows_of(starts, index), inner, starts, None), threads)
        return made

    def _set(self, entries: Entries, threads: int | None) -> None:
        if threads is not None and (type(threads) is not int or threads < 1):
            raise InputError(f"threads must be a whole number from 1, got {shown(threads)}")
        self.entries, self.threads, self._threads_given = entries, granted_threads(threads), threads
        self.shape, self.edges = (entries.shape[0], entries.shape[1]), entries.nnz
        self._kernels: dict[tuple[object, ...], BoundProgram] = {}
        self._on_gpus: dict[int, OnGpu] = {}
        self._tuned: set[tuple[object, ...]] = set()

    def renumber(self, numbers: Any) -> None:
        """Let features of edge e be found in row ``numbers[e]``: a permutation; for a graph not used before."""
        given = checked_integers(numbers, "numbers")
        if len(given) != self.edges or not np.array_equal(np.sort(given), np.arange(self.edges)):
            raise InputError(f"numbers of {self.edges} edges are a permutation of 0 to {self.edges - 1}")
        self.entries = replace(self.entries, numbers=given.astype(coordinate_dtype((self.edges, 1))))

    def __reduce__(self) -> tuple[Any, ...]:
        entries = self.entries
        edges = (
            entries.row_pointers(),
            entries.coordinates[1],
            self.shape[1],
            entries.numbers,
            self._threads_given,
        )
        return _unpickled, edges

    def __repr__(self) -> str:
        return f"Graph({self.shape[1]} sources, {self.shape[0]} destinations, {self.edges} edges)"

    @cached_property
    def reversed(self) -> Entries:
        """The pattern with a row for each source; its entries have the numbers that they have in ``entries``."""
        rows, columns = self.entries.coordinates
        order = source_map(self.entries, _BY_COLUMNS)
        order -= 1
        numbers = order if self.entries.numbers is None else self.entries.numbers[order]
        starts = pointers_of(columns, self.shape[1])
        return _entries(self.shape[::-1], columns[order], rows[order], starts, numbers)

    @cached_property
    def in_degrees(self) -> np.ndarray:
        """(destinations,) int64: number of edges that end in each."""
        degrees = np.diff(self.entries.row_pointers()).astype(np.int64)
        degrees.setflags(write=False)  # gradients of means read it
        return degrees

    def einsum(self, text: str, /, **operands: np.ndarray) -> np.ndarray:
        """Evaluate an assignment ``for A[i,k]`` (destination, source) over the edges.

        Args:
            text: such as ``C[i,f] += B[k,f] * E[A] for A[i,k]``.
            operands: the dense operands by name; their rows are destinations, sources, or edges as they were given.

        Raises:
            InputError: it is not read ``for`` one pattern, or operands are missing or do not fit.
        """
        names = _names_of_operands(text, operands)
        return self.evaluate(text, [operands[name] for name in names])

    def evaluate(
        self, text: str, operands: Sequence[np.ndarray], empty: Callable[..., np.ndarray] | None = None
    ) -> np.ndarray:
        """``einsum`` with operands in the order of ``operands_of``; ``empty(shape, dtype)`` makes the result's array."""
        key = _key(text, operands)
        bound = self._kernels.get(key)
        if bound is None:
            bound = self._bound(text, operands)
            while len(self._kernels) >= MOST_KERNELS:
                oldest = next(iter(self._kernels))
                self._kernels.pop(oldest, None)
                self._tuned.discard(oldest)
            self._kernels[key] = bound
        out = (empty or _empty)(bound.workload.output_shape, bound.workload.output_dtype)
        if out.size:
            bound.run(operands, out)
        return out

    def _bound(self, text: str, operands: Sequence[np.ndarray]) -> BoundProgram:
        work = self.workload(text, [np.shape(operand) for operand in operands], [o.dtype for o in operands])
        work.check_operands(operands)
        work.check_memory(work.assignment.output.tensor)
        return BoundProgram(_default_program(work), work, self.threads if worth_sharing(work) else 1)

    def workload(self, text: str, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[Any]) -> Workload:
        """Return an assignment as a workload: over the rows of the direction in which its outputs are, or numbers of edges.

        Args:
            text: as of ``einsum``; shapes, dtypes: of its operands, in the order of ``operands_of``.

        Raises:
            InputError: as ``einsum``.
        """
        given = parsed(text)
        pattern = given.pattern
        assert pattern is not None
        row, column = pattern.indices
        entries, assignment = self.entries, given
        turned = replace(given, pattern=Access(pattern.tensor, (column, row)))
        over_columns = turned.selector is not None or (
            column in given.free_indices and row not in given.free_indices
        )
        if over_columns and given.selector is None:
            entries, assignment = self.reversed, turned
        names = operands_of(text)
        if len(names) != len(shapes):
            raise InputError(f"'{text}' takes {', '.join(names)}, got {len(shapes)} operands")
        sizes = extents(text, self.shape, shapes)
        kinds = {name: value_dtype(dtype) for name, dtype in zip(names, dtypes) if name not in given.chosen}
        work = Workload("einsum", Einsum((assignment,)), {pattern.tensor: entries}, sizes, kinds)
        work.check_result()
        return work

    def on_gpu(self, number: int = 0) -> "OnGpu":
        """Return this graph on a GPU: ``evaluate`` there takes and returns arrays in its memory, ``tune`` is for it.

        Raises:
            MissingExtraError: CuPy is not installed.
            MeasurementError: there is no such GPU.
        """
        if number not in self._on_gpus:
            from tensorwise.front.on_gpu import OnGpu
            from tensorwise.toolchain.gpu import find_gpu

            self._on_gpus[number] = OnGpu(self, find_gpu(number))
        return self._on_gpus[number]

    def tune(
        self,
        budget_s: float | None = None,
        *,
        trials: int | None = None,
        expected_calls: float | None = None,
        model: CostModel | str | os.PathLike[str] | None = SHIPPED,
        strategy: str = "genetic",
        store: Store | bool = True,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> list[TuneResult]:
        """Find the fastest kernel for all that was evaluated on this graph, and use it from now on.

        So what is to be fast is run once before: a layer forward and backward. Each assignment with its feature sizes is
        tuned once. Measurements are remembered, so that a later tuning of the same graph begins with the best of them.

        Args:
            budget_s: wall seconds for all of them (default 30, unlimited when ``trials`` is given).
            trials: most candidates to try for each assignment.
            expected_calls: how often each will be called; the others are as of `tensorwise.tune`.

        Returns:
            What was found for each assignment, in the order in which they were evaluated first.

        Raises:
            InputError: an argument makes no sense, or nothing was evaluated on this graph yet.
        """
        if not self._kernels:
            raise InputError(
                "nothing ran on this graph yet; run the layer or model once, forward and backward, then tune"
            )
        todo = [
            key for key, bound in self._kernels.items() if key not in self._tuned and bound.workload.terms
        ]
        found = retuned(
            [self._kernels[key] for key in todo], budget_s=budget_s, trials=trials, expected_calls=expected_calls,
            strategy=strategy, model=model, store=store, seed=seed, progress=progress,
        )  # fmt: skip
        for key, (bound, _) in zip(todo, found):
            self._kernels[key] = bound
            self._tuned.add(key)
        return [result for _, result in found]

    def gradient(self, text: str, operand: str, given: np.ndarray, /, **operands: np.ndarray) -> np.ndarray:
        """Return the gradient of ``operand`` where that of the result of ``einsum`` is ``given``.

        Raises:
            InputError: the assignment has none (see :mod:`tensorwise.program.gradient`), or operands are missing.
        """
        names = _names_of_operands(text, operands)
        arrays = [_checked_array(operands[name], name) for name in names]
        bound = self._kernels.get(_key(text, arrays))
        work = (
            self.workload(text, [array.shape for array in arrays], [array.dtype for array in arrays])
            if bound is None
            else bound.workload
        )
        if _checked_array(given, "the result's gradient").shape != work.output_shape:
            raise InputError(
                f"'{text}' has a result of shape {work.output_shape}; its gradient was given as {given.shape}"
            )
        found = backward(
            text,
            given,
            arrays,
            [name == operand for name in names],
            self.evaluate,
            lambda: (1 / np.maximum(self.in_degrees, 1)).astype(_full(given.dtype)),
            lambda shape: np.ones(shape, given.dtype),
        )
        wanted = dict(zip(names, found)).get(operand)
        if wanted is None:
            raise InputError(f"'{text}' does not read the values of {operand!r}")
        return wanted.astype(operands[operand].dtype, copy=False)  # type: ignore[no-any-return]


# -- operators -----------------------------------------------------------------------------------------


def gspmm(
    graph: Graph,
    message: str,
    reduce: str,
    lhs: np.ndarray | None = None,
    rhs: np.ndarray | None = None,
    lhs_target: str = "u",
    rhs_target: str = "e",
) -> np.ndarray:
    """Reduce the messages that reach each destination.

    Args:
        message: ``add``, ``sub``, ``mul``, ``div``, ``copy_lhs`` or ``copy_rhs``.
        reduce: ``sum``, ``mean``, ``max`` or ``min``; destinations that no edge reaches get 0.
        lhs: (rows, *features); features are broadcast as NumPy does.
        rhs: the same, of the same dtype.
        lhs_target: what its rows are: ``u`` sources, ``v`` destinations, ``e`` edges.
        rhs_target: the same.

    Returns:
        (destinations, *features).

    Raises:
        InputError: unknown names, or shapes and dtypes that do not fit.
    """
    spelled = spell(message, reduce, features_of(lhs), features_of(rhs), lhs_target, rhs_target)
    return spelled.run(graph.evaluate, lhs, rhs)  # type: ignore[no-any-return]


def gsddmm(
    graph: Graph,
    message: str,
    lhs: np.ndarray | None = None,
    rhs: np.ndarray | None = None,
    lhs_target: str = "u",
    rhs_target: str = "v",
) -> np.ndarray:
    """Compute a message for each edge; ``dot`` sums over the last feature dimension, which is kept with extent 1.

    Arguments as of `gspmm`; returns (edges, *features), in the order in which the edges were given.
    """
    spelled = spell(message, None, features_of(lhs), features_of(rhs), lhs_target, rhs_target)
    return spelled.run(graph.evaluate, lhs, rhs)  # type: ignore[no-any-return]


def edge_softmax(graph: Graph, scores: np.ndarray) -> np.ndarray:
    """Softmax of (edges, *features) over the edges that end in the same destination; totals of halves are float32."""
    _checked_array(scores, "scores")
    if not scores.ndim or len(scores) != graph.edges:
        raise InputError(f"scores have a row for each of {graph.edges} edges, got shape {scores.shape}")
    flat = scores.reshape(graph.edges, math.prod(scores.shape[1:]))
    largest = graph.evaluate(SOFTMAX[0], [flat]).astype(_full(flat.dtype), copy=False)
    total = graph.evaluate(SOFTMAX[1], [flat, largest])
    out = graph.evaluate(SOFTMAX[2], [flat, largest, total])
    return out.astype(scores.dtype, copy=False).reshape(scores.shape)


def attention(
    graph: Graph, values: np.ndarray, sources: np.ndarray, destinations: np.ndarray, slope: float = SLOPE
) -> np.ndarray:
    """Weigh the sources' values by the softmax of leaky rectified scores: the inside of a GAT layer.

    With s = ``sources[k]`` + ``destinations[i]``, the weight of an edge is the softmax of max(s, ``slope`` s) over those
    that end in i. Weights are kept while all of them take at most 16 MiB; where they would take more, or are halves, they
    are computed again where they are needed, and nothing has a row an edge.

    Args:
        values: (sources, heads, features).
        sources: (sources, heads): their parts of the scores.
        destinations: (destinations, heads): theirs.
        slope: at most 1.

    Returns:
        (destinations, heads, features).
    """
    for what, array, dimensions in (
        ("values", values, 3),
        ("sources", sources, 2),
        ("destinations", destinations, 2),
    ):
        if _checked_array(array, what).ndim != dimensions:
            raise InputError(
                "attention takes values (sources, heads, features), and sources and destinations of shape (nodes, heads); "
                f"{what} are of shape {array.shape}"
            )
    scores, sums, weighed, *_ = attention_texts(slope)
    full = destinations.astype(_full(destinations.dtype), copy=False)
    largest = graph.evaluate(scores, [sources, full])
    nodes = sources, destinations, largest, graph.evaluate(sums, [sources, destinations, largest])
    if keeps_weights(graph.edges, sources.shape[1], values.dtype):
        weights, weighed, *_ = weighed_texts(slope)
        out = graph.evaluate(weighed, [graph.evaluate(weights, nodes), values])
    else:
        out = graph.evaluate(weighed, [*nodes, values])
    same = values.dtype == sources.dtype == destinations.dtype
    return out.astype(values.dtype, copy=False) if same else out


def _key(text: str, operands: Sequence[np.ndarray]) -> tuple[object, ...]:
    """What a graph's kernels are kept by; InputError for operands that are no arrays."""
    try:
        return (text, *((operand.shape, operand.dtype) for operand in operands))
    except AttributeError:
        raise InputError(
            f"operands are arrays, got {', '.join(type(one).__name__ for one in operands)}"
        ) from None


def _checked_array(operand: Any, what: str) -> np.ndarray:
    """Return an operand that is an array; InputError for others."""
    if not isinstance(operand, np.ndarray):
        raise InputError(f"{what}: expected a NumPy array, got {type(operand).__name__}")
    return operand


def _full(dtype: np.dtype) -> np.dtype:
    """The dtype of totals and counts of values of ``dtype``: float32 for halves, which overflow or stop counting."""
    return np.dtype(np.float32) if is_half(dtype) else dtype


def _unpickled(
    pointers: np.ndarray, sources: np.ndarray, columns: int, numbers: np.ndarray | None, threads: int | None
) -> Graph:
    """A graph from what was pickled of it, checked as any other; its kernels are compiled again."""
    made = Graph.from_pointers(pointers, sources, columns, threads)
    if numbers is not None:
        made.renumber(numbers)
    return made


def _names_of_operands(text: str, operands: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Return the names of an assignment's operands in order; InputError where others are given."""
    names = operands_of(text)
    if sorted(names) != sorted(operands):
        raise InputError(f"'{text}' takes {', '.join(names)}, got {', '.join(operands) or 'nothing'}")
    return names


def _default_program(work: Workload) -> Program:
    """The default program, which graphs of about the same size share: to choose one takes longer than a small call."""
    ((name, entries),) = work.sparse.items()
    stored = work.assignment.access(name).indices
    sizes = ((index, n.bit_length() if index in stored else n) for index, n in work.sizes.items())
    key = (work.assignment, *sizes, entries.nnz.bit_length(), *work.dtypes.items())
    known = _DEFAULTS.get(key)
    if known is None:
        if len(_DEFAULTS) >= MOST_DEFAULTS:
            _DEFAULTS.clear()
        space = cpu_space(work.assignment, name)
        known = _DEFAULTS[key] = space.program(work, space.default(work))
    return known


def _empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array that starts with a cache line, so that rows, which others gather, lie in no more lines than they need."""
    size = math.prod(shape) * dtype.itemsize
    bytes_ = np.empty(size + CACHE_LINE_BYTES, np.uint8)
    skipped = -bytes_.ctypes.data % CACHE_LINE_BYTES
    return bytes_[skipped : skipped + size].view(dtype).reshape(shape)


def _inside(indices: np.ndarray, size: int, dtype: np.dtype, what: str) -> np.ndarray:
    checked, outside = checked_indices(indices, size, dtype, "graph", what)
    if outside is not None:
        raise InputError(f"graph: edge {outside} has the {what} {indices[outside]}, outside 0 to {size - 1}")
    return checked


def _checked_nodes(shape: Any) -> tuple[int, int]:
    """Numbers of destinations and sources, for whose pointers there is memory."""
    if isinstance(shape, Integral):
        raise InputError(
            f"shape of the graph: got {shape}; expected the numbers of destinations and of sources, ({shape}, {shape})"
        )
    sizes = checked_shape(shape, "shape of the graph")
    if len(sizes) != 2:
        raise InputError(f"shape of the graph: {len(sizes)} numbers; expected destinations and sources")
    needed, free = 8 * sum(sizes), available_bytes()
    if needed > free:
        raise InputError(
            f"pointers of {sizes[0]} destinations and {sizes[1]} sources take {needed / 2**30:,.1f} GiB, but "
            f"{free / 2**30:,.1f} GiB of memory are free; number only nodes that have edges"
        )
    return sizes[0], sizes[1]


def _sorted(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> Entries:
    """Entries row by row; each keeps the number of its edge."""
    ascending = bool(
        np.all((rows[1:] > rows[:-1]) | ((rows[1:] == rows[:-1]) & (columns[1:] >= columns[:-1])))
    )
    numbers = None
    if not ascending:
        order = stable_order(shape, (rows, columns))
        rows, columns = rows[order], columns[order]
        numbers = order.astype(coordinate_dtype((len(order), 1)))
    return _entries(shape, rows, columns, pointers_of(rows, shape[0]), numbers)


def _entries(
    shape: tuple[int, ...],
    rows: np.ndarray,
    columns: np.ndarray,
    pointers: np.ndarray,
    numbers: np.ndarray | None,
) -> Entries:
    """A pattern: its values are one number, which nobody reads."""
    values = np.broadcast_to(np.ones((), np.float32), len(rows))
    return Entries(shape, (rows, columns), values, pointers, numbers)
