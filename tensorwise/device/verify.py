"""Is the output of a kernel right? Decided once per workload, answered in about the time of a kernel run.

Small work is verified in full: every element against the componentwise bound of
:class:`tensorwise.program.reference.Reference`. Larger work is verified

- on sampled output rows (or entries, where the output keeps the pattern), in full and under the same bound:
  the first and the last one, the heaviest one, random ones and ones of random entries;
- over everything by a random projection (Freivalds): the outputs of each row, weighted with random
  numbers and added up, must equal the same sum taken before anything was multiplied. The bound is the
  weighted sum of the componentwise bounds, so a right output never fails; a wrong element is found once its
  error exceeds that sum, and a row that was left out, shifted or misplaced always is;
- for elements that were never written, when the output was poisoned before.

Operations that are no sum of products are left to the slower reference and have no projection.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

import numpy as np

from tensorwise.device.expectation import expected, projection, restricted, stored_per_row, subset
from tensorwise.device.libraries.contraction import Contraction, contraction
from tensorwise.program.einsum import Apply, Expression
from tensorwise.program.reference import Reference
from tensorwise.program.workload import Workload
from tensorwise.tensor.elements import is_float, is_half, limits

FULL_TERMS: Final = 20_000_000
FULL_ELEMENTS: Final = 1 << 22
SAMPLE_TERMS: Final = 1_000_000
PROJECTION_TERMS: Final = 400_000_000
_REFERENCE_COST: Final = 16  # the general reference is slower than a compiled product by about this factor
_WEIGHTS: Final = 65_521  # drawn for a projection; outputs at this distance share a weight
_BLOCK: Final = 1 << 14  # elements compared at a time: a few such blocks stay in the first caches


def poison(out: np.ndarray) -> None:
    """Fill ``out`` with what no kernel writes: NaN, or the smallest integer."""
    out.fill(np.nan if is_float(out.dtype) else np.iinfo(out.dtype).min)


@final
class Checker:
    """Compares outputs of one workload on fixed operands with what they must be.

    Attributes:
        mode: ``full`` or ``sampled``.
        coverage: what is compared, in words for reports.
    """

    mode: Literal["full", "sampled"]
    coverage: str

    def __init__(
        self,
        workload: Workload,
        operands: Sequence[np.ndarray],
        rng: np.random.Generator,
        *,
        full_terms: int = FULL_TERMS,
        full_elements: int = FULL_ELEMENTS,
        sample_terms: int = SAMPLE_TERMS,
        projection_terms: int = PROJECTION_TERMS,
    ) -> None:
        """Compute the expectation.

        Args:
            operands: dense operands; they are kept and must not change.
            rng: draws the sample and the weights of the projection.
            full_terms: most terms of a product that is verified in full.
            full_elements: most output elements for the same.
            sample_terms: terms evaluated for the sample (more when a single row has more).
            projection_terms: most terms for which a projection is taken over all columns.
        """
        self._workload = workload
        shape = contraction(workload)
        product = shape if isinstance(shape, Contraction) and shape.factors else None
        elements = int(np.prod(workload.output_shape, dtype=object))
        cost = workload.terms * (1 if product is not None else _REFERENCE_COST)
        # without dense-only indices a projection would cost as much as the whole
        cheap = product is not None and workload.terms == workload.entries.nnz
        sampleable = len(workload.sparse) == 1 or not workload.keeps_pattern
        self._tests: list[Callable[[np.ndarray], str | None]] = []
        if cheap or not sampleable or (cost <= full_terms and elements <= full_elements):
            self.mode, self.coverage = "full", "all elements"
            self._tests.append(
                _Elements(lambda: expected(workload, operands), workload.output_dtype).mismatch
            )
            return
        self.mode = "sampled"
        sample = _sample(workload, operands, rng, sample_terms)
        self._tests.append(sample.mismatch)
        self.coverage = f"{sample.count} sampled {sample.unit}"
        whole = None if product is None else _projection(workload, operands, product, rng, projection_terms)
        if whole is not None:
            self._tests.insert(0, whole.mismatch)
            self.coverage += f" and a random projection of {whole.words}"
        elif _stays_finite(workload, operands):
            self._tests.insert(0, _unwritten)
            self.coverage += " and a search for elements not written"

    def check(self, out: np.ndarray) -> str | None:
        """Return None when ``out`` is right as far as ``coverage`` goes, else what is wrong with it."""
        if out.shape != self._workload.output_shape:
            return f"shape {out.shape} instead of {self._workload.output_shape}"
        if out.dtype != self._workload.output_dtype:
            return f"dtype {out.dtype} instead of {self._workload.output_dtype}"
        if not out.size:
            return None
        with np.errstate(all="ignore"):
            return next((found for test in self._tests if (found := test(out)) is not None), None)


class _Elements:
    """Elementwise comparison with an interval; the reference, computed anew, decides what falls outside."""

    def __init__(
        self,
        compute: Callable[[], Reference],
        dtype: np.dtype,
        select: Callable[[np.ndarray], np.ndarray] | None = None,
        unit: str = "rows",
        count: int = 0,
        places: np.ndarray | None = None,
    ) -> None:
        self.unit, self.count = unit, count
        self._compute, self._select, self._places = compute, select, places
        self._interval = _interval(compute(), dtype)

    def mismatch(self, out: np.ndarray) -> str | None:
        part = out if self._select is None else self._select(out)
        if _inside(part, *self._interval):
            return None
        found = self._compute().mismatch(part)
        if found is None or self._places is None:
            return found
        return f"among the sampled {self.unit} {_some(self._places)}: {found}"


def _interval(reference: Reference, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest admissible output, rounded outward; (NaN, NaN) where unknown.

    They are of ``dtype``, or of float32 where the output is of halves: those are compared in float32.
    """
    with np.errstate(all="ignore"):
        if not is_float(dtype):
            return reference.value, reference.value
        bound = reference.bound(dtype)
        wide = np.dtype(np.float32) if is_half(dtype) else dtype
        low, high = (reference.value - bound).astype(wide), (reference.value + bound).astype(wide)
        return np.nextafter(low, wide.type(-np.inf)).ravel(), np.nextafter(high, wide.type(np.inf)).ravel()


