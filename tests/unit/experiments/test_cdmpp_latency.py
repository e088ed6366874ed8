"""The experiment on latencies: all its steps on made-up programs, and what it concludes."""

import dataclasses
import json
import math
import runpy
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorwise.model.programs import Programs
from tensorwise.store.store import Store
from tests.unit.model.latencies import DEVICES, records

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from latencies import baselines, judging, lstm, searches

from tensorwise.analysis.loop_tree import LoopTree
from tensorwise.model.latency_training import LatencyTraining
from tensorwise.plan.predicted import IN_A_NETWORK

pytestmark = pytest.mark.usefixtures("one_torch_thread")
EXPERIMENT = Path(__file__).parents[3] / "experiments" / "cdmpp-latency"
VALUES = tomllib.loads((EXPERIMENT / "values.toml").read_text())
EXPECTED = json.loads((EXPERIMENT / "expected.json").read_text())
TINY = """
seed = 0
held_out = ["net2"]
validation = 0.3
members = 1
[training]
epochs = 3
learning_rate = 5e-3
[sizes]
width = 32
layers = 1
inner = 32
embedding = 32
decoder = [32]
[networks]
counts = {}
sum = { sizes = { joining = "sum" } }
[[boosted]]
max_iter = 20
[lstm]
width = 16
minutes = 1
[studies]
quantile = { labels = "quantile" }
no-positions = { sizes = { positions = false } }
[cross]
machines = ["slow"]
tasks = [5, 25]
seeds = 1
members = 1
sizes = { joining = "sum" }
[cross.training]
epochs = 2
"""
KNOWN, HELD = Programs.of(records()).without(["net2"])


def test_all_steps_run_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "values.toml").write_text(TINY)
    with Store(tmp_path / "s.sqlite") as store:
        store.append(records())
    out = tmp_path / "results.json"

    def run(*more: str) -> dict[str, Any]:
        paths = [
            "--values",
            str(tmp_path / "values.toml"),
            "--cache",
            str(tmp_path / "cache"),
            "--out",
            str(out),
        ]
        monkeypatch.setattr(sys, "argv", ["run.py", str(tmp_path / "s.sqlite"), *paths, *more])
        runpy.run_path(str(EXPERIMENT / "run.py"), run_name="__main__")
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    first = run("--minutes", "0")
    assert first["runs"] == {}
    assert "goes on from here" in capsys.readouterr().out
    runs = run()["runs"]
    assert runs["data"]["held out"] == len(HELD)
    assert {key.split("|")[1] for key in runs if key.startswith("model|")} == {"cdmpp", *judging.BASELINES}
    tuned = [key for key in runs if key.startswith("device|slow|kmeans")]
    assert tuned == [
        "device|slow|kmeans|5|alone|0",
        "device|slow|kmeans|25|alone|0",
        "device|slow|kmeans|25|cmd|0",
        "device|slow|kmeans|25|plain|0",
    ]
    assert ["elsewhere" in runs[key] for key in tuned] == [False, True, True, True]
    assert 0 <= runs[tuned[1]]["elsewhere"]["share"] <= 1
    assert {"device|slow|unknown", "device|slow|unknown|25|alone|0"} <= runs.keys()
    assert all(math.isfinite(run["mape"]) for key, run in runs.items() if key != "data")
    assert runs["model|roofline"]["networks"].keys() == {"net2"}
    page = out.with_suffix(".html").read_text()
    assert "Networks held out" in page
    assert page.count("<svg") >= 4
    assert run("--page")["runs"] == runs


def test_the_values_name_what_there_is() -> None:
    for settings in (
        VALUES["training"],
        VALUES["cross"]["training"],
        *(v.get("training", {}) for v in VALUES["studies"].values()),
    ):
        LatencyTraining(**settings)
    assert EXPECTED["paper"]["studies"].keys() <= VALUES["studies"].keys()
    assert VALUES["cross"]["tasks"][-1] == EXPECTED["wanted"]["tasks"]


