"""A strategy: simulated annealing, which goes on from a config that may be a little slower."""

import math
from typing import final

from tensorwise.search.strategy import Strategy
from tensorwise.space.config import Config

COOLING = 0.9
"""Factor of the temperature after each batch."""
START = 1.0
"""First temperature: a config that takes exp(1) times as long is gone on from with probability exp(-1)."""
TRIES = 20
"""Changes of a config that are tried before a fresh one is drawn."""


@final
class Annealing(Strategy):
    """Changes the current config; a slower one becomes the current one with a probability that falls with time."""

    _current: Config | None = None
    _temperature = START

    def _propose(self, n: int) -> list[Config]:
        for config in list(self._costs)[-n:]:
            self._move_to(config)
        self._temperature *= COOLING
        found: list[Config] = []
        while len(found) < n and self._current is not None:
            changed = (self.space.mutate(self._current, self.workload, self.rng) for _ in range(TRIES))
            new = next((config for config in changed if self._claim(config)), None)
            if new is None:
                break
            found.append(new)
        return found + self._draw(n - len(found))

    def _move_to(self, config: Config) -> None:
        """Make a config the current one if it is faster, or by chance."""
        cost, here = (
            self._costs[config],
            self._costs.get(self._current, math.inf) if self._current else math.inf,
        )
        if math.isinf(cost):
            return
        worse = math.log(cost / here) if math.isfinite(here) and here > 0 and cost > 0 else -1.0
        if worse <= 0 or self.rng.random() < math.exp(-worse / self._temperature):
            self._current = config
