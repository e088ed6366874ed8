"""The Plan: everything that lowering needs to know, checked before a loop is emitted."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorwise.errors import ScheduleError
from tensorwise.lower.target import target_of
from tensorwise.program.einsum import Assignment
from tensorwise.program.schedule import Bind, Parallel, Schedule, Stage
from tensorwise.tensor.format import Format
from tensorwise.tensor.remap import Axis


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

    def check(self) -> None:
        """Raise ScheduleError when a directive does not fit the einsum and formats."""
        for name, format in self.formats.items():
            for mode, size in format.splits.items():
                if self.schedule.splits.get(mode) != size:
                    raise ScheduleError(
                        f"format of {name} splits {mode} by {size}, so the schedule needs "
                        f"split({mode},{size}); it has {self.schedule}"
                    )
            self._check_axes(name, format)
            indices = self.assignment.access(name).indices
            if format.modes != indices:
                raise ScheduleError(
                    f"format of {name} has the modes ({','.join(format.modes)}), but it is read as "
                    f"{self.assignment.access(name)}; name them ({','.join(indices)}), in this order"
                )
        if self.accumulate and self.assignment.monoid.name != "sum":
            raise ScheduleError(
                f"the parts of a hybrid are added up, but {self.assignment} reduces by "
                f"{self.assignment.monoid.name}; store the operand in one format"
            )
        if self.accumulate and self.assignment.output.tensor in self.halves:
            raise ScheduleError(
                "the parts of a hybrid add to one output, which would round in between; it is kept in 16 bits here"
            )
        tile, parallel = self.schedule.tile, self.schedule.parallel
        if (
            tile
            and not self.assignment.monoid.single
            and tile.lanes * tile.vectors > 1
            and (self.schedule.dealt is None or tile.lanes > self.schedule.threads)
            and self.assignment.monoid.name != "mean"
            and Axis.named(tile.loop).mode not in self.assignment.kept  # type: ignore[union-attr]
        ):
            raise ScheduleError(
                f"{tile}: {self.assignment.monoid.name} keeps a coordinate, so that lanes have to be elements of the "
                f"output ({', '.join(self.assignment.kept)})"
            )
        if tile and self.masked and Axis.named(tile.loop).mode in self.stored:  # type: ignore[union-attr]
            raise ScheduleError(f"{tile}: lanes over a stored index cannot be masked")
        for prefetch in self.schedule.prefetches:
            if prefetch.tensor not in self.assignment.operands or prefetch.tensor in self.formats:
                raise ScheduleError(
                    f"{prefetch}: {prefetch.tensor!r} is no dense operand of {self.assignment}"
                )
        self._check_target()
        for loop in self.schedule.visits:
            self._check_visit(loop)
        if self.schedule.located is not None:
            self._check_locate(self.schedule.located)
        if parallel and parallel.policy == "pieces" and self.schedule.dealt is None:
            raise ScheduleError(
                f"{parallel}: pieces are for GPUs; threads of a CPU take parts, as in merge-path"
            )
        if parallel and parallel.policy in ("balanced", "merge-path", "pieces"):
            first = next(iter(self.formats.values()), None)
            if (
                first is None
                or first.axes[0].name != parallel.loop
                or self.schedule.loops(self.assignment.indices)[0].name != parallel.loop
            ):
                raise ScheduleError(
                    f"{parallel}: parts are balanced over the outermost loop when it is the outermost level "
                    f"of the sparse operand; use dynamic for {parallel.loop}"
                )
            if parallel.policy in ("merge-path", "pieces"):
                self._check_cuts(parallel, first)
            roots = [format.levels[0] for format in self.formats.values()]
            if roots[0].full and any(not r.full and r.axis == roots[0].axis for r in roots):
                raise ScheduleError(
                    f"{parallel}: the loop follows the compressed level of another operand, whose positions "
                    "are not those that the parts count; use dynamic, or name that operand first"
                )

    def _check_target(self) -> None:
        """Raise ScheduleError when directives for a GPU do not fit each other, the einsum or the formats."""
        schedule = self.schedule
        for bind in schedule.binds:
            if bind.to not in ("block", "warp", "thread", "lane"):
                raise ScheduleError(
                    f"{bind}: loops are bound to block, warp, thread or lane, got {bind.to!r}"
                )
            if bind.count < 1:
                raise ScheduleError(f"{bind}: the count must be at least 1")
        target = target_of(schedule)
        if target is not None:
            target.check(self)
            return
        for directive in schedule.directives:
            if isinstance(directive, Bind | Stage):
                raise ScheduleError(
                    f"{directive}: no loop is dealt to the blocks of a GPU, as in bind(i,block,8) (got {schedule})"
                )

    def _check_visit(self, loop: str) -> None:
        """Raise ScheduleError unless a buffer can say in which order the coordinates of a loop come."""
        axis, parallel, tile = Axis.named(loop), self.schedule.parallel, self.schedule.tile
        assert axis is not None
        cut = parallel is not None and parallel.loop == loop and parallel.policy != "dynamic"
        if axis.part != "whole" or cut or (tile is not None and tile.loop == loop):
            raise ScheduleError(
                f"visit({loop}): it takes a whole loop without strips or parts of equal cost (got {self.schedule})"
            )
        if axis.mode not in self.stored or any(axis.mode in f.orders for f in self.formats.values()):
            raise ScheduleError(
                f"visit({loop}): it takes an index of a sparse operand that stores it in its own order"
            )

    def _check_locate(self, operand: str) -> None:
        """Raise ScheduleError unless the numbers of entries are known, and the entries stand as they are numbered."""
        holds, format, tile = self.assignment.named, self.formats.get(operand), self.schedule.tile
        if holds is None or format is None or self.assignment.chosen[holds.tensor] != operand:
            raise ScheduleError(
                f"locate({operand}): only one entry may count, as in G[k,j] += D[i,j] if P[i,j] == A else 0 for A[i,k] "
                f"(got {self.assignment})"
            )
        *above, last = format.levels
        known = all(level.axis.mode in holds.indices for level in above)
        whole = all(level.axis.part == "whole" for level in format.levels)
        if not (format.order_kept and known and whole and last.listed and last.unique):
            raise ScheduleError(
                f"locate({operand}): {holds} tells where entries stand in formats such as (i,k) -> U(i) C(k), got {format}"
            )
        lanes = tile is not None and Axis.named(tile.loop).mode in (*holds.indices, last.axis.mode)  # type: ignore[union-attr]
        named = [getattr(d, "loop", None) for d in self.schedule.directives]
        if self.schedule.dealt is not None or lanes or last.axis.name in named:
            raise ScheduleError(
                f"locate({operand}): entries are found one by one, on CPUs: {last.axis.name} has no loop, and no index of "
                f"{holds} runs in lanes (got {self.schedule})"
            )

    def _check_cuts(self, parallel: Parallel, format: Format) -> None:
        """Raise ScheduleError unless iterations can be cut, and what their pieces give can be added up."""
        below = format.levels[1:2]
        if format.axes[0].part == "inner":
            raise ScheduleError(
                f"{parallel}: what a piece of an iteration adds to is a block of outputs, but those of {parallel.loop} "
                "lie apart; use balanced, or store the outer part above the inner one"
            )
        if not below or not below[0].listed:
            raise ScheduleError(
                f"{parallel}: parts cut a list of coordinates that lies below {parallel.loop}, as in U(i) C(k); "
                f"the format is {format}; use balanced"
            )
        if not self.assignment.monoid.single:
            raise ScheduleError(
                f"{parallel}: {self.assignment.monoid.name} needs an iteration of {parallel.loop} in one piece; use balanced"
            )

    def _check_axes(self, name: str, format: Format) -> None:
        """Raise ScheduleError unless slots and diagonals have their loops, and permuted modes are the format's own."""
        loops = self.schedule.loops(self.assignment.indices)
        special = ("slot", "diagonal")
        for axis in format.loops:
            if axis.part in special and axis not in loops:
                raise ScheduleError(
                    f"{format} needs a loop {axis.name} in place of {axis.mode}; name it in the reorder "
                    f"(got {self.schedule})"
                )
        for loop in loops:
            if loop.part in special and not any(loop in other.loops for other in self.formats.values()):
                raise ScheduleError(f"no operand is stored by {loop.name}, which {self.schedule} runs over")
        for axis in format.followed:
            names = (axis.name, f"{axis.mode}1", f"{axis.mode}0")
            named = [
                d
                for d in self.schedule.directives
                if getattr(d, "loop", None) in names or getattr(d, "index", None) in names
            ]
            if named:
                raise ScheduleError(
                    f"{named[0]}: {axis.name} follows from the position in {name} ({format}); it has no loop"
                )
        diagonals = [axis for axis in format.axes if axis.part == "diagonal"]
        for axis in diagonals:
            for other, stored in self.formats.items():
                if other != name and axis.mode in [followed.mode for followed in stored.followed]:
                    raise ScheduleError(
                        f"{axis.mode} follows from the diagonals of {name} and from positions in {other}"
                    )
        for mode in format.orders:
            others = [other for other in self.formats if other != name and mode in self.formats[other].modes]
            if others:
                raise ScheduleError(
                    f"{name} stores {mode} in an order of its own, which {others[0]} does not share ({format})"
                )
