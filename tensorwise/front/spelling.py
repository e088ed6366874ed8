"""Graph operators in the einsum language: from names and shapes to text, and from a text to those of its gradients.

Everything here is text, or an order in which texts are evaluated on arrays or tensors; nothing knows what a graph is. See
`tensorwise.front.gnn` for examples.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.program.einsum import Access, Apply, Assignment, Constant, Einsum, Index
from tensorwise.program.gradient import (
    ARGUMENTS,
    argument,
    batched,
    gradients,
    names_of,
    tangent,
    tangent_name,
)
from tensorwise.reading import shown

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
WEIGHTS_BYTES: Final = 2**24
"""Attention's weights of edges are kept while they take no more: about what caches hold."""
_LETTERS: Final = "fghjlmnopqrstuvwxyz"

TIMES_COLUMNS: Final = "C[i,f] += E[A] * B[k,f] for A[i,k]"
"""A matrix with the values E times a dense matrix: SpMM."""
TIMES_VECTOR: Final = "C[i] += E[A] * B[k] for A[i,k]"
"""The same times a vector: SpMV."""
SAMPLED: Final = "C[A] += L[i,f] * R[k,f] for A[i,k]"
"""Entries of a product of dense matrices at the positions of a pattern; the right one is given transposed."""
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
    largest, total, weight, turned = _attention_parts(slope)
    score = f"{weight} * {turned} * (D[i,h,f] * X[k,h,f] - O[f] * T[i,h])"
    return (
        largest,
        total,
        f"C[i,h,f] += {weight} * X[k,h,f] for A[i,k]",
        f"G[k,h,f] += {weight} * D[i,h,f] for A[i,k]",
        f"G[k,h] += {score} for A[i,k]",
        f"G[i,h] += {score} for A[i,k]",
    )


def weighed_texts(slope: float) -> tuple[str, str, str, str, str, str]:
    """The steps of `attention` behind the first two of `attention_texts` that keep each edge's weights, one a head.

    The weights, and the weighed values; then gradients: of the values; of the scores, and from these of both their parts.
    Exponentials are taken once for each edge, for all heads at a time, and not for each feature's tile and gradient.
    """
    _, _, weight, turned = _attention_parts(slope)
    return (
        f"W[A,h] = {weight} for A[i,k]",
        "C[i,h,f] += W[A,h] * X[k,h,f] for A[i,k]",
        "G[k,h,f] += W[A,h] * D[i,h,f] for A[i,k]",
        f"E[A,h] += W[A,h] * {turned} * (D[i,h,f] * X[k,h,f] - O[f] * T[i,h]) for A[i,k]",
        "G[k,h] += E[A,h] for A[i,k]",
        "G[i,h] += E[A,h] for A[i,k]",
    )


def keeps_weights(edges: Any, heads: Any, dtype: Any) -> bool:
    """Whether `attention` keeps the weights of edges: in full precision, and while they take little memory."""
    return dtype.itemsize >= 4 and bool(edges * heads * dtype.itemsize <= WEIGHTS_BYTES)


def _attention_parts(slope: float) -> tuple[str, str, str, str]:
    """The first two assignments of `attention`, an edge's weight, and what turns the sign of its score's gradient."""
    if (
        isinstance(slope, bool)
        or not isinstance(slope, int | float | np.number)
        or not -math.inf < slope <= 1
    ):
        raise InputError(f"the slope of a leaky rectifier is at most 1, and finite; got {shown(slope)}")
    slope = float(slope)
    both = "U[k,h] + V[i,h]"
    power = f"exp(max({both}, {slope!r} * ({both})) - M[i,h])"
    return (
        f"M[i,h] max= max({both}, {slope!r} * ({both})) for A[i,k]",
        f"Z[i,h] += {power} for A[i,k]",
        f"{power} / Z[i,h]",
        f"({slope!r} if {both} < 0 else 1)",
    )


