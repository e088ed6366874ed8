"""What every Strategy promises. Strategies come from STRATEGIES; spaces of any kind serve."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorwise.device.null import NullDevice, smooth_cost
from tensorwise.errors import InputError
from tensorwise.search import STRATEGIES, Pool, Strategy
from tensorwise.search.building import build_graph
from tensorwise.search.graph_walk import GraphWalk
from tensorwise.space.config import Config
from tensorwise.space.space import Space
from tests.contract.toys import GARDEN, TINY, WIDE, ToyWorkload

W: Any = ToyWorkload()

SMARTER_THAN_RANDOM = {"genetic"}
"""Strategies that must find better configs than Random in the mean; add a learning strategy's name."""

Make = Callable[..., Strategy]


def graph_walk(space: Space, workload: Any, rng: np.random.Generator, **more: Any) -> Strategy:
    """A graph over part of the space, and a predictor that is right."""
    pool = Pool.sample(space, [workload], 50, np.random.default_rng(9))
    graph = build_graph(pool, np.stack([space.encode(config, workload) for config in pool]))
    costs = np.array([smooth_cost(workload, config) for config in pool])
    return GraphWalk(space, workload, rng, graph=graph, score=lambda rows: costs[rows], **more)


MAKING: dict[str, Make] = {**STRATEGIES, "graph": graph_walk}
"""Strategies whose constructor needs more than a space, a workload and a generator have a function here."""

pytestmark = pytest.mark.parametrize("make", MAKING.values(), ids=MAKING.keys())


def costs_of(configs: list[Config], device: NullDevice | None = None, workload: Any = W) -> list[float]:
    return [one.cost for one in (device or NullDevice()).measure(workload, configs)]


def play(strategy: Strategy, budget: int, batch: int, device: NullDevice | None = None) -> list[Config]:
    """Ask, measure and tell until the budget or the space ends; return what was asked."""
    asked: list[Config] = []
    while len(asked) < budget:
        configs = strategy.ask(min(batch, budget - len(asked)))
        if not configs:
            break
        asked += configs
        strategy.tell(configs, costs_of(configs, device, strategy.workload))
    return asked


@pytest.mark.parametrize("space", [TINY, GARDEN, WIDE], ids=lambda space: space.name)
@pytest.mark.parametrize("batch", [1, 7, 40])
def test_proposals_are_valid_and_never_repeat(make: Make, space: Space, batch: int) -> None:
    strategy = make(space, W, np.random.default_rng(0))
    asked = play(strategy, 120, batch)
    assert len(set(asked)) == len(asked) == min(120, space.size_bound(W))
    assert all(space.why_not(config, W) is None for config in asked)


def test_same_seed_same_proposals(make: Make) -> None:
    first, second, other = (play(make(GARDEN, W, np.random.default_rng(seed)), 80, 9) for seed in (3, 3, 4))
    assert first == second
    assert first != other or make is STRATEGIES["exhaustive"]


def test_asking_for_more_than_there_is(make: Make) -> None:
    strategy = make(TINY, W, np.random.default_rng(0))
    first = strategy.ask(20)
    rest = strategy.ask(1000)
    assert len(first) == 20
    assert set(first) | set(rest) == set(TINY.enumerate(W))
    assert len(rest) == 4
    assert strategy.ask(5) == []
    strategy.tell(first + rest, costs_of(first + rest))
    assert strategy.ask(5) == []


def test_the_whole_space_is_proposed_in_the_end(make: Make) -> None:
    """So that every strategy finds the optimum of a small space."""
    strategy = make(TINY, W, np.random.default_rng(0))
    asked = play(strategy, 1000, 5)
    everything = list(TINY.enumerate(W))
    assert set(asked) == set(everything)
    best = min(costs_of(everything))
    assert strategy.best is not None
    assert strategy.best[1] == best
    assert costs_of([strategy.best[0]]) == [best]


def test_asking_nothing_and_telling_nothing(make: Make) -> None:
    strategy = make(GARDEN, W, np.random.default_rng(0))
    assert strategy.ask(0) == []
    strategy.tell([], [])
    assert strategy.best is None
    assert len(strategy.ask(3)) == 3


def test_asking_on_without_being_told(make: Make) -> None:
    strategy = make(GARDEN, W, np.random.default_rng(0))
    asked = [config for _ in range(10) for config in strategy.ask(8)]
    assert len(set(asked)) == 80
    strategy.tell(asked, costs_of(asked))
    assert len(strategy.ask(8)) == 8


