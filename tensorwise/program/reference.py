"""The dense reference: what an einsum means, computed without any of our lowering.

It enumerates the stored entries, evaluates the right-hand side on them in float64 with NumPy and
reduces by output coordinate. Beside the value it returns the magnitude (the same sum over absolute
values) and the number of terms, from which the componentwise error bound follows:

    |y - reference| <= 4 (terms + factors + 2) u magnitude + smallest normal        (u = unit roundoff)

which covers any order of summation, any association of the factors and fused multiply-add
(Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). A result in float16 or bfloat16 is accumulated
in float32, from operands that are exact there, and rounded once more when it is stored: with e that bound in float32,
u' the half's unit roundoff and s' its smallest subnormal number,

    |y - reference| <= e + u' (|reference| + e) + s' / 2

A coordinate (argmax, argmin) must be exact, unless the runner-up is within that bound.

Where a part of an expression, or a product of some of the terms, is beyond what the computing dtype holds while the result
is not, nothing is known of the result: 0 * exp(200) is 0, or NaN in float32. Magnitudes are NaN there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorwise.program.einsum import Access, Apply, Assignment, Constant, Expression, Index
from tensorwise.program.joined import check_joined
from tensorwise.program.ops import COMBINE
from tensorwise.tensor.elements import FloatLimits, is_float, is_half, limits
from tensorwise.tensor.entries import Entries


@dataclass(frozen=True)
class Reference:
    """Expected values with, per element, magnitude and number of reduced terms (0 = unreached).

    ``finite`` says that all operands are finite: an infinite magnitude then stands for overflow. A NaN magnitude says that a
    part overflows, or is lost, on the way to a value that is no NaN; ``overflows``, where a term of finite numbers does.
    """

    value: np.ndarray
    magnitude: np.ndarray
    terms: np.ndarray
    factors: int
    finite: bool = False
    overflows: np.ndarray | None = None

    def bound(self, dtype: np.dtype) -> np.ndarray:
        """Return the largest admissible absolute error of each element of a result in ``dtype``."""
        info = limits(np.dtype(np.float32) if is_half(dtype) else dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            relative = 4.0 * (self.terms + self.factors + 2) * info.eps / 2
            error = np.asarray(relative * self.magnitude + info.smallest_normal * (self.terms + 1))
            if is_half(dtype):
                last = limits(dtype)
                error += last.eps / 2 * (np.abs(self.value) + error) + last.smallest_subnormal / 2
            return error

    def mismatch(self, actual: np.ndarray, factored: bool = False) -> str | None:
        """Return None when ``actual`` agrees within the bound, else a sentence naming the worst element.

        NaN must meet NaN and infinities must agree, except where the exact result is within
        rounding of overflow for ``actual``'s dtype. Where sums were ``factored``, infinities may stand where they
        would have cancelled to NaN.
        """
        if actual.shape != self.value.shape:
            return f"shape {actual.shape} instead of {self.value.shape}"
        if self.value.size == 0:
            return None
        dtype = actual.dtype if is_float(actual.dtype) else np.dtype(np.float64)
        got = actual.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            near_overflow = self.magnitude * (1 + 1e-4) >= limits(dtype).max
            near_overflow &= self.finite | np.isfinite(self.magnitude)
            error = np.abs(got - self.value)
            right = (error <= self.bound(dtype)) & np.isfinite(got) & np.isfinite(self.value)
        right |= np.isnan(self.magnitude) & ~np.isnan(self.value)
        right |= (got == self.value) | (np.isnan(got) & np.isnan(self.value))
        right |= factored & np.isinf(got) & np.isnan(self.value)
        right |= near_overflow & ~(np.isfinite(got) & np.isfinite(self.value))
        if self.overflows is not None:
            right |= self.overflows & ~np.isfinite(got)
        wrong = ~right
        if not wrong.any():
            return None
        flat = int(np.argmax(np.where(wrong, np.where(np.isnan(error), np.inf, error), -1.0)))
        place = tuple(int(c) for c in np.unravel_index(flat, self.value.shape))
        return (
            f"element {place} is {got.flat[flat]:.9g}, expected {self.value.flat[flat]:.9g} "
            f"within {float(self.bound(dtype).flat[flat]):.3g} "
            f"({int(wrong.sum())} of {wrong.size} elements differ)"
        )


def reference(
    assignment: Assignment,
    sparse: Mapping[str, Entries],
    dense: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    *,
    keep_pattern: bool = False,
    chunk_terms: int = 1 << 22,
) -> Reference:
    """Evaluate ``assignment`` on stored entries.

    Args:
        sparse: operands of which only stored entries contribute; at most one, or several that are
            joined on equal coordinates.
        dense: the other operands, shaped by their indices.
        sizes: extent of every index.
        keep_pattern: return one value per entry of the sparse operand (the output has its indices)
            instead of a dense array.
        chunk_terms: terms evaluated at a time, which bounds the memory used.

    Raises InputError where terms count that not all of several sparse operands have an entry for.
    """
    check_joined(assignment, sparse)
    factors = len(assignment.accesses)
    wide = any(dtype == np.float64 for dtype in _computed_with(assignment, sparse, dense))
    computing = limits(np.dtype(np.float64 if wide else np.float32))
    coordinates, values, entry = _join(assignment, sparse)
    count = len(next(iter(values.values()))) if values else 1
    free = [index for index in assignment.indices if index not in coordinates]
    coordinates |= {name: entry[name] for name in assignment.counted}
    free_shape = tuple(sizes[index] for index in free)
    free_size = int(np.prod(free_shape, dtype=np.int64))
    first = next(iter(sparse))
    extents = {**sizes, first: sparse[first].nnz}
    numbered = assignment.output.indices[0] == first
    if keep_pattern and not numbered:
        out_sparse, coordinates[first] = [first], entry[first]
    else:  # beside the numbers of entries, coordinates that any sparse operand has: C[A,g] += A[i,k] * S[i,g]
        out_sparse = [index for index in assignment.output.indices if index in coordinates]
    rows = int(np.prod([extents[i] for i in out_sparse], dtype=np.int64))
    out_free = [place for place, index in enumerate(free) if index in assignment.output.indices]
    kept_shape = tuple(free_shape[place] for place in out_free)

    single = assignment.reduction in (None, "sum", "prod", "max", "min", "mean")
    ufunc = assignment.monoid.ufunc
    of_sizes: np.ufunc = ufunc if ufunc in (np.add, np.multiply) else np.maximum
    value = np.full((rows, *kept_shape), float(assignment.monoid.components[0].identity))
    magnitude = np.zeros((rows, *kept_shape))
    terms = np.zeros((rows, *kept_shape))
    grown, shrunk = np.zeros_like(terms), np.zeros_like(terms)
    overflows = np.zeros(terms.shape, bool)
    best = _Extreme(value, magnitude, terms, assignment.reduction == "argmax")
    reduced_free = tuple(1 + p for p in range(len(free)) if p not in out_free)
    step = max(1, chunk_terms // max(1, free_size))
    for start in range(0, count if free_size else 0, step):
        stop = min(count, start + step)
        part = slice(start, stop)
        bound = {index: array[part] for index, array in coordinates.items()}
        with np.errstate(all="ignore"):
            args = (bound, values, part, free, dense, stop - start, free_shape, computing)
            term, size = _evaluate(assignment.expression, *args)
            beyond = np.abs(term) > computing.max
            if beyond.any():
                beyond &= ~_spoiled(assignment.expression, *args)
        target = np.zeros(stop - start, dtype=np.int64)
        for index in out_sparse:
            target = target * extents[index] + bound[index]
        if not single:
            _argument(assignment, term, size, target, bound, free, best)
            continue
        if ufunc in (np.maximum, np.minimum):
            size = np.where(np.isinf(term), 0.0, size)  # it is exact, and none of the others' business
        repeats = int(np.prod([free_shape[p - 1] for p in reduced_free], dtype=np.int64))
        with np.errstate(all="ignore"):
            term_kept = ufunc.reduce(term, axis=reduced_free) if reduced_free else term
            size_kept = of_sizes.reduce(size, axis=reduced_free) if reduced_free else size
            ufunc.at(value, target, term_kept)
            if ufunc is np.multiply:
                magnitude[target] = np.where(terms[target] == 0, 1.0, magnitude[target])
            of_sizes.at(magnitude, target, size_kept)
            np.logical_or.at(overflows, target, beyond.any(axis=reduced_free) if reduced_free else beyond)
            if ufunc is np.multiply:
                # Octaves by which products of some of the terms may be larger, or smaller, than 1.
                octaves = np.log2(np.abs(term))
                octaves = np.where(np.isfinite(octaves), octaves, 0.0)
                np.add.at(grown, target, np.maximum(octaves, 0).sum(axis=reduced_free))
                np.add.at(shrunk, target, np.maximum(-octaves, 0).sum(axis=reduced_free))
            np.add.at(terms, target, float(repeats))
    if not single:
        value = np.where(terms == 0, -1.0, best.argument)
        computed = np.dtype(np.float64 if wide else np.float32)
        close = best.gap() <= Reference(value, magnitude, np.ones_like(terms), factors).bound(computed)
        magnitude = np.where(close, np.inf, 0.0)
    elif assignment.reduction == "mean":
        with np.errstate(all="ignore"):
            value = np.where(terms == 0, 0.0, value / np.maximum(terms, 1))
            magnitude = magnitude / np.maximum(terms, 1)
    else:
        value = np.where(terms == 0, 0.0, value)
    most, least = np.log2(computing.max), -np.log2(computing.smallest_normal)
    magnitude = np.where((grown >= most) | ((shrunk >= least) & (grown >= 1)), np.nan, magnitude)
    arrays = [value, magnitude, terms, overflows]
    if not keep_pattern or numbered:
        have = [*out_sparse, *(free[p] for p in out_free)]
        order = [have.index(index) for index in assignment.output.indices]
        shape = tuple(extents[index] for index in have)
        arrays = [array.reshape(shape).transpose(order) for array in arrays]
    finite = all_finite([*(entries.values for entries in sparse.values()), *dense.values()])
    return Reference(arrays[0], arrays[1], arrays[2], factors, finite, arrays[3])


def _computed_with(
    assignment: Assignment, sparse: Mapping[str, Entries], dense: Mapping[str, np.ndarray]
) -> list[np.dtype]:
    """dtypes of the operands whose values are read."""
    return [(sparse[a.tensor] if a.tensor in sparse else dense[a.tensor]).dtype for a in assignment.accesses]


def all_finite(operands: Iterable[np.ndarray]) -> bool:
    """Whether no operand holds NaN or infinities."""
    return all(bool(np.isfinite(operand).all()) for operand in operands)


def _join(
    assignment: Assignment, sparse: Mapping[str, Entries]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return coordinates by index, values and numbers of the entries by operand, where all have entries."""
    entry: dict[str, np.ndarray] = {}
    coordinates: dict[str, np.ndarray] = {}
    values: dict[str, np.ndarray] = {}
    for name, entries in sparse.items():
        own = dict(zip(assignment.access(name).indices, entries.coordinates, strict=True))
        numbers = np.arange(entries.nnz) if entries.numbers is None else entries.numbers.astype(np.int64)
        if not values:
            entry[name] = numbers
            coordinates = {index: array.astype(np.int64) for index, array in own.items()}
            values[name] = entries.values.astype(np.float64)
            continue
        shared = [index for index in own if index in coordinates]
        left = np.arange(len(next(iter(values.values()))))
        pairs_left, pairs_right = np.meshgrid(left, np.arange(entries.nnz), indexing="ij")
        keep = np.ones(pairs_left.shape, dtype=bool)
        for index in shared:
            keep &= coordinates[index][pairs_left] == own[index][pairs_right]
        a, b = pairs_left[keep], pairs_right[keep]
        entry = {other: array[a] for other, array in entry.items()} | {name: numbers[b]}
        coordinates = {index: array[a] for index, array in coordinates.items()} | {
            index: array[b].astype(np.int64) for index, array in own.items()
        }
        values = {other: array[a] for other, array in values.items()} | {
            name: entries.values[b].astype(np.float64)
        }
    return coordinates, values, entry


