"""Calibrating: last layers move towards what a machine takes, if that ranks better what was not measured."""

from dataclasses import replace

import numpy as np
import pytest

from tensorwise.device.device import Measurement
from tensorwise.device.null import NullDevice
from tensorwise.errors import InputError
from tensorwise.model import RankingModel
from tensorwise.model.calibration import FEWEST, Calibration, calibrate, fitted
from tensorwise.model.samples import Training
from tensorwise.program.workload import Workload, workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space
from tensorwise.store.record import Record
from tensorwise.tensor.convert import entries_from
from tests.unit.model.made_up import made_up

CONFIGS = 80


def works(count: int) -> list[Workload]:
    found = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        places = rng.integers(0, 200 + 50 * seed, (2, 900 + 100 * seed))
        found.append(workload("spmm", entries_from(((600, 600), places, None)), n=16))
    return found


WORKS = works(5)
SPACE = cpu_space(WORKS[0].assignment)
KNOWN = {work.id: work for work in WORKS}


def of(record: Record) -> Workload:
    return KNOWN[record.workload_id]


def elsewhere(model: RankingModel) -> RankingModel:
    """A machine on which half of what the last layers go by counts otherwise."""
    rng = np.random.default_rng(7)
    return model.with_last_layers(model.last_layers + 0.5 * rng.standard_normal(model.last_layers.shape[1]))


def measured(truth: RankingModel, noise: float = 0.0, count: int = 5, configs: int = CONFIGS) -> list[Record]:
    """Records of a machine that takes what a model says; some configs fail, some are given up."""
    device, found = NullDevice(), []
    for number, work in enumerate(WORKS[:count]):
        rng = np.random.default_rng(number)
        drawn = [SPACE.default(work), *(SPACE.sample(work, rng) for _ in range(configs))]
        logs = truth.predict(work, drawn, device) + noise * rng.standard_normal(len(drawn))
        for place, (config, log) in enumerate(zip(drawn, logs, strict=True)):
            one = Measurement.of([1e-3 * 2**log])
            if place in (5, 6):
                one = Measurement.failed("crash", "by design")
            if place in (7, 8):
                one = Measurement(1e-3 * 2 ** (log - 1), status="censored")
            how = {"drawn": "random" if place else "default", "job": f"job {number}", "family": f"{number}"}
            found.append(Record.of(one, work, device, SPACE.name, config, how))
    return found


@pytest.fixture(scope="module")
def old() -> RankingModel:
    model = made_up(SPACE, op="spmm", threads=1)
    # Weights drawn by chance give scores that hardly differ.
    return model.with_last_layers(5 * model.last_layers)


def spearman(result: Calibration) -> list[float]:
    return [
        float(np.nanmean([one.quality.near_spearman for one in judged]))
        for judged in (result.before, result.after)
    ]


def test_a_model_comes_to_rank_as_the_machine_does(old: RankingModel) -> None:
    truth = elsewhere(old)
    result = calibrate(old, measured(truth), of)
    before, after = spearman(result)
    assert result.better
    assert len(result.before) == len(result.after) == len(WORKS)
    assert after > before + 0.1
    assert result.model is not old
    assert result.model.card == old.card
    unseen = workload(
        "spmm", entries_from(((500, 700), np.random.default_rng(9).integers(0, 500, (2, 1500)), None)), n=16
    )
    rng = np.random.default_rng(11)
    configs = [SPACE.sample(unseen, rng) for _ in range(100)]
    exact, first, fit = (m.predict(unseen, configs, NullDevice()) for m in (truth, old, result.model))
    assert np.corrcoef(exact, fit)[0, 1] > np.corrcoef(exact, first)[0, 1]


def test_what_a_graph_is_made_of_stays(old: RankingModel) -> None:
    result = calibrate(old, measured(elsewhere(old)), of)
    rng = np.random.default_rng(1)
    configs = [SPACE.sample(WORKS[0], rng) for _ in range(10)]
    np.testing.assert_array_equal(result.model.embed_configs(configs), old.embed_configs(configs))
    np.testing.assert_array_equal(result.model.embed_pattern(WORKS[0]), old.embed_pattern(WORKS[0]))


def test_a_model_that_is_right_already_is_kept(old: RankingModel) -> None:
    result = calibrate(old, measured(old, noise=1.0), of)
    before, after = spearman(result)
    assert result.better == (after > before)
    exact = calibrate(old, measured(old), of)
    assert not exact.better
    assert exact.model is old
    assert spearman(exact)[0] > 0.9


def test_without_measurements_the_old_weights_stand_and_many_outweigh_them(old: RankingModel) -> None:
    truth = elsewhere(old)
    rng = np.random.default_rng(0)

    def samples(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
        seen = rng.standard_normal((old.heads, count, old.last_layers.shape[1]))
        return [(seen, seen[0] @ truth.last_layers[0])]

    nothing = fitted(old, [(np.zeros((old.heads, 10, 64)), np.zeros(10))])
    np.testing.assert_allclose(nothing.last_layers, old.last_layers, rtol=1e-5)
    few, many = (fitted(old, samples(count)).last_layers[0] for count in (50, 20_000))
    far = [
        float(np.linalg.norm(weights - truth.last_layers[0])) for weights in (old.last_layers[0], few, many)
    ]
    assert far[0] > far[1] > far[2]
    assert far[2] < 0.05 * far[0]


def test_too_little_is_said(old: RankingModel) -> None:
    with pytest.raises(InputError, match=f"2 workloads with 8 timed configs are too few .* measure {FEWEST}"):
        calibrate(old, measured(old, count=2), of)
    with pytest.raises(InputError, match="0 workloads"):
        calibrate(old, measured(old, configs=5), of)
    order = RankingModel(SPACE, training=Training(loss="hinge"))
    with pytest.raises(InputError, match="--loss ratio"):
        calibrate(order, measured(old), of)
    with pytest.raises(InputError, match="last layers of 3 heads, got 1"):
        old.with_last_layers(np.zeros((1, 2)))


def test_records_of_a_newer_table_calibrate_an_older_model(old: RankingModel) -> None:
    """A Param more says nothing to the model; what it reads of the configs is fitted as before."""
    records = measured(elsewhere(old), count=3, configs=30)
    newer = [replace(record, config=Config({**record.config, "warp": True})) for record in records]
    results = [calibrate(old, some, of) for some in (records, newer)]
    assert results[1].better
    np.testing.assert_array_equal(results[0].model.last_layers, results[1].model.last_layers)
