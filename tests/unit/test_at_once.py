"""Tuning that knows how often its answer will be called: no search for a few calls, and none longer than it can pay for."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.device.cpu import CpuDevice
from tensorwise.device.device import Measurement
from tensorwise.operator import Operator
from tensorwise.program.workload import workload
from tensorwise.result import TuneResult
from tensorwise.searching import BATCH, Search
from tensorwise.tensor.entries import entries_from
from tensorwise.tuning import tune
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
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many kernels were asked for, each time something is measured; measuring is made up."""
    asked: list[int] = []

    def alike(
        self: CpuDevice, work: object, kernels: Sequence[object], *_: object, **__: object
    ) -> Iterator[Measurement]:
        asked.append(len(kernels))
        yield from (Measurement.of([1e-3]) for _ in kernels)

    monkeypatch.setattr(CpuDevice, "measure_kernels", alike)
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


def test_a_tensor_too(measured: list[int]) -> None:
    _, result = tuned(tensor((12, 9, 7), 60, np.random.default_rng(0)), "mttkrp", calls=2)
    assert measured == []
    assert result.best.name in ("scipy", "tensorwise")


def test_an_empty_matrix(measured: list[int]) -> None:
    operator, _ = tuned(sp.csr_array((5, 4), dtype=np.float32), "spmv", calls=1)
    assert not operator(np.ones(4, np.float32)).any()
    assert measured == []


def test_many_calls_are_worth_a_search(matrix: sp.csr_array) -> None:
    _, result = tuned(matrix, "spmv", calls=1e9)
    assert result.trials
    assert result.verified


def test_candidates_asked_for_are_tried(matrix: sp.csr_array) -> None:
    _, result = tuned(matrix, "spmv", calls=1, trials=5)
    assert len(result.trials) == 5


def test_the_search_ends_when_all_are_alike(matrix: sp.csr_array, measured: list[int]) -> None:
    """Candidates of one speed: what another one may save shrinks to less than what a few calls are worth."""
    work = workload("spmv", entries_from(matrix))

    def tried(calls: float | None) -> int:
        with CpuDevice(1) as device:
            search = Search(work, device, 0.0, math.inf, None, calls, False, None)
            search.spent = lambda: 0.5 * len(search.trials)  # type: ignore[method-assign]  # a second is two candidates
            search.budget_s = 100.0
            search.run("random", np.random.default_rng(0))
            return len(search.trials)

    assert (
        tried(calls=1e3) == BATCH
    )  # a second of calls in all is not worth half a second for another candidate
    assert BATCH < tried(calls=5e3) < tried(calls=2e5)
    assert tried(None) == tried(calls=1e12)
