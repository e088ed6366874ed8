"""Teams of threads on a GPU: the lanes of a strip are the threads of a team, which stages data in shared memory together.

::

    for k: acc += A[k] * B[k, j:j+64]     ->   for k: acc0 += A[k] * B[k, j+lane]; acc1 += A[k] * B[k, j+32+lane]
    for k: acc[0:8] += B[k:+8]; fold(acc) ->   for k step 8: acc += B[k+lane];  acc += acc of lane ^ 4; ... ^ 2; ... ^ 1

The lanes of a strip compute the same elements as on a CPU. There they are in vector registers of one thread, here in
registers of many threads.

Source: G-Sparse (sections III-B and III-C): 1-D strided register tiles, staging with a constant bound, adaptive shuffles.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir, monoids
from tensorwise.lower.builder import Builder
from tensorwise.lower.env import Env, Lanes
from tensorwise.lower.ir import (
    LANE,
    Barrier,
    Buffer,
    BufferStore,
    Const,
    Expr,
    For,
    If,
    Ramp,
    ShuffleXor,
    Stmt,
    Var,
)
from tensorwise.lower.mapping import StripRange
from tensorwise.lower.operands import Operands
from tensorwise.lower.plan import Plan
from tensorwise.program.gpu_directives import MOST_SHARED_BYTES, Stage
from tensorwise.program.schedule import WARP
from tensorwise.tensor.remap import Axis


class Teams:
    """What the threads of a team do of one kernel, and the memory that they share."""

    def __init__(self, plan: Plan, operands: Operands, builder: Builder) -> None:
        self.plan, self.operands, self.builder = plan, operands, builder
        self.threads = plan.schedule.threads
        self._scratch: dict[Buffer, int] = {}

    def cut_strips(self, strips: StripRange, emit: Callable[[Lanes], None]) -> None:
        """Cut a loop into strips of one width, whose elements a team's threads share; past the end they ask."""
        tile, loop, end = self.plan.schedule.tile, strips.axis, strips.end
        assert tile is not None
        width = tile.vectors * tile.lanes
        extent = int(end.value) if strips.leader is None and isinstance(end, Const) else None
        whole = extent is not None and extent % width == 0
        strip = Lanes(loop, strips.start, tile.vectors, tile.lanes, strips.leader, None if whole else end)
        if extent is not None and extent <= width:
            emit(strip)
            return
        var = self.builder.fresh(loop.name)
        binds = self.plan.schedule.binds
        to_blocks = any(bind.to == "block" and bind.loop == loop.name for bind in binds)
        bind = ir.Blocks("y", 1, self.threads) if to_blocks else None
        with self.builder.scope(lambda block: For(var, strips.start, end, width, block, bind)):
            emit(replace(strip, base=var))

    def vectors_of(self, strip: Lanes) -> Iterator[tuple[Expr, tuple[object, ...]]]:
        """Yield where the thread's part of each vector of a strip lies, and the key of its accumulator."""
        lanes = strip.lanes // self.threads
        for number in range(strip.vectors):
            start = strip.base + number * strip.lanes
            if strip.last is not None and number == strip.vectors - 1:
                start = strip.last
            if self.threads > 1:
                start = start + LANE * lanes
            yield Ramp(start, lanes) if lanes > 1 else start, ("lanes", number, lanes)

    @contextmanager
    def guard(self, place: Expr, end: Expr | None) -> Iterator[None]:
        """Emit what follows under the condition that ``place`` lies before ``end``; None: it does."""
        if end is None:
            yield
            return
        first = place.base if isinstance(place, Ramp) else place  # vectors end where extents do
        with self.builder.scope(lambda body: If(ir.compare("lt", first, end), body)):
            yield

    def combine(self, registers: tuple[Var, ...]) -> list[Stmt]:
        """Return what combines the state that each thread of the team has; all have the result."""
        combined: list[Stmt] = []
        distance = self.threads // 2
        while distance:
            others = tuple(self.builder.fresh("other", register.type) for register in registers)
            for other, register in zip(others, registers, strict=True):
                combined.append(ShuffleXor(other, register, distance))
            combined.extend(monoids.combine(self.plan.monoid, registers, others))
            distance //= 2
        return combined

    def by_one_thread(self, env: Env, statement: Stmt) -> Stmt:
        """Return a statement that one thread of the team runs, unless each writes an element of its own."""
        has_own = any(key[0] == "lanes" for key in env.slot)
        if self.threads == 1 or has_own:
            return statement
        return If(ir.compare("eq", LANE, ir.Const(0)), (statement,))

    @contextmanager
    def fetch(self, env: Env, loop: Axis, name: str, lo: Expr, hi: Expr) -> Iterator[tuple[Env, Expr, Expr]]:
        """Yield the positions of an operand's next level that are fetched at a time, or all where none are."""
        stage = self.plan.schedule.stages.get(loop.name)
        if stage is None:
            yield env, lo, hi
            return
        builder, kept = self.builder, self._staged_buffers(env, stage, name)
        # One more, so that the teams of a warp find the same place in different banks.
        self._scratch |= dict.fromkeys(kept.values(), stage.size + (1 < self.threads < WARP))
        at, place = builder.fresh("at"), builder.fresh("fetched")
        hi = builder.let("stop", hi)
        with builder.scope(lambda block: For(at, lo, hi, stage.size, block)):
            count = builder.let("count", ir.smaller(ir.Const(stage.size), hi - at))
            self._wait()
            fetch = tuple(BufferStore(to, place, source[at + place]) for source, to in kept.items())
            first = LANE if self.threads > 1 else ir.Const(0)
            builder.append(For(place, first, count, self.threads, fetch))
            self._wait()
            yield replace(env, staged=(at, kept)), at, builder.let("end", at + count)

    def _staged_buffers(self, env: Env, stage: Stage, name: str) -> dict[Buffer, Buffer]:
        """Return what is fetched of an operand's next level, and where each buffer's elements are kept."""
        levels, place = self.plan.formats[name].levels, env.states[name].levels
        values = self.operands.values.get(name) if place + 1 == len(levels) else None
        listed = levels[place].coordinate_array
        indices = None if listed is None else self.operands.arrays[name][place][listed]
        wanted = {"indices": [indices], "values": [values]}.get(stage.what, [indices, values])
        kept = {b: Buffer(f"{b.name}_staged", b.elem, writable=True) for b in wanted if b is not None}
        return kept

    def _wait(self) -> None:
        """Let the threads of a team wait for each other; a single one need not."""
        if self.threads > 1:
            self.builder.append(Barrier())

    def scratch(self) -> tuple[tuple[Buffer, int], ...]:
        """Return the memory that each team has for itself.

        Raises ScheduleError when a block has not got as much.
        """
        schedule = self.plan.schedule
        held = schedule.teams * sum(buffer.item_bytes * length for buffer, length in self._scratch.items())
        if held > MOST_SHARED_BYTES:
            raise ScheduleError(
                f"{schedule}: {schedule.teams} teams stage {held} bytes, more than the {MOST_SHARED_BYTES} of a "
                "block; stage fewer positions, or fewer teams"
            )
        return tuple(self._scratch.items())
