"""What choosing by predictions gains: the figures of COGNATE's evaluation (section 4). In NumPy."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.model.metrics import kendall
from tensorwise.units import SHORTEST_S


@final
@dataclass(frozen=True)
class Gain:
    """What the configs of one workload predicted best gain over the default config.

    Attributes:
        speedup1, speedup5, optimum: over the default config, of the config predicted best, of the fastest of the five
            predicted best, and of the fastest of all.
        ordered: share of the pairs with different costs that are predicted in order.
        kendall: tau-b over all pairs; 0 where predictions are all the same.
    """

    speedup1: float
    speedup5: float
    optimum: float
    ordered: float
    kendall: float


def gain(costs: np.ndarray, predicted: np.ndarray, default: float) -> Gain:
    """Return what choosing among the configs of one workload by ``predicted`` gains; both (configs,).

    Args:
        costs: seconds; infinite for a config that failed, which then counts as the default one: that is what would be run.
        default: seconds of the default config.

    Raises:
        InputError: shapes differ, a prediction is not finite, or the default config has no time.

    >>> gain(np.array([1.0, 2.0, 4.0]), np.array([0.2, 0.1, 0.3]), 4.0)
    Gain(speedup1=2.0, speedup5=4.0, optimum=4.0, ordered=0.6666666666666666, kendall=0.3333333333333333)
    """
    if not (np.isfinite(default) and default > 0):
        raise InputError(f"the default config has no time ({default}): speed-ups over it do not exist")
    tau = kendall(costs, predicted)
    faster = default / np.where(np.isfinite(costs), np.maximum(costs, SHORTEST_S), default)
    best = np.argsort(predicted, kind="stable")
    finite = np.where(np.isfinite(costs), costs, np.finfo(float).max)
    signs = np.sign(finite[:, None] - finite[None, :])
    agree = (signs * np.sign(predicted[:, None] - predicted[None, :]))[signs != 0]
    return Gain(
        float(faster[best[0]]),
        float(faster[best[:5]].max()),
        float(faster.max()),
        float(np.mean(agree > 0)) if agree.size else 1.0,
        float(np.nan_to_num(tau)),
    )


def mean_gain(gains: Iterable[Gain]) -> dict[str, float]:
    """Return the figures over workloads.

    ``workloads``: how many. ``speedup1``, ``speedup5``, ``optimum``: geometric means. ``top1``, ``top5``: ``speedup1`` and
    ``speedup5`` over ``optimum``. ``gained1``, ``gained5``: share of the possible gain, (s - 1) / (optimum - 1), or 0.
    ``ordered``, ``kendall``: means.

    Raises:
        InputError: there is none.
    """
    rows = [(one.speedup1, one.speedup5, one.optimum, one.ordered, one.kendall) for one in gains]
    if not rows:
        raise InputError("there is no workload on which choosing could be judged")
    table = np.array(rows)
    one, five, optimum = np.exp(np.log(table[:, :3]).mean(axis=0)).tolist()
    room = optimum - 1 or np.inf
    return {
        "workloads": len(rows), "speedup1": one, "speedup5": five, "optimum": optimum, "top1": one / optimum,
        "top5": five / optimum, "gained1": (one - 1) / room, "gained5": (five - 1) / room,
        "ordered": float(table[:, 3].mean()), "kendall": float(table[:, 4].mean()),
    }  # fmt: skip
