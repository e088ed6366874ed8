"""``tensorwise train --kind transfer`` and ``tensorwise transfer`` as a person or a script meets them."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tensorwise.device.spade import SpadeDevice
from tensorwise.front.cli import app
from tensorwise.model import TransferModel, load_model
from tensorwise.program.workload import workload
from tensorwise.store.store import Store
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write
from tests.unit.model.made_up import made_up

pytestmark = pytest.mark.usefixtures("one_torch_thread")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five patterns in three families."""
    root = tmp_path_factory.mktemp("root")
    for k in range(5):
        folder = root / "corpus" / f"family{k % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(k)
        rows = rng.integers(0, 300, 600)
        columns = (rows + rng.integers(0, 4 << k, 600)) % 300
        write(folder / f"m{k}.mtx", entries_from(((300, 300), (rows, columns), None)))
    return root


def moving(root: Path, *more: object, store: str = "spade.sqlite") -> Result:
    return run(
        "transfer", "--device", "spade-small", "--op", "spmm", "--matrices", root / "corpus", "--n", 64, "--budget", 48,
        "--samples", 16, "--store", root / store, "--out", root / "moved", *more,
    )  # fmt: skip


def test_it_measures_tests_and_saves(root: Path) -> None:
    out = moving(root, "--json")
    assert out.exit_code == 0, out.output
    said = json.loads(out.stdout)
    assert (said["measured"], said["device"], len(said["matrices"])) == (48, "spade-small", 3)
    assert said["data"]["records"] == 48
    for one in said["matrices"].values():
        assert one["configs"] == 16
        assert 0 < one["gain"]["top1"] <= one["gain"]["top5"] <= 1 <= one["gain"]["optimum"]
    assert said["expected"]["workloads"] == 3
    again = moving(root)
    assert again.exit_code == 0, again.output
    assert "3 matrices, 48 measurements, 0 of them new" in again.stdout
    assert "top-5: what the fastest of the five" in again.stdout
    page = (root / "moved" / "README.md").read_text()
    assert "# A model of spmm on spade-small" in page
    assert "kind `additive`, learned from these matrices alone" in page
    assert run("model", root / "moved").stdout.strip() == page.strip()
    device = SpadeDevice("spade-small")
    work = workload("spmm", entries_from(np.eye(300, dtype=np.float32)), n=64)
    assert np.isfinite(
        load_model(root / "moved").predict(work, [device.space(work).default(work)], device)
    ).all()
    listed = run("model", root)
    assert re.search(r"^moved +additive +spmm +spade-small", listed.stdout, re.MULTILINE)


@needs_torch
def test_a_network_that_was_trained_elsewhere_goes_on(root: Path) -> None:
    collected = run(
        "collect", root / "corpus", "--op", "spmm", "--n", 64, "--threads", 1, "--samples", 16, "--device", "null",
        "--store", root / "cpu.sqlite",
    )  # fmt: skip
    assert collected.exit_code == 0, collected.output
    trained = run(
        "train", root / "cpu", root / "corpus", "--op", "spmm", "--threads", 1, "--records", root / "cpu.sqlite", "--kind",
        "transfer", "--epochs", 2, "--json",
    )  # fmt: skip
    assert trained.exit_code == 0, trained.output
    assert isinstance(load_model(root / "cpu"), TransferModel)
    out = moving(root, "--from", root / "cpu", "--out", root / "gone-on")
    assert out.exit_code == 0, out.output
    assert "goes on from a model of spmm with 1 threads" in (root / "gone-on" / "README.md").read_text()
    assert "is of spmm, not of sddmm" in moving(root, "--from", root / "cpu", "--op", "sddmm").stderr


def test_interrupted_it_keeps_what_was_measured(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure, count = SpadeDevice.run, iter(range(10**9))

    def interrupted(*arguments: object) -> object:
        if next(count) == 20:
            raise KeyboardInterrupt
        return measure(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(SpadeDevice, "run", interrupted)
        out = moving(root, store="cut.sqlite")
    assert out.exit_code == 130
    assert "what was measured is kept" in out.stderr
    with Store(root / "cut.sqlite") as store:
        assert len(store.query()) == 20
    assert json.loads(moving(root, "--json", store="cut.sqlite").stdout)["measured"] == 28


def test_what_is_wrong_is_said(root: Path, tmp_path: Path) -> None:
    assert "unknown device 'gpu9'" in moving(root, "--device", "gpu9").stderr
    if importlib.util.find_spec("cupy") is None:
        assert "tensorwise[cuda]" in moving(root, "--device", "cuda").stderr
    given = "--device", "spade-small", "--matrices", root / "corpus", "--budget", 48, "--out", tmp_path / "m"
    assert "give --op" in run("transfer", *given).stderr
    small = moving(root, "--budget", 20)
    assert "does not afford 2 matrices with 16 configs" in small.stderr
    assert small.exit_code == 1
    (tmp_path / "bad.mtx").write_text("nonsense")
    none = run(
        "transfer", "--op", "spmm", "--matrices", tmp_path, "--budget", 48, "--out", tmp_path / "m", "--device",
        "spade-small",
    )  # fmt: skip
    assert "none of 1 matrices can be read" in none.stderr
    assert "there is no model in" in moving(root, "--from", tmp_path).stderr
    ranking = made_up(SpadeDevice("spade-small").machine.space, op="spmm")
    ranking.save(tmp_path / "ranking")
    assert (
        "kind 'ranking', which knows one device only" in moving(root, "--from", tmp_path / "ranking").stderr
    )
    assert "'odd' is not one of ranking" in run("train", "a", "b", "--op", "spmm", "--kind", "odd").output
