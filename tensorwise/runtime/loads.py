"""What threads get of a parallel loop over coordinates of a sparse operand: how even that is, is a fact of the pattern."""

from functools import reduce
from typing import Final, final

import numpy as np

from tensorwise.runtime.packed import ROW_COST
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.orders import Places

MOST_COORDINATES: Final = 2**26
"""Of a mode that are counted one by one; if there are more, nearly all are empty, and all count as equal."""
COUNTED: Final = 4096
"""Last tasks that are handed out one by one; those before them are even enough, but for the largest."""


@final
class Loads:
    """Counts what threads get in one pattern; what several ways to cut it up share is counted once.

    Args:
        entries: the pattern.
        places: where its coordinates are stored.
    """

    def __init__(self, entries: Entries, places: Places) -> None:
        self._entries, self._places = entries, places
        self._ends: dict[tuple[int, str], np.ndarray] = {}
        self._shares: dict[tuple[int, str, int, int], float] = {}

    def share(self, mode: int, order: str, coordinates: int, parts: int = 0) -> float:
        """Return the load imbalance of two threads: load of the busier one divided by half of the total, 1 to 2.

        Args:
            mode: whose coordinates are scheduled dynamically, in storage order.
            order: of the coordinates, see ``tensor/orders.py``; empty: their own.
            coordinates: coordinates in one task.
            parts: number of parts of about equal cost into which the tasks are grouped; 0: tasks are not grouped.
        """
        if (size := self._entries.shape[mode]) > MOST_COORDINATES:
            return even(parts or -(-size // coordinates))
        key = mode, order, coordinates, parts
        if key not in self._shares:
            ends = self._costs(mode, order)
            ends = np.append(ends[:-1:coordinates], ends[-1])
            if parts:
                ends = ends[np.searchsorted(ends, np.linspace(0, ends[-1], parts + 1), side="left")]
            self._shares[key] = uneven(np.diff(ends))
        return self._shares[key]

    def _costs(self, mode: int, order: str) -> np.ndarray:
        """What all coordinates before each place cost, and all: int64, (size + 1,)."""
        if (mode, order) not in self._ends:
            size, places = self._entries.shape[mode], self._places.of(mode, order)
            counts = np.bincount(self._entries.coordinates[mode], minlength=size)
            if places is not None:
                counts[places] = counts.copy()
            self._ends[mode, order] = np.concatenate([[0], np.cumsum(counts + ROW_COST)])
        return self._ends[mode, order]


def uneven(tasks: np.ndarray) -> float:
    """Return the load imbalance of two threads under dynamic scheduling: load of the busier one / half of the total.

    >>> uneven(np.array([1, 1, 1, 1])), uneven(np.array([1, 1, 2, 4])), uneven(np.array([3]))
    (1.0, 1.25, 2.0)

    Args:
        tasks: int64, (n,): what each of them costs.
    """
    total = int(tasks.sum())
    if not total:
        return 1.0
    ahead = reduce(lambda ahead, task: abs(ahead - task), tasks[-COUNTED:].tolist(), 0)
    return max(1 + ahead / total, 2 * int(tasks.max()) / total)


def even(tasks: int) -> float:
    """Return the same for so many tasks of equal cost.

    >>> even(1), even(2), even(3)
    (2.0, 1.0, 1.3333333333333333)
    """
    return 2 * -(-tasks // 2) / tasks if tasks else 1.0
