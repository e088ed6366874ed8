"""GraphWalk: the walk over a graph of configs as a strategy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.search.graph import ConfigGraph
from tensorwise.search.strategy import Strategy
from tensorwise.search.walk import Score, Walk
from tensorwise.space.config import Config
from tensorwise.space.space import Space

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload


@final
class GraphWalk(Strategy):
    """Proposes configs of a graph search in order of predicted cost, then random configs of the rest of the space.

    Measured costs do not change the proposals: the search uses predictions only.

    Args:
        graph: of configs of ``space``, or of an older table of it: then rows are migrated (see ``Space.migrate``).
        score: predicts what rows of the graph cost for this workload.

    Raises:
        InputError: the graph has no Param of ``space``, or as for ``Strategy``.
    """

    def __init__(
        self,
        space: Space,
        workload: "Workload",
        rng: np.random.Generator,
        *,
        graph: ConfigGraph,
        score: Score,
        seeds: Sequence[Config] = (),
    ) -> None:
        super().__init__(space, workload, rng, seeds=seeds)
        if len(graph) and not graph.pool.values.keys() & space.by_name.keys():
            raise InputError(
                f"the graph is of another space: it has {', '.join(graph.pool.values)}, "
                f"and space {space.name!r} has {', '.join(space.by_name)}"
            )
        self._pool = graph.pool
        self.walk = Walk(graph, score, lambda row: space.migrate(graph.pool[row], workload) is not None)

    def _propose(self, n: int) -> list[Config]:
        chosen: list[Config] = []
        while len(chosen) < n:
            rows = self.walk.take(n - len(chosen))
            if not len(rows):
                return chosen + self._draw(n - len(chosen))
            chosen += [
                config
                for config in self._pool.migrated(rows, self.space, self.workload)
                if self._claim(config)
            ]
        return chosen
