"""What all searches minimise: the cost that a model predicts for one workload, over a pool and its space."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from tensorwise.program.workload import Workload
from tensorwise.search.graph import ConfigGraph
from tensorwise.space.config import Config
from tensorwise.space.space import Space


class Embedding(Protocol):
    """A cost model that embeds patterns and configs apart, as ``RankingModel`` does."""

    def embed_pattern(self, workload: Workload) -> np.ndarray:
        """Return the embedding of a pattern."""

    def embed_configs(self, configs: Sequence[Config]) -> np.ndarray:
        """Return the embeddings of n configs: float32, (n, length)."""

    def score(self, pattern: np.ndarray, configs: np.ndarray) -> np.ndarray:
        """Return scores of n embedded configs, lower is better: float64, (n,)."""


@dataclass(frozen=True)
class Settings:
    """What the figures depend on; ``values.toml`` explains each."""

    configs: int
    bred: int
    neighbours: int
    evaluations: int
    batch: int
    best: int
    seeds: tuple[int, ...]
    timings: int


@dataclass(frozen=True)
class Problem:
    """One workload, its pattern embedded.

    Attributes:
        pattern: what ``model.embed_pattern`` returned; making it is featurizing, which no search's time includes.
    """

    model: Embedding
    space: Space
    workload: Workload
    graph: ConfigGraph
    pattern: np.ndarray

    def allowed(self, row: int) -> bool:
        """Whether a config of the pool is valid for the workload."""
        return self.space.allows(self.graph.pool[row], self.workload)

    @cached_property
    def valid(self) -> np.ndarray:
        """``allowed`` of all rows; it takes seconds."""
        return np.array([self.allowed(row) for row in range(len(self.graph))], bool)

    @cached_property
    def ranked(self) -> np.ndarray:
        """The costs of all valid configs of the pool, ascending: float64."""
        costs = self.model.score(self.pattern, self.graph.embeddings[self.valid])
        return np.sort(costs)


@dataclass
class Trace:
    """Predicts costs for a search, and notes what it found when.

    Attributes:
        evaluated: configs whose cost was predicted.
        scoring_s: seconds that took, embedding of new configs included.
        best: each time a cheaper valid config was found: evaluations so far, seconds since the start, its cost.
    """

    problem: Problem
    evaluated: int = 0
    scoring_s: float = 0.0
    best: list[tuple[int, float, float]] = field(default_factory=list)
    start: float = field(default_factory=time.perf_counter)

    def rows(self, rows: np.ndarray) -> np.ndarray:
        """Predict rows of the pool, whose embeddings are kept."""
        begin = time.perf_counter()
        costs = self.problem.model.score(self.problem.pattern, self.problem.graph.embeddings[rows])
        self._note(costs, costs[self.problem.valid[rows]], begin)
        return costs

    def configs(self, configs: Sequence[Config]) -> np.ndarray:
        """Predict valid configs, of the pool or not, which are embedded first."""
        begin = time.perf_counter()
        costs = self.problem.model.score(self.problem.pattern, self.problem.model.embed_configs(configs))
        self._note(costs, costs, begin)
        return costs

    def _note(self, costs: np.ndarray, valid: np.ndarray, begin: float) -> None:
        now = time.perf_counter()
        self.scoring_s += now - begin
        self.evaluated += len(costs)
        if len(valid) and (not self.best or valid.min() < self.best[-1][2]):
            self.best.append((self.evaluated, now - self.start, float(valid.min())))

    def told(self) -> dict[str, Any]:
        """Return what the result file keeps; ``cheaper`` is the share of the pool's valid configs that are."""
        seconds, found = time.perf_counter() - self.start, self.best[-1][2]
        ranked = self.problem.ranked
        return {
            "evaluated": self.evaluated,
            "seconds": round(seconds, 6),
            "scoring_share": round(self.scoring_s / seconds, 4),
            "cost": found,
            "cheaper": int(np.searchsorted(ranked, found)) / len(ranked),
            "best": [(count, round(when, 6), cost) for count, when, cost in self.best],
        }
