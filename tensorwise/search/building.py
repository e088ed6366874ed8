"""Building a graph of configs: good ones are bred by predictions, and each is linked to those with near embeddings."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.keeping import round_to_float16
from tensorwise.search.genetic import Genetic
from tensorwise.search.graph import ConfigGraph
from tensorwise.search.nearest import far_apart, linked
from tensorwise.search.pool import Pool
from tensorwise.space.config import Config
from tensorwise.space.space import Space

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

NEIGHBOURS: Final = 16
"""Nearest configs that each config is linked to."""
ENTRIES: Final = 192
"""Configs where a walk may begin. With 64 walks over 20,000 configs missed the cheapest on 3 of 27 matrices."""
BROOD: Final = 16
"""Configs bred at a time."""


def build_graph(
    pool: Pool, embeddings: np.ndarray, *, neighbours: int = NEIGHBOURS, entries: int = ENTRIES
) -> ConfigGraph:
    """Return the graph that links the configs of ``pool``.

    Args:
        pool: the configs.
        embeddings: float32, (configs, dimensions), of one model, in the order of the pool.
        neighbours: nearest configs that each one is linked to.
        entries: configs where a walk begins.

    Raises:
        InputError: not one finite embedding for each config, or a number below 1.
    """
    if neighbours < 1 or entries < 1:
        raise InputError(f"neighbours and entries must be at least 1, got {neighbours} and {entries}")
    points = np.ascontiguousarray(embeddings, np.float32)
    if points.ndim != 2 or len(points) != len(pool) or not np.isfinite(points).all():
        raise InputError(
            f"expected a finite embedding for each of {len(pool)} configs, got shape {points.shape}"
        )
    starts, links = linked(points, neighbours)
    return ConfigGraph(pool, round_to_float16(points), starts, links, far_apart(points, entries))


def bred(
    space: Space,
    workload: "Workload",
    cost: Callable[[Sequence[Config]], np.ndarray],
    n: int,
    rng: np.random.Generator,
) -> list[Config]:
    """Return ``n`` configs that a genetic search for the cheapest tries, in that order; fewer where there are no more.

    What is drawn by chance seldom comes near the best of a large space. A pool in which a part was bred, for several
    workloads, has good configs for others that are like one of them.

    Args:
        space: where they come from.
        workload: what they are for.
        cost: what configs cost for the workload, by prediction: float64, (n,).
        n: how many.
        rng: decides which.
    """
    strategy = Genetic(space, workload, rng)
    found: list[Config] = []
    while len(found) < n and (configs := strategy.ask(min(BROOD, n - len(found)))):
        strategy.tell(configs, cost(configs).tolist())
        found += configs
    return found
