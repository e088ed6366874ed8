"""Trials: the ways of a product are called in turn on the user's calls, and the fastest stays."""

import abc
import threading
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar, final

import numpy as np

FIRST_NS: Final = 500_000
"""Nanoseconds spent in a product before its first trial, so that a trial of a slow way is a small part of them."""
FIRST_CALLS: Final = 10
"""Expected calls on one thread before the first trial, so that a trial of long calls is a small part of them, too."""
GROWTH: Final = 8
"""A trial follows when this many times as much was spent as at the last one."""
TURNS: Final = 2
"""Turns that each way gets in a trial: what disturbs one turn of a few calls seldom disturbs the next."""
CALLS_EACH: Final = 2
"""Calls that count in a turn, at least."""
COUNTED_NS: Final = 20_000
"""Nanoseconds of the calls that count in a turn, at least, were each the shortest: one that is disturbed must not decide."""
CLEARLY_SLOWER: Final = 1.5
"""A way whose shortest call of a turn took this many times as long as the current one is not called again in that trial."""
BETTER: Final = 0.97
"""Share of the current way's time that another must stay below to replace it."""
MOST_TIMES: Final = 1000
"""Times that are kept of a turn; calls of other threads after which a trial is given up: its own may be gone."""
_NO_CALL_NS: Final[int] = 1 << 62


class TriedWay(abc.ABC):
    """A way to compute, as far as a trial needs to know it.

    Attributes:
        same_bits: whether results are equal to the last bit to those of other ways that say so.
        took_ns: nanoseconds of the calls of the best turn of the last trial.
    """

    same_bits: bool
    took_ns: list[int]

    @property
    def median_ns(self) -> float:
        """Median of the best turn of the last trial, infinite before the first."""
        return float(np.median(self.took_ns)) if self.took_ns else float("inf")

    @property
    @abc.abstractmethod
    def settle_ns(self) -> int:
        """Nanoseconds at the beginning of a turn, and at least one call, that do not count; 0: all count."""


W = TypeVar("W", bound=TriedWay)


@final
class WayTrial(Generic[W]):
    """Turns of the current way and others.

    The first calls of a turn do not count, but for one thread in place: they wake threads that fell asleep while one thread
    computed, and bring the way's arrays into the caches of each thread. What disturbs a turn makes it longer: the best one
    of a way is compared. Ways whose bits differ do not change within one call of a solver.

    Args:
        current: the way in use.
        others: ways that are tried.
        solver: the call of a solver in which the trial begins: that call keeps the current way.
    """

    def __init__(self, current: W, others: Sequence[W], solver: Any = None) -> None:
        self.current, self.others = current, tuple(others)
        for way in (current, *others):
            way.took_ns = []
        self._left = [current, *others] * TURNS
        self._thread = threading.get_ident()
        self._solver, self._held = solver, current
        self.same_bits = all(way.same_bits for way in (current, *others))
        self.spent_ns = self._calls_elsewhere = 0
        self._slow_ns = float("inf")  # a call of a way that is clearly slower takes longer
        self._shortest_ns = self._counted_ns = _NO_CALL_NS  # of the turn's calls, and of those that count
        self._begin_turn()
        self._settles_ns = 0  # the current way is at work

    def next_way(self, solver: Any = None) -> W | None:
        """Return the way that the next call is to use; None: the trial is over.

        Args:
            solver: the call of a solver that the product is computed for, None without one.
        """
        if threading.get_ident() != self._thread:
            self._calls_elsewhere += 1
            return self.current if self._calls_elsewhere < MOST_TIMES else None
        if solver is None or solver is not self._solver:
            self._solver = solver
            if self._turn_is_over():
                self._end_turn()
            if all(one is self.current for one in self._left):
                self._solver = None
                return None
            self._held = self._left[0]
        return self._held

    def note(self, way: W, took_ns: int) -> None:
        """Note what a call of ``next_way()`` took: of a way whose turn it is no longer, nothing."""
        if threading.get_ident() != self._thread or self._left[:1] != [way]:
            return
        self.spent_ns += took_ns
        self._calls += 1
        self._shortest_ns = min(self._shortest_ns, took_ns)
        if self._settles_ns > 0 and self._calls < MOST_TIMES:
            self._settles_ns -= took_ns
        elif len(self._turn) < MOST_TIMES:
            self._turn.append(took_ns)
            self._counted_ns = min(self._counted_ns, took_ns)

    def _turn_is_over(self) -> bool:
        count = len(self._turn)
        if count >= CALLS_EACH and (count * self._counted_ns >= COUNTED_NS or count >= MOST_TIMES):
            return True
        return count > 0 and self._calls >= CALLS_EACH and self._shortest_ns > self._slow_ns

    def _end_turn(self) -> None:
        way, turn_ns = self._left.pop(0), float(np.median(self._turn))
        if turn_ns < way.median_ns:
            way.took_ns = self._turn
        if way is self.current:
            self._slow_ns = CLEARLY_SLOWER * way.median_ns
        elif self._shortest_ns > self._slow_ns:
            self._left = [one for one in self._left if one is not way]
        self._begin_turn()

    def _begin_turn(self) -> None:
        self._turn: list[int] = []  # nanoseconds of the calls that count, of the first way that is left
        self._settles_ns = self._left[0].settle_ns if self._left else 0
        self._calls = 0
        self._shortest_ns = self._counted_ns = _NO_CALL_NS

    def fastest(self) -> W:
        """Return the way to go on with: the current one where it has not been timed."""
        best = min((self.current, *self.others), key=lambda way: way.median_ns)
        is_better = self.current.took_ns and best.median_ns < BETTER * self.current.median_ns
        return best if is_better else self.current

    def drop(self, way: W) -> None:
        """Call a way no more, and do not go on with it; where it is the current one, end the trial."""
        if threading.get_ident() != self._thread:
            return
        begun = self._left[:1]
        self._left = [] if way is self.current else [one for one in self._left if one is not way]
        if way is not self.current:
            way.took_ns = []
        if begun != self._left[:1]:
            self._begin_turn()
        if self._held is way:
            self._held = self.current  # until the call of a solver ends
