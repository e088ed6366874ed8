"""What the arrays of a program hold: facts that packing establishes, and from which the bounds of a kernel are proved.

::

    A: (i,k) -> U(i) C(k)     A1_pos     N_i + 1 elements, 0 .. n_A1, ascending from 0
                              A1_crd     n_A1 elements, 0 .. N_k - 1
                              A_values   n_A1 elements
    C[i,j] += A[i,k]*B[k,j]   B_values   N_k * N_j elements;  out  N_i * N_j elements

Operands, those of a file too, are packed by us from entries whose coordinates were compared with the shape
(`tensorwise/tensor/canonical.py`), and the shapes of dense operands and outputs are compared in a call.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Final

from tensorwise.errors import UnprovenError
from tensorwise.lower import ir
from tensorwise.lower.bounds import Array, Facts, Idiom, prove_bounds
from tensorwise.lower.ir import Buffer, Const, Expr, Load, Op, Var
from tensorwise.lower.operands import CUTS, NUM_CUT, NUM_PARTS, NUM_PIECES, PIECE_COLUMNS, sizes_of
from tensorwise.lower.plan import Plan
from tensorwise.program.einsum import Access
from tensorwise.program.legality import LoopPass
from tensorwise.tensor.levels import Level
from tensorwise.tensor.levels.level import ArrayFacts
from tensorwise.tensor.remap import Axis

ENTRIES: Final = Var("n_entries")
"""Entries of the first sparse operand; it has a name of its own in kernels already."""


def check_bounds(plan: Plan, kernel: ir.LoweredFunction) -> None:
    """Raise UnprovenError unless the kernel lowered from ``plan`` touches only elements that are there, for all operands."""
    try:
        prove_bounds(kernel, _Arrays(plan).facts())
    except UnprovenError as error:
        raise UnprovenError(
            f"{error} (schedule {plan.schedule}; formats {'; '.join(map(str, plan.formats.values()))}). {_advice(plan)}"
        ) from None


def _advice(plan: Plan) -> str:
    """Return advice on a kernel that cannot be proved, which is mostly a defect of this package."""
    for directive in plan.schedule.directives:
        if isinstance(directive, LoopPass):
            return f"Bound the index in the loops that {type(directive).__name__}.rewrite makes of {directive}, as by an If"
    for format in plan.formats.values():
        for level in format.levels:
            if not type(level).__module__.startswith("tensorwise."):
                return (
                    f"Bound the values in `facts` of the level {level.letter} ({type(level).__name__}), and its coordinates "
                    "from 0 to extent - 1, for any content of its arrays (docs/extend-levels.md)"
                )
    return "This is a fault of Tensorwise: please report format and schedule, and use others meanwhile"


class _Arrays:
    """The facts of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.assignment, self.schedule = plan, plan.assignment, plan.schedule
        self.extents, self.splits = sizes_of(plan)
        self.equal = self.equal_sizes()
        self.counts = {name: self.counted(name) for name in plan.formats}
        self.entries = {
            name: ENTRIES if number == 0 else Var(f"entries_{name}")
            for number, name in enumerate(plan.formats)
        }
        for name, format in plan.formats.items():
            if not format.padded and not plan.accumulate:  # each position of the last level is an entry
                self.equal[self.entries[name].name] = self.counts[name][-1]
        self.idioms: list[Idiom] = []
        self.bits: dict[str, Buffer] = {}
        self.unknown_counts: set[str] = set()

    def facts(self) -> Facts:
        """Return all facts."""
        arrays = {"out": Array(self.output_length())}
        for name in self.plan.formats:
            arrays |= self.stored(name)
        for access in self.assignment.accesses:
            arrays.setdefault(f"{access.tensor}_values", Array(self.product(access.indices)))
        for loop in self.schedule.visits:
            arrays[f"{loop}_visited"] = self.coordinates(self.extents[loop], self.extents[loop])
        arrays |= self.parallel()
        least = {
            count.name: 0 for counts in self.counts.values() for count in counts if isinstance(count, Var)
        }
        least |= dict.fromkeys(self.unknown_counts, 0)
        least |= {f"N_{index}": 0 for index in self.assignment.indices}
        least |= {f"s_{index}": 1 for index in self.splits}  # which may also count the positions of a level
        least |= {entries.name: 0 for entries in self.entries.values()}
        least |= {f"multiple_N_{index}": 0 for index in self.assignment.indices}
        least |= {NUM_PARTS.name: 1, NUM_PIECES.name: 0, NUM_CUT.name: 0}
        return Facts(arrays, least, self.equal, self.bits, self.idioms)

    def equal_sizes(self) -> dict[str, Expr]:
        """Sizes that are given by others: of a tensor that is read twice, and multiples of a constant split."""
        equal: dict[str, Expr] = {}
        for access in self.assignment.accesses:
            first = self.assignment.access(access.tensor)
            for a, b in zip(first.indices, access.indices, strict=True):
                self.same(equal, a, b)
        multiples: dict[str, int] = {}
        for index in self.plan.exact:
            extent = self.resolve_extent(equal, self.extents[index])
            if isinstance(extent, Var):
                multiples[extent.name] = math.lcm(multiples.get(extent.name, 1), self.schedule.splits[index])
        equal |= {name: Var(f"multiple_{name}") * by for name, by in multiples.items()}
        return equal

    def same(self, equal: dict[str, Expr], a: str, b: str) -> None:
        """Note that two indices extend equally far."""
        one, other = (self.resolve_extent(equal, self.extents.get(index, Const(0))) for index in (a, b))
        if one != other and isinstance(other, Var):
            equal[other.name] = one
        elif one != other and isinstance(one, Var):
            equal[one.name] = other

    @staticmethod
    def resolve_extent(equal: Mapping[str, Expr], extent: Expr) -> Expr:
        """Return what an extent is equal to."""
        while isinstance(extent, Var) and extent.name in equal:
            extent = equal[extent.name]
        return extent

    def extent(self, axis: Axis) -> Expr:
        """Return how many coordinates an axis has."""
        along = self.extents.get(axis.along, Const(1))
        made: Expr = axis.extent(self.extents[axis.mode], self.splits.get(axis.mode, Const(1)), along)
        return made

    def counted(self, name: str) -> list[Expr]:
        """Return how many positions each level of an operand has."""
        counts: list[Expr] = []
        above: Expr = Const(1)
        for place, level in enumerate(self.plan.formats[name].levels):
            if level.full:
                above = above * self.extent(level.axis)
            elif not level.single:
                above = Var(f"n_{name}{place}")
            counts.append(above)
        return counts

    def stored(self, name: str) -> dict[str, Array]:
        """Return the arrays of a sparse operand."""
        format, counts, arrays = self.plan.formats[name], self.counts[name], dict[str, Array]()
        above: Expr = Const(1)
        for place, level in enumerate(format.levels):
            stem, count, extent = f"{name}{place}", counts[place], self.extent(level.axis)
            for kind, known in level.facts(above, count, extent, partial(self.unknown, stem)).items():
                arrays[f"{stem}_{kind}"] = _array(known)
            if level.bit_array is not None:
                kept = {
                    kind: Buffer(f"{stem}_{kind}", width)
                    for kind, width in zip(level.arrays, self.plan.widths[name][place])
                }
                assert level.pointer_array is not None
                self.bits[f"{stem}_{level.bit_array}"] = kept[level.pointer_array]
                self.idioms += [partial(_bitmask_range, level, kept), partial(_taken, level, kept, extent)]
            above = count
        entries = self.entries[name]
        arrays[f"{name}_values"] = Array(counts[-1])
        arrays[f"{name}_source"] = Array(counts[-1], ((Const(0 if format.padded else 1), entries),))
        arrays[f"{name}_place"] = self.coordinates(entries, counts[-1])
        for mode in format.orders:
            arrays[f"{name}_{mode}_order"] = self.coordinates(self.extents[mode], self.extents[mode])
        return arrays

    def unknown(self, stem: str, name: str) -> Expr:
        """Return a count of a level's own, such as how many runs there are: known to proofs only, at least 0."""
        count = Var(f"n_{stem}_{name}")
        self.unknown_counts.add(count.name)
        return count

    @staticmethod
    def coordinates(length: Expr, extent: Expr) -> Array:
        """Return an array of numbers below an extent."""
        return Array(length, ((Const(0), extent - 1),))

    def size_of(self, index: str) -> Expr:
        """Return how many coordinates an index has, or how many entries an operand."""
        return self.extents[index] if index in self.extents else self.entries[index]

    def product(self, indices: tuple[str, ...]) -> Expr:
        """Return the number of elements of a dense tensor."""
        return math.prod(map(self.size_of, indices), start=Const(1))

    def output_length(self) -> Expr:
        """Return the number of elements of the output."""
        output: Access = self.assignment.output
        if self.plan.keep_pattern and output.indices[0] not in self.plan.formats:
            return ENTRIES
        return self.product(output.indices)

    def parallel(self) -> dict[str, Array]:
        """Return the arrays of parallel loops: partial results, and where parts begin."""
        parallel, output = self.schedule.parallel, self.output_length()
        private = parallel is not None and parallel.reduction == "private"
        arrays = {"work": Array(ir.THREADS * output if private else output)}
        if parallel is None or parallel.policy not in ("merge-path", "pieces"):
            return arrays
        first, counts = next(iter(self.plan.formats.items()))[1], next(iter(self.counts.values()))
        rows, below = (Const(0), counts[0]), (Const(0), counts[1])
        arrays[CUTS.name] = Array(NUM_PARTS * 2 + 2, (rows, below))
        numbers = (Const(0), counts[0] - 1), below, below, (Const(0), Const(1))
        arrays["pieces"] = Array(NUM_PIECES * PIECE_COLUMNS, numbers)
        arrays["cut"] = self.coordinates(NUM_CUT, counts[0])
        mode = first.axes[0].mode
        extents: Mapping[str, Expr] = {**self.extents, mode: self.splits.get(mode, Const(1))}
        carry = math.prod(
            (extents[i] for i in self.assignment.output.indices if i in extents), start=Const(1)
        )
        arrays["carries"] = Array(NUM_PARTS * carry)
        return arrays