def _evaluate(
    expression: Expression,
    bound: Mapping[str, np.ndarray],
    values: Mapping[str, np.ndarray],
    part: slice,
    free: list[str],
    dense: Mapping[str, np.ndarray],
    count: int,
    free_shape: tuple[int, ...],
    holds: FloatLimits,
) -> tuple[np.ndarray, np.ndarray]:
    """Return term and magnitude arrays of shape (count, *free_shape).

    Magnitudes are NaN where a part is beyond what the computing dtype ``holds``, and what is made of it is not.
    """
    args = (bound, values, part, free, dense, count, free_shape, holds)
    match expression:
        case Constant(value=number):
            full = np.full((count, *free_shape), number)
            return full, np.abs(full)
        case Access(tensor=name) if name in values:
            column = values[name][part].reshape((-1,) + (1,) * len(free))
            full = np.broadcast_to(column, (count, *free_shape))
            return full, np.abs(full)
        case Access(tensor=name, indices=indices):
            selector: list[np.ndarray] = []
            for index in indices:
                if index in bound:
                    selector.append(bound[index].reshape((-1,) + (1,) * len(free)))
                else:
                    place = free.index(index)
                    shape = [1] * (1 + len(free))
                    shape[1 + place] = free_shape[place]
                    selector.append(np.arange(free_shape[place]).reshape(shape))
            gathered = dense[name][tuple(selector)].astype(np.float64)
            full = np.broadcast_to(gathered, (count, *free_shape))
            return full, np.abs(full)
        case Index(name=name):
            shape = [1] * (1 + len(free))
            if name in bound:
                numbers, shape[0] = bound[name], -1
            else:
                numbers, shape[1 + free.index(name)] = np.arange(free_shape[free.index(name)]), -1
            full = np.broadcast_to(numbers.reshape(shape), (count, *free_shape))
            return full, np.abs(full)
        case Apply(operator="where", arguments=(Apply(operator=compared, arguments=sides), *choices)):
            left, right = (_evaluate(side, *args)[0] for side in sides)
            true = COMBINE[compared].evaluate(left, right)
            chosen, other = (_evaluate(choice, *args) for choice in choices)
            size = np.where(true, chosen[1], other[1])
            # In the computing dtype both are infinite, and compare otherwise.
            unsure = _overflows(left, holds.max) & _overflows(right, holds.max)
            return np.where(true, chosen[0], other[0]), np.where(unsure, np.nan, size)
        case Apply(operator=operator, arguments=arguments):
            parts = [_evaluate(a, *args) for a in arguments]
            rule = COMBINE[operator]
            sizes = [p[1] for p in parts]
            if operator in ("max", "min"):  # an infinite side is exact, and none of the other's business
                sizes = [np.where(np.isinf(side), 0.0, size) for side, size in parts]
            size = rule.magnitude(*sizes)
            if operator == "div":  # the divisor's error counts relative to its value
                ratio = parts[1][1] / np.abs(parts[1][0])
                size = size * np.where(np.isfinite(ratio), ratio, 1.0) ** 2
            value = rule.evaluate(*(p[0] for p in parts))
            if operator == "exp":
                # Errors of the exponent count in relation to the power; infinite ones have none.
                exponent = parts[0][1]
                size = value * (1 + np.where(np.isfinite(exponent), exponent, 0.0))
            size = np.where(np.isinf(value), np.inf, size)
            if operator in ("add", "sub", "mul", "div"):
                size = np.where(_unsure(operator, [part for part, _ in parts], value, holds), np.nan, size)
            return value, size
    raise TypeError(expression)


