"""Executors: where jobs are run. The smallest thing shaped like ``concurrent.futures``: submit, shutdown, a Future.

``local`` runs them on this machine, in processes of their own. ``spool`` writes them into a folder, from which other
machines take them (``spool.py``). No port is opened; only a cluster, where one is asked for, does (``cluster.py``).
Another kind is a leaf file and a row of ``EXECUTORS`` (``opening.py``), or an entry point of another package.
"""

import abc
import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar, final

from tensorwise.collect.job import Job
from tensorwise.collect.staged_job import StagedJob
from tensorwise.collect.task_job import TaskJob
from tensorwise.device.device import Status
from tensorwise.errors import InputError, MeasurementError, TensorwiseError
from tensorwise.reading import parse_json, reading, shown
from tensorwise.registry import child_environment
from tensorwise.store.record import Record
from tensorwise.toolchain.forks import LOADING
from tensorwise.toolchain.threads import unbound

SILENCE_S: Final = 900.0
"""A worker gives a sign of life after every measurement; one that is silent for longer hangs. Reading a large file and
the reference of a large workload may take some minutes."""
START_S: Final = 60.0
"""A worker that has just been started may be silent for so long: on a busy machine imports take many seconds."""
TRIES: Final = 3
"""A worker may be lost by accident, and a node be taken: so often a job is begun before it is given up as lost."""


AnyJob: TypeAlias = Job | TaskJob | StagedJob
"""What is collected."""
J = TypeVar("J", bound=AnyJob, contravariant=True)
"""The jobs that an executor runs."""


class WorkerLostError(MeasurementError):
    """The worker or node of a job died (``crash``) or hung (``timeout``).

    This tells nothing about the job or its configs, so nothing is recorded, and the job is to be run again. ``tries`` is how
    often it was started, for executors whose workers repeat jobs themselves.
    """

    def __init__(self, status: Status, note: str, tries: int = 1) -> None:
        super().__init__(note)
        self.status, self.tries = status, tries


@final
@dataclass(frozen=True)
class ExecutorOptions:
    """What an executor may be given when it is started; each uses what it understands. None: its default.

    Attributes:
        address: where the nodes are found: ``HOST:PORT`` of a cluster, the folder of a spool.
        slots: jobs that run at a time on this machine.
        silence_s: seconds without a sign of life after which a worker process is killed.
    """

    address: str | None = None
    slots: int | None = None
    silence_s: float | None = None

    def select_given(self, *names: str) -> dict[str, Any]:
        """Return those of the options ``names`` that are not None, as keyword arguments."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class Executor(abc.ABC, Generic[J]):
    """Runs jobs. Lifetime: ``submit`` any number, then ``shutdown``, after which nothing is running.

    Attributes:
        slots: number of jobs that run at a time; further jobs wait.
        remote: whether other machines may run the jobs. A job is done then when any device has measured it.
    """

    slots: int
    remote: bool = True

    def capacity(self, kind: str) -> int:
        """Return the maximum number of concurrent jobs for a kind of machines."""
        return self.slots

    @abc.abstractmethod
    def submit(self, job: J) -> "Future[list[Record]]":
        """Return the future of the job's records.

        Its exception is WorkerLostError when the job's worker died or hung and the job should be submitted again, else a
        TensorwiseError that says why the job cannot be run at all.
        """

    @abc.abstractmethod
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End. Without ``wait`` what is running is given up; ``cancel_futures`` drops what has not begun."""


