"""The Plan: everything that lowering needs to know, checked before a loop is emitted."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorwise.lower.target import target_of
from tensorwise.program.einsum import Assignment
from tensorwise.program.legality import LoopNest
from tensorwise.program.schedule import Schedule
from tensorwise.tensor.format import Format


@dataclass(frozen=True)
class Plan:
    """Everything that lowering needs to know; equal plans give equal kernels.

    Attributes:
        formats: sparse operand -> format, its modes named by the operand's indices.
        widths: sparse operand -> element types of the arrays of each level, then of its permutation if
            its format has one.
        elem: ``f32`` or ``f64``: what is computed in, and what operands are kept in unless ``halves`` says otherwise.
        column_major: dense operands whose first index is contiguous.
        keep_pattern: the output holds one value an entry of the first sparse operand.
        masked: consult the source map before a stored position contributes.
        exact: indices whose extent is a multiple of their constant split, so that no guard is needed.
        halves: operands, and the output, that are kept in ``f16`` or ``bf16``.
        accumulate: results are added to what the output holds, which other parts of a hybrid share.
        renumbered: sparse operands whose entries have numbers of their own (see ``Entries.numbers``), or are a part of
            those that are numbered.
    """

    assignment: Assignment
    formats: Mapping[str, Format]
    widths: Mapping[str, tuple[tuple[str, str], ...]]
    schedule: Schedule
    elem: str
    column_major: frozenset[str]
    keep_pattern: bool
    masked: bool
    exact: frozenset[str]
    source_elem: str = "i32"
    halves: Mapping[str, str] = field(default_factory=dict)
    accumulate: bool = False
    renumbered: frozenset[str] = frozenset()

    @property
    def padded(self) -> bool:
        """Whether some operand's values may hold padding."""
        return any(format.padded for format in self.formats.values())

    def uses_source(self, operand: str) -> bool:
        """Whether the kernel reads the source map of ``operand``."""
        if self.masked and self.formats[operand].padded:
            return True
        if operand == self.schedule.located:  # numbers are given, positions are asked for
            return False
        own_order = (
            self.formats[operand].order_kept and not self.accumulate and operand not in self.renumbered
        )
        kept = self.keep_pattern and operand == next(iter(self.formats))
        return (kept or operand in self.assignment.counted) and not own_order

    @property
    def stored(self) -> frozenset[str]:
        """Indices of the sparse operands."""
        return self.assignment.indices_of(self.formats)

    @property
    def nest(self) -> LoopNest:
        """What the directives are applied to."""
        return LoopNest(
            self.assignment, self.schedule, self.formats, self.masked, self.accumulate, self.halves
        )

    def check(self) -> None:
        """Raise ScheduleError when a directive does not fit the einsum and formats, or the target does not run these."""
        self.nest.check()
        target = target_of(self.schedule)
        if target is not None:
            target.check(self)
