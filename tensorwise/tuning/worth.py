"""Decide whether measuring one more candidate pays, for a tuning that must pay for itself.

A user who calls an operator ``calls`` times pays once for compiling, converting and measuring, and saves a little in
every call. How much a candidate saves is not known before it has run: its time is assumed to be log-normal about the
model's prediction. Its expected saving, counting 0 where it turns out slower and is not used, is compared with the price of
compiling and measuring it. (Expected improvement: Jones et al., 1998.)
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Prospect:
    """What is expected of a candidate.

    Attributes:
        seconds: predicted seconds of a call, the median.
        spread: standard deviation of the logarithm of the seconds; 0 where they are known.
        conversion_s: seconds of packing the operand, once.
        price_s: seconds of compiling and measuring it, once, whether it is taken or not.
    """

    seconds: float
    spread: float = 0.0
    conversion_s: float = 0.0
    price_s: float = 0.0


def saving_s(prospect: Prospect, best: Prospect, calls: float) -> float:
    """Return the mean of the seconds that ``calls`` calls save if the candidate is taken wherever it is faster.

    Args:
        best: the candidate used otherwise; its predicted median and conversion count.

    >>> untuned, sure = Prospect(0.010), Prospect(0.008, conversion_s=0.1)
    >>> round(saving_s(sure, untuned, calls=100), 6)
    0.1
    >>> saving_s(sure, untuned, calls=10)
    0.0
    >>> round(saving_s(Prospect(0.010, spread=0.2), untuned, calls=100), 3)  # as fast by expectation, but who knows
    0.071
    """
    # The candidate is taken where a call takes less than this.
    most = best.seconds + (best.conversion_s - prospect.conversion_s) / calls
    if most <= 0:
        return 0.0
    if prospect.spread == 0 or prospect.seconds == 0:
        return calls * max(0.0, most - prospect.seconds)
    far = math.log(most / prospect.seconds) / prospect.spread
    mean = prospect.seconds * math.exp(prospect.spread**2 / 2)
    return max(0.0, calls * (most * _share_below(far) - mean * _share_below(far - prospect.spread)))


def worth_s(prospect: Prospect, best: Prospect, calls: float) -> float:
    """Return what measuring a candidate is worth: what it saves in the mean, less its price; seconds, may be negative."""
    return saving_s(prospect, best, calls) - prospect.price_s


def chance(prospect: Prospect, best: Prospect) -> float:
    """Return the probability that a candidate takes less time a call than ``best``, whose median counts.

    >>> chance(Prospect(0.010, spread=0.2), Prospect(0.010)), round(chance(Prospect(0.012, spread=0.2), Prospect(0.010)), 2)
    (0.5, 0.18)
    >>> chance(Prospect(0.008), Prospect(0.010))
    1.0
    """
    if prospect.spread == 0 or prospect.seconds == 0 or best.seconds == 0:
        return float(prospect.seconds < best.seconds)
    return _share_below(math.log(best.seconds / prospect.seconds) / prospect.spread)


def total_s(prospect: Prospect, calls: float) -> float:
    """Return the seconds of converting once and calling ``calls`` times."""
    return prospect.conversion_s + calls * prospect.seconds


def per_call_s(seconds: float, conversion_s: float, calls: float | None) -> float:
    """Return the seconds of a call, with the conversion's share where the number of ``calls`` is known."""
    return seconds + (conversion_s / calls if calls else 0.0)


def cheapest(prospects: Mapping[str, Prospect], calls: float) -> str:
    """Return the name of what takes least in all, its own price included: what to take where nothing more is measured."""
    return min(prospects, key=lambda name: prospects[name].price_s + total_s(prospects[name], calls))


def _share_below(far: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * math.erfc(-far / math.sqrt(2))
