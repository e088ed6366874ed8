"""Finds a graph again by the arrays that it consists of, so that code which holds only arrays sorts and compiles once."""

from collections import OrderedDict
from typing import Final, final
from weakref import WeakValueDictionary

import numpy as np

from tensorwise.front.gnn import Graph

MAX_MADE_GRAPHS: Final = 8
"""Graphs that a cache made itself and keeps; the least recently made is dropped first."""


@final
class GraphCache:
    """Graphs by the addresses of their arrays. An address is a guess: contents are compared before a graph is used."""

    def __init__(self) -> None:
        self._registered: WeakValueDictionary[tuple[int, ...], Graph] = WeakValueDictionary()
        self._made: OrderedDict[tuple[int, ...], Graph] = OrderedDict()

    def register(self, graph: Graph, pointers: np.ndarray, sources: np.ndarray) -> None:
        """Let `find` return ``graph`` for these arrays as long as somebody else keeps it."""
        self._registered[_address(pointers, sources, graph.shape[1])] = graph

    def find(
        self, pointers: np.ndarray, sources: np.ndarray, columns: int, numbers: np.ndarray | None = None
    ) -> Graph:
        """Return the graph that consists of these arrays as they are now; make it where nobody has it.

        Args:
            pointers: (destinations + 1,) where the edges of each destination begin.
            sources: (edges,) integers.
            columns: number of sources.
            numbers: (edges,) rows of the edges' features; None: in this order.

        Raises:
            InputError: pointers fall, or sources lie outside.
        """
        key = _address(pointers, sources, columns)
        for known in (self._registered.get(key), self._made.get(key)):
            if known is not None and consists_of(known, pointers, sources, numbers):
                return known
        made = Graph.from_pointers(pointers, sources, columns)
        if numbers is not None:
            made.renumber(numbers)
        self._made[key] = made
        if len(self._made) > MAX_MADE_GRAPHS:
            self._made.popitem(last=False)
        return made


def consists_of(
    graph: Graph, pointers: np.ndarray, sources: np.ndarray, numbers: np.ndarray | None = None
) -> bool:
    """Whether a graph has these contents: an address says nothing of what was written there since."""
    entries = graph.entries
    return (
        np.array_equal(entries.row_pointers(), pointers)
        and np.array_equal(entries.coordinates[1], sources)
        and (
            entries.numbers is numbers
            if entries.numbers is None or numbers is None
            else np.array_equal(entries.numbers, numbers)
        )
    )


def _address(pointers: np.ndarray, sources: np.ndarray, columns: int) -> tuple[int, ...]:
    return pointers.ctypes.data, sources.ctypes.data, len(pointers), len(sources), columns