def test_telling_late_partly_and_out_of_order(make: Make) -> None:
    strategy = make(GARDEN, W, np.random.default_rng(0))
    waiting: list[Config] = []
    seen: set[Config] = set()
    rng = np.random.default_rng(1)
    for _ in range(15):
        configs = strategy.ask(5)
        assert len(configs) == 5
        assert not seen & set(configs)
        seen |= set(configs)
        waiting += configs
        rng.shuffle(waiting)  # type: ignore[arg-type]
        now, waiting = waiting[:3], waiting[3:]
        strategy.tell(now, costs_of(now))


def test_crashing_candidates_are_survived(make: Make) -> None:
    crashing = NullDevice(lambda w, config: math.inf if config["vector"] else 1e-3 * int(config["i_split"]))  # type: ignore[call-overload]
    strategy = make(GARDEN, W, np.random.default_rng(0))
    asked = play(strategy, 100, 10, crashing)
    assert len(asked) == 100
    assert strategy.best is not None
    assert math.isfinite(strategy.best[1])


def test_nothing_but_crashes_is_survived(make: Make) -> None:
    strategy = make(GARDEN, W, np.random.default_rng(0))
    assert len(play(strategy, 60, 10, NullDevice(lambda w, config: math.inf))) == 60
    assert strategy.best is None


def test_any_scale_and_sign_of_costs(make: Make) -> None:
    """Models tell scores: negative, zero, huge, all the same."""
    for scale in (-1e9, -1.0, 0.0, 1e-300, 1e300):
        strategy = make(GARDEN, W, np.random.default_rng(0))
        for k in range(8):
            configs = strategy.ask(6)
            assert len(configs) == 6
            strategy.tell(configs, [scale * (1 + k + n) / 60 for n in range(6)])


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_impossible_costs_are_refused(make: Make, bad: float) -> None:
    strategy = make(GARDEN, W, np.random.default_rng(0))
    (config,) = strategy.ask(1)
    with pytest.raises(InputError, match="cost must be"):
        strategy.tell([config], [bad])
    with pytest.raises(InputError, match="one cost for each"):
        strategy.tell([config], [])
    with pytest.raises(InputError, match="negative"):
        strategy.ask(-1)


def test_seeds_come_first_and_once(make: Make) -> None:
    rng = np.random.default_rng(5)
    seeds = list(dict.fromkeys(GARDEN.sample(W, rng) for _ in range(4)))
    strategy = make(GARDEN, W, np.random.default_rng(0), seeds=[*seeds, seeds[0]])
    asked = strategy.ask(1) + strategy.ask(30)
    assert asked[: len(seeds)] == seeds
    assert len(set(asked)) == len(asked) == 31


def test_a_seed_that_does_not_fit_is_refused(make: Make) -> None:
    bad = Config({**GARDEN.default(W), "i_split": 1024})
    with pytest.raises(InputError, match="i_split: 1024"):
        make(GARDEN, W, np.random.default_rng(0), seeds=[bad])


def test_what_was_told_unasked_is_not_proposed(make: Make) -> None:
    known = list(TINY.enumerate(W))[:20]
    strategy = make(TINY, W, np.random.default_rng(0))
    strategy.tell(known, costs_of(known))
    assert strategy.best is not None
    assert strategy.best[1] == min(costs_of(known))
    assert set(strategy.ask(24)) == set(TINY.enumerate(W)) - set(known)


def test_a_seed_told_before_it_was_asked_is_skipped(make: Make) -> None:
    seed = GARDEN.default(W)
    strategy = make(GARDEN, W, np.random.default_rng(0), seeds=[seed])
    strategy.tell([seed], [1.0])
    assert seed not in strategy.ask(10)


def test_told_again_the_last_word_counts(make: Make) -> None:
    strategy = make(GARDEN, W, np.random.default_rng(0))
    a, b = strategy.ask(2)
    strategy.tell([a, b], [1.0, 2.0])
    strategy.tell([a], [3.0])
    assert strategy.best == (b, 2.0)
    strategy.tell([b], [math.inf])
    assert strategy.best == (a, 3.0)


def test_it_beats_random_on_a_smooth_function(make: Make, request: pytest.FixtureRequest) -> None:
    """Mean over ten workloads of the best after 120 trials; the margin is several standard errors."""
    name = request.node.callspec.id
    if name not in SMARTER_THAN_RANDOM:
        pytest.skip(f"{name} does not learn")

    def found(strategy: Make, k: int) -> float:
        player = strategy(WIDE, ToyWorkload(f"smooth-{k}"), np.random.default_rng(k))
        play(player, 120, 8)
        assert player.best is not None
        return math.log(player.best[1])

    gains = [found(STRATEGIES["random"], k) - found(make, k) for k in range(10)]
    assert np.mean(gains) > 3 * np.std(gains) / math.sqrt(len(gains))
