"""What a program takes where others can only slow it down: its fastest run, once others have hit it (decision 0111)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tensorwise.device.device import Measurement
from tensorwise.units import SHORTEST_S

AGREE, WITHIN = 3, 0.02
"""The fastest runs of so many rounds are to be so close: a floor is hit again, what others add is not."""
MIN_ROUNDS: Final = 6
"""... of at least so many: rounds that follow each other may all be slowed down alike."""
BOUT: Final = 3
"""Rounds that follow each other before it is asked whether they agree."""


def agreed(rounds: Sequence[float]) -> bool:
    """Whether a program needs no further rounds.

    Args:
        rounds: of each the seconds of the fastest run.
    """
    return len(rounds) >= MIN_ROUNDS and _spread(_fastest(rounds)) <= WITHIN


def fastest(rounds: Sequence[float]) -> Measurement:
    """Return the time of the fastest run, with the AGREE fastest rounds as samples.

    If these rounds differ by much, a note gives their spread.
    """
    samples = _fastest(rounds)
    spread = _spread(samples)
    note = f"the minima of its fastest rounds differ by {spread:.0%}" if spread > WITHIN else ""
    return replace(Measurement.of(samples, note), seconds=samples[0])


def _fastest(rounds: Sequence[float]) -> list[float]:
    return sorted(rounds)[:AGREE]


def _spread(samples: Sequence[float]) -> float:
    """By what share of the first the last of ascending seconds takes longer."""
    return samples[-1] / max(samples[0], SHORTEST_S) - 1
