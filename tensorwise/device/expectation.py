"""What a workload must give, computed fast enough to check every timed kernel.

Sums of products of one sparse operand run through SciPy's compiled product in float64 (twice: values
and magnitudes), about thirty times faster than :func:`tensorwise.program.reference.reference`;
anything else is left to that reference. Neither uses our lowering or code generator.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tensorwise.device.libraries.contraction import Contraction, contraction
from tensorwise.device.libraries.scipy import ScipyKernel
from tensorwise.errors import InputError
from tensorwise.program.einsum import Access, Apply, Assignment, Einsum, Expression
from tensorwise.program.reference import Reference, all_finite
from tensorwise.program.workload import Workload
from tensorwise.tensor.checks import coordinate_dtype
from tensorwise.tensor.entries import Entries

_BLOCK: Final = 1 << 16  # elements in float64 that stay in a core's own cache


def expected(workload: Workload, operands: Sequence[np.ndarray]) -> Reference:
    """Return the reference of ``workload``: values, magnitudes and numbers of terms, all float64."""
    shape = contraction(workload)
    if isinstance(shape, str) or not shape.factors:
        return workload.reference(operands)
    value, magnitude = values_and_magnitudes(workload, operands)
    summed = int(np.prod([workload.sizes[index] for index in shape.summed], dtype=np.int64))
    if shape.keeps_pattern:
        terms = np.full(value.shape, float(summed))
    else:
        rows = stored_per_row(workload, shape) * float(summed)
        columns = tuple(workload.sizes[index] for index in shape.columns)
        terms = np.broadcast_to(rows.reshape((*rows.shape, *(1 for _ in columns))), value.shape)
    finite = all_finite([workload.entries.values, *operands])
    return Reference(value, magnitude, terms, len(shape.factors) + 1, finite)


def values_and_magnitudes(
    workload: Workload, operands: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Run a sum of products in float64, on the operands and on their absolute values."""
    kept = () if workload.keeps_pattern else workload.assignment.output.indices
    work, dense = _met(workload, operands, kept)

    def run(absolute: bool) -> np.ndarray:
        return _run(_widened(work, absolute), [_wide(operand, absolute) for operand in dense])

    return run(False), run(True)


