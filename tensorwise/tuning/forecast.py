"""A model's predictions for some configs, corrected by measurements of a few of them.

A model makes similar errors for similar configs: if one with two rows in registers is slower than predicted, so are its
neighbours. So the errors are modelled as a Gaussian process over configs, whose correlation falls with the number of
choices that differ, and measured errors correct the other predictions (kriging with an unknown mean: Rasmussen and
Williams, Gaussian Processes for Machine Learning, 2006, sections 2.2 and 2.7).
"""

import math
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Final, final

import numpy as np

from tensorwise.search import Pool
from tensorwise.space.config import Config
from tensorwise.tuning.worth import Prospect
from tensorwise.units import SHORTEST_S

ERROR: Final = 0.35
"""Standard deviation of log2 of times over what was predicted, before anything was measured (of ratios of two: 0.5), ..."""
DOUBTFUL: Final = 0.7
"""... and of a model that was trained for something else; ..."""
PRIOR: Final = 8
"""... it counts for as much as so many measurements."""
ALIKE: Final = 8.0
"""Errors of two configs have 1/e in common where so many choices differ, ..."""
OWN: Final = 0.1
"""... and of each this share of the variance is its own: also what a measurement is off by."""
CAUTION: Final = 1.0
"""The fastest of many predictions are often those that err most: configs are put in order by their scores and so many
standard deviations."""
STEPPED: Final = 0.2
"""For the same reason what steps found must be predicted to be faster by so much, in log2, to come before what was known."""
TEN, GROUNDED = 10, 3
"""Of each ten that are named so many are of the pool, or known to be good: models err least where they have learned."""


@final
class Forecast:
    """What a model says of some configs of one workload.

    Args:
        configs: what it speaks of.
        scores: float64, (n,): log2 of their times up to a constant; only their order counts unless it ``measures``.
        spreads: float64, (n,): standard deviations of the scores.
        measures: whether differences of scores are log2 ratios of times; otherwise only the order of scores has a meaning.
        error: standard deviation of log2 times about the scores, before anything was measured.
        grounded: the configs among them that were not found by steps from others; None: all.

    Attributes:
        scores: config -> its score; those first that are fast for certain, as far as spreads and grounds tell.
        measures: as given.
        named: the configs in the order in which they are worth trying while nothing was measured: as ``scores``, but of
            each ten some are ``grounded``.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        scores: np.ndarray,
        spreads: np.ndarray,
        measures: bool,
        error: float,
        grounded: Collection[Config] | None = None,
    ) -> None:
        known = set(configs if grounded is None else grounded)
        stepped = np.array([config not in known for config in configs], bool)
        order = np.argsort(cautious(scores, spreads) + STEPPED * stepped, kind="stable").tolist()
        self.scores = {configs[k]: float(scores[k]) for k in order}
        self.named = _mixed(list(self.scores), known)
        self.measures = measures
        self._scores = np.asarray(scores, float)[order]
        self._errors = np.hypot(error, np.asarray(spreads, float)[order])
        self._place = {config: place for place, config in enumerate(self.scores)}
        self._taken: dict[int, float] = {}  # place -> log2 of the seconds
        self._expected: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def compared(self) -> bool:
        """Whether something was measured: only then is it known how long anything takes."""
        return bool(self._taken)

    def learn(self, config: Config, seconds: float) -> None:
        """Compare with what a config took; of a time that is a lower bound, with the bound."""
        if not self.measures or config not in self._place or not math.isfinite(seconds):
            return
        self._taken[self._place[config]] = math.log2(max(seconds, SHORTEST_S))
        self._expected = None

    def prospect(self, config: Config, conversion_s: float, price_s: float) -> Prospect:
        """Return what is to be expected of a config, once something was compared.

        Args:
            conversion_s: seconds of packing the operand.
            price_s: seconds of compiling and measuring it.
        """
        if self._expected is None:
            self._expected = self._expect()
        place = self._place[config]
        mean, deviation = (float(values[place]) for values in self._expected)
        return Prospect(2**mean, math.log(2) * deviation, conversion_s, price_s)

    def _expect(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of log2 of the seconds of each, (n,), given what was measured."""
        measured, errors = list(self._taken), self._errors
        unit = 1 / errors  # all that follows is in units of each config's own error
        common = (1 - OWN) * np.exp(-self._differing(measured) / ALIKE)  # (n, m)
        inverse = np.linalg.inv(common[measured] + OWN * np.eye(len(measured)))
        off = (np.array(list(self._taken.values())) - self._scores[measured]) * unit[measured]
        certainty = unit[measured] @ inverse @ unit[measured]
        level = unit[measured] @ inverse @ off / certainty
        off -= level * unit[measured]
        weights = common @ inverse
        squares = (PRIOR + off @ inverse @ off) / (PRIOR + len(measured))
        left = 1 - np.einsum("nm,nm->n", weights, common) + (unit - weights @ unit[measured]) ** 2 / certainty
        return (
            self._scores + level + errors * (weights @ off),
            errors * np.sqrt(squares * np.maximum(left, OWN)),
        )

    def _differing(self, measured: Sequence[int]) -> np.ndarray:
        """In how many choices each config differs from the ``measured`` ones, (n, m)."""
        return np.asarray((self._choices[:, None] != self._choices[None, measured]).sum(axis=2))

    @cached_property
    def _choices(self) -> np.ndarray:
        """A number for each value that a choice has, (n, choices)."""
        return Pool.of(self.scores).choices


def cautious(scores: np.ndarray, spreads: np.ndarray) -> np.ndarray:
    """Scores as configs are put in order by, (n,)."""
    return np.asarray(scores + CAUTION * spreads)


def _mixed(ranked: Sequence[Config], grounded: Collection[Config]) -> list[Config]:
    """Return all of ``ranked``, of each ten the last few from the best of ``grounded``."""
    sure = (config for config in ranked if config in grounded)
    chosen: dict[Config, None] = {}
    for config in ranked:
        while len(chosen) % TEN >= TEN - GROUNDED:
            safe = next((one for one in sure if one not in chosen), None)
            if safe is None:
                break
            chosen[safe] = None
        chosen[config] = None
    return list(chosen)
