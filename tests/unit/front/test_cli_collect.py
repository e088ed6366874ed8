"""``tensorwise collect`` as a person or a script meets it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tensorwise.collect.corpus import patterns
from tensorwise.collect.workloads import Workloads
from tensorwise.front.cli import app
from tensorwise.program.workload import workload
from tensorwise.space.cpu import cpu_space
from tensorwise.store.store import Store
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write
from tests.unit.model.made_up import made_up


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENSORWISE_STORE", str(tmp_path / "records.sqlite"))
    (tmp_path / "fem").mkdir()
    for k in range(3):
        write(tmp_path / "fem" / f"{k}.mtx", entries_from(np.eye(8 + k)))
    return tmp_path


PLAN = ["--op", "spmm", "--n", "4", "--samples", "4", "--device", "null"]


def collect(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["collect", *map(str, arguments)])


def test_here(folder: Path) -> None:
    first = collect(folder / "fem", *PLAN, "--augment", 1)
    assert first.exit_code == 0, first.output
    assert "6 of 6 jobs" in first.stdout
    assert "ok 100.0 %" in first.stdout
    assert (
        "3 patterns of 1 family: fem 3; to train and test a model, collect two families and more"
        in first.stderr
    )
    again = collect(folder / "fem", *PLAN, "--augment", 1, "--json")
    result = json.loads(again.stdout.splitlines()[-1])
    assert (result["event"], result["before"], result["jobs"], result["left"]) == ("result", 6, 0, 0)
    with Store() as store:
        assert {record.provenance["family"] for record in store} == {"fem"}
        assert len(store.jobs()) == 6


def test_what_a_model_names_is_measured_besides(folder: Path) -> None:
    space = cpu_space(workload("spmm", entries_from(np.eye(3)), n=4).assignment)
    made_up(space, op="spmm").save(folder / "model")
    more = ["--model", folder / "model", "--named", 5]
    (folder / "fem" / "bad.mtx").write_text("nothing")
    first = collect(folder / "fem", *PLAN, *more, "--json")
    assert first.exit_code == 1
    assert "bad spmm n=4: " in first.stderr
    with Store() as store:
        named = [record for record in store if record.provenance["drawn"] == "named"]
    assert len({record.workload_id for record in named}) == 3
    assert 12 <= len(named) <= 15  # the default, where it is among the five, is measured as the anchor
    again = json.loads(collect(folder / "fem", *PLAN, *more, "--json").stdout.splitlines()[-1])
    assert (again["before"], again["jobs"]) == (3, 0)  # it names the same ones
    refused = collect(folder / "fem", "--op", "spmv", "--device", "null", *more)
    assert refused.exit_code != 0
    assert "the model is of spmm, not of spmv" in refused.stderr


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_dtypes_are_measured_and_found_again(folder: Path, dtype: str) -> None:
    """Jobs of another dtype are jobs of their own, and their records become the same workloads again."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    first = collect(folder / "fem", *PLAN)
    assert first.exit_code == 0, first.output
    second = collect(folder / "fem", *PLAN, "--dtype", dtype, "--json")
    assert second.exit_code == 0, second.output
    lines = [json.loads(line) for line in second.stdout.splitlines()]
    assert lines[0]["job"].endswith(f" {dtype}")
    assert (lines[-1]["before"], lines[-1]["jobs"]) == (0, 3)
    workloads = Workloads(patterns([folder / "fem"]))
    with Store() as store:
        assert {str(record.workload["dtype"]) for record in store} == {"float32", dtype}
        assert {workloads.of(record).dtype_text for record in store} == {"float32", dtype}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--dtype", "float8"], "'float8' is not float32, float64, float16 or bfloat16"),
        (["--dtype", "float16", "--device", "cuda"], "16-bit elements are for the CPU"),
        (["--dtype", "float64", "--device", "spade"], "simulates float32 only, got float64"),
    ],
)
def test_dtypes_that_cannot_be_measured_are_wrong_usage(folder: Path, given: list[str], said: str) -> None:
    found = collect(folder / "fem", "--op", "spmm", *given)
    assert found.exit_code == 2
    assert said in " ".join(found.stderr.replace("│", " ").split())


