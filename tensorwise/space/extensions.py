"""Params that other packages add to the spaces of CPUs."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from tensorwise.errors import InputError, ScheduleError, TensorwiseError
from tensorwise.lower.program import Program
from tensorwise.program.einsum import Assignment
from tensorwise.program.workload import Workload
from tensorwise.reading import reason, shown
from tensorwise.registry import Registry, needs_instance
from tensorwise.space.config import Value
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

    param: Callable[[Assignment, str], Param | None]
    apply: Callable[[Program, Workload, Value], Program]


PARAMS: Final[Registry[ParamExtension]] = Registry("param", "params", {}, needs_instance(ParamExtension))
"""Extensions by name, of other packages alone: the Params of this one are in `storing` and `running`."""


def extended(
    params: Sequence[Param], assignment: Assignment, sparse: str
) -> tuple[tuple[Param, ...], tuple[tuple[str, ParamExtension], ...]]:
    """Return ``params`` with those of other packages, and the extension of each of these by name.

    An extension that fails, or whose Param has the name of another one, is left out with a warning.
    """
    found, extensions = list(params), list[tuple[str, ParamExtension]]()
    for name, extension in PARAMS.sound().items():
        try:
            param = extension.param(assignment, sparse)
            if param is None:
                continue
            if not isinstance(param, Param):
                raise InputError(f"it returns {shown(param)}, not a Param")
            if any(param.name == other.name for other in found):
                raise InputError(f"there is a Param {param.name!r} already")
        except Exception as error:  # whatever the other distribution raises
            warnings.warn(f"param {name!r} is left out: {reason(error)}", RuntimeWarning, stacklevel=3)
            continue
        found.append(param)
        extensions.append((param.name, extension))
    return tuple(found), tuple(extensions)


def apply_extension(
    name: str, extension: ParamExtension, program: Program, workload: Workload, value: Value
) -> Program:
    """Return the program with the value of a Param of another package.

    Raises:
        ScheduleError: the extension fails, or returns no program.
    """
    try:
        made = extension.apply(program, workload, value)
    except TensorwiseError:
        raise
    except Exception as error:  # whatever the other distribution raises
        raise ScheduleError(f"param {name!r} cannot apply {shown(value)}: {reason(error)}") from error
    if not isinstance(made, Program):
        raise ScheduleError(f"param {name!r} returns {shown(made)} for {shown(value)}, not a program")
    return made
