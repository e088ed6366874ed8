"""``tensorwise tasks``: replays from records; what needs TVM is tested in ``unit/tasks``."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from tensorwise.device.device import Measurement
from tensorwise.device.null import NullDevice
from tensorwise.errors import InputError
from tensorwise.front import networks
from tensorwise.front.cli import app
from tensorwise.space.config import Config
from tensorwise.store.record import Record
from tensorwise.store.store import Store
from tensorwise.tasks.cutting import Found, Node, TaskGraph
from tensorwise.tasks.task import Task

TASKS = {
    name: Task(name, 32 * letter, "{}", {"op": name}) for name, letter in (("dense", "a"), ("relu", "b"))
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    nodes = (
        Node(TASKS["dense"].id, "dense", (), 64),
        Node(TASKS["relu"].id, "relu", (0,), 64),
        Node(TASKS["dense"].id, "dense", (0,), 64),
    )
    TaskGraph("net", 1, nodes).save(tmp_path / "networks")
    return tmp_path


def record(store: Path, name: str, seconds: float) -> None:
    config = Config({"design": 0, "decisions": f"[[0,{seconds}]]"})
    with Store(store) as records:
        records.append([Record.of(Measurement(seconds), TASKS[name], NullDevice(), "tvm", config, {})])


def run(folder: Path, *more: str) -> tuple[int, str]:
    arguments = ["tasks", "replay", "net", "--device", "null", "--folder", str(folder), *more]
    found = CliRunner().invoke(app, [*arguments, "--store", str(folder / "s.sqlite")])
    return found.exit_code, found.output


def test_a_network_takes_what_its_fastest_schedules_take(folder: Path) -> None:
    for name, seconds in (("dense", 3.0), ("dense", 2.0), ("relu", 0.5)):
        record(folder / "s.sqlite", name, seconds)
    code, text = run(folder, "--json", "--trace", str(folder / "t.json"), "--picture", str(folder / "t.svg"))
    assert code == 0, text
    assert json.loads(text)["seconds"] == 4.5
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    assert len([event for event in events if event["ph"] == "X"]) == 3
    assert "<svg" in (folder / "t.svg").read_text()
    code, text = run(folder, "--json", "--engines", "2")
    assert json.loads(text)["seconds"] == 4.0


def test_tasks_without_records_are_counted(folder: Path) -> None:
    record(folder / "s.sqlite", "relu", 1.0)
    code, text = run(folder)
    assert code != 0
    assert "1 of 2 tasks" in " ".join(text.split())


def test_a_file_is_cut_again_when_it_is_another_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts = []

    def cut(name: str, batch: int, given: str, source: str) -> tuple[TaskGraph, dict[str, Task]]:
        cuts.append(given)
        return TaskGraph(name, batch, (Node(TASKS["relu"].id, "relu", (), 8 * len(cuts)),), source), {}

    monkeypatch.setattr(networks, "lowered_network", lambda given, batch, shapes=None: given)
    monkeypatch.setattr(networks, "cut", cut)
    here, there = tmp_path / "model.onnx", tmp_path / "other" / "model.onnx"
    there.parent.mkdir()
    here.write_bytes(b"one")
    there.write_bytes(b"another")
    first = networks.network_graph(str(here), 1, folder)
    assert networks.network_graph(str(here), 1, folder) == networks.network_graph("model", 1, folder) == first
    second = networks.network_graph(str(there), 1, folder)
    assert second != first
    assert networks.network_graph("model", 1, folder) == second
    here.write_bytes(b"changed")
    networks.network_graph(str(here), 1, folder)
    assert cuts == [str(here), str(there), str(here)]
    for shapes in ({"x": (1, 3)}, {"x": (1, 3)}, {"x": (1, 4)}):  # other shapes are another network
        networks.network_graph(str(here), 1, folder, shapes)
    assert len(cuts) == 5
    path = folder / "networks" / "model-b1.json"
    old = {
        name: value
        for name, value in json.loads(path.read_text()).items()
        if name not in ("unlowered", "dtypes")
    }
    path.write_text(json.dumps(old))  # of a release that did not look for operators without a task
    networks.network_graph(str(here), 1, folder, {"x": (1, 4)})
    assert len(cuts) == 6
    here.rename(tmp_path / "resnet50.onnx")
    networks.network_graph(str(tmp_path / "resnet50.onnx"), 1, folder)
    assert networks.network_graph("resnet50", 1, folder).source == ""  # the architecture, not the file
    with pytest.raises(InputError, match=r"gone\.onnx: cannot be read"):
        networks.network_graph("gone.onnx", 1, folder)


def test_tasks_of_which_no_program_could_be_compiled_are_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []

    def stage_all(tasks: Iterable[Found], *given: Any) -> Iterator[int]:
        *_, refused = given
        for count in counts:
            refused(["NVRTC does not know the GPU"] * (2 - count))
            yield count

    monkeypatch.setitem(sys.modules, "tensorwise.tasks.staging", SimpleNamespace(stage_all=stage_all))
    arguments = ["tasks", "stage", "V100", "--folder", str(folder), "--out", str(folder / "staged"), "--json"]
    for had, code, without in (([2, 2], 0, 0), ([2, 0], 1, 1), ([0, 0], 1, 2)):
        counts[:] = had
        found = CliRunner().invoke(app, arguments)
        assert found.exit_code == code
        assert json.loads(found.stdout)["without"] == without
        said = f"{without} of 2 tasks have no program for V100; nothing is kept"
        assert (said in " ".join(found.stderr.split())) == bool(without)
        lost = f"{2 * without} programs could not be compiled: NVRTC does not know the GPU"
        assert (lost in " ".join(found.stderr.split())) == bool(without)


def test_more_threads_than_processors_are_not_measured(folder: Path) -> None:
    for command in (["collect"], ["adapt"], ["measure", "net"]):
        arguments = ["tasks", *command, "--folder", str(folder), "--threads", "100000"]
        found = CliRunner().invoke(app, arguments)
        assert found.exit_code == 1
        said = " ".join(found.stderr.split())
        assert "100000 threads cannot be measured here" in said or "which is not installed" in said
