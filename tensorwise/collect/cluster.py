"""What the executors on clusters share; ``ray.py`` and ``dask.py`` only differ in how a task is started.

A node runs a job as this machine would: in a worker process that may die or hang (``LocalExecutor``). The cluster finds a
free slot, and another node when one is lost. A slot is a unit of the resource ``tensorwise``;
a node has one for each of its devices, so that nothing else of ours runs beside a measurement. A job that is for a kind of
machines also takes a unit of ``tensorwise-KIND``, which only nodes of that kind have.

Starting or joining a cluster opens ports, and anyone who reaches them can run code there: it is only done on request.
"""

import abc
import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from typing import Any, Final, Protocol, Self

from tensorwise.collect.executors import (
    SILENCE_S,
    Executor,
    ExecutorOptions,
    LocalExecutor,
    WorkerLostError,
    records_in,
)
from tensorwise.collect.job import Job
from tensorwise.errors import MeasurementError, TensorwiseError
from tensorwise.store.record import Record

SLOT: Final = "tensorwise"
"""The resource of which a job takes a unit."""
COUNT_S: Final = 5.0
"""Seconds between two counts of the nodes: one of a thousand takes some milliseconds."""


def needed(kind: str) -> dict[str, int]:
    """Return the units of resources that a job for a kind of machines takes."""
    return {SLOT: 1, f"{SLOT}-{kind}": 1} if kind else {SLOT: 1}


class ClusterFuture(Protocol):
    """The interface of a cluster's futures that an executor needs."""

    def add_done_callback(self, function: Callable[[Any], None], /) -> None:
        """Call ``function`` with the task once it has ended."""

    def result(self) -> Any:
        """Return what :func:`run` returned, or raise what went wrong."""


class ClusterExecutor(Executor[Job]):
    """Runs jobs on the nodes of a cluster, which find the jobs' files under the same paths as this machine.

    Without an address a cluster is started here; it listens on 127.0.0.1 at most, and ends with ``shutdown``.

    Args:
        address: of a running cluster.
        slots: of one that is started here.
        silence_s: see ``LocalExecutor``.
        command: see ``LocalExecutor``.

    Raises:
        MissingExtraError: the cluster's package is not installed.
        MeasurementError: the cluster cannot be started or reached, or no node has a slot.
    """

    losses: tuple[type[BaseException], ...]
    """What a task raises when its node was lost; the driver submits the job again."""
    how_to_join: str
    """The command that adds a node with a slot."""

    def __init__(
        self,
        address: str | None = None,
        slots: int = 1,
        silence_s: float = SILENCE_S,
        command: Sequence[str] = (),
    ) -> None:
        self.remote = address is not None
        self._owner = uuid.uuid4().hex
        self._orders = silence_s, list(command)
        self._tasks: dict[Future[list[Record]], ClusterFuture] = {}
        self._lock = threading.Lock()
        self._kinds = {""}
        """Kinds of which there were nodes: a last one that went may come back."""
        self._counted: dict[str, tuple[float, int]] = {}
        """Resource -> when its units were counted, and how many there were."""
        try:
            self._open(address, slots)
        except TensorwiseError:
            raise
        except Exception as error:  # sockets, time-outs, versions that do not go together
            raise MeasurementError(
                f"{f'the cluster at {address} cannot be reached' if address else 'no cluster can be started here'}: "
                f"{error or type(error).__name__}"
            ) from error
        self.slots = self._count(SLOT)
        if not self.slots:
            self._close()
            raise MeasurementError(
                f"no node of the cluster at {address} has the resource {SLOT!r}; add nodes with: {self.how_to_join}"
            )

    @classmethod
    def from_options(cls, options: ExecutorOptions) -> Self:
        """Connect to the cluster at the address, or start one on this machine."""
        return cls(**options.select_given("address", "slots", "silence_s"))

    def submit(self, job: Job) -> "Future[list[Record]]":
        future: Future[list[Record]] = Future()
        if job.kind not in self._kinds and not self._count(f"{SLOT}-{job.kind}"):
            future.set_exception(
                MeasurementError(
                    f"no node of the cluster has the resource '{SLOT}-{job.kind}', of machines of the kind {job.kind!r}"
                )
            )
            return future
        self._kinds.add(job.kind)
        task = self._begin(needed(job.kind), self._owner, job.to_json(), *self._orders)
        with self._lock:
            self._tasks[future] = task
        task.add_done_callback(lambda _: self._end(future))
        self.slots = self.capacity("")
        return future

    def capacity(self, kind: str) -> int:
        """Return how many slots there are for a kind, as of some seconds ago; at least 1, since a node may come back."""
        resource = f"{SLOT}-{kind}" if kind else SLOT
        when, count = self._counted.get(resource, (-math.inf, 0))
        if time.monotonic() - when > COUNT_S:
            count = max(self._count(resource), 1)
            self._counted[resource] = time.monotonic(), count
        return count

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End. What was submitted counts as begun, since no more is submitted than there are slots."""
        with self._lock:
            tasks = dict(self._tasks)
        if wait:
            futures.wait(tasks)
        if left := [task for future, task in tasks.items() if future.cancel()]:
            self._give_up(left)
        self._close()

    def _end(self, future: "Future[list[Record]]") -> None:
        with self._lock:
            task = self._tasks.pop(future)
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(records_in(task.result()) or [])
        except self.losses as error:
            future.set_exception(WorkerLostError("crash", f"its node was lost: {error}"))
        except TensorwiseError as error:
            future.set_exception(error)
        except BaseException as error:  # a future that never ends would stop everything
            future.set_exception(MeasurementError(f"no node can run it: {type(error).__name__}: {error}"))

    @abc.abstractmethod
    def _open(self, address: str | None, slots: int) -> None:
        """Connect to the cluster at ``address``, or start one on this machine."""

    @abc.abstractmethod
    def _count(self, resource: str) -> int:
        """Return how many units of a resource the cluster has now."""

    @abc.abstractmethod
    def _begin(self, resources: Mapping[str, int], *arguments: Any) -> ClusterFuture:
        """Have a node that has the resources call :func:`run`."""

    @abc.abstractmethod
    def _give_up(self, tasks: Sequence[Any]) -> None:
        """End tasks that were begun."""

    @abc.abstractmethod
    def _close(self) -> None:
        """Leave the cluster; end it if it was started here."""


_RUNNING: Final[set[tuple[str, LocalExecutor]]] = set()


def run(owner: str, job: Mapping[str, Any], silence_s: float, command: Sequence[str]) -> dict[str, object]:
    """Run a job on this node; return what ``serve.py`` answers (records as rows), an error, or that the worker was lost."""
    executor = LocalExecutor(1, silence_s, command)
    _RUNNING.add((owner, executor))
    try:
        mine = Job.from_json(job)
        return {"records": [record.to_row() for record in executor.submit(mine).result()]}
    except WorkerLostError as error:
        return {"lost": str(error)}
    except TensorwiseError as error:
        return {"error": str(error)}
    finally:
        _RUNNING.discard((owner, executor))
        executor.shutdown(wait=False)


def give_up(owner: str) -> None:
    """End what this process runs for ``owner``, where the cluster cannot end a task."""
    for whose, executor in list(_RUNNING):
        if whose == owner:
            executor.shutdown(wait=False)
