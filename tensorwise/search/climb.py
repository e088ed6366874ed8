"""Steps from good configs to better ones by predictions: what a pool that was drawn beforehand seldom holds.

A pool knows good values of each choice, but few of their combinations. From the best configs known a climb looks at
all that differ by one step of one choice, predicts them, and goes on from the best of all (steepest ascent with a beam).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from tensorwise.space.config import Config
from tensorwise.space.space import Space

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

HOPS: Final = 3
"""Most steps from where a climb begins."""
BEAM: Final = 8
"""The cheapest configs known, from which the next steps are taken."""
LOOKED_AT: Final = 64
"""Of the new configs of a hop so many, the cheapest by the quicker prediction, are predicted in full."""

Cost = Callable[[Sequence[Config]], np.ndarray]
"""Predicts what configs cost: float64, (n,); lower is better."""


def climbed(
    space: Space,
    workload: "Workload",
    known: Mapping[Config, float],
    cost: Cost,
    quick: Cost,
    *,
    names: Collection[str] | None = None,
    hops: int = HOPS,
    enough: Callable[[], bool] = lambda: False,
) -> dict[Config, float]:
    """Return all configs known in the end, with their costs.

    Args:
        space: where they come from.
        workload: what they are for.
        known: where to begin: valid configs and what ``cost`` says of them.
        cost: what is minimised.
        quick: a cheaper prediction, which says what ``cost`` is asked about.
        names: params that are stepped; None: all. Steps that ``cost`` cannot see would all tie.
        hops: most steps.
        enough: asked before each hop whether it has taken long enough.
    """
    costs, seen = dict(known), set[Config]()
    for _ in range(hops):
        here = [config for config in sorted(costs, key=costs.__getitem__)[:BEAM] if config not in seen]
        if not here or enough():
            break
        seen.update(here)
        near = dict.fromkeys(near for config in here for near in space.neighbours(config, workload, names))
        new = [config for config in near if config not in costs]
        if not new:
            continue
        looked_at = [new[place] for place in np.argsort(quick(new), kind="stable")[:LOOKED_AT].tolist()]
        costs.update(zip(looked_at, cost(looked_at).tolist(), strict=True))
    return costs
