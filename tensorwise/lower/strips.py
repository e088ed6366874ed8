"""Strips on a CPU: a tiled loop becomes loops over whole strips, then narrower ones, down to single elements.

::

    tile(j,4x8) over 0 .. 100:   3 strips of 4 vectors x 8 lanes, then 4 elements: one vector of 4 lanes
    where an element may be computed twice: ..., then one vector of 8 lanes that ends at 100
"""

from collections.abc import Callable
from typing import Final

from tensorwise.lower import ir
from tensorwise.lower.builder import Builder
from tensorwise.lower.env import Lanes
from tensorwise.lower.ir import Const, Expr, For, If
from tensorwise.lower.mapping import StripRange
from tensorwise.program.schedule import Tile

MAX_STRIPS: Final = 8
"""Strips of a bound index that need no loop."""


class StripCutter:
    """The strips of one tiled loop, each of which ``emit`` fills."""

    def __init__(
        self, tile: Tile, strips: StripRange, builder: Builder, emit: Callable[[Lanes], None]
    ) -> None:
        self.tile, self.strips, self.builder, self.emit = tile, strips, builder, emit

    def cut(self) -> None:
        """Emit full strips, then halves, then overlapping ones or scalars."""
        tile, strips, end = self.tile, self.strips, self.strips.end
        at = strips.start
        # Short rows pass all entries once for each strip; where the body is unrolled already, that many copies cost more.
        once = strips.overlaps and strips.is_short
        vectors = tile.vectors
        while vectors >= 1:
            if vectors == 1 and once and min(tile.lanes, tile.vectors) > 1:
                at = self.overlap_pair(at)
            at = self.repeat_strip(at, vectors, tile.lanes)
            vectors //= 2
        if tile.lanes == 1:
            return
        if strips.overlaps and isinstance(at, Const) and isinstance(end, Const):
            if at.value < end.value and tile.lanes <= end.value:
                self.emit_strips(end - tile.lanes, end, 1, tile.lanes)
                return
        elif strips.overlaps:
            fits = ir.compare("le", Const(tile.lanes), end)
            with (
                self.builder.scope(lambda body: If(ir.compare("lt", at, end), body)),
                self.builder.scope(lambda body: If(fits, body)),
            ):
                self.emit_strips(end - tile.lanes, end, 1, tile.lanes)
            # Where a whole vector fits, the overlapping strip has done the rest.
            at = self.builder.let("rest", ir.select(fits, end, at))
        lanes = tile.lanes // 2
        while lanes >= 4:
            at = self.repeat_strip(at, 1, lanes)
            lanes //= 2
        for scalars in (3, 2) if once and tile.lanes >= 4 else ():
            at = self.repeat_strip(at, scalars, 1)
        self.emit_strips(at, end, 1, 1)

    def repeat_strip(self, start: Expr, vectors: int, lanes: int) -> Expr:
        """Emit as many strips of one width as fit, and return where they end."""
        width = vectors * lanes
        stop = self.builder.let("stop", start + ((self.strips.end - start) // width) * width)
        self.emit_strips(start, stop, vectors, lanes)
        return stop

    def emit_strips(self, start: Expr, stop: Expr, vectors: int, lanes: int) -> None:
        """Emit the strips from ``start`` to ``stop``, as a loop unless they are few and known."""
        if isinstance(start, Const) and isinstance(stop, Const):
            bases = range(int(start.value), int(stop.value), vectors * lanes)
            if len(bases) <= MAX_STRIPS:
                for base in bases:
                    self.emit(self.strip(Const(base), vectors, lanes))
                return
        var = self.builder.fresh(self.strips.axis.name)
        with self.builder.scope(lambda block: For(var, start, stop, vectors * lanes, block)):
            self.emit(self.strip(var, vectors, lanes))

    def overlap_pair(self, start: Expr) -> Expr:
        """Do what is left, if that is more than one vector and less than two, in two that overlap."""
        lanes, end = self.tile.lanes, self.strips.end
        two = self.strip(start, 2, lanes, last=end - lanes)
        if isinstance(start, Const) and isinstance(end, Const):
            if not lanes < end.value - start.value < 2 * lanes:
                return start
            self.emit(two)
            return end
        more = ir.compare("lt", start + lanes, end)
        fits = self.builder.let("fits", ir.both(more, ir.compare("lt", end, start + 2 * lanes)))
        with self.builder.scope(lambda body: If(fits, body)):
            self.emit(two)
        return self.builder.let("rest", ir.select(fits, end, start))

    def strip(self, base: Expr, vectors: int, lanes: int, last: Expr | None = None) -> Lanes:
        """Return the pseudo-loop over one strip."""
        return Lanes(self.strips.axis, base, vectors, lanes, self.strips.leader, last=last)
