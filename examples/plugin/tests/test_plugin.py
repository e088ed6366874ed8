"""The plugin against the contracts, the random oracle and the tuner of Tensorwise, which does not know it.

Run from the repository, with the plugin installed: ``make test-plugin``.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from tensorwise_plugin.memory_bound import MemoryBound
from tensorwise_plugin.offsets import OffsetCompressed
from tensorwise_plugin.operations import SCALED_SPMM
from tensorwise_plugin.reverse import Reverse
from tensorwise_plugin.run_length import RunLength

import tensorwise as tw
from tensorwise.collect.corpus import patterns
from tensorwise.collect.driver import collect
from tensorwise.collect.executors import ExecutorOptions
from tensorwise.collect.job import plan
from tensorwise.collect.opening import open_executor
from tensorwise.device.opening import DEVICES
from tensorwise.errors import FormatError, MeasurementError, ScheduleError
from tensorwise.lower import ir
from tensorwise.lower.plan import Plan
from tensorwise.lower.program import Program
from tensorwise.program.workload import workload
from tensorwise.search import STRATEGIES
from tensorwise.space.cpu import cpu_space_of
from tensorwise.store.store import Store
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.fibertree import Tensor
from tensorwise.tensor.files import write
from tensorwise.tensor.format import Format
from tensorwise.tensor.levels import LEVELS
from tensorwise.tensor.pack import pack
from tests.contract import test_devices as devices

# The contract of every device, asked of this one.
from tests.contract.test_devices import (  # noqa: F401
    test_libraries_are_candidates,
    test_measurements_survive_json,
    test_no_config_no_measurement,
    test_one_measurement_for_each_config,
    test_preparing_and_starting_change_no_answer,
    test_rounds_have_a_time_for_each_that_ran_and_a_reason_for_each_that_did_not,
    test_some_config_can_be_measured,
    test_what_a_record_says_of_the_device_is_json,
)
from tests.oracle import cases
from tests.oracle.judge import judge


def banded(rows: int = 200, width: int = 12) -> sp.csr_array:
    rng = np.random.default_rng(0)
    return (
        sp.diags_array(
            [rng.standard_normal(rows) for _ in range(width)], offsets=range(width), shape=(rows, rows)
        )
        .tocsr()
        .astype(np.float32)
    )


@pytest.fixture
def rig() -> devices.Rig:
    work = workload("spmm", entries_from(banded(40, 5)), n=4)
    return devices.Rig(MemoryBound(), work, repeats=True)


def test_all_of_it_is_registered() -> None:
    assert LEVELS["R"] is RunLength
    assert LEVELS["O"] is OffsetCompressed
    assert "annealing" in STRATEGIES
    assert "memory-bound" in DEVICES
    work = workload("scaled_spmm", entries_from(np.eye(3)), n=2)
    assert (str(work.einsum), work.op) == (SCALED_SPMM, "scaled_spmm")
    assert {"visit_rows"} <= cpu_space_of(work).by_name.keys()


def test_random_programs_with_the_levels_agree_with_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "EXTRA_LEVELS", ["R", "O"] * 3)
    found = judge(range(400))
    assert not found.failures, "\n".join(found.failures.values())
    letters = [letter for _, letter, _ in found.coverage.seen.elements()]
    assert letters.count("R") > 100
    assert letters.count("O") > 100


@pytest.mark.parametrize("letter", ["R", "O"])
def test_a_matrix_is_packed_and_printed(letter: str) -> None:
    entries = entries_from(np.array([[0, 1, 2, 0, 3], [0, 0, 0, 0, 0], [4, 5, 6, 7, 8]], np.float32))
    tensor: Tensor = pack(entries, Format.parse(f"(i,k) -> U(i) {letter}(k)"))
    coordinates = [
        coordinate
        for row in range(3)
        for coordinate, _ in tensor.format.levels[1].children(tensor.arrays[1], row, 5)
    ]
    assert coordinates == [1, 2, 4, 0, 1, 2, 3, 4]
    parents, below = tensor.format.levels[1].ascend(tensor.arrays[1], np.arange(8), 5)
    assert (parents.tolist(), below.tolist()) == ([0, 0, 0, 2, 2, 2, 2, 2], coordinates)


@pytest.mark.parametrize(
    "text", ["U(i) R(k)", "R(i) R(k)", "U(i) O(k)", "O(k) R(i)", "R(i) U(k)", "C(i) O(k)"]
)
def test_sparse_results_are_assembled_in_the_levels(text: str) -> None:
    """Two operands in them are added and multiplied; the arrays are those of packing the result of SciPy."""
    rng = np.random.default_rng(3)
    A, B = (sp.csr_array(rng.standard_normal((9, 7)) * (rng.random((9, 7)) < 0.5)) for _ in range(2))
    format = f"(i,k) -> {text}"
    for operator, expected in (("+", A + B), ("*", A.multiply(B))):
        result = tw.interpret(
            f"C[i,k] = A[i,k] {operator} B[i,k]", A=A, B=B, formats={"A": format, "B": format}, output=format
        )
        assert isinstance(result, Tensor)
        packed = pack(entries_from(sp.csr_array(expected)), Format.parse(format))
        np.testing.assert_array_equal(result.values, packed.values)
        for mine, theirs in zip(result.arrays, packed.arrays):
            for name, array in theirs.items():
                np.testing.assert_array_equal(mine[name], array, name)
                assert mine[name].dtype == array.dtype


def test_offsets_that_reach_too_far_are_not_appended() -> None:
    wide = sp.csr_array((np.ones(2), ([0, 0], [0, 70_000])), shape=(1, 80_000))
    with pytest.raises(FormatError, match="70000 apart, farther than 16 bits reach"):
        tw.interpret("C[i,k] = A[i,k] + B[i,k]", A=wide, B=wide, output="(i,k) -> U(i) O(k)")


def test_runs_are_few() -> None:
    arrays = pack(entries_from(banded()), Format.parse("(i,k) -> U(i) R(k)")).arrays[1]
    assert len(arrays["start"]) == 200 + 2
    assert arrays["first"][-1] == banded().nnz


def test_offsets_that_reach_too_far_are_refused() -> None:
    wide = sp.csr_array((np.ones(2, np.float32), ([0, 0], [0, 70_000])), shape=(1, 80_000))
    with pytest.raises(FormatError, match="70000 apart, farther than 16 bits reach"):
        pack(entries_from(wide), Format.parse("(i,k) -> U(i) O(k)"))


@pytest.mark.parametrize("text", ["(i,k) -> U(i) R(k)", "(i,k) -> U(i) O(k)", "(i,k) -> O(i) R(k)"])
def test_kernels_by_hand(text: str) -> None:
    A = banded()
    x = np.random.default_rng(1).standard_normal(200).astype(np.float32)
    product = tw.compile("y[i] += A[i,k] * x[k]", A=A, format=text, schedule="parallel(i,dynamic,16)")
    np.testing.assert_allclose(product(x), A @ x, rtol=1e-5, atol=1e-5)


def test_rows_are_visited_by_length() -> None:
    work = workload("spmm", entries_from(banded()), n=8)
    space = cpu_space_of(work)
    config = space.complete({"policy": "dynamic", "visit_rows": "length"}, work, strict=True)
    program = space.program(work, config)
    assert isinstance(program, Program)
    assert "visit(i,length)" in program.schedule_text
    X = np.random.default_rng(1).standard_normal((200, 8)).astype(np.float32)
    product = tw.compile(
        "C[i,j] += A[i,k] * B[k,j]",
        A=banded(),
        sizes={"j": 8},
        format=program.format_text,
        schedule=program.schedule_text,
    )
    np.testing.assert_allclose(product(X), banded() @ X, rtol=1e-5, atol=1e-5)


def test_the_tuner_uses_all_of_it() -> None:
    A = banded()
    operator = tw.tune(
        A, "scaled_spmm", n=4, device="memory-bound", strategy="annealing", trials=150, store=False, seed=1
    )
    result = operator.result
    assert result is not None
    formats = {trial.program.format_text for trial in result.trials}
    assert any("R(" in text for text in formats)
    assert any("O(" in text for text in formats)
    kept = {trial.measurement.seconds for trial in result.trials if trial.measurement.ok}
    assert result.best.seconds == min(kept), "the device answers the same each time"
    csr = next(trial for trial in result.trials if trial.program.format_text == "(i,k) -> U(i) C(k)")
    assert result.best.seconds < csr.measurement.seconds
    rng = np.random.default_rng(2)
    B, D = rng.standard_normal((200, 4)).astype(np.float32), rng.standard_normal(200).astype(np.float32)
    np.testing.assert_allclose(operator(B, D), D[:, None] * (A @ B), rtol=1e-4, atol=1e-4)
    assert json.loads(json.dumps(result.to_json()))["op"] == "scaled_spmm"


def test_the_cpu_is_tuned_with_all_of_it() -> None:
    A = banded()
    operator = tw.tune(A, "spmm", n=8, strategy="annealing", trials=12, budget_s=120, store=False, threads=1)
    assert operator.result is not None
    wrong = [trial for trial in operator.result.trials if trial.measurement.status in ("wrong", "crash")]
    assert not wrong
    X = np.random.default_rng(1).standard_normal((200, 8)).astype(np.float32)
    np.testing.assert_allclose(operator(X), A @ X, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("format", "schedule"),
    [
        ("(i,k) -> U(i) U(k)", "reorder(i,k) reverse(k)"),
        ("(i,k) -> U(i) C(k)", "reorder(i,k) parallel(i,dynamic,16) reverse(i)"),
        ("(i,k) -> U(k) R(i)", "reorder(k,i) reverse(k)"),
    ],
)
def test_loops_run_backwards(format: str, schedule: str) -> None:
    A = banded()
    x = np.random.default_rng(1).standard_normal(200).astype(np.float32)
    product = tw.compile("y[i] += A[i,k] * x[k]", A=A, format=format, schedule=schedule)
    assert "_backwards" in product.source()
    np.testing.assert_allclose(product(x), A @ x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("einsum", "schedule", "said"),
    [
        ("y[i] += A[i,k] * x[k]", "reverse(k)", r"reverse\(k\): there is no dense loop k"),
        ("y[i] argmax= A[i,k] * x[k]", "reverse(i)", "argmax depends on the order"),
        ("y[i] += A[i,k] * x[k]", "reverse(i,k)", "reverse does not take 2 arguments"),
    ],
)
def test_what_cannot_run_backwards_is_refused(einsum: str, schedule: str, said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        tw.compile(einsum, A=banded(), format="(i,k) -> U(i) C(k)", schedule=schedule)


def test_a_pass_that_loses_terms_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(self: Reverse, kernel: ir.LoweredFunction, plan: Plan) -> ir.LoweredFunction:
        return replace(kernel, body=())

    monkeypatch.setattr(Reverse, "rewrite", lost)
    with pytest.raises(
        MeasurementError, match=r"reverse\(i\): a program with this directive computes wrong numbers"
    ):
        tw.compile("y[i] += A[i,k] * x[k]", A=banded(), format="(i,k) -> U(i) C(k)", schedule="reverse(i)")


def test_an_executor_collects(tmp_path: Path) -> None:
    write(tmp_path / "m.npz", entries_from(banded()))
    jobs = plan(patterns([tmp_path]), ["spmm"], n=[4], samples=3, device="null")
    executor = open_executor("in-process", ExecutorOptions())
    with Store(tmp_path / "s.sqlite") as store:
        found = collect(jobs, store, executor, anywhere=executor.remote)
        assert (found.jobs, found.num_left, found.records) == (1, 0, len(store))
