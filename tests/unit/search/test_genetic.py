"""Genetic: what the paper fixes."""

import math
from typing import Any

import numpy as np
import pytest

from tensorwise.device.null import smooth_cost
from tensorwise.errors import InputError
from tensorwise.search.genetic import Genetic, _fitness
from tests.contract.toys import GARDEN, WIDE, ToyWorkload

W: Any = ToyWorkload()


def test_sixteen_then_ten_new_ones_a_generation() -> None:
    strategy = Genetic(WIDE, W, np.random.default_rng(0))
    first = strategy.ask(16)
    strategy.tell(first, [smooth_cost(W, config) for config in first])
    ranked = sorted(first, key=lambda config: smooth_cost(W, config))
    second = strategy.ask(10)
    assert strategy._queue == []
    assert strategy._population == [*ranked[:6], *second]


def test_children_take_their_choices_from_their_parents() -> None:
    strategy = Genetic(WIDE, W, np.random.default_rng(0), mutation=0.0)
    first = strategy.ask(16)
    strategy.tell(first, [smooth_cost(W, config) for config in first])
    for child in strategy.ask(10):
        assert all(any(child[name] == parent[name] for parent in first) for name in child)


def test_a_fifth_of_the_children_mutate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless told otherwise a child mutates with the published probability of 20 %."""
    strategy = Genetic(WIDE, W, np.random.default_rng(0))
    parents = strategy.ask(16)
    mutated = []
    mutate = type(WIDE).mutate

    def spy(self: Any, config: Any, *rest: Any, **more: Any) -> Any:
        mutated.append(config)
        return mutate(self, config, *rest, **more)

    monkeypatch.setattr(type(WIDE), "mutate", spy)
    monkeypatch.setattr(strategy, "_claim", lambda config: True)  # no child is replaced for being known
    fitness = np.full(16, 1 / 16)
    children = [strategy._child(parents, fitness) for _ in range(1000)]
    assert 150 < len(mutated) < 250
    foreign = [one for one in children if any(all(one[n] != p[n] for p in parents) for n in one)]  # type: ignore[union-attr]
    assert len(foreign) > 5


def test_without_progress_the_population_is_drawn_afresh() -> None:
    strategy = Genetic(WIDE, W, np.random.default_rng(0))
    best = strategy.ask(1)
    strategy.tell(best, [1.0])
    sizes = []
    for _ in range(12):
        configs = strategy.ask(1)
        configs += strategy.ask(len(strategy._queue))
        sizes.append(len(configs))
        strategy.tell(configs, [2.0] * len(configs))
    assert sizes.count(10) >= 6
    assert 15 in sizes  # the best is kept, the others are new
    assert best[0] in strategy._population


def test_a_known_child_steps_aside_by_one_choice() -> None:
    strategy = Genetic(GARDEN, W, np.random.default_rng(0))
    (known,) = strategy.ask(1)
    other = strategy._nearest_new(known)
    assert other is not None
    assert other != known
    assert GARDEN.why_not(other, W) is None


def test_fitness_falls_with_cost() -> None:
    for costs in (
        [1.0, 2.0, 4.0],
        [-3.0, 0.0, 5.0],
        [0.0, 1.0, 2.0],
        [-1e300, 0.0, 1e300],
        [1e-320, 1.0, 2.0],
    ):
        chances = _fitness(np.array(costs))
        assert chances.sum() == pytest.approx(1)
        assert (np.diff(chances) <= 0).all()
        assert np.isfinite(chances).all()
    np.testing.assert_allclose(_fitness(np.array([1.0, 2.0, 4.0])), np.array([4, 2, 1]) / 7)
    np.testing.assert_allclose(_fitness(np.zeros(4)), 0.25)


def test_a_cheap_parent_is_drawn_more_often() -> None:
    """A config ten times cheaper than the fifteen others gives two fifths of the parents."""
    chances = _fitness(np.array([0.1] + [1.0] * 15))
    assert chances[0] == pytest.approx(10 / 25)
    assert math.isclose(chances[1], 1 / 25)


@pytest.mark.parametrize(
    "bad", [{"population": 1}, {"elite": 16}, {"elite": 0}, {"generations": 0}, {"mutation": 1.5}]
)
def test_impossible_options_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected population"):
        Genetic(WIDE, W, np.random.default_rng(0), **bad)
