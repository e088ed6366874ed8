"""Factors of a sum of products that do not change in its inner loops, which can be multiplied with the sum instead."""

from typing import TYPE_CHECKING

from tensorwise.errors import ScheduleError
from tensorwise.program.einsum import Access, Apply, Expression, Index, product_of
from tensorwise.program.reach import Point
from tensorwise.tensor.remap import Axis

if TYPE_CHECKING:
    from tensorwise.program.loop_nest import LoopNest


def split_factors(nest: "LoopNest", loop: str) -> tuple[Expression, Expression]:
    """Return the factors that change in ``loop`` and inside it, which are summed there, and the others.

    Raises:
        ScheduleError: there is no such sum, registers cannot hold it, or it may be empty: 0 must not meet infinite factors.
    """
    point, place = nest.reach.before[loop], [axis.name for axis in nest.loops].index(loop)
    factors = nest.assignment.factors
    inside = [factor for factor in factors if _changes(factor, nest, point)]
    outside = [factor for factor in factors if factor not in inside]
    if nest.monoid.name != "sum" or not inside or not outside or not nest.opens_registers(place):
        raise ScheduleError(
            f"factor({loop}): it takes a loop in which some factors of a sum of products change and others do not, "
            f"and which leaves room for accumulators (got {nest.assignment}; {nest.schedule})"
        )
    if _may_be_empty(nest, point, nest.loops[place:]):
        raise ScheduleError(
            f"factor({loop}): a sum of no terms must not meet the other factors, which may be infinite; what is "
            f"stored along {loop} and inside has to be compressed below a compressed level, as in C(k) C(l), "
            "and of a split index that is not a multiple, the inner part is not outside"
        )
    return product_of(inside), product_of(outside)


def _may_be_empty(nest: "LoopNest", point: Point, loops: tuple[Axis, ...]) -> bool:
    """Whether it cannot be told beforehand that the loops meet an entry (extents of 0 have no such program)."""
    tile = nest.schedule.tile
    strip = [] if tile is None or tile.loop in [axis.name for axis in loops] else [nest.axis(tile.loop)]
    met = [*loops, *strip]
    whole = {axis.mode for axis in met if axis.part != "outer"} | nest.exact
    # Of 10 = 8 + 2, inner part 1 has two outer parts, inner part 5 has one; of 1, inner part 1 has none.
    if any(axis.mode in nest.assignment.reduced and axis.mode not in whole for axis in met):
        return True
    for name, format in nest.formats.items():
        above, left = point.levels[name] - 1, format.levels[point.levels[name] :]
        if not left:
            continue
        levels = (*format.levels[above : above + 1], *left)
        if above < 0 or not all(level.listed and level.unique and not level.pads for level in levels):
            return True
        if [level.axis for level in left] != [axis for axis in loops if any(axis == a.axis for a in left)]:
            return True
    return sum(not point.has_value(name, format) for name, format in nest.formats.items()) > 1


def _changes(factor: Expression, nest: "LoopNest", point: Point) -> bool:
    """Whether a factor is not the same throughout what is left of the reduced loops."""
    match factor:
        case Access(tensor=name, indices=indices):
            if name in nest.formats:
                return not point.has_value(name, nest.formats[name])
            kept = nest.assignment.free_indices
            return any(index not in point.coordinates and index not in kept for index in indices)
        case Apply(arguments=arguments):
            return any(_changes(argument, nest, point) for argument in arguments)
        case Index(name=name):
            return name not in point.coordinates
    return False
