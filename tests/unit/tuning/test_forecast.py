"""What measurements of some configs teach about the others."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tensorwise.space.config import Config
from tensorwise.tuning.forecast import ALIKE, ERROR, OWN, PRIOR, Forecast

CONFIGS = [Config({"split": 2**k}) for k in range(6)]


def forecast(
    scores: Sequence[float], spreads: Sequence[float] = (0.0,) * 6, *, measures: bool = True
) -> Forecast:
    return Forecast(CONFIGS, np.array(scores), np.array(spreads), measures, ERROR)


def test_a_forecast_lists_the_best_first_and_learns_how_long_things_take() -> None:
    found = forecast([1.0, -1.0, 0.0, 2.0, 3.0, 4.0])
    assert list(found.scores) == [CONFIGS[k] for k in (1, 2, 0, 3, 4, 5)]
    assert not found.compared
    found.learn(CONFIGS[2], 0.010)
    assert found.compared
    assert found.prospect(CONFIGS[1], 0.5, 0.25).seconds == pytest.approx(0.005)
    assert found.prospect(CONFIGS[3], 0.0, 0.0).seconds == pytest.approx(0.040)
    assert (
        found.prospect(CONFIGS[1], 0.5, 0.25).conversion_s,
        found.prospect(CONFIGS[1], 0.5, 0.25).price_s,
    ) == (0.5, 0.25)


def test_what_bears_out_is_believed_more_and_what_does_not_less() -> None:
    right, wrong = forecast([0, 1, 2, 3, 4, 5]), forecast([0, 1, 2, 3, 4, 5])
    right.learn(CONFIGS[0], 1.0)
    before = right.prospect(CONFIGS[5], 0, 0).spread
    for k in range(1, 5):
        right.learn(CONFIGS[k], 2.0**k)
    for k in range(5):
        wrong.learn(CONFIGS[k], 2.0 ** ((3 * k) % 5))
    assert right.prospect(CONFIGS[5], 0, 0).spread < before < wrong.prospect(CONFIGS[5], 0, 0).spread
    assert right.prospect(CONFIGS[5], 0, 0).seconds == pytest.approx(32.0)


def test_a_model_that_is_unsure_of_a_config_says_so() -> None:
    found = forecast([0.0] * 6, [0.0, 0.1, 0.2, 0.4, 0.8, 1.6])
    found.learn(CONFIGS[0], 1.0)
    spreads = [found.prospect(config, 0, 0).spread for config in CONFIGS]
    assert spreads == sorted(spreads)
    assert spreads[5] > 2 * spreads[1]


def test_failures_teach_nothing_and_neither_does_what_is_not_spoken_of() -> None:
    found = forecast([0, 1, 2, 3, 4, 5])
    found.learn(CONFIGS[0], math.inf)
    found.learn(Config({"split": 999}), 1.0)
    assert not found.compared
    order = forecast([0, 1, 2, 3, 4, 5], measures=False)
    order.learn(CONFIGS[0], 1.0)
    assert not order.compared


def test_what_is_like_a_disappointment_is_expected_to_disappoint() -> None:
    """As a Gaussian process with an unknown mean says it: by the textbook's formulas, one config at a time."""
    configs = [Config({f"choice {k}": n < k for k in range(1, 9)}) for n in range(9)]
    rng = np.random.default_rng(0)
    scores, spreads = rng.normal(size=9), rng.uniform(0, 0.5, 9)
    found = Forecast(configs, scores, spreads, True, ERROR)
    seconds = {0: 0.003, 3: 0.001, 4: 0.0005}
    for place, taken in seconds.items():
        found.learn(configs[place], taken)
    errors, measured = np.hypot(ERROR, spreads), list(seconds)

    def covariance(a: int, b: int) -> float:
        differ = sum(configs[a][name] != configs[b][name] for name in configs[a])
        return float(errors[a] * errors[b] * ((1 - OWN) * math.exp(-differ / ALIKE) + OWN * (a == b)))

    among = np.array([[covariance(a, b) for b in measured] for a in measured])
    off = np.log2(list(seconds.values())) - scores[measured]
    weights = np.linalg.solve(among, np.ones(3))
    level = weights @ off / weights.sum()
    for place in (1, 2, 5, 8):
        shared = np.array([covariance(place, b) for b in measured])
        mean = scores[place] + level + shared @ np.linalg.solve(among, off - level)
        assert found.prospect(configs[place], 0, 0).seconds == pytest.approx(2**mean)
        unexplained = 1 - shared @ np.linalg.solve(among, np.ones(3))
        variance = covariance(place, place) - shared @ np.linalg.solve(among, shared)
        variance += unexplained**2 / weights.sum()
        squares = (off - level) @ np.linalg.solve(among, off - level)
        variance *= (PRIOR + squares) / (PRIOR + 3)
        spread = found.prospect(configs[place], 0, 0).spread
        assert spread == pytest.approx(math.log(2) * math.sqrt(variance))
    expected = [found.prospect(config, 0, 0).spread for config in configs]
    assert all(spread > 0 for spread in expected)


def test_an_error_is_shared_by_what_is_alike_only() -> None:
    names = ["tile", *(f"choice {k}" for k in range(11))]
    near = [Config(dict.fromkeys(names, 0) | {"tile": 2**k}) for k in range(4)]
    far = [Config(dict.fromkeys(names, n)) for n in (-1, -2)]
    found = Forecast([*near, *far], np.zeros(6), np.zeros(6), True, ERROR)
    for config, seconds in ((near[0], 4.0), (far[0], 1.0)):
        found.learn(config, seconds)
    times = {config: found.prospect(config, 0, 0) for config in (near[1], near[3], far[1])}
    assert times[near[1]].seconds == pytest.approx(times[near[3]].seconds)
    assert times[near[1]].seconds > 1.3 * times[far[1]].seconds
    assert times[far[1]].spread > times[near[1]].spread


@pytest.mark.parametrize("grounded", [[], [3], [*range(15, 20)], [*range(20)]])
def test_of_each_ten_some_are_grounded_while_there_are_any(grounded: list[int]) -> None:
    configs = [Config({"number": k}) for k in range(20)]
    safe = {configs[k] for k in grounded}
    found = Forecast(configs, np.arange(20.0), np.zeros(20), True, ERROR, safe).named
    assert sorted(one["number"] for one in found) == [*range(20)]
    assert found[:7] == configs[:7]
    if grounded == [*range(15, 20)]:
        assert [one["number"] for one in found[7:10]] == [15, 16, 17]
        assert [one["number"] for one in found[17:19]] == [18, 19]
    else:
        assert found == configs
