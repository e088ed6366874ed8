"""Trials: the ways of a product are called in turn on the user's calls, and the fastest stays."""

import abc
import threading
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar, final

import numpy as np

FIRST_NS: Final = 4_000_000
"""Nanoseconds spent in a product before its first trial, so that a trial of a slow way is a small part of them."""
EARLY_NS: Final = 500_000
"""The same where calls are long enough for another way to be expected to be faster."""
FIRST_CALLS: Final = 10
"""Expected calls on one thread before the first trial, so that a trial of long calls is a small part of them, too."""
GROWTH: Final = 8
"""A trial follows when this many times as much was spent as at the last one."""
TURNS: Final = 2
"""Turns that each way gets in a trial: what disturbs one turn of a few calls seldom disturbs the next."""
CALLS_EACH: Final = 2
"""Calls that count in a turn, after one that does not; where a solver calls, calls of the solver."""
CLEARLY_SLOWER: Final = 1.5
"""A way that took this many times as long as the current one in a call is not called again in that trial."""
BETTER: Final = 0.97
"""Share of the current way's time that another must stay below to replace it."""
MOST_TIMES: Final = 1000
"""Times that are kept of a way in a trial."""


class TriedWay(abc.ABC):
    """A way to compute, as far as a trial needs to know it.

    Attributes:
        same_bits: whether results are equal to the last bit to those of other ways that say so.
        took_ns: nanoseconds of the last trials.
    """

    same_bits: bool
    took_ns: list[int]

    @property
    def median_ns(self) -> float:
        """Median of the last trials, infinite before the first."""
        return float(np.median(self.took_ns)) if self.took_ns else float("inf")

    @property
    @abc.abstractmethod
    def starts_slowly(self) -> bool:
        """Whether its first call after those of another way takes longer than the next."""


W = TypeVar("W", bound=TriedWay)


@final
class WayTrial(Generic[W]):
    """Turns of the current way and others.

    The first call of a turn does not count, but for one thread in place: it wakes threads that fell asleep while one thread
    computed, or brings the way's own arrays into the caches. Ways whose bits differ do not change within one call of a
    solver: each is used for whole calls of it.

    Args:
        current: the way in use.
        others: ways that are tried.
        solver: the call of a solver in which the trial begins: that call keeps the current way.
    """

    def __init__(self, current: W, others: Sequence[W], solver: Any = None) -> None:
        self.current, self.others = current, tuple(others)
        for way in (current, *others):
            way.took_ns = []
        ways = current, *others
        self._left = [way for _ in range(TURNS) for way in ways for _ in range(1 + CALLS_EACH)]
        self._last = current
        self._thread = threading.get_ident()
        self._solver, self._held = solver, current
        self.same_bits = all(way.same_bits for way in (current, *others))
        self.spent_ns = 0

    def next_way(self, solver: Any = None) -> W | None:
        """Return the way that the next call is to use; None: the trial is over.

        Args:
            solver: the call of a solver that the product is computed for, None without one.
        """
        if threading.get_ident() != self._thread:
            return self.current
        if solver is None or solver is not self._solver:
            self._solver = solver
            if all(one is self.current for one in self._left):
                self._solver = None
                return None
            self._held = self._left.pop(0)
        return self._held

    def note(self, way: W, took_ns: int) -> None:
        """Note what a call of ``next_way()`` took."""
        if threading.get_ident() != self._thread:
            return
        self.spent_ns += took_ns
        begins, self._last = way is not self._last, way
        if begins and way.starts_slowly:
            return
        if len(way.took_ns) < MOST_TIMES:
            way.took_ns.append(took_ns)
        if way is not self.current and took_ns > CLEARLY_SLOWER * self.current.median_ns:
            self.drop(way)

    def fastest(self) -> W:
        """Return the way to go on with."""
        tried = [way for way in (self.current, *self.others) if len(way.took_ns) >= TURNS * CALLS_EACH - 1]
        best = min(tried, key=lambda way: way.median_ns, default=self.current)
        return best if best.median_ns < BETTER * self.current.median_ns else self.current

    def drop(self, way: W) -> None:
        """Call a way no more."""
        self._left = [one for one in self._left if one is not way]
