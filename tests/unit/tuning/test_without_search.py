"""Tuning that knows how often its answer will be called: no search for a few calls, and none longer than it can pay for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.device.cpu import CpuDevice
from tensorwise.device.device import Device, Measurement
from tensorwise.device.library import LIBRARY
from tensorwise.errors import MeasurementError
from tensorwise.model import CostModel
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space
from tensorwise.store.record import Record
from tensorwise.tensor.convert import entries_from
from tensorwise.tuning import without_search
from tensorwise.tuning.advice import Advisor
from tensorwise.tuning.limits import Guidance, TuningLimits
from tensorwise.tuning.operator import Operator
from tensorwise.tuning.result import TuneResult
from tensorwise.tuning.searching import BATCH, Search
from tensorwise.tuning.tune import tune
from tensorwise.tuning.without_search import SpeedupPrior
from tensorwise.tuning.worth import Prospect
from tests.unit.device.cases import tensor

OPERANDS = {"spmv": None, "spmm": 8, "spmv_t": None, "spmm_t": 8, "sddmm": 8}


@pytest.fixture
def matrix() -> sp.csr_array:
    rng = np.random.default_rng(3)
    return sp.csr_array(sp.random_array((400, 300), density=0.03, rng=rng, dtype=np.float32))


def tuned(A: Any, op: str, calls: float, **options: Any) -> tuple[Operator, TuneResult]:
    operator = tune(
        A,
        op,
        n=OPERANDS.get(op, 4),
        expected_calls=calls,
        threads=1,
        store=False,
        **{"budget_s": 4.0, **options},
    )
    assert operator.result is not None
    return operator, operator.result


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was looked at, in order."""
    names: list[str] = []
    enter = without_search._Contest.enter

    def noting(self: Any, name: str, kernel: Any, check: bool = False) -> None:
        names.append(name)
        enter(self, name, kernel, check)

    monkeypatch.setattr(without_search._Contest, "enter", noting)
    return names


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many kernels were asked for, each time something is measured; measuring is made up."""
    asked: list[int] = []

    def alike(
        self: CpuDevice, work: object, kernels: Sequence[object], *_: object, **__: object
    ) -> Iterator[Measurement]:
        asked.append(len(kernels))
        yield from (Measurement.of([1e-3]) for _ in kernels)

    monkeypatch.setattr(CpuDevice, "measure", alike)
    return asked


@pytest.mark.parametrize("op", OPERANDS)
def test_a_few_calls_measure_nothing_and_are_right(
    matrix: sp.csr_array, op: str, measured: list[int]
) -> None:
    operator, result = tuned(matrix, op, calls=3)
    assert measured == []
    assert result.trials == ()
    assert not result.verified
    assert any("no search: 3 calls" in note for note in result.notes)
    assert result.best.seconds > 0
    rng = np.random.default_rng(1)
    dense = operator.workload.operands(rng)
    found, exact = operator(*dense), operator.workload.reference(dense)
    found = found.data if sp.issparse(found) else found
    assert exact.mismatch(np.asarray(found)) is None
    assert "no search" in operator.report()


def looks(
    matrix: sp.csr_array,
    op: str,
    calls: float,
    price_s: float,
    prior: SpeedupPrior,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[TuneResult, list[str]]:
    monkeypatch.setattr(without_search, "_price_s", lambda kernel, work: price_s)
    monkeypatch.setattr(without_search, "SPEEDUP_PRIORS", {op: prior})
    monkeypatch.setattr(without_search, "START_S", 1e9)  # there is never a search
    monkeypatch.setattr(without_search, "INFERENCE_S", 1e9)
    _, result = tuned(matrix, op, calls, model=None)
    return result, list(result.baselines)


def test_the_library_is_looked_at_where_that_may_pay(
    matrix: sp.csr_array, entered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default kernel is compiled: whether SciPy might be faster is worth two calls of it, or not."""
    sure, unsure = SpeedupPrior(8.0, 0.1, 1.0, 0.1), SpeedupPrior(1.4, 0.43, 1.0, 0.1)
    result, libraries = looks(matrix, "spmm", 1e6, 0.0, sure, monkeypatch)
    assert entered == ["untuned"]
    assert libraries == []
    assert result.best.name == "tensorwise"
    entered.clear()
    looks(matrix, "spmm", 3, 0.0, unsure, monkeypatch)
    assert entered == ["untuned"]
    entered.clear()
    _, libraries = looks(matrix, "spmm", 1e3, 0.0, unsure, monkeypatch)
    assert entered == ["untuned", "scipy"]
    assert libraries == ["scipy"]