def test_what_is_simply_a_bound_is_found_by_the_roofline() -> None:
    found = baselines.roofline(KNOWN)(HELD)
    assert (
        np.abs(found / HELD.seconds - 1).mean()
        < np.abs(baselines.mean(KNOWN)(HELD) / HELD.seconds - 1).mean()
    )
    scaled = baselines.scaled(Programs.of(records()).on(["fast"]))(HELD.on(["slow"]))
    assert np.abs(scaled / HELD.on(["slow"]).seconds - 1).mean() < 0.1  # the devices differ by one factor


@pytest.mark.parametrize("read", [baselines.flat, baselines.primitives])
def test_rows_of_trees_tell_programs_apart(read: Any) -> None:
    rows = read(KNOWN)
    assert rows.shape[0] == len(KNOWN)
    assert np.isfinite(rows).all()
    assert len(np.unique(rows, axis=0)) == len(KNOWN)


def test_the_lstm_reads_trees_of_any_shape() -> None:
    shape, rows = lstm.structure(LoopTree.from_text(KNOWN.rows[0].text))
    assert shape[0] == "root"
    assert len(rows) == len(KNOWN.rows[0].ast.leaves)  # a loop each
    predict, about = lstm.train(KNOWN, HELD, LatencyTraining(epochs=15, learning_rate=5e-3), 24, math.inf)
    ours = np.abs(predict(HELD) / HELD.seconds - 1).mean()
    assert ours < np.abs(baselines.mean(KNOWN)(HELD) / HELD.seconds - 1).mean()
    assert about["epochs"] == 15


def test_errors_are_relative_to_what_was_measured() -> None:
    found = judging.errors(HELD, 1.5 * HELD.seconds, ["net2"], 0)
    assert found["mape"] == pytest.approx(0.5)
    assert found["devices"] == pytest.approx(dict.fromkeys(sorted(DEVICES), 0.5))
    assert found["networks"]["net2"] == pytest.approx({"mape": 0.5, "sum": 0.5})


def test_whole_networks_are_judged_if_all_their_programs_are_held_out() -> None:
    some = {row.task: row for row in HELD if row.device == HELD.rows[0].device}
    about = {
        "network": "net2", "device": HELD.rows[0].device, "seconds": 2.0, "replayed": 1.5,
        "runs": dict.fromkeys(some, 2), "configs": {task: row.config for task, row in some.items()},
    }  # fmt: skip
    known = {**about, "network": "net1", "configs": {KNOWN.rows[0].task: KNOWN.rows[0].config}}
    found = judging.whole([about, known, {**about, "seconds": None}], HELD, HELD.seconds)
    ((name, one),) = found.items()
    assert name == f"net2 {about['device']}"
    assert math.isclose(one["predicted"], 2 * sum(row.seconds for row in some.values()))
    assert judging.off(found, "replayed") == 0.25
    gpu = dataclasses.replace(HELD.rows[0].hardware, kind="gpu")
    there = Programs(tuple(dataclasses.replace(row, hardware=gpu) for row in HELD))
    (more,) = judging.whole([about], there, HELD.seconds).values()
    assert more["predicted"] == pytest.approx(IN_A_NETWORK["gpu"] * one["predicted"])


def run_of(error: float, **more: Any) -> dict[str, Any]:
    return {
        "mape": error,
        "validation": error,
        "devices": {"d": error},
        "networks": {"n": {"mape": error, "sum": error}},
        **more,
    }


