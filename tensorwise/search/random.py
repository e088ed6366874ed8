"""Random configs without replacement: the strategy that the others must beat."""

from typing import final

from tensorwise.search.strategy import Strategy
from tensorwise.space.config import Config


@final
class Random(Strategy):
    """Proposes independent samples of the space, leaving out what is known."""

    def _propose(self, n: int) -> list[Config]:
        return self._draw(n)
