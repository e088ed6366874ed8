"""What is counted in a pattern. `counting` counts it."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tensorwise.features.spectrum import Spectrum

# ``toolchain/pattern.c`` has these numbers, too.
LEVELS: Final = 15
"""Counts "by level" are numbers (LEVELS,): how many of what is counted are at least 2^0, 2^1, ... 2^14."""
NEVER: Final = 2**30
"""How far back a slot was met that was not met before."""
GRIDS: Final = (256, 128, 64, 32, 16, 8)
"""Cells in a row, and in a column, of the grids that are laid over a matrix."""
KEPT: Final = 64
"""The grid whose cells are kept."""
SLICES: Final = (4, 8, 16, 32, 64)
"""Rows of slices: lanes of a vector, or of several."""
WINDOW: Final = 4096
"""Rows that are sorted together; the order ``length4096``."""
PANEL: Final = 64
"""Rows of a panel: in large matrices blocks and diagonals are counted in some panels only."""
EXACT: Final = 2**16
"""Up to so many entries, blocks and diagonals are counted in all panels."""
LEAST_SKIP: Final = 4
"""Beyond, in one of so many panels, drawn by a hash of their number,"""
ENOUGH: Final = 2**18
"""or in fewer, where that leaves so many entries."""
GROUP: Final = 8
"""Rows that share dense columns, as in the partition ``columns>4/8``."""
MOST: Final = 4
"""Rows of a group that a column may meet before it counts as dense."""
NARROW: Final = (2, 4, 8)
"""Widths of blocks, beside 1 and LINE."""
MIRRORED: Final = 1024
"""Entries whose mirror image is looked for."""
LINE: Final = 16
"""Columns that share a cache line, as floats do."""


@final
@dataclass(frozen=True, eq=False)
class MatrixCounts:
    """What is counted in a matrix.

    A *meeting* is an entry at a slot (a column, a group of columns, a diagonal); it is counted at level a when the
    slot was not met before by a row in the same 2^a rows. So there are as many as nonempty pairs of a slot and 2^a rows.

    Attributes:
        shape: rows and columns.
        rows, columns, diagonals: how long they are.
        own_slots, sorted_slots: for each of SLICES, the slots of slices as wide as their longest row, with rows in their
            own order and sorted by length within each WINDOW.
        crossings: by level, entries of a row by (column ^ column before it in the row).
        offsets: by level, entries by |row - column|.
        column_meetings, line_meetings: by level, all meetings of columns, and of groups of LINE columns.
        block_meetings: (len(NARROW), LEVELS), meetings of groups of columns in the sampled panels.
        diagonal_meetings: by level, meetings of diagonals in the sampled panels.
        sampled: entries in the sampled panels.
        dense: of these, entries in columns that a group of rows meets more than MOST times.
        span: sum of column - column before it in the row.
        runs: how many of these differences are 1.
        below, above: the largest row - column and column - row.
        distance: sum of |row - column|.
        adjacent: entries whose column has one in the row before, too.
        mirrored: of MIRRORED evenly spread entries (or of all) those whose mirror image is an entry, too.
        filled: for each of GRIDS, the cells with entries.
        grid: (KEPT, KEPT) int64, entries in each cell of one of them.
    """

    shape: tuple[int, int]
    rows: Spectrum
    columns: Spectrum
    diagonals: Spectrum
    own_slots: np.ndarray
    sorted_slots: np.ndarray
    crossings: np.ndarray
    offsets: np.ndarray
    column_meetings: np.ndarray
    line_meetings: np.ndarray
    block_meetings: np.ndarray
    diagonal_meetings: np.ndarray
    sampled: int
    dense: int
    span: float
    runs: int
    below: int
    above: int
    distance: float
    adjacent: int
    mirrored: int
    filled: np.ndarray
    grid: np.ndarray


@final
@dataclass(frozen=True, eq=False)
class ModeCounts:
    """What is counted in one mode of a tensor.

    Attributes:
        lines: how many entries each coordinate has.
        jumps: by level, entries by |coordinate - coordinate of the entry before|.
        meetings: by level, entries whose coordinate was not met before among the same 2^a entries.
    """

    lines: Spectrum
    jumps: np.ndarray
    meetings: np.ndarray


def skip(nnz: int) -> int:
    """Return of how many panels one is looked at."""
    return 1 if nnz <= EXACT else max(LEAST_SKIP, nnz // ENOUGH)


def fold_bits(nnz: int) -> int:
    """Return the logarithm of how many slots are told apart; beyond, in very sparse patterns, hashes may collide."""
    return max(16, (nnz - 1).bit_length() + 2)
