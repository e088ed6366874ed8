"""Tasks and graphs of them in files, and plans made of them: no TVM is needed."""

from pathlib import Path

import pytest

from tensorwise.collect.task_job import TaskJob, task_plan
from tensorwise.errors import InputError
from tensorwise.tasks.architectures import ARCHITECTURES, architecture
from tensorwise.tasks.cutting import Node, TaskGraph
from tensorwise.tasks.task import Task

GRAPH = TaskGraph(
    "net",
    2,
    (Node("a" * 32, "dense", (), 64), Node("b" * 32, "relu", (0,), 64), Node("a" * 32, "dense", (0, 1), 8)),
)


def test_graphs_are_read_back(tmp_path: Path) -> None:
    assert TaskGraph.load(GRAPH.save(tmp_path)) == GRAPH
    assert GRAPH.multiplicity == {"a" * 32: 2, "b" * 32: 1}


def test_tasks_are_read_back(tmp_path: Path) -> None:
    task = Task("dense", "a" * 32, "{}", {"op": "dense", "flops": 8.0})
    path = task.save(tmp_path)
    found = Task.load(path)
    assert (found.name, found.id, found.text, found.facts) == (task.name, task.id, task.text, task.facts)
    path.write_text("{}")
    with pytest.raises(InputError, match="no task"):
        Task.load(path)


def test_a_graph_reads_backwards_only(tmp_path: Path) -> None:
    path = TaskGraph("net", 1, (Node("a" * 32, "dense", (0,), 8),)).save(tmp_path)
    with pytest.raises(InputError, match="does not precede"):
        TaskGraph.load(path)


def test_a_plan_has_a_job_for_each_task_and_instruction_set(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tasks cut"):
        task_plan(tmp_path, ["sse"], [1])
    GRAPH.save(tmp_path / "networks")
    TaskGraph("other", 1, GRAPH.nodes[:1]).save(tmp_path / "networks")
    jobs = task_plan(tmp_path, ["sse", "avx2"], [1, 2], samples=3, seed=5)
    assert len({job.id for job in jobs}) == len(jobs) == 4
    assert {job.networks for job in jobs if job.task == "a" * 32} == {("net-b2", "other-b1")}
    assert [TaskJob.from_json(job.to_json()) for job in jobs] == jobs
    assert task_plan(tmp_path, ["sse", "avx2"], [1, 2], samples=3, seed=5) == jobs
    assert [job.task for job in jobs[::2]] == [job.task for job in jobs[1::2]]  # schedules are drawn once
    own = task_plan(tmp_path, ["sse", "avx2"], [1, 2], samples=3, seed=5, own=True)
    assert len({job.id for job in own}) == len(own) == 8
    first = [(job.device, job.threads, job.seed) for job in own[:4]]
    assert first == [("sse", (1,), 5), ("sse", (2,), 6), ("avx2", (1,), 7), ("avx2", (2,), 8)]
    only = task_plan(tmp_path, ["sse"], [1], only=["other"])
    assert [(job.task, job.networks) for job in only] == [("a" * 32, ("net-b2", "other-b1"))]
    with pytest.raises(InputError, match="no network third; it has net, other"):
        task_plan(tmp_path, ["sse"], [1], only=["third"])


def test_networks_are_known_by_name() -> None:
    assert len(ARCHITECTURES) >= 30
    assert {"resnet50", "mobilenetv2", "bert-tiny"} <= ARCHITECTURES.keys()
    with pytest.raises(InputError, match="bert-tiny"):
        architecture("bort")
