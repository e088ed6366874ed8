"""What a workload must give, computed fast enough to check every timed kernel.

Sums of products of one sparse operand run through SciPy's compiled product in float64 (twice: values
and magnitudes), about thirty times faster than :func:`tensorwise.program.reference.reference`;
anything else is left to that reference. Neither uses our lowering or code generator.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from tensorwise.device.libraries.contraction import Contraction, contraction
from tensorwise.device.libraries.scipy import ScipyKernel
from tensorwise.errors import InputError
from tensorwise.program.einsum import Access, Assignment, Call, Einsum, Expression
from tensorwise.program.reference import Reference, all_finite
from tensorwise.program.workload import Workload
from tensorwise.tensor.entries import Entries


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
    wide, doubles = _in_float64(workload, operands, kept)
    return _run(wide, doubles), _run(*_absolute(wide, doubles))


def projection(
    workload: Workload, operands: Sequence[np.ndarray], shape: Contraction, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Weigh the outputs of a row and add them up, before anything is multiplied.

    Args:
        weights: where the pattern is kept one weight an entry, else one for each combination of
            dense-only output indices.

    Returns:
        For each output row the expected weighted sum of its outputs, and the sum of the weighted
        magnitudes; None where no single factor can carry the weights.
    """
    kept = shape.sparse[:1] if shape.keeps_pattern else shape.rows
    wide = _in_float64(workload, operands, kept)
    size = _absolute(*wide)
    with np.errstate(all="ignore"):
        if shape.sampled is not None:
            return _sampled_sums(*wide, shape, weights), _sampled_sums(*size, shape, np.abs(weights))
        value = _projected(*wide, shape, weights)
        if value is None:
            return None
        magnitude = _projected(*size, shape, np.abs(weights))
        assert magnitude is not None
        return _run(*value), _run(*magnitude)


def _run(workload: Workload, operands: Sequence[np.ndarray]) -> np.ndarray:
    out = np.empty(workload.output_shape)
    with np.errstate(all="ignore"):
        ScipyKernel().bind(workload, 1).run(operands, out)
    return out


def _in_float64(
    workload: Workload, operands: Sequence[np.ndarray], kept: Collection[str]
) -> tuple[Workload, list[np.ndarray]]:
    """The workload in float64, without the parts of dense operands that no entry meets.

    Coordinates of stored indices that are not in ``kept`` are renumbered where that spares half and more:
    a wide matrix with few entries would take its time from memory that nobody looks at.
    """
    ((name, entries),) = workload.sparse.items()
    sizes, dense = dict(workload.sizes), list(operands)
    coordinates = list(entries.coordinates)
    for mode, index in enumerate(workload.assignment.access(name).indices):
        met = np.zeros(sizes[index], bool)
        met[coordinates[mode]] = True
        chosen = np.flatnonzero(met)
        if index in kept or 2 * len(chosen) > len(met):
            continue
        sizes[index] = len(chosen)
        coordinates[mode] = (np.cumsum(met) - 1)[coordinates[mode]].astype(coordinates[mode].dtype)
        for place, operand in enumerate(workload.dense):
            indices = workload.assignment.access(operand).indices
            if index in indices:
                dense[place] = dense[place].take(chosen, axis=indices.index(index))
    shape = tuple(sizes[index] for index in workload.assignment.access(name).indices)
    pointers = entries.pointers if shape[0] == entries.shape[0] else None
    fewer = Entries(shape, tuple(coordinates), entries.values, pointers).astype(np.float64)
    doubles = [np.asarray(operand, np.float64) for operand in dense]
    return Workload(workload.op, workload.einsum, {name: fewer}, sizes), doubles


def _absolute(wide: Workload, doubles: Sequence[np.ndarray]) -> tuple[Workload, list[np.ndarray]]:
    sparse = {name: entries.with_values(np.abs(entries.values)) for name, entries in wide.sparse.items()}
    return replace(wide, sparse=sparse), [np.abs(operand) for operand in doubles]


