"""A latency model that learns from a few tasks of another device, tested on measured tasks that it has not learned from."""

from dataclasses import replace

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.model.latency import LatencyModel, train_latency
from tensorwise.model.programs import Programs
from tests.unit.model.latencies import records

pytest.importorskip("torch")

from tensorwise.adapt.latency import adapt_latency
from tensorwise.model.latency_training import LatencyTraining

pytestmark = pytest.mark.usefixtures("one_torch_thread")
SIZES = {"width": 32, "inner": 32, "layers": 1, "embedding": 32, "decoder": (32,), "joining": "sum"}
PROGRAMS = Programs.of(records(tasks=60))
SOURCE, TARGET = PROGRAMS.on(["fast"]), PROGRAMS.on(["slow"])
MEASURED = TARGET.where([row.task < "task030" for row in TARGET])
QUICK = LatencyTraining(epochs=20, learning_rate=3e-3, moments=0.0)


@pytest.fixture(scope="module")
def model() -> LatencyModel:
    found = train_latency(SOURCE, replace(QUICK, epochs=30), members=1, sizes=SIZES)
    assert found is not None
    return found


def test_a_model_gets_better_on_what_it_has_not_seen(model: LatencyModel) -> None:
    wrong = replace(
        model, members=tuple({**one, "decoder1.bias": one["decoder1.bias"] - 1} for one in model.members)
    )
    found = adapt_latency(wrong, MEASURED, QUICK)
    assert found.better
    assert found.after["mape"] < 0.5 * found.before["mape"]
    assert (found.after["programs"], found.after["tasks"]) == (len(MEASURED), 30)
    rest = TARGET.where([row.task >= "task030" for row in TARGET])
    said = found.model.latencies([row.ast for row in rest], [row.hardware for row in rest])
    assert np.abs(said.seconds / rest.seconds - 1).mean() < 0.5 * found.before["mape"]
    assert found.model.devices.keys() == {"slow"}


def test_without_learning_only_the_level_gets_better(model: LatencyModel) -> None:
    wrong = replace(
        model, members=tuple({**one, "decoder1.bias": one["decoder1.bias"] - 9} for one in model.members)
    )
    nothing = replace(QUICK, epochs=1, learning_rate=1e-12)
    found = adapt_latency(wrong, MEASURED, nothing)
    assert found.before["mape"] > 0.9  # eight thousand times too fast, which no training makes good
    assert found.after["mape"] < 0.3
    assert not adapt_latency(found.model, MEASURED, nothing).better


def test_too_few_tasks_are_refused(model: LatencyModel) -> None:
    few = TARGET.where([row.task < "task004" for row in TARGET])
    with pytest.raises(InputError, match="at least 5 measured tasks to learn from, got 4"):
        adapt_latency(model, few, QUICK)
