"""Where reductions happen: which loops fit into registers, and which sums can be taken separate from other factors."""

from typing import Final

from tensorwise.errors import ScheduleError
from tensorwise.lower.env import Env, Lanes, Loop, axis_of
from tensorwise.lower.plan import Plan
from tensorwise.program.einsum import Access, Apply, Expression, Index, product_of
from tensorwise.tensor.remap import Axis

MAX_ACCUMULATORS: Final = 64
"""More output slots than this are reduced in memory: no machine has the registers."""


def fits_registers(plan: Plan, loops: tuple[Loop, ...]) -> bool:
    """Whether accumulators can hold all that the remaining loops produce, and something is reduced in them."""
    slots, reductions = 1, False
    for loop in loops:
        axis = axis_of(loop)
        if isinstance(loop, Axis) and plan.is_parallel(loop):
            return False
        if axis.mode in plan.late_modes:  # where the results belong is known further inside only
            return False
        if axis.mode not in plan.assignment.free_indices:
            reductions = True
        elif isinstance(loop, Lanes):
            slots *= loop.vectors
        elif plan.is_unrolled(loop):
            slots *= plan.schedule.splits[loop.mode]
        else:
            return False
    return reductions and slots <= MAX_ACCUMULATORS


def reduces_in_registers(plan: Plan, loops: tuple[Loop, ...]) -> bool:
    """Whether every reduction among ``loops`` happens in accumulators."""
    if not loops or fits_registers(plan, loops):
        return True
    return not plan.has_shared_outputs(axis_of(loops[0])) and reduces_in_registers(plan, loops[1:])


def wants_factoring(plan: Plan, env: Env, loops: tuple[Loop, ...]) -> bool:
    """Whether the schedule wants the sum over these loops by itself."""
    directive, at = plan.schedule.factor, loops[0] if loops else None
    return directive is not None and env.term is None and isinstance(at, Axis) and at.name == directive.loop


def factor_term(plan: Plan, env: Env, loops: tuple[Loop, ...]) -> tuple[Expression, Expression]:
    """Return the factors that change in the loops, which are summed, and those that their sum is multiplied by.

    Raises ScheduleError where the directive does not fit.
    """
    directive, factors = plan.schedule.factor, plan.assignment.factors
    inside = [factor for factor in factors if _changes(plan, factor, env)]
    outside = [factor for factor in factors if factor not in inside]
    if plan.monoid.name != "sum" or not inside or not outside or not fits_registers(plan, loops):
        raise ScheduleError(
            f"{directive}: it takes a loop in which some factors of a sum of products change and others do not, "
            f"and which leaves room for accumulators (got {plan.assignment}; {plan.schedule})"
        )
    if _may_be_empty(plan, env, loops):
        loop = directive.loop if directive else None
        raise ScheduleError(
            f"{directive}: a sum of no terms must not meet the other factors, which may be infinite; what is "
            f"stored along {loop} and inside has to be compressed below a compressed level, as in C(k) C(l), "
            "and of a split index that is not a multiple, the inner part is not outside"
        )
    return product_of(inside), product_of(outside)


def _may_be_empty(plan: Plan, env: Env, loops: tuple[Loop, ...]) -> bool:
    """Whether it cannot be told beforehand that the loops meet an entry (extents of 0 have no such program)."""
    formats, met = plan.formats, [axis_of(loop) for loop in loops]
    whole = {axis.mode for axis in met if axis.part != "outer"} | plan.exact
    # Of 10 = 8 + 2, inner part 1 has two outer parts, inner part 5 has one; of 1, inner part 1 has none.
    if any(axis.mode in plan.assignment.reduced and axis.mode not in whole for axis in met):
        return True
    led = [loop for loop in loops if isinstance(loop, Axis)]
    for name, format in formats.items():
        above, left = env.states[name].levels - 1, format.levels[env.states[name].levels :]
        if not left:
            continue
        levels = (*format.levels[above : above + 1], *left)
        if above < 0 or not all(level.listed and level.unique and not level.pads for level in levels):
            return True
        if [level.axis for level in left] != [loop for loop in led if any(loop == a.axis for a in left)]:
            return True
    return sum(env.states[name].levels < len(f.levels) for name, f in formats.items()) > 1


def _changes(plan: Plan, factor: Expression, env: Env) -> bool:
    """Whether a factor is not the same throughout what is left of the reduced loops."""
    match factor:
        case Access(tensor=name, indices=indices):
            if name in plan.formats:
                return env.states[name].value is None
            kept = plan.assignment.free_indices
            return any(index not in env.coordinates and index not in kept for index in indices)
        case Apply(arguments=arguments):
            return any(_changes(plan, argument, env) for argument in arguments)
        case Index(name=name):
            return name not in env.coordinates
    return False
