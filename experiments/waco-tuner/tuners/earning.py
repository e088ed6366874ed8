"""When tuning pays: seconds spent once, and seconds of a call, in calls of what the user had (WACO's section 5.6)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Tuned:
    """What one tuner came to on one matrix, in calls of untuned MKL.

    Attributes:
        initial: what is spent before the first call: tuning, compiling and converting.
        call: a call of what it chose.
    """

    initial: float
    call: float

    def total(self, calls: float) -> float:
        """Return what ``calls`` calls take in all.

        >>> Tuned(100, 0.5).total(50)
        125.0
        """
        return self.initial + calls * self.call

    @property
    def break_even(self) -> float:
        """Calls after which it takes no longer than never having tuned; infinite where a call is not faster.

        >>> Tuned(100, 0.5).break_even, Tuned(100, 1.0).break_even
        (200.0, inf)
        """
        return crossing(self, UNTUNED)


UNTUNED: Final = Tuned(0.0, 1.0)


def crossing(slow_start: Tuned, other: Tuned) -> float:
    """Return the calls from which on the first takes no longer than the other; infinite where it never does.

    >>> crossing(Tuned(800, 0.4), Tuned(300, 0.5))
    5000.0
    >>> crossing(Tuned(300, 0.5), Tuned(800, 0.4))  # ahead at once, if not for ever
    0.0
    """
    if slow_start.initial <= other.initial:
        return 0.0
    saved = other.call - slow_start.call
    return (slow_start.initial - other.initial) / saved if saved > 0 else math.inf


def told_for(calls: float, told: Sequence[int]) -> int:
    """Return which of the numbers of calls that tunings were told stands for an application: the largest that it has.

    >>> told_for(50, [20, 10_000]), told_for(1e6, [20, 10_000]), told_for(5, [20, 10_000])
    (20, 10000, 20)
    """
    return max([number for number in told if number <= calls], default=min(told))


def wins(tuned: Mapping[str, Tuned], calls: float) -> str:
    """Return which tuner takes least in all; never having tuned takes part as ``untuned``."""
    return min(("untuned", *tuned), key=lambda name: {**tuned, "untuned": UNTUNED}[name].total(calls))
