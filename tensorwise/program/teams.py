"""What differs on a GPU: iterations go to blocks, a strip's lanes are threads of a team, and a team fetches together.

::

    for k: acc += A[k] * B[k, j:j+64]     ->   for k: acc0 += A[k] * B[k, j+lane]; acc1 += A[k] * B[k, j+32+lane]
    for k: acc[0:8] += B[k:+8]; fold(acc) ->   for k step 8: acc += B[k+lane];  acc += acc of lane ^ 4; ... ^ 2; ... ^ 1

Everything else is lowered as for a CPU. A strip's lanes are the same numbers of the same elements; only where its vectors
would be registers of one thread, they are registers of many.

Source: G-Sparse (sections III-B and III-C): 1-D strided register tiles, staging with a constant bound, adaptive shuffles.
"""

import abc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tensorwise.codegen import ir
from tensorwise.codegen.ir import LANE, Buffer, Exchange, Expr, For, If, Meet, Ramp, Stmt, Store, Var
from tensorwise.errors import ScheduleError
from tensorwise.program import monoids
from tensorwise.program.launch import MOST_SHARED_BYTES
from tensorwise.program.nest import Env, Lanes, Nest
from tensorwise.program.schedule import WARP, Stage
from tensorwise.tensor.remap import Axis


class Teams(Nest, abc.ABC):
    """A nest whose lanes may be threads."""

    def handed(self, loop: Axis) -> ir.Workers | ir.Blocks | None:
        """Who gets the iterations of a loop: threads, blocks of a GPU, or nobody else."""
        parallel = self.schedule.parallel
        if parallel is None or parallel.loop != loop.name:
            return None
        if self.on_gpu:
            return ir.Blocks("x", self.schedule.teams, self.threads)
        return ir.Workers("dynamic" if parallel.policy == "merge-path" else parallel.policy)

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
        apart = any(key[0] == "lanes" for key in env.slot)
        if self.threads == 1 or apart:
            return statement
        return If(ir.compare("eq", LANE, ir.Const(0)), (statement,))

    def combine_threads(self, registers: tuple[Var, ...]) -> None:
        """Combine the state that each thread of the team has; all have the result."""
        distance = self.threads // 2
        while distance:
            others = tuple(self.fresh("other", register.type) for register in registers)
            for other, register in zip(others, registers, strict=True):
                self.block.append(Exchange(other, register, distance))
            self.block.extend(monoids.combine(self.monoid, registers, others))
            distance //= 2

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
            self.meet()
            fetch = tuple(Store(to, place, source[at + place]) for source, to in kept.items())
            self.block.append(
                For(place, LANE if self.threads > 1 else ir.Const(0), count, self.threads, fetch)
            )
            self.meet()
            yield replace(env, staged=(at, kept)), at, self.let("end", at + count)

    def meet(self) -> None:
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
