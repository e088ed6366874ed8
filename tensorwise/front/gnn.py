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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.program.einsum import Access, Assignment, Einsum
from tensorwise.program.generated import BoundProgram
from tensorwise.program.gradient import argument, gradients
from tensorwise.program.workload import Workload
from tensorwise.space.cpu import cpu_space
from tensorwise.tensor.canonical import (
    checked_indices,
    checked_integers,
    checked_pointers,
    checked_shape,
    coordinate_dtype,
    pointers_of,
    rows_of,
    stable_order,
)
from tensorwise.tensor.elements import value_dtype
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.format import Format
from tensorwise.tensor.pack import source_map
from tensorwise.toolchain.threads import available_threads

REDUCTIONS: Final = {"sum": "+=", "mean": "mean=", "max": "max=", "min": "min="}
"""Reduction of messages -> how the language writes it."""
MESSAGES: Final = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "copy_lhs": "{}", "copy_rhs": "{}",
}  # fmt: skip
"""Message -> its expression."""
TARGETS: Final = {"u": "k", "v": "i", "e": "A"}
"""Where an operand has its rows: source nodes, destination nodes, edges -> the first index."""
SLOPE: Final = 0.2
"""Of the leaky rectifier of attention."""
_LETTERS: Final = "fghjlmnopqrstuvwxyz"
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
            threads: threads of a call (default: what this process may use).

        Raises:
            InputError: they differ in length, or lie outside the shape.
        """
        u, v = checked_integers(sources, "sources"), checked_integers(destinations, "destinations")
        if len(u) != len(v):
            raise InputError(f"a graph has as many sources as destinations, got {len(u)} and {len(v)}")
        if shape is None:
            nodes = 1 + max(int(u.max(initial=-1)), int(v.max(initial=-1)))
            shape = nodes, nodes
        rows, columns = checked_shape(shape, "shape of the graph")
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
        rows = len(pointers) - 1
        given = checked_integers(sources, "sources")
        shape = checked_shape((rows, rows if columns is None else columns), "shape of the graph")
        starts = checked_pointers(pointers, rows, len(given), "graph", "destination")
        index = coordinate_dtype(shape)
        inner = _inside(given, shape[1], index, "source")
        made._set(_entries(shape, rows_of(starts, index), inner, starts, None), threads)
        return made

    def _set(self, entries: Entries, threads: int | None) -> None:
        self.entries, self.threads = entries, threads or available_threads()
        self.shape, self.edges = (entries.shape[0], entries.shape[1]), entries.nnz
        self._kernels: dict[tuple[object, ...], BoundProgram] = {}

    def renumber(self, numbers: Any) -> None:
        """Let features of edge e be found in row ``numbers[e]``: a permutation; for a graph not used before."""
        given = checked_integers(numbers, "numbers")
        if len(given) != self.edges or not np.array_equal(np.sort(given), np.arange(self.edges)):
            raise InputError(f"numbers of {self.edges} edges are a permutation of 0 to {self.edges - 1}")
        self.entries = replace(self.entries, numbers=given.astype(coordinate_dtype((self.edges, 1))))

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
        return np.diff(self.entries.row_pointers()).astype(np.int64)

    def einsum(self, text: str, **operands: np.ndarray) -> np.ndarray:
        """Evaluate an assignment ``for A[i,k]`` (destination, source) over the edges.

        Args:
            text: such as ``C[i,f] += B[k,f] * E[A] for A[i,k]``.
            operands: the dense operands by name; their rows are destinations, sources, or edges as they were given.

        Raises:
            InputError: it is not read ``for`` one pattern, or operands are missing or do not fit.
        """
        names = operands_of(text)
        if sorted(names) != sorted(operands):
            raise InputError(f"'{text}' takes {', '.join(names)}, got {', '.join(operands) or 'nothing'}")
        return self.evaluate(text, [operands[name] for name in names])

    def evaluate(self, text: str, operands: Sequence[np.ndarray]) -> np.ndarray:
        """``einsum`` with the operands in the order of ``operands_of``."""
        key = (text, *((operand.shape, operand.dtype) for operand in operands))
        bound = self._kernels.get(key)
        if bound is None:
            bound = self._kernels[key] = self._bound(text, operands)
        out = np.empty(bound.workload.output_shape, bound.workload.output_dtype)
        if out.size:
            bound.run(operands, out)
        return out

    def _bound(self, text: str, operands: Sequence[np.ndarray]) -> BoundProgram:
        """Compile an assignment: over the rows of the direction in which its outputs are."""
        given = parsed(text)
        pattern = given.pattern
        assert pattern is not None
        row, column = pattern.indices
        entries, assignment = self.entries, given
        if column in given.kept and row not in given.kept:
            entries = self.reversed
            assignment = replace(given, pattern=Access(pattern.tensor, (column, row)))
        names = operands_of(text)
        if len(names) != len(operands):
            raise InputError(f"'{text}' takes {', '.join(names)}, got {len(operands)} operands")
        sizes = extents(text, self.shape, [np.shape(operand) for operand in operands])
        kinds = {
            name: value_dtype(operand.dtype)
            for name, operand in zip(names, operands)
            if name not in given.chosen
        }
        work = Workload("einsum", Einsum((assignment,)), {pattern.tensor: entries}, sizes, kinds)
        work.check_operands(operands)
        space = cpu_space(assignment, pattern.tensor)
        return BoundProgram(space.program(work, space.default(work)), work, self.threads)

    def gradient(self, text: str, operand: str, given: np.ndarray, **operands: np.ndarray) -> np.ndarray:
        """Return the gradient of ``operand`` where that of the result of ``einsum`` is ``given``.

        Raises:
            InputError: the assignment has none (see :mod:`tensorwise.program.gradient`).
        """
        names = operands_of(text)
        found = backward(
            text,
            given,
            [operands[name] for name in names],
            [name == operand for name in names],
            self.evaluate,
            lambda: (1 / np.maximum(self.in_degrees, 1)).astype(given.dtype),
        )
        wanted = dict(zip(names, found)).get(operand)
        if wanted is None:
            raise InputError(f"'{text}' does not read the values of {operand!r}")
        return wanted  # type: ignore[no-any-return]


def backward(
    text: str,
    given: Any,
    operands: Sequence[Any],
    needed: Sequence[bool],
    evaluate: Callable[[str, Sequence[Any]], Any],
    shares: Callable[[], Any],
) -> list[Any]:
    """Return the gradient of each operand that needs one, None for the others; of arrays or tensors.

    Args:
        text: the assignment, whose result has the gradient ``given``.
        evaluate: what evaluates an assignment on operands.
        shares: gives (destinations,): one divided by the number of edges that end in each.
    """
    names, output = operands_of(text), parsed(text).output.tensor
    known = {**dict(zip(names, operands)), f"d{output}": given}

    def run(derived: str) -> Any:
        for name in operands_of(derived):
            if name not in known:  # a mean shares out, a maximum or minimum chooses
                mean = parsed(text).reduction == "mean"
                known[name] = shares() if mean else evaluate(chosen(text), operands)
        return evaluate(derived, [known[name] for name in operands_of(derived)])

    found: list[Any] = []
    for name, need in zip(names, needed, strict=True):
        parts = [run(derived) for derived in derivatives(text, name)] if need else []
        found.append(sum(parts[1:], parts[0]) if parts else None)
    return found


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
    """Softmax of (edges, *features) over the edges that end in the same destination."""
    flat = scores.reshape(graph.edges, math.prod(scores.shape[1:]))
    largest = graph.evaluate(SOFTMAX[0], [flat])
    total = graph.evaluate(SOFTMAX[1], [flat, largest])
    return graph.evaluate(SOFTMAX[2], [flat, largest, total]).reshape(scores.shape)


def attention(
    graph: Graph, values: np.ndarray, sources: np.ndarray, destinations: np.ndarray, slope: float = SLOPE
) -> np.ndarray:
    """Weigh the sources' values by the softmax of leaky rectified scores: the inside of a GAT layer.

    With s = ``sources[k]`` + ``destinations[i]``, the weight of an edge is the softmax of max(s, ``slope`` s) over those
    that end in i. Scores are computed again where they are needed: nothing has a row an edge.

    Args:
        values: (sources, heads, features).
        sources: (sources, heads): their parts of the scores.
        destinations: (destinations, heads): theirs.
        slope: at most 1.

    Returns:
        (destinations, heads, features).
    """
    scores, sums, weighed, *_ = attention_texts(slope)
    largest = graph.evaluate(scores, [sources, destinations])
    total = graph.evaluate(sums, [sources, destinations, largest])
    return graph.evaluate(weighed, [sources, destinations, largest, total, values])


SOFTMAX: Final = (
    "M[i,f] max= S[A,f] for A[i,k]",
    "Z[i,f] += exp(S[A,f] - M[i,f]) for A[i,k]",
    "C[A,f] = exp(S[A,f] - M[i,f]) / Z[i,f] for A[i,k]",
)
"""Edge softmax: the largest score of a destination, the sum of exponentials, and the share of an edge."""


def attention_texts(slope: float) -> tuple[str, str, str, str, str, str]:
    """The steps of `attention`: the largest score of a destination, the sum of exponentials, the weighed values.

    Then gradients: of the values and of both parts of the scores. With D the gradient of the result C, that of a score is
    w (D X - t), w being the edge's weight and t, in ``T``, the sum of D C over features; ``O[f]``, one divided by their
    number, takes a share of it off each term.

    Raises InputError for a slope above 1.
    """
    if not slope <= 1:
        raise InputError(f"the slope of a leaky rectifier is at most 1, got {slope}")
    both = "U[k,h] + V[i,h]"
    power = f"exp(max({both}, {slope!r} * ({both})) - M[i,h])"
    score = f"{power} / Z[i,h] * ({slope!r} if {both} < 0 else 1) * (D[i,h,f] * X[k,h,f] - O[f] * T[i,h])"
    return (
        f"M[i,h] max= max({both}, {slope!r} * ({both})) for A[i,k]",
        f"Z[i,h] += {power} for A[i,k]",
        f"C[i,h,f] += {power} / Z[i,h] * X[k,h,f] for A[i,k]",
        f"G[k,h,f] += {power} / Z[i,h] * D[i,h,f] for A[i,k]",
        f"G[k,h] += {score} for A[i,k]",
        f"G[i,h] += {score} for A[i,k]",
    )


# -- from names and shapes to the language ---------------------------------------------------------------


@dataclass(frozen=True)
class Spelled:
    """An operator in the einsum language.

    Attributes:
        text: the assignment; its operands are called L and R.
        views: features of each operand, in order, as ``text`` sees them: without extents of 1, and neighbours as one where
            nothing tells them apart.
        features: of the result.
    """

    text: str
    views: dict[str, tuple[int, ...]]
    features: tuple[int, ...]

    def run(self, evaluate: Callable[[str, Sequence[Any]], Any], lhs: Any, rhs: Any) -> Any:
        """Return what ``evaluate`` makes of the text and its operands, arrays or tensors, with the result's features."""
        given = {"L": lhs, "R": rhs}
        operands = [given[name].reshape(given[name].shape[0], *view) for name, view in self.views.items()]
        out = evaluate(self.text, operands)
        return out.reshape(out.shape[0], *self.features)


