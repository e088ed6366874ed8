"""Metrics of rankings: against SciPy, and where they are easily wrong."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tensorwise.errors import InputError
from tensorwise.model.metrics import (
    TOP,
    best_of_top,
    kendall,
    mean_quality,
    quality,
    share_slower,
    spearman,
)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("values", [3, 1000])
def test_correlations_are_those_of_scipy(seed: int, values: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, values, (2, 40)).astype(float)
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert kendall(a, b) == pytest.approx(stats.kendalltau(a, b).statistic)


def test_correlations_of_nothing_are_not_numbers() -> None:
    for a, b in (([], []), ([1.0], [2.0]), ([1.0, 2.0], [3.0, 3.0])):
        assert math.isnan(spearman(np.array(a), np.array(b)))
        assert math.isnan(kendall(np.array(a), np.array(b)))


def test_best_of_top() -> None:
    costs = np.array([4.0, 2.0, 1.0, 8.0])
    assert best_of_top(costs, costs, 1) == 1.0
    assert best_of_top(costs, -costs, 1) == pytest.approx(1 / 8)
    assert best_of_top(costs, -costs, 2) == pytest.approx(1 / 4)
    assert best_of_top(costs, -costs, 99) == 1.0
    with pytest.raises(InputError, match="top 0"):
        best_of_top(costs, costs, 0)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_ties_count_as_drawn_by_lot(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs, predicted = rng.random(6) + 0.1, rng.integers(0, 3, 6).astype(float)
    ratios = []
    for order in itertools.permutations(range(6)):
        taken = sorted(order, key=lambda k: predicted[k])[:count]
        ratios.append(costs.min() / costs[taken].min())
    assert best_of_top(costs, predicted, count) == pytest.approx(np.mean(ratios))


def test_share_slower() -> None:
    assert share_slower(np.array([1.0, 10.0, 11.0, 1000.0])) == 0.5
    assert share_slower(np.array([11.0, 12.0]), best=1.0) == 1.0


def test_quality_and_its_mean() -> None:
    costs = np.geomspace(1, 100, 40)
    right, wrong = quality(costs, np.log(costs)), quality(costs, -costs)
    assert (right.spearman, right.kendall, right.fastest_spearman, right.fastest_kendall) == (1, 1, 1, 1)
    assert right.best_of_top == dict.fromkeys(TOP, 1.0)
    assert wrong.spearman == -1
    assert wrong.best_of_top[20] < 1
    assert right.slower_than_10x == 0.5
    late = np.where(costs > 10, 0.0, np.log(costs))  # wrong about the slow ones only
    assert quality(costs, late).near_spearman == 1 > quality(costs, late).spearman
    mean = mean_quality([right, wrong, quality([1.0, 2.0], [0.0, 0.0])])
    assert mean.spearman == pytest.approx(0)
    assert mean.configs == 82
    nothing = quality(costs, np.zeros(40))
    failed = quality([1.0, 2.0, math.inf, math.inf], [3.0, 4.0, 1.0, 2.0])
    assert (failed.near_spearman, failed.best_of_top[1], failed.best_of_top[10]) == (1, 0, 1)
    assert (failed.slower_than_10x, failed.configs) == (0.5, 4)
    assert failed.spearman < 0 < failed.near_spearman
    bound = quality([1.0, 2.0, 3.0, 20.0], [1.0, 2.0, 3.0, 4.0], [True, True, False, False])
    assert (bound.spearman, bound.near_spearman, bound.slower_than_10x) == (1, 1, 0.5)
    assert math.isnan(nothing.spearman)
    assert 1 / 100 < nothing.best_of_top[1] < 1


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(InputError, match="one cost and one prediction"):
        quality([1.0, 2.0], [1.0])
    for costs, predicted in (([1.0, math.nan], [1.0, 2.0]), ([1.0, 2.0], [1.0, math.inf])):
        with pytest.raises(InputError, match="finite"):
            quality(costs, predicted)
    with pytest.raises(InputError, match="does not exist"):
        quality([math.inf, math.inf], [1.0, 2.0])
    with pytest.raises(InputError, match="does not exist"):
        quality([], [])
    with pytest.raises(InputError, match="no workload"):
        mean_quality([])
