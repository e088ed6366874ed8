"""What is counted in a pattern. `counting` counts it."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tensorwise.analysis.spectrum import Spectrum

# ``analysis/pattern.c`` has these numbers, too.
HEIGHTS: Final = (1, 2, 4, 8, 16)
"""Rows of blocks: those whose kernels keep a row each in a register."""
NARROW: Final = (2, 4, 8)
"""Columns of blocks, beside 1 and LINE."""
LINE: Final = 16
"""Columns that share a cache line, as floats do."""
BANDS: Final = (64, 256, 1024, 4096, 16384)
"""Rows in whose reach operands are gathered again."""
PIECES: Final = (16, 32, 64)
"""Rows of pieces of diagonals."""
STRIPS: Final = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""Columns of strips."""
OFFSETS: Final = (1, 16, 256, 4096)
"""Columns between an entry and the main diagonal."""
SLICES: Final = (4, 8, 16, 32, 64)
"""Rows of slices: lanes of a vector, or of several."""
WINDOW: Final = 4096
"""Rows that are sorted together; the order ``length4096``."""
GROUP: Final = 8
"""Rows that share dense columns, as in the partition ``columns>4/8``."""
SPARSE_MEETINGS: Final = 4
"""Rows of a group that a column may meet before it counts as dense."""
GRIDS: Final = (64, 32, 16, 8)
"""Cells in a row, and in a column, of the grids that are laid over a matrix."""
WINDOWS: Final = (64, 1024, 16384)
"""Entries of a tensor in whose reach a factor's row is gathered again."""
PANEL: Final = 64
"""Rows of a panel: in large matrices blocks, diagonals and dense columns are counted in some panels only."""
HEAVY: Final = 8192
"""Entries above which a panel is not counted as a whole, but"""
STRIP: Final = 1024
"""some strips of it, of so many columns."""
EXACT: Final = 2**16
"""Up to so many entries, they are counted in all panels."""
LEAST_SKIP: Final = 8
"""Beyond, in one of so many panels that have entries, drawn by a hash of their number,"""
ENOUGH: Final = 2**18
"""or in fewer, where that leaves so many entries."""


@final
@dataclass(frozen=True, eq=False)
class MatrixCounts:
    """What is counted in a matrix.

    A slot is a column, a group of columns or a diagonal. The *meetings* of slots by 2^a rows are the pairs of a slot and a
    group of 2^a aligned rows with an entry in both: the number of nonempty blocks, or of gathered rows of an operand.

    Attributes:
        shape: rows and columns.
        rows, columns: how long they are.
        own_slots, sorted_slots: for each of SLICES, the places of slices as wide as their longest row, with rows in their
            own order and sorted by length within each WINDOW.
        crossings: for LINE and each of STRIPS, how many entries have the entry before them in the row in another group
            of so many columns.
        offsets: for each of OFFSETS, how many entries are at least so far from the main diagonal.
        column_meetings, line_meetings: meetings of columns, and of groups of LINE columns, by each of HEIGHTS and BANDS.
        block_meetings: (len(NARROW), len(HEIGHTS)), meetings of groups of columns in the sample.
        diagonal_meetings: meetings of diagonals by each of PIECES, in the sample.
        sampled: entries in the sample.
        dense: of these, entries in columns that a group of rows meets more than SPARSE_MEETINGS times.
        span: sum of column - column before it in the row.
        runs: how many of these differences are 1.
        below, above: the largest row - column and column - row.
        distance: sum of |row - column|.
        filled: for each of GRIDS, the cells with entries.
        bands: (2, GRIDS[0]), entries in each row and in each column of cells of the finest one.
    """

    shape: tuple[int, int]
    rows: Spectrum
    columns: Spectrum
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
    filled: np.ndarray
    bands: np.ndarray


@final
@dataclass(frozen=True, eq=False)
class ModeCounts:
    """What is counted in one mode of a tensor.

    Attributes:
        lines: how many entries each coordinate has.
        repeats: entries with the same coordinate as the entry before.
        meetings: for each of WINDOWS, pairs of a coordinate and so many aligned entries that have one in common.
    """

    lines: Spectrum
    repeats: int
    meetings: np.ndarray


def skip(nnz: int) -> int:
    """Return of how many panels or strips one is sampled."""
    return 1 if nnz <= EXACT else max(LEAST_SKIP, nnz // ENOUGH)


def fold_bits(nnz: int) -> int:
    """Return log2 of the number of hash slots; hashes of very sparse patterns with more groups may collide."""
    return max(16, (nnz - 1).bit_length() + 2)
