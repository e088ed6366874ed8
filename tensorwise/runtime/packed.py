"""Operands of a program packed into its formats, and everything else that its kernel is handed."""

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from tensorwise.errors import FormatError, InputError, MeasurementError, ScheduleError
from tensorwise.lower.plan import Plan
from tensorwise.lower.program import Program, element_type
from tensorwise.program.workload import Workload
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.fibertree import Tensor
from tensorwise.tensor.format import Format
from tensorwise.tensor.memory import available_bytes
from tensorwise.tensor.orders import permutation
from tensorwise.tensor.pack import pack, source_map
from tensorwise.tensor.partition import Part

ROW_COST = 1
"""A row costs about as much as this many entries, when parts are balanced."""
WORKSPACES = ("work", "carries")
"""Buffers of partial results that a kernel writes to: its calls share them and take turns."""
_SOURCES: Final[WeakKeyDictionary[Entries, dict[Format, np.ndarray]]] = WeakKeyDictionary()
_PLACES: Final[WeakKeyDictionary[Entries, np.ndarray]] = WeakKeyDictionary()


Kernels: TypeAlias = Sequence[Callable[[], int]]
"""The kernel of each part, its arguments laid out; it returns its flag."""


class PackedOperands:
    """Packed sparse operands of one workload in the formats of one program.

    Attributes:
        program: the program, or one part of a hybrid.
        tensors: operand -> packed tensor.
    """

    def __init__(
        self,
        program: Program,
        workload: Workload,
        threads: int,
        tensors: dict[str, Tensor] | None = None,
        part: Part | None = None,
        wide: bool | None = None,
    ) -> None:
        """Pack, unless ``tensors`` are packed already; ``part`` is what a hybrid's part stores of the operand.

        ``wide`` says whether numbers of entries take 64 bits (default: where there are 2**31 of them).

        Raises:
            FormatError: a format would store far more than the entries.
            ScheduleError: the program computes something else.
        """
        if program.assignment != workload.assignment:
            raise ScheduleError(
                f"the program computes {program.assignment}, the workload {workload.assignment}"
            )
        if tuple(program.formats) != tuple(workload.sparse):
            raise ScheduleError(
                f"the program has formats for ({', '.join(program.formats)}), the workload's sparse operands are "
                f"({', '.join(workload.sparse)}); give them in this order"
            )
        for index, size in program.schedule.bounds.items():
            if workload.sizes[index] != size:
                raise ScheduleError(
                    f"bound({index},{size}): index {index} of this workload extends to {workload.sizes[index]}"
                )
        self.program, self.workload, self.threads, self.part = program, workload, threads, part
        self._entries = {name: part.entries if part else e for name, e in workload.sparse.items()}
        self.tensors: dict[str, Tensor] = tensors or {
            name: pack(entries, program.formats[name], values=name in workload.valued)
            for name, entries in self._entries.items()
        }
        largest = max((entries.nnz for entries in workload.sparse.values()), default=0)
        self._number = np.dtype(np.int64 if (largest >= 2**31 if wide is None else wide) else np.int32)
        """dtype of source maps, and of the places of entries by their numbers."""
        for tensor in self.tensors.values():
            tensor.freeze()  # kernels, transposed operators and files would not learn of other values
        self.unreached = _unreached(workload)
        self._made: dict[str, np.ndarray] = {}
        self._levels = {
            f"{name}{place}": (name, place)
            for name, tensor in self.tensors.items()
            for place in range(len(tensor.counts))  # lowering makes the names unique
        }

    def plan(self, program: Program, masked: bool | None) -> Plan:
        """Return the plan of ``program`` (this one, or its masked form) for these operands."""
        return program.plan(
            self.workload.elem,
            tensors=self.tensors,
            masked=masked,
            sizes=self.workload.sizes,
            source_elem=f"i{8 * self._number.itemsize}",
            halves=self.workload.halves,
            renumbered=self.workload.renumbered if self.part is None else frozenset(self.tensors),
        )

    def array(self, name: str, elem: str | None = None) -> np.ndarray | None:
        """Return the array behind a kernel's buffer; None for dense operands and the output.

        Raises ScheduleError where the kernel reads other elements than ``elem``: it would read beyond the array.
        """
        array = self._array(name)
        if array is not None and elem not in (None, element_type(array.dtype)):
            raise ScheduleError(
                f"{self.program.name}: the kernel reads {name} as {elem}, but it is kept as {array.dtype}"
            )
        return array

    def _array(self, name: str) -> np.ndarray | None:
        if name in self._made:
            return self._made[name]
        operand, _, kind = name.rpartition("_")
        made: np.ndarray | None = None
        if name in WORKSPACES:
            length = workspace_length(name, self.program, self.workload, self.threads)
            needed, free = length * self.workload.dtype.itemsize, available_bytes()
            if needed > free:
                raise InputError(
                    f"{self.program.name}: partial results of {self.threads} threads take {needed / 2**30:,.1f} GiB, but "
                    f"{free / 2**30:,.1f} GiB of memory are free; share another loop, or reduce atomically"
                )
            made = np.empty(length, self.workload.dtype)
        elif name == "pieces":
            made = self._pieces[0].reshape(-1)
        elif name == "cut":
            made = self._pieces[1]
        elif name == "cuts":
            made = merge_path_parts(next(iter(self.tensors.values())), self._parts).reshape(-1)
        elif operand in self.tensors and kind == "values":
            made = self.tensors[operand].values
        elif operand in self.tensors and kind == "source":
            made = self.source(operand).astype(self._number, copy=False)
        elif operand in self.tensors and kind == "place":
            made = self._places(operand).astype(self._number, copy=False)
        elif kind == "visited":
            made = self._visited(operand)
        elif kind == "order":
            owner, _, mode = operand.rpartition("_")
            made = self.tensors[owner].permutations[mode]
        elif operand in self._levels:
            owner, level = self._levels[operand]
            # None: it is a dense operand, such as A1 beside a sparse A.
            made = self.tensors[owner].arrays[level].get(kind)
        if made is not None:
            self._made[name] = made
        return made

    def source(self, operand: str) -> np.ndarray:
        """Return the source map of ``operand``; that of a part names the entries as the whole operand does."""
        whole, format = self.workload.sparse[operand], self.program.formats[operand]
        if self.part is None:
            known = _SOURCES.setdefault(whole, {})  # programs of one operand share it
            if format not in known:
                known[format] = _renumber_source(source_map(whole, format), whole.numbers)
            return known[format]
        places = self.part.places
        return _renumber_source(
            source_map(self._entries[operand], format),
            places if whole.numbers is None else whole.numbers[places],
        )

    def _places(self, operand: str) -> np.ndarray:
        """Where the entries of ``operand`` stand, by their numbers."""
        whole = self.workload.sparse[operand]
        assert whole.numbers is not None
        known = _PLACES.get(whole)
        if known is None:
            known = _PLACES[whole] = np.empty_like(whole.numbers)
            known[whole.numbers] = np.arange(whole.nnz, dtype=known.dtype)
        return known

    def _visited(self, index: str) -> np.ndarray:
        """The coordinates of ``index`` in the order in which the schedule visits them, (extent,) int32."""
        name = next(name for name, format in self.program.formats.items() if index in format.modes)
        mode, order = self.program.formats[name].modes.index(index), self.program.schedule.visits[index]
        return permutation(self._entries[name], mode, order).astype(np.int32)

    def size(self, name: str) -> int:
        """Return the number behind a kernel's size."""
        kind, _, rest = name.partition("_")
        if name == "n_entries":
            return self.workload.entries.nnz
        if name == "parts":
            return self._parts
        if name == "n_pieces":
            return len(self._pieces[0])
        if name == "n_cut":
            return len(self._pieces[1])
        if kind == "N":
            return self.workload.sizes[rest]
        if kind == "s":
            return self.program.schedule.splits[rest]
        owner, level = self._levels[rest]
        return self.tensors[owner].counts[level]

    @property
    def bytes_held(self) -> int:
        """Bytes of all arrays handed out so far."""
        return sum(array.nbytes for array in self._made.values())

    def bounds(self) -> np.ndarray | None:
        """Return the part bounds of a balanced parallel loop."""
        parallel = self.program.schedule.parallel
        if parallel is None or parallel.policy != "balanced":
            return None
        return balanced_parts(next(iter(self.tensors.values())), self._parts)

    @cached_property
    def _pieces(self) -> tuple[np.ndarray, np.ndarray]:
        """Pieces of the outermost level's iterations, and those that are cut."""
        parallel = self.program.schedule.parallel
        assert parallel is not None
        return pieces_of(next(iter(self.tensors.values())), parallel.chunk)

    @property
    def _parts(self) -> int:
        """Number of parts that a parallel loop is cut into."""
        parallel = self.program.schedule.parallel
        assert parallel is not None
        return self.threads * parallel.chunk


