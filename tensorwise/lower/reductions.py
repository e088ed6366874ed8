"""Where reductions happen: which of the loops that are left, strips among them, fit into registers."""

from tensorwise.lower.env import Env, Lanes, Loop, axis_of
from tensorwise.lower.plan import Plan
from tensorwise.tensor.remap import Axis


def fits_registers(plan: Plan, loops: tuple[Loop, ...]) -> bool:
    """Whether registers can hold all that the remaining loops produce; see ``LoopNest.fits_registers``."""
    if loops and isinstance(loops[-1], Lanes):
        strip, outer = loops[-1], tuple(axis_of(loop) for loop in loops[:-1])
        return plan.fits_registers(outer, strip.axis, strip.vectors)
    return plan.fits_registers(tuple(axis_of(loop) for loop in loops))


def reduces_in_registers(plan: Plan, loops: tuple[Loop, ...]) -> bool:
    """Whether every reduction among ``loops`` happens in registers."""
    if not loops or fits_registers(plan, loops):
        return True
    return not plan.has_shared_outputs(axis_of(loops[0])) and reduces_in_registers(plan, loops[1:])


def wants_factoring(plan: Plan, env: Env, loops: tuple[Loop, ...]) -> bool:
    """Whether the schedule wants the sum over these loops by itself."""
    directive, at = plan.schedule.factor, loops[0] if loops else None
    return directive is not None and env.term is None and isinstance(at, Axis) and at.name == directive.loop
