"""Judging: what of a job's records enters which figure, and what noise makes of a perfect model."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tensorwise.device.device import Measurement
from tensorwise.device.null import NullDevice, smooth_cost
from tensorwise.errors import InputError
from tensorwise.model import MeanModel
from tensorwise.model.evaluation import MIN_TIMED_CONFIGS, evaluate_ranking
from tensorwise.space.config import Config
from tensorwise.store.record import Record
from tests.contract.toys import GARDEN, ToyWorkload, draw_many

W: Any = ToyWorkload()
CONFIGS = draw_many(GARDEN, W, 0, 20)
DEVICE = NullDevice()


def recorded(seconds: Sequence[float], **facts: object) -> list[Record]:
    return [
        Record.of(
            Measurement(one), W, DEVICE, GARDEN.name, config, {"family": "fem", "pattern": "p", **facts}
        )
        for one, config in zip(seconds, CONFIGS, strict=True)
    ]


def of_truth() -> list[float]:
    return [smooth_cost(W, config) for config in CONFIGS]


class Seer(MeanModel):  # type: ignore[misc]  # a test may derive from a final class
    """Knows the truth."""

    def predict(self, workload: Any, configs: Sequence[Config], device: Any) -> np.ndarray:
        assert (workload, device.id) == (W, DEVICE.id)
        return np.array([smooth_cost(W, config) for config in configs])


def test_a_perfect_model_and_one_that_knows_the_mean() -> None:
    records = recorded(of_truth(), job="a") + recorded([2 * s for s in of_truth()], job="b")
    told: list[tuple[int, int]] = []
    judged = evaluate_ranking(
        Seer(), records, lambda record: W, lambda done, total: told.append((done, total))
    )
    assert told == [(1, 2), (2, 2)]
    assert [(one.family, one.pattern, one.quality.spearman, one.again) for one in judged] == [
        ("fem", "p", 1.0, None)
    ] * 2
    mean = MeanModel()
    mean.fit(records)
    assert math.isnan(evaluate_ranking(mean, records, lambda record: W)[0].quality.spearman)


def test_what_failed_takes_places_and_what_was_lost_does_not_count() -> None:
    records = recorded(of_truth())
    best = min(range(len(records)), key=lambda k: records[k].seconds)
    records[best] = replace(records[best], status="crash", seconds=math.inf)
    lost = replace(records[0], status="crash", seconds=math.inf, provenance={"lost": True})
    (judged,) = evaluate_ranking(Seer(), [*records, lost], lambda record: W)
    assert judged.quality.near_spearman == 1 > judged.quality.spearman
    assert (judged.quality.best_of_top[1], judged.quality.best_of_top[10]) == (0, 1)
    with pytest.raises(InputError, match=f"no job among the records has {MIN_TIMED_CONFIGS}"):
        evaluate_ranking(Seer(), records[: MIN_TIMED_CONFIGS - 1], lambda record: W)


def test_noise_bounds_what_can_be_reached() -> None:
    """As much as the times of the one config that was timed again and again differ."""
    found = []
    for noise in (0.01, 2.0):
        first = recorded(of_truth())[0]
        anchors = [replace(first, seconds=first.seconds * math.exp(noise * k)) for k in range(-2, 3)]
        (judged,) = evaluate_ranking(Seer(), [*recorded(of_truth()), *anchors], lambda record: W)
        assert judged.again is not None
        found.append(judged.again.spearman)
    assert 1 >= found[0] > 0.95 > found[1]


def test_ratios_taken_in_rounds_count_instead_of_times() -> None:
    """Times were taken while the machine changed its speed; the ratios of the same records know better."""
    rng = np.random.default_rng(0)
    truth = of_truth()
    records = []
    for at, record in enumerate(recorded(truth)):
        drifted = record.seconds * float(rng.choice([1.0, 3.0]))
        facts = {"drawn": "default"} if at == 0 else {}
        ratios = {"ratio": truth[at] / truth[0], "ratio_error": 0.0}
        records.append(replace(record, seconds=drifted, provenance={**record.provenance, **facts, **ratios}))
    (judged,) = evaluate_ranking(Seer(), records, lambda record: W)
    assert judged.quality.spearman == 1
    assert judged.again is not None
    assert judged.again.spearman == 1
    unsure = [replace(r, provenance={**r.provenance, "ratio_error": 2.0}) for r in records]
    (judged,) = evaluate_ranking(Seer(), unsure, lambda record: W)
    assert judged.again is not None
    assert judged.again.spearman < 0.95
    without = [replace(r, provenance={"drawn": r.provenance.get("drawn")}) for r in records]
    assert evaluate_ranking(Seer(), without, lambda record: W)[0].quality.spearman < 1