def _spoiled(expression: Expression, *args: Any) -> np.ndarray:
    """Whether a term reads a number that is infinite or NaN."""
    left, total = [expression], np.zeros(1)
    while left:
        match left.pop():
            case Apply(arguments=arguments):
                left.extend(arguments)
            case Access() as access:
                total = total + 0 * _evaluate(access, *args)[0]
    return np.isnan(total)


def _unsure(operator: str, parts: Sequence[np.ndarray], value: np.ndarray, holds: FloatLimits) -> np.ndarray:
    """Whether a result may be any other: parts that are infinite or 0 in the computing dtype meet 0, infinity or others."""
    found = np.logical_or.reduce([_overflows(part, holds.max) for part in parts])
    if operator in ("mul", "div"):
        first, second = (np.abs(part) for part in parts)
        lost = [(size != 0) & (size < holds.smallest_normal) for size in (first, second)]
        found = found | (lost[0] & (second > 1 if operator == "mul" else second < 1))
        found = found | (lost[1] & (first > 1) if operator == "mul" else lost[1])
    made: np.ndarray = found & ~_overflows(value, holds.max)
    return made


def _overflows(value: np.ndarray, most: float) -> np.ndarray:
    """Whether a number is finite, and beyond what the computing dtype holds."""
    made: np.ndarray = (np.abs(value) > most) & np.isfinite(value)
    return made


