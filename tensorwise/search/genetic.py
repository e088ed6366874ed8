"""Genetic search as G-Sparse describes it (section III-D, "Genetic Search and Random Sampling").

A population of 16; of each generation the 6 fittest live on, the others are replaced by children of
parents drawn by a roulette wheel on 1 / time; a child mutates with probability 20 %; after three
generations the published search stops. Ours goes on as long as it is asked: with three more generations
if the last three found something better, else with a fresh population that keeps the best config.

An invalid child is replaced by the valid candidate nearest to it. Here the table repairs each gene that is
not allowed to the nearest allowed value as the child is made; a child that was evaluated before, which
would tell nothing new, is replaced by the new candidate with the nearest encoding.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.search.strategy import Strategy
from tensorwise.space.config import Config
from tensorwise.space.space import Space

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

POOL = 8
"""Candidates, one change away from a known child, of which the nearest replaces it."""


@final
class Genetic(Strategy):
    """Breeds configs from the cheapest ones known.

    Args:
        population: configs in a generation.
        elite: how many of them live on, not measured again.
        generations: after so many without a better config the population is drawn afresh.
        mutation: probability that a child mutates (one choice changes, rarely more).
    """

    def __init__(
        self,
        space: Space,
        workload: "Workload",
        rng: np.random.Generator,
        *,
        population: int = 16,
        elite: int = 6,
        generations: int = 3,
        mutation: float = 0.2,
        seeds: Sequence[Config] = (),
    ) -> None:
        if not (population >= 2 and 0 < elite < population and generations >= 1 and 0 <= mutation <= 1):
            raise InputError(
                "expected population >= 2, 0 < elite < population, generations >= 1 and mutation in [0, 1], "
                f"got {population}, {elite}, {generations}, {mutation}"
            )
        super().__init__(space, workload, rng, seeds=seeds)
        self._size, self._elite, self._generations, self._mutation = population, elite, generations, mutation
        self._population: list[Config] = []
        self._queue: list[Config] = []
        self._age = 0
        self._best_before = math.inf

    def _propose(self, n: int) -> list[Config]:
        chosen: list[Config] = []
        while len(chosen) < n and (self._queue or self._breed()):
            config = self._queue.pop(0)
            if config not in self._costs:  # it may have been told meanwhile
                chosen.append(config)
        return chosen

    def _breed(self) -> bool:
        """Queue the next generation; False when the space has no more."""
        members = self._population or [*self._costs, *self._proposed]
        parents = sorted(
            (one for one in dict.fromkeys(members) if self._costs.get(one, math.inf) < math.inf),
            key=lambda one: self._costs[one],
        )
        if self._age == self._generations:
            best = self.best[1] if self.best else math.inf
            parents = parents if best < self._best_before else parents[:1]
            self._best_before, self._age = best, 0
        if len(parents) >= max(2, self._size // 2):
            self._age += 1
            parents, survivors = parents[: self._size], parents[: self._elite]
            fitness = _fitness(np.array([self._costs[parent] for parent in parents]))
            born = [self._child(parents, fitness) for _ in range(self._size - len(survivors))]
            self._queue = [child for child in born if child is not None]
        else:
            survivors = parents
            self._queue = self._draw(self._size - len(survivors))
        untold = [one for one in self._population if one not in self._costs]
        self._population = [*survivors, *untold, *self._queue]
        return bool(self._queue)

    def _child(self, parents: list[Config], fitness: np.ndarray) -> Config | None:
        """Return a new config: cross two parents, mutate now and then, step aside if it is known."""
        a, b = self.rng.choice(len(parents), size=2, replace=False, p=fitness)
        child = self.space.cross(parents[int(a)], parents[int(b)], self.workload, self.rng)
        if self.rng.random() < self._mutation:
            child = self.space.mutate(child, self.workload, self.rng, rate=0.0)
        return child if self._claim(child) else self._nearest_new(child)

    def _nearest_new(self, known: Config) -> Config | None:
        pool = dict.fromkeys(self.space.mutate(known, self.workload, self.rng, rate=0.0) for _ in range(POOL))
        new = [one for one in pool if self._is_new(one)]
        if not new:
            return next(iter(self._draw(1)), None)
        here = self.space.encode(known, self.workload)
        away = [float(np.linalg.norm(self.space.encode(one, self.workload) - here)) for one in new]
        nearest = new[int(np.argmin(away))]
        self._claim(nearest)
        return nearest


def _fitness(costs: np.ndarray) -> np.ndarray:
    """Return the chance of each parent: 1 / cost, as in the paper.

    Scores of a model may be zero or negative; their chances fall with the distance to the best.
    """
    if costs.min() <= 0:
        costs = costs - costs.min()
        costs = costs + max(float(costs.mean()), np.finfo(float).tiny * 2**20)
    chances = costs.min() / costs  # like 1 / costs, without overflow
    return np.asarray(chances / chances.sum())
