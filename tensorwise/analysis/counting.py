"""Counts in patterns: by compiled code, or by NumPy where there is no compiler. Both give the same integers."""

import numpy as np

from tensorwise.analysis import compiled, plain
from tensorwise.analysis.counts import MatrixCounts, ModeCounts, skip
from tensorwise.tensor.entries import Entries


def count_matrix(entries: Entries) -> MatrixCounts:
    """Count in the pattern of a matrix; blocks in some panels only where there are many entries.

    Raises:
        MemoryError: there is none for tables of a few words a column and diagonal (or a few dozen an entry).
    """
    count = compiled.matrix if _is_compiled(entries) else plain.matrix
    return count(entries, skip(entries.nnz))


def count_mode(entries: Entries, mode: int) -> ModeCounts:
    """Count in one mode of a tensor.

    Raises:
        MemoryError: as `count_matrix`.
    """
    return (compiled.mode if _is_compiled(entries) else plain.mode)(entries, mode)


def count_pairs(entries: Entries, first: int, second: int, shift: int) -> float:
    """Return how many pairs of coordinates of two modes occur, each coordinate divided by 2**shift.

    Where far more pairs are possible than there are entries this is an estimate, by linear counting in a table that is
    mostly empty (Whang, Vander-Zanden and Taylor, A Linear-Time Probabilistic Counting Algorithm for Database
    Applications, TODS 1990, section 2).

    Raises:
        MemoryError: there is none for two bytes an entry.
    """
    bits = max(20, (entries.nnz - 1).bit_length() + 4)
    possible = [((entries.shape[mode] - 1) >> shift) + 1 for mode in (first, second)]
    hashed = possible[0] * possible[1] > 2**bits
    count = compiled.pairs if _is_compiled(entries) else plain.pairs
    met = count(entries, first, second, shift, bits, hashed)
    return -(2.0**bits) * float(np.log1p(-met / 2**bits)) if hashed else float(met)


def _is_compiled(entries: Entries) -> bool:
    """Compiled code counts in 32 bits; larger patterns, and empty ones, are left to NumPy."""
    return 0 < entries.nnz < 2**31 and max(entries.shape) < 2**31 and compiled.COUNTING.works