# -- operators as text -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spelled:
    """An operator in the einsum language.

    Attributes:
        text: the assignment; its operands are called L and R.
        views: extents of each operand's features, in order, as ``text`` indexes them: extents of 1 dropped, and adjacent
            features merged where ``text`` uses them as one.
        features: of the result.
    """

    text: str
    views: dict[str, tuple[int, ...]]
    features: tuple[int, ...]

    def run(self, evaluate: Callable[[str, Sequence[Any]], Any], lhs: Any, rhs: Any) -> Any:
        """Return what ``evaluate`` makes of the text and its operands, arrays or tensors, with the result's features."""
        given = {"L": lhs, "R": rhs}
        operands = [_with_features(given[name], view) for name, view in self.views.items()]
        return _with_features(evaluate(self.text, operands), self.features)


def _with_features(rows: Any, features: tuple[int, ...]) -> Any:
    """The same with these features; itself where it has them, since a view takes autograd as long as a small kernel."""
    return rows if features_of(rows) == features else rows.reshape(rows.shape[0], *features)


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
    if not isinstance(text, str):
        raise InputError(f"an assignment is a text such as 'C[i,f] += B[k,f] for A[i,k]', got {shown(text)}")
    assignment = Einsum.parse(text).single
    if assignment.pattern is None or len(assignment.pattern.indices) != 2:
        raise InputError(f"'{text}' is not read for the edges of a graph; write '... for A[i,k]'")
    if assignment.output.indices == assignment.pattern.indices:  # an element an edge, as it is stored
        output = replace(assignment.output, indices=(assignment.pattern.tensor,))
        return replace(assignment, output=output)
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
    if assignment.reduction == "mean" and assignment.pattern.indices[0] not in assignment.free_indices:
        raise InputError(f"'{text}': gradients of means are for those of destinations; turn the graph round")
    return tuple(str(gradient) for gradient in gradients(assignment, operand))


@lru_cache(maxsize=4096)
def read_by_gradients(text: str, needed: tuple[bool, ...]) -> tuple[bool, ...]:
    """Which operands have values that the gradients of those that are ``needed`` read; the numbers of edges are known."""
    names = operands_of(text)
    try:
        texts = [
            one for name, need in zip(names, needed, strict=True) if need for one in derivatives(text, name)
        ]
    except InputError:  # there is none, which the gradient says when it is asked for
        return (True,) * len(names)
    return tuple(any(name in operands_of(derived) for derived in texts) for name in names)


@lru_cache(maxsize=4096)
def batched_text(text: str, has_batch: tuple[bool, ...]) -> str:
    """The assignment for operands of which some have a batch, as their second dimension; the result has it there, too."""
    names = [name for name, has in zip(operands_of(text), has_batch, strict=True) if has]
    return str(batched(parsed(text), names))


@lru_cache(maxsize=4096)
def tangent_text(text: str, moved: tuple[bool, ...]) -> str | None:
    """The assignment of the tangent where some operands have tangents; None where the result does not depend on them."""
    names = [name for name, moves in zip(operands_of(text), moved, strict=True) if moves]
    found = tangent(parsed(text), names)
    return None if found is None else str(found)


@lru_cache(maxsize=4096)
def chosen(text: str) -> str:
    """The assignment of the edges that a maximum or minimum comes from."""
    return str(argument(parsed(text)))


@lru_cache(maxsize=4096)
def chooses(text: str) -> bool:
    """Whether each result comes from one edge: of a maximum or minimum over edges."""
    assignment = parsed(text)
    assert assignment.pattern is not None
    return assignment.reduction in ARGUMENTS and set(assignment.reduced) <= set(assignment.pattern.indices)


@lru_cache(maxsize=4096)
def at_chosen(text: str) -> str:
    """The assignment of a maximum or minimum from the edges that ``chosen`` gives."""
    assignment = parsed(text)
    assert assignment.pattern is not None
    holds = Access(names_of(assignment).numbers, assignment.output.indices)
    names_it = Apply("eq", (holds, Index(assignment.pattern.tensor)))
    taken = Apply("where", (names_it, assignment.expression, Constant(0.0)))
    return str(replace(assignment, reduction="sum", expression=taken))


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
    if operand is not None and not hasattr(operand, "shape"):
        raise InputError(f"features are an array or a tensor, got {type(operand).__name__}")
    return None if operand is None else tuple(operand.shape[1:])


