"""Choosing among versions: cases, measures, the tree and the seconds that it predicts."""

from typing import Any

import numpy as np
import pytest

from tensorwise.device.device import Measurement
from tensorwise.device.null import NullDevice
from tensorwise.errors import InputError
from tensorwise.model import TreeModel
from tensorwise.model.cases import Cases
from tensorwise.model.choosing import Latency, cross_validated, grow_choice
from tensorwise.runtime.call import Call
from tensorwise.space.config import Config
from tensorwise.store.record import Record

CONFIGS = tuple(Config({"version": name}) for name in ("small", "large", "sparse"))


def took(m: float, sparsity: float) -> np.ndarray:
    """small starts at once, large is ten times faster a row, sparse does only what is not zero."""
    return np.array([1e-6 + 1e-8 * m, 1e-5 + 1e-9 * m, 2e-5 + 1e-8 * m * (1 - sparsity)])


def cases(count: int, seed: int = 0) -> Cases:
    rng = np.random.default_rng(seed)
    m, sparsity = 10 ** rng.uniform(0, 6, count), rng.uniform(0, 1, count)
    seconds = np.array([took(*one) for one in zip(m, sparsity)])
    groups = tuple(f"cell {k % 40}" for k in range(count))
    return Cases(("m", "sparsity"), CONFIGS, np.column_stack([m, sparsity]), seconds, groups)


def records(of: Cases) -> list[Record]:
    device = NullDevice()
    found = []
    for row, seconds, group in zip(of.features.tolist(), of.seconds.tolist(), of.groups, strict=True):
        call = Call("toy", dict(zip(of.fields, row, strict=True)))
        for config, value in zip(of.configs, seconds, strict=True):
            measured = Measurement.of([value]) if np.isfinite(value) else Measurement.failed("crash", "toy")
            found.append(Record.of(measured, call, device, "versions:toy", config, {"cell": group}))
    return found


def test_records_become_cases_and_failures_infinite() -> None:
    given = cases(30)
    given.seconds[3, 1] = np.inf
    given.seconds[7] = np.inf
    found = Cases.of([Record.from_row(record.to_row()) for record in records(given)])
    kept = np.delete(np.arange(30), 7)
    assert found.fields == given.fields
    assert found.configs == CONFIGS
    np.testing.assert_array_equal(found.features, given.features[kept])
    np.testing.assert_array_equal(found.seconds, given.seconds[kept])
    assert found.groups == tuple(given.groups[k] for k in kept)


def test_moving_is_left_out_for_plans() -> None:
    call = Call("toy", {"m": 1.0})
    there, here = (Config({"version": name}) for name in ("there", "here"))
    given = [
        Record.of(Measurement.of([3.0]), call, NullDevice(), "s", there, {"moving_s": 2.0}),
        Record.of(Measurement.of([2.0]), call, NullDevice(), "s", here, {}),
    ]
    assert Cases.of(given).seconds.tolist() == [[3.0, 2.0]]
    assert Cases.of(given, in_place=True).seconds.tolist() == [[1.0, 2.0]]


def test_of_repeated_measurements_the_fastest_counts() -> None:
    call, here = Call("toy", {"m": 1.0}), Config({"version": "here"})
    took = [Measurement.of([2.0]), Measurement.failed("crash", "once"), Measurement.of([3.0])]
    given = [Record.of(one, call, NullDevice(), "s", here, {}) for one in took]
    assert Cases.of(given).seconds.tolist() == Cases.of(given[::-1]).seconds.tolist() == [[2.0]]


def test_records_that_do_not_belong_together_are_refused() -> None:
    other = Record.of(Measurement.of([1.0]), Call("toy", {"m": 1.0}), NullDevice(), "s", CONFIGS[0], {})
    with pytest.raises(InputError, match="same features"):
        Cases.of([*records(cases(3)), other])
    with pytest.raises(InputError, match="no record"):
        Cases.of([])


def test_the_papers_measures_by_hand() -> None:
    seconds = np.array([[1.0, 2.0], [10.0, 5.0], [4.0, 4.4]])
    of = Cases(("m",), CONFIGS[:2], np.zeros((3, 1)), seconds, ("a", "b", "c"))
    found = of.quality(np.array([0, 0, 1]))
    assert found.pois == pytest.approx((1 + 5 + 4) / (1 + 10 + 4.4))
    assert found.ppp == pytest.approx((0 + 1.0 + 0.1) / 3)
    assert found.accuracy == pytest.approx(1 / 3)
    assert found.shares == {CONFIGS[0]: pytest.approx(2 / 3), CONFIGS[1]: pytest.approx(1 / 3)}
    perfect = of.quality(of.best)
    assert (perfect.pois, perfect.ppp, perfect.accuracy) == (1, 0, 1)
    seconds[2, 1] = np.inf
    beside = of.quality(np.array([0, 0, 1]))
    assert (beside.inputs, beside.failed) == (3, 1)
    assert beside.pois == pytest.approx((1 + 5) / (1 + 10))
    seconds[2, 1] = 4.4
    small, large = (1 + 2 + 1) / 3, (2 + 1 + 1.1) / 3
    assert perfect.speedup == pytest.approx(min(small, large))
    assert perfect.constant == CONFIGS[0]


