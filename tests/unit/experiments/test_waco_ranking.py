"""The experiment on WACO's cost model: the claims, and one small run up to the page."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from rankings.judging import judge, means, noise, rankings
from rankings.page import page
from rankings.steps import Settings, Steps, named

from benchmarks.corpus import Item
from tensorwise.device.cpu import CpuDevice
from tensorwise.errors import InputError
from tensorwise.model import RandomModel

HERE = Path(__file__).parents[3] / "experiments" / "waco-ranking"
EXPECTED = json.loads((HERE / "expected.json").read_text())
SETTINGS = Settings(columns=16, rank=4, configs=12, near=4, rounds=3, rounds_s=0.5, seed=0, threads=1)


def row(model: str, matrix: str, spearman: float, **changes: Any) -> dict[str, Any]:
    figures = {
        "spearman": spearman, "near_spearman": 0.8, "fastest_spearman": 0.65, "kendall": 0.7,
        "top1": 0.9, "top10": 0.97, "slower_than_10x": 0.25,
    }  # fmt: skip
    again = {**figures, "spearman": 0.99}
    found = {
        "op": "spmv",
        "model": model,
        "matrix": matrix,
        "family": "f",
        "configs": 3,
        **figures,
        "again": again,
    }
    return {**found, "places": [[0, 1, 2], [0, 2, 1]], "predict_s": 0.01, **changes}


def history(net: str) -> dict[str, Any]:
    epochs = [[1, 0.9, 1.0, 0.5, 2.0], [2, 0.7, None, None, 2.0]]
    return {
        "op": "spmv",
        "families": ["a"],
        "net": net,
        "epochs": epochs,
        "card": {"loss": "hinge", "records": 9},
    }


def results(**changes: Any) -> dict[str, Any]:
    runs = {
        "history fast": history("statistics"),
        "history big": history("waco"),
        "rank fast a": row("fast", "a", 0.91),
        "rank big a": row("big", "a", 0.92),
        "rank fast b": row("fast", "b", 0.93),
        "rank big b": row("big", "b", 0.94),
    }
    return {key: changes.get(key.replace(" ", "_"), run) for key, run in runs.items()}


def test_means_are_over_matrices() -> None:
    found = rankings(results(rank_fast_b=row("fast", "b", 0.93, fastest_spearman=None)))
    assert list(found["spmv"]) == ["fast", "big"]
    assert means(found["spmv"]["fast"])["spearman"] == pytest.approx(0.92)
    assert means(found["spmv"]["fast"])["fastest_spearman"] == pytest.approx(0.65)  # of one
    assert noise(found["spmv"])["spearman"] == pytest.approx(0.99)


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, True),
        ({"rank_fast_a": row("fast", "a", 0.80)}, False),
        ({"rank_fast_a": row("fast", "a", 0.91, fastest_spearman=0.4)}, False),
        ({"rank_big_a": row("big", "a", 0.97)}, False),  # 0.035 ahead of the fast one
        ({"rank_big_a": row("big", "a", 0.1)}, True),  # claims are of the first
    ],
)
def test_claims_are_judged(changes: dict[str, Any], holds: bool) -> None:
    lines, found = judge(results(**changes), EXPECTED)
    assert found is holds
    assert any("25% of the configs take more than ten times as long" in line for line in lines)
    assert judge({}, EXPECTED)[1] is None


def test_records_are_judged_alike() -> None:
    jobs = [
        {
            key: value
            for key, value in row("fast", "a", 0.95).items()
            if key not in ("places", "predict_s", "op")
        }
    ]
    runs = {"history fast": history("statistics"), "records fast": {"op": "spmv", "jobs": jobs}}
    lines, holds = judge(runs, EXPECTED)
    assert holds is True
    assert "0.950" in lines[0]
    assert "<svg" in page({"runs": runs, "machine": {}, "settings": {}}, EXPECTED)  # the losses


@pytest.fixture
def model(tmp_path: Path) -> Path:
    made = RandomModel()
    made.card = {"op": "spmv", "split": {"training": ["learned"]}}
    made.save(tmp_path / "model")
    return tmp_path / "model"


def test_models_have_names(model: Path) -> None:
    assert named([f"a={model}", f"b={model}"]).keys() == {"a", "b"}
    for wrong in (["a"], ["=x"], [f"a={model}", f"a={model}"]):
        with pytest.raises(InputError, match="expected NAME=MODEL"):
            named(wrong)


def test_from_random_configs_to_the_page(model: Path, tmp_path: Path) -> None:
    matrix = sp.random_array((400, 300), density=0.03, rng=np.random.default_rng(1), dtype=np.float32)
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix)
    item = Item("<a>", tmp_path / "a.mtx", 2, matrix.nnz, False, "made")
    runs: dict[str, Any] = {}
    with CpuDevice(1) as device:
        steps = Steps(device, named([f"lot={model}"]), [], SETTINGS)
        planned = steps.planned({"spmv": [item]}, runs)
        assert list(planned) == ["history lot", "measure spmv <a>", "rank lot <a>"]
        for key, step in planned.items():
            runs[key] = json.loads(json.dumps(step()))
        measured = runs["measure spmv <a>"]
        assert len(measured["ratios"][0]) == len(measured["exact"][1]) == 12
        one = next(place for place, ratio in enumerate(measured["ratios"][0]) if ratio is not None)
        without = [
            [None if place == one else ratio for place, ratio in enumerate(row)] for row in measured["ratios"]
        ]
        runs["measure spmv <a>"] = measured | {"ratios": without}
        assert planned["rank lot <a>"]()["configs"] == runs["rank lot <a>"]["configs"] - 1
        runs["measure spmv <a>"] = measured | {"configs": "others"}
        with pytest.raises(InputError, match="other configs were measured"):
            planned["rank lot <a>"]()
    found = runs["rank lot <a>"]
    ran = sum(ratio is not None for ratio in measured["ratios"][0])
    assert 8 <= ran <= 12  # not all need have a program
    assert sorted(found["places"][0]) == sorted(found["places"][1]) == list(range(ran))
    assert -1 <= found["spearman"] <= 1
    assert found["configs"] == ran
    assert -1 <= found["again"]["spearman"] <= 1
    runs["rank lot x"] = {"error": "<gone>"}
    text = page({"runs": runs, "machine": {}, "settings": {}}, EXPECTED)
    assert "&lt;a&gt;" in text
    assert "<a>" not in text
    assert "rank lot x: &lt;gone&gt;" in text
    assert "0.9, 0.93, 0.86" in text
