"""MeanModel: which mean it takes."""

import math

import numpy as np
import pytest

from tensorwise.device.null import NullDevice
from tensorwise.errors import InputError
from tensorwise.model import MeanModel, RandomModel
from tensorwise.space.config import Config
from tensorwise.store.record import Record
from tests.contract.toys import ToyWorkload

CONFIG = Config({"n": 1})
A, B, C = NullDevice(name="a"), NullDevice(name="b"), NullDevice(name="c")


def record(op: str, device: NullDevice, seconds: float, status: str = "ok") -> Record:
    return Record("w", {"op": op}, device.id, "garden", CONFIG, seconds, status=status)  # type: ignore[arg-type]


def test_the_most_special_mean_is_taken() -> None:
    model = MeanModel()
    model.fit(
        [
            record("spmm", A, 1.0),
            record("spmm", A, 100.0),
            record("spmv", A, 10.0),
            record("spmm", B, 1e-3),
            record("spmm", A, math.inf, "crash"),
            record("spmm", A, 5.0, "censored"),
        ]
    )

    def seconds(op: str, device: NullDevice) -> float:
        predicted = model.predict(ToyWorkload(op=op), [CONFIG, CONFIG], device)  # type: ignore[arg-type]
        assert predicted[0] == predicted[1]
        return float(predicted[0])

    assert seconds("spmm", A) == pytest.approx(10.0)
    assert seconds("spmv", A) == pytest.approx(10.0)
    assert seconds("sddmm", B) == pytest.approx(1e-3)
    assert seconds("spmm", C) == pytest.approx((1.0 * 100 * 1e-3) ** (1 / 3))
    assert seconds("ttv", C) == pytest.approx((1.0 * 100 * 10 * 1e-3) ** (1 / 4))


def test_zero_seconds_have_a_logarithm() -> None:
    model = MeanModel()
    model.fit([record("spmm", A, 0.0)])
    assert model.predict(ToyWorkload(), [CONFIG], A)[0] > 0  # type: ignore[arg-type]


def test_only_failures_are_nothing_to_learn_from() -> None:
    with pytest.raises(InputError, match="status ok"):
        MeanModel().fit([record("spmm", A, math.inf, "crash")])
    with pytest.raises(InputError, match="learned nothing"):
        MeanModel().predict(ToyWorkload(), [CONFIG], A)  # type: ignore[arg-type]


def test_random_lots_differ_by_seed_and_config() -> None:
    workload = ToyWorkload()
    configs = [Config({"n": n}) for n in range(200)]
    lots = RandomModel(1).predict(workload, configs, A)  # type: ignore[arg-type]
    assert len(set(lots)) == 200
    assert 0.4 < lots.mean() < 0.6
    assert not np.array_equal(lots, RandomModel(2).predict(workload, configs, A))  # type: ignore[arg-type]
