"""A Program: einsum + formats + schedule. It prints as text, can be interpreted and compiled."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir
from tensorwise.lower.arrays import check_bounds
from tensorwise.lower.c import print_c
from tensorwise.lower.loops import printed
from tensorwise.lower.lower import lower
from tensorwise.lower.plan import Plan
from tensorwise.lower.target import target_of
from tensorwise.moved import forward_names, renamed
from tensorwise.program.einsum import Assignment
from tensorwise.program.joined import check_joined
from tensorwise.program.schedule import (
    CONSTANT_SPLIT,
    Bound,
    Factor,
    Parallel,
    Reorder,
    Schedule,
    Split,
    Tile,
)
from tensorwise.program.workload import Workload
from tensorwise.tensor.elements import ELEMS
from tensorwise.tensor.fibertree import Tensor
from tensorwise.tensor.format import Format
from tensorwise.tensor.partition import Partition
from tensorwise.tensor.remap import Axis

INDEX = np.dtype(np.int32)


@dataclass(frozen=True)
class Remainder:
    """The remainder of a hybrid: the rule that selects its entries, their format and their schedule."""

    rule: Partition
    format: Format
    schedule: Schedule

    def __str__(self) -> str:
        return f"{self.rule}: {self.format}"


@dataclass(frozen=True)
class Program:
    """What is computed, how it is stored and how it runs.

    >>> from tensorwise.program.einsum import Einsum
    >>> program = Program(
    ...     Einsum.parse("C[i] += A[i,k] * B[k]").single,
    ...     {"A": Format.parse("(i,k) -> U(i) C(k)")},
    ...     Schedule.parse("parallel(i,dynamic,64)"),
    ... )
    >>> print(program)
    C[i] += A[i,k] * B[k]
    A: (i,k) -> U(i) C(k)
    parallel(i,dynamic,64)
    parallel[dynamic] for i in 0 .. N_i:
      var acc: f32 = 0
      for ap in A1_pos[i] .. A1_pos[(i + 1)]:
        k = A1_crd[ap]
        av = A_values[ap]
        acc := (acc + (av * B_values[k]))
      out[i] = acc

    With ``remainder`` it is a hybrid: ``formats`` and ``schedule`` apply to the main part, and the two parts run
    one after the other. With ``accumulate`` the program adds to the output instead of overwriting it.
    """

    assignment: Assignment
    formats: Mapping[str, Format]
    schedule: Schedule
    remainder: Remainder | None = None
    accumulate: bool = False

    apart = renamed("remainder")

    def __post_init__(self) -> None:
        """Raise ScheduleError for a hybrid of several sparse operands, or of one whose entries are found by number.

        InputError where terms count that not all of several sparse operands have an entry for.
        """
        check_joined(self.assignment, self.formats)
        if self.remainder is not None and len(self.formats) > 1:
            raise ScheduleError(
                f"a hybrid divides the only sparse operand, but {self.assignment} has {', '.join(self.formats)}"
            )
        if self.remainder is not None and (self.schedule.located or self.remainder.schedule.located):
            raise ScheduleError("entries are found by their numbers in one format: a hybrid has two")

    def __str__(self) -> str:
        rules = ["", f" ({self.remainder.rule})" if self.remainder else ""]
        lines = [str(self.assignment)]
        for part, rule in zip(self.parts, rules, strict=False):
            lines += [f"{name}{rule}: {format}" for name, format in part.formats.items()]
            lines += [str(part.schedule), printed(part.lowered()).split("\n", 1)[1]]
        return "\n".join(lines)

    @property
    def parts(self) -> "tuple[Program, ...]":
        """The programs that are packed and run, in order: the program itself, or a hybrid's main part and remainder.

        The main part writes the output and the remainder adds to it. Where the output has a value for each
        entry, both write to their own entries, and the output is zeroed before.
        """
        if self.remainder is None:
            return (self,)
        (name,) = self.formats
        rest = replace(self, remainder=None, accumulate=self.keeps_pattern)
        return rest, replace(
            rest, formats={name: self.remainder.format}, schedule=self.remainder.schedule, accumulate=True
        )

    @property
    def name(self) -> str:
        """Formats and schedule on one line; they identify a program among those of its einsum."""
        return "; ".join([*self.format_texts.values(), self.schedule_text])

    @property
    def format_texts(self) -> dict[str, str]:
        """Operand -> its format as :func:`program_for` reads it, with the remainder's after a semicolon."""
        remainder = f"; {self.remainder}" if self.remainder else ""
        return {name: f"{format}{remainder}" for name, format in self.formats.items()}

    @property
    def format_text(self) -> str:
        """The format of the first sparse operand, as in ``format_texts``."""
        return next(iter(self.format_texts.values()))

    @property
    def schedule_text(self) -> str:
        """The schedule as :func:`program_for` reads it, with the remainder's after a semicolon."""
        return f"{self.schedule}; {self.remainder.schedule}" if self.remainder else str(self.schedule)

    @property
    def keeps_pattern(self) -> bool:
        """Whether the output has exactly the first sparse operand's indices."""
        return bool(self.formats) and self.assignment.has_pattern_of(next(iter(self.formats)))

    def can_multiply_padding(self) -> bool:
        """Whether padding may be multiplied along, with a NaN asking for the masked program."""
        return not self.keeps_pattern and all(
            self.assignment.annihilated_by(name)
            and name not in self.assignment.counted
            and not self._misplaces(format)
            for name, format in self.formats.items()
            if format.padded
        )

    def _misplaces(self, format: Format) -> bool:
        """Whether padding would be written over a result: it stands at no coordinate of its own."""
        output = self.assignment.free_indices
        follows = {a.mode for a in format.axes if a.part == "diagonal"}
        follows |= {axis.mode for axis in format.followed}
        return bool(follows & set(output)) and set(format.modes) <= set(output)

    def fitting(self, workload: Workload) -> "Program":
        """Return the program without extents compiled in that are not those of ``workload``."""

        def fit(schedule: Schedule) -> Schedule:
            kept = (
                d
                for d in schedule.directives
                if not isinstance(d, Bound) or workload.sizes[d.index] == d.size
            )
            return Schedule(tuple(kept))

        remainder = self.remainder and replace(self.remainder, schedule=fit(self.remainder.schedule))
        return replace(self, schedule=fit(self.schedule), remainder=remainder)

    def masked(self) -> "Program":
        """Return the program in a form that can consult the source map at every stored position."""
        tile = self.schedule.tile if self._padded else None
        stored = self.assignment.indices_of(self.formats)
        if tile is None or Axis.from_name(tile.loop).mode not in stored:  # type: ignore[union-attr]
            return self
        kept = tuple(d for d in self.schedule.directives if not isinstance(d, Tile))
        return replace(self, schedule=Schedule(kept))

    def plan(
        self,
        elem: str = "f32",
        *,
        tensors: Mapping[str, Tensor] | None = None,
        masked: bool | None = None,
        sizes: Mapping[str, int] | None = None,
        source_elem: str = "i32",
        halves: Mapping[str, str] | None = None,
        renumbered: frozenset[str] = frozenset(),
    ) -> Plan:
        """Return all that lowering needs; that of a hybrid is in its parts.

        Args:
            tensors: packed operands, whose index widths the kernel is made for (default 32 bits).
            masked: consult the source map (default: only where padding cannot be multiplied along).
            sizes: extents, which tell where a guard at the end of a constant split is not needed.
            source_elem: element type of source maps.
            halves: operands and output that are kept in ``f16`` or ``bf16`` (see ``Workload.halves``).
            renumbered: sparse operands whose entries have numbers of their own (see ``Workload.renumbered``).
        """
        widths = {
            name: (
                *(
                    tuple(
                        element_type(
                            tensors[name].arrays[place][array].dtype
                            if tensors
                            else level.dtypes.get(array, INDEX)
                        )
                        for array in level.arrays
                    )
                    for place, level in enumerate(format.levels)
                ),
                *(
                    (element_type(tensors[name].permutations[m].dtype if tensors else INDEX),)
                    for m in format.orders
                ),
            )
            for name, format in self.formats.items()
        }
        constant = {i: s for i, s in self.schedule.splits.items() if s <= CONSTANT_SPLIT}
        exact = frozenset(i for i, s in constant.items() if sizes is not None and sizes[i] % s == 0)
        columns = frozenset(
            name
            for name in self.assignment.operands
            if name not in self.formats and self.assignment.column_major(name, self.formats)
        )
        schedule = self.schedule
        if sizes is not None and any(sizes[index] == 0 for index in self.assignment.reduced):
            # sums of no terms are 0, whatever other factors are
            schedule = Schedule(tuple(d for d in schedule.directives if not isinstance(d, Factor)))
        if masked is None:
            masked = not self.can_multiply_padding()
        return Plan(
            self.assignment,
            schedule,
            self.formats,
            masked=masked and self._padded,
            accumulate=self.accumulate,
            halves=halves or {},
            keep_pattern=self.keeps_pattern,
            exact=exact,
            widths=widths,  # type: ignore[arg-type]
            elem=elem,
            column_major=columns,
            source_elem=source_elem,
            renumbered=renumbered,
        )

    def lowered(self, elem: str = "f32") -> ir.LoweredFunction:
        """Return the loop IR for 32-bit indices."""
        program = self if self.can_multiply_padding() else self.masked()
        return lower(program.plan(elem))

    @property
    def _padded(self) -> bool:
        return any(format.padded for format in self.formats.values())

    def source(self, elem: str = "f32") -> str:
        """Return the C text for 32-bit indices, of a hybrid both parts'; for a GPU it is CUDA C++."""
        targets = (target_of(part.schedule) for part in self.parts)
        printers = (print_c if target is None else target.text for target in targets)
        return "\n".join(text(part.lowered(elem)) for text, part in zip(printers, self.parts, strict=True))


