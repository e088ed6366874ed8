"""What interleaved rounds say: medians, spreads and ratios of the same round."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.reading import WRONG_DATA, reason

MIN_ROUNDS: Final = 3
"""Fewer rounds than this say little; a table that has fewer tells so."""


@final
@dataclass(frozen=True)
class Ratio:
    """Time of one variant over time of another, taken round by round.

    Attributes:
        median: of the ratios of single rounds.
        spread: their interquartile range.
        low, high: between them the true median lies with 95 % confidence, whatever the distribution (order
            statistics); with five rounds and fewer the extremes, which say less (three rounds: 75 %).
        rounds: number of rounds behind it.
    """

    median: float
    spread: float
    low: float
    high: float
    rounds: int


@final
@dataclass(frozen=True)
class RoundTable:
    """Seconds of each variant in each round.

    Attributes:
        names: the variants.
        seconds: one mapping a round, in the order they ran: variant -> what its fastest batch of calls took.
        disturbed: one flag a round: other processes were at work, or a variant was stopped by the scheduler.
        cache: ``warm`` (data as the last call left it) or ``cold`` (flushed before every call).
        elapsed_s: wall time of all rounds.
    """

    names: tuple[str, ...]
    seconds: tuple[Mapping[str, float], ...]
    disturbed: tuple[bool, ...]
    cache: str = "warm"
    elapsed_s: float = 0.0

    @property
    def rounds(self) -> tuple[Mapping[str, float], ...]:
        """The rounds that count: the undisturbed ones, or all when fewer than three of them are."""
        clean = tuple(r for r, bad in zip(self.seconds, self.disturbed, strict=True) if not bad)
        return clean if len(clean) >= MIN_ROUNDS else self.seconds

    @property
    def disturbed_rounds(self) -> int:
        """Number of disturbed rounds, counted or not."""
        return sum(self.disturbed)

    @property
    def note(self) -> str:
        """What weakens these figures, in words; empty when nothing does."""
        parts = []
        if len(self.rounds) < MIN_ROUNDS:
            parts.append(f"only {len(self.rounds)} rounds fitted the budget")
        if self.disturbed_rounds:
            used = "counted; ratios are uncertain" if self.rounds is self.seconds else "left out"
            parts.append(f"{self.disturbed_rounds} of {len(self.seconds)} rounds were disturbed ({used})")
        return "; ".join(parts)

    def samples(self, name: str) -> np.ndarray:
        """Seconds of ``name`` in the rounds that count."""
        if name not in self.names:
            raise InputError(f"no variant {name!r} was timed; timed were {', '.join(self.names)}")
        return np.array([row[name] for row in self.rounds])

    def median(self, name: str) -> float:
        """Median seconds of ``name`` over the rounds."""
        return float(np.median(self.samples(name)))

    def spread(self, name: str) -> float:
        """Interquartile range of the seconds of ``name``; unlike a ratio it has the machine's drift in it."""
        low, high = np.percentile(self.samples(name), (25, 75))
        return float(high - low)

    def ratio(self, a: str, b: str) -> Ratio:
        """Time of ``a`` over time of ``b``: below 1 ``a`` is the faster."""
        ratios = np.sort(self.samples(a) / self.samples(b))
        low, high = np.percentile(ratios, (25, 75))
        rank = _rank(len(ratios))
        return Ratio(
            float(np.median(ratios)),
            float(high - low),
            float(ratios[rank - 1]),
            float(ratios[len(ratios) - rank]),
            len(ratios),
        )

    def resolution(self, a: str, b: str) -> float:
        """Half-width around 1 that an A/A pair does not resolve: differences below it mean nothing here."""
        ratio = self.ratio(a, b)
        return max(abs(ratio.low - 1), abs(ratio.high - 1))

    def best(self) -> str:
        """The fastest variant: the one whose time is least against the round's geometric mean, by median."""
        return self.names[int(np.argmin(np.median(self.log_relative(), axis=0)))]

    def log_relative(self) -> np.ndarray:
        """Return logarithms of times over their round's geometric mean, (rounds that count, variants)."""
        logs = np.log(np.array([[row[name] for name in self.names] for row in self.rounds]))
        relative: np.ndarray = logs - logs.mean(axis=1, keepdims=True)
        return relative

    def renamed(self, names: Mapping[str, str]) -> "RoundTable":
        """The same table with variants renamed; a name that ``names`` lacks stays."""
        rows = tuple({names.get(name, name): s for name, s in row.items()} for row in self.seconds)
        fresh = tuple(names.get(name, name) for name in self.names)
        if len(set(fresh)) != len(fresh):
            raise InputError(f"two variants cannot share a name: {', '.join(fresh)}")
        return replace(self, names=fresh, seconds=rows)

    def to_json(self) -> dict[str, Any]:
        """A description of JSON types, as ``from_json`` takes it."""
        return {
            "names": list(self.names),
            "seconds": [[row[name] for name in self.names] for row in self.seconds],
            "disturbed": list(self.disturbed),
            "cache": self.cache,
            "elapsed_s": self.elapsed_s,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "RoundTable":
        """Rebuild a table; InputError when ``stored`` is none."""
        try:
            names = tuple(str(name) for name in stored["names"])
            rows = tuple(
                {name: float(s) for name, s in zip(names, row, strict=True)} for row in stored["seconds"]
            )
            disturbed = tuple(bool(flag) for flag in stored["disturbed"])
            table = cls(names, rows, disturbed, str(stored["cache"]), float(stored["elapsed_s"]))
        except WRONG_DATA as error:
            raise InputError(
                f"a table of rounds cannot be read: {type(error).__name__} {reason(error)}"
            ) from None
        times = [s for row in table.seconds for s in row.values()]
        if len(disturbed) != len(rows) or not all(0 < s < math.inf for s in times):
            raise InputError("a table of rounds needs one flag a round, and positive, finite seconds")
        return table


def _rank(count: int) -> int:
    """Rank (from 1) of the order statistic that bounds a median of ``count`` values from below at 95 %."""
    rank, tail, term = 1, 0.0, 0.5**count
    for k in range(count // 2):
        tail += term
        if 2 * tail > 0.05:
            break
        rank = k + 1
        term *= (count - k) / (k + 1)
    return rank


def median_of(samples: Sequence[float]) -> float:
    """Median as a float."""
    return float(np.median(np.asarray(samples, float)))
