"""What executors on a cluster share, on a cluster that is a thread."""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorwise.collect.cluster import ClusterExecutor, ClusterFuture, run
from tensorwise.collect.corpus import patterns
from tensorwise.collect.executors import WorkerLostError
from tensorwise.collect.job import Job, plan
from tensorwise.errors import MeasurementError
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write


class Thread(ClusterExecutor):
    losses = (EOFError,)
    how_to_join = "a needle"

    def __init__(self, address: str | None = None, slots: int = 1, task: Callable[..., Any] = run) -> None:
        self.task, self.closed, self.given_up = task, False, 0
        super().__init__(address, slots)

    def _open(self, address: str | None, slots: int) -> None:
        if address == "nowhere":
            raise ConnectionRefusedError("refused")
        self.count, self.pool = slots, ThreadPoolExecutor(1)

    def _count(self, resource: str) -> int:
        return self.count

    def _begin(self, resources: Mapping[str, int], *arguments: Any) -> ClusterFuture:
        return self.pool.submit(self.task, *arguments)

    def _give_up(self, tasks: Sequence[Any]) -> None:
        self.given_up = len(tasks)

    def _close(self) -> None:
        self.closed = True
        self.pool.shutdown(wait=False)


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    (tmp_path / "bad.mtx").write_text("nothing")
    write(tmp_path / "good.mtx", entries_from(np.eye(8)))
    made = plan(patterns([tmp_path]), ["spmm"], n=[4], samples=4, device="null")
    return sorted(made, key=lambda job: job.name)


def test_a_job_is_run_by_the_node_and_its_records_come_back(jobs: list[Job]) -> None:
    executor = Thread()
    bad, good = (executor.submit(job) for job in jobs)
    executor.shutdown()
    assert executor.closed
    assert {record.provenance["job"] for record in good.result()} == {jobs[1].id}
    assert len(good.result()) == 6
    with pytest.raises(MeasurementError, match="bad"):
        bad.result()


def test_a_lost_node_is_no_other_error(jobs: list[Job]) -> None:
    def raises(error: Exception) -> Callable[..., Any]:
        def task(*arguments: Any) -> Any:
            raise error

        return task

    lost = Thread(task=raises(EOFError("gone"))).submit(jobs[1]).exception()
    assert isinstance(lost, WorkerLostError)
    assert (lost.status, str(lost)) == ("crash", "its node was lost: gone")
    other = Thread(task=raises(ModuleNotFoundError("tensorwise"))).submit(jobs[1]).exception()
    assert type(other) is MeasurementError
    assert "no node can run it: ModuleNotFoundError: tensorwise" in str(other)


def test_without_a_slot_or_a_cluster_nothing_begins() -> None:
    with pytest.raises(MeasurementError, match=r"at here has the resource 'tensorwise'; .* a needle"):
        Thread("here", slots=0)
    with pytest.raises(MeasurementError, match="the cluster at nowhere cannot be reached: refused"):
        Thread("nowhere")


def test_nodes_that_come_are_used_and_what_runs_is_given_up(jobs: list[Job]) -> None:
    held = threading.Event()
    executor = Thread(task=lambda *arguments: held.wait() and {"records": []})
    executor.count = 3
    future = executor.submit(jobs[1])
    assert executor.slots == 3
    executor.shutdown(wait=False)
    held.set()
    assert (executor.given_up, executor.closed, future.cancelled()) == (1, True, True)
