"""How long the lines of a pattern are: rows, columns, diagonals, slices of a tensor."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self, final

import numpy as np

from tensorwise.features.featurizer import Field


@final
@dataclass(frozen=True, eq=False)
class Spectrum:
    """How many lines have each length. A line's length is the number of its entries.

    >>> rows = Spectrum.of(np.array([3, 0, 1, 0]))
    >>> rows.lengths, rows.lines, rows.size
    (array([1, 3]), array([1, 1]), 4)
    >>> rows.quantile(0.9), rows.share_above(2), rows.share_of_longest(1), rows.slots(2)
    (3, 0.75, 0.75, 6)

    Attributes:
        lengths: (k,) int64, ascending, above 0.
        lines: (k,) int64, how many lines have each.
        size: how many lines there are, empty ones too.
    """

    lengths: np.ndarray
    lines: np.ndarray
    size: int

    @classmethod
    def of(cls, counts: np.ndarray, size: int | None = None) -> Self:
        """Return the spectrum of lines with ``counts`` entries; of ``size`` lines, of which the others are empty."""
        lengths, lines = np.unique(counts, return_counts=True)
        full = lengths > 0
        return cls(
            lengths[full].astype(np.int64),
            lines[full].astype(np.int64),
            len(counts) if size is None else size,
        )

    @cached_property
    def filled(self) -> int:
        """Lines with entries."""
        return int(self.lines.sum())

    @cached_property
    def entries(self) -> int:
        """Entries in all lines."""
        return int(self.lengths @ self.lines)

    @property
    def longest(self) -> int:
        """Length of the longest line."""
        return int(self.lengths[-1]) if len(self.lengths) else 0

    @property
    def mean(self) -> float:
        """Mean length, empty lines included."""
        return self.entries / max(self.size, 1)

    @property
    def variation(self) -> float:
        """Standard deviation of the lengths over their mean; 0 without entries."""
        if not self.entries:
            return 0.0
        lengths = self.lengths.astype(float)
        square = float(lengths**2 @ self.lines) / self.size
        return math.sqrt(max(square / self.mean**2 - 1, 0.0))

    @property
    def gini(self) -> float:
        """Gini coefficient of the lengths: 0 where all are equal, almost 1 where one line has everything."""
        if not self.entries:
            return 0.0
        shares = np.cumsum(self.lengths * self.lines.astype(float)) / self.entries
        area = (
            float((shares + np.append(0, shares[:-1])) @ self.lines) / self.size
        )  # twice that below Lorenz's curve
        return max(1 - area, 0.0)

    def quantile(self, share: float) -> int:
        """Return the least length that ``share`` of the lines do not exceed."""
        below = self.size - self.filled + np.cumsum(self.lines)
        if not len(below) or self.size - self.filled >= share * self.size:
            return 0
        return int(self.lengths[min(int(np.searchsorted(below, share * self.size)), len(below) - 1)])

    def share_above(self, length: float) -> float:
        """Return the share of entries in lines that are longer than ``length``."""
        longer = self.lengths > length
        return float(self.lengths[longer] @ self.lines[longer]) / max(self.entries, 1)

    def share_of_longest(self, count: int) -> float:
        """Return the share of entries in the ``count`` longest lines."""
        lines, lengths = self.lines[::-1], self.lengths[::-1]
        taken = np.diff(np.minimum(np.cumsum(lines), count), prepend=0)
        return float(taken @ lengths) / max(self.entries, 1)

    def slots(self, height: int) -> int:
        """Return the slots of slices of ``height`` lines, sorted by length, each as wide as its longest line."""
        lines = self.lines[::-1]
        ends = np.cumsum(lines)
        heads = -(-ends // height) + (lines - ends) // height  # slices that begin with such a line
        return int(heads @ self.lengths[::-1]) * height


def log(count: float) -> float:
    """Return log2(1 + count)."""
    return float(np.log2(1 + count))


_ENTRIES: Final = "log2(1 + entries)"


def line_fields(group: str, line: str) -> tuple[Field, ...]:
    """Return the fields of `line_values`: ``group`` names them, ``line`` is the singular noun for people."""
    return (
        Field(f"{group}.mean", _ENTRIES, f"the mean number of entries of a {line}, empty ones included"),
        Field(
            f"{group}.variation",
            "log2(1 + ratio)",
            f"the standard deviation of the entries of a {line} over the mean",
        ),
        Field(f"{group}.longest", _ENTRIES, f"the number of entries of the longest {line}"),
        *(
            Field(
                f"{group}.p{percent}",
                _ENTRIES,
                f"the length that {percent} in 100 of all {line}s do not exceed",
            )
            for percent in (50, 90, 99)
        ),
        Field(f"{group}.empty", f"share of {line}s", f"how many {line}s have no entry"),
        Field(
            f"{group}.longest_1pct", "share of entries", f"what the longest hundredth of the {line}s holds"
        ),
        Field(
            f"{group}.gini", "0 to 1", f"the Gini coefficient of the entries of a {line}: how uneven they are"
        ),
    )


def line_values(lines: Spectrum) -> tuple[float, ...]:
    """Return the numbers of `line_fields`."""
    return (
        log(lines.mean),
        log(lines.variation),
        log(lines.longest),
        *(log(lines.quantile(percent / 100)) for percent in (50, 90, 99)),
        (lines.size - lines.filled) / max(lines.size, 1),
        lines.share_of_longest(-(-lines.size // 100)),
        lines.gini,
    )
