"""Patterns that the tests of features share."""

import numpy as np

from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries


def matrix(rows: int, columns: int, places: list[tuple[int, int]]) -> Entries:
    """Return a matrix with entries at ``places``."""
    row, column = zip(*places, strict=True) if places else ((), ())
    return entries_from(((rows, columns), (list(row), list(column)), None))


def drawn(shape: tuple[int, ...], nnz: int, seed: int = 0, kind: str = "uniform") -> Entries:
    """Draw a tensor: entries anywhere, around the diagonal, or most of them at small coordinates."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, shape[0], nnz)
    others = {
        "uniform": lambda size: rng.integers(0, size, nnz),
        "banded": lambda size: np.clip(first * size // shape[0] + rng.integers(-9, 10, nnz), 0, size - 1),
        "skewed": lambda size: (size * rng.random(nnz) ** 6).astype(np.int64),
    }[kind]
    if kind == "skewed":
        first = others(shape[0])
    return entries_from((shape, (first, *(others(size) for size in shape[1:])), None))


SMALL = matrix(4, 6, [(0, 0), (0, 1), (0, 4), (1, 1), (3, 0), (3, 1), (3, 5)])
"""Worked out by hand in test_counting and test_matrix:

    x x . . x .
    . x . . . .
    . . . . . .
    x x . . . x
"""

ODD = {
    "empty": matrix(5, 7, []),
    "no rows": matrix(0, 4, []),
    "no columns": matrix(3, 0, []),
    "no places": matrix(0, 0, []),
    "one place": matrix(1, 1, [(0, 0)]),
    "one row": matrix(1, 3000, [(0, column) for column in range(0, 3000, 2)]),
    "one column": matrix(3000, 1, [(row, 0) for row in range(0, 3000, 3)]),
    "one dense row": matrix(2000, 2000, [*((i, i) for i in range(999)), *((999, k) for k in range(2000))]),
    "last places": matrix(2**31 - 1, 2**31 - 1, [(0, 2**31 - 2), (2**31 - 2, 0), (2**31 - 2, 2**31 - 2)]),
    "beyond 32 bits": matrix(2**40, 2**62, [(0, 2**61), (2**39, 5), (2**40 - 1, 0), (2**40 - 1, 2**62 - 1)]),
    "hyper-sparse": drawn((2**31 - 1, 2**31 - 1), 40_000),
}
"""Shapes at the ends of what there is."""
