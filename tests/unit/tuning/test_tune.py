"""Tuning end to end on small matrices: right numbers, sane results, and nothing lost when things go wrong."""

import gc
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.device.cpu import CpuDevice, Rounds
from tensorwise.device.device import Device
from tensorwise.errors import InputError, MeasurementError, StoreError
from tensorwise.model import CostModel, MeanModel
from tensorwise.program.workload import Workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space
from tensorwise.space.params import Flag
from tensorwise.store.record import Record
from tensorwise.store.store import Store
from tensorwise.tuning.operator import Operator
from tensorwise.tuning.result import Trial, TuneResult
from tensorwise.tuning.searching import FEW
from tensorwise.tuning.tune import tune
from tests.unit.device.cases import tensor

pytestmark = pytest.mark.usefixtures("_compiler")


@pytest.fixture(scope="module")
def _compiler() -> None:
    from tensorwise.errors import CompilerError
    from tensorwise.toolchain.compiler import find_compiler

    try:
        find_compiler()
    except CompilerError as error:
        pytest.skip(str(error))


def quick(A: Any, op: str, **options: Any) -> Operator:
    return tune(A, op, **({"trials": 4, "budget_s": 60.0, "threads": 2, "store": False} | options))


def result_of(operator: Operator) -> TuneResult:
    assert operator.result is not None
    return operator.result


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture
def matrix(rng: np.random.Generator) -> sp.csr_array:
    """300 x 200, float32: blocks on the diagonal and some noise."""
    blocks = sp.block_diag([np.ones((6, 4))] * 50, format="csr")
    made = sp.csr_array(blocks + sp.random_array((300, 200), density=0.02, rng=rng, format="csr"))
    made.data = rng.standard_normal(made.nnz)
    return made.astype(np.float32)


def is_sane(result: TuneResult) -> None:
    assert math.isfinite(result.best.seconds)
    assert result.best.seconds > 0
    assert result.verified
    assert "scipy" in result.baselines
    assert result.tuning_s > 0
    assert result.candidates_measured <= len(result.trials)
    assert result.best.bytes_held > 0
    told = json.loads(json.dumps(result.to_json(), allow_nan=False))
    keys = "op threads best best_generated baselines candidates_measured conversion_s tuning_s break_even_calls verified"
    assert not set(keys.split()) - set(told)
    assert set(told["best"]) >= {"name", "format", "schedule", "seconds"}
    assert result.best.name in result.text()
    summary = str(result).splitlines()
    assert [line.split(": ")[0] for line in summary[1:5]] == ["chosen", "time", "trials", "spent"]
    assert summary[3].startswith(f"trials: {len(result.trials)}")
    assert sum(map(int, re.findall(r"(\d+) [a-z]", summary[3]))) == len(result.trials)
    assert "as fast as SciPy" in summary[2] or result.best.name == "scipy"
    if result.best_generated is not None and result.best_generated.rounds:
        assert result.table is not None
        fastest = min((s for s in result.baselines.values() if s.rounds), key=lambda s: s.seconds)
        ratio = result.table.ratio("tensorwise", fastest.name)
        assert told["best_generated"]["ratio_to_best_library"] == ratio.median
        assert told["best_generated"]["ratio_spread"] == ratio.spread
    if result.best.name != "tensorwise":
        assert result.ratio == 1.0


def test_spmv(matrix: sp.csr_array, rng: np.random.Generator) -> None:
    operator = quick(matrix, "spmv", trials=6, budget_s=None)
    x = rng.random(200, dtype=np.float32)
    np.testing.assert_allclose(operator(x), matrix @ x, rtol=1e-4, atol=1e-5)
    result = result_of(operator)
    is_sane(result)
    assert len(result.trials) == 6
    assert result.best_generated is not None
    assert result.best_generated.format
    assert operator.report() == result.text()


def test_spmm_in_float64(matrix: sp.csr_array, rng: np.random.Generator) -> None:
    operator = quick(matrix, "spmm", n=24, dtype="float64", trials=6)
    B = rng.random((200, 24))
    np.testing.assert_allclose(operator(B), matrix.astype(np.float64) @ B, rtol=1e-10, atol=1e-12)
    is_sane(result_of(operator))