def test_folds_keep_groups_together() -> None:
    of = cases(200)
    fold = of.folds(10, np.random.default_rng(0))
    assert set(fold.tolist()) == set(range(10))
    for group in set(of.groups):
        assert len({int(fold[k]) for k, name in enumerate(of.groups) if name == group}) == 1
    with pytest.raises(InputError, match="as many groups"):
        of.folds(41, np.random.default_rng(0))


sklearn = pytest.importorskip("sklearn")


def test_a_tree_chooses_nearly_as_well_as_an_oracle() -> None:
    of = cases(3000)
    held_out = cases(500, seed=1)
    tree = grow_choice(of)
    found = held_out.quality(tree.values_at(held_out.features).astype(int))
    assert found.pois > 0.99
    assert found.ppp < 0.03
    assert found.speedup > 1.2


def test_a_tree_does_not_follow_noise() -> None:
    """Many inputs say by chance the wrong one of two versions; a forest, and who imitates it, does not."""
    rng = np.random.default_rng(0)
    m = rng.uniform(1, 100, 600)
    ratio = np.where(m < 50, 1.2, 1 / 1.2) * np.exp(0.3 * rng.standard_normal(600))
    of = Cases(
        ("m",), CONFIGS[:2], m[:, None], np.column_stack([np.ones(600), ratio]), tuple(map(str, range(600)))
    )
    tree, inside = grow_choice(of), np.concatenate([np.linspace(5, 45, 100), np.linspace(55, 95, 100)])
    right = tree.values_at(inside[:, None]) == (inside > 50)
    assert right.mean() > 0.75
    assert (of.best == (m > 50)).mean() < 0.75


def test_what_failed_is_not_chosen() -> None:
    seconds = np.column_stack([np.ones(200), np.full(200, 0.5)])
    seconds[::2, 1] = np.inf
    of = Cases(("m",), CONFIGS[:2], np.ones((200, 1)), seconds, tuple(map(str, range(200))))
    assert grow_choice(of).at([1.0]) == 0


def test_a_few_inputs_and_a_single_version_are_enough() -> None:
    one = Cases(("m",), CONFIGS[:1], np.ones((1, 1)), np.ones((1, 1)), ("a",))
    assert grow_choice(one).at([5.0]) == 0
    of = cases(3)
    assert set(grow_choice(of).values_at(of.features)) <= set(range(len(of.configs)))


def test_leaves_weigh_what_is_at_stake() -> None:
    """A version that mostly wins by a hair and sometimes loses badly is not chosen."""
    seconds = np.array([[1.0, 1.01]] * 15 + [[9.0, 1.0]] * 5)
    of = Cases(("m",), CONFIGS[:2], np.zeros((20, 1)), seconds, tuple("abcdefghijklmnopqrst"))
    assert grow_choice(of).at([0.0]) == 1


def test_cross_validation_tests_on_what_was_not_seen() -> None:
    of = cases(1000)
    chosen = cross_validated(of, 10, np.random.default_rng(0))
    assert of.quality(chosen).ppp < 0.1


def test_seconds_are_predicted_and_carried_on() -> None:
    rng = np.random.default_rng(0)
    m = 10 ** rng.uniform(1, 5, 2000)
    latency = Latency.fit(m[:, None], 1e-9 * m**1.5)
    inside = 10 ** rng.uniform(1, 5, 100)
    np.testing.assert_allclose(latency.seconds(inside[:, None]), 1e-9 * inside**1.5, rtol=0.1)
    np.testing.assert_allclose(latency.seconds(np.array([[1e7]])), 1e-9 * 1e7**1.5, rtol=0.2)


def test_a_model_knows_calls_and_keeps_what_it_learned(tmp_path: Any) -> None:
    of = cases(600)
    model = TreeModel()
    model.fit(records(of))
    assert model.choice is not None
    np.testing.assert_array_equal(model.choose(of.features), model.choice.values_at(of.features))
    call = Call("toy", {"sparsity": 0.5, "m": 1e4})
    predicted = model.predict(call, CONFIGS)
    np.testing.assert_allclose(predicted, took(1e4, 0.5), rtol=0.5)
    model.save(tmp_path)
    again = TreeModel.load(tmp_path)
    np.testing.assert_array_equal(again.predict(call, CONFIGS), predicted)
    np.testing.assert_array_equal(again.choose(of.features), model.choose(of.features))
    assert again.ranges[:, 0].tolist() == np.percentile(of.features[:, 0], (0, 25, 50, 75, 100)).tolist()
    with pytest.raises(InputError, match="'m' is missing"):
        again.predict(Call("toy", {"sparsity": 0.5}), CONFIGS)