@lru_cache(maxsize=4096)
def spell(
    message: str,
    reduce: str | None,
    lhs: tuple[int, ...] | None,
    rhs: tuple[int, ...] | None,
    lhs_target: str,
    rhs_target: str,
) -> Spelled:
    """Return the operator for operands with these features; ``reduce`` None keeps a message for each edge.

    Raises InputError as `gspmm` does.
    """
    if reduce is not None and reduce not in REDUCTIONS:
        raise InputError(f"messages are reduced by {', '.join(REDUCTIONS)}, got {reduce!r}")
    known = [*MESSAGES, *(["dot"] if reduce is None else [])]
    if message not in known:
        raise InputError(f"the message is one of {', '.join(known)}, got {message!r}")
    given = {"L": (lhs, lhs_target, "lhs"), "R": (rhs, rhs_target, "rhs")}
    used = {"copy_lhs": "L", "copy_rhs": "R"}.get(message, "LR")
    shapes: list[tuple[int, ...]] = []
    for name in used:
        features, target, word = given[name]
        if features is None:
            raise InputError(f"{message} needs {word}, which was not given")
        if target not in TARGETS:
            raise InputError(f"{word}_target is u (sources), v (destinations) or e (edges), got {target!r}")
        shapes.append(features)
    rank = max(map(len, shapes))
    if message == "dot" and not rank:
        raise InputError("dot sums over the last feature dimension; lhs and rhs have none")
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    groups: list[tuple[str, int]] = []  # which operands have it, and its extent
    result: list[int] = []
    summed = False
    for place, sides in enumerate(zip(*padded)):
        wide = [extent for extent in sides if extent != 1]  # compared, not hashed: they may be symbols
        if any(extent != wide[0] for extent in wide[1:]):
            raise InputError(f"features {' and '.join(map(str, shapes))} do not broadcast")
        extent = wide[0] if wide else 1
        last = message == "dot" and place == rank - 1
        result.append(1 if last else extent)
        if extent == 1:
            continue
        has = "".join(name for name, side in zip(used, sides) if side != 1)
        summed |= last
        if groups and groups[-1][0] == has and not last:
            groups[-1] = has, groups[-1][1] * extent
        else:
            groups.append((has, extent))
    if len(groups) > len(_LETTERS):
        raise InputError(f"features {' and '.join(map(str, shapes))} alternate in too many dimensions")
    accesses, views = [], {}
    for name in used:
        own = [(letter, extent) for letter, (has, extent) in zip(_LETTERS, groups) if name in has]
        accesses.append(f"{name}[{','.join([TARGETS[given[name][1]], *(letter for letter, _ in own)])}]")
        views[name] = tuple(extent for _, extent in own)
    kept = _LETTERS[: len(groups) - summed]
    output = f"C[{','.join([*('A' if reduce is None else 'i'), *kept])}]"
    sign = REDUCTIONS[reduce] if reduce is not None else "+=" if summed else "="
    expression = MESSAGES["mul" if message == "dot" else message].format(*accesses)
    return Spelled(f"{output} {sign} {expression} for A[i,k]", views, tuple(result))


