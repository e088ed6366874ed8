"""Which matrices to measure: those that tell most about what all of them make a device do, before any is measured."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from tensorwise.analysis.footprint import Footprints
from tensorwise.errors import InputError
from tensorwise.space.strips import modes

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload
    from tensorwise.space.space import Space
    from tensorwise.space.strips import Mapper

LOOKED_AT: Final = 32
"""Configs of which a matrix is described: half a second on 20,000 entries."""
DOUBT: Final = 1e-3
"""What is known of rates before anything is measured, in matrices."""


def select_informative(costs: Sequence[np.ndarray], count: int) -> list[int]:
    """Choose the ``count`` most informative workloads, given the counted costs of configs on each: arrays (configs, costs).

    The time is modelled as a sum of costs times rates, fitted to relative errors. Workloads are chosen one after the other:
    the next one is that with which the mean variance of all predictions becomes least (I-optimal design of experiments,
    greedily). Since rates are not known yet, all costs are assumed to contribute equally.

    >>> select_informative([np.array([[4.0, 1.0]]), np.array([[4.0, 1.1]]), np.array([[1.0, 4.0]])], 2)
    [1, 2]
    """
    usual = np.exp(np.mean([np.log(one.mean(axis=0) + 1e-9) for one in costs], axis=0))
    sized = [np.column_stack([np.ones(len(one)), one / usual]) for one in costs]
    shares = [one / one.sum(axis=1, keepdims=True) for one in sized]
    says = np.array([one.T @ one / len(one) for one in shares])
    wanted, known = says.mean(axis=0), DOUBT * np.eye(1 + len(usual))
    chosen: list[int] = []
    for _ in range(min(count, len(costs))):
        doubts = np.trace(
            np.linalg.solve(known + says, np.broadcast_to(wanted, says.shape)), axis1=1, axis2=2
        )
        doubts[chosen] = np.inf
        chosen.append(int(doubts.argmin()))
        known = known + says[chosen[-1]]
    return chosen


def counted(work: "Workload", space: "Space") -> np.ndarray:
    """Return the footprints of the default config and some that are drawn: float64, (configs, fields).

    Raises:
        InputError: the space does not say how its configs are read as loops.
    """
    mapper, rng = _mapper(work, space), np.random.default_rng(0)
    footprints, dense = Footprints(work.entries, mapper.processors), work.sizes[modes(work)[2]]
    configs = [space.default(work), *(space.sample(work, rng) for _ in range(LOOKED_AT))]
    return np.array([footprints.of(mapper.strips(work, config), dense) for config in configs])


def representative(
    works: "Mapping[str, Workload]",
    space: "Space",
    count: int,
    progress: Callable[[str, float], None] = lambda now, share: None,
) -> list[str]:
    """Return the names of ``count`` workloads that tell most about all; in the order of ``works``.

    Args:
        progress: told which pattern is looked at, and the share that was.

    Raises: as `counted`.
    """
    names, costs = list(works), list[np.ndarray]()
    for work in works.values():
        _mapper(work, space)
    if count >= len(names):
        return names
    for name, work in works.items():
        progress(f"looking at {name}", len(costs) / len(names))
        costs.append(counted(work, space))
    return [names[place] for place in sorted(select_informative(costs, count))]


def _mapper(work: "Workload", space: "Space") -> "Mapper":
    mapper = space.mapper(work)
    if mapper is None:
        raise InputError(
            f"the space {space.name!r} does not say how its configs on {work.op} are read as loops, which is what devices "
            "have in common; give it a mapper (docs/accelerator.md)"
        )
    return mapper