class _Extreme:
    """Running extreme of each output element: value, its lowest coordinate, and the value next to it."""

    def __init__(self, value: np.ndarray, magnitude: np.ndarray, terms: np.ndarray, larger: bool) -> None:
        self.value, self.magnitude, self.terms, self.larger = value, magnitude, terms, larger
        self.argument, self.second = np.full(value.shape, -1.0), value.copy()

    def fold(self, target: int, term: np.ndarray, size: np.ndarray, coordinate: float) -> None:
        """Take one candidate for each element of a row; NaN is the most extreme, the lowest coordinate wins ties."""
        value, argument, second = self.value[target], self.argument[target], self.second[target]
        with np.errstate(invalid="ignore"):
            better = (term > value if self.larger else term < value) | (np.isnan(term) & ~np.isnan(value))
            tie = (term == value) | (np.isnan(term) & np.isnan(value))
            nearer = ~tie & (term > second if self.larger else term < second)
        self.second[target] = np.where(better, value, np.where(nearer, term, second))
        wins = better | (tie & ((argument < 0) | (coordinate < argument)))
        self.value[target] = np.where(better, term, value)
        self.argument[target] = np.where(wins, coordinate, argument)
        self.magnitude[target] = np.maximum(self.magnitude[target], np.where(np.isfinite(size), size, 0.0))
        self.terms[target] += 1

    def gap(self) -> np.ndarray:
        """Distance to the next value; infinite where there is none."""
        with np.errstate(invalid="ignore"):
            gap = np.abs(self.value - self.second)
        return np.where(np.isnan(gap), np.inf, gap)


def _argument(
    assignment: Assignment,
    term: np.ndarray,
    size: np.ndarray,
    target: np.ndarray,
    bound: Mapping[str, np.ndarray],
    free: list[str],
    best: _Extreme,
) -> None:
    """Fold terms of shape (count, free extents) into the running extremes."""
    index = assignment.argument
    assert index is not None
    for row, place in enumerate(target):
        if index not in free:
            best.fold(place, term[row], size[row], float(bound[index][row]))
            continue
        axis = free.index(index)
        for c in range(term.shape[1 + axis]):
            best.fold(place, np.take(term[row], c, axis=axis), np.take(size[row], c, axis=axis), float(c))
