"""``tensorwise calibrate`` as a person or a script meets it, and the model that tuning then takes."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tensorwise.front.cli import app
from tensorwise.model import RankingModel
from tensorwise.model.finding import calibrated_for
from tensorwise.program.workload import workload
from tensorwise.search.graph import GRAPH
from tensorwise.space.cpu import cpu_space
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write
from tensorwise.tuning.advice import Advisor
from tests.unit.model.made_up import made_up

SPMM = "C[i,j] += A[i,k] * B[k,j]"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four patterns, and a bundled model."""
    rng = np.random.default_rng(0)
    (tmp_path / "corpus").mkdir()
    for k in range(4):
        write(tmp_path / "corpus" / f"m{k}.mtx", entries_from((rng.random((40 + k, 50)) < 0.2).astype(float)))
    monkeypatch.setenv("TENSORWISE_CACHE_DIR", str(tmp_path / "cache"))
    packaged = tmp_path / "shipped"
    monkeypatch.setattr("tensorwise.model.finding.bundled_folders", lambda: (packaged,))
    monkeypatch.setattr(
        "tensorwise.model.finding.roots", lambda: (calibrated_for("x", "", 1).parent, packaged)
    )
    return tmp_path


def ship(root: Path) -> RankingModel:
    work = workload("spmm", entries_from(np.eye(3)), n=8)
    training = {"loss": "ratio"}
    card = {
        "op": "spmm", "einsum": SPMM, "threads": 2, "net": "statistics", "heads": 3, "date": "2026-11-21", "epochs": 1,
        "version": "0", "training": training, "machine": None, "split": {"training": ["a"]},
        "data": {"records": 1, "workloads": 1, "patterns": 1, "first": "", "last": "", "hosts": ["Abacus 9000"]},
    }  # fmt: skip
    one = dict.fromkeys(
        ("spearman", "near_spearman", "fastest_spearman", "top1", "top10", "slower_than_10x"), 0.5
    )
    model = made_up(cpu_space(work.assignment))
    model.card = {**card, "metrics": {"families": {}, "all": {"jobs": 1, **one}}}
    model.save(root / "shipped" / "spmm")
    return model


def calibrating(root: Path, *more: object) -> Result:
    return run(
        "calibrate", root / "corpus", "--op", "spmm", "--n", 8, "--threads", 1, "--samples", 24, "--device", "null",
        "--store", root / "store.sqlite", *more,
    )  # fmt: skip


def test_a_shipped_model_is_adapted_and_then_taken(root: Path) -> None:
    """What the formula of the null device says has nothing to do with the made-up model: anything ranks better."""
    old = ship(root)
    out = calibrating(root, "--json")
    assert out.exit_code == 0, out.output
    said = json.loads(out.stdout)
    assert said["better"] is True
    assert said["after"]["spearman"] > said["before"]["spearman"]
    assert said["data"]["workloads"] == said["before"]["jobs"] == 4
    place = calibrated_for("spmm", SPMM, 1)
    assert said["model"] == str(place)
    found = Advisor.load(place)
    work = workload("spmm", entries_from(np.eye(40, dtype=np.float32)), n=8)
    assert found.doubts(work, 1, cpu_space(work.assignment)) == []
    assert found.model.card["calibration"]["trained"] == {"machine": None, "threads": 2}
    assert found.model.card["split"] == old.card["split"]
    assert "## Calibration" in (place / "README.md").read_text()
    listed = run("model")
    assert listed.exit_code == 0, listed.output
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["model", place.name, "spmm"]
    assert "calibrated 20" in listed.stdout
    assert "## Calibration" in run("model", place).stdout


def test_it_goes_on_where_it_was_ended_and_starts_from_what_came_along(root: Path) -> None:
    ship(root)
    first = calibrating(root, "--json")
    size = (root / "store.sqlite").stat().st_mtime_ns
    again = calibrating(root, "--json")
    assert json.loads(first.stdout) == json.loads(again.stdout)
    assert (root / "store.sqlite").stat().st_mtime_ns == size


def test_a_graph_goes_along(root: Path) -> None:
    from tensorwise.tuning.graphs import graph_of

    model = ship(root)
    work = workload("spmm", entries_from(np.eye(40, dtype=np.float32)), n=8)
    graph = graph_of(model, cpu_space(work.assignment), [work], 60, np.random.default_rng(0))
    graph.save(root / "shipped" / "spmm")
    out = calibrating(root, "--out", root / "own")
    assert out.exit_code == 0, out.output
    assert f"in {root / 'own'}" in out.stdout.replace("\n", "")
    assert (root / "own" / GRAPH.files[0]).exists()
    assert Advisor.load(root / "own").graph is not None


def test_what_is_no_better_is_not_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship(root)
    monkeypatch.setattr("tensorwise.model.calibration.fitted", lambda model, samples: model)
    out = calibrating(root)
    assert out.exit_code == 0, out.output
    assert "no better than before: nothing is saved" in out.stdout
    assert not calibrated_for("spmm", SPMM, 1).exists()


def test_what_is_missing_is_named(root: Path) -> None:
    assert "no model of spmm" in calibrating(root).stderr
    ship(root)
    assert "--budget must be positive" in calibrating(root, "--budget", 0).stderr
    few = run(
        "calibrate",
        root / "corpus" / "m0.mtx",
        "--op",
        "spmm",
        "--n",
        8,
        "--device",
        "null",
        "--store",
        root / "s",
    )
    assert "1 workloads with 8 timed configs are too few" in few.stderr
    assert "there is no model in" in calibrating(root, "--model", root / "corpus").stderr
    (root / "shipped" / "spmm" / "model.json").unlink()
    assert "no models are bundled" in run("model").stderr