def element_type(dtype: np.dtype) -> str:
    """Return the loop IR's name of what arrays of ``dtype`` hold: ``i32`` for int32."""
    return ELEMS.get(dtype.name, f"{dtype.kind}{8 * dtype.itemsize}")


def program_for(
    workload: Workload, formats: Mapping[str, Format | str] | Format | str, schedule: Schedule | str
) -> Program:
    """Build a program for ``workload`` from formats and a schedule, given as objects or text.

    A single format is that of the first sparse operand. Formats may use any mode names; they are
    renamed to the operand's indices. Splits that a format has are added to the schedule. A hybrid's texts
    have a second part behind a semicolon: ``FORMAT; RULE: FORMAT`` and ``SCHEDULE; SCHEDULE`` (see
    :class:`tensorwise.tensor.partition.Partition`).

    Raises:
        FormatError, ScheduleError: they do not parse or do not fit; the message says where.
    """
    if isinstance(formats, Format | str):
        formats = {next(iter(workload.sparse)): formats}
    if set(formats) != set(workload.sparse):
        raise ScheduleError(
            f"formats are given for {sorted(formats)}, but the sparse operands are {sorted(workload.sparse)}"
        )
    assignment = workload.assignment

    def read_format(name: str, given: Format | str) -> Format:
        format = Format.parse(given, name) if isinstance(given, str) else given
        return format.renamed(assignment.access(name).indices)

    renamed, remainder, second = {}, dict[str, str](), ""
    for name in workload.sparse:
        given = formats[name]
        if isinstance(given, str) and ";" in given:
            given, _, remainder[name] = given.partition(";")
        renamed[name] = read_format(name, given)
    if isinstance(schedule, str):
        first, _, second = schedule.partition(";")
        schedule = Schedule.parse(first)
    program = Program(assignment, renamed, fitted(schedule, assignment, renamed))
    if not remainder:
        if second:
            raise ScheduleError(f"a second schedule is given ({second.strip()}), but the format has one part")
        return program
    (name, text), *_ = remainder.items()
    rule, _, text = text.partition(":")
    partition, format = Partition.parse(rule), read_format(name, text)
    own = fitted(Schedule.parse(second), assignment, {name: format})
    return replace(program, remainder=Remainder(partition, format, own))


