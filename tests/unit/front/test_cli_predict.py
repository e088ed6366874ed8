"""``tensorwise predict`` and ``tasks train``, on a made-up network whose programs are kept: no TVM is needed."""

import json
import math
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tensorwise.analysis.ast import CompactAst
from tensorwise.analysis.code import CODE
from tensorwise.analysis.machine_code import MachineCode
from tensorwise.collect.task_job import TaskJob
from tensorwise.device.gpus import gpu_named
from tensorwise.errors import InputError, MissingExtraError
from tensorwise.front import networks, terminal
from tensorwise.front.cli import app
from tensorwise.front.networks import (
    BUNDLED,
    SCHEDULES,
    latency_model,
    latency_model_folder,
    predict_latency,
)
from tensorwise.model.finding import bundled_model
from tensorwise.model.latency import LatencyModel, train_latency
from tensorwise.model.programs import Programs
from tensorwise.store.store import Store
from tensorwise.tasks.cpu import full_name
from tensorwise.tasks.cutting import Node, TaskGraph
from tests.unit.model.latencies import code, records, tree

pytest.importorskip("torch")

from tensorwise.model.latency_training import LatencyTraining

pytestmark = pytest.mark.usefixtures("one_torch_thread")
TASKS = {32 * "a": [[4096], [8192, 4096]], 32 * "b": [[512, 512]]}
"""Task -> extents of the loops of its programs."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("networks")
    a, b = TASKS
    nodes = (Node(a, "dense", (), 64), Node(b, "relu", (0,), 64), Node(a, "dense", (0,), 64))
    TaskGraph("net", 1, nodes).save(path / "networks")
    (path / "programs").mkdir()
    for task, programs in TASKS.items():
        plain = [{"tree": tree(extents).text} for extents in programs]
        (path / "programs" / f"{task}-{SCHEDULES}.json").write_text(json.dumps(plain))
    model = train_latency(
        Programs.of(records()), LatencyTraining(epochs=30, learning_rate=5e-3), members=1,
        sizes={"width": 32, "inner": 32, "layers": 1, "embedding": 32, "decoder": (32,)},
    )  # fmt: skip
    assert model is not None
    model.save(path / "model")
    return path


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(
        app, ["predict", *arguments, "--folder", str(folder), "--model", str(folder / "model")]
    )
    return found.exit_code, found.stdout, found.stderr


def test_a_prediction_shows_its_progress_without_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cutting a network into tasks takes long and reports nothing itself."""

    def slow(*arguments: Any) -> TaskGraph:
        time.sleep(0.3)
        return cut(*arguments)

    cut = networks.network_graph
    monkeypatch.setattr(networks, "network_graph", slow)
    monkeypatch.setattr(terminal, "FIRST_LINE_S", 0.1)
    code, out, err = run(folder, "net", "--device", "fast")
    assert code == 0, err
    assert "tensorwise: predicting, 0 s: cutting net into tasks" in err
    assert out.startswith("net batch 1 on fast: ")
    assert len(out.splitlines()) == 1


def test_a_network_takes_what_its_fastest_programs_take(folder: Path) -> None:
    code, out, err = run(
        folder,
        "net",
        "--device",
        "slow",
        "--json",
        "--trace",
        str(folder / "t.json"),
        "--picture",
        str(folder / "t.svg"),
    )
    assert code == 0, err
    said = json.loads(out)
    assert said["programs"] == 3
    assert 0.6 < said["seconds"] / (4e-9 * (3 * 200 + 2 * 4096 + 1024)) < 1.6
    assert said["low_s"] < said["seconds"] < said["high_s"]
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    assert next(event["name"] for event in events if event["ph"] == "X") == "0 dense"
    assert "<svg" in (folder / "t.svg").read_text()
    (again,) = predict_latency("net", ["slow"], folder=folder, model=LatencyModel.load(folder / "model"))
    assert again.seconds == said["seconds"]
    assert again.chosen[32 * "a"] == 0
    code, out, _ = run(folder, "net", "--device", "slow", "--engines", "2", "--json")
    assert json.loads(out)["seconds"] < said["seconds"]
    code, out, _ = run(folder, "net", "--device", "slow")
    assert "net batch 1 on slow: " in out
    assert re.search(r"µs, between .* and .* \(the coverage of such intervals was not evaluated\)\n", out)


