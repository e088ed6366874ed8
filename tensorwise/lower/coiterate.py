"""The interpreter of several sparse operands and sparse results: loops that walk the operands' fibers together.

A loop over an index moves along all operands that store it. Where the term vanishes without them it visits their coordinates
only: those that all have, of a product, and those that any has, of a sum (`term_without` says which operands may be
absent). Otherwise it visits every coordinate. Loops run in an order that all formats allow. Results that loops give out of
the order of their format are added up in a workspace first, such as a row of a product of two sparse matrices (Gustavson).

It is slow, and the reference for code that does the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np

from tensorwise.errors import FormatError, InputError
from tensorwise.program.einsum import Access, Assignment, Constant, Expression
from tensorwise.program.merge import term_without
from tensorwise.program.ops import COMBINE
from tensorwise.tensor.assemble import Assembly, check_assembled
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.fibertree import Tensor
from tensorwise.tensor.format import Format
from tensorwise.tensor.levels.cursor import FiberCursor
from tensorwise.tensor.pack import pack, source_map

Positions = Mapping[str, tuple[int, ...]]
"""Operand -> its positions in the last level that was walked; an operand that is absent has none."""


@final
@dataclass(frozen=True, eq=False)
class StoredOperand:
    """A sparse operand in its format.

    Attributes:
        tensor: the packed entries; modes are called as the einsum's indices.
        source: value position -> 1 + number of the entry, 0 for padding: this tells explicit zeros from padding.
    """

    tensor: Tensor
    source: np.ndarray

    @classmethod
    def of(cls, entries: Entries, format: Format) -> "StoredOperand":
        """Pack ``entries``; raise FormatError unless the format's axes are whole modes in their own order."""
        strange = [level.axis.name for level in format.levels if level.axis.part != "whole"]
        if strange or format.orders:
            raise FormatError(
                f"{format}: operands are walked together in formats whose axes are whole modes in their own order, got "
                f"{', '.join([*strange, *(f'the order {order}' for order in format.orders.values())])}"
            )
        return cls(pack(entries, format), source_map(entries, format))


def coiterate(
    assignment: Assignment,
    stored: Mapping[str, StoredOperand],
    dense: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    output: Format | None = None,
) -> Tensor | np.ndarray:
    """Compute ``assignment`` and return its result in the format ``output``, or as a dense array.

    A result has an entry where any term has one: where the terms do not vanish for lack of entries. Sums are computed in
    float64 and rounded once.

    Args:
        stored: sparse operands by name.
        dense: the others, shaped by their indices.
        sizes: extent of every index.
        output: with the indices of the result as modes.

    Raises:
        InputError: a reduction other than a sum, or terms where no operand has an entry.
        FormatError: formats that no order of loops fits, or a result that cannot be assembled in ``output``.
    """
    check_merged(assignment, tuple(stored))
    wide = any(one.tensor.values.dtype == np.float64 for one in stored.values())
    wide |= any(array.dtype == np.float64 for array in dense.values())
    dtype = np.dtype(np.float64 if wide else np.float32)
    shape = tuple(sizes[index] for index in assignment.output.indices)
    if output is None:
        array = np.zeros(shape, dtype)
        for coordinates, value in _Loops(assignment, stored, dense, sizes, assignment.output.indices).run():
            array[coordinates] = value
        return array
    check_assembled(output)
    axes = tuple(level.axis.mode for level in output.levels)
    num_sorted = next((depth for depth, level in enumerate(output.levels) if level.single), len(axes))
    loops = _Loops(assignment, stored, dense, sizes, axes, num_sorted, output.modes)
    assembly = Assembly(output, shape, dtype)
    for coordinates, value in loops.run():
        assembly.append(coordinates, value)
    return assembly.finish()


