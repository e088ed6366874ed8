"""Loop mappings: what a processor makes of the loops of a nest. The nest asks; no mapping derives from it.

`CpuMapping` (``cpu.py``) and `GpuMapping` (``gpu.py``) are the two.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeAlias

from tensorwise.lower.env import Env, Lanes
from tensorwise.lower.ir import Binding, Buffer, BufferStore, Expr, Ramp, Reduce, Stmt, Var
from tensorwise.tensor.remap import Axis

Body: TypeAlias = Callable[[Env, Expr], None]
"""Emits the body of a loop for one value of its variable."""


@dataclass(frozen=True)
class StripRange:
    """The range of a tiled loop that is cut into strips.

    Attributes:
        leader: the operand whose positions are counted; None: coordinates are.
        start, end: first, and past the last.
        overlaps: whether strips may compute elements twice: only where each is plainly stored.
        is_short: whether few copies of the body are made anyway, so that the rest may have more of them.
    """

    axis: Axis
    leader: str | None
    start: Expr
    end: Expr
    overlaps: bool
    is_short: bool


class LoopMapping(ABC):
    """How the loops of one kernel are mapped to a processor.

    The defaults are those of a single CPU thread: lanes are vectors, and nothing is staged in shared memory.
    """

    @abstractmethod
    def binding(self, loop: Axis) -> Binding:
        """Return who gets the iterations of a loop; None: each thread runs all of them."""

    @property
    @abstractmethod
    def even_binding(self) -> Binding:
        """Who gets the iterations of loops over the output, in which all cost the same."""

    # -- strips: a loop whose iterations are lanes --------------------------------------------------

    @abstractmethod
    def cut_strips(self, strips: StripRange, emit: Callable[[Lanes], None]) -> None:
        """Emit the loops over strips, and by ``emit`` each strip's body."""

    def vectors_of(self, strip: Lanes) -> Iterator[tuple[Expr, tuple[object, ...]]]:
        """Yield where each vector of a strip lies, and the key of its accumulator."""
        for number in range(strip.vectors):
            start = strip.base + number * strip.lanes
            if strip.last is not None and number == strip.vectors - 1:
                start = strip.last
            yield Ramp(start, strip.lanes) if strip.lanes > 1 else start, ("lanes", number, strip.lanes)

    def guard(self, place: Expr, end: Expr | None) -> AbstractContextManager[None]:
        """Emit what follows under the condition that ``place`` lies before ``end``; None: it does."""
        assert end is None
        return nullcontext()

    def combine_threads(self, registers: tuple[Var, ...]) -> list[Stmt]:
        """Return what combines the states that the threads of a team have of ``registers``."""
        return []

    # -- loops whose iterations several threads share ------------------------------------------------

    def cuts_iterations(self, loop: Axis) -> bool:
        """Whether a loop runs over parts that may begin and end in the middle of an iteration."""
        return False

    def iterate_parts(self, env: Env, loop: Axis, var: Var, body: Body) -> None:
        """Emit the loop over parts, and ``body`` for what each has of the iterations of ``loop``."""
        raise NotImplementedError

    def fetch(
        self, env: Env, loop: Axis, name: str, lo: Expr, hi: Expr
    ) -> AbstractContextManager[tuple[Env, Expr, Expr]]:
        """Yield the range of positions of the next level of an operand to loop over, fetched as far as wanted."""
        return nullcontext((env, lo, hi))

    # -- results and what surrounds the nest -----------------------------------------------------------

    @abstractmethod
    def write(self, env: Env, statement: BufferStore | Reduce) -> list[Stmt]:
        """Return what writes a result to the output: by which thread, and where parts share it."""

    def emit_rest(self) -> None:
        """Emit what has to run behind the nest."""
        return

    def clearing(self) -> list[Stmt]:
        """Return what has to run before the nest."""
        return []

    @abstractmethod
    def buffers(self) -> tuple[Buffer, ...]:
        """Return the buffers that the mapping takes besides the operands'."""

    @abstractmethod
    def sizes(self) -> tuple[Var, ...]:
        """Return the sizes that the mapping takes besides the operands'."""

    def scratch(self) -> tuple[tuple[Buffer, int], ...]:
        """Return the memory that each team of threads has for itself."""
        return ()
