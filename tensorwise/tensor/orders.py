"""Orders in which the coordinates of a mode are stored: permutations that a format computes from the entries.

Rows of like length side by side need little padding in slices; rows that share columns side by side
find gathered operands in the cache. Only the storage is permuted: results come in their own order.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, final

import numpy as np

from tensorwise.errors import FormatError
from tensorwise.tensor.entries import Entries
from tensorwise.toolchain.routines import POINTER, SIZE, Routines

LINE: Final = 16
"""Neighbouring columns that count as one when rows are compared: floats in a cache line."""
HASHES: Final = 4
ORDERED: Final = 2**18
"""Most entries of which any order is computed to count something; of more, coordinates count where they stand, ..."""
CHEAP: Final = "length"
"""... but for this order, which decides how full slices are."""
_PRIME: Final = 2**31 - 1
ORDERING: Final = Routines(
    "order rows and columns",
    "tw_order_",
    {"reverse_cuthill_mckee": (SIZE, (*(SIZE,) * 3, *(POINTER,) * 3))},
    Path(__file__).with_suffix(".c"),
)


def permutation(entries: Entries, mode: int, order: str) -> np.ndarray:
    """Return which coordinate of ``mode`` is stored at each place, (size,) int64.

    Raises FormatError when ``order`` is unknown or needs a matrix and ``entries`` are none.
    """
    name, window = split_name(order)
    if entries.order != 2 and name in ("rcm", "cluster"):
        raise FormatError(f"the order {name!r} is for matrices, got a tensor of order {entries.order}")
    return ORDERS[name](entries, mode, window)


def split_name(order: str) -> tuple[str, int]:
    """Return the name of an order and its window (0: none), as in ``length4096``.

    >>> split_name("length4096"), split_name("rcm")
    (('length', 4096), ('rcm', 0))

    Raises FormatError for any other text.
    """
    name = order.rstrip("0123456789")
    window = order[len(name) :]
    if name not in ORDERS or len(window) > 9 or (window and (name != "length" or int(window) < 1)):
        raise FormatError(
            f"{order!r} is no order of a mode; there are {', '.join(ORDERS)}, and windows as in length4096"
        )
    return name, int(window or 0)


@final
class Places:
    """The order in which the coordinates of each mode are stored, where it is cheap to compute; each is computed once.

    Args:
        entries: the pattern.
    """

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._known: dict[tuple[int, str], np.ndarray] = {}

    def of(self, mode: int, order: str) -> np.ndarray | None:
        """Return the place of each coordinate of ``mode``, (size,) int64; None where each stands in its own.

        Raises FormatError as `permutation` does.
        """
        if not order or (split_name(order)[0] != CHEAP and self._entries.nnz > ORDERED):
            return None
        if (mode, order) not in self._known:
            stored = permutation(self._entries, mode, order)
            places = np.empty_like(stored)
            places[stored] = np.arange(len(stored))
            self._known[mode, order] = places
        return self._known[mode, order]


def by_length(entries: Entries, mode: int, window: int) -> np.ndarray:
    """Longest first, stable, among each ``window`` neighbours (0: all); the sigma of SELL-C-sigma."""
    size = entries.shape[mode]
    lengths = np.bincount(entries.coordinates[mode], minlength=size)
    key = lengths.max(initial=0) - lengths
    if window and window < size:
        key += (np.arange(size) // window) * (int(key.max(initial=0)) + 1)
    return np.argsort(key, kind="stable")


def by_degree(entries: Entries, mode: int, window: int) -> np.ndarray:
    """By the mean length of the columns that a row reaches, most popular first: hubs share the cache."""
    size = entries.shape[mode]
    here, others = entries.coordinates[mode], [c for m, c in enumerate(entries.coordinates) if m != mode]
    popular = np.zeros(entries.nnz)
    for coordinates in others:
        popular += np.bincount(coordinates)[coordinates] if entries.nnz else 0
    sums = np.bincount(here, weights=popular, minlength=size)
    return np.argsort(-sums / np.maximum(np.bincount(here, minlength=size), 1), kind="stable")


def reverse_cuthill_mckee(entries: Entries, mode: int, window: int) -> np.ndarray:
    """Reverse Cuthill-McKee (1969) on the graph whose vertices are rows and columns, those of ``mode`` kept.

    The graph of a symmetric pattern has a vertex for each row. A search begins at the vertex of the lowest degree, ties are
    broken by index, and vertices without entries come last: the order depends on the pattern alone. (SciPy's breaks ties
    by an unstable sort, whose result depends on the instructions of the processor.)
    """
    rows, columns = entries.shape
    if not entries.nnz:
        return np.arange(entries.shape[mode])
    if max(rows + columns, entries.nnz) < 2**31 and ORDERING.works:
        vertices, order = _compiled(entries)
    else:
        vertices, order = reverse_cuthill_mckee_plain(entries)
    if vertices == rows:
        return order
    return order[order < rows] if mode == 0 else order[order >= rows] - rows


def _compiled(entries: Entries) -> tuple[int, np.ndarray]:
    rows, columns = entries.shape
    row, column = (np.ascontiguousarray(array, np.int32) for array in entries.coordinates)
    order = np.empty(rows + columns, np.int32)
    addresses = (array.ctypes.data for array in (row, column, order))
    vertices = ORDERING("reverse_cuthill_mckee", rows, columns, entries.nnz, *addresses)
    return vertices, order[:vertices].astype(np.int64)


def reverse_cuthill_mckee_plain(entries: Entries) -> tuple[int, np.ndarray]:
    """Do what ``orders.c`` does in NumPy, level by level: return the number of vertices and their order."""
    rows, columns = entries.shape
    here, there = (array.astype(np.int64) for array in entries.coordinates)
    turned = np.lexsort((here, there))
    symmetric = (
        rows == columns and np.array_equal(here, there[turned]) and np.array_equal(there, here[turned])
    )
    if not symmetric:
        here, there = np.concatenate([here, there + rows]), np.concatenate([there + rows, here])
    here, there = here[here != there], there[here != there]
    vertices = rows if symmetric else rows + columns
    degree = np.bincount(here, minlength=vertices)
    neighbours = there[np.lexsort((there, degree[there], here))]
    starts = np.concatenate([[0], np.cumsum(degree)])
    seen, levels = np.zeros(vertices, bool), list[np.ndarray]()
    for root in np.argsort(degree, kind="stable"):
        level = np.array([root])[~seen[[root]]]
        while len(level):
            seen[level] = True
            levels.append(level)
            counts = degree[level]
            places = np.repeat(starts[level] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
            reached = neighbours[places]
            reached = reached[~seen[reached]]
            level = reached[np.sort(np.unique(reached, return_index=True)[1])]
    return vertices, np.concatenate(levels)[::-1]


def by_similarity(entries: Entries, mode: int, window: int) -> np.ndarray:
    """Rows that share columns side by side: sorted by MinHash signatures (Broder, 1997) of their cache lines."""
    size = entries.shape[mode]
    here, other = entries.coordinates[mode], entries.coordinates[1 - mode].astype(np.int64) // LINE
    signatures = np.full((HASHES, size), _PRIME)
    rng = np.random.default_rng(0)
    for signature in signatures:
        a, b = rng.integers(1, _PRIME, 2)
        np.minimum.at(signature, here, (a * (other % _PRIME) + b) % _PRIME)
    return np.lexsort(signatures[::-1])


ORDERS: Final[Mapping[str, Callable[[Entries, int, int], np.ndarray]]] = MappingProxyType(
    {"length": by_length, "degree": by_degree, "rcm": reverse_cuthill_mckee, "cluster": by_similarity}
)
"""Name in a format's text -> function of (entries, mode, window)."""
