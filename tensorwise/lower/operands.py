"""The operands of a kernel: its buffers and sizes, in the order of the call, and where elements lie in them."""

from collections.abc import Iterator, Mapping
from typing import Final

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir
from tensorwise.lower.ir import Buffer, Const, Expr, Type, Var
from tensorwise.lower.plan import Plan
from tensorwise.program.einsum import Access
from tensorwise.program.schedule import CONSTANT_SPLIT
from tensorwise.tensor.remap import Axis

CUTS: Final = Buffer("cuts", "i64")
"""Two numbers a part of a merge path and two at the end: rows started, and positions of the level
below passed, before it."""
NUM_PARTS: Final = Var("parts")
PIECE_COLUMNS: Final = 4
"""Numbers of a piece: a position of the outermost level, its first position of the level below and its end, and 1 if it is a
whole iteration."""
NUM_PIECES: Final = Var("n_pieces")
NUM_CUT: Final = Var("n_cut")
"""How many iterations are cut into pieces."""


def sizes_of(plan: Plan) -> tuple[dict[str, Expr], dict[str, Expr]]:
    """Return extents of indices and factors of splits: numbers where the plan fixes them, else sizes of the kernel."""
    bounds = plan.schedule.bounds
    extents: dict[str, Expr] = {
        index: Const(bounds[index]) if index in bounds else Var(f"N_{index}")
        for index in plan.assignment.indices
    }
    splits: dict[str, Expr] = {
        index: Const(size) if size <= CONSTANT_SPLIT else Var(f"s_{index}")
        for index, size in plan.schedule.splits.items()
    }
    return extents, splits


class Operands:
    """Buffers and sizes of the kernel of a plan.

    Attributes:
        arrays: sparse operand -> for each level, name of an array -> its buffer.
        permutations: mode that a format stores in an order of its own -> operand and the buffer with the order.
        values: operand -> buffer of its values.
        sources: sparse operand -> the source map: 1 + number of the entry at a position, or 0 for padding.
        places: sparse operand whose entries are found by number -> the position of each.
        visited: loop -> buffer with the order in which its coordinates are visited.
    """

    def __init__(self, plan: Plan) -> None:
        assignment = plan.assignment
        self.plan = plan
        self.elem = Type(plan.elem)
        self.index_elem = ir.integer_elem(plan.elem)
        self.extents, self.splits = sizes_of(plan)
        self._counts: dict[tuple[str, int], Var] = {}
        output_elem = plan.halves.get(assignment.output.tensor, plan.elem)
        self.output = Buffer("out", self.index_elem if assignment.argument else output_elem, writable=True)
        self.arrays = {
            name: [
                {
                    array: Buffer(f"{name}{place}_{array}", width)
                    for array, width in zip(level.arrays, widths, strict=False)
                }
                for place, (level, widths) in enumerate(zip(format.levels, plan.widths[name], strict=False))
            ]
            for name, format in plan.formats.items()
        }
        self.permutations = {
            mode: (name, Buffer(f"{name}_{mode}_order", plan.widths[name][-1][0]))
            for name, format in plan.formats.items()
            for mode in format.orders
        }
        self.visited = {loop: Buffer(f"{loop}_visited", "i32") for loop in plan.schedule.visits}
        read = dict.fromkeys(access.tensor for access in assignment.accesses)
        elems = {**plan.halves, **dict.fromkeys(assignment.chosen, self.index_elem)}
        self.values = {name: Buffer(f"{name}_values", elems.get(name, plan.elem)) for name in read}
        self.sources = {
            name: Buffer(f"{name}_source", plan.source_elem)
            for name in plan.formats
            if plan.uses_source(name)
        }
        located = plan.schedule.located
        self.places = (
            {located: Buffer(f"{located}_place", plan.source_elem)}
            if located is not None and assignment.selector is not None and located in plan.renumbered
            else {}
        )

    def names(self) -> Iterator[str]:
        """Yield the names of buffers and sizes, which no variable may have."""
        yield from (buffer.name for buffer in self._listed())
        yield from (f"n_{level}" for level in self._levels())
        for sizes in (self.extents, self.splits):
            yield from (size.name for size in sizes.values() if isinstance(size, Var))

    def _levels(self) -> list[str]:
        return [f"{name}{k}" for name, f in self.plan.formats.items() for k in range(len(f.levels))]

    def _listed(self) -> Iterator[Buffer]:
        yield self.output
        for name in self.plan.assignment.operands:
            for arrays in self.arrays.get(name, ()):
                yield from arrays.values()
            yield from (buffer for owner, buffer in self.permutations.values() if owner == name)
            yield from (table[name] for table in (self.values, self.sources, self.places) if name in table)
        yield from self.visited.values()

    def buffers(self) -> tuple[Buffer, ...]:
        """Return the buffers in the order of the call.

        Raises ScheduleError where two of them would have the same name.
        """
        listed, levels = tuple(self._listed()), self._levels()
        if len({buffer.name for buffer in listed}) < len(listed) or len(set(levels)) < len(levels):
            raise ScheduleError(
                f"the operands {', '.join(self.plan.assignment.operands)} give two arrays of a kernel the same name; "
                "call one of them differently"
            )
        return listed

    def sizes(self) -> tuple[Var, ...]:
        """Return the sizes in the order of the call: extents, run-time splits, numbers of positions that are used."""
        given = (*self.extents.values(), *self.splits.values(), *self._counts.values())
        return tuple(size for size in given if isinstance(size, Var))

    def num_positions(self, operand: str, level: int) -> Var:
        """Return the size that holds the number of positions of a level."""
        return self._counts.setdefault((operand, level), Var(f"n_{operand}{level}"))

    def num_entries(self) -> Var:
        """Return the size that holds the number of entries of the first sparse operand."""
        return self._counts.setdefault(("", 0), Var("n_entries"))

    def output_size(self) -> Expr:
        """Return the number of output elements."""
        first, *others = indices = self.plan.assignment.output.indices
        size: Expr = Const(1)
        if self.plan.keep_pattern:
            indices = tuple(others) if first in self.plan.formats else ()
            size = self.num_entries()
        for index in indices:
            size = size * self.extents[index]
        return size

    def split(self, index: str) -> Expr:
        """Return the inner extent of a split index."""
        return self.splits.get(index, Const(1))

    def extent(self, axis: Axis) -> Expr:
        """Return the number of coordinates of an axis."""
        along = self.extents.get(axis.along, Const(1))
        return axis.extent(self.extents[axis.mode], self.split(axis.mode), along)  # type: ignore[no-any-return]

    def index_of(
        self, access: Access, coordinates: Mapping[str, Expr], extents: Mapping[str, Expr] | None = None
    ) -> Expr:
        """Return the linear index in a dense tensor, row-major unless it is column-major."""
        indices, extents = access.indices, extents or self.extents
        if access.tensor in self.plan.column_major:
            indices = indices[::-1]
        first, *others = indices
        position = coordinates[first]
        for index in others:
            position = position * extents[index] + coordinates[index]
        return position

    def value_at(self, name: str, position: Expr) -> Expr:
        """Return the value of a sparse operand at a position; any where only its pattern is read."""
        return self.values[name][position] if name in self.values else Const(1.0, self.elem)

    def entry_at(self, name: str, position: Expr) -> Expr:
        """Return the number of the entry at a position of a sparse operand."""
        return self.sources[name][position] - 1 if name in self.sources else position