def _renumber_source(source: np.ndarray, numbers: np.ndarray | None) -> np.ndarray:
    """Return a source map in which the entries have ``numbers``, instead of 0, 1, 2, ..."""
    if numbers is None:
        return source
    table = np.zeros(len(numbers) + 1, source.dtype)
    table[1:] = numbers + 1
    renamed: np.ndarray = table[source]
    return renamed


def workspace_length(name: str, program: Program, workload: Workload, threads: int) -> int:
    """Return how many partial results one of ``WORKSPACES`` holds, where a kernel has it.

    ``work`` is an output, or one a thread; ``carries`` are an outer iteration's output a part.
    """
    parallel = program.schedule.parallel
    if name == "carries":
        assert parallel is not None
        mode = next(iter(program.formats.values())).axes[0].mode
        extents = {**workload.sizes, mode: program.schedule.splits.get(mode, 1)}
        return threads * parallel.chunk * math.prod(extents[i] for i in program.assignment.output.indices)
    copies = threads if parallel and parallel.reduction == "private" else 1
    return copies * math.prod(workload.output_shape)


def packed_parts(program: Program, workload: Workload, threads: int) -> tuple[list[PackedOperands], float]:
    """Return the packed operands of each part of ``program``, and the seconds that all of it took.

    Raises what :class:`PackedOperands` raises.
    """
    start = time.perf_counter()
    parts: tuple[Part | None, ...] = (None,)
    if program.remainder is not None:
        parts = program.remainder.rule.divide(workload.entries)
    packed = [
        PackedOperands(one, workload, threads, None, part)
        for one, part in zip(program.parts, parts, strict=True)
    ]
    return packed, time.perf_counter() - start


