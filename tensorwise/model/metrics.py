"""How well predictions rank configs: for one workload each, in NumPy.

Costs are seconds (or anything of which less is better), predictions scores or seconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tensorwise.errors import InputError

FASTEST: Final = 0.25
"""Share of the configs that counts as the fastest quartile, which a search has to rank."""
SLOW: Final = 10.0
"""A config that takes more than so many times as long as the best is counted separately."""
TOP: Final = (1, 10, 20)
"""How many of the best predicted are measured: WACO reports 10, and its code measures 20."""


def spearman(costs: np.ndarray, predicted: np.ndarray) -> float:
    """Return Spearman's rank correlation, ties sharing their mean rank; NaN where either has one value only.

    >>> spearman(np.array([1.0, 2, 3]), np.array([0.1, 0.5, 90]))
    1.0
    """
    _check(costs, predicted)
    a, b = _ranks(costs), _ranks(predicted)
    a, b = a - a.mean() if len(a) else a, b - b.mean() if len(b) else b
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale else float("nan")


def kendall(costs: np.ndarray, predicted: np.ndarray) -> float:
    """Return Kendall's tau-b over all pairs; NaN where either has one value only.

    >>> round(kendall(np.array([1.0, 2, 3]), np.array([1.0, 3, 2])), 3)
    0.333
    """
    _check(costs, predicted)
    agree, apart_in_costs, apart_in_predicted = 0, 0, 0
    costs, predicted = _ranks(costs), _ranks(predicted)  # of which differences exist, infinite costs included
    for k in range(len(costs) - 1):  # a row of pairs at a time
        a, b = np.sign(costs[k + 1 :] - costs[k]), np.sign(predicted[k + 1 :] - predicted[k])
        agree += int(a @ b)
        apart_in_costs += int(np.count_nonzero(a))
        apart_in_predicted += int(np.count_nonzero(b))
    scale = float(np.sqrt(float(apart_in_costs) * apart_in_predicted))
    return agree / scale if scale else float("nan")


def best_of_top(costs: np.ndarray, predicted: np.ndarray, count: int) -> float:
    """Return the lowest cost divided by the lowest among the ``count`` best predicted: 1 if the best one is there.

    Where predictions tie, all ways to take some of the tied configs count alike: the expected ratio is returned, so that
    a model that predicts nothing gains nothing from the order in which configs are listed.
    """
    _check(costs, predicted)
    if not np.isfinite(costs).any() or count < 1:
        raise InputError(f"the best of the top {count} of {len(costs)} configs does not exist")
    best = float(costs.min())
    last = np.sort(predicted)[min(count, len(costs)) - 1]
    certain, tied = costs[predicted < last], np.sort(costs[predicted == last])
    seats = min(count, len(costs)) - len(certain)
    known = float(certain.min(initial=np.inf))
    expected, none_before = 0.0, 1.0
    for k, cost in enumerate(
        tied
    ):  # the fastest tied config taken is the k-th fastest with this probability:
        left = len(tied) - k
        taken = none_before * seats / left if left > seats else none_before
        expected += taken * _ratio(best, min(known, float(cost)))
        none_before -= taken
        if none_before <= 0:
            break
    return expected


def share_slower(costs: np.ndarray, times: float = SLOW, best: float | None = None) -> float:
    """Return the share of configs that take more than ``times`` as long as the best one (of these, if not given)."""
    costs = np.asarray(costs, float)
    if not len(costs):
        return float("nan")
    return float(np.mean(costs > times * (float(costs.min()) if best is None else best)))


@final
@dataclass(frozen=True)
class Quality:
    """How well one workload's configs are ranked, or the mean over workloads.

    Attributes:
        spearman, kendall: rank correlations over all configs: one that was given up counts with its bound, those that
            failed behind all others.
        fastest_spearman, fastest_kendall: over the fastest quartile of those with a time.
        near_spearman: over those that take at most ten times as long as the best, which are harder to rank.
        best_of_top: number of best predicted configs that are measured -> best time of all divided by theirs. Configs
            without a time take their places.
        slower_than_10x: share of all configs that take more than ten times as long as the best.
        configs: number of configs.
    """

    spearman: float
    kendall: float
    fastest_spearman: float
    fastest_kendall: float
    near_spearman: float
    best_of_top: Mapping[int, float]
    slower_than_10x: float
    configs: int


def quality(
    costs: Sequence[float] | np.ndarray,
    predicted: Sequence[float] | np.ndarray,
    timed: Sequence[bool] | np.ndarray | None = None,
) -> Quality:
    """Return how well ``predicted`` ranks the ``costs`` of one workload's configs, all of shape (configs,).

    Args:
        costs: infinite for a config that failed.
        predicted: scores or seconds.
        timed: False where the cost is a lower bound, or infinite; default: where it is finite.

    Raises:
        InputError: no config has a time, a cost is no number, or a prediction is not finite.
    """
    a, b = np.asarray(costs, float), np.asarray(predicted, float)
    known = np.isfinite(a) if timed is None else np.asarray(timed, bool)
    reached = np.where(known, a, np.inf)
    top = {count: best_of_top(reached, b, count) for count in TOP}
    exact, guess = a[known], b[known]
    fastest = np.argsort(exact, kind="stable")[: max(1, round(FASTEST * len(exact)))]
    near = exact <= SLOW * exact.min()
    return Quality(
        spearman(a, b),
        kendall(a, b),
        spearman(exact[fastest], guess[fastest]),
        kendall(exact[fastest], guess[fastest]),
        spearman(exact[near], guess[near]),
        top,
        share_slower(reached),
        len(a),
    )


def mean_quality(qualities: Iterable[Quality]) -> Quality:
    """Return the mean over workloads; correlations that do not exist (NaN) are left out, configs are added up.

    Raises:
        InputError: there is none.
    """
    given = list(qualities)
    if not given:
        raise InputError("there is no workload whose ranking could be judged")

    def mean(values: Iterable[float]) -> float:
        known = [value for value in values if value == value]
        return sum(known) / len(known) if known else float("nan")

    return Quality(
        mean(one.spearman for one in given),
        mean(one.kendall for one in given),
        mean(one.fastest_spearman for one in given),
        mean(one.fastest_kendall for one in given),
        mean(one.near_spearman for one in given),
        {count: mean(one.best_of_top[count] for one in given) for count in TOP},
        mean(one.slower_than_10x for one in given),
        sum(one.configs for one in given),
    )


def _check(costs: np.ndarray, predicted: np.ndarray) -> None:
    if costs.ndim != 1 or costs.shape != predicted.shape:
        raise InputError(
            f"expected one cost and one prediction a config, got {costs.shape} and {predicted.shape}"
        )
    if not ((costs > -np.inf).all() and np.isfinite(predicted).all()):
        raise InputError(
            "predictions must be finite, and costs numbers, infinite only for configs that failed"
        )


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0, ties sharing their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    after = np.cumsum(counts)
    means: np.ndarray = (after - (counts + 1) / 2)[place]
    return means


def _ratio(best: float, cost: float) -> float:
    return best / cost if cost > 0 else 1.0
