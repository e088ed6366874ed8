"""The base class of directives, each of which defines where it may be applied, and the rules that no directive states."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from tensorwise.errors import ScheduleError
from tensorwise.tensor.format import Format
from tensorwise.tensor.remap import Axis

if TYPE_CHECKING:
    from tensorwise.lower import ir
    from tensorwise.lower.plan import Plan
    from tensorwise.program.loop_nest import LoopNest
    from tensorwise.program.schedule import Schedule

Axes: TypeAlias = Mapping[str, Axis]
"""The loops of an einsum by name."""


class Directive:
    """One step of a schedule. Derive a frozen dataclass, whose ``str`` is the directive's text."""

    once: ClassVar[str | None] = None
    """The field of whose values each may be given once; empty: a schedule has at most one; None: any number."""

    decides_loops: ClassVar[bool] = False
    """Which loops there are depends on it: it is checked before the others."""
    keeps_loops: ClassVar[bool] = True
    """Neither the loops nor how they reach levels depends on it."""

    @property
    def word(self) -> str:
        """What kind of directive it is."""
        return type(self).__name__.lower()

    @property
    def only(self) -> str | None:
        """What a schedule may have at most one of, in words."""
        if self.once is None:
            return None
        return f"{self.word} of {getattr(self, self.once)}" if self.once else f"{self.word} directive"

    def check_loops(self, schedule: "Schedule", axes: Axes) -> None:
        """Raise ScheduleError where it does not fit the loops, whatever is computed and however that is stored.

        A field ``loop`` names one of them, a field ``index`` what one or two of them run over.
        """
        loop, index = getattr(self, "loop", None), getattr(self, "index", None)
        if loop is not None and loop not in axes:
            raise ScheduleError(f"{self}: no loop {loop!r}; there are {', '.join(axes)}")
        if index is not None and index not in (indices := dict.fromkeys(axis.mode for axis in axes.values())):
            raise ScheduleError(f"{self}: no index {index!r}; the einsum has {', '.join(indices)}")

    def check(self, nest: "LoopNest") -> None:
        """Raise ScheduleError, with the reason and the cure, where it does not fit what it is applied to.

        ``check_loops`` has passed for all directives of the schedule, this one among them.
        """


class LoopPass(Directive, ABC):
    """A directive of another package: a pass over the loops that were made of a program, on CPUs.

    It states in ``check`` and ``check_loops`` where it may be applied. What a pass returns is proved to stay inside of its
    arrays like all code, or refused.
    """

    @abstractmethod
    def __str__(self) -> str:
        """Return the directive's text, such as ``reverse(k)``: an operator is saved and loaded by it."""

    @abstractmethod
    def rewrite(self, kernel: "ir.LoweredFunction", plan: "Plan") -> "ir.LoweredFunction":
        """Return the kernel that computes the same by other loops.

        Raises:
            ScheduleError: the directive does not fit the program; the message says why.
        """


def misfit_of_directive(_: str, value: object) -> str | None:
    """Say what keeps ``value`` from making directives: a function, or a class derived from `LoopPass` as it is called."""
    if not callable(value):
        return "cannot be called"
    if not isinstance(value, type) or not issubclass(value, LoopPass):
        return None
    if missing := sorted(value.__abstractmethods__):
        return f"does not define {' and '.join(missing)}; __str__ returns its text, as 'reverse(k)'"
    try:
        inspect.signature(value.rewrite).bind(value, "kernel", "plan")
    except TypeError:
        return f"defines rewrite{inspect.signature(value.rewrite)}; expected rewrite(self, kernel, plan)"
    return None


def check_formats(nest: "LoopNest") -> None:
    """Raise ScheduleError where the loops are not those that formats need, or formats do not fit each other."""
    assignment, schedule = nest.assignment, nest.schedule
    for name, format in nest.formats.items():
        for mode, size in format.splits.items():
            if schedule.splits.get(mode) != size:
                raise ScheduleError(
                    f"format of {name} splits {mode} by {size}, so the schedule needs "
                    f"split({mode},{size}); it has {schedule}"
                )
        _check_axes(nest, name, format)
        indices = assignment.access(name).indices
        if format.modes != indices:
            raise ScheduleError(
                f"format of {name} has the modes ({','.join(format.modes)}), but it is read as "
                f"{assignment.access(name)}; name them ({','.join(indices)}), in this order"
            )
    if nest.accumulate and assignment.monoid.name != "sum":
        raise ScheduleError(
            f"the parts of a hybrid are added up, but {assignment} reduces by "
            f"{assignment.monoid.name}; store the operand in one format"
        )
    if nest.accumulate and assignment.output.tensor in nest.halves:
        raise ScheduleError(
            "the parts of a hybrid add to one output, which would round in between; it is kept in 16 bits here"
        )


def check_loops(nest: "LoopNest") -> None:
    """Raise ScheduleError where no order of the loops reaches all levels, or partial results have no place."""
    for search in nest.reach.searches:
        if not search.level.searchable and not search.in_lanes:
            raise ScheduleError(
                f"{search.level} of {search.operand} cannot be searched; "
                f"put a loop {search.level.axis.name} where it is stored"
            )
    for name, format in nest.formats.items():
        if not nest.reach.leaf.has_value(name, format):
            reached = nest.reach.leaf.levels[name]
            raise ScheduleError(
                f"no loop of {nest.schedule} reaches {format.levels[reached]} of {name} ({format})"
            )
    if not nest.monoid.single and nest.results.partial:
        raise ScheduleError(
            f"{nest.monoid.name} needs all reduced loops inside the output's; "
            f"move {', '.join(nest.assignment.reduced)} inwards (got {nest.schedule})"
        )
    passes = [directive for directive in nest.schedule.directives if isinstance(directive, LoopPass)]
    if passes and nest.schedule.grid_bind is not None:
        raise ScheduleError(f"{passes[0]}: directives of other packages are for CPUs (got {nest.schedule})")


def check_shared(directive: Directive, loop: str, nest: "LoopNest") -> None:
    """Raise ScheduleError where the iterations of a loop have an order that threads cannot share."""
    level = nest.reach.leading_level(loop)
    if level is not None and level.sequential:
        raise ScheduleError(f"{directive}: the coordinates of {loop} can only be read in order")


def _check_axes(nest: "LoopNest", name: str, format: Format) -> None:
    """Raise ScheduleError unless slots and diagonals have their loops, and permuted modes are the format's own."""
    for axis in format.loops:
        if axis.part in ("slot", "diagonal") and axis not in nest.axes:
            raise ScheduleError(
                f"{format} needs a loop {axis.name} in place of {axis.mode}; name it in the reorder "
                f"(got {nest.schedule})"
            )
    for axis in format.followed:
        names = (axis.name, f"{axis.mode}1", f"{axis.mode}0")
        for directive in nest.schedule.directives:
            if getattr(directive, "loop", None) in names or getattr(directive, "index", None) in names:
                raise ScheduleError(
                    f"{directive}: {axis.name} follows from the position in {name} ({format}); it has no loop"
                )
    for axis in [axis for axis in format.axes if axis.part == "diagonal"]:
        for other, stored in nest.formats.items():
            if other != name and axis.mode in [followed.mode for followed in stored.followed]:
                raise ScheduleError(
                    f"{axis.mode} follows from the diagonals of {name} and from positions in {other}"
                )
    for mode in format.orders:
        others = [other for other in nest.formats if other != name and mode in nest.formats[other].modes]
        if others:
            raise ScheduleError(
                f"{name} stores {mode} in an order of its own, which {others[0]} does not share ({format})"
            )
