"""The directives of a schedule for GPUs, each with what it may be applied to."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from tensorwise.errors import ScheduleError
from tensorwise.program.directives import Tile
from tensorwise.program.legality import Directive, check_shared
from tensorwise.program.schedule import WARP, Schedule, whole

if TYPE_CHECKING:
    from tensorwise.program.loop_nest import LoopNest

MAX_BLOCK_THREADS: Final = 1024
"""Threads of a block, on every GPU since 2010."""
MOST_SHARED_BYTES: Final = 48 * 1024
"""Shared memory that a block may have without asking for more, on every GPU since 2010."""
LOAD_WIDTHS: Final = (1, 2, 4)
"""Adjacent elements that a thread loads in one instruction, up to 16 bytes."""


@dataclass(frozen=True)
class Bind(Directive):
    """Deal the iterations of a loop to the hardware of a GPU, on which the whole program then runs::

        bind(i,block,8)    for i: body   ->   for i, 8 a block: body, by a team of threads each
        bind(i,warp,2)     the same for as many iterations a block as teams fit into two warps
        bind(j,block)      strips of the tile over j are distributed over blocks, a second dimension of the grid
        bind(j,thread,32)  the lanes of the tile over j, elements of the output, are the threads of a team
        bind(k,lane,8)     the same inside a warp for lanes that are summed up: threads combine by shuffles

    Threads hold neighbours (vector loads) where a tile has two or four times as many lanes as there are threads.
    ``tile(j,4x32) bind(j,thread,32)`` is the 1-D strided register tile of G-Sparse (section III-B): each thread has
    every 32nd element, so that the stores of a team are coalesced.
    """

    loop: str
    to: str
    count: int = 1
    keeps_loops: ClassVar = False  # lanes become threads

    def __str__(self) -> str:
        return f"bind({self.loop},{self.to}{f',{self.count}' if self.count != 1 else ''})"

    def check(self, nest: "LoopNest") -> None:
        schedule, dealt = nest.schedule, nest.schedule.grid_bind
        if self.to not in ("block", "warp", "thread", "lane"):
            raise ScheduleError(f"{self}: loops are bound to block, warp, thread or lane, got {self.to!r}")
        if self.count < 1:
            raise ScheduleError(f"{self}: the count must be at least 1")
        check_dealt(self, schedule)
        if self.to in ("thread", "lane"):
            self._check_threads(nest)
        elif dealt is not None and self.loop != dealt.loop:
            self._check_strips(nest)
        elif self is not dealt:
            raise ScheduleError(
                f"one loop is distributed over blocks, and strips of the tile may be, too (got {schedule})"
            )
        else:
            check_shared(self, self.loop, nest)
            if schedule.tile is not None:
                _check_lanes(schedule.tile, nest)
        if schedule.threads * schedule.teams > MAX_BLOCK_THREADS:
            raise ScheduleError(
                f"{schedule}: {schedule.teams} teams of {schedule.threads} threads are more than the "
                f"{MAX_BLOCK_THREADS} of a block"
            )

    def _check_strips(self, nest: "LoopNest") -> None:
        """Raise ScheduleError unless the strips of the tile can be distributed over blocks."""
        schedule = nest.schedule
        if sum(b.to in ("block", "warp") and b.loop == self.loop for b in schedule.binds) > 1:
            raise ScheduleError(
                f"one loop is distributed over blocks, and strips of the tile may be, too (got {schedule})"
            )
        tiled = schedule.tile is not None and schedule.tile.loop == self.loop
        if not tiled or self.to != "block" or self.count != 1:
            raise ScheduleError(
                f"{self}: a second loop distributed over blocks has to be the tile's, as bind(LOOP,block)"
            )
        if nest.axis(self.loop).mode not in nest.assignment.free_indices:
            raise ScheduleError(f"{self}: strips that are summed up belong to one team")

    def _check_threads(self, nest: "LoopNest") -> None:
        """Raise ScheduleError unless the lanes of the tile can be the threads of a team."""
        schedule, tile = nest.schedule, nest.schedule.tile
        bound = [bind for bind in schedule.binds if bind.to in ("thread", "lane")]
        if len(bound) > 1:
            raise ScheduleError(
                f"{bound[1]}: the threads of a team are the lanes of one tile (got {schedule})"
            )
        if tile is None or self.loop != tile.loop:
            raise ScheduleError(f"{self}: threads are the lanes of a tile, as in tile({self.loop},2x32)")
        kept = nest.axis(self.loop).mode in nest.assignment.free_indices
        if kept != (self.to == "thread"):
            raise ScheduleError(
                f"{self}: {'lane is for what is summed up' if kept else 'what threads sum up is combined by shuffles'}; "
                f"write bind({self.loop},{'thread' if kept else 'lane'},{self.count})"
            )
        if self.to == "lane" and nest.results.registers is None:
            raise ScheduleError(
                f"{tile}: threads sum up in registers; put the loops of the output outside {tile.loop} (got {schedule})"
            )
        small = self.count <= WARP and self.count & (self.count - 1) == 0
        if not small and (self.to == "lane" or self.count % WARP):
            whole = "" if self.to == "lane" else f", or a multiple of {WARP}"
            raise ScheduleError(f"{self}: threads are a power of two up to {WARP}{whole}")


@dataclass(frozen=True)
class Stage(Directive):
    """Copy indices or values of a compressed level to shared memory, ``size`` positions at a time, by a team of threads::

        for p in lo..hi: f(crd[p])
        ->  for at in lo..hi step 32: kept[0:] = crd[at : min(at+32, hi)];  for p in there: f(kept[p-at])

    ``what`` is ``indices``, ``values`` or ``both``. The size of the memory is a constant, the number of positions in it is
    known at run time: the non-rectangular buffer bound inference of G-Sparse (section III-B, kNnzTile). On GPUs only.
    """

    loop: str
    size: int
    what: str = "both"

    def __str__(self) -> str:
        return f"stage({self.loop},{self.size}{f',{self.what}' if self.what != 'both' else ''})"

    once: ClassVar = "loop"

    def check(self, nest: "LoopNest") -> None:
        schedule = nest.schedule
        dealt, tile = check_dealt(self, schedule), schedule.tile
        if self.what not in ("indices", "values", "both") or self.size < 1:
            raise ScheduleError(f"{self}: a number of positions, and indices, values or both")
        if self.loop == dealt.loop or (tile and tile.loop == self.loop):
            raise ScheduleError(
                f"{self}: {self.loop} is distributed over blocks or threads; stage a loop inside"
            )
        level = nest.reach.leading_level(self.loop)
        if level is None:
            raise ScheduleError(f"{self}: no loop {self.loop} follows a compressed level (got {schedule})")
        leader = nest.reach.leaders[self.loop]
        read = [access.tensor for access in nest.assignment.accesses]
        reads_values = leader in read and level is nest.formats[leader].levels[-1]
        listed = level.coordinate_array is not None
        there = {"indices": listed, "values": reads_values}.get(self.what, listed or reads_values)
        if not there:
            raise ScheduleError(f"{self}: nothing of that kind is stored along {self.loop}")


def _check_lanes(tile: Tile, nest: "LoopNest") -> None:
    """Raise ScheduleError unless the lanes of a tile divide evenly among the threads of a team, in vectors."""
    schedule, axis, threads = nest.schedule, nest.axis(tile.loop), nest.schedule.threads
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


def parse_bind(loop: str, to: str, count: str = "1") -> Bind:
    """Return the directive of these arguments."""
    return Bind(loop, to, whole(count))


def parse_stage(loop: str, size: str, what: str = "both") -> Stage:
    """Return the directive of these arguments."""
    return Stage(loop, whole(size), what)


def check_dealt(directive: Bind | Stage, schedule: Schedule) -> Bind:
    """Return what deals a loop to blocks; raise ScheduleError where nothing does, so that the program is no GPU's."""
    if schedule.grid_bind is None:
        raise ScheduleError(
            f"{directive}: no loop is dealt to the blocks of a GPU, as in bind(i,block,8) (got {schedule})"
        )
    return schedule.grid_bind