# -- gradients -------------------------------------------------------------------------------------------


def backward(
    text: str,
    given: Any,
    operands: Sequence[Any],
    needed: Sequence[bool],
    evaluate: Callable[[str, Sequence[Any]], Any],
    shares: Callable[[], Any],
    ones: Callable[[Sequence[Any]], Any],
    numbers: Any = None,
) -> list[Any]:
    """Return the gradient of each operand that needs one, None for the others; of arrays or tensors.

    Args:
        text: the assignment, whose result has the gradient ``given``.
        evaluate: what evaluates an assignment on operands.
        shares: gives (destinations,): one divided by the number of edges that end in each; not in halves, which do not
            count so far.
        ones: gives an array of ones of a shape.
        numbers: of the edges that a maximum or minimum comes from, if they are known (see `by_edges`).
    """
    names, called = operands_of(text), names_of(parsed(text))
    makes = {
        called.shares: shares,
        called.numbers: lambda: evaluate(chosen(text), operands) if numbers is None else numbers,
    }
    known = {**dict(zip(names, operands)), called.given: given}
    run = _evaluator(text, operands, known, makes, evaluate, ones)
    found: list[Any] = []
    for name, need in zip(names, needed, strict=True):
        parts = [run(derived) for derived in derivatives(text, name)] if need else []
        found.append(sum(parts[1:], parts[0]) if parts else None)
    return found


def forward(
    text: str,
    operands: Sequence[Any],
    tangents: Sequence[Any],
    evaluate: Callable[[str, Sequence[Any]], Any],
    ones: Callable[[Sequence[Any]], Any],
    numbers: Any = None,
) -> Any:
    """Return the tangent of the result, of arrays or tensors; None where it is 0.

    Args:
        tangents: one for each operand, or None; the others are as of `backward`.
    """
    names, assignment = operands_of(text), parsed(text)
    derived = tangent_text(text, tuple(one is not None for one in tangents))
    if derived is None:
        return None
    moved = {tangent_name(assignment, name): one for name, one in zip(names, tangents)}
    makes = {
        names_of(assignment).numbers: lambda: evaluate(chosen(text), operands) if numbers is None else numbers
    }
    return _evaluator(text, operands, {**dict(zip(names, operands)), **moved}, makes, evaluate, ones)(derived)


def _evaluator(
    text: str,
    operands: Sequence[Any],
    known: dict[str, Any],
    makes: dict[str, Callable[[], Any]],
    evaluate: Callable[[str, Sequence[Any]], Any],
    ones: Callable[[Sequence[Any]], Any],
) -> Callable[[str], Any]:
    """What evaluates a derivative of ``text`` on what is known, and on what it makes when it is first read."""
    name_of_ones = names_of(parsed(text)).ones

    def run(derived: str) -> Any:
        taken = []
        for name in operands_of(derived):
            if name == name_of_ones:
                sizes = extents(text, (), [operand.shape for operand in operands])
                taken.append(ones([sizes[index] for index in parsed(derived).access(name).indices]))
                continue
            if name not in known:
                known[name] = makes[name]()
            taken.append(known[name])
        return evaluate(derived, taken)

    return run


def by_edges(
    text: str, operands: Sequence[Any], evaluate: Callable[[str, Sequence[Any]], Any]
) -> tuple[Any, Any]:
    """Return a maximum or minimum, and the numbers of the edges that it comes from, with which its gradient begins."""
    numbers, value = evaluate(chosen(text), operands), at_chosen(text)
    known = {**dict(zip(operands_of(text), operands)), names_of(parsed(text)).numbers: numbers}
    return evaluate(value, [known[name] for name in operands_of(value)]), numbers