def test_sddmm(matrix: sp.csr_array, rng: np.random.Generator) -> None:
    operator = quick(matrix, "sddmm", n=16, trials=6)
    B, D = rng.random((300, 16), dtype=np.float32), rng.random((16, 200), dtype=np.float32)
    expected = matrix.multiply(B @ D)
    made = operator(B, D)
    assert sp.issparse(made)
    np.testing.assert_allclose(made.toarray(), expected.toarray(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        operator(B, np.asfortranarray(D)).toarray(), expected.toarray(), rtol=1e-4, atol=1e-5
    )
    is_sane(result_of(operator))


@pytest.mark.parametrize("mode", [0, 2])
def test_mttkrp(rng: np.random.Generator, mode: int) -> None:
    a = tensor((20, 15, 12), 400, rng, "float64")
    operator = quick(a, "mttkrp", n=8, mode=mode, trials=6)
    dense = np.zeros(a.shape)
    dense[a.coordinates] = a.values
    factors = [rng.random((extent, 8)) for k, extent in enumerate(a.shape) if k != mode]
    text = {0: "ikl,kr,lr->ir", 2: "kli,kr,lr->ir"}[mode]
    np.testing.assert_allclose(operator(*factors), np.einsum(text, dense, *factors), rtol=1e-10, atol=1e-12)
    is_sane(result_of(operator))


@pytest.mark.parametrize("shape", [(0, 7), (7, 0), (0, 0), (5, 6), (1, 300), (300, 1)])
def test_empty_and_thin(shape: tuple[int, int], rng: np.random.Generator) -> None:
    dense = np.ones(shape, np.float32) if 300 in shape else np.zeros(shape, np.float32)
    for op in ("spmv", "spmm"):
        operator = quick(sp.csr_array(dense), op, trials=2)
        B = rng.random((shape[1],) if op == "spmv" else (shape[1], 64), dtype=np.float32)
        np.testing.assert_allclose(operator(B), dense @ B, rtol=1e-4)
        assert result_of(operator).verified


def test_nan_and_infinite_values(matrix: sp.csr_array, rng: np.random.Generator) -> None:
    matrix.data[3], matrix.data[50] = np.nan, np.inf
    operator = quick(matrix, "spmv")
    x = rng.random(200, dtype=np.float32)
    np.testing.assert_allclose(operator(x), matrix @ x, rtol=1e-4, atol=1e-5)
    assert result_of(operator).candidates_measured > 0
    x[7] = np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(operator(x), matrix @ x, rtol=1e-4, atol=1e-5)


def test_integers_are_measured_in_floats_and_multiplied_as_scipy_does(rng: np.random.Generator) -> None:
    matrix = sp.csr_array(rng.integers(0, 3, (30, 20)))
    operator = quick(matrix, "spmv", trials=1)
    assert operator.dtype == matrix.dtype
    for dtype in (np.float32, np.float64, np.int64):
        x = (10 * rng.random(20)).astype(dtype)
        made = operator @ x
        assert made.dtype == (matrix @ x).dtype
        np.testing.assert_allclose(made, matrix @ x, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"op": "spmw"}, "spmw"),
        ({"budget_s": 0}, "budget_s"),
        ({"budget_s": -1}, "budget_s"),
        ({"budget_s": math.nan}, "budget_s"),
        ({"trials": -1}, "trials"),
        ({"expected_calls": 0}, "expected_calls"),
        ({"strategy": "magic"}, "magic"),
        ({"threads": 0}, "threads"),
        ({"threads": -3}, "threads"),
        ({"n": 0}, "n"),
        ({"op": "spmv", "n": 5}, "n"),
        ({"op": "mttkrp"}, "order"),
        ({"dtype": "int8"}, "int8"),
        ({"A": "no such file.mtx"}, "no such file"),
        ({"A": np.ones(3)}, "dimension"),
        ({"A": 5}, "int"),
    ],
)
def test_wrong_arguments(matrix: sp.csr_array, options: dict[str, Any], word: str) -> None:
    given = {"A": matrix, "op": "spmm", "store": False, "trials": 1} | options
    with pytest.raises(InputError, match=word):
        tune(given.pop("A"), given.pop("op"), **given)


def test_no_trials_compare_libraries(matrix: sp.csr_array) -> None:
    result = result_of(quick(matrix, "spmv", trials=0))
    assert result.best.name in result.baselines
    assert result.best_generated is None
    assert result.generated_ratio is None


# -- what is remembered ---------------------------------------------------------------------------------


