"""A search that has a model: how many candidates are tried follows from what they may save, and how sure that is."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.device.cpu import CpuDevice
from tensorwise.device.device import Device, Measurement
from tensorwise.model import CostModel
from tensorwise.program.workload import Workload, workload
from tensorwise.space.config import Config
from tensorwise.store.record import Record
from tensorwise.tensor.convert import entries_from
from tensorwise.tuning.advice import Advisor
from tensorwise.tuning.limits import Guidance, TuningLimits
from tensorwise.tuning.result import Trial
from tensorwise.tuning.searching import BATCH, FEW, NAMED, Search


@cache
def work() -> Workload:
    matrix = sp.random_array((400, 300), density=0.03, rng=np.random.default_rng(3), dtype=np.float32)
    return workload("spmm", entries_from(matrix), n=8)


def lot(config: Config) -> float:
    """A number between 0 and 1 that only the config decides."""
    return np.random.default_rng(list(config.id.encode())).random()


class Told(CostModel):
    """Says of each config by lot how much slower than the best it is: up to sixteen times."""

    kind = "told"

    def __init__(self, returns: str = "ratio", spread: float = 0.0) -> None:
        self.returns = returns  # type: ignore[assignment]
        self._spread = spread

    def fit(self, records: Iterable[Record]) -> None: ...

    def predict(self, workload: Workload, configs: Sequence[Config], device: Device) -> np.ndarray:
        return np.array([4 * lot(config) for config in configs])

    def estimate(
        self, workload: Workload, configs: Sequence[Config], device: Device
    ) -> tuple[np.ndarray, np.ndarray]:
        return self.predict(workload, configs, device), np.full(len(configs), self._spread)

    def state(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        return {}, {}

    @classmethod
    def from_state(cls, values: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> "Told":
        return cls()


def as_told(config: Config) -> float:
    return 1e-3 * 2 ** (4 * lot(config))


class Played(Search):
    """A search that measures nothing: a candidate takes ``times`` and costs a tenth of a second."""

    times: Callable[[Config], float]

    def _measure(self, configs: Sequence[Config]) -> Iterator[Measurement]:
        for config in configs:
            measurement = Measurement.of([self.times(config)])
            self.trials.append(Trial(config, self.space.program(self.work, config), measurement))
            yield measurement


@pytest.fixture(autouse=True)
def _few_are_bred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorwise.tuning.advice.BRED", 128)


def tried(
    model: CostModel | None,
    calls: float | None = None,
    times: Callable[[Config], float] = as_told,
    trials: int | None = None,
    budget_s: float = 15.0,
) -> list[Config]:
    limits = TuningLimits(budget_s, trials, calls, 0.0, lambda: 0.1 * len(search.trials))
    guidance = Guidance("random", model and Advisor(model), store=False)
    search = Played(work(), CpuDevice(1), limits, guidance)
    search.times = times
    search.run(libraries=False)
    assert [note for note in search.notes if "other conditions" not in note] == []
    return [trial.config for trial in search.trials]


def scores(configs: Sequence[Config]) -> list[float]:
    return [lot(config) for config in configs]


def test_the_default_is_tried_first_and_then_what_is_predicted_to_be_fast() -> None:
    without, found = tried(None, trials=1), tried(Told(), trials=FEW + 4)
    assert found[0] == without[0]
    assert scores(found[1:FEW]) == sorted(scores(found[1:FEW]))
    assert max(scores(found[1:])) < 0.2


def test_a_model_that_is_right_ends_the_search_when_nothing_more_can_be_saved() -> None:
    """A thousand calls of a millisecond are not worth a tenth of a second where a prediction bears out."""
    few = tried(Told(), calls=1e3)
    assert len(few) == FEW
    assert FEW < len(tried(Told(), calls=3e4)) < len(tried(None, calls=3e4))


def test_a_model_that_is_unsure_has_more_measured() -> None:
    counts = [len(tried(Told(spread=spread), calls=1e4)) for spread in (0.0, 0.5, 2.0)]
    assert FEW < counts[0] < counts[1] < counts[2]


def test_a_model_that_is_for_something_else_has_more_measured() -> None:
    model = Told()
    model.card = {"threads": 16}
    assert len(tried(model, calls=1e4)) > len(tried(Told(), calls=1e4))


def test_where_calls_are_not_known_the_strategy_goes_on_after_the_model() -> None:
    """What has hardly a chance to be the fastest is left; the budget is used all the same."""
    found = tried(Told())
    assert len(found) >= 0.65 * 15.0 / 0.1
    named = next(k for k, score in enumerate(scores(found)) if k and score > 0.5)
    assert FEW <= named < len(found) / 2
    assert all(score < 0.5 for score in scores(found[1:named]))


def test_where_all_that_the_model_speaks_of_was_worth_it_the_strategy_goes_on() -> None:
    found = tried(Told(spread=3.0), calls=1e15, times=lambda config: 1e-3, budget_s=60.0)
    assert len(found) >= 0.65 * 60.0 / 0.1 > 300


def test_with_trials_so_many_are_tried() -> None:
    assert len(tried(Told(), calls=1.0, trials=70)) == 70


def test_a_model_that_only_says_in_which_order_names_so_many() -> None:
    found = tried(Told("score"), calls=1e9)
    assert len(found) > 2 * NAMED
    assert scores(found[1 : 1 + NAMED]) == sorted(scores(found[1 : 1 + NAMED]))
    assert scores(found[1:]) != sorted(scores(found[1:]))


def test_candidates_that_fail_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Played._measure

    def failing(self: Played, configs: Sequence[Config]) -> Iterator[Measurement]:
        for _ in whole(self, configs):
            last = self.trials[-1]
            failed = Measurement.failed("crash", "by design")
            self.trials[-1] = Trial(last.config, last.program, failed)
            yield failed

    monkeypatch.setattr(Played, "_measure", failing)
    assert len(tried(Told(), calls=1e3)) > BATCH
    assert math.isfinite(len(tried(Told())))


def slow_vectors(config: Config) -> float:
    """What the model knows nothing of: vectors of 16 bytes take eight times as long."""
    return as_told(config) * (8 if config["vector_bytes"] == 16 else 1)


def test_what_is_like_a_disappointment_is_not_tried_next() -> None:
    counts = {
        times: sum(
            config["vector_bytes"] == 16 for config in tried(Told(), times=times, trials=FEW + 10)[FEW:]
        )
        for times in (as_told, slow_vectors)
    }
    assert counts[slow_vectors] < counts[as_told] / 2


def test_for_what_is_refused_others_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Played._measure

    def refusing(self: Played, configs: Sequence[Config]) -> Iterator[Measurement]:
        for config, measurement in zip(configs, whole(self, configs), strict=True):
            if self.trials and config["vector_bytes"] in refused:
                last = self.trials[-1]
                measurement = Measurement.failed("refused", "by design")
                self.trials[-1] = Trial(last.config, last.program, measurement)
            yield measurement

    monkeypatch.setattr(Played, "_measure", refusing)
    refused = {16}
    found = tried(Told(), trials=10)
    assert sum(config["vector_bytes"] != 16 for config in found) == 10 < len(found) <= 20
    refused = {4, 8, 16, 32, 64, None}
    assert len(tried(Told(), trials=10)) == 20


def test_compiled_routines_of_the_model_are_loaded_before_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[object] = []
    monkeypatch.setattr("tensorwise.tuning.searching.load_all", lambda *routines: loaded.extend(routines))
    model = Told()
    model.routines = ("counting",)  # type: ignore[misc, assignment]
    tried(model, trials=1)
    assert loaded == [*CpuDevice.routines, "counting"]
    loaded.clear()
    tried(None, trials=1)
    assert loaded == [*CpuDevice.routines]
