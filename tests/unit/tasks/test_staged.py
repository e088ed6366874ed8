"""Staged programs: what a file keeps, what is refused, and how a GPU times them; the GPU is made of NumPy."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorwise.analysis.machine_code import MachineCode
from tensorwise.collect.staged_job import StagedJob, staged_plan
from tensorwise.errors import InputError, MeasurementError
from tensorwise.space.config import Config
from tensorwise.store.store import Store
from tensorwise.tasks import gpu as gpus
from tensorwise.tasks.cutting import Node, TaskGraph
from tensorwise.tasks.gpu import TaskGpu
from tensorwise.tasks.staged import StagedLaunch, StagedProgram, StagedTask
from tensorwise.tasks.task import Task
from tensorwise.toolchain.cubin import Resources
from tensorwise.toolchain.gpu import Function, Gpu, Held


class ArrayGpu(Gpu):
    """Kernels are functions of arrays, found by name."""

    name, multiprocessors = "NVIDIA H200", 2

    def __init__(self, kernels: Mapping[str, Callable[..., None]]) -> None:
        self.kernels, self.launched, self.seconds_of = kernels, list[str](), 2e-6

    def load(self, text: str, names: Sequence[str]) -> Mapping[str, Function]:
        raise NotImplementedError

    def functions(self, code: bytes, names: Sequence[str]) -> Mapping[str, Function]:
        return {name: name for name in names}

    def upload(self, array: np.ndarray) -> Held:
        return array.copy()

    def empty(self, length: int, dtype: np.dtype) -> Held:
        return np.full(length, 7, dtype)

    def download(self, held: Held, out: np.ndarray) -> None:
        out[:] = held

    def launch(self, function: Function, grid: Any, block: Any, arguments: Sequence[Any]) -> None:
        self.launched.append(function)
        self.kernels[function](*arguments)

    def fill(self, held: Held, places: Held | None = None) -> None:
        held.fill(0)

    def synchronize(self) -> None:
        pass

    def seconds(self, call: Callable[[], object], repeats: int) -> list[float]:
        begin = len(self.launched)
        for _ in range(repeats):
            call()
        return [self.seconds_of * (len(self.launched) - begin) / repeats] * repeats


def doubled(x: np.ndarray, scratch: np.ndarray) -> None:
    scratch.view(np.float32)[:] = 2 * x


def added(scratch: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    out[:] = scratch.view(np.float32) + y


def wrong(x: np.ndarray, out: np.ndarray) -> None:
    out[:] = x


def endless(x: np.ndarray, out: np.ndarray) -> None:
    raise MemoryError("too much of it")


KERNELS = {"doubled": doubled, "added": added, "wrong": wrong, "endless": endless}


COUNTED = MachineCode.from_json({"all.cycles": 100.0, "gpu.load": 3.0, "gpu.whole.launches": 1.0})


def program(design: int, *launches: StagedLaunch, scratch: tuple[int, ...] = ()) -> StagedProgram:
    config = Config({"design": design, "decisions": "[]"})
    return StagedProgram(config, "[]", launches, scratch, bytes(range(256)), COUNTED)


RIGHT = program(
    0,
    StagedLaunch("doubled", (1, 1), (32, 1), (0, 3)),
    StagedLaunch("added", (1, 1), (32, 1), (3, 1, 2)),
    scratch=(40,),
)
WRONG = program(1, StagedLaunch("wrong", (1, 1), (32, 1), (0, 2)))
LARGE = program(2, StagedLaunch("endless", (1, 1), (32, 1), (0, 2)))


@pytest.fixture
def task() -> StagedTask:
    facts = {"op": "add", "flops": 20.0, "bytes": 120}
    return StagedTask(
        Task("add", "0" * 32, "", facts),
        ("net-b1",),
        "H200",
        "sm_90",
        (((10,), "float32"),) * 3,
        "0.1",
        (RIGHT, WRONG, LARGE),
    )


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> TaskGpu:
    monkeypatch.setattr(gpus, "resources", lambda _: Resources(40, 8))
    return TaskGpu(ArrayGpu(KERNELS))


def test_a_file_keeps_all(task: StagedTask, tmp_path: Path) -> None:
    path = tmp_path / "new" / "one.json"
    task.save(path)
    found = StagedTask.load(path)
    for field in dataclasses.fields(StagedTask):
        if field.name != "task":
            assert getattr(found, field.name) == getattr(task, field.name)
    assert (found.task.id, found.task.name, found.task.facts) == (
        task.task.id,
        task.task.name,
        task.task.facts,
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"kernel"', "["), ("[0, 3]", "[0, 9]"), ("[0, 3]", "[0, -1]"), ('"code": "', '"code": "x'), ('"H200"', "[["),
        ('"operands"', '"operators"'), ("[32, 1]", "[32, 1, 1]"),
    ],
)  # fmt: skip
def test_what_is_damaged_is_refused(task: StagedTask, tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "one.json"
    task.save(path)
    text = path.read_text()
    path.write_text(text.replace(old, new, 1) if old in text else new)
    with pytest.raises(InputError, match="holds no staged programs"):
        StagedTask.load(path)


def test_results_are_compared_and_calls_timed(task: StagedTask, device: TaskGpu) -> None:
    right, off, large = device.time(task, task.programs)
    assert right.status == "ok"
    assert right.seconds == pytest.approx(4e-6)  # two launches
    assert (right.registers, right.frame_bytes) == (40, 8)
    assert off.status == "wrong"
    assert (large.status, large.note) == ("memory", "too much of it")


def test_programs_of_a_network_read_what_others_leave(
    device: TaskGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[tuple[str, list[np.ndarray]]]()

    def first(x: np.ndarray, out: np.ndarray) -> None:
        read.append(("first", [x]))
        out[:] = x + 1

    def second(index: np.ndarray, weight: np.ndarray, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
        read.append(("second", [index, weight, x, y]))
        out[:] = x + y

    def places(x: np.ndarray, out: np.ndarray) -> None:
        out[:] = 10**6

    monkeypatch.setattr(device, "_gpu", ArrayGpu({"first": first, "second": second, "places": places}))

    def made(name: str, *operands: tuple[tuple[int, ...], str]) -> tuple[StagedTask, StagedProgram]:
        one = program(0, StagedLaunch(name, (1, 1), (32, 1), tuple(range(len(operands)))))
        return StagedTask(Task(name, name, "", {}), (), "H200", "sm_90", operands, "0.1", (one,)), one

    row, square = ((10,), "float32"), ((2, 5), "float32")
    parts = {
        "first": made("first", row, row),
        "places": made("places", row, ((2,), "int64")),
        "second": made("second", ((2,), "int64"), ((3,), "float32"), square, square, square),
    }
    nodes = [Node("first", "", (), 40), Node("first", "", (0,), 40), Node("places", "", (1,), 16)]
    graph = TaskGraph("net", 1, (*nodes, Node("second", "", (2, 0, 1), 40)))
    assert device.network(graph, parts).ok
    (_, [drawn]), (_, [again]), (_, [index, weight, x, y]) = read[-3:]
    np.testing.assert_array_equal(again, drawn + 1)
    np.testing.assert_array_equal(x, drawn + 1)
    np.testing.assert_array_equal(y, drawn + 2)
    assert index.max() < 10**6  # not what the network computes, which may be beyond what it chooses from
    assert not np.shares_memory(weight, drawn)


def test_configs_that_are_not_staged_are_refused(task: StagedTask, device: TaskGpu) -> None:
    known, unknown = device.measure(task, [RIGHT.config, Config({"design": 9, "decisions": "[]"})])
    assert (known.status, unknown.status) == ("ok", "refused")


def test_programs_for_another_gpu(task: StagedTask, device: TaskGpu) -> None:
    with pytest.raises(MeasurementError, match="for T4, but this GPU is H200"):
        device.time(dataclasses.replace(task, gpu="T4"), task.programs)


def test_a_gpu_that_nobody_describes() -> None:
    gpu = ArrayGpu(KERNELS)
    gpu.name = "NVIDIA Unheard-of"
    with pytest.raises(InputError, match="has no description"):
        TaskGpu(gpu)


def test_records_of_a_job(
    task: StagedTask, device: TaskGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorwise.collect.staged_job._gpu", lambda: device)
    task.save(tmp_path / "staged" / "one.json")
    (job,) = staged_plan(tmp_path / "staged")
    assert StagedJob.from_json(job.to_json()) == job
    beats = list[int]()
    records = job.measured(lambda: beats.append(1))
    assert [record.status for record in records] == ["ok", "wrong", "memory"]
    assert len(beats) == 3
    with Store(tmp_path / "store.sqlite") as store:
        store.append(records)
        found = [record for record in store.records() if record.ok]
    assert found == records[:1]
    about = found[0].provenance
    assert about["device"] == "H200"
    assert about["hardware"] == device.hardware.to_json()
    assert (about["registers"], about["networks"], about["job"]) == (40, ["net-b1"], job.id)
    assert found[0].space == "tvm-0.1-cuda"


def test_a_folder_without_programs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no staged programs"):
        staged_plan(tmp_path)
