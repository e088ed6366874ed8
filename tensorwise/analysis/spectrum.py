"""How long the lines of a pattern are: rows, columns, slices of a tensor."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self, final

import numpy as np

from tensorwise.analysis.featurizer import Field


@final
@dataclass(frozen=True, eq=False)
class Spectrum:
    """How many lines have each length. A line's length is the number of its entries.

    >>> rows = Spectrum.of(np.array([3, 0, 1, 0]))
    >>> rows.lengths, rows.lines, rows.size
    (array([0, 1, 3]), array([2, 1, 1]), 4)
    >>> rows.quantiles([0.5, 0.9]), rows.share_above(2), rows.share_of_longest(1), rows.slots([1, 2])
    (array([0, 3]), 0.75, 0.75, array([4, 6]))

    Attributes:
        lengths: (k,) int64, ascending from 0.
        lines: (k,) int64, how many lines have each; the first may be 0.
    """

    lengths: np.ndarray
    lines: np.ndarray

    @classmethod
    def of(cls, counts: np.ndarray, size: int | None = None) -> Self:
        """Return the spectrum of lines with ``counts`` entries; of ``size`` lines, of which the others are empty."""
        lengths, lines = np.unique(counts[counts > 0], return_counts=True)
        return cls.of_lengths(lengths, lines, len(counts) if size is None else size)

    @classmethod
    def of_lengths(cls, lengths: np.ndarray, lines: np.ndarray, size: int) -> Self:
        """Return the spectrum of ``lines`` of each of ``lengths`` above 0, ascending; the rest of ``size`` is empty."""
        empty = size - int(lines.sum())
        return cls(
            np.concatenate([[0], lengths], dtype=np.int64), np.concatenate([[empty], lines], dtype=np.int64)
        )

    @cached_property
    def _ends(self) -> np.ndarray:
        """Lines up to each length."""
        return np.cumsum(self.lines)

    @cached_property
    def _entries_up_to(self) -> np.ndarray:
        """Entries in lines up to each length."""
        return np.cumsum(self.lengths * self.lines)

    @cached_property
    def size(self) -> int:
        """How many lines there are, empty ones too."""
        return int(self._ends[-1])

    @property
    def empty(self) -> int:
        """Lines without entries."""
        return int(self.lines[0])

    @cached_property
    def entries(self) -> int:
        """Entries in all lines."""
        return int(self._entries_up_to[-1])

    @property
    def longest(self) -> int:
        """Length of the longest line."""
        return int(self.lengths[-1])

    @property
    def mean(self) -> float:
        """Mean length, empty lines included."""
        return self.entries / max(self.size, 1)

    @property
    def variation(self) -> float:
        """Standard deviation of the lengths over their mean; 0 without entries."""
        if not self.entries:
            return 0.0
        square = float(self.lengths.astype(float) ** 2 @ self.lines) / self.size
        return float(max(square / self.mean**2 - 1, 0.0) ** 0.5)

    @property
    def gini(self) -> float:
        """Gini coefficient of the lengths: 0 where all are equal, almost 1 where one line has everything."""
        if not self.entries:
            return 0.0
        twice = (
            self._entries_up_to + self._entries_up_to
        )  # the area below Lorenz's curve, trapezium by trapezium
        area = (
            float((twice - self.lengths * self.lines).astype(float) @ self.lines) / self.entries / self.size
        )
        return max(1 - area, 0.0)

    def quantiles(self, shares: Sequence[float]) -> np.ndarray:
        """Return, for each of ``shares``, the least length that this share of the lines do not exceed."""
        places = np.searchsorted(self._ends, np.array(shares) * self.size)
        quantiles: np.ndarray = self.lengths[np.minimum(places, len(self.lengths) - 1)]
        return quantiles

    def share_above(self, length: float) -> float:
        """Return the share of entries in lines that are longer than ``length``."""
        shorter = int(np.searchsorted(self.lengths, length, side="right"))
        return 1 - float(self._entries_up_to[shorter - 1]) / self.entries if self.entries else 0.0

    def share_of_longest(self, count: int) -> float:
        """Return the share of entries in the ``count`` longest lines."""
        shorter = max(self.size - count, 0)
        place = int(np.searchsorted(self._ends, shorter))
        rest = int(self._entries_up_to[place]) - (int(self._ends[place]) - shorter) * int(self.lengths[place])
        return 1 - rest / self.entries if self.entries else 0.0

    def slots(self, heights: Sequence[int]) -> np.ndarray:
        """Return the slots of slices of each of ``heights`` lines, sorted by length, as wide as their longest line."""
        height = np.array(heights)[:, None]
        after = self.size - self._ends  # longer lines
        heads = -(-(after + self.lines) // height) + -after // height  # slices that begin with such a line
        slots: np.ndarray = heads @ self.lengths * height[:, 0]
        return slots


_ENTRIES: Final = "log2(1 + entries)"


def line_fields(group: str, line: str, lines: str) -> tuple[Field, ...]:
    """Return the fields of `line_numbers`: ``group`` names them, ``line`` and ``lines`` are nouns for people."""
    return (
        Field(f"{group}.mean", _ENTRIES, f"the mean number of entries of a {line}, empty ones included"),
        Field(f"{group}.longest", _ENTRIES, f"the number of entries of the longest {line}"),
        *(
            Field(
                f"{group}.p{percent}",
                _ENTRIES,
                f"the length that {percent} in 100 of all {lines} do not exceed",
            )
            for percent in (50, 90, 99)
        ),
        Field(
            f"{group}.variation",
            "log2(1 + ratio)",
            f"the standard deviation of the entries of a {line} over the mean",
        ),
        Field(f"{group}.empty", f"share of {lines}", f"how many {lines} have no entry"),
        Field(
            f"{group}.longest_1pct", "share of entries", f"what the longest hundredth of the {lines} holds"
        ),
        Field(
            f"{group}.gini", "0 to 1", f"the Gini coefficient of the entries of a {line}: how uneven they are"
        ),
    )


def line_numbers(lines: Spectrum) -> tuple[float, ...]:
    """Return the numbers of `line_fields`."""
    counts = (lines.mean, lines.longest, *lines.quantiles((0.5, 0.9, 0.99)), lines.variation)
    return (
        *np.log2(1 + np.array(counts)),
        lines.empty / max(lines.size, 1),
        lines.share_of_longest(-(-lines.size // 100)),
        lines.gini,
    )