def test_what_cannot_be_read_is_named_and_the_others_are_measured(folder: Path) -> None:
    (folder / "fem" / "bad.mtx").write_text("nothing")
    result = collect(folder / "fem", *PLAN, "--json")
    assert result.exit_code == 1
    assert "bad spmm n=4: " in result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["event"] for line in lines] == ["job"] * 4 + ["result"]
    assert (lines[-1]["jobs"], len(lines[-1]["failed"])) == (3, 1)


def test_a_budget_leaves_the_rest_and_says_how_to_go_on(folder: Path) -> None:
    result = collect(folder / "fem", *PLAN, "--hours", "1e-9")
    assert result.exit_code == 0
    assert "3 jobs are left; go on with: tensorwise" in result.stderr


def test_through_a_spool(folder: Path) -> None:
    spool = folder / "my spool"
    planned = collect(folder / "fem", *PLAN, "--spool", spool)
    assert planned.exit_code == 0, planned.output
    assert "3 jobs are in" in planned.stdout
    assert collect("--spool", spool, "--gather").stdout.startswith("0 jobs with 0 new records")
    ran = collect("--spool", spool, "--worker", "node-1", "--json")
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout.splitlines()[-1])["jobs"] == 3
    gathered = json.loads(collect("--spool", spool, "--gather", "--json").stdout)
    assert (gathered["jobs"], gathered["left"], gathered["failed"]) == (3, 0, [])
    with Store() as store:
        assert len(store) == gathered["records"] > 0


def test_kinds_of_machines_have_jobs_of_their_own(folder: Path) -> None:
    spool = folder / "spool"
    planned = collect(folder / "fem", *PLAN, "--spool", spool, "--kind", "zen4", "--kind", "zen5")
    assert "6 jobs are in" in planned.stdout
    assert "on each machine of the kind zen5: tensorwise collect" in planned.stdout
    assert "--worker NAME --kind zen5" in planned.stdout
    refused = collect("--spool", spool, "--worker", "w")
    assert refused.exit_code == 1
    assert "there are: 'zen4', 'zen5'" in refused.stderr
    assert collect("--spool", spool, "--worker", "w", "--kind", "zen5").exit_code == 0
    gathered = json.loads(collect("--spool", spool, "--gather", "--json").stdout)
    assert (gathered["jobs"], gathered["left"], gathered["mixed"]) == (3, 3, [])


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["fem", "--op", "spmm", "--kind", "a", "--kind", "b"], 2),
        (["--spool", "s", "--gather", "--kind", "a"], 2),
        ([], 2),
        (["--worker", "x"], 2),
        (["--gather"], 2),
        (["--spool", "s", "--worker", "x", "--gather"], 2),
        (["nowhere", "--op", "spmm"], 1),
        (["fem", "--op", "spmx"], 1),
        (["fem", "--op", "spmm", "--hours", "0"], 1),
        (["fem", "--op", "spmm", "--device", "abacus"], 1),
        (["--spool", "s", "--worker", "x"], 1),
        (["--spool", "s", "--gather"], 1),
        (["fem", "--op", "spmm", "--executor", "spool"], 2),
        (["fem", "--op", "spmm", "--address", "127.0.0.1:1"], 2),
        (["fem", "--op", "spmm", "--executor", "dask", "--spool", "s"], 2),
        (["fem", "--op", "mttkrp", "--mode", "1"], 1),
    ],
)
def test_wrong_usage(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], status: int
) -> None:
    monkeypatch.chdir(folder)
    result = collect(*arguments)
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    assert not (folder / "s").exists()


def test_a_cluster_whose_package_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = collect(folder / "fem", *PLAN, "--executor", "dask")
    assert result.exit_code == 1
    assert "pip install 'tensorwise[dask]'" in " ".join(result.stderr.split())


def test_ctrl_c_keeps_what_is_done(folder: Path) -> None:
    """Ctrl-C reaches the whole foreground group; the workers are not in it."""
    for k in range(40):
        write(folder / "fem" / f"more-{k}.mtx", entries_from(np.eye(20 + k)))
    command = [sys.executable, "-m", "tensorwise", "collect", folder / "fem", *PLAN, "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        out, said = process.communicate(timeout=60)
    assert process.returncode == 130
    result = json.loads(out.splitlines()[-1])
    assert result["left"] > 0
    assert "go on with: tensorwise collect" in said
    with Store() as store:
        assert len(store.jobs()) == result["jobs"] == 43 - result["left"]