def projection(
    workload: Workload, operands: Sequence[np.ndarray], shape: Contraction, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Compute a weighted sum of the outputs of each row without computing the outputs themselves.

    Args:
        weights: where the pattern is kept one weight an entry, else one for each combination of
            dense-only output indices.

    Returns:
        For each output row the expected weighted sum of its outputs, and the sum of the weighted
        magnitudes; None where no single factor can carry the weights.
    """
    kept = shape.sparse[:1] if shape.keeps_pattern else shape.rows
    work, dense = _met(workload, operands, kept)
    with np.errstate(all="ignore"):
        if shape.sampled is not None:
            return (
                _sampled_sums(work, dense, shape, weights, False),
                _sampled_sums(work, dense, shape, weights, True),
            )
        value = _projected(work, dense, shape, weights, False)
        magnitude = _projected(work, dense, shape, weights, True)
        return None if value is None or magnitude is None else (_run(*value), _run(*magnitude))


def _run(workload: Workload, operands: Sequence[np.ndarray]) -> np.ndarray:
    out = np.empty(workload.output_shape)
    with np.errstate(all="ignore"):
        ScipyKernel().bind(workload, 1).run(operands, out)
    return out


def _met(
    workload: Workload, operands: Sequence[np.ndarray], kept: Collection[str]
) -> tuple[Workload, list[np.ndarray]]:
    """The workload without the parts of dense operands that no entry meets.

    Coordinates of stored indices that are not in ``kept`` are renumbered where that spares half and more:
    a wide matrix with few entries would take its time from memory that nobody looks at.
    """
    ((name, entries),) = workload.sparse.items()
    sizes, dense = dict(workload.sizes), list(operands)
    coordinates = list(entries.coordinates)
    for mode, index in enumerate(workload.assignment.access(name).indices):
        if index in kept:
            continue
        met = np.zeros(sizes[index], bool)
        met[coordinates[mode]] = True
        chosen = np.flatnonzero(met)
        if 2 * len(chosen) > len(met):
            continue
        sizes[index] = len(chosen)
        coordinates[mode] = (np.cumsum(met) - 1)[coordinates[mode]].astype(coordinates[mode].dtype)
        for place, operand in enumerate(workload.dense):
            indices = workload.assignment.access(operand).indices
            if index in indices:
                dense[place] = dense[place].take(chosen, axis=indices.index(index))
    shape = tuple(sizes[index] for index in workload.assignment.access(name).indices)
    pointers = entries.pointers if shape[0] == entries.shape[0] else None
    fewer = Entries(shape, tuple(coordinates), entries.values, pointers)
    return Workload(workload.op, workload.einsum, {name: fewer}, sizes), dense


def _widened(workload: Workload, absolute: bool) -> Workload:
    sparse = {name: replace(e, values=_wide(e.values, absolute)) for name, e in workload.sparse.items()}
    return replace(workload, sparse=sparse)


def _wide(array: np.ndarray, absolute: bool) -> np.ndarray:
    """``array`` or its absolute values in float64, in one pass over memory."""
    wide: np.ndarray = (np.abs if absolute else np.positive)(array, dtype=np.float64)
    return wide


def stored_per_row(workload: Workload, shape: Contraction) -> np.ndarray:
    """Number of entries that meet in each output row; shaped by the output's stored indices."""
    extents = tuple(workload.sizes[index] for index in shape.rows)
    if shape.rows == shape.sparse[:1] and workload.entries.pointers is not None:
        return np.diff(workload.entries.pointers)
    coordinates = dict(zip(shape.sparse, workload.entries.coordinates, strict=True))
    flat = np.zeros(workload.entries.nnz, np.int64)
    for index, extent in zip(shape.rows, extents, strict=True):
        flat = flat * extent + coordinates[index]
    return np.bincount(flat, minlength=int(np.prod(extents, dtype=np.int64))).reshape(extents)


def restricted(
    workload: Workload, operands: Sequence[np.ndarray], index: str, chosen: np.ndarray
) -> tuple[Workload, list[np.ndarray]]:
    """Keep only coordinates ``chosen`` (ascending) of output index ``index``, renumbered from 0.

    The outputs of the result are exactly ``workload``'s outputs there.
    """
    if index not in workload.assignment.output.indices:
        raise InputError(f"{index!r} is no index of the output {workload.assignment.output}")
    sparse: dict[str, Entries] = {}
    for name, entries in workload.sparse.items():
        indices = workload.assignment.access(name).indices
        if index in indices:
            keeps_numbers = name in workload.assignment.counted
            entries = _restricted_entries(entries, indices.index(index), chosen, keeps_numbers)
        sparse[name] = entries
    dense = []
    for name, operand in zip(workload.dense, operands, strict=True):
        indices = workload.assignment.access(name).indices
        dense.append(operand.take(chosen, axis=indices.index(index)) if index in indices else operand)
    sizes = {**workload.sizes, index: len(chosen)}
    return replace(workload, sparse=sparse, sizes=sizes), dense


def _restricted_entries(entries: Entries, mode: int, chosen: np.ndarray, keeps_numbers: bool) -> Entries:
    shape = (*entries.shape[:mode], len(chosen), *entries.shape[mode + 1 :])
    coordinate = entries.coordinates[mode]
    if mode == 0:  # sorted: each chosen coordinate is a run of entries
        wanted = chosen.astype(coordinate.dtype)  # or all coordinates would be converted
        first, last = (np.searchsorted(coordinate, wanted, side) for side in ("left", "right"))
        count = last - first
        place = np.repeat(np.arange(len(chosen)), count)
        kept = np.arange(len(place)) + np.repeat(first - (np.cumsum(count) - count), count)
    else:
        renumbered = np.full(entries.shape[mode], -1)
        renumbered[chosen] = np.arange(len(chosen))
        kept = np.flatnonzero(renumbered[coordinate] >= 0)
        place = renumbered[coordinate[kept]]
    coordinates = [array[kept] for array in entries.coordinates]
    coordinates[mode] = place.astype(coordinate.dtype)
    numbers = _numbers(entries, kept) if keeps_numbers else None
    return Entries(shape, tuple(coordinates), entries.values[kept], numbers=numbers)


def subset(
    workload: Workload, operands: Sequence[np.ndarray], chosen: np.ndarray
) -> tuple[Workload, list[np.ndarray], np.ndarray]:
    """Keep only the entries at positions ``chosen`` (ascending), numbered from 0.

    Returns:
        The workload, its dense operands, and which rows of ``workload``'s output are those of the result.
    """
    (name, entries), *others = workload.sparse.items()
    if others:
        raise InputError(f"a subset of entries needs one sparse operand, got {len(others) + 1}")
    kept = Entries(entries.shape, tuple(c[chosen] for c in entries.coordinates), entries.values[chosen])
    numbers = _numbers(entries, chosen)
    renumbered = np.full(entries.nnz + 1, -1)  # the last one is that of -1, which is none
    renumbered[numbers] = np.arange(len(numbers))
    dense = []
    for other, operand in zip(workload.dense, operands, strict=True):
        indices = workload.assignment.access(other).indices
        rows = operand.take(numbers, axis=indices.index(name)) if name in indices else operand
        compared = workload.assignment.chosen.get(other) == name
        dense.append(renumbered[rows].astype(rows.dtype) if compared else rows)
    return replace(workload, sparse={name: kept}), dense, numbers


def _numbers(entries: Entries, kept: np.ndarray) -> np.ndarray:
    """Numbers of the entries at these positions."""
    return (
        kept.astype(coordinate_dtype((entries.nnz, 1))) if entries.numbers is None else entries.numbers[kept]
    )


def _sampled_sums(
    workload: Workload, operands: list[np.ndarray], shape: Contraction, weights: np.ndarray, absolute: bool
) -> np.ndarray:
    """Weighted row sums of a sampled dense product: sum_k L[i,k] (W R)[i,k], a few columns k at a time."""
    assert shape.sampled is not None
    left, right = (factor.matrix(operands[factor.operand]) for factor in shape.sampled)
    entries = _weighted(workload.entries, weights, absolute)
    rows, inner = entries.shape
    einsum = Einsum.parse("C[i,k] += A[i,j] * R[j,k]")
    sums = np.zeros(rows)
    for start in range(0, left.shape[1], 64):
        block = _wide(right[:, start : start + 64], absolute)
        sizes = {"i": rows, "j": inner, "k": block.shape[1]}
        product = _run(Workload("einsum", einsum, {"A": entries}, sizes), [block])
        sums += np.einsum("ik,ik->i", _wide(left[:, start : start + 64], absolute), product)
    return sums


def _weighted(entries: Entries, weights: np.ndarray, absolute: bool) -> Entries:
    values = entries.values * weights
    return replace(entries, values=np.abs(values, out=values) if absolute else values)


def _projected(
    workload: Workload, operands: list[np.ndarray], shape: Contraction, weights: np.ndarray, absolute: bool
) -> tuple[Workload, list[np.ndarray]] | None:
    """The workload whose outputs are the weighted sums, with its operands, in float64."""
    names = [f"X{place}" for place in range(len(shape.factors))]
    indices = [factor.bound + factor.free for factor in shape.factors]
    arrays = [operands[factor.operand].transpose(factor.axes) for factor in shape.factors]
    if shape.keeps_pattern:
        entries, output = _weighted(workload.entries, weights, absolute), shape.sparse[:1]
    else:
        entries, output = _widened(workload, absolute).entries, shape.rows
        count = len(shape.columns)
        carriers = [p for p, factor in enumerate(shape.factors) if factor.free[:count] == shape.columns]
        if not count or not output or not carriers:
            return None
        place = carriers[0]
        factor = shape.factors[place]
        elsewhere = [i for p, other in enumerate(shape.factors) if p != place for i in other.free]
        weights = _wide(weights, absolute)
        if factor.bound and factor.free == shape.columns and not set(elsewhere) & set(shape.columns):
            sums = _weighted_sums(factor.matrix(operands[factor.operand]), weights, absolute)
            arrays[place] = sums.reshape([workload.sizes[index] for index in factor.bound])
            indices[place] = factor.bound
        else:
            extents = [workload.sizes[index] for index in shape.columns]
            weights = weights.reshape(extents + [1] * (len(factor.free) - count))
            arrays[place] = _wide(arrays[place], absolute) * weights
    sparse = next(iter(workload.sparse))
    expression: Expression = workload.assignment.access(sparse)
    for access in map(Access, names, indices):
        expression = Apply("mul", (expression, access))
    einsum = Einsum((Assignment(Access("C", output), "sum", expression),))
    return Workload("einsum", einsum, {sparse: entries}, workload.sizes), [
        _wide(array, absolute) for array in arrays
    ]


def _weighted_sums(matrix: np.ndarray, weights: np.ndarray, absolute: bool) -> np.ndarray:
    """``matrix @ weights`` in float64, a few rows at a time, so that a wide operand is not copied."""
    sums = np.empty(len(matrix))
    step = max(1, _BLOCK // max(1, matrix.shape[1]))
    for start in range(0, len(matrix), step):
        rows = slice(start, start + step)
        np.dot(_wide(matrix[rows], absolute), weights, out=sums[rows])
    return sums
