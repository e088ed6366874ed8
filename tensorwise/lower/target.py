"""What loops become on another processor than a CPU: checks of directives, lowering and text, a row for each target.

A target's module is imported by name when a schedule first deals loops to it: programs of CPUs need none of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tensorwise.lower import ir
from tensorwise.program.schedule import Schedule
from tensorwise.registry import Registry, needs_instance

if TYPE_CHECKING:
    from tensorwise.lower.plan import Plan


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
    lower: Callable[["Plan"], ir.LoweredFunction]
    text: Callable[[ir.LoweredFunction], str]


TARGETS: Final[Registry[Target]] = Registry(
    "target", "targets", {"gpu": "tensorwise.lower.gpu:TARGET"}, needs_instance(Target)
)
"""What loops can be dealt to, other than the threads of a CPU, by name."""


def target_of(schedule: Schedule) -> Target | None:
    """Return what a schedule's loops are dealt to; None: they run on a CPU."""
    return None if schedule.grid_bind is None else TARGETS["gpu"]