def compute(
    parts: Sequence[PackedOperands],
    kernels: Kernels,
    masked: Callable[[Sequence[np.ndarray]], Kernels],
    held: Sequence[np.ndarray],
) -> None:
    """Run the parts' kernels on the dense operands and the output ``held``, for which they are laid out.

    A kernel that raises its flag got a NaN, and padding may have met an Inf. Only the kernels that ``masked``
    returns for ``held`` can tell, which raise none: they compute everything again.
    """
    first, out = parts[0], held[-1]
    if _flagged(first.program, kernels, out):
        _flagged(first.program, masked(held), out)
    if first.unreached is not None:  # no entry gives these a value, and 0 is not the reduction's identity
        out[first.unreached] = 0


def _flagged(program: Program, kernels: Kernels, out: np.ndarray) -> bool:
    """Run the kernels up to one that raises its flag; return whether one did."""
    if program.accumulate:
        out.fill(0)
    for kernel in kernels:
        flag = kernel()
        if flag:
            if flag != 1:
                raise MeasurementError(f"the kernel of {program.name} returned error {flag}")
            return True
    return False


def arranged(operand: np.ndarray, by_columns: bool) -> np.ndarray:
    """Return a dense ``operand`` contiguous in the layout that kernels expect, copied only if it is not."""
    flags = operand.flags
    if by_columns:
        return operand if flags.f_contiguous else np.asfortranarray(operand)
    return operand if flags.c_contiguous else np.ascontiguousarray(operand)


def _unreached(workload: Workload) -> Any:
    """Index of the outputs that no entry reaches where their value, 0, is not the identity; None: there are none."""
    if workload.assignment.monoid.name not in ("max", "min", "prod"):
        return None
    first = next(iter(workload.sparse))
    if workload.keeps_pattern and workload.assignment.fills(first):
        return None if workload.terms else ...
    coordinates: dict[str, np.ndarray] = {}
    for name, entries in workload.sparse.items():
        coordinates |= dict(zip(workload.assignment.access(name).indices, entries.coordinates, strict=True))
    extents = dict(workload.sizes)
    if workload.keeps_pattern:
        extents[first] = workload.entries.nnz
        numbers = workload.entries.numbers
        coordinates[first] = np.arange(workload.entries.nnz) if numbers is None else numbers
    output = workload.assignment.output.indices
    reached = np.zeros(tuple(extents[i] if i in coordinates else 1 for i in output), dtype=bool)
    if all(workload.sizes[i] for i in workload.assignment.reduced if i not in coordinates):
        reached[tuple(coordinates[i] if i in coordinates else np.zeros(1, np.int64) for i in output)] = bool(
            workload.entries.nnz
        )
    if reached.all():
        return None
    if reached.size == reached.shape[0] == workload.output_shape[0]:  # whole rows, as in most graphs
        return np.flatnonzero(~reached)
    return np.broadcast_to(~reached, workload.output_shape)


