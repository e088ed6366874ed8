"""What a schedule asks of a GPU, checked before a loop is emitted."""

from typing import Final

from tensorwise.errors import ScheduleError
from tensorwise.lower.plan import Plan
from tensorwise.program.schedule import WARP, Bind
from tensorwise.tensor.remap import Axis

MAX_BLOCK_THREADS: Final = 1024
"""Threads of a block, on every GPU since 2010."""
MOST_SHARED_BYTES: Final = 48 * 1024
"""Shared memory that a block may have without asking for more, on every GPU since 2010."""
LOAD_WIDTHS: Final = (1, 2, 4)
"""Neighbours that a thread loads at once: up to 16 bytes in one instruction."""


def check_launch(plan: Plan) -> None:
    """Raise ScheduleError when directives for a GPU do not fit each other, the einsum or the formats."""
    schedule = plan.schedule
    assert schedule.dealt is not None
    _check_operands(plan)
    _check_dealing(plan, schedule.dealt)
    _check_threads(plan)
    if schedule.threads * schedule.teams > MAX_BLOCK_THREADS:
        raise ScheduleError(
            f"{schedule}: {schedule.teams} teams of {schedule.threads} threads are more than the "
            f"{MAX_BLOCK_THREADS} of a block"
        )
    for stage in schedule.stages.values():
        if stage.what not in ("indices", "values", "both") or stage.size < 1:
            raise ScheduleError(f"{stage}: a number of positions, and indices, values or both")
        if stage.loop == schedule.dealt.loop or (schedule.tile and schedule.tile.loop == stage.loop):
            raise ScheduleError(f"{stage}: {stage.loop} is dealt to blocks or threads; stage a loop inside")


def _check_operands(plan: Plan) -> None:
    if plan.padded:
        padded = next(str(format) for format in plan.formats.values() if format.padded)
        raise ScheduleError(f"programs for GPUs run over formats without padding, got {padded}")
    if plan.halves:
        raise ScheduleError(
            f"programs for GPUs do not keep operands in 16 bits, got {', '.join(plan.halves)}"
        )
    if plan.schedule.prefetches:
        raise ScheduleError(
            f"{plan.schedule.prefetches[0]}: GPUs hide latencies by other threads; leave it out"
        )


def _check_dealing(plan: Plan, dealt: Bind) -> None:
    """The loop whose iterations are dealt to blocks, and the strips that may be as well."""
    schedule, parallel = plan.schedule, plan.schedule.parallel
    to_blocks = [bind for bind in schedule.binds if bind.to in ("block", "warp")]
    strips = [bind for bind in to_blocks if bind.loop != dealt.loop]
    if len(to_blocks) - len(strips) > 1 or len(strips) > 1:
        raise ScheduleError(
            f"one loop is dealt to blocks, and strips of the tile may be as well (got {schedule})"
        )
    for bind in strips:
        tiled = schedule.tile is not None and schedule.tile.loop == bind.loop
        if not tiled or bind.to != "block" or bind.count != 1:
            raise ScheduleError(f"{bind}: a second loop dealt to blocks is the tile's, as bind(LOOP,block)")
        if Axis.named(bind.loop).mode not in plan.assignment.kept:  # type: ignore[union-attr]
            raise ScheduleError(f"{bind}: strips that are summed up belong to one team")
    assert parallel is not None
    cuts = parallel.policy in ("dynamic", "pieces") and parallel.reduction == "atomic"
    if parallel.loop != dealt.loop or not cuts:
        raise ScheduleError(
            f"{parallel}: on a GPU it may only cut the rows of {dealt.loop}, as parallel({dealt.loop},pieces,64)"
        )


def _check_threads(plan: Plan) -> None:
    """The tile whose lanes are threads."""
    schedule, tile = plan.schedule, plan.schedule.tile
    bound = [bind for bind in schedule.binds if bind.to in ("thread", "lane")]
    if len(bound) > 1:
        raise ScheduleError(f"{bound[1]}: the threads of a team are the lanes of one tile (got {schedule})")
    if tile is None and not bound:
        return
    if tile is None or any(bind.loop != tile.loop for bind in bound):
        raise ScheduleError(f"{bound[0]}: threads are the lanes of a tile, as in tile({bound[0].loop},2x32)")
    axis, threads = Axis.named(tile.loop), schedule.threads
    assert axis is not None
    for bind in bound:
        kept = axis.mode in plan.assignment.kept
        if kept != (bind.to == "thread"):
            raise ScheduleError(
                f"{bind}: {'lane is for what is summed up' if kept else 'what threads sum up is combined by shuffles'}; "
                f"write bind({bind.loop},{'thread' if kept else 'lane'},{bind.count})"
            )
        small = threads <= WARP and threads & (threads - 1) == 0
        if not small and (bind.to == "lane" or threads % WARP):
            whole = "" if bind.to == "lane" else f", or a multiple of {WARP}"
            raise ScheduleError(f"{bind}: threads are a power of two up to {WARP}{whole}")
    own, rest = divmod(tile.lanes, threads)
    if rest or own not in LOAD_WIDTHS:
        raise ScheduleError(
            f"{tile}: its lanes are 1, 2 or 4 for each of the {threads} threads of a team (got {schedule})"
        )
    if own > 1 and (axis.part != "whole" or schedule.bounds.get(axis.mode, 1) % own):
        raise ScheduleError(
            f"{tile}: vectors of {own} are loaded from addresses that are multiples of {own}; say so with "
            f"bound({axis.mode},EXTENT), or use {threads} lanes"
        )
