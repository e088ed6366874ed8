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
SETTLE_NS: Final = 100_000
"""Nanoseconds, and at least one call, at the beginning of a turn that do not count for a way that starts slowly."""
CALLS_EACH: Final = 2
"""Calls that count in a turn, at least."""
COUNTED_NS: Final = 20_000
"""Nanoseconds of the calls that count in a turn, at least, were each the shortest: one that is disturbed must not decide."""
CLEARLY_SLOWER: Final = 1.5
"""A way that took this many times as long as the current one in a turn is not called again in that trial."""
BETTER: Final = 0.97
"""Share of the current way's time that another must stay below to replace it."""
MOST_TIMES: Final = 1000
"""Times that are kept of a turn."""


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
    def starts_slowly(self) -> bool:
        """Whether its first call after those of another way takes longer than the next."""


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
        self._turn: list[
            int
        ] = []  # nanoseconds of the calls that count in the turn of the first that is left
        self._settles_ns = 0  # the current way is at work
        self._thread = threading.get_ident()
        self._solver = solver
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
            if self._turn_is_over():
                self._end_turn()
            if all(one is self.current for one in self._left):
                self._solver = None
                return None
        return self._left[0]

    def note(self, way: W, took_ns: int) -> None:
        """Note what a call of ``next_way()`` took: of a way whose turn it is no longer, nothing."""
        if threading.get_ident() != self._thread or self._left[:1] != [way]:
            return
        self.spent_ns += took_ns
        if self._settles_ns > 0:
            self._settles_ns -= took_ns
        elif len(self._turn) < MOST_TIMES:
            self._turn.append(took_ns)

    def _turn_is_over(self) -> bool:
        turn = self._turn
        if len(turn) >= CALLS_EACH and len(turn) * min(turn) >= COUNTED_NS:
            return True
        return sum(turn) >= SETTLE_NS and turn[-1] > CLEARLY_SLOWER * self.current.median_ns

    def _end_turn(self) -> None:
        way, turn_ns = self._left.pop(0), float(np.median(self._turn))
        if turn_ns < way.median_ns:
            way.took_ns = self._turn
        if turn_ns > CLEARLY_SLOWER * self.current.median_ns:
            self._left = [one for one in self._left if one is not way]
        self._begin_turn()

    def _begin_turn(self) -> None:
        self._turn = []
        self._settles_ns = SETTLE_NS if self._left and self._left[0].starts_slowly else 0

    def fastest(self) -> W:
        """Return the way to go on with."""
        best = min((self.current, *self.others), key=lambda way: way.median_ns)
        return best if best.median_ns < BETTER * self.current.median_ns else self.current

    def drop(self, way: W) -> None:
        """Call a way no more, and do not go on with it."""
        way.took_ns = []
        begins = self._left[:1] == [way]
        self._left = [one for one in self._left if one is not way]
        if begins:
            self._begin_turn()
