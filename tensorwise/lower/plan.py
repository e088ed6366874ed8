"""The Plan: everything that lowering needs to know, checked before a loop is emitted."""

from collections.abc import Mapping
from dataclasses import dataclass

from tensorwise.lower.target import target_of
from tensorwise.program.loop_nest import LoopNest


@dataclass(frozen=True, kw_only=True)
class Plan(LoopNest):
    """A loop nest, and what lowering needs to know besides; equal plans give equal kernels.

    Attributes:
        widths: sparse operand -> element types of the arrays of each level, then of its permutation if
            its format has one.
        elem: ``f32`` or ``f64``: what is computed in, and what operands are kept in unless ``halves`` says otherwise.
        column_major: dense operands whose first index is contiguous.
        source_elem: element type of source maps.
        renumbered: sparse operands whose entries have numbers of their own (see ``Entries.numbers``), or are a part of
            those that are numbered.
        filled: every position of every operand is an entry, as in SciPy's BSR arrays: zeros inside of blocks are
            multiplied like other values, and nothing is padding.
    """

    widths: Mapping[str, tuple[tuple[str, str], ...]]
    elem: str
    column_major: frozenset[str]
    source_elem: str = "i32"
    renumbered: frozenset[str] = frozenset()
    filled: bool = False

    @property
    def padded(self) -> bool:
        """Whether some operand's values may hold padding."""
        return not self.filled and any(format.padded for format in self.formats.values())

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

    def check(self) -> None:
        """Raise ScheduleError when a directive does not fit the einsum and formats, or the target does not run these."""
        super().check()
        target = target_of(self.schedule)
        if target is not None:
            target.check(self)
