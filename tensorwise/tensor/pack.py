"""Packing: stored entries into the levels of a format, and back.

Three steps, each a few compiled passes over the entries. *Order*: all levels above the last non-full one are built from
entries that ascend by their coordinates. Often they do; otherwise they are radix-sorted by the axes that are out of order.
*Levels*: from the root down, each builds its arrays and turns the entries' positions in the level above into positions in
its own. *Values* are written to their positions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tensorwise.errors import FormatError, InputError
from tensorwise.tensor import primitives
from tensorwise.tensor.canonical import matrix_pointers
from tensorwise.tensor.checks import as_array, checked_integers, checked_values, coordinate_dtype
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.fibertree import Tensor
from tensorwise.tensor.format import Format, row_major
from tensorwise.tensor.levels import Compressed, Dense
from tensorwise.tensor.levels.check import check_built
from tensorwise.tensor.levels.level import PackingState
from tensorwise.tensor.orders import permutation
from tensorwise.tensor.primitives import EntryPositions, Term
from tensorwise.tensor.remap import Axis, diagonal, join, off_diagonal

MOST_FILL = 20
"""A format may store this many positions an entry (WACO refuses the same), or ``SMALL`` in all."""
SMALL = 4096
MOST_EMPTY_POINTERS = 2**28
"""Pointers may outnumber the entries further, up to twice the longest mode: dense operands and results are
that long anyway. Beyond this number, which is gigabytes, they may not."""


@dataclass(frozen=True, eq=False)
class _Structure:
    """A packed tensor without values.

    Attributes:
        order: which entry comes e-th; None: they stay as they are.
        in_order: the e-th entry stands at position e, so that values need not be scattered.
        permutations: mode -> the coordinate stored at each place, for modes in an order of their own.
    """

    arrays: tuple[dict[str, np.ndarray], ...]
    counts: tuple[int, ...]
    places: EntryPositions
    order: Term | None
    in_order: bool
    permutations: Mapping[str, np.ndarray] = field(default_factory=dict)


def pack(entries: Entries, format: Format, values: bool = True) -> Tensor:
    """Return ``entries`` stored in ``format``; mode m of the entries is ``format.modes[m]``.

    Without ``values`` only the pattern is stored: all values are one zero, which takes no memory.

    Raises FormatError, before allocating, where the values or the pointers of a level would
    outnumber the entries more than ``MOST_FILL`` times.
    """
    structure = _structure(entries, format)
    if values:
        placed = _placed(entries, format, structure, entries.values, entries.dtype)
    else:
        placed = np.broadcast_to(np.zeros((), entries.dtype), structure.counts[-1])
    return Tensor(format, entries.shape, structure.arrays, structure.counts, placed, structure.permutations)


def source_map(entries: Entries, format: Format) -> np.ndarray:
    """Return for each value position of the packed tensor 1 + the index of its entry; 0 is padding.

    (positions,), int32 where it fits, otherwise int64. Raises what ``pack`` raises.
    """
    structure = _structure(entries, format)
    return _placed(entries, format, structure, None, np.dtype(primitives.index_dtype(entries.nnz)))


def refill(tensor: Tensor, source: np.ndarray, values: np.ndarray) -> None:
    """Overwrite the values of ``tensor`` in place with ``values`` (nnz,), given in the order of the entries.

    ``source`` is the tensor's ``source_map``. Values are rounded to the tensor's dtype; what ``entries_from`` refuses is
    refused (complex numbers, integers that would be rounded).

    Raises:
        InputError: the lengths do not fit; or the tensor belongs to an operator or a bound kernel, which is never
            changed: its transpose, what it has stored for other operands, and files would keep the old values. Bind a
            kernel, or load the operator, with the new values instead.
    """
    if not tensor.values.flags.writeable:
        raise InputError(
            "refill: the tensor belongs to a bound kernel or an operator, whose values are fixed; make another one with "
            "the new values: compile or bind again, or load a saved operator with load(path, matrix)"
        )
    source, values = checked_integers(source, "refill: source map"), as_array(values, "refill: values")
    if source.dtype not in (np.int32, np.int64) or not source.dtype.isnative:
        source = source.astype(np.int64)
    if source.shape != tensor.values.shape:
        raise InputError(
            f"refill: the source map has the shape {source.shape}, the tensor {len(tensor.values)} values; "
            "use the source map that belongs to this tensor"
        )
    largest = int(source.max(initial=0))
    if values.shape != (largest,) or int(source.min(initial=0)) < 0:
        raise InputError(f"refill: expected values of shape ({largest},), one an entry, got {values.shape}")
    fresh = checked_values(values, tensor.values.dtype, "refill", copy=False)
    primitives.refill(tensor.values, np.ascontiguousarray(source), fresh)


def unpack(tensor: Tensor, source: np.ndarray | None = None) -> Entries:
    """Return the entries that ``tensor`` stores; the inverse of ``pack``.

    Padding cannot be told from entries that are zero: padded formats need the ``source_map``.
    """
    if source is None and tensor.format.padded:
        raise FormatError(
            f"{tensor.format} is padded; unpack needs the source map to tell entries from padding"
        )
    positions = np.arange(len(tensor.values)) if source is None else np.flatnonzero(source)
    if source is not None:
        by_entry = np.empty_like(positions)
        by_entry[source[positions] - 1] = positions
        positions = by_entry
    stored, parents = {}, positions
    for level, arrays, extent in reversed(list(zip(tensor.format.levels, tensor.arrays, tensor.extents))):
        parents, stored[level.axis] = level.ascend(arrays, parents, extent)
    coordinates = [_coordinate(tensor, stored, mode) for mode in tensor.format.modes]
    if source is None:
        order = np.lexsort(coordinates[::-1])
        positions, coordinates = positions[order], [array[order] for array in coordinates]
    index = coordinate_dtype(tensor.shape)
    rows, *others = (array.astype(index) for array in coordinates)
    return Entries(
        tensor.shape, (rows, *others), tensor.values[positions], matrix_pointers(tensor.shape, rows)
    )


def _coordinate(tensor: Tensor, stored: Mapping[Axis, np.ndarray], mode: str) -> np.ndarray:
    """Return the coordinates of ``mode`` from those of its axes."""
    sizes = dict(zip(tensor.format.modes, tensor.shape))
    if mode in tensor.format.splits:
        outer, inner = stored[Axis(mode, "outer")], stored[Axis(mode, "inner")]
        places = join(outer, inner, tensor.format.splits[mode])
    elif Axis(mode) in stored:
        places = stored[Axis(mode)]
    else:
        (axis,) = (axis for axis in stored if axis.mode == mode)
        along = _coordinate(tensor, stored, axis.along)
        places = off_diagonal(stored[axis], along, sizes[axis.along])
    found: np.ndarray = tensor.permutations[mode][places] if mode in tensor.permutations else places
    return found


def _placed(
    entries: Entries, format: Format, structure: _Structure, values: np.ndarray | None, dtype: np.dtype
) -> np.ndarray:
    """Return ``values``, or without them 1, 2, 3, ..., at the positions of the last level."""
    order = structure.order
    if not structure.in_order:
        return primitives.scatter(entries.nnz, structure.places, order or Term.index(), values, dtype)
    if order is None and values is not None:
        return values.copy()
    return primitives.gather(entries.nnz, order or Term.index(), values, dtype)


def _structure(entries: Entries, format: Format) -> _Structure:
    extents = format.extents(entries.shape)
    for level, extent in zip(format.levels, extents):
        if level.largest_extent is not None and extent > level.largest_extent:
            raise FormatError(
                f"{format}: {level.axis.name} has {extent} coordinates in a tensor of shape {entries.shape}; a level "
                f"{level.letter} keeps at most {level.largest_extent}"
            )
    shared = _shared(entries, format)
    if shared is not None:
        return shared
    permutations = {
        mode: np.ascontiguousarray(
            permutation(entries, place, format.orders[mode]), primitives.index_dtype(entries.shape[place])
        )
        for place, mode in enumerate(format.modes)
        if mode in format.orders
    }
    axes, reach = format.axes, _reach(entries, format)
    # Below the last level that wants its entries in order, positions follow for entries in any order.
    bottom = max((depth for depth, level in enumerate(format.levels) if level.sorts), default=-1)
    incoming = [
        Axis(axis.mode, "permuted") if axis.mode in permutations else axis
        for axis in row_major(format.modes, set(format.splits))
        if reach.get(axis, entries.shape[format.modes.index(axis.mode)]) > 1
    ]
    above = [axis for axis in axes[: max(bottom, 0)] if reach[axis] > 1]
    wanted = [axis for axis in axes[: bottom + 1] if reach[axis] > 1]
    parts = [axis for axis in axes if reach[axis] > 1 and axis.part in ("whole", "outer", "inner")]
    to_sort, to_group = _out_of_order(wanted, incoming, parts), _out_of_order(above, incoming, parts)
    # Working memory for every coordinate of the level, and more than the entries take, is not worth it.
    grouped = (
        to_group < to_sort
        and format.levels[bottom].groups
        and extents[bottom] < min(max(4 * entries.nnz, 2**16), 2**31)
    )
    key = wanted[: to_group if grouped else to_sort]
    made = _terms(entries, format, permutations)
    terms, order = _sorted_terms(entries, format, made, key, reach) if key else (made, None)

    def reserve(elements: int, what: str) -> None:
        empty = min(2 * max(entries.shape), MOST_EMPTY_POINTERS)
        _refuse(entries, format, elements, what, max(MOST_FILL * entries.nnz, SMALL, empty))

    built: list[dict[str, np.ndarray]] = []
    counts: list[int] = []
    places = EntryPositions()
    for depth, level in enumerate(format.levels):
        in_order = not (grouped and depth == bottom)
        last = depth == len(axes) - 1
        stage = PackingState(entries.nnz, places, terms[level.axis], extents[depth], in_order, last, reserve)
        arrays, places = level.build(stage)
        check_built(level, stage, arrays, places)
        built.append(arrays)
        counts.append(places.count)
    _refuse(entries, format, counts[-1], "values", max(MOST_FILL * entries.nnz, SMALL))
    in_order = not format.padded and not grouped
    return _Structure(tuple(built), tuple(counts), places, order, in_order, permutations)


def _shared(entries: Entries, format: Format) -> _Structure | None:
    """Return CSR, which the entries are already, without copying; None where it does not apply."""
    pointers, crd = entries.pointers, entries.coordinates[-1]
    rows_first = tuple(kind(Axis(mode)) for kind, mode in zip((Dense, Compressed), format.modes))
    if pointers is None or format.levels != rows_first or format.orders:
        return None
    if crd.dtype != primitives.index_dtype(entries.shape[1]):
        return None
    return _Structure(
        ({}, {"pos": pointers, "crd": crd}), (entries.shape[0], entries.nnz), EntryPositions(), None, True
    )


def _refuse(entries: Entries, format: Format, elements: int, what: str, most: int) -> None:
    if elements > most:
        full = ", ".join(str(level) for level in format.levels if level.full)
        raise FormatError(
            f"{format} would keep {elements} {what} for {entries.nnz} entries of shape {entries.shape}, "
            f"{elements // max(entries.nnz, 1)} times as many where {MOST_FILL} times is allowed; "
            f"compress one of {full}, or choose smaller splits"
        )


def _reach(entries: Entries, format: Format) -> dict[Axis, int]:
    """Return below which number the coordinates of each axis stay; an inner part may be cut short."""
    sizes = dict(zip(format.modes, entries.shape))
    return {
        axis: extent if axis.part == "diagonal" else min(extent, sizes[axis.mode])
        for axis, extent in zip(format.axes, format.extents(entries.shape))
    }


def _out_of_order(wanted: Sequence[Axis], incoming: Sequence[Axis], parts: Sequence[Axis] = ()) -> int:
    """Return by how many of the ``wanted`` axes to sort stably until the entries ascend by all of them.

    Entries come lexicographically by ``incoming``. Once they are sorted by some axes, those that remain
    are lexicographic in the incoming order with the sorted ones left out. A mode that came in another
    permutation, ``Axis(mode, "permuted")``, is left out once all its ``parts`` are sorted.

    >>> i1, i0, k = Axis("i", "outer"), Axis("i", "inner"), Axis("k")
    >>> _out_of_order([i1, i0], [i1, i0, k]), _out_of_order([k, i1], [i1, i0, k])
    (0, 1)
    >>> _out_of_order([i1, k], [i1, i0, k])
    2
    >>> _out_of_order([i1, i0, k], [Axis("i", "permuted"), k], [i1, i0, k])
    2
    """
    for count in range(len(wanted)):
        unknown = {axis.mode for axis in parts if axis not in wanted[:count]}
        left = [
            axis
            for axis in incoming
            if (axis.mode in unknown if axis.part == "permuted" else axis not in wanted[:count])
        ]
        if left[: len(wanted) - count] == list(wanted[count:]):
            return count
    return len(wanted)


def _terms(entries: Entries, format: Format, permutations: Mapping[str, np.ndarray]) -> dict[Axis, Term]:
    """Return the coordinate of the entries on each axis."""
    arrays = dict(zip(format.modes, map(np.ascontiguousarray, entries.coordinates)))
    for mode, stored in permutations.items():
        places = np.empty_like(stored)
        places[stored] = np.arange(len(stored), dtype=stored.dtype)
        arrays[mode] = places[arrays[mode]]
    sizes = dict(zip(format.modes, entries.shape))
    terms = {}
    for axis in format.axes:
        array = arrays[axis.mode]
        if axis.part == "whole":
            terms[axis] = Term(array)
        elif axis.part == "outer":
            terms[axis] = Term.quotient(array, format.splits[axis.mode])
        elif axis.part == "inner":
            terms[axis] = Term.remainder(array, format.splits[axis.mode])
        elif axis.part == "slot":
            (other,) = (mode for mode in format.modes if mode != axis.mode)
            terms[axis] = Term(primitives.rank(entries.nnz, Term(arrays[other]), sizes[other]))
        else:
            number = diagonal(array.astype(np.int64), arrays[axis.along], sizes[axis.along])
            terms[axis] = Term(number)
    return terms


def _sorted_terms(
    entries: Entries,
    format: Format,
    terms: Mapping[Axis, Term],
    key: Sequence[Axis],
    reach: Mapping[Axis, int],
) -> tuple[dict[Axis, Term], Term]:
    """Sort the entries by ``key``; return their coordinates in that order, and the order.

    The coordinates of all axes travel as bit fields of 64-bit words, the key's in the highest bits of
    the first words. The number of the entry goes into the lowest bits where one word has room for all.
    """
    widths = {axis: (max(reach[axis], 1) - 1).bit_length() for axis in format.axes}
    number = max(entries.nnz - 1, 0).bit_length()
    words: list[list[tuple[Axis, int]]] = []
    room = 0
    for axis in (*key, *(axis for axis in format.axes if axis not in key)):
        if not words or widths[axis] > room:
            words.append([])
            room = 64
        room -= widths[axis]
        words[-1].append((axis, room % 64))

    def evaluated(word: list[tuple[Axis, int]], *more: Term) -> np.ndarray:
        fields = [replace(terms[axis], stride=1 << shift) for axis, shift in word]
        return primitives.evaluate(entries.nnz, [*fields, *more])

    if len(words) == 1 and number <= room:
        low = min(shift for axis, shift in words[0] if axis in key)
        sources = [primitives.sort(evaluated(words[0], Term.index()), low, 64)]
        order = Term.bits(sources[0], 0, number)
    else:
        found: np.ndarray | None = None
        keys = np.empty(0, np.uint64)
        for word in reversed(words):
            shifts = [shift for axis, shift in word if axis in key]
            if shifts:
                keys = evaluated(word)
                if found is not None:
                    keys = primitives.gather(entries.nnz, Term(found), keys, keys.dtype)
                keys, found = primitives.sort_with_order(keys, found, min(shifts), 64)
        order = Term(found)
        rest = [primitives.gather(entries.nnz, order, evaluated(word), keys.dtype) for word in words[1:]]
        sources = [keys, *rest]
    in_order = {
        axis: Term.bits(source, shift, widths[axis])
        for source, word in zip(sources, words)
        for axis, shift in word
    }
    return in_order, order
