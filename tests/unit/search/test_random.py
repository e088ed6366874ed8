"""Random: independent of what it is told, and complete."""

from typing import Any

import numpy as np

from tensorwise.search import Exhaustive, Random
from tests.contract.toys import GARDEN, TINY, ToyWorkload

W: Any = ToyWorkload()


def test_random_ignores_costs() -> None:
    told, silent = (Random(GARDEN, W, np.random.default_rng(0)) for _ in range(2))
    for _ in range(5):
        configs = told.ask(4)
        assert configs == silent.ask(4)
        told.tell(configs, [1.0, 2.0, 3.0, 4.0])


def test_random_lists_a_small_space_when_samples_repeat() -> None:
    small: Any = ToyWorkload(sizes={"i": 1, "k": 1, "j": 1})
    everything = set(GARDEN.enumerate(small))
    strategy = Random(GARDEN, small, np.random.default_rng(0))
    assert set(strategy.ask(10**6)) == everything


def test_exhaustive_keeps_table_order() -> None:
    assert Exhaustive(TINY, W, np.random.default_rng(0)).ask(24) == list(TINY.enumerate(W))
