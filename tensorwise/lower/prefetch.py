"""Prefetching: dense rows that later entries of a level need are asked for early."""

from typing import Final

from tensorwise.lower import ir
from tensorwise.lower.builder import Builder
from tensorwise.lower.env import Env, Lanes, Loop
from tensorwise.lower.ir import Const, Expr
from tensorwise.lower.operands import Operands
from tensorwise.lower.plan import Plan
from tensorwise.tensor.remap import Axis, join

CACHE_LINE_BYTES: Final = 64


def prefetch_rows(
    plan: Plan,
    operands: Operands,
    builder: Builder,
    env: Env,
    loop: Axis,
    rest: tuple[Loop, ...],
    name: str,
    position: Expr,
) -> None:
    """Ask for the dense rows that later entries of this level need."""
    level = env.states[name].levels
    for directive in plan.schedule.prefetches:
        access = plan.assignment.access(directive.tensor)
        listed = plan.formats[name].levels[level].coordinate_array
        if loop.mode not in access.indices or listed is None or loop.part != "whole":
            continue
        ahead = ir.smaller(position + directive.distance, operands.num_positions(name, level) - 1)
        coordinates = {**env.coordinates, loop.mode: operands.arrays[name][level][listed][ahead]}
        lanes = next((item for item in rest if isinstance(item, Lanes)), None)
        width = 1
        if lanes is not None and lanes.axis.mode in access.indices:
            outer = env.coordinates.get(f"{lanes.axis.mode}1")
            split = operands.split(lanes.axis.mode)
            whole = lanes.base if outer is None else join(outer, lanes.base, split)
            coordinates[lanes.axis.mode] = whole
            width = lanes.vectors * lanes.lanes
        elif lanes is None:  # the row is walked further inside
            walked = (a.mode for a in rest if isinstance(a, Axis) and a.mode in access.indices)
            extents = [operands.extents[mode] for mode in walked]
            width = max([1, *(int(extent.value) for extent in extents if isinstance(extent, Const))])
        where = {index: coordinates.get(index, Const(0)) for index in access.indices}
        base = builder.let("ahead", operands.index_of(access, where))
        buffer = operands.values[directive.tensor]
        for offset in range(0, width, CACHE_LINE_BYTES // buffer.item_bytes):
            builder.append(ir.PrefetchLine(buffer, base + offset))