def fitted(schedule: Schedule, assignment: Assignment, formats: Mapping[str, Format]) -> Schedule:
    """Return ``schedule`` with what ``formats`` ask for and it does not say: splits, loops over slots and diagonals."""
    missing = {
        mode: size
        for format in formats.values()
        for mode, size in format.splits.items()
        if mode not in schedule.splits
    }
    splits = [Split(mode, size) for mode, size in missing.items()]
    order: list[Reorder] = []
    if schedule.order is None and any(
        axis.part in ("slot", "diagonal") for f in formats.values() for axis in f.loops
    ):
        split = {*missing, *schedule.splits}
        loops = [axis.name for format in formats.values() for axis in format.loops]
        stored = {axis.mode for format in formats.values() for axis in format.axes}
        for index in assignment.indices:
            if index not in stored:
                loops.extend((f"{index}1", f"{index}0") if index in split else (index,))
        order = [Reorder(tuple(dict.fromkeys(loops)))]
    return Schedule((*splits, *order, *schedule.directives))


@lru_cache(maxsize=4096)
def kernel_text(key: "PlanKey") -> tuple[str, dict[str, str], tuple[str, ...]]:
    """Return C text, the element types of buffers by name, and size names of a plan (lowering and printing are remembered).

    Raises:
        ScheduleError: it is a program of a GPU, which has no C.
        UnprovenError: the program is not certain to stay inside its arrays.
    """
    if key.plan.schedule.grid_bind is not None:
        raise ScheduleError(
            f"{key.plan.schedule} deals a loop to the blocks of a GPU; `tensorwise.runtime.launched` runs it there"
        )
    kernel = lower(key.plan)
    check_bounds(key.plan, kernel)
    return print_c(kernel), {b.name: b.elem for b in kernel.buffers}, tuple(s.name for s in kernel.sizes)


class PlanKey:
    """A plan as a dictionary key. Sizes that are known at run time only are erased: the C text does not depend on them.

    Raises ScheduleError where the plan is not consistent. The whole plan is checked, since this may depend on those sizes.
    """

    def __init__(self, plan: Plan) -> None:
        plan.check()
        self.plan = plan
        splits = {i: s if s <= CONSTANT_SPLIT else 0 for i, s in plan.schedule.splits.items()}
        rest = [
            str(replace(d, chunk=1)) if isinstance(d, Parallel) else str(d)
            for d in plan.schedule.directives
            if not isinstance(d, Split)
        ]
        formats = tuple((name, format.structure) for name, format in plan.formats.items())
        self.key = (
            str(plan.assignment), formats, tuple(sorted(plan.widths.items())), tuple(sorted(splits.items())),
            tuple(rest), plan.elem, plan.column_major, plan.keep_pattern, plan.masked, plan.exact,
            plan.source_elem, tuple(sorted(plan.halves.items())), plan.accumulate, plan.renumbered,
            plan.filled,
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlanKey) and self.key == other.key


__getattr__ = forward_names(__name__, {"Apart": f"{__name__}:Remainder"})
