"""Partitions: rules that divide a tensor into a main part and a remainder, each with its format (a hybrid)."""

import re
from dataclasses import dataclass
from typing import Final, Self, final

import numpy as np

from tensorwise.errors import FormatError
from tensorwise.moved import renamed
from tensorwise.tensor.canonical import matrix_pointers
from tensorwise.tensor.entries import Entries

_TEXT: Final = re.compile(r"\s*(rows|columns)\s*>\s*([0-9]{1,9})\s*(?:/\s*([0-9]{1,9})\s*)?")
_MOST_KEYS: Final = 2**63 - 1


@final
@dataclass(frozen=True)
class Part:
    """Some entries of a tensor.

    Attributes:
        entries: those entries, of the whole tensor's shape.
        places: which of the whole tensor's entries they are, (nnz,) int64, ascending.
    """

    entries: Entries
    places: np.ndarray


@final
@dataclass(frozen=True)
class Partition:
    """Selects as remainder the entries of rows (or columns) that hold more than ``most`` of them.

    Rows are the coordinates of the first mode, columns those of the last. With a ``panel`` the other
    side (the last mode for rows, the first for columns) is cut into panels of so many coordinates, and
    entries are counted in each panel alone: ``columns>4/8`` are the columns that occur more than four
    times in eight rows, the dense column groups of ASpT (Hong et al., PPoPP 2019, section 3).

    >>> entries = Entries((3, 4), (np.array([0, 1, 1, 1]), np.array([0, 0, 2, 3])), np.ones(4))
    >>> Partition.parse("rows>2").select_remainder(entries)
    array([False,  True,  True,  True])
    >>> Partition.parse("columns>1/2").select_remainder(entries)
    array([ True,  True, False, False])
    """

    lines: str
    most: int
    panel: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the rule that ``text`` describes.

        Raises FormatError for what is no rule.

        >>> Partition.parse("rows>two")
        Traceback (most recent call last):
        tensorwise.errors.FormatError: 'rows>two' is no rule of a hybrid; write rows>64, columns>64 or columns>4/8
        """
        match = _TEXT.fullmatch(text)
        if match is None or (match[3] is not None and int(match[3]) < 1):
            raise FormatError(
                f"{text.strip()!r} is no rule of a hybrid; write rows>64, columns>64 or columns>4/8"
            )
        return cls(match[1], int(match[2]), None if match[3] is None else int(match[3]))

    def __str__(self) -> str:
        return f"{self.lines}>{self.most}" + ("" if self.panel is None else f"/{self.panel}")

    apart = renamed("select_remainder")

    def select_remainder(self, entries: Entries) -> np.ndarray:
        """Return for each entry whether it belongs to the remainder, (nnz,) bool."""
        lines, across = (0, -1) if self.lines == "rows" else (-1, 0)
        key, size = entries.coordinates[lines], entries.shape[lines]
        if self.panel is not None:
            panels = entries.coordinates[across].astype(np.int64) // self.panel
            count = -(-entries.shape[across] // self.panel)
            if size * count > _MOST_KEYS:  # number what occurs
                (_, key), (_, panels) = (np.unique(a, return_inverse=True) for a in (key, panels))
                size = count = entries.nnz
            key, size = panels * size + key, size * count
        if size <= 8 * entries.nnz + 2**16:
            dense: np.ndarray = (np.bincount(key, minlength=size) > self.most)[key]
            return dense
        order = np.argsort(key, kind="stable")  # fast on entries, whose rows are sorted already
        ends = np.flatnonzero(np.diff(key[order], append=-1)) + 1
        counts = np.diff(ends, prepend=0)
        found = np.empty(entries.nnz, bool)
        found[order] = np.repeat(counts > self.most, counts)
        return found

    def divide(self, entries: Entries) -> tuple[Part, Part]:
        """Return the main part and the remainder: each entry is in exactly one, in its old order."""
        remainder = self.select_remainder(entries)
        return _part(entries, np.flatnonzero(~remainder)), _part(entries, np.flatnonzero(remainder))


def _part(entries: Entries, places: np.ndarray) -> Part:
    coordinates = tuple(array[places] for array in entries.coordinates)
    pointers = matrix_pointers(entries.shape, coordinates[0])
    return Part(Entries(entries.shape, coordinates, entries.values[places], pointers), places)
