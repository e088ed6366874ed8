"""Best-first search over a graph of configs by their predicted cost (WACO, sections 4.2.2 and 5.4).

WACO replaces the distance function of a nearest-neighbour library by the model's predictor. This is the same search in
NumPy. Each step expands the cheapest configs found so far and predicts their neighbours in one batch.
"""

from collections.abc import Callable
from typing import Final, TypeAlias, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.search.graph import ConfigGraph

Score: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""Predicts what rows of a graph cost: int64, (n,) -> float64, (n,); lower is better, plus infinity for never."""

BEAM: Final = 32
"""Cheapest configs known whose neighbours are looked at."""
WIDTH: Final = 8
"""Of these, how many at a time: one evaluation for all their neighbours."""


@final
class Walk:
    """One search over a graph, which can be taken up again.

    It begins at the entry points. In each hop the cheapest configs whose neighbours were not looked at, ``width`` of
    the cheapest ``beam``, are expanded: those of their neighbours that are new are scored in a single call. It rests
    when the neighbours of the whole beam are known.

    Args:
        graph: where to walk.
        score: what the search minimises.
        allowed: whether a row may be returned; asked only for the cheapest. Rows that may not be are walked over all the
            same: there may be good ones behind them.
        beam: the larger it is, the more is evaluated and the less is missed.
        width: rows expanded in a hop.

    Attributes:
        evaluated: rows that were scored.
        hops: calls of ``score``.

    Raises:
        InputError: a beam or a width below 1.
    """

    def __init__(
        self,
        graph: ConfigGraph,
        score: Score,
        allowed: Callable[[int], bool] = lambda row: True,
        *,
        beam: int = BEAM,
        width: int = WIDTH,
    ) -> None:
        if beam < 1 or width < 1:
            raise InputError(f"beam and width must be at least 1, got {beam} and {width}")
        self._graph, self._score, self._allowed = graph, score, allowed
        self._beam, self._width = beam, width
        self._known = np.zeros(len(graph), bool)
        self._expanded = np.zeros(len(graph), bool)
        self._cleared = np.zeros(len(graph), bool)  # found to be allowed
        # What was scored and neither returned nor found to be forbidden, the cheapest first, of equals those found first:
        self._rows, self._costs = np.empty(0, np.int64), np.empty(0)
        self.evaluated = self.hops = 0

    def take(self, n: int) -> np.ndarray:
        """Return the ``n`` cheapest rows known and not taken before, cheapest first: int64; fewer if there are no more.

        Raises:
            InputError: ``n`` is negative, or ``score`` did not give a cost for each row.
        """
        if n < 0:
            raise InputError(f"the number of rows to take must not be negative, got {n}")
        if not self.hops:
            self._evaluate(self._graph.entry_points)
        while True:
            self._settle(max(n, self._beam))
            rows = self._rows[:n]
            doubtful = np.flatnonzero(~self._cleared[rows]).tolist()
            forbidden = [place for place in doubtful if not self._allowed(int(rows[place]))]
            self._cleared[rows] = True
            gone = forbidden or slice(n)
            self._rows, self._costs = np.delete(self._rows, gone), np.delete(self._costs, gone)
            if not forbidden:
                return rows

    def _settle(self, beam: int) -> None:
        """Hop until the neighbours of the ``beam`` cheapest rows are known."""
        while True:
            rows = self._rows[:beam]
            hop = rows[~self._expanded[rows]][: self._width]
            if not len(hop):
                return
            self._expanded[hop] = True
            self._evaluate(self._graph.neighbours(hop))

    def _evaluate(self, rows: np.ndarray) -> None:
        new = rows[~self._known[rows]].astype(np.int64)
        if not len(new):
            return
        costs = np.asarray(self._score(new), float)
        if costs.shape != new.shape or np.isnan(costs).any():
            raise InputError(f"the score of {len(new)} rows must be as many numbers, got {costs!r:.80}")
        self._known[new] = True
        found, costs = np.append(self._rows, new), np.append(self._costs, costs)
        order = np.argsort(costs, kind="stable")
        self._rows, self._costs = found[order], costs[order]
        self.evaluated += len(new)
        self.hops += 1
