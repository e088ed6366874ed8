"""Params that other packages add to the spaces of CPUs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tensorwise.program.einsum import Assignment
from tensorwise.program.program import Program
from tensorwise.program.workload import Workload
from tensorwise.registry import Registry
from tensorwise.space.config import Value

if TYPE_CHECKING:
    from tensorwise.space.param import Param


@final
@dataclass(frozen=True)
class ParamExtension:
    """A Param, and what it changes in a program.

    Attributes:
        param: returns the Param for an assignment and the name of its sparse operand, None where it has none. Its name must
            be one that no Param of this package has; it may depend on all of these.
        apply: returns the program of a config, given the program without this Param, the workload and the value (never
            None). Raises ScheduleError or FormatError where the value does not fit: the candidate is then refused.
    """

    param: "Callable[[Assignment, str], Param | None]"
    apply: Callable[[Program, Workload, Value], Program]


PARAMS: Final[Registry[ParamExtension]] = Registry("param", "params", {})
"""Extensions by name, of other packages alone: the Params of this one are in `storing` and `running`."""