def test_claims_hold_or_not() -> None:
    whole = {"n d": {"measured": 1.0, "replayed": 0.95, "predicted": 1.1}}
    slow = {"n d": {"measured": 1.0, "replayed": 0.95, "predicted": 1.3}}
    ours = run_of(0.1, programs_per_s=1000.0, covered=0.9, width=1.5, whole=whole)
    runs = {"model|cdmpp|counts": ours, "model|lstm": run_of(0.3, programs_per_s=100.0)}
    runs |= {f"model|{name}": run_of(0.2) for name in judging.BASELINES if name != "lstm"}
    ranks = {"d": {"e": 0.8}, "e": {"d": 0.8}}
    runs["data"] = {"ranks": ranks}
    for device in ("d", "e"):
        runs |= {f"device|{device}|{way}|50|alone|0": run_of(0.1) for way in ("kmeans", "random")}
    said, holds = judging.judge(runs, EXPECTED)
    assert holds, said
    assert judging.targets(runs, 0.95) == ["d", "e"]
    assert "d held out, 50 tasks of it measured: 10.0%, 10.0% with random tasks (holds)" in said
    known = {"device|d|kmeans|50|alone|0": run_of(0.2, elsewhere=run_of(0.1, whole=whole))}
    assert judging.tuned(known, "d", "kmeans", 50) == pytest.approx({"mape": 0.2})
    said = judging.judge({**runs, **known}, EXPECTED)[0]
    assert (
        "d held out, 50 tasks of it measured: 10.0%, 10.0% with random tasks, 20.0% by the network alone (holds)"
        in said
    )
    assert "d held out, whole networks: 10.0% (holds)" in said
    ended = {
        f"device|d|kmeans|50|alone|{seed}": run_of(0.1, whole=end) for seed, end in enumerate([whole, slow])
    }
    assert judging.tuned(ended, "d", "kmeans", 50) == pytest.approx({"mape": 0.1, "whole": 0.2})
    assert (
        "d held out, whole networks: 20.0% (does not hold)" in judging.judge({**runs, **ended}, EXPECTED)[0]
    )
    assert judging.judge({**runs, "model|trees": run_of(0.05)}, EXPECTED)[1] is False
    assert judging.judge({**runs, "model|cdmpp|counts": {**ours, "covered": 0.99}}, EXPECTED)[1] is False
    assert judging.judge({**runs, "model|cdmpp|counts": {**ours, "whole": slow}}, EXPECTED)[1] is False
    assert judging.judge({**runs, "model|cdmpp|counts": {**ours, "whole": {}}}, EXPECTED)[1] is None
    alike = {**runs, "data": {"ranks": {"d": {"e": 0.99}, "e": {"d": 0.99}}}}
    assert judging.judge(alike, EXPECTED)[1] is None
    settings = ["tvm-sse-1t-aa", "tvm-avx2-2t-aa", "tvm-sse-1t-bb", "gpu"]
    ranks = {
        one: {other: 0.99 if one[-2:] == other[-2:] else 0.8 for other in settings if other != one}
        for one in settings
    }
    assert judging.targets({"data": {"ranks": ranks}}, 0.95) == [
        "aa",
        "bb",
        "gpu",
    ]  # those of aa may be alike
    ranks["gpu"] = dict.fromkeys(settings[:3])  # it runs programs of its own
    assert judging.targets({"data": {"ranks": ranks}}, 0.95)[-1] == "gpu"
    errors = {**ours, "devices": {"tvm-sse-1t-aa": 0.1, "tvm-sse-1t-bb": 0.12, "gpu": 0.4}}
    said = judging.judge({**runs, "model|cdmpp|counts": errors}, EXPECTED)[0]
    assert said[0] == "held-out networks: 10.0%, 12.0% on the worst setting of a CPU, 40.0% on gpu (holds)"
    assert judging.judge({}, EXPECTED) == (["CDMPP is not trained yet"], None)


def test_validation_decides_which_variant_is_judged() -> None:
    runs = {
        "model|cdmpp|a": {**run_of(0.1), "validation": 0.3},
        "model|cdmpp|b": {**run_of(0.2), "validation": 0.2},
    }
    found = judging.best(runs, "model|cdmpp")
    assert found is not None
    assert found["mape"] == 0.2
    assert judging.best(runs, "model|trees") is None