def check_merged(assignment: Assignment, sparse: Sequence[str]) -> None:
    """Raise InputError unless the entries of ``sparse`` operands decide where the terms of ``assignment`` are."""
    if assignment.monoid.name != "sum":
        raise InputError(
            f"'{assignment}' reduces by {assignment.monoid.name}; operands are walked together for sums and for assignments "
            "that reduce nothing"
        )
    if assignment.numbered or assignment.chosen:
        name = next(iter(assignment.numbered or assignment.chosen))
        raise InputError(
            f"'{assignment}' uses the numbers of entries or coordinates ({name}), which operands that are walked together "
            "do not have; use tensorwise.compile with one sparse operand"
        )
    for access in assignment.accesses:
        if access != assignment.access(access.tensor):
            raise InputError(
                f"{access.tensor} is read as {assignment.access(access.tensor)} and as {access}; give it a second time "
                "under another name"
            )
    left = term_without(assignment, frozenset(sparse))
    if left is not None:
        raise InputError(
            f"'{assignment}' has the term {left} where none of its sparse operands ({', '.join(sparse)}) has an entry, so "
            "that its result is dense; multiply that term by a sparse operand, or add it with NumPy"
        )


@final
class _Loops:
    """The loops of one assignment.

    Args:
        axes: indices of the result, in the order in which it is stored.
        num_sorted: results ascend by so many of ``axes``, and then by ``modes``: so entries of coordinate lists are packed.
    """

    def __init__(
        self,
        assignment: Assignment,
        stored: Mapping[str, StoredOperand],
        dense: Mapping[str, np.ndarray],
        sizes: Mapping[str, int],
        axes: tuple[str, ...],
        num_sorted: int | None = None,
        modes: tuple[str, ...] = (),
    ) -> None:
        self.assignment, self.stored, self.dense, self.sizes = assignment, stored, dense, sizes
        self.axes, self.modes = axes, modes
        self.num_sorted = len(axes) if num_sorted is None else num_sorted
        self.order = order_loops(assignment, {name: one.tensor.format for name, one in stored.items()}, axes)
        shared = [place for place, (loop, axis) in enumerate(zip(self.order, axes)) if loop != axis]
        self.num_outer = min([*shared, self.num_sorted, len(axes)])
        """Leading loops that are also the leading axes of the result: below them there is a workspace."""
        self.term = lru_cache(maxsize=None)(lambda absent: term_without(assignment, absent))

    def run(self) -> Iterator[tuple[tuple[int, ...], float]]:
        """Yield (coordinates, value) of the result in the order in which it is stored; coordinates go by ``axes``."""
        root = {name: (0,) for name in self.stored}
        with np.errstate(all="ignore"):
            for at, positions in self.walk(self.order[: self.num_outer], {}, root):
                workspace: dict[tuple[int, ...], float] = {}
                for place, below in self.walk(self.order[self.num_outer :], at, positions):
                    value = self.evaluate(place, below)
                    if value is not None:
                        coordinates = tuple(place[axis] for axis in self.axes)
                        workspace[coordinates] = (
                            workspace[coordinates] + value if coordinates in workspace else value
                        )
                yield from sorted(workspace.items(), key=self._place)

    def _place(self, item: tuple[tuple[int, ...], float]) -> tuple[int, ...]:
        at = dict(zip(self.axes, item[0]))
        return (*item[0][: self.num_sorted], *(at[mode] for mode in self.modes))

    def walk(
        self, loops: Sequence[str], at: Mapping[str, int], positions: Positions
    ) -> Iterator[tuple[Mapping[str, int], Positions]]:
        """Yield the coordinates of all indices and the positions below them, of nested ``loops``."""
        if not loops:
            yield at, positions
            return
        index, *others = loops
        for coordinate, below in self.merge(index, positions):
            yield from self.walk(others, {**at, index: coordinate}, below)

    def merge(self, index: str, positions: Positions) -> Iterator[tuple[int, Positions]]:
        """Yield the coordinates of one loop with the positions of the operands that are present there."""
        cursors: dict[str, FiberCursor] = {}
        located: dict[str, int] = {}
        for name, parents in positions.items():
            tensor = self.stored[name].tensor
            modes = [level.axis.mode for level in tensor.format.levels]
            if index not in modes or _is_full(tensor.format):
                continue
            depth = modes.index(index)
            level, extent = tensor.format.levels[depth], tensor.extents[depth]
            if level.full:
                located[name] = depth
            else:
                cursors[name] = FiberCursor(level, tensor.arrays[depth], parents, extent)
        absent = frozenset(self.stored).difference(positions)
        if self.term(absent.union(cursors)) is None:
            coordinates = self._stored_coordinates(cursors, absent)
        else:
            coordinates = iter(range(self.sizes[index]))
        for coordinate in coordinates:
            here = {name: cursor for name, cursor in cursors.items() if cursor.coordinate == coordinate}
            gone = cursors.keys() - here.keys()
            below = {name: parents for name, parents in positions.items() if name not in gone}
            below |= {name: cursor.positions for name, cursor in here.items()}
            for name, depth in located.items():
                tensor = self.stored[name].tensor
                level, extent = tensor.format.levels[depth], tensor.extents[depth]
                below[name] = tuple(
                    int(level.locate(tensor.arrays[depth], parent, coordinate, extent))
                    for parent in positions[name]
                )
            if self.term(absent.union(gone)) is not None:
                yield coordinate, below
            for cursor in here.values():
                cursor.advance()

    def _stored_coordinates(
        self, cursors: Mapping[str, FiberCursor], absent: frozenset[str]
    ) -> Iterator[int]:
        """Yield the coordinates of all cursors, ascending, until so many cursors have ended that the term vanishes."""
        while True:
            ended = {name for name, cursor in cursors.items() if cursor.ended}
            if self.term(absent.union(ended)) is None:
                return
            yield min(cursor.coordinate for cursor in cursors.values() if not cursor.ended)

    def evaluate(self, at: Mapping[str, int], positions: Positions) -> float | None:
        """Return the term at a coordinate of all indices; None where it vanishes for lack of entries."""
        values: dict[str, float] = {}
        for name, (position, *_) in positions.items():
            tensor = self.stored[name].tensor
            if _is_full(tensor.format):
                for level, extent in zip(tensor.format.levels, tensor.extents):
                    position = int(level.locate({}, position, at[level.axis.mode], extent))
            if self.stored[name].source[position]:
                values[name] = float(tensor.values[position])
        term = self.term(frozenset(self.stored).difference(values))
        return None if term is None else float(self._value(term, at, values))

    def _value(self, term: Expression, at: Mapping[str, int], values: Mapping[str, float]) -> Any:
        match term:
            case Constant(value=value):
                return value
            case Access(tensor=name, indices=indices):
                if name in values:
                    return values[name]
                return float(self.dense[name][tuple(at[index] for index in indices)])
        arguments = [self._value(argument, at, values) for argument in term.arguments]  # type: ignore[union-attr]
        return COMBINE[term.operator].evaluate(*arguments)  # type: ignore[union-attr]


