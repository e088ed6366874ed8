"""What a model does not see in a program it does not see on any device: times elsewhere say by how much it is off."""

from dataclasses import replace

import numpy as np
import pytest

from tensorwise.adapt.cross_device import CrossDeviceCorrection
from tensorwise.analysis.ast import LEAVES
from tensorwise.errors import InputError
from tensorwise.model.labels import Labels
from tensorwise.model.latency import FineTuned, LatencyModel
from tensorwise.model.program_net import Shape, initial, scales_of
from tensorwise.model.programs import Programs
from tests.unit.model.latencies import records

# Half of the programs take eight times as long, and nothing that the model reads says which.
PROGRAMS = Programs.of(records(compiled=True)).uncompiled()
ELSEWHERE = PROGRAMS.on(["fast"])
TARGET = PROGRAMS.on(["slow"])
MEASURED = TARGET.where([row.task < "task012" for row in TARGET])
REST = TARGET.where([row.task >= "task012" for row in TARGET])


def at_best_rates() -> LatencyModel:
    """A model that says of each program what it would take at its device's best rates."""
    shape = Shape(
        len(LEAVES.fields), PROGRAMS.context.shape[1], width=8, heads=2, layers=1, inner=8, embedding=8, context=8,
        decoder=(8,), joining="sum",
    )  # fmt: skip
    weights = initial(shape, np.random.default_rng(0))
    weights |= {name: np.zeros_like(weights[name]) for name in ("decoder1.weight", "decoder1.bias")}
    scales = scales_of(np.concatenate([row.ast.leaves for row in PROGRAMS]), PROGRAMS.context)
    labels = Labels.fitted("log", PROGRAMS.seconds)
    return LatencyModel(shape, labels, scales, (-40.0, 10.0), (weights,), {}).calibrated(MEASURED)


MODEL = at_best_rates()
TUNED = FineTuned(MODEL, (frozenset(MEASURED.tasks),))


def off(seconds: np.ndarray, programs: Programs) -> float:
    return float(np.abs(seconds / programs.seconds - 1).mean())


def plain(programs: Programs) -> np.ndarray:
    return MODEL.latencies([row.ast for row in programs], [row.hardware for row in programs]).seconds


def test_errors_that_devices_share_are_taken_back() -> None:
    known = CrossDeviceCorrection.fitted(TUNED, MODEL, ELSEWHERE, MEASURED)
    assert known.share > 0.9
    found = known.latencies(REST)
    assert off(found.seconds, REST) < 0.1 < 0.3 < off(plain(REST), REST)
    about = found.covering(REST.seconds)
    without = MODEL.latencies([row.ast for row in REST], [row.hardware for row in REST]).covering(
        REST.seconds
    )
    assert about["covered"] > 0.8
    assert about["width"] < without["width"] / 2


def test_errors_that_devices_do_not_share_do_no_harm() -> None:
    rng = np.random.default_rng(0)
    drawn = plain(ELSEWHERE) * np.exp(rng.standard_normal(len(ELSEWHERE)))
    rows = tuple(replace(row, seconds=float(s)) for row, s in zip(ELSEWHERE, drawn, strict=True))
    known = CrossDeviceCorrection.fitted(TUNED, MODEL, Programs(rows), MEASURED)
    assert known.share < 0.3
    assert off(known.latencies(REST).seconds, REST) < 1.1 * off(plain(REST), REST)


def test_programs_that_ran_nowhere_else_are_as_the_model_says() -> None:
    some = ELSEWHERE.where([row.task < "task020" for row in ELSEWHERE])
    known = CrossDeviceCorrection.fitted(TUNED, MODEL, some, MEASURED)
    unknown = REST.where([row.task >= "task020" for row in REST])
    said = MODEL.latencies([row.ast for row in unknown], [row.hardware for row in unknown])
    found = known.latencies(unknown)
    np.testing.assert_array_equal(found.seconds, said.seconds)
    np.testing.assert_allclose(found.high, said.high)


def test_the_devices_that_are_most_like_the_target_count() -> None:
    """A third device has vectors of another width, and takes three times what it should for a program now and then."""
    rng = np.random.default_rng(1)
    other = replace(ELSEWHERE.rows[0].hardware, name="other", vector_bytes=16)
    misleading = tuple(
        replace(row, device="other", hardware=other, seconds=row.seconds * 3 ** int(rng.integers(2)))
        for row in ELSEWHERE
    )
    both = CrossDeviceCorrection.fitted(TUNED, MODEL, Programs(misleading + ELSEWHERE.rows), MEASURED)
    alone = CrossDeviceCorrection.fitted(TUNED, MODEL, Programs(misleading), MEASURED)
    assert off(both.latencies(REST).seconds, REST) < off(alone.latencies(REST).seconds, REST) / 2


def test_a_share_needs_programs_that_are_known_on_both() -> None:
    foreign = ELSEWHERE.where([row.task >= "task012" for row in ELSEWHERE])
    with pytest.raises(InputError, match="0 of the measured programs are known from other devices"):
        CrossDeviceCorrection.fitted(TUNED, MODEL, foreign, MEASURED)
