"""A static bound on the work of a program, so that hopeless ones are refused before they are compiled.

A discordant loop order (columns outside, rows stored) is legal and found by binary search, but a
full-extent search costs about 4.5 ns for each coordinate tried: at 50,000 x 50,000 that is 11 s.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Self

from tensorwise.errors import ScheduleError
from tensorwise.lower.program import Program
from tensorwise.program.einsum import Apply, Expression
from tensorwise.program.workload import Workload
from tensorwise.tensor.format import Format
from tensorwise.tensor.remap import Axis

ENTRY_S: Final = 1e-9
TERM_S: Final = 0.06e-9
"""About what one thread takes for an entry, and for each term of it that runs in lanes ..."""
TERMS_A_POWER: Final = 16
"""... an exponential being as much work as so many terms."""
SHARED_S: Final = 75e-6
"""Calls that take one thread this long are worth a second one, which may have to be woken."""
MOST_STEPS = 2**36
"""Loop iterations that no kernel may exceed beyond what its terms need: minutes on any machine."""


class Bounded(NamedTuple):
    """A loop of a nest, in upper bounds.

    Attributes:
        extent: iterations each time that the loop starts.
        starts: how often it starts.
        steps: iterations in all; fewer than starts times extent where a compressed level holds fewer positions.
        reached: of these, how many go on: the others searched in vain for what they need.
        stored: whether it runs over what a compressed level stores.
        searches: compressed levels that are searched in each iteration.
    """

    axis: Axis
    extent: int
    starts: int
    steps: int
    reached: int
    stored: bool
    searches: int


def worth_sharing(workload: Workload) -> bool:
    """Whether a call takes long enough for several threads, as far as its number of terms says."""
    terms = workload.terms * (1 + TERMS_A_POWER * _powers(workload.assignment.expression))
    return bool(ENTRY_S * workload.entries.nnz + TERM_S * terms >= SHARED_S)


def _powers(expression: Expression) -> int:
    if not isinstance(expression, Apply):
        return 0
    return (expression.operator == "exp") + sum(map(_powers, expression.arguments))


def work_bound(program: Program, workload: Workload) -> int:
    """Return an upper bound on the number of loop iterations, counted over all loops of all parts.

    Positions of a compressed level are bounded by the number of entries and by its parents times
    its extent. Vector lanes count as iterations; the few that each part of a merge path adds do not.
    """
    return sum(Bounds.of(part, workload).steps for part in program.parts)


Positions = Callable[[str, Format, int], int]
"""How many positions the first so many levels of an operand's format hold; the last of these is not full."""


class Bounds(NamedTuple):
    """What a program that is no hybrid does on a workload, in upper bounds.

    Attributes:
        loops: outermost first.
        values: operand -> how many it stores, padding included.
    """

    loops: Sequence[Bounded]
    values: Mapping[str, int]

    @classmethod
    def of(cls, program: Program, workload: Workload, positions: Positions | None = None) -> Self:
        """Count them; how loops run (in parallel, in tiles) does not matter.

        Args:
            positions: what is known of the pattern; None: a level that is not full holds at most all entries.
        """
        return cls(*_counted(program, workload, positions or (lambda name, *_: workload.sparse[name].nnz)))

    @property
    def steps(self) -> int:
        """The iterations of all loops."""
        return sum(loop.steps for loop in self.loops)


def _counted(program: Program, workload: Workload, held: Positions) -> tuple[list[Bounded], dict[str, int]]:
    followed = {axis for format in program.formats.values() for axis in format.followed}
    loops = [axis for axis in program.schedule.loops(workload.assignment.indices) if axis not in followed]
    bound: set[str] = set()
    done = dict.fromkeys(program.formats, 0)
    positions: dict[str, int] = dict.fromkeys(program.formats, 1)
    nest: list[Bounded] = []
    visits = 1

    def size(axis: Axis) -> int:
        extent, split = workload.sizes[axis.mode], program.schedule.splits.get(axis.mode, 1)
        most: int = axis.extent(extent, split, workload.sizes.get(axis.along, 1))
        return min(most, max(extent, 1)) if axis.part == "inner" else most

    extents = {axis.name: size(axis) for axis in loops}
    for place, axis in enumerate(loops):
        # an inner loop outside its outer one does not know where the index ends
        if axis.part == "inner" and Axis(axis.mode, "outer") in loops[place:]:
            extents[axis.name] = program.schedule.splits[axis.mode]

    def is_bound(name: str, mode: str) -> bool:
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
        starts, searches = visits, 0
        # Entries that are found by their numbers have no loop: each place of the numbers leads to one, found or not.
        found = (
            leader is not None
            and leader == program.schedule.located
            and done[leader] + 1 == len(program.formats[leader].levels)
        )
        visits *= 1 if found else steps
        if leader is not None:
            done[leader] += 1
            most = held(leader, program.formats[leader], done[leader])
            positions[leader] = min(positions[leader] * steps, most)
            if not found:
                visits = min(
                    visits, _others(program, leader, done[leader], bound, extents, positions[leader])
                )
        ran = visits
        for name, format in program.formats.items():
            while done[name] < len(format.levels):
                level = format.levels[done[name]]
                if level.single:
                    done[name] += 1
                    bound.add(level.axis.name)
                    extents[level.axis.name] = 1  # no loop: it follows the position above
                    continue
                if not is_bound(level.axis.name, level.axis.mode):
                    break
                done[name] += 1
                positions[name] *= size(level.axis)
                if not level.full:
                    searches += 1
                    positions[name] = min(positions[name], held(name, format, done[name]))
                    visits = min(visits, _others(program, name, done[name], bound, extents, positions[name]))
        nest.append(Bounded(axis, extents[axis.name], starts, ran, visits, leader is not None, searches))
    return nest, positions


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