def test_measurements_become_records(matrix: sp.csr_array, tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    operator = quick(matrix, "spmv", store=store, trials=5, budget_s=30.0)
    records = store.query(workload_id=operator.workload.id)
    assert len(records) == len(result_of(operator).trials) == 5
    assert {record.status for record in records} <= {"ok", "censored", "refused"}
    assert all(record.provenance["threads"] == 2 for record in records)


def test_a_second_tuning_starts_from_the_best_of_the_first(matrix: sp.csr_array, tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    first = quick(matrix, "spmm", store=store, trials=6, budget_s=30.0)
    ranked = sorted(
        (r for r in store.query(workload_id=first.workload.id) if r.ok), key=lambda record: record.seconds
    )
    second = quick(matrix, "spmm", store=store, trials=3, budget_s=30.0)
    assert [trial.config for trial in result_of(second).trials] == [record.config for record in ranked[:3]]


def test_measurements_of_an_older_table_are_starts_too(
    matrix: sp.csr_array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store.sqlite")
    work = quick(matrix, "spmv", store=store, trials=1, budget_s=30.0).workload
    space = cpu_space(work.assignment)
    (record,) = (one for one in store.query(workload_id=work.id) if one.ok)
    drawn = space.sample(work, np.random.default_rng(5))
    store.append([replace(record, config=drawn, seconds=1e-9)])
    warp = Flag("warp", binds="call", doc="A parameter that came after the measurements.")
    newer = replace(space, params=(*space.params, warp))
    monkeypatch.setattr(CpuDevice, "space", lambda self, work: newer)
    second = quick(matrix, "spmv", store=store, trials=1, budget_s=30.0)
    assert [trial.config for trial in result_of(second).trials] == [Config({**drawn, "warp": False})]


def test_a_broken_store_costs_only_the_memory(matrix: sp.csr_array, tmp_path: Path) -> None:
    class Broken(Store):  # type: ignore[misc]
        def append(self, records: Any) -> None:
            raise StoreError("the disk is full")

    result = result_of(quick(matrix, "spmv", store=Broken(tmp_path / "store.sqlite")))
    assert any("disk is full" in note for note in result.notes)
    assert result.candidates_measured > 0


# -- budgets and interruptions ---------------------------------------------------------------------------


def test_the_budget_ends_the_search(matrix: sp.csr_array) -> None:
    operator = quick(matrix, "spmv", trials=None, budget_s=1.5)
    assert result_of(operator).tuning_s < 30  # a stop, not a time: machines may be busy
    x = np.ones(200, np.float32)
    np.testing.assert_allclose(operator(x), matrix @ x, rtol=1e-3, atol=1e-4)


def test_progress_tells_what_goes_on(matrix: sp.csr_array) -> None:
    said: list[tuple[str, float]] = []
    seen: list[Trial] = []
    quick(
        matrix,
        "spmv",
        progress=lambda what, share: said.append((what, share)),
        observe=seen.append,
        budget_s=30.0,
    )
    assert [said[0][0], said[1][0]] == ["preparing", "libraries"]
    assert any("candidates" in what for what, _ in said)
    assert all(0 <= share <= 1 for _, share in said)
    assert len(seen) == 4


def interrupt_at(word: str) -> Any:
    def progress(what: str, share: float) -> None:
        if what.startswith(word):
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("word", ["preparing", "libraries", "1 ", "3 ", "choosing", "confirming"])
def test_an_interrupt_returns_the_best_so_far(
    matrix: sp.csr_array, rng: np.random.Generator, word: str
) -> None:
    operator = quick(matrix, "spmv", progress=interrupt_at(word), budget_s=30.0)
    x = rng.random(200, dtype=np.float32)
    np.testing.assert_allclose(operator(x), matrix @ x, rtol=1e-4, atol=1e-5)
    result = result_of(operator)
    assert any("interrupted" in note for note in result.notes)
    assert result.verified == (word not in ("preparing", "libraries"))
    json.dumps(result.to_json(), allow_nan=False) if result.verified else None


def test_an_interrupt_of_the_answer_without_a_search_returns_an_operator(
    matrix: sp.csr_array, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tensorwise.tuning.without_search._time_baselines", press)
    operator = tune(matrix, "spmv", expected_calls=10)
    x = rng.random(200, dtype=np.float32)
    np.testing.assert_allclose(operator(x), matrix @ x, rtol=1e-4, atol=1e-5)
    assert any("interrupted" in note for note in result_of(operator).notes)


@pytest.fixture
def no_callbacks_of_gc() -> Iterator[None]:
    """Without what others, Hypothesis for one, have called at each collection: an interrupt is lost where it comes there."""
    before = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = before


@pytest.mark.usefixtures("no_callbacks_of_gc")
def test_a_real_interrupt(matrix: sp.csr_array, rng: np.random.Generator) -> None:
    """SIGINT while the worker is busy; the whole process group gets it from a terminal."""
    armed = threading.Event()

    def progress(what: str, share: float) -> None:
        if what.startswith("2 ") and not armed.is_set():
            armed.set()
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()

    operator = tune(
        matrix, "spmv", budget_s=120.0, threads=1, store=False, progress=progress, strategy="random"
    )
    x = rng.random(200, dtype=np.float32)
    np.testing.assert_allclose(operator(x), matrix @ x, rtol=1e-4, atol=1e-5)
    result = result_of(operator)
    assert any("interrupted" in note for note in result.notes)
    assert result.candidates_measured >= 2
    assert result.tuning_s < 60


def test_a_lost_worker_still_gives_an_operator(
    matrix: sp.csr_array, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any, **__: Any) -> Any:
        raise MeasurementError("the measuring worker is gone")
        yield

    monkeypatch.setattr(CpuDevice, "measure", lost)
    operator = quick(matrix, "spmv")
    x = rng.random(200, dtype=np.float32)
    np.testing.assert_allclose(operator(x), matrix @ x, rtol=1e-4, atol=1e-5)
    assert any("worker is gone" in note for note in result_of(operator).notes)


def test_a_winner_that_fails_in_the_rounds_is_not_the_answer(
    matrix: sp.csr_array, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong numbers after timing: the next one takes its place."""
    original = CpuDevice.rounds
    dropped: list[Any] = []

    def rounds(self: CpuDevice, work: Any, kernels: Any, **options: Any) -> Rounds:
        found = original(self, work, kernels, **options)
        if "tensorwise" in kernels and len(dropped) < 2:  # one of them is the untuned kernel, if it is fast
            dropped.append(self.space(work).program(work, kernels["tensorwise"]))
            return Rounds(found.table, found.facts, {**found.failed, "tensorwise": "wrong after timing"})
        return found

    monkeypatch.setattr(CpuDevice, "rounds", rounds)
    result = result_of(quick(matrix, "spmm", budget_s=30.0))
    assert dropped
    assert any("dropped out" in note for note in result.notes)
    assert result.best_generated is not None
    answer = result.best_generated.format, result.best_generated.schedule
    assert answer not in [(str(one.formats["A"]), str(one.schedule)) for one in dropped]


def test_without_a_compiler_the_answer_is_a_library() -> None:
    script = (
        "import json, sys, numpy as np, scipy.sparse as sp\n"
        "from tensorwise.tuning.tune import tune\n"
        "A = sp.random_array((80, 60), density=0.1, format='csr', rng=np.random.default_rng(0))\n"
        "op = tune(A, 'spmm', n=4, budget_s=10.0, store=False)\n"
        "B = np.ones((60, 4))\n"
        "np.testing.assert_allclose(op(B), A @ B)\n"
        "np.testing.assert_allclose(op.T @ np.ones(80), A.T @ np.ones(80))\n"
        "print(json.dumps([op.result.best.name, op.result.notes, op.result.tuning_s]))\n"
    )
    environment = {**os.environ, "TENSORWISE_CC": "/nonexistent/cc"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    name, notes, _ = json.loads(done.stdout.splitlines()[-1])
    assert name != "tensorwise"
    assert any("/nonexistent/cc" in note for note in notes)


# -- what conversion costs -------------------------------------------------------------------------------


def test_one_call_prefers_cheap_conversion(matrix: sp.csr_array) -> None:
    """With a single call the total counts: of two equal kernels the one that is converted sooner wins."""
    once = result_of(quick(matrix, "spmv", expected_calls=1, trials=6))
    total = once.best.seconds + once.best.conversion_s
    others = [s for s in (*once.baselines.values(), once.best_generated) if s is not None and s.rounds]
    assert total <= min(s.seconds + s.conversion_s for s in others) * (1 + 1e-9)


def test_break_even(matrix: sp.csr_array) -> None:
    result = result_of(quick(matrix, "spmm"))
    had, best = result.baselines["scipy"], result.best
    if best.name == "scipy" or best.seconds >= had.seconds:
        assert math.isinf(result.break_even_calls)
        assert result.to_json()["break_even_calls"] is None
    else:
        saved = result.break_even_calls * (had.seconds - best.seconds)
        assert saved >= result.tuning_s + best.conversion_s


def test_every_trial_is_of_the_space(matrix: sp.csr_array) -> None:
    operator = quick(matrix, "sddmm", trials=5)
    space = cpu_space(operator.workload.assignment, "A")
    for trial in result_of(operator).trials:
        assert space.why_not(trial.config, operator.workload) is None


def test_two_tunings_at_once(matrix: sp.csr_array) -> None:
    """Two threads of one process take turns at timing and do not disturb each other's answers."""
    found: list[Operator] = []
    workers = [threading.Thread(target=lambda: found.append(quick(matrix, "spmv"))) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert len(found) == 2
    assert all(result_of(operator).verified for operator in found)


def children() -> set[int]:
    """Processes whose parent this process is, the dead that nobody has waited for among them."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):  # it ended meanwhile
            continue
        if parent == os.getpid():
            found.add(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_no_process_is_left(matrix: sp.csr_array) -> None:
    before = children()  # other tests' helpers, such as multiprocessing's resource tracker, live on
    quick(matrix, "spmv", trials=1)
    deadline = time.monotonic() + 10
    while children() - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children() <= before


# -- with a model ------------------------------------------------------------------------------------------


@final
class Fond(CostModel):
    """Predicts that blocks are fast, and nothing else."""

    kind = "fond"
    returns = "score"

    def fit(self, records: Iterable[Record]) -> None: ...

    def predict(self, workload: Workload, configs: Sequence[Config], device: Device) -> np.ndarray:
        return np.array([0.0 if (config["split_i"] or 1) > 1 else 1.0 for config in configs])

    def state(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        return {}, {}

    @classmethod
    def from_state(cls, values: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> "Fond":
        return cls()


def test_a_model_names_what_is_tried_first(matrix: sp.csr_array) -> None:
    tried = result_of(quick(matrix, "spmm", trials=FEW, budget_s=60.0, model=Fond())).trials
    assert [(trial.config["split_i"] or 1) > 1 for trial in tried[:FEW]] == [False] + (FEW - 1) * [True]
    usual = result_of(quick(matrix, "spmm", trials=1, budget_s=60.0)).trials
    assert usual[0].config == tried[0].config  # the default, with which all is compared


def test_a_model_for_something_else_is_not_asked(matrix: sp.csr_array) -> None:
    model = Fond()
    model.card = {"op": "sddmm"}
    result = result_of(quick(matrix, "spmm", budget_s=60.0, model=model))
    assert any("not asked: it is of sddmm, and this is spmm" in note for note in result.notes)
    assert all((trial.config["split_i"] or 1) == 1 for trial in result.trials[:4])


def test_a_model_of_another_processor_is_heard_with_a_warning(matrix: sp.csr_array) -> None:
    model = Fond()
    model.card = {"op": "spmm", "data": {"hosts": ["Abacus 9000"]}}
    result = result_of(quick(matrix, "spmm", budget_s=60.0, model=model))
    assert any("other conditions (processor Abacus 9000, here " in note for note in result.notes)
    assert (result.trials[1].config["split_i"] or 1) > 1


def test_a_model_that_cannot_predict_does_no_harm(matrix: sp.csr_array, tmp_path: Path) -> None:
    result = result_of(quick(matrix, "spmm", budget_s=60.0, model=MeanModel()))
    assert any("the model cannot tell what is fast here" in note for note in result.notes)
    assert result.trials
    with pytest.raises(InputError, match="there is no model in"):
        quick(matrix, "spmm", model=tmp_path)


def test_a_library_that_ran_on_a_condition_is_marked(matrix: sp.csr_array) -> None:
    result = result_of(quick(matrix, "spmv", trials=1, budget_s=None))
    result.notes[:] = []
    assert "see its note" not in result.text()
    result.notes.append("scipy: it is timed without its own optimisation")
    (row,) = (line for line in result.text().splitlines() if line.endswith("(see its note)"))
    assert row.startswith("scipy")