def _is_full(format: Format) -> bool:
    """Whether the place of every coordinate follows by arithmetic: such an operand is not walked, and fits any order."""
    return all(level.full for level in format.levels)


def order_loops(
    assignment: Assignment, formats: Mapping[str, Format], axes: Sequence[str]
) -> tuple[str, ...]:
    """Return the indices in an order in which all formats store them; those of the result come first where they can.

    Operands whose levels are all full can be read in any order. Raises FormatError where formats contradict each other.
    """
    needed = {
        name: [level.axis.mode for level in format.levels]
        for name, format in formats.items()
        if not _is_full(format)
    }
    waiting = list(dict.fromkeys((*axes, *assignment.indices)))
    order: list[str] = []
    while waiting:
        blocked = {
            later
            for modes in needed.values()
            for place, later in enumerate(modes)
            if set(modes[:place]) - set(order)
        }
        free = [index for index in waiting if index not in blocked]
        if not free:
            listed = "; ".join(f"{name}: {formats[name]}" for name in needed)
            raise FormatError(
                f"no order of loops fits the formats of '{assignment}' ({listed}): they store {', '.join(waiting)} in "
                "orders that contradict each other; give one of them another order of levels"
            )
        order.append(free[0])
        waiting.remove(free[0])
    return tuple(order)