@final
class LocalExecutor(Executor[AnyJob]):
    """One worker process for each slot, started when it is needed. A worker that dies or hangs costs its job only.

    Devices let only one process of the machine time at a time, so more than one slot is of use
    only where there are several devices, or where jobs are `preparing` for a good part of their time.

    Args:
        slots: worker processes.
        silence_s: seconds without a sign of life after which a worker is killed.
        command: starts a worker (default: ``python -m tensorwise.collect.serve``).
    """

    remote = False

    def __init__(self, slots: int = 1, silence_s: float = SILENCE_S, command: Sequence[str] = ()) -> None:
        self.slots = slots
        self._silence_s = silence_s
        self._command = list(command) or [sys.executable, "-P", "-m", "tensorwise.collect.serve"]
        self._queue: queue.SimpleQueue[tuple[AnyJob, Future[list[Record]]] | None] = queue.SimpleQueue()
        self._given_up = threading.Event()
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._spoke: set[int] = set()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._serve, args=(k,), daemon=True) for k in range(slots)]
        for thread in self._threads:
            thread.start()

    @classmethod
    def from_options(cls, options: ExecutorOptions) -> Self:
        """Start worker processes on this machine.

        Raises:
            InputError: an address is given.
        """
        if options.address is not None:
            raise InputError(f"the executor local runs jobs on this machine, got address {options.address!r}")
        return cls(**options.select_given("slots", "silence_s"))

    def submit(self, job: AnyJob) -> "Future[list[Record]]":
        future: Future[list[Record]] = Future()
        self._queue.put((job, future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures or not wait:
            with contextlib.suppress(queue.Empty):
                while True:
                    waiting = self._queue.get_nowait()
                    if waiting is not None:
                        waiting[1].cancel()
        if not wait:
            self._given_up.set()
            with self._lock:
                for worker in self._workers.values():
                    worker.kill()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self, slot: int) -> None:
        """Run jobs in the worker of ``slot`` until told to end."""
        while (item := self._queue.get()) is not None:
            job, future = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._run(slot, job))
            except BaseException as error:  # a future that never ends would stop everything
                future.set_exception(error)
        self._end(slot)

    def _run(self, slot: int, job: AnyJob) -> list[Record]:
        try:
            return self._ask(self._worker(slot), job)
        except WorkerLostError:
            self._end(slot)
            if self._given_up.is_set():
                raise MeasurementError("given up: the executor was shut down") from None
            raise

    def _ask(self, worker: subprocess.Popen[bytes], job: AnyJob) -> list[Record]:
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            worker.stdin.write(json.dumps(job.to_json()).encode() + b"\n")
            worker.stdin.flush()
        except OSError as error:
            raise WorkerLostError("crash", f"the worker is gone: {error}") from error
        descriptor, pieces = worker.stdout.fileno(), [b""]
        while True:
            patience_s = self._silence_s if worker.pid in self._spoke else max(self._silence_s, START_S)
            ready, _, _ = select.select([descriptor], [], [], patience_s)
            data = os.read(descriptor, 1 << 20) if ready else b""
            if not ready:
                raise WorkerLostError("timeout", f"the worker gave no sign of life for {patience_s:g} s")
            if not data:
                raise WorkerLostError("crash", f"the worker ended with status {worker.wait()}")
            self._spoke.add(worker.pid)
            pieces.append(data)
            if b"\n" not in data:
                continue
            *lines, rest = b"".join(pieces).split(b"\n")
            pieces = [rest]
            for line in lines:
                try:
                    records = records_in(parse_json(line, "a worker's answer"))
                except InputError as error:
                    raise WorkerLostError("crash", f"the worker's answer cannot be read: {error}") from error
                if records is not None:
                    return records

    def _worker(self, slot: int) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._given_up.is_set():
                raise MeasurementError("given up: the executor was shut down")
            if slot not in self._workers:
                with unbound(), LOADING:
                    self._workers[slot] = subprocess.Popen(
                        self._command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=None if os.environ.get("TENSORWISE_DEBUG") else subprocess.DEVNULL,
                        env=child_environment(),
                        process_group=0,  # Ctrl-C is for the process that was started by hand
                    )
            return self._workers[slot]

    def _end(self, slot: int) -> None:
        with self._lock:
            worker = self._workers.pop(slot, None)
        if worker is None:
            return
        self._spoke.discard(worker.pid)
        worker.kill()
        for pipe in (worker.stdin, worker.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        worker.wait()


def records_in(answer: Any) -> list[Record] | None:
    """Return the records in an answer of a worker or a node (see ``serve.py``); None if it is only a sign of life.

    A worker's records are JSON lines. A node's are rows, which it has read from its worker: their content ids are checked,
    and their texts are not parsed again.

    Raises:
        WorkerLostError: the device was lost over the job.
        MeasurementError: the job cannot be run.
        InputError: it is no answer, or a record has not the content that its id stands for.
    """
    if not isinstance(answer, Mapping):
        raise InputError(f"a worker's answer is a JSON object, got {shown(answer)}")
    with reading("a worker's answer is malformed"):
        if "lost" in answer:
            raise WorkerLostError("crash", str(answer["lost"]))
        if "error" in answer:
            raise MeasurementError(str(answer["error"]))
        if "records" not in answer:
            return None
        return [
            Record.from_json(one) if isinstance(one, str) else Record.from_row(one, parse=False)
            for one in answer["records"]
        ]


def explain(job: AnyJob, error: TensorwiseError) -> str:
    """Return in one line why a job could not be run."""
    return f"{job.label}: {' '.join(str(error).split())}"
