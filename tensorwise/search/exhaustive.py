"""Every config, in table order: for spaces of up to a few thousand."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

import numpy as np

from tensorwise.search.strategy import Strategy
from tensorwise.space.config import Config
from tensorwise.space.space import Space

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload


@final
class Exhaustive(Strategy):
    """Proposes all configs one after the other; finds the optimum when it is let to the end."""

    def __init__(
        self, space: Space, workload: "Workload", rng: np.random.Generator, *, seeds: Sequence[Config] = ()
    ) -> None:
        super().__init__(space, workload, rng, seeds=seeds)
        self._all = space.enumerate(workload)

    def _propose(self, n: int) -> list[Config]:
        return list(itertools.islice((config for config in self._all if self._claim(config)), n))
