"""A static bound on the work of a program, so that hopeless ones are refused before they are compiled.

A discordant loop order (columns outside, rows stored) is legal and found by binary search, but a
full-extent search costs about 4.5 ns for each coordinate tried: at 50,000 x 50,000 that is 11 s.
"""

from tensorwise.errors import ScheduleError
from tensorwise.program.program import Program
from tensorwise.program.workload import Workload
from tensorwise.tensor.remap import Axis

MOST_STEPS = 2**36
"""Loop iterations that no kernel may exceed beyond what its terms need: minutes on any machine."""


def work_bound(program: Program, workload: Workload) -> int:
    """Return an upper bound on the number of loop iterations, counted over all loops of all parts.

    Positions of a compressed level are bounded by the number of entries and by its parents times
    its extent. Vector lanes count as iterations; the few that each part of a merge path adds do not.
    """
    return sum(_bound(part, workload) for part in program.parts)


def _bound(program: Program, workload: Workload) -> int:
    followed = {axis for format in program.formats.values() for axis in format.followed}
    loops = [axis for axis in program.schedule.loops(workload.assignment.indices) if axis not in followed]
    bound: set[str] = set()
    done = dict.fromkeys(program.formats, 0)
    positions: dict[str, int] = dict.fromkeys(program.formats, 1)
    total, visits = 0, 1

    def size(axis: Axis) -> int:
        extent, split = workload.sizes[axis.mode], program.schedule.splits.get(axis.mode, 1)
        most: int = axis.extent(extent, split, workload.sizes.get(axis.along, 1))
        return min(most, max(extent, 1)) if axis.part == "inner" else most

    extents = {axis.name: size(axis) for axis in loops}
    for place, axis in enumerate(
        loops
    ):  # an inner loop outside its outer one does not know where the index ends
        if axis.part == "inner" and Axis(axis.mode, "outer") in loops[place:]:
            extents[axis.name] = program.schedule.splits[axis.mode]

    def known(name: str, mode: str) -> bool:
        return name in bound or (name == mode and {f"{mode}1", f"{mode}0"} <= bound)

    for axis in loops:
        leader = next(
            (
                name
                for name, format in program.formats.items()
                if done[name] < len(format.levels)
                and format.levels[done[name]].axis == axis
                and not format.levels[done[name]].full
            ),
            None,
        )
        bound.add(axis.name)
        steps = extents[axis.name]
        if leader is not None and not program.formats[leader].levels[done[leader]].unique:
            steps = workload.sparse[leader].nnz
        visits *= steps
        if leader is not None:
            done[leader] += 1
            positions[leader] = min(positions[leader] * steps, workload.sparse[leader].nnz)
            visits = min(visits, _others(program, leader, done[leader], bound, extents, positions[leader]))
        total += visits
        for name, format in program.formats.items():
            while done[name] < len(format.levels):
                level = format.levels[done[name]]
                if level.single:
                    done[name] += 1
                    bound.add(level.axis.name)
                    extents[level.axis.name] = 1  # no loop: it follows the position above
                    continue
                if not known(level.axis.name, level.axis.mode):
                    break
                done[name] += 1
                positions[name] *= size(level.axis)
                if not level.full:
                    positions[name] = min(positions[name], workload.sparse[name].nnz)
                    visits = min(visits, _others(program, name, done[name], bound, extents, positions[name]))
    return total


def _others(
    program: Program, name: str, levels: int, bound: set[str], extents: dict[str, int], positions: int
) -> int:
    """Positions of an operand times the extents of the bound loops that do not lead to them."""
    stored = {axis.name for axis in program.formats[name].axes[:levels]}
    modes = {axis.mode for axis in program.formats[name].axes[:levels] if axis.part == "whole"}
    product = positions
    for loop in bound:
        if loop not in stored and loop.rstrip("01") not in modes:
            product *= extents[loop]
    return product


def check_work(program: Program, workload: Workload) -> None:
    """Raise ScheduleError when the program's loops would run out of all proportion to its terms."""
    steps = work_bound(program, workload)
    if steps > MOST_STEPS and steps > 64 * max(workload.terms, 1):
        raise ScheduleError(
            f"{program.name}: up to {steps:.2g} loop iterations for {workload.terms:.2g} terms; "
            "put the loops in the order of the stored levels"
        )