@lru_cache(maxsize=4096)
def parsed(text: str) -> Assignment:
    """Return the assignment of ``text``; InputError where it is not read ``for`` a pattern of two indices."""
    assignment = Einsum.parse(text).single
    if assignment.pattern is None or len(assignment.pattern.indices) != 2:
        raise InputError(f"'{text}' is not read for the edges of a graph; write '... for A[i,k]'")
    return assignment


@lru_cache(maxsize=4096)
def operands_of(text: str) -> tuple[str, ...]:
    """Names of the dense operands in order."""
    assignment = parsed(text)
    assert assignment.pattern is not None
    return tuple(name for name in assignment.operands if name != assignment.pattern.tensor)


@lru_cache(maxsize=4096)
def derivatives(text: str, operand: str) -> tuple[str, ...]:
    """The assignments whose results add up to the gradient of ``operand``; InputError for a mean over sources' edges."""
    assignment = parsed(text)
    assert assignment.pattern is not None
    if assignment.reduction == "mean" and assignment.pattern.indices[0] not in assignment.kept:
        raise InputError(f"'{text}': gradients of means are for those of destinations; turn the graph round")
    return tuple(str(gradient) for gradient in gradients(assignment, operand))


@lru_cache(maxsize=4096)
def chosen(text: str) -> str:
    """The assignment of the edges that a maximum or minimum comes from."""
    return str(argument(parsed(text)))


def extents(text: str, shape: Sequence[Any], shapes: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Extent of each index, from the graph's shape and those of the operands; nothing is checked."""
    assignment = parsed(text)
    assert assignment.pattern is not None
    found = dict(zip(assignment.pattern.indices, shape))
    for name, own in zip(operands_of(text), shapes):
        for index, extent in zip(assignment.access(name).indices, own):
            found.setdefault(index, extent)
    return {index: found[index] for index in assignment.indices if index in found}


def features_of(operand: Any) -> tuple[int, ...] | None:
    """Extents of an operand's feature dimensions; of an array or a tensor."""
    return None if operand is None else tuple(operand.shape[1:])


def _inside(indices: np.ndarray, size: int, dtype: np.dtype, what: str) -> np.ndarray:
    checked, outside = checked_indices(indices, size, dtype, "graph", what)
    if outside is not None:
        raise InputError(f"graph: edge {outside} has the {what} {indices[outside]}, outside 0 to {size - 1}")
    return checked


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
