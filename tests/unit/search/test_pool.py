"""Pool: configs as small numbers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tensorwise.device.null import smooth_cost
from tensorwise.errors import InputError
from tensorwise.search.building import bred
from tensorwise.search.pool import Pool
from tensorwise.space.config import Config
from tensorwise.space.params import Choice
from tests.contract.toys import GARDEN, TINY, WIDE, ToyWorkload, draw_many

W: Any = ToyWorkload()


def test_configs_come_back_as_they_were() -> None:
    configs = list(dict.fromkeys(draw_many(GARDEN, W, 0, 200)))
    pool = Pool.of(configs)
    assert list(pool) == configs
    assert [list(config) for config in pool] == [list(config) for config in configs]  # names in table order
    assert pool[3:7] == configs[3:7]
    assert pool.choices.dtype == np.uint16
    again = Pool.from_json(pool.to_json(), pool.choices)
    assert list(again) == configs


def test_values_that_only_look_alike_are_told_apart() -> None:
    configs = [Config({"a": value}) for value in (True, 1, "1", None, ("1",), False, 0)]
    assert list(Pool.of(configs)) == configs
    assert [type(config["a"]) for config in Pool.of(configs)] == [
        bool,
        int,
        str,
        type(None),
        tuple,
        bool,
        int,
    ]


def test_of_equal_configs_the_first_is_kept() -> None:
    a, b = Config({"x": 1, "y": 2}), Config({"x": 2, "y": 2})
    assert list(Pool.of([a, b, Config({"y": 2, "x": 1}), b])) == [a, b]
    assert len(Pool.of([])) == 0


def test_configs_of_two_spaces_are_refused() -> None:
    with pytest.raises(InputError, match="config 1 has layout, balanced, split"):
        Pool.of([GARDEN.default(W), TINY.default(W)])


def test_a_sample_is_valid_for_its_workloads_and_begins_with_what_was_given() -> None:
    small: Any = ToyWorkload("small", sizes={"i": 2, "k": 2, "j": 16})
    also = draw_many(GARDEN, W, 7, 5)
    pool = Pool.sample(GARDEN, [W, small], 300, np.random.default_rng(0), also=[*also, also[0]])
    assert len(pool) == len(set(pool)) == 300
    assert pool[:5] == also
    valid = [[GARDEN.why_not(config, work) is None for config in pool] for work in (W, small)]
    assert all(a or b for a, b in zip(*valid, strict=True))
    assert all(any(a and not b for a, b in zip(*both, strict=True)) for both in (valid, valid[::-1])) or all(
        valid[0]
    )
    assert pool.choices.tolist() == (
        Pool.sample(GARDEN, [W, small], 300, np.random.default_rng(0), also=also).choices.tolist()
    )
    assert list(pool) != list(Pool.sample(GARDEN, [W, small], 300, np.random.default_rng(1), also=also))


def test_a_small_space_gives_what_it_has() -> None:
    assert set(Pool.sample(TINY, [W], 1000, np.random.default_rng(0))) == set(TINY.enumerate(W))


def test_a_pool_needs_workloads() -> None:
    with pytest.raises(InputError, match="some workloads"):
        Pool.sample(TINY, [], 10, np.random.default_rng(0))


@pytest.mark.parametrize(
    "choices",
    [
        np.zeros((3, 2), np.int64),
        np.zeros((3, 1), np.uint16),
        np.zeros(3, np.uint16),
        np.array([[0, 2]], np.uint16),
    ],
)
def test_choices_that_are_none_are_refused(choices: np.ndarray) -> None:
    with pytest.raises(InputError, match="pool"):
        Pool({"a": (1, 2, 3), "b": (1, 2)}, choices)


@pytest.mark.parametrize("values", [None, [], {"a": 3}, {"a": [{}]}, {"a": [1.5]}])
def test_values_that_are_none_are_refused(values: object) -> None:
    with pytest.raises(InputError):
        Pool.from_json(values, np.zeros((0, 1), np.uint16))


def test_what_is_bred_gets_cheaper() -> None:
    def cost(configs: Sequence[Config]) -> np.ndarray:
        return np.array([smooth_cost(W, config) for config in configs])

    found = bred(WIDE, W, cost, 200, np.random.default_rng(0))
    assert len(set(found)) == len(found) == 200
    assert all(WIDE.why_not(config, W) is None for config in found)
    first, last = np.log(cost(found[:50])), np.log(cost(found[-50:]))
    assert np.mean(last) < np.mean(first) - np.std(first)
    assert found == bred(WIDE, W, cost, 200, np.random.default_rng(0))
    assert set(bred(TINY, W, cost, 100, np.random.default_rng(0))) == set(TINY.enumerate(W))


def test_rows_that_are_alike_without_a_gone_param_are_migrated_once() -> None:
    pool = Pool.of(TINY.enumerate(W))
    fewer = replace(TINY, params=tuple(param for param in TINY.params if param.name != "split"))
    rows = np.arange(len(pool))[::-1]
    found = pool.migrated(rows, fewer, W)
    assert found == list(dict.fromkeys(Config({k: one[k] for k in fewer.by_name}) for one in pool[::-1]))
    assert len(found) == 6
    assert pool.migrated(rows, TINY, W) == pool[::-1]
    narrow = Choice("layout", ("row",), binds="pack", doc="Storage order; one is left.")
    rest = tuple(param for param in TINY.params if param.name != "layout")
    assert len(pool.migrated(rows, replace(TINY, params=(narrow, *rest)), W)) == 8