def _inside(part: np.ndarray, low: np.ndarray, high: np.ndarray) -> bool:
    flat, low, high = part.ravel(), low.ravel(), high.ravel()
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK].astype(low.dtype, copy=False)
        if not (
            (block >= low[start : start + _BLOCK]).all() and (block <= high[start : start + _BLOCK]).all()
        ):
            return False
    return True


def _sample(
    workload: Workload, operands: Sequence[np.ndarray], rng: np.random.Generator, budget: int
) -> _Elements:
    """Compare a few output rows, or entries where the pattern is kept, in full."""
    entries = workload.entries
    width = max(1, workload.terms // max(1, entries.nnz))
    if workload.keeps_pattern:
        count = min(entries.nnz, max(16, budget // width))
        chosen = np.unique(np.concatenate([[0, entries.nnz - 1], rng.integers(entries.nnz, size=count)]))
        part, few, rows = subset(workload, operands, chosen)
        reference = expected(part, few)
        return _Elements(
            lambda: reference, workload.output_dtype, lambda out: out[rows], "entries", len(rows), rows
        )
    stored = workload.assignment.access(next(iter(workload.sparse))).indices
    output = workload.assignment.output.indices
    index = next((i for i in output if i in stored), output[0])
    extent = workload.sizes[index]
    if index in stored:
        coordinate = entries.coordinates[stored.index(index)]
        pointers = entries.pointers if index == stored[0] else None
        counts = np.bincount(coordinate, minlength=extent) if pointers is None else np.diff(pointers)
        weight = counts.astype(np.int64) * width
    else:
        coordinate = np.zeros(0, np.int64)
        weight = np.full(extent, max(1, workload.terms // extent))
    most = budget if isinstance(contraction(workload), str) else 32 * budget
    heaviest = int(np.argmax(np.where(weight <= most, weight, -1)))
    forced = [row for row in {0, extent - 1, heaviest} if weight[row] <= most]
    drawn = [rng.integers(extent, size=256)]
    if coordinate.size:
        drawn.append(coordinate[rng.integers(coordinate.size, size=256)])
    candidates = rng.permutation(np.unique(np.concatenate(drawn)))
    affordable = candidates[np.cumsum(weight[candidates]) <= budget]
    chosen = np.unique(np.concatenate([forced, affordable]).astype(np.int64))
    if not chosen.size:
        chosen = np.array([int(np.argmin(weight))])
    axis = output.index(index)
    part, few = restricted(workload, operands, index, chosen)
    reference = expected(part, few)
    return _Elements(
        lambda: reference,
        workload.output_dtype,
        lambda out: out.take(chosen, axis=axis),
        "rows",
        len(chosen),
        chosen,
    )


@dataclass(frozen=True, eq=False)
class _Projection:
    """Weighted row sums of the output against their expectation.

    Attributes:
        expected, bound: one a row; NaN in ``bound`` where overflow or NaN forbids a statement.
        weights: one a column, or one an entry.
        columns: columns taken into the sum; None for all.
        starts: for a kept pattern the first entry of each row that has one, in entry order.
        rows: the row of each sum.
    """

    expected: np.ndarray
    bound: np.ndarray
    weights: np.ndarray
    columns: np.ndarray | None
    starts: np.ndarray | None
    rows: np.ndarray
    words: str

    def mismatch(self, out: np.ndarray) -> str | None:
        sums = self._by_column(out) if self.starts is None else self._by_entry(out, self.starts)
        wrong = ~(np.abs(sums - self.expected) <= self.bound) & ~np.isnan(self.bound)
        if not wrong.any():
            return None
        error = np.abs(sums - self.expected) / self.bound
        worst = int(np.argmax(np.where(wrong, np.where(np.isnan(error), np.inf, error), -1.0)))
        if np.isnan(sums[worst]):
            return f"row {self.rows[worst]} holds NaN or was not written ({int(wrong.sum())} rows differ)"
        return (
            f"the projection of row {self.rows[worst]} is {sums[worst]:.9g}, "
            f"expected {self.expected[worst]:.9g} within {self.bound[worst]:.3g} "
            f"({int(wrong.sum())} of {wrong.size} rows differ)"
        )

    def _by_column(self, out: np.ndarray) -> np.ndarray:
        rows, width = self.expected.size, out.size // self.expected.size
        flat = out.reshape(rows, width)
        sums = np.empty(rows)
        step = max(1, 4 * _BLOCK // width)
        buffer = np.empty((min(step, rows), self.weights.size))
        for start in range(0, rows, step):
            block = flat[start : start + step]
            wide = buffer[: len(block)]
            wide[...] = block if self.columns is None else block[:, self.columns]
            np.dot(wide, self.weights, out=sums[start : start + step])
        return sums

    def _by_entry(self, out: np.ndarray, starts: np.ndarray) -> np.ndarray:
        sums: np.ndarray = np.add.reduceat(out.astype(np.float64, copy=False) * self.weights, starts)
        return sums


def _projection(
    workload: Workload,
    operands: Sequence[np.ndarray],
    shape: Contraction,
    rng: np.random.Generator,
    budget: int,
) -> _Projection | None:
    extents = tuple(workload.sizes[index] for index in shape.columns)
    summed = float(np.prod([workload.sizes[index] for index in shape.summed], dtype=np.int64))
    columns: np.ndarray | None = None
    words = "all elements"
    work, dense = workload, list(operands)
    if workload.terms > budget and len(shape.factors) > 1:
        if shape.keeps_pattern or len(extents) != 1:
            return None
        keep = max(2, extents[0] * budget // workload.terms)
        columns = np.unique(np.concatenate([[0, extents[0] - 1], rng.integers(extents[0], size=keep - 2)]))
        work, dense = restricted(workload, operands, shape.columns[0], columns)
        words = f"{len(columns)} columns"
    entries = workload.entries
    count = entries.nnz if shape.keeps_pattern else int(np.prod(extents)) if columns is None else len(columns)
    drawn = min(count, _WEIGHTS)
    weights = np.resize(rng.uniform(0.5, 1.5, size=drawn) * rng.choice([-1.0, 1.0], size=drawn), count)
    sums = projection(work, dense, shape, weights)
    if sums is None:
        return None
    value, magnitude = (array.ravel() for array in sums)
    if shape.keeps_pattern:
        row_of_entry = entries.coordinates[0]
        starts = np.flatnonzero(np.r_[True, row_of_entry[1:] != row_of_entry[:-1]])
        rows = row_of_entry[starts]
        value, magnitude = value[rows], magnitude[rows]
        terms = np.full(len(rows), summed)
        weight = np.add.reduceat(np.abs(weights), starts)
        added = np.diff(np.append(starts, entries.nnz))
    else:
        starts, rows = None, np.arange(value.size)
        terms = stored_per_row(workload, shape).ravel() * summed
        weight = np.full(value.size, np.abs(weights).sum())
        added = np.full(value.size, count)
    bound = _projection_bound(magnitude, terms, len(shape.factors) + 1, weight, added, workload.output_dtype)
    bound = np.where(np.isfinite(value) & np.isfinite(magnitude), bound, np.nan)
    return _Projection(value, bound, weights, columns, starts, rows, words)


def _projection_bound(
    magnitude: np.ndarray,
    terms: np.ndarray,
    factors: int,
    weight: np.ndarray,
    added: np.ndarray,
    dtype: np.dtype,
) -> np.ndarray:
    """Largest weighted sum of the rounding errors of a row, and the rounding of the sum itself (in float64).

    Args:
        magnitude: weighted sum of the magnitudes of the row's outputs.
        weight: sum of the absolute weights.
        added: number of outputs added up.
        dtype: of the outputs; halves are sums in float32, rounded once more.
    """
    last = limits(dtype)
    info = limits(np.dtype(np.float32)) if is_half(dtype) else last
    # gamma_n = n u / (1 - n u) holds for any order of adding; slack is needed for the float64 sums alone
    relative = (terms + factors + 2) * info.eps / 2
    gamma = np.where(relative < 0.5, relative / (1 - np.minimum(relative, 0.5)), np.inf)
    summing = 4.0 * (terms + factors + added + 2) * float(np.finfo(np.float64).eps) / 2
    bound = (gamma + summing) * magnitude + info.smallest_normal * (terms + 1) * weight
    if is_half(dtype):
        bound += last.eps / 2 * (magnitude + bound) + last.smallest_subnormal / 2 * weight
    # an output this large may overflow on one way of adding and not on another
    return np.where(magnitude >= 0.1 * last.max, np.nan, bound)


def _stays_finite(workload: Workload, operands: Sequence[np.ndarray]) -> bool:
    """Whether no right output is NaN: finite operands and no division."""
    arrays = [*operands, *(entries.values for entries in workload.sparse.values())]
    return not _divides(workload.assignment.expression) and all(bool(np.isfinite(a).all()) for a in arrays)


def _divides(expression: Expression) -> bool:
    if not isinstance(expression, Apply):
        return False
    return expression.operator == "div" or any(_divides(argument) for argument in expression.arguments)


def _unwritten(out: np.ndarray) -> str | None:
    """Find an element that still holds the poison."""
    flat = out.ravel()
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        bad = np.isnan(block) if is_float(out.dtype) else block == np.iinfo(out.dtype).min
        if bad.any():
            place = np.unravel_index(start + int(np.argmax(bad)), out.shape)
            return f"element {tuple(int(c) for c in place)} holds NaN or was not written"
    return None


def _some(places: np.ndarray) -> str:
    head = ", ".join(str(place) for place in places[:4])
    return f"{head}, ..." if len(places) > 4 else head
