"""The experiment on training curves: a tiny citation graph, trained in each way, and what is concluded."""

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch_geometric")

EXPERIMENT = Path(__file__).parents[3] / "experiments" / "gnn-training"
VALUES = {
    "ways": ["tensorwise", "torch, index_add", "pyg"],
    "reference": "pyg",
    "other": "torch, index_add",
    "epochs": 12,
    "times": 3.0,
    "least": 1e-4,
    "below": 0.01,
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr("sys.path", sys.path.copy())
    return runpy.run_path(str(EXPERIMENT / "run.py"), run_name="the experiment")


def citations(path: Path, nodes: int = 60, words: int = 30, classes: int = 3) -> Path:
    """Nodes of three classes, each with words and neighbours of its own class, mostly."""
    rng = np.random.default_rng(0)
    labels = np.arange(nodes) % classes
    near = np.where(labels[:, None] == labels, 0.3, 0.02)
    adjacent = np.triu(rng.random((nodes, nodes)) < near, 1)
    adjacent |= adjacent.T
    x = rng.random((nodes, words)) < np.where(labels[:, None] == np.arange(words) % classes, 0.5, 0.1)
    x[:, 0] = True
    np.savez(
        path, x_shape=x.shape, x_indptr=np.r_[0, x.sum(1).cumsum()], x_indices=np.nonzero(x)[1], x_data=np.ones(x.sum()),
        adj_indptr=np.r_[0, adjacent.sum(1).cumsum()], adj_indices=np.nonzero(adjacent)[1], labels=labels,
        train=np.arange(0, 30), val=np.arange(30, 45), test=np.arange(45, 60),
    )  # fmt: skip
    return path


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_curves_are_the_same_in_each_way(run: dict[str, Any], model: str, tmp_path: Path) -> None:
    kind = run["MODELS"][model]
    data = run["Data"](citations(tmp_path / "cora.npz"), kind.loops)
    found = run["trained"](kind, data, 0, VALUES)
    told = run["summary"]({f"{model} cora 0": found}, VALUES, {})[f"{model} cora"]
    assert told["parted"]["tensorwise"] < 1e-4
    assert told["same_curve"]
    assert found["tensorwise"]["losses"][-1] < found["tensorwise"]["losses"][0]


def test_what_parts_or_learns_too_little_is_told(run: dict[str, Any]) -> None:
    way = {"accuracy": 0.8, "parted": 0.0, "losses": []}
    off = {"tensorwise": {**way, "parted": 0.1}, "torch, index_add": {**way, "parted": 0.01}, "pyg": way}
    told = run["summary"]({"gcn cora 0": off}, VALUES, {"gcn": {"cora": 0.815}})["gcn cora"]
    assert not told["same_curve"]
    assert not told["usual_accuracy"]
    near = {**off, "tensorwise": {**way, "parted": 0.02}}
    told = run["summary"]({"gcn cora 0": near}, VALUES, {"gcn": {"cora": 0.805}})["gcn cora"]
    assert told["same_curve"]
    assert told["usual_accuracy"]
