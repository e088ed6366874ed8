"""Trials: the ways of a product are called in turn on the user's calls, and the fastest stays."""

import threading
from collections.abc import Sequence
from typing import Final, final

from tensorwise.sparse.ways import ProductWay

FIRST_NS: Final = 4_000_000
"""Nanoseconds spent in a product before its first trial, so that a trial of a slow way is a small part of them."""
EARLY_NS: Final = 500_000
"""The same where calls are long enough for another way to be expected to be faster."""
GROWTH: Final = 8
"""A trial follows when this many times as much was spent as at the last one."""
CALLS_EACH: Final = 3
"""Calls of each way in a trial."""
CLEARLY_SLOWER: Final = 2.0
"""A way that took this many times as long as the current one in a call is not called again in that trial."""
BETTER: Final = 0.97
"""Share of the current way's time that another must stay below to replace it."""


@final
class WayTrial:
    """Calls of the current way and others in turn, ``CALLS_EACH`` of each.

    The first call of each other way is not counted: it brings the way's arrays into the caches.

    Args:
        current: the way in use.
        others: ways that are tried.
    """

    def __init__(self, current: ProductWay, others: Sequence[ProductWay]) -> None:
        self.current = current
        for way in (current, *others):
            way.took_ns = []
        rounds = [way for _ in range(CALLS_EACH) for way in (current, *others)]
        self._others = tuple(others)
        self._left = [*others, *rounds]
        self.spent_ns = 0
        self._cold = set(map(id, others))
        self._thread = threading.get_ident()
        self.same_bits = all(way.same_bits for way in (current, *others))

    def next_way(self) -> ProductWay:
        """Return the way that the next call is to use."""
        return self._left[0] if self._left and threading.get_ident() == self._thread else self.current

    def note(self, way: ProductWay, took_ns: int) -> bool:
        """Note what a call of ``next_way()`` took; return whether the trial is over."""
        if threading.get_ident() != self._thread or not self._left or self._left[0] is not way:
            return False
        self._left.pop(0)
        self.spent_ns += took_ns
        if id(way) in self._cold:
            self._cold.discard(id(way))
        else:
            way.took_ns.append(took_ns)
        if way is not self.current and took_ns > CLEARLY_SLOWER * self.current.median_ns:
            self._left = [one for one in self._left if one is not way]
        return self.is_over

    @property
    def is_over(self) -> bool:
        """Whether no other way is to be called any more."""
        return all(one is self.current for one in self._left)

    def fastest(self) -> ProductWay:
        """Return the way to go on with."""
        tried = [way for way in (self.current, *self._others) if len(way.took_ns) >= CALLS_EACH - 1]
        best = min(tried, key=lambda way: way.median_ns, default=self.current)
        return best if best.median_ns < BETTER * self.current.median_ns else self.current

    def drop(self, way: ProductWay) -> None:
        """Call a way no more."""
        self._left = [one for one in self._left if one is not way]