def test_programs_are_read_with_their_code_where_the_model_has_learned_from_it(
    folder: Path, tmp_path: Path
) -> None:
    model = train_latency(
        Programs.of(records(compiled=True)), LatencyTraining(epochs=30, learning_rate=5e-3), members=1,
        sizes={"width": 32, "inner": 32, "layers": 1, "embedding": 32, "decoder": (32,), "joining": "sum"},
    )  # fmt: skip
    assert model is not None
    assert model.reads_code
    assert not LatencyModel.load(folder / "model").reads_code
    shutil.copytree(folder / "networks", tmp_path / "networks")
    (tmp_path / "programs").mkdir()
    found = []
    for factor in (1.0, 8.0):  # the described device's vectors are as wide as AVX2's
        for task, programs in TASKS.items():
            about = [
                {"tree": tree(extents).text, "code": code(factor * (200 + sum(extents))).to_json()}
                for extents in programs
            ]
            (tmp_path / "programs" / f"{task}-{SCHEDULES}-avx2-{CODE.version}.json").write_text(
                json.dumps(about)
            )
        (one,) = predict_latency("net", ["slow"], folder=tmp_path, model=model)
        found.append(one.seconds)
    assert 4 < found[1] / found[0] < 16


def test_devices_are_ranked_by_time_and_by_cost(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorwise.front.networks.has_cupy", lambda: False)  # programs are kept without code
    ranked = [
        json.loads(line) for line in run(folder, "net", "--compare", "slow", "fast", "--json")[1].splitlines()
    ]
    assert [one["device"] for one in ranked] == ["fast", "slow"]
    prices = ("--price", "fast=100", "--price", "slow=0.5")
    ranked = [
        json.loads(line)
        for line in run(folder, "net", "--compare", "slow", "fast", "--json", *prices)[1].splitlines()
    ]
    assert [one["device"] for one in ranked] == ["slow", "fast"]
    assert ranked[0]["cost"] == pytest.approx(ranked[0]["seconds"] * 0.5 / 3600)
    for path in [*(folder / "programs").glob("*-8.json")]:  # as if they had been drawn for it
        path.with_stem(f"{path.stem}-T4").write_bytes(path.read_bytes())
    code, _, err = run(folder, "net", "--device", "T4")
    assert code == 0, err
    assert "the model has not learned from T4, nor from any other gpu" in err


def doubted(folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    code, out, err = run(folder, *arguments, "--json")
    assert code == 0, err
    said: dict[str, Any] = json.loads(out.splitlines()[0])
    return said, err


def test_what_was_not_learned_from_widens_the_interval_and_is_marked(folder: Path, tmp_path: Path) -> None:
    def width(said: dict[str, Any]) -> float:
        return math.log(said["high_s"] / said["low_s"])

    sure, err = doubted(folder, "net", "--device", "slow")
    assert sure["doubts"] == []
    assert not err
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    graph = TaskGraph.load(folder / "networks" / "net-b1.json")
    described = "EPYC-7452"  # vectors as wide as known devices' have, but on other threads than they
    for name, changed, device, reasons in (
        ("dtype", {"dtypes": ("float16", "float32")}, "slow", ["float16"]),
        ("batch", {"batch": 7}, "slow", ["a batch of 7"]),
        ("net", {}, described, ["not learned from EPYC-7452", "threads"]),
    ):
        replace(graph, name=name, **changed).save(tmp_path / "networks")
        batch = str(changed.get("batch", 1))
        said, err = doubted(tmp_path, name, "--device", device, "--batch", batch)
        assert len(said["doubts"]) == len(reasons)
        assert all(reason in " ".join(said["doubts"]) and reason in err for reason in reasons)
        assert width(said) > 1.9 * width(sure)
    _, out, err = run(tmp_path, "net", "--compare", "slow", described)
    marks = {line.split(" on ")[1].split(":")[0]: line.endswith(" *") for line in out.splitlines()}
    assert marks == {"slow": False, described: True}
    assert "(not calibrated)" in out


def test_operators_that_are_no_tasks_are_named_and_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    graph = TaskGraph.load(folder / "networks" / "net-b1.json")
    replace(graph, unlowered=("topk", "sort", "topk")).save(tmp_path / "networks")
    code, _, err = run(tmp_path, "net", "--device", "slow")
    assert code == 1
    assert "whose run time is unknown: sort, topk (2 times)" in err
    said, err = doubted(tmp_path, "net", "--device", "slow", "--partial")
    assert said["left_out"] == "sort, topk (2 times)"
    assert said["high_s"] is None
    assert "the time excludes sort, topk" in err
    _, out, _ = run(tmp_path, "net", "--device", "slow", "--partial")
    assert re.search(r"on slow: at least [^ ]+ µs \*\n", out)


def test_networks_of_earlier_releases_are_doubted(folder: Path, tmp_path: Path) -> None:
    """Nobody looked for operators without tasks then."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "networks" / "net-b1.json"
    old = json.loads(path.read_text())
    del old["unlowered"], old["dtypes"]
    path.write_text(json.dumps(old))
    said, _ = doubted(tmp_path, "net", "--device", "slow")
    assert "cut by an earlier release" in said["doubts"][0]


@pytest.mark.parametrize(("card", "said"), [
    ({"judged": {"together": {"covered": 0.78}}}, "(such intervals contain 78 % of held-out networks)"),
    ({"judged": {"together": {"covered": 0.78}}, "adapted": {}}, "was not evaluated"),
    ({"judged": None}, "was not evaluated"),
])  # fmt: skip
def test_what_intervals_hold_is_said(folder: Path, tmp_path: Path, card: dict[str, Any], said: str) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    model = replace(LatencyModel.load(folder / "model"), card=card)
    model.save(tmp_path / "model")
    code, out, _ = run(tmp_path, "net", "--device", "slow")
    assert code == 0
    assert said in out
    replace(model, intervals={}).save(tmp_path / "model")
    assert "without an interval: the model is not calibrated" in run(tmp_path, "net", "--device", "slow")[1]


def test_a_failure_to_count_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that is missing, or refuses a device, may be there the next time: it is asked again."""
    (task,) = [32 * "a"]
    graph = TaskGraph("net", 1, (Node(task, "dense", (), 64),))
    works, asked = [False], []

    class Schedules:
        def __init__(self, task: object, gpu: object) -> None: ...

        def sample(self, count: int, rng: object) -> list[tuple[None, int]]:
            return [(None, place) for place in range(count)]

    def codes_on(modules: Sequence[int], gpu: object) -> list[MachineCode | None]:
        asked.append(len(modules))
        if not works:
            raise MissingExtraError("CuPy", "cuda", "compiling for a GPU")
        return [code(100.0) if works[0] or place else None for place in modules]

    for name, has in (("schedules", {"Schedules": Schedules}), ("staging", {"codes_on": codes_on})):
        monkeypatch.setitem(sys.modules, f"tensorwise.tasks.{name}", SimpleNamespace(**has))
    monkeypatch.setattr(networks, "has_cupy", lambda: True)
    monkeypatch.setattr(networks, "Task", SimpleNamespace(load=lambda path: None))
    monkeypatch.setattr(networks, "loop_tree", lambda module: tree([64]))

    def counted() -> list[bool]:
        found = networks.programs_of(graph, tmp_path, 3, gpu=gpu_named("V100"))
        return [one.compiled for one in found[task]]

    assert counted() == counted() == [False, True, True]
    assert asked == [3, 3]
    works.clear()  # CuPy, but no NVRTC
    assert counted() == [False] * 3
    works.append(False)
    assert counted() == [False, True, True]
    monkeypatch.setitem(
        sys.modules, "tensorwise.tasks.schedules", None
    )  # nor is TVM there: a program is one all the same
    monkeypatch.setattr(
        networks, "_drawn", lambda *_: (_ for _ in ()).throw(MissingExtraError("tvm", "tvm", "it"))
    )
    assert counted() == [False, True, True]
    monkeypatch.undo()


def test_shapes_are_for_files(folder: Path) -> None:
    code, _, err = run(folder, "net", "--device", "slow", "--shape", "x=1,3")
    assert code == 1
    assert "shapes are given for inputs of ONNX files" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("net",), "name one device"),
        (("net", "slow", "fast"), "name one device"),
        (("net", "--device", "abacus"), "unknown device 'abacus'; trained on: fast, slow"),
        (("net", "--device", "tvm-sse-9998t"), "at most 1024 threads, got 9998"),
        (("net", "--device", "slow", "--price", "T4=1"), "not among the devices"),
        (("net", "--device", "slow", "--price", "slow=cheap"), "a price must be DEVICE=NUMBER"),
        (("net", "--device", "slow", "--model", "nowhere"), "there is no latency model in nowhere"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    found = CliRunner().invoke(
        app, ["predict", "--folder", str(folder), "--model", str(folder / "model"), *arguments]
    )
    assert found.exit_code == 1
    assert said in found.stderr


def test_engines_are_limited(folder: Path) -> None:
    code, _, err = run(folder, "net", "--device", "slow", "--engines", "1000000000")
    assert code == 2
    assert "1024" in err
    for engines in (0, 10**9):
        with pytest.raises(InputError, match=f"engines must be a number from 1 to 1024, got {engines}"):
            predict_latency("net", ["slow"], folder=folder, engines=engines)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_file_that_is_a_pipe_is_not_waited_for(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    code, _, err = run(folder, str(tmp_path / "pipe.onnx"), "--device", "slow")
    assert code == 1
    assert "pipe.onnx: cannot be read" in err


def test_a_network_that_is_not_there_needs_a_name_that_is_known(folder: Path) -> None:
    code, _, err = run(folder, "perceptron", "--device", "slow")
    assert code == 1
    assert "unknown network 'perceptron'" in err or "apache-tvm" in err


def test_a_model_is_trained_from_a_store(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        store.append(records())
    arguments = ["tasks", "train", str(tmp_path / "s.sqlite"), "--out", str(tmp_path / "model")]
    found = CliRunner().invoke(
        app, [*arguments, "--epochs", "2", "--members", "1", "--held-out", "net2", "--json"]
    )
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["devices"] == ["fast", "slow"]
    model = LatencyModel.load(tmp_path / "model")
    assert model.devices.keys() == {"fast", "slow"}
    assert model.card["held_out"] == ["net2"]
    assert model.card["judged"]["devices"].keys() == {"fast", "slow"}
    page = (tmp_path / "model" / "README.md").read_text()
    assert "- test: all tasks of these networks: net2." in page
    assert f"| slow | {model.card['judged']['devices']['slow']:.1%} |" in page
    summed = model.card["judged"]["together"]
    assert f"Sums of a network's programs, one of each task, have a MAPE of {summed['mape']:.1%}." in page
    found = CliRunner().invoke(app, [*arguments, "--device", "abacus"])
    assert found.exit_code == 1
    assert "no records of programs" in found.stderr


def adapt(folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> tuple[int, str, str]:
    """Run ``tasks adapt`` where each task takes a tenth of what it takes on the device ``slow``; needs no TVM."""
    tasks = [f"{place:032x}" for place in range(40)]
    TaskGraph("many", 1, tuple(Node(task, "dense", (), 64) for task in tasks)).save(folder / "networks")
    of = dict(zip(sorted({one.workload_id for one in records()}), tasks, strict=True))
    programs = Programs.of(records()).by_task
    monkeypatch.setattr(
        "tensorwise.front.networks.unscheduled",
        lambda _, wanted, progress: {of[k]: v for k, v in programs.items() if of[k] in wanted},
    )

    def measured(jobs: Sequence[TaskJob], store: Path, *_: object, **__: object) -> None:
        job = {one.task: one.id for one in jobs}
        found = []
        for one in records(devices=("slow",)):
            if (task := of[one.workload_id]) in job:
                about = {**one.provenance, "job": job[task]}
                found.append(replace(one, workload_id=task, seconds=0.1 * one.seconds, provenance=about))
        with Store(store) as home:
            home.append(found)

    monkeypatch.setattr("tensorwise.front.cli_tasks.run_jobs", measured)
    arguments = [
        "tasks",
        "adapt",
        "--folder",
        str(folder),
        "--store",
        str(folder / "adapt.sqlite"),
        "--count",
        "30",
    ]
    arguments += ["--model", str(folder / "model"), "--out", str(folder / "adapted"), *more]
    found = CliRunner().invoke(app, arguments)
    return found.exit_code, found.stdout, found.stderr


def test_a_model_is_adapted_to_this_machine(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"records": 1, "workloads": 1, "first": "", "last": "", "hosts": ["a CPU"]}
    card = {
        "data": data,
        "judged": None,
        "held_out": [],
        "date": "",
        "version": "",
        "programs": 1,
        "tasks": 1,
    }
    replace(LatencyModel.load(folder / "model"), card=card).save(tmp_path / "model")
    monkeypatch.setattr(
        "tensorwise.adapt.latency.TRAINING", {"epochs": 20, "learning_rate": 3e-3, "moments": 0.0}
    )
    code, out, err = adapt(tmp_path, monkeypatch, "--json")
    assert code == 0, err
    said = json.loads(out)
    assert said["better"]
    assert (said["tasks"], said["programs"]) == (30, 120)
    assert said["after"]["mape"] < 0.5 < said["before"]["mape"]
    model = LatencyModel.load(tmp_path / "adapted")
    assert model.card["adapted"]["devices"] == ["slow"]
    page = (tmp_path / "adapted" / "README.md").read_text()
    assert f"| slow | {said['before']['mape']:.1%} | {said['after']['mape']:.1%} |" in page


def test_a_model_that_gets_no_better_is_not_saved(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder / "model", tmp_path / "model")
    monkeypatch.setattr(
        "tensorwise.adapt.latency.TRAINING", {"epochs": 1, "learning_rate": 1e-12, "moments": 0.0}
    )
    code, out, _ = adapt(tmp_path, monkeypatch)
    assert code == 0
    assert "no model is saved, and predictions stay unchanged" in " ".join(out.split())
    assert not (tmp_path / "adapted").exists()


def test_the_user_s_model_goes_before_the_one_that_comes_along(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorwise.front.networks.cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr("tensorwise.front.networks.bundled_folders", tuple)
    with pytest.raises(InputError, match=r"there is no latency model in .*pip install tensorwise-models"):
        latency_model()
    monkeypatch.setattr("tensorwise.front.networks.bundled_folders", lambda: (tmp_path / "along",))
    with pytest.raises(InputError, match=r"there is no latency model in [^ ]*;"):
        latency_model()
    model = LatencyModel.load(folder / "model")
    replace(model, card={"from": "along"}).save(tmp_path / "along" / "latency")
    assert latency_model().card["from"] == "along"
    replace(model, card={"from": "user"}).save(latency_model_folder())
    assert latency_model().card["from"] == "user"
    with pytest.raises(InputError, match="there is no latency model in"):
        latency_model(tmp_path / "nowhere")
    slow = {"slow": model.devices["slow"]}
    replace(model, card={"from": "user"}, devices=slow).save(latency_model_folder())
    for device, which in (("slow", "user"), ("fast", "along"), ("abacus", "user")):
        assert latency_model(device=device).card["from"] == which
    members = tuple({**one, "decoder1.bias": one["decoder1.bias"] + 1} for one in model.members)
    replace(model, devices=slow, members=members).save(latency_model_folder())
    both = predict_latency("net", ["slow", "fast"], folder=folder)
    by_itself = [
        predict_latency("net", [name], folder=folder, model=model)[0].seconds for name in ("slow", "fast")
    ]
    assert both[0].seconds > 1.5 * by_itself[0]
    assert both[1].seconds == by_itself[1]


def test_the_model_that_comes_along_knows_cpus_and_gpus() -> None:
    model = LatencyModel.load(bundled_model(BUNDLED))
    assert {name for name, one in model.devices.items() if one.kind == "gpu"} == {"H100", "H200"}
    programs = [CompactAst.of(tree(extents)) for extents in ([64], [4096], [1 << 20])]
    for device in model.devices.values():
        found = model.latencies(programs, device)
        assert (found.seconds > 1e-8).all()
        assert (found.low < found.seconds).all()
        assert (found.seconds < found.high).all()
        assert (found.high < 10).all()
        # Nobody compiled them, and the first is shorter than all that was measured: little is sure, but something.
        assert (found.high < 150 * found.seconds).all()
        assert found.low[0] > 1e-9
        assert (np.diff(found.seconds) > 0).all()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="another instruction set")
def test_a_setting_of_this_cpu_is_extrapolated_to(folder: Path) -> None:
    code, out, err = run(folder, "net", "--device", "tvm-sse-1t", "--price", "tvm-sse-1t=1", "--json")
    assert code == 0, err
    said = json.loads(out)
    assert said["device"] == full_name("tvm-sse-1t")
    assert not said["trained_on_device"]
    assert said["cost"] > 0
    assert "has not learned from tvm-sse-1t" in err