def stored_per_row(workload: Workload, shape: Contraction) -> np.ndarray:
    """Number of entries that meet in each output row; shaped by the output's stored indices."""
    extents = tuple(workload.sizes[index] for index in shape.rows)
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
        sparse[name] = (
            _restricted_entries(entries, indices.index(index), chosen) if index in indices else entries
        )
    dense = []
    for name, operand in zip(workload.dense, operands, strict=True):
        indices = workload.assignment.access(name).indices
        dense.append(operand.take(chosen, axis=indices.index(index)) if index in indices else operand)
    sizes = {**workload.sizes, index: len(chosen)}
    return replace(workload, sparse=sparse, sizes=sizes), dense


def _restricted_entries(entries: Entries, mode: int, chosen: np.ndarray) -> Entries:
    coordinate = entries.coordinates[mode]
    place = np.searchsorted(chosen, coordinate)
    keep = place < len(chosen)
    keep[keep] = chosen[place[keep]] == coordinate[keep]
    coordinates = list(array[keep] for array in entries.coordinates)
    coordinates[mode] = place[keep].astype(coordinate.dtype)
    shape = (*entries.shape[:mode], len(chosen), *entries.shape[mode + 1 :])
    return Entries(shape, tuple(coordinates), entries.values[keep])


def subset(workload: Workload, chosen: np.ndarray) -> Workload:
    """The workload with only the entries at positions ``chosen`` (ascending) stored."""
    (name, entries), *others = workload.sparse.items()
    if others:
        raise InputError(f"a subset of entries needs one sparse operand, got {len(others) + 1}")
    kept = Entries(entries.shape, tuple(c[chosen] for c in entries.coordinates), entries.values[chosen])
    return replace(workload, sparse={name: kept})


def _sampled_sums(
    workload: Workload, operands: list[np.ndarray], shape: Contraction, weights: np.ndarray
) -> np.ndarray:
    """Weighted row sums of a sampled dense product: sum_k L[i,k] (W R)[i,k], a few columns k at a time."""
    assert shape.sampled is not None
    left, right = (factor.matrix(operands[factor.operand]) for factor in shape.sampled)
    entries = workload.entries.with_values(workload.entries.values * weights)
    rows, inner = entries.shape
    einsum = Einsum.parse("C[i,k] += A[i,j] * R[j,k]")
    sums = np.zeros(rows)
    for start in range(0, left.shape[1], 64):
        block = np.ascontiguousarray(right[:, start : start + 64])
        sizes = {"i": rows, "j": inner, "k": block.shape[1]}
        product = _run(Workload("einsum", einsum, {"A": entries}, sizes), [block])
        sums += np.einsum("ik,ik->i", left[:, start : start + 64], product)
    return sums


def _projected(
    workload: Workload, operands: list[np.ndarray], shape: Contraction, weights: np.ndarray
) -> tuple[Workload, list[np.ndarray]] | None:
    """The workload whose outputs are the weighted sums, with its operands."""
    names = [f"X{place}" for place in range(len(shape.factors))]
    indices = [factor.bound + factor.free for factor in shape.factors]
    arrays = [operands[factor.operand].transpose(factor.axes) for factor in shape.factors]
    entries, output = workload.entries, shape.rows
    if shape.keeps_pattern:
        entries, output = entries.with_values(entries.values * weights), shape.sparse[:1]
    else:
        count = len(shape.columns)
        carriers = [p for p, factor in enumerate(shape.factors) if factor.free[:count] == shape.columns]
        if not count or not output or not carriers:
            return None
        place = carriers[0]
        factor = shape.factors[place]
        elsewhere = [i for p, other in enumerate(shape.factors) if p != place for i in other.free]
        weights = weights.reshape([workload.sizes[index] for index in shape.columns])
        if factor.bound and factor.free == shape.columns and not set(elsewhere) & set(shape.columns):
            arrays[place] = np.tensordot(arrays[place], weights, axes=count)
            indices[place] = factor.bound
        else:
            arrays[place] = arrays[place] * weights.reshape(weights.shape + (1,) * (len(factor.free) - count))
    sparse = next(iter(workload.sparse))
    expression: Expression = workload.assignment.access(sparse)
    for access in map(Access, names, indices):
        expression = Call("mul", (expression, access))
    assignment = Assignment(Access("C", output), "sum", expression)
    return Workload("einsum", Einsum((assignment,)), {sparse: entries}, workload.sizes), arrays
