"""Strategy: what to try next. It knows a Space and what costs came back; neither models nor devices."""

import abc
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tensorwise.errors import InputError
from tensorwise.space.config import Config
from tensorwise.space.space import Space

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

MAX_DUPLICATES = 100
"""Samples in a row that are all known before the rest of a space is listed instead."""

CHUNK = 1000
"""Configs listed and shuffled at a time."""


class Strategy(abc.ABC):
    """Proposes configs of a space for one workload.

    Lifetime: ``ask`` for some configs, measure or predict them, ``tell`` the costs, and so on. Telling
    may lag behind, come in any order or not at all; then less is known, but ``ask`` still answers.
    No config is proposed twice, and none whose cost was told.

    Args:
        space: where configs come from.
        workload: what they are for.
        rng: the only source of randomness; the same seed and costs give the same proposals.
        seeds: configs to propose first, in this order.

    Attributes:
        space, workload, rng: as given.

    Raises:
        InputError: a seed is not valid for the workload (``space.complete`` repairs one).
    """

    def __init__(
        self, space: Space, workload: "Workload", rng: np.random.Generator, *, seeds: Sequence[Config] = ()
    ) -> None:
        self.space, self.workload, self.rng = space, workload, rng
        for seed in seeds:
            space.check(seed, workload)
        self._seeds = [space.parse(seed) for seed in dict.fromkeys(seeds)]
        self._proposed: dict[Config, None] = dict.fromkeys(self._seeds)  # in order, unlike a set
        self._costs: dict[Config, float] = {}
        self._rest: Iterator[Config] | None = None  # the listed space, once samples only repeat

    def ask(self, n: int) -> list[Config]:
        """Return ``n`` new configs; fewer, down to none, only when the space has no more.

        Raises:
            InputError: ``n`` is negative.
        """
        if n < 0:
            raise InputError(f"the number of configs to ask for must not be negative, got {n}")
        chosen: list[Config] = []
        while self._seeds and len(chosen) < n:
            seed = self._seeds.pop(0)
            if seed not in self._costs:
                chosen.append(seed)
        return chosen + self._propose(n - len(chosen)) if len(chosen) < n else chosen

    def tell(self, configs: Sequence[Config], costs: Sequence[float]) -> None:
        """Learn what configs cost: any unit, lower is better, infinite for a failure.

        Configs that were not asked for are welcome (results of earlier runs). A config told again
        replaces what was told before.

        Raises:
            InputError: the lengths differ, or a cost is NaN or minus infinity.
        """
        if len(configs) != len(costs):
            raise InputError(
                f"expected one cost for each config, got {len(configs)} configs and {len(costs)} costs"
            )
        if bad := [cost for cost in costs if math.isnan(cost) or cost == -math.inf]:
            raise InputError(f"a cost must be a number or plus infinity, got {bad[0]}")
        self._costs.update((config, float(cost)) for config, cost in zip(configs, costs, strict=True))

    @property
    def best(self) -> tuple[Config, float] | None:
        """The cheapest config told and its cost; None while every one failed or none was told."""
        config = min(self._costs, key=lambda known: self._costs[known], default=None)
        return None if config is None or self._costs[config] == math.inf else (config, self._costs[config])

    @abc.abstractmethod
    def _propose(self, n: int) -> list[Config]:
        """Return ``n`` configs that ``_claim`` accepted, fewer when there are no more."""

    def _is_new(self, config: Config) -> bool:
        """Whether ``config`` was neither proposed nor told."""
        return config not in self._proposed and config not in self._costs

    def _claim(self, config: Config) -> bool:
        """Mark ``config`` as proposed and say whether it was new."""
        new = self._is_new(config)
        self._proposed[config] = None
        return new

    def _draw(self, n: int) -> list[Config]:
        """Claim ``n`` random new configs; when samples only repeat, whatever is left of the space."""
        drawn: list[Config] = []
        repeats = 0
        while len(drawn) < n and self._rest is None:
            config = self.space.sample(self.workload, self.rng)
            if self._claim(config):
                drawn.append(config)
                repeats = 0
            else:
                repeats += 1
            if repeats == MAX_DUPLICATES:
                self._rest = self._shuffled()
        rest = (config for config in self._rest or () if self._claim(config))
        return drawn + list(itertools.islice(rest, n - len(drawn)))

    def _shuffled(self) -> Iterator[Config]:
        """Yield all configs of the space, in random order within stretches of CHUNK."""
        listed = self.space.enumerate(self.workload)
        while chunk := list(itertools.islice(listed, CHUNK)):
            for k in self.rng.permutation(len(chunk)):
                yield chunk[k]
