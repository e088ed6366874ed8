"""The experiment on a GPU: all stages on tiny graphs, with a CuPy that runs kernels on the CPU, and what it concludes."""

import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from tests.device.test_cuda import fake  # noqa: F401 - a fixture

pytest.importorskip("torch")

EXPERIMENT = Path(__file__).parents[3] / "experiments" / "gsparse-gpu"
TINY = """
[settings]
seed = 0
correctness = 1
learned = 2
records = 3
subspace = 4
trials = 2
rounds = 2
least = 0
largest = 1000
families = []
small = 100
held_out = []
main = ["u_mul_e sum"]
[features]
checked = [5]
measured = [4]
tuned = [4]
[operations]
"u_mul_e sum" = "C[i,j] += A[i,k] * B[k,j]"
[graphsage]
widths = [4, 4, 3]
[drawn]
one = [8, 2, 0.5]
two = [9, 2, 0.0]
"""


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
    runpy.run_path(str(EXPERIMENT / "run.py"), run_name="__main__")


@pytest.mark.usefixtures("fake", "one_torch_thread")
def test_all_stages_leave_records_a_model_and_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values, out = tmp_path / "values.toml", tmp_path / "out" / "results.json"
    values.write_text(TINY)
    monkeypatch.syspath_prepend(str(EXPERIMENT))
    monkeypatch.setattr("tensorwise.tuning.advice.NUM_COMPILED", 4)
    run(monkeypatch, "--values", str(values), "--out", str(out), "--minutes", "5")
    runs = json.loads(out.read_text())["runs"]
    stages = {stage: [run for key, run in runs.items() if key.startswith(stage)] for stage in
              ("correctness", "records", "training", "tuning", "comparison", "subspace", "graphsage")}  # fmt: skip
    assert not [run["error"] for run in runs.values() if "error" in run]
    assert {stage: len(found) for stage, found in stages.items()} == {
        "correctness": 2, "records": 2, "training": 1, "tuning": 1, "comparison": 2, "subspace": 1,
        "graphsage": 1,
    }  # fmt: skip
    assert all(not found["failures"] for found in stages["correctness"])
    assert stages["training"][0]["records"] > 0
    assert {"tensorwise", "default", "cuSPARSE"} <= stages["comparison"][1]["rounds"].keys()
    assert stages["graphsage"][0]["notes"] == {}
    assert {"tensorwise", "default", "cusparse (CuPy)"} <= stages["graphsage"][0]["rounds"].keys()
    page = out.with_suffix(".html").read_text()
    assert "GraphSAGE, end to end" in page
    assert "0 of them failed" in page
    assert "cuSPARSE" in page
    assert "Subspaces" in page
    shutil.rmtree(tmp_path / "out" / "model-u_mul_e-sum")
    run(monkeypatch, "--values", str(values), "--out", str(out))  # nothing is left: no model is needed
    assert json.loads(out.read_text())["runs"] == runs


@pytest.mark.usefixtures("fake")
def test_without_a_gpu_nothing_is_noted_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GPUS", "0")
    values, out = tmp_path / "values.toml", tmp_path / "results.json"
    values.write_text(TINY)
    monkeypatch.syspath_prepend(str(EXPERIMENT))
    with pytest.raises(SystemExit, match=r"nothing can be run: .*no CUDA-capable device"):
        run(monkeypatch, "--values", str(values), "--out", str(out))
    assert not out.exists()


def test_ratios_are_those_of_the_same_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXPERIMENT))
    from gsparse.page import speedups

    runs = {"comparison|g|op|16": {"rounds": {"tensorwise": [1.0, 2.0, 4.0], "PyG": [3.0, 4.0, 8.0]}}}
    assert speedups(runs) == {"op": {16: {"PyG": [2.0]}}}


def test_graphs_without_a_time_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXPERIMENT))
    from gsparse.page import page

    times = {"best_s": 1.0, "model_s": 2.0, "first_s": 4.0, "random_s": 8.0, "default_s": 3.0}
    searches = {"model_s": 1.0, "three_s": 5.0, "genetic_s": 6.0}
    runs = {
        "subspace|one|op|16": times,
        "subspace|two|op|16": {**times, "random_s": None},
        "tuning|one|op|16": {**searches, "three_s": None},
        "tuning|two|op|16": searches,
    }
    drawn = page({"runs": runs})
    assert drawn.count("1 of 2") == 2
    assert "8.00 (8.00)" in drawn
    assert "5.00 (5.00)" in drawn
    alone = page({"runs": {"subspace|two|op|16": {**times, "random_s": None}}})
    assert "Subspaces" in alone
    assert "0 of 1" in alone
