"""Which matrices to measure: some that stand for all, by clusters of what configs touch of them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.features.footprint import Footprints
from tensorwise.space.strips import modes

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload
    from tensorwise.space.space import Space

LOOKED_AT: Final = 32
"""Configs of which a matrix is described: half a tenth of a second each on 20,000 entries."""
ROUNDS: Final = 50
"""Steps of k-means, which settles in a dozen."""


def spread(numbers: np.ndarray, count: int, rng: np.random.Generator) -> list[int]:
    """Choose rows of ``numbers``, (things, numbers), by clusters: of each the one nearest to its middle (as CDMPP does).

    Columns count alike. Fewer than ``count`` rows are returned where clusters share their nearest one.

    >>> sorted(spread(np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.3]]), 2, np.random.default_rng(0)))
    [1, 4]
    """
    seen = (numbers - numbers.mean(axis=0)) / np.maximum(numbers.std(axis=0), 1e-6)
    middles = seen[rng.permutation(len(seen))[:count]]
    for _ in range(ROUNDS):
        nearest = np.linalg.norm(seen[:, None] - middles[None], axis=2).argmin(axis=1)
        middles = np.array(
            [
                seen[nearest == k].mean(axis=0) if (nearest == k).any() else middle
                for k, middle in enumerate(middles)
            ]
        )
    chosen = np.linalg.norm(seen[:, None] - middles[None], axis=2).argmin(axis=0)
    return list(dict.fromkeys(chosen.tolist()))


def described(work: "Workload", space: "Space", rng: np.random.Generator) -> np.ndarray:
    """Return the mean footprint of the default config and some that are drawn: float64, (fields,).

    Raises:
        InputError: the space does not say how its configs are read as loops.
    """
    mapper = space.mapper(work)
    if mapper is None:
        raise InputError(
            f"the space {space.name!r} does not say how its configs on {work.op} are read as loops, which is what devices "
            "have in common; give it a mapper (docs/accelerator.md)"
        )
    footprints, dense = Footprints(work.entries), work.sizes[modes(work)[2]]
    configs = [space.default(work), *(space.sample(work, rng) for _ in range(LOOKED_AT))]
    seen = np.array([footprints.of(mapper.strips(work, config), dense) for config in configs], np.float64)
    return np.asarray(seen.mean(axis=0))


def representative(
    works: "Mapping[str, Workload]", space: "Space", count: int, rng: np.random.Generator
) -> list[str]:
    """Return the names of ``count`` workloads that stand for all; in the order of ``works``.

    Raises: as `described`.
    """
    names = list(works)
    numbers = np.array([described(works[name], space, np.random.default_rng(0)) for name in names])
    chosen = spread(numbers, count, rng)
    # Where clusters share their nearest one, the rest is drawn.
    others = [int(place) for place in rng.permutation(len(names)) if place not in chosen]
    return [names[place] for place in sorted([*chosen, *others[: count - len(chosen)]])]
