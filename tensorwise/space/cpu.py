"""The CPU's space: WACO's SuperSchedule (Table 4.1) for any einsum with one sparse operand, and our own Params.

How the operand is stored is in ``storing.py``, how the nest runs in ``running.py``, and hybrids, which store
long rows or dense groups of columns in a second format, in ``hybrids.py``. Here a config, as ``readings.py`` reads it,
becomes a program.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, final
from weakref import WeakKeyDictionary

from tensorwise.lower.program import Program, Remainder
from tensorwise.program.einsum import Assignment
from tensorwise.program.schedule import (
    Schedule,
)
from tensorwise.program.workload import Workload
from tensorwise.registry import count_registrations
from tensorwise.runtime.loads import Loads
from tensorwise.runtime.work import Bounds
from tensorwise.space.config import Config, Value
from tensorwise.space.extensions import ParamExtension, apply_extension, extended
from tensorwise.space.hybrids import HYBRID_PARAM, hybrid_param, rule
from tensorwise.space.readings import (
    operand,
)
from tensorwise.space.running import running
from tensorwise.space.scheduling import directives_so_far, nest_so_far
from tensorwise.space.space import Rule, Space
from tensorwise.space.storing import storing
from tensorwise.space.structures import dense_columns, long_rows
from tensorwise.tensor.orders import Places
from tensorwise.tensor.positions import Positions

if TYPE_CHECKING:
    from tensorwise.space.strips import Mapper

MOST_STEPS_A_TERM: Final = 16
"""Iterations of discordant search that are tried for each term; more have never paid ..."""
FREE_STEPS: Final = 2**20
"""... beyond these, which take milliseconds: small operands may be searched in any order."""


class _Counted(NamedTuple):
    """What counts in a pattern, and what loops do by it."""

    positions: Positions
    loads: Loads
    loops: dict[tuple[Value, ...], Bounds]


@final
@dataclass(frozen=True)
class CpuSpace(Space[Program]):
    """Choices for one assignment; made by :func:`cpu_space`.

    Attributes:
        assignment: what is computed.
        extensions: Params of other packages -> what they change in a program.
    """

    assignment: Assignment | None = None
    extensions: tuple[tuple[str, ParamExtension], ...] = ()

    def mapper(self, workload: Workload) -> "Mapper | None":
        """Return COGNATE's pi for products of matrices; None for other workloads."""
        if len(workload.sizes) != 3 or workload.entries.order != 2:
            return None
        # By name: of what a tuner runs, only a model of several devices asks for it.
        mapper: Mapper = import_module("tensorwise.space.strips").cpu(workload)
        return mapper

    def program(self, workload: Workload, config: Mapping[str, Value]) -> Program:
        """Return the program that ``config`` stands for."""
        nest = nest_so_far(config, workload)
        directives = (*nest.schedule.directives, *directives_so_far(config, workload, nest))
        remainder = (
            None
            if config[HYBRID_PARAM] in (None, "none")
            else self._remainder(workload, str(config[HYBRID_PARAM]))[1]
        )
        program = Program(workload.assignment, nest.formats, Schedule(directives), remainder=remainder)
        for name, extension in self.extensions:
            if config[name] is not None:
                program = apply_extension(name, extension, program, workload, config[name])
        return program

    def steps(self, workload: Workload, config: Mapping[str, Value]) -> int:
        """Return a bound on the loop iterations of a program; see ``work_bound``. It does not depend on how loops run."""
        steps = self.bounds(workload, config).steps
        if config[HYBRID_PARAM] not in (None, "none"):
            # neither part may take more than if it had all entries
            steps += self.steps(workload, self._remainder(workload, str(config[HYBRID_PARAM]))[0])
        return steps

    def bounds(self, workload: Workload, config: Mapping[str, Value]) -> Bounds:
        """Return bounds on what loops do; of a hybrid's, on those of the rest, as if it had all entries."""
        return self._nested(workload, config)[1]

    def counted(self, workload: Workload, config: Mapping[str, Value]) -> Bounds:
        """Return what loops do, as ``bounds``, where positions were counted in the pattern: no bounds, but closer."""
        positions, _, known = self._counted(workload)
        choices = tuple([config[name] for name in self._nesting])
        if choices not in known:
            nest = self._nested(workload, config)[0]
            known[choices] = Bounds.of(nest, workload, lambda _, format, levels: positions.of(format, levels))
        return known[choices]

    def loads(self, workload: Workload) -> Loads:
        """Return what counts how evenly loops over the pattern are shared."""
        return self._counted(workload).loads

    def _counted(self, workload: Workload) -> "_Counted":
        if workload not in self._counts:
            places = Places(workload.entries)
            self._counts[workload] = _Counted(
                Positions(workload.entries, places), Loads(workload.entries, places), {}
            )
        return self._counts[workload]

    def _nested(self, workload: Workload, config: Mapping[str, Value]) -> tuple[Program, Bounds]:
        """Return the program without loop directives and remainder, and its bounds."""
        known = self._nests.setdefault(workload, {})
        choices = tuple([config[name] for name in self._nesting])
        if choices not in known:
            plan = nest_so_far(config, workload)
            nest = Program(workload.assignment, plan.formats, plan.schedule)
            known[choices] = nest, Bounds.of(nest, workload)
        return known[choices]

    @cached_property
    def _nesting(self) -> tuple[str, ...]:
        """The Params that say what is stored and which loops there are."""
        return tuple(
            param.name
            for param in self.params
            if (param.binds == "pack" and param.name != HYBRID_PARAM)
            or param.name == "order"
            or param.name.startswith("split_")
        )

    @cached_property
    def _nests(self) -> "WeakKeyDictionary[Workload, dict[tuple[Value, ...], tuple[Program, Bounds]]]":
        """Nests so far: most configs that a search looks at differ in how loops run."""
        return WeakKeyDictionary()

    @cached_property
    def _counts(self) -> "WeakKeyDictionary[Workload, _Counted]":
        """What was counted so far."""
        return WeakKeyDictionary()

    @cached_property
    def _parts(self) -> "WeakKeyDictionary[Workload, dict[str, tuple[Config, Remainder]]]":
        """Cached remainders of hybrids by kind: the work rule needs one for every config, and each walks the table."""
        return WeakKeyDictionary()

    def _remainder(self, workload: Workload, kind: str) -> tuple[Config, Remainder]:
        """Return the config and the remainder of one kind of hybrid, with a format and a schedule that suit it."""
        known = self._parts.setdefault(workload, {})
        if kind not in known:
            partial = dense_columns(self, workload) if kind == "columns" else long_rows(workload)
            config = self.complete({**partial, HYBRID_PARAM: "none"}, workload)
            program = self.program(workload, config)
            format = program.formats[operand(workload).tensor]
            known[kind] = config, Remainder(rule(kind, workload.entries), format, program.schedule)
        return known[kind]


def cpu_space(assignment: Assignment, sparse: str = "A") -> CpuSpace:
    """Return the space of ``assignment`` whose only sparse operand is ``sparse``."""
    return _cpu_space(assignment, sparse, count_registrations())


@lru_cache(maxsize=64)
def _cpu_space(assignment: Assignment, sparse: str, _registrations: int) -> CpuSpace:
    own = (*storing(assignment, sparse), *running(assignment), hybrid_param())
    params, extensions = extended(own, assignment, sparse)
    work = Rule(
        "work",
        f"it takes more than {MOST_STEPS_A_TERM} loop iterations a term, so that searching dominates",
        _affordable,
    )
    return CpuSpace("cpu", params, (work,), assignment, extensions)


def cpu_space_of(workload: Workload) -> CpuSpace:
    """Return the space of a workload with one sparse operand."""
    return cpu_space(workload.assignment, next(iter(workload.sparse)))


def _affordable(config: Mapping[str, Value], workload: Workload) -> bool:
    space = cpu_space_of(workload)
    return space.steps(workload, config) <= MOST_STEPS_A_TERM * max(workload.terms, 1) + FREE_STEPS