def balanced_parts(tensor: Tensor, parts: int) -> np.ndarray:
    """Return ``parts + 1`` int64 bounds that cut the outermost level into parts of equal cost.

    The cost of a range is its number of stored values plus ``ROW_COST`` a row, so that empty rows count.
    """
    rows = np.arange(tensor.counts[0] + 1, dtype=np.int64)
    cost = _values_before(tensor, 0, rows) + ROW_COST * rows
    bounds = np.searchsorted(cost, np.linspace(0, int(cost[-1]), parts + 1), side="left").astype(np.int64)
    bounds[0], bounds[-1] = 0, len(rows) - 1
    return np.ascontiguousarray(np.maximum.accumulate(bounds))


def merge_path_parts(tensor: Tensor, parts: int) -> np.ndarray:
    """Return where parts of equal cost begin, and the last one ends: an int64 array of shape (parts + 1, 2).

    A cut is a number of rows started and a number of positions of the level below passed, so that a part may end in
    the middle of a row; costs are those of :func:`balanced_parts`. A part that starts a row with entries has its
    first one, and what it has of a row that started earlier comes before the rows that it starts.
    """
    level, arrays = tensor.format.levels[1], tensor.arrays[1]
    rows = np.arange(tensor.counts[0] + 1, dtype=np.int64)
    cost = _values_before(tensor, 0, rows) + ROW_COST * rows
    cuts = np.zeros((parts + 1, 2), np.int64)
    cuts[-1] = rows[-1], level.first(arrays, rows[-1])
    for number in range(1, parts):
        target = int(cost[-1]) * number // parts
        row = int(np.searchsorted(cost[:-1], target, side="left"))
        if not row:
            continue
        first, end = map(int, level.bounds(arrays, row - 1))
        wanted = target - ROW_COST * row
        at = bisect_left(range(first, end), wanted, key=lambda place: int(_values_before(tensor, 1, place)))
        cuts[number] = (row - 1, first) if at == 0 and first < end else (row, first + at)
    return cuts


def pieces_of(tensor: Tensor, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return pieces of at most ``most`` positions of the level below the outermost one, and the iterations that are cut.

    A piece is a position of the outermost level, its first position of the level below, its end, and 1 if it is all of its
    iteration: an array of shape (pieces, 4), of that level's integers. The longest come first, by powers of two; of equally
    long ones neighbours have their middle at about the same coordinate, so that what they read is in a cache already.

    Raises FormatError where the integers are too narrow to number the iterations.
    """
    level = tensor.format.levels[1]
    assert level.pointer_array is not None
    assert level.coordinate_array is not None
    starts, coordinates = (tensor.arrays[1][kind] for kind in (level.pointer_array, level.coordinate_array))
    count = tensor.counts[0]
    if count > np.iinfo(starts.dtype).max:
        raise FormatError(f"{count} iterations are more than {starts.dtype} can number; cut no iterations")
    each = np.maximum(1, -(-np.diff(starts[: count + 1]) // most))
    row = np.repeat(np.arange(count, dtype=starts.dtype), each)
    place = np.arange(len(row), dtype=starts.dtype) - np.repeat(np.cumsum(each) - each, each).astype(
        starts.dtype
    )
    begin = starts[row] + place * most
    end = np.minimum(begin + most, starts[row + 1])
    middle = np.zeros(len(row), np.int64)
    stored = end > begin
    middle[stored] = coordinates[(begin + (end - begin) // 2)[stored]]
    doublings = np.frexp(np.maximum(end - begin - 0.5, 0.25))[1]
    listed = np.stack([row, begin, end, each[row] == 1], axis=1)[np.lexsort((middle, -doublings))]
    return np.ascontiguousarray(listed.astype(starts.dtype)), np.flatnonzero(each > 1).astype(starts.dtype)


def _values_before(tensor: Tensor, level: int, positions: Any) -> Any:
    """Return how many values are stored before these positions of a level, int64."""
    extents = tensor.format.extents(tensor.shape)
    below = zip(tensor.format.levels, tensor.arrays, extents, strict=True)
    for number, (deeper, arrays, extent) in enumerate(below):
        if number > level and not deeper.single:
            positions = (
                positions * extent if deeper.full else deeper.first(arrays, positions).astype(np.int64)
            )
    return positions
