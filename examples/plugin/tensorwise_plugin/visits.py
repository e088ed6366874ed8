"""A Param: rows in the order of their lengths, so that the longest are not left for the end."""

from dataclasses import replace

from tensorwise.lower.program import Program
from tensorwise.program.einsum import Assignment
from tensorwise.program.schedule import Schedule, Visit
from tensorwise.program.workload import Workload
from tensorwise.space.config import Value
from tensorwise.space.extensions import ParamExtension
from tensorwise.space.param import Earlier, Param
from tensorwise.space.params import Choice


def _allowed(earlier: Earlier, workload: Workload) -> tuple[Value, ...] | None:
    """Only where threads take rows, all of them and one after the other, in chunks."""
    rows = f"{workload.assignment.access('A').indices[0]}1"
    whole = (
        earlier["parallel"] == rows and earlier["policy"] == "dynamic" and earlier["layout"] == "coordinates"
    )
    dense = earlier[f"kind_{rows}"] == "U" and earlier[f"split_{rows[:-1]}"] == 1
    return ("stored", "length") if whole and dense else None


def _param(assignment: Assignment, sparse: str) -> Param | None:
    if sparse != "A":
        return None
    return Choice(
        "visit_rows",
        ("stored", "length"),
        binds="compile",
        narrow=_allowed,
        doc="Order in which threads take rows; longest first leaves short ones to even out the end.",
    )


def _apply(program: Program, workload: Workload, value: Value) -> Program:
    if value == "stored":
        return program
    rows = workload.assignment.access("A").indices[0]
    directives = (*program.schedule.directives, Visit(rows, str(value)))
    return replace(program, schedule=Schedule(directives))


VISIT_ROWS = ParamExtension(_param, _apply)