def test_searches_are_summed_over_the_runs_of_each_task() -> None:
    curves = {"cdmpp": [None, 2e-3, 1e-3], "xgb": [3e-3, 2e-3], "random": [4e-3]}
    ended = {"cdmpp": 1e-3, "xgb": 2e-3, "random": 4e-3}
    runs: dict[str, Any] = {}
    for task in ("a", "b"):
        for guide, curve in curves.items():
            about = {"name": task, "curve": curve, "search_s": 60.0, "guide_s": 0.0}
            runs[f"search {task} {guide}"] = about
        runs[f"compare {task}"] = {"seconds": ended}
    often = {"a": 1, "b": 3}
    found = searches.network_curves(runs, often)
    np.testing.assert_allclose(found["cdmpp"], [np.nan, 8e-3, 4e-3])
    np.testing.assert_allclose(found["xgb"], [12e-3, 8e-3, 8e-3])
    assert searches.together(runs, often) == pytest.approx({"cdmpp": 4e-3, "xgb": 8e-3, "random": 16e-3})
    lines, holds = searches.summary(runs, often)
    assert holds
    assert "4.000 ms, 2.000x TVM's; searching took 2.0 min, 1.00x" in lines[0]
    text = searches.page({"runs": runs, "settings": {}, "machine": {}, "summary": lines}, often)
    assert text.count("<svg") == 1
    assert text.count("<tr>") == 3
    del runs["compare b"]
    lines, holds = searches.summary(runs, often)
    assert holds is None
    assert lines[0] == "1 of 2 tasks are not compared yet"
    assert searches.summary({}, often)[1] is None


HYPER = """
held_out = ["net2"]
validation = 0.3
share = 0.9
seed = 0
epochs = 2
trials = 2
[cdmpp.sizes]
width = [16, 32]
layers = [1]
inner = [32]
decoder = [[16], [32, 16]]
joining = ["counts", "sum"]
[cdmpp.training]
learning_rate = { low = 1e-3, high = 1e-2 }
[trees.first]
sizes = { max_iter = 20 }
training = { learning_rate = 0.125 }
[trees.sizes]
max_iter = [5, 20]
[trees.training]
learning_rate = { low = 0.05, high = 0.2 }
[lstm.sizes]
width = [8]
[lstm.training]
learning_rate = { low = 1e-3, high = 1e-2 }
"""


def test_sizes_are_searched_and_a_trial_that_was_cut_off_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("optuna")
    from latencies import hyper

    (tmp_path / "hyper.toml").write_text(HYPER)
    values = tomllib.loads(HYPER)
    with Store(tmp_path / "s.sqlite") as store:
        store.append(records())
    out = tmp_path / "hyper.json"

    def run(*more: str) -> dict[str, Any]:
        paths = ["--values", tmp_path / "hyper.toml", "--cache", tmp_path / "cache", "--out", out]
        monkeypatch.setattr(sys, "argv", ["hyper.py", str(tmp_path / "s.sqlite"), *map(str, paths), *more])
        runpy.run_path(str(EXPERIMENT / "hyper.py"), run_name="__main__")
        runs: dict[str, Any] = json.loads(out.read_text())["runs"]
        return runs

    assert run("--minutes", "0")["cdmpp"]["trials"] == []
    assert "goes on from here" in capsys.readouterr().out
    cut = hyper.Search(Programs.of(records()), values, tmp_path / "cache", math.inf)
    study = cut.study("cdmpp")
    drawn = study.ask()
    cut._drawn(drawn, "cdmpp", "sizes")  # and then it is killed
    runs = run()
    assert [len(found["trials"]) for found in runs.values()] == [2, 2, 2]
    again = runs["cdmpp"]["trials"][0]
    assert again["choices"].items() >= drawn.params.items()
    assert hyper.chosen(again, values["cdmpp"])["sizes"]["decoder"] in ([16], [32, 16])
    assert hyper.chosen(runs["trees"]["trials"][0], values["trees"]) == values["trees"]["first"]
    assert run() == runs
    text = out.with_suffix(".html").read_text()
    assert text.count("<svg") == 1
    assert text.count("the ten best of 2") == 3


def test_the_ranges_of_the_search_are_settings_of_each_method() -> None:
    values = tomllib.loads((EXPERIMENT / "hyper.toml").read_text())
    assert "held_out" not in {*values, *VALUES}  # both are told by splits.toml
    for name, given in values["cdmpp"]["sizes"].items():
        assert VALUES["sizes"].get(name, "counts") in given
    first = values["cdmpp"]["first"]
    assert first["sizes"] == {**VALUES["sizes"], "joining": "sum"}
    assert first["training"].items() <= VALUES["training"].items()
    for method in ("cdmpp", "lstm"):
        LatencyTraining(**{name: given["high"] if isinstance(given, dict) else given[0]
                           for name, given in values[method]["training"].items()})  # fmt: skip
