"""Climbing: each hop looks around the best, with the quicker prediction first, and nothing is predicted twice."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorwise.device.null import smooth_cost
from tensorwise.search import climb
from tensorwise.search.climb import BEAM, climbed
from tensorwise.space.config import Config
from tests.contract.toys import GARDEN, WIDE, ToyWorkload

W: Any = ToyWorkload()


def cost(configs: Sequence[Config]) -> np.ndarray:
    return np.array([smooth_cost(W, config) for config in configs])


def begun(space: Any, n: int, seed: int = 0) -> dict[Config, float]:
    rng = np.random.default_rng(seed)
    configs = list(dict.fromkeys(space.sample(W, rng) for _ in range(n)))
    return dict(zip(configs, cost(configs).tolist(), strict=True))


def test_it_ends_better_than_it_began_and_keeps_what_was_known() -> None:
    better = 0
    for seed in range(8):
        known = begun(WIDE, 12, seed)
        found = climbed(WIDE, W, known, cost, cost)
        assert known.items() <= found.items()
        assert all(WIDE.why_not(config, W) is None for config in found)
        assert all(found[config] == smooth_cost(W, config) for config in found)
        better += min(found.values()) < min(known.values())
    assert better >= 6


def test_a_hop_asks_about_neighbours_of_the_cheapest_that_the_quicker_prediction_prefers(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(climb, "LOOKED_AT", 5)
    known = begun(WIDE, 12)
    quickly: list[list[Config]] = []
    fully: list[list[Config]] = []

    def quick(configs: Sequence[Config]) -> np.ndarray:
        quickly.append(list(configs))
        return np.arange(len(configs))[::-1].astype(float)  # the last ones are the cheapest

    def full(configs: Sequence[Config]) -> np.ndarray:
        fully.append(list(configs))
        return cost(configs)

    found = climbed(WIDE, W, known, full, quick, hops=1)
    cheapest = sorted(known, key=known.__getitem__)[:BEAM]
    near = {one for config in cheapest for one in WIDE.neighbours(config, W)} - known.keys()
    assert len(quickly) == len(fully) == 1
    assert set(quickly[0]) == near
    assert fully[0] == quickly[0][::-1][:5]
    assert found.keys() == known.keys() | set(fully[0])


def test_nothing_is_predicted_twice_and_the_top_of_a_small_space_ends_it() -> None:
    asked: list[Config] = []

    def full(configs: Sequence[Config]) -> np.ndarray:
        asked.extend(configs)
        return cost(configs)

    known = begun(GARDEN, 4)
    found = climbed(GARDEN, W, known, full, cost, hops=100)
    assert len(asked) == len(set(asked))
    assert not known.keys() & set(asked)
    best = min(found, key=found.__getitem__)
    assert all(found[near] >= found[best] for near in GARDEN.neighbours(best, W) if near in found)


def test_it_stops_where_it_has_taken_long_enough_and_where_nothing_is_known() -> None:
    known = begun(WIDE, 4)
    assert climbed(WIDE, W, known, cost, cost, enough=lambda: True) == known
    assert climbed(WIDE, W, {}, cost, cost) == {}


def test_only_the_named_params_are_stepped() -> None:
    known = begun(WIDE, 4)
    found = climbed(WIDE, W, known, cost, cost, names=["p3", "p7"])
    others = {tuple(config[name] for name in WIDE.by_name if name not in ("p3", "p7")) for config in known}
    assert len(found) > len(known)
    assert {
        tuple(config[name] for name in WIDE.by_name if name not in ("p3", "p7")) for config in found
    } == others