def test_before_the_default_kernel_is_compiled_it_must_be_worth_that(
    matrix: sp.csr_array, entered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prior = SpeedupPrior(8.0, 0.1, 1.0, 0.1)
    result, _ = looks(matrix, "spmm", 3, 100.0, prior, monkeypatch)
    assert entered == ["scipy"]
    assert result.best.name == "scipy"
    entered.clear()
    looks(matrix, "spmm", 1e9, 100.0, prior, monkeypatch)
    assert entered == ["scipy", "untuned"]


def test_where_the_default_kernel_cannot_be_bound_there_is_the_library(
    matrix: sp.csr_array, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any, work: Any, threads: int) -> Any:
        raise MemoryError("too large")

    monkeypatch.setattr(GeneratedKernel, "bind", fail)
    result, libraries = looks(matrix, "spmm", 3, 0.0, SpeedupPrior(8.0, 0.1, 1.0, 0.1), monkeypatch)
    assert libraries == ["scipy"]
    assert result.best.name == "scipy"
    assert "the default kernel cannot be used here: too large" in result.notes


def test_a_tensor_too(measured: list[int]) -> None:
    _, result = tuned(tensor((12, 9, 7), 60, np.random.default_rng(0)), "mttkrp", calls=2)
    assert measured == []
    assert result.best.name in ("scipy", "tensorwise")


def test_an_empty_matrix(measured: list[int]) -> None:
    operator, _ = tuned(sp.csr_array((5, 4), dtype=np.float32), "spmv", calls=1)
    assert not operator(np.ones(4, np.float32)).any()
    assert measured == []


def test_many_calls_are_worth_a_search(matrix: sp.csr_array) -> None:
    _, result = tuned(matrix, "spmv", calls=1e9, budget_s=12.0)
    assert result.trials
    assert result.verified


def test_candidates_asked_for_are_tried(matrix: sp.csr_array) -> None:
    _, result = tuned(matrix, "spmv", calls=1, trials=5, budget_s=60.0)
    assert len(result.trials) == 5


def test_the_search_ends_when_all_are_alike(matrix: sp.csr_array, measured: list[int]) -> None:
    """Candidates of one speed: what another one may save shrinks to less than what a few calls are worth."""
    work = workload("spmv", entries_from(matrix))

    def tried(calls: float | None) -> int:
        with CpuDevice(1) as device:
            limits = TuningLimits(
                100.0, None, calls, 0.0, lambda: 0.5 * len(search.trials)
            )  # a second is two candidates
            search = Search(work, device, limits, Guidance("random", None, store=False))
            search.run()
            return len(search.trials)

    assert (
        tried(calls=1e3) == BATCH
    )  # a second of calls in all is not worth half a second for another candidate
    assert BATCH < tried(calls=5e3) < tried(calls=2e5)
    assert tried(None) == tried(calls=1e12)


# -- with a model ------------------------------------------------------------------------------------------


class Fond(CostModel):
    """Predicts that blocks two rows high are eight times as fast as the default, all else a little slower."""

    kind = "fond"
    returns = "ratio"

    def fit(self, records: Iterable[Record]) -> None: ...

    def predict(self, workload: Workload, configs: Sequence[Config], device: Device) -> np.ndarray:
        default = cpu_space(workload.assignment).default(workload)
        return np.array([-3.0 if c["split_i"] == 2 else 0.0 if c == default else 0.5 for c in configs])

    def state(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        return {}, {}

    @classmethod
    def from_state(cls, values: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> "Fond":
        return cls()


def few_calls(matrix: sp.csr_array, calls: float, model: CostModel | None) -> Search:
    work = workload("spmm", entries_from(matrix), n=8)
    guidance = Guidance(model=model and Advisor(model), store=False)
    return Search(work, CpuDevice(1), TuningLimits(9.0, None, calls), guidance)


def named(search: Search, price_s: float, monkeypatch: pytest.MonkeyPatch) -> Config | None:
    monkeypatch.setattr(without_search, "_price_s", lambda kernel, work: price_s)
    untuned = Prospect(1e-3)
    found = without_search._find_predicted(search, untuned, untuned, search.limits.calls or 0.0)
    if found is None:
        return None
    space = cpu_space(search.work.assignment)
    known = without_search.portfolio(space, search.work)
    return next(config for config in known if space.program(search.work, config) == found.program)


def test_the_predicted_best_of_the_known_structures_is_named_if_it_pays(
    matrix: sp.csr_array, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = named(few_calls(matrix, 100, Fond()), 0.0, monkeypatch)
    assert config is not None
    assert config["split_i"] == 2
    # A tenth of a second of calls does not pay for compiling, ten seconds do.
    assert named(few_calls(matrix, 100, Fond()), 0.4, monkeypatch) is None
    assert named(few_calls(matrix, 1e4, Fond()), 0.4, monkeypatch) is not None


def test_no_model_or_one_for_something_else_names_none(
    matrix: sp.csr_array, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert named(few_calls(matrix, 100, None), 0.0, monkeypatch) is None
    doubtful = Fond()
    doubtful.card = {"threads": 16}
    assert named(few_calls(matrix, 100, doubtful), 0.0, monkeypatch) is None
    order = Fond()
    order.returns = "score"
    assert named(few_calls(matrix, 100, order), 0.0, monkeypatch) is None


@pytest.mark.parametrize("op", OPERANDS)
def test_what_a_model_names_is_right_and_nothing_is_measured(
    matrix: sp.csr_array, op: str, measured: list[int], entered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(without_search, "INFERENCE_S", -1.0)  # it is always asked
    monkeypatch.setattr(without_search, "_price_s", lambda kernel, work: 0.0)
    operator, result = tuned(matrix, op, calls=3, model=Fond())
    assert measured == []
    assert entered[-1] == "predicted"
    assert not any("cannot be used" in note for note in result.notes)
    assert result.best_generated is not None
    rng = np.random.default_rng(1)
    dense = operator.workload.operands(rng)
    found = operator(*dense)
    found = found.data if sp.issparse(found) else found
    assert operator.workload.reference(dense).mismatch(np.asarray(found)) is None


def test_a_kernel_with_other_numbers_is_refused(matrix: sp.csr_array) -> None:
    """Columns are gathered from elsewhere: the sums are much alike, and no number is right."""
    work = workload("spmm", entries_from(matrix), n=8)
    shifted = sp.csr_array((matrix.data, (matrix.indices + 1) % 300, matrix.indptr), matrix.shape)
    wrong = workload("spmm", entries_from(shifted), n=8)
    contest = without_search._Contest(work, 1)
    contest.enter("scipy", LIBRARY["scipy"]())
    space = cpu_space(work.assignment)
    kernel = GeneratedKernel(space.program(work, space.default(work)))
    contest.enter("untuned", kernel, check=True)

    class Wrong(GeneratedKernel):  # type: ignore[misc]  # a leaf is final, but for this
        def bind(self, workload: Workload, threads: int) -> Any:
            return super().bind(wrong, threads)

    with pytest.raises(MeasurementError, match="numbers differ"):
        contest.enter("predicted", Wrong(kernel.program), check=True)
    assert set(contest.known) == {"scipy", "untuned"}
