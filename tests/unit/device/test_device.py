"""Measurement, and the devices that need no machine."""

import math
from typing import Any

import numpy as np
import pytest

from tensorwise.device.device import STATUSES, Measurement
from tensorwise.device.noisy import NoisyDevice
from tensorwise.device.null import NullDevice, smooth_cost
from tensorwise.errors import InputError
from tensorwise.space.config import Config
from tests.contract.toys import GARDEN, WIDE, ToyWorkload, draw_many

W: Any = ToyWorkload()


def test_median_and_interquartile_range() -> None:
    one = Measurement.of([5.0, 1.0, 2.0, 3.0, 4.0], "warm")
    assert (one.seconds, one.spread_s, one.note, one.ok) == (3.0, 2.0, "warm", True)
    assert one.samples == (5.0, 1.0, 2.0, 3.0, 4.0)


def test_failures_cost_infinitely_and_censored_ones_their_bound() -> None:
    assert Measurement.failed("wrong", "off by one").cost == math.inf
    assert Measurement(2.0, status="censored", note="20x the best").cost == 2.0
    assert not Measurement(2.0, status="censored").ok


@pytest.mark.parametrize(
    "make",
    [
        lambda: Measurement(math.inf),
        lambda: Measurement(math.nan),
        lambda: Measurement(-1.0),
        lambda: Measurement(1.0, status="crash"),
        lambda: Measurement(1.0, status="fine"),  # type: ignore[arg-type]
        lambda: Measurement(1.0, spread_s=math.nan),
        lambda: Measurement(1.0, samples=(math.inf,)),
        lambda: Measurement.of([]),
        lambda: Measurement.failed("ok", ""),
    ],
)
def test_impossible_measurements_are_refused(make: Any) -> None:
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize(
    "bad", [{}, {"seconds": "x", "spread_s": 0, "samples": [], "status": "ok", "note": ""}, {"seconds": 1}]
)
def test_malformed_json_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InputError, match="measurement"):
        Measurement.from_json(bad)


def test_every_status_round_trips() -> None:
    for status in STATUSES:
        seconds = 1.0 if status in ("ok", "censored") else math.inf
        one = Measurement(seconds, status=status, note="bytes \udcff from a compiler")
        assert Measurement.from_json(one.to_json()) == one
        one.note.encode()


def test_the_smooth_cost_is_smooth_and_depends_on_the_workload() -> None:
    configs = draw_many(WIDE, W, 0, 200)
    costs = np.log([smooth_cost(W, config) for config in configs])
    near = [smooth_cost(W, WIDE.neighbours(config, W)[0]) for config in configs]
    far = np.roll(costs, 1)
    assert np.abs(np.log(near) - costs).mean() < 0.5 * np.abs(far - costs).mean()
    other: Any = ToyWorkload("another")
    assert [smooth_cost(other, config) for config in configs[:5]] != np.exp(costs[:5]).tolist()
    assert 1e-4 < np.exp(costs).min() < np.exp(costs).max() < 10


def test_the_smooth_cost_never_changes() -> None:
    """Recorded expectations of other tests rest on it."""
    config = Config({"a": 4, "b": "x", "c": True, "d": ("i", "k"), "e": None})
    assert smooth_cost(W, config) == pytest.approx(0.007849161185562677)


def test_null_says_crash_when_the_formula_says_infinity() -> None:
    for bad in (math.inf, math.nan, -1.0):
        device = NullDevice(lambda workload, config, bad=bad: bad)  # type: ignore[misc]
        (one,) = device.measure(W, [GARDEN.default(W)])
        assert one.status == "crash"


def test_noise_has_the_stated_size() -> None:
    device = NoisyDevice(NullDevice(lambda w, c: 1.0), np.random.default_rng(0), sigma=0.2, samples=200)
    samples = [s for one in device.measure(W, [GARDEN.default(W)] * 20) for s in one.samples]
    assert np.std(np.log(samples)) == pytest.approx(0.2, rel=0.1)
    assert np.mean(np.log(samples)) == pytest.approx(0.0, abs=0.02)


def test_noise_failures_and_drift_are_seeded() -> None:
    def run() -> list[Measurement]:
        device = NoisyDevice(NullDevice(), np.random.default_rng(7), failure_rate=0.5, drift=0.1)
        return list(device.measure(W, draw_many(GARDEN, W, 0, 30)))

    assert run() == run()
    assert 5 < sum(not one.ok for one in run()) < 25


def test_drift_slows_down_measurement_by_measurement() -> None:
    device = NoisyDevice(NullDevice(lambda w, c: 1.0), np.random.default_rng(0), sigma=0.0, drift=0.5)
    seconds = [one.seconds for one in device.measure(W, [GARDEN.default(W)] * 3)]
    assert seconds == [1.0, 1.5, 2.25]


def test_noise_passes_failures_on() -> None:
    device = NoisyDevice(NullDevice(lambda w, c: math.inf), np.random.default_rng(0))
    (one,) = device.measure(W, [GARDEN.default(W)])
    assert one.status == "crash"
    assert "cost function" in one.note


@pytest.mark.parametrize("bad", [{"sigma": -1}, {"failure_rate": 2}, {"drift": -2}, {"samples": 0}])
def test_impossible_noise_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected sigma"):
        NoisyDevice(NullDevice(), np.random.default_rng(0), **bad)  # type: ignore[arg-type]
