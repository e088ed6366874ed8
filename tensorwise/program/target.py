"""What loops become on another processor than a CPU: checks of directives, lowering and text, a row for each target.

A target's module is imported by name when a schedule first deals loops to it: programs of CPUs need none of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final, final

from tensorwise.codegen import ir
from tensorwise.program.schedule import Schedule

if TYPE_CHECKING:
    from tensorwise.program.plan import Plan


@final
@dataclass(frozen=True)
class Target:
    """What a processor makes of a plan.

    Attributes:
        check: raises ScheduleError where directives for it do not fit each other, the einsum or the formats.
        lower: returns the loop IR of a plan that was checked.
        text: returns the text of a kernel that ``lower`` returned.
    """

    check: Callable[["Plan"], None]
    lower: Callable[["Plan"], ir.Kernel]
    text: Callable[[ir.Kernel], str]


TARGETS: Final = {"gpu": "tensorwise.program.gpu:TARGET"}
"""Name of a target -> where its Target is, as entry points name it: ``module:name``."""


def target_of(schedule: Schedule) -> Target | None:
    """Return what a schedule's loops are dealt to; None: they run on a CPU."""
    if schedule.dealt is None:
        return None
    found = resolve_name(TARGETS["gpu"])
    assert isinstance(found, Target)
    return found