def _array(known: ArrayFacts) -> Array:
    """What a level knows of an array, as proofs take it."""
    bounded = known.low is not None and known.high is not None
    columns = ((_expression(known.low), _expression(known.high)),) if bounded else ()
    return Array(_expression(known.length), columns, known.ascending)


def _expression(value: Expr | int) -> Expr:
    return Const(value) if isinstance(value, int) else value


def _bitmask_range(
    level: Level, arrays: Mapping[str, Buffer], expr: Expr, masks: Mapping[str, Load]
) -> tuple[Expr, Expr] | None:
    """Return the range of ``find`` of a level of bits: a position of the parent's, or -1."""
    assert level.bit_array is not None
    assert level.pointer_array is not None
    match expr:
        case Op(
            name="sub",
            args=(
                Op(name="mul", args=(Op(args=(Op(name="shr", args=(Load() as mask, at)), _)), _)),
                Const(value=1),
            ),
        ):
            bits = arrays[level.bit_array]
            if mask.buffer.name == bits.name and expr == level.find(arrays, mask.index, at):
                return Const(-1), arrays[level.pointer_array][mask.index + 1] - 1
    return None


def _taken(
    level: Level, arrays: Mapping[str, Buffer], extent: Expr, expr: Expr, masks: Mapping[str, Load]
) -> tuple[Expr, Expr] | None:
    """Return the range of ``coordinate`` of a level of bits where each position takes a bit of its own."""
    assert level.bit_array is not None
    if not (isinstance(expr, Op) and expr.name == "popcount"):
        return None
    for register, mask in masks.items():
        if mask.buffer.name == arrays[level.bit_array].name and expr == level.coordinate(
            arrays, mask.index, Const(0), extent, Var(register)
        ):
            return Const(0), extent - 1
    return None
