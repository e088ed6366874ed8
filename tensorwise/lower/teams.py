"""What differs on a GPU: iterations go to blocks, a strip's lanes are threads of a team, and a team fetches together.

::

    for k: acc += A[k] * B[k, j:j+64]     ->   for k: acc0 += A[k] * B[k, j+lane]; acc1 += A[k] * B[k, j+32+lane]
    for k: acc[0:8] += B[k:+8]; fold(acc) ->   for k step 8: acc += B[k+lane];  acc += acc of lane ^ 4; ... ^ 2; ... ^ 1

Everything else is lowered as for a CPU. A strip's lanes are the same numbers of the same elements; only where its vectors
would be registers of one thread, they are registers of many.

Source: G-Sparse (sections III-B and III-C): 1-D strided register tiles, staging with a constant bound, adaptive shuffles.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir, monoids
from tensorwise.lower.ir import (
    LANE,
    Buffer,
    BufferStore,
    Const,
    Exchange,
    Expr,
    For,
    If,
    Meet,
    Ramp,
    Stmt,
    Var,
)
from tensorwise.lower.lower import Lowering
from tensorwise.lower.nest import Env, Lanes, Loop
from tensorwise.lower.plan import Plan
from tensorwise.program.gpu_directives import MOST_SHARED_BYTES, Stage
from tensorwise.program.schedule import WARP
from tensorwise.tensor.remap import Axis

FILLING: Final = ir.Blocks("x", 256, 1)
"""How a GPU fills an output: an element a thread."""


class Teams(Lowering):
    """A lowering whose lanes may be threads."""

    def __init__(self, plan: Plan, waits: bool = False) -> None:
        super().__init__(plan, waits)
        self.scratch: dict[Buffer, int] = {}

    def handed(self, loop: Axis) -> ir.Workers | ir.Blocks | None:
        """Who gets the iterations of a loop: blocks of a GPU, or nobody else."""
        parallel = self.schedule.parallel
        if parallel is None or parallel.loop != loop.name:
            return None
        return ir.Blocks("x", self.schedule.teams, self.threads)

    def even_share(self) -> ir.Workers | ir.Blocks | None:
        """Who gets the iterations of loops in which all cost the same."""
        return FILLING

    def strips(self, env: Env, loop: Axis, rest: tuple[Loop, ...]) -> None:
        """Cut a loop into strips of one width, whose elements a team's threads share; past the end they ask."""
        tile = self.schedule.tile
        assert tile is not None
        leader, at, end = self.strip_range(env, loop, rest)
        width = tile.vectors * tile.lanes
        extent = int(end.value) if leader is None and isinstance(end, Const) else None
        whole = extent is not None and extent % width == 0
        strip = Lanes(loop, at, tile.vectors, tile.lanes, leader, None if whole else end)
        if extent is not None and extent <= width:
            self.emit(env, (*rest, strip))
            return
        var = self.fresh(loop.name)
        to_blocks = any(bind.to == "block" and bind.loop == loop.name for bind in self.schedule.binds)
        bind = ir.Blocks("y", 1, self.threads) if to_blocks else None
        with self.scope(lambda block: For(var, at, end, width, block, bind)):
            self.emit(env, (*rest, replace(strip, base=var)))

    def repeat_positions(
        self,
        env: Env,
        name: str,
        loop: Axis,
        var: Var,
        lo: Expr,
        hi: Expr,
        body: Callable[[Env, Expr], None],
    ) -> None:
        """Emit the loop over positions of the next level of an operand, which a team may fetch together."""
        stage = self.schedule.stages.get(loop.name)
        if stage is None:
            self.repeat(env, loop, var, lo, hi, body)
            return
        place = env.states[name].levels
        last = place + 1 == len(self.plan.formats[name].levels)
        values = self.values.get(name) if last else None
        listed = self.plan.formats[name].levels[place].coordinate_array
        coordinates = None if listed is None else self.arrays[name][place][listed]
        with self.staged(env, stage, lo, hi, coordinates, values) as (inner, at, end):
            self.repeat(inner, loop, var, at, end, body)

    def vectors_of(self, strip: Lanes) -> Iterator[tuple[Expr, tuple[object, ...]]]:
        """Yield where each vector of a strip lies, on a GPU the thread's part of it, and the key of its accumulator."""
        lanes = strip.lanes // self.threads
        for number in range(strip.vectors):
            start = strip.base + number * strip.lanes
            if strip.last is not None and number == strip.vectors - 1:
                start = strip.last
            if self.threads > 1:
                start = start + LANE * lanes
            yield Ramp(start, lanes) if lanes > 1 else start, ("lanes", number, lanes)

    @contextmanager
    def there(self, place: Expr, end: Expr | None) -> Iterator[None]:
        """Emit what follows under the condition that ``place`` lies before ``end``; None: it does."""
        if end is None:
            yield
            return
        first = place.base if isinstance(place, Ramp) else place  # vectors end where extents do
        with self.scope(lambda body: If(ir.compare("lt", first, end), body)):
            yield

    def by_one_thread(self, env: Env, statement: Stmt) -> Stmt:
        """Return a statement that one thread of the team runs, unless each writes an element of its own."""
        separate = any(key[0] == "lanes" for key in env.slot)
        if self.threads == 1 or separate:
            return statement
        return If(ir.compare("eq", LANE, ir.Const(0)), (statement,))

    def combine_threads(self, registers: tuple[Var, ...]) -> list[Stmt]:
        """Return what combines the state that each thread of the team has; all have the result."""
        combined: list[Stmt] = []
        distance = self.threads // 2
        while distance:
            others = tuple(self.fresh("other", register.type) for register in registers)
            for other, register in zip(others, registers, strict=True):
                combined.append(Exchange(other, register, distance))
            combined.extend(monoids.combine(self.monoid, registers, others))
            distance //= 2
        return combined

    @contextmanager
    def staged(
        self, env: Env, stage: Stage, lo: Expr, hi: Expr, indices: Buffer | None, values: Buffer | None
    ) -> Iterator[tuple[Env, Expr, Expr]]:
        """Emit the loop over what is fetched at a time; the body gets its first position and its end."""
        wanted = {"indices": [indices], "values": [values]}.get(stage.what, [indices, values])
        kept = {b: Buffer(f"{b.name}_staged", b.elem, writable=True) for b in wanted if b is not None}
        if not kept:
            raise ScheduleError(f"{stage}: nothing of that kind is stored along {stage.loop}")
        # One more, so that the teams of a warp find the same place in different banks.
        self.scratch |= dict.fromkeys(kept.values(), stage.size + (1 < self.threads < WARP))
        at, place = self.fresh("at"), self.fresh("fetched")
        hi = self.let("stop", hi)
        with self.scope(lambda block: For(at, lo, hi, stage.size, block)):
            count = self.let("count", ir.smaller(ir.Const(stage.size), hi - at))
            self.wait_for_team()
            fetch = tuple(BufferStore(to, place, source[at + place]) for source, to in kept.items())
            self.block.append(
                For(place, LANE if self.threads > 1 else ir.Const(0), count, self.threads, fetch)
            )
            self.wait_for_team()
            yield replace(env, staged=(at, kept)), at, self.let("end", at + count)

    def wait_for_team(self) -> None:
        """Let the threads of a team wait for each other; a single one need not."""
        if self.threads > 1:
            self.block.append(Meet())

    def scratch_used(self) -> tuple[tuple[Buffer, int], ...]:
        """Return the memory that each team has for itself.

        Raises ScheduleError when a block has not got as much, or nothing was there to be staged.
        """
        if self.schedule.stages and not self.scratch:
            stage = next(iter(self.schedule.stages.values()))
            raise ScheduleError(
                f"{stage}: no loop {stage.loop} follows a compressed level (got {self.schedule})"
            )
        held = self.schedule.teams * sum(
            buffer.item_bytes * length for buffer, length in self.scratch.items()
        )
        if held > MOST_SHARED_BYTES:
            raise ScheduleError(
                f"{self.schedule}: {self.schedule.teams} teams stage {held} bytes, more than the {MOST_SHARED_BYTES} of a "
                "block; stage fewer positions, or fewer teams"
            )
        return tuple(self.scratch.items())
