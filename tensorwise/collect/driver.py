"""Driver: jobs are run by an executor, and their records are appended to a store in batches.

Any number of drivers may work at one store, on one machine or on several: a ledger beside the store says who runs what.
Each may die at any moment. What is in the store stays. A job that was under way is lost as a whole; another driver, or the
same call repeated, runs it again. A job with records in the store is done. Of several results for one job the first stays.
"""

import contextlib
import math
import queue
import re
import secrets
import socket
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar, final

from tensorwise.collect.collected import Collected
from tensorwise.collect.executors import TRIES, AnyJob, Executor, WorkerLostError, explain
from tensorwise.collect.ledger import BEAT_S, LEASE_S, Ledger
from tensorwise.errors import TensorwiseError
from tensorwise.moved import forward_names
from tensorwise.store.finished import FinishedJobs, JobRecords
from tensorwise.store.parts import PartStore
from tensorwise.store.record import Record
from tensorwise.store.store import Store

__getattr__ = forward_names(__name__, {"EXECUTORS": "tensorwise.collect.opening"})
J = TypeVar("J", bound=AnyJob)
Observe = Callable[[Any, Collected], None]
"""Called with each job that ended, and how the collection stands."""
_STRAGGLERS: Final = 2.0
"""A job that has run for longer than the median by this factor is begun once more where a node is idle at the end."""
_MANY: Final = 64
"""From so many jobs in flight on they are submitted several at a time."""
_SAMPLE: Final = 256
"""Durations of which the median is taken."""


@final
@dataclass(frozen=True)
class Limits:
    """How much a driver holds, and how long it waits.

    A driver holds a few dozen bytes for each planned job, and besides at most ``in_flight`` jobs that were submitted, and
    one batch of results. It submits nothing while it appends, so that a slow store slows the nodes.

    Attributes:
        in_flight: jobs that are submitted at a time, if the executor has slots for so many.
        batch_jobs: results that are appended together. Default: a sixteenth of the slots, 1 to 256, so that with few slots
            each result is appended when it is there.
        batch_bytes: fewer results are appended when their records take so many bytes as JSON;
        batch_s: or when the first of them has waited for so many seconds.
        gather_s: with many jobs in flight, seconds for which answers are gathered before the next jobs are submitted.
        look_s: seconds between two looks at what other drivers do.
        beat_s: seconds between two signs of life in the ledger.
        lease_s: a driver on another machine that gave none for so many seconds is taken for dead.
        patience_s: a job that was submitted so many seconds ago is begun again; its node may still answer first.
    """

    in_flight: int = 20_000
    batch_jobs: int | None = None
    batch_bytes: int = 64 * 2**20
    batch_s: float = 5.0
    gather_s: float = 0.2
    look_s: float = 0.5
    beat_s: float = BEAT_S
    lease_s: float = LEASE_S
    patience_s: float = 3600.0


class JobStore(Protocol):
    """What a driver needs of a store: ``Store`` and ``PartStore`` have it."""

    def finished(self) -> FinishedJobs:
        """Return the jobs that have records, as of now."""

    def append_jobs(self, results: Sequence[JobRecords], *, anywhere: bool = False) -> list[JobRecords]:
        """Append records of whole jobs; return those that were not there yet."""


def collect(
    jobs: Sequence[J],
    store: Store | PartStore,
    executor: Executor[J],
    *,
    budget_s: float = math.inf,
    anywhere: bool = False,
    observe: Observe | None = None,
    complete: Callable[[J], J] | None = None,
    limits: Limits = Limits(),
) -> Collected:
    """Run the jobs that are left and append their records to ``store``.

    Other calls, in other processes or on other machines, may do the same at the same time. This one returns when all jobs
    are done by any of them. Ctrl-C abandons running jobs and returns. The executor is shut down at the end. A job whose
    worker or node is lost is run again after all others, with at most ``TRIES`` attempts; only measurements are recorded.

    Args:
        jobs: the same for all calls; an iterable that is read one job at a time.
        budget_s: seconds after which no further job is started.
        anywhere: a job is done when the store has records of any device for it, not only of this machine; and when no
            jobs are left to start, slow ones are started a second time on idle nodes.
        observe: called with each job that ended.
        complete: called with a job before it is run; returns it with details filled in (such as ``named``), same id.
        limits: see Limits.

    Raises:
        StoreError: the store or the ledger cannot be written.
    """
    clean = False
    try:
        ledger = ledger_of(store)
        name = f"{re.sub('[^A-Za-z0-9]', '-', socket.gethostname())[:40]}-{secrets.token_hex(6)}"
        with ledger.hold(name):
            driver = _Driver(
                name, jobs, store, executor, ledger, budget_s, anywhere, observe, complete, limits
            )
            try:
                driver.run()
                clean = not driver.flights
            except KeyboardInterrupt:
                driver.found.interrupted = True
                driver.append()
            ledger.remove(name)
        driver.found.seconds = time.monotonic() - driver.start
        if anywhere:
            driver.found.mixed = mixed_kinds(jobs, store)
        return driver.found
    finally:
        executor.shutdown(wait=clean, cancel_futures=True)


def ledger_of(store: Store | PartStore) -> Ledger:
    """Return the ledger of the drivers that append to a store."""
    if isinstance(store, PartStore):
        return Ledger(store.path / "drivers")
    return Ledger(store.path.with_name(f"{store.path.name}.drivers"))


@dataclass(eq=False)
class _Flight(Generic[J]):
    """A job that was submitted, and when; ``late`` once it was taken for lost."""

    place: int
    job: J
    since: float
    late: bool = False


@final
@dataclass
class _Driver(Generic[J]):
    name: str
    jobs: Sequence[J]
    store: JobStore
    executor: Executor[J]
    ledger: Ledger
    budget_s: float
    anywhere: bool
    observe: Observe | None
    complete: Callable[[J], J] | None
    limits: Limits
    flights: "dict[Future[list[Record]], _Flight[J]]" = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start = time.monotonic()
        self._answers: queue.SimpleQueue[Future[list[Record]]] = queue.SimpleQueue()
        self._flying: Counter[str] = Counter()
        """Job id -> how often it is in flight, the late ones left out."""
        self._busy: Counter[str] = Counter()
        """Kind of machines -> jobs in flight."""
        self._held: dict[str, int] = {}
        """Id -> place of jobs that other drivers run."""
        self._ended: set[str] = set()
        """Ids of jobs that ended in this run, here or elsewhere."""
        self._ended_elsewhere: set[str] = set()
        self._answered: set[str] = set()
        """Ids of the jobs in the batch."""
        self._given_up: dict[str, tuple[list[str], str]] = {}
        """Id of a job that ended without records -> the list of reasons that tells so, and its reason."""
        self._device_ids: dict[tuple[str, str, str], str] = {}
        """Kind of machines, device and threads -> id of the device that measured the first job of these."""
        self._batch: list[tuple[J, JobRecords]] = []
        self._batch_bytes = 0
        self._batch_since = self._looked = self._beat = self.start
        self._durations: deque[float] = deque(maxlen=_SAMPLE)
        self.ledger.refresh()
        self.ledger.remove_dead()
        self._losses_before = {job: len(times) for job, times in self.ledger.lost.items()}
        self._failed_before = set(self.ledger.failed)
        self._finished = self.store.finished()
        self._devices = {} if self.anywhere else _devices(self.jobs)
        self._left = self._plan()
        left = sum(map(len, self._left.values()))
        self.found = Collected(len(self.jobs), len(self.jobs) - left)

    def _plan(self) -> dict[str, deque[int]]:
        """Return the places of the jobs that are left, by the kind of machines that they are for."""
        left: dict[str, deque[int]] = {}
        known: set[str] = set()
        for place, job in enumerate(self.jobs):
            if self._is_finished(job):
                self._note_device(job, self._finished.get_device(job.id))
            elif job.id not in known:
                known.add(job.id)
                left.setdefault(_kind(job), deque()).append(place)
        if self.ledger.others(self.name, self.limits.lease_s):
            for places in left.values():  # another begins at the front
                places.rotate(secrets.randbelow(len(places)))
        return left

    def run(self) -> None:
        """Run jobs until none is left, or the time is up."""
        while not self._is_over():
            self._look()
            self._submit()
            self._take()
            if self._is_due():
                self.append()

    def _is_over(self) -> bool:
        if self._batch:
            return False
        waited_for = [one for one in self.flights.values() if not one.late and not self._is_ended(one.job)]
        if waited_for:
            return False
        return self._time_is_up() or not (self._held or any(self._left.values()) or self._is_waiting())

    def _is_waiting(self) -> bool:
        """Whether a late job may still be done by its node only."""
        return any(not self._is_ended(one.job) for one in self.flights.values())

    def _time_is_up(self) -> bool:
        return time.monotonic() - self.start >= self.budget_s

    # -- other drivers ---------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Give a sign of life, see what other drivers have done, and which jobs are late."""
        now = time.monotonic()
        if now - self._beat >= self.limits.beat_s:
            self._beat = now
            self.ledger.append(self.name, {"beat": len(self.flights)})
        if now - self._looked < self.limits.look_s:
            return
        self.ledger.refresh()
        self._finished = self.store.finished()
        for job_id, place in list(self._held.items()):
            job = self.jobs[place]
            if self._is_ended(job):
                del self._held[job_id]
                self._note_elsewhere(job)
            elif not self.ledger.rivals(job_id, self.name, self.limits.lease_s):
                del self._held[job_id]
                self._left.setdefault(_kind(job), deque()).append(place)
        for places in self._left.values():
            while places and self._is_ended(self.jobs[places[0]]):
                self._note_elsewhere(self.jobs[places.popleft()])
        for flight in list(self.flights.values()):
            if self._is_ended(flight.job):
                self._note_elsewhere(flight.job)
            elif not flight.late and now - flight.since > self.limits.patience_s:
                flight.late = True
                self._land(flight.job)
                self._lose(flight, WorkerLostError("timeout", f"no answer for {self.limits.patience_s:g} s"))
        # Looking takes at most a twentieth of the time, however many jobs others hold.
        self._looked = time.monotonic() + 19 * (time.monotonic() - now)

    def _is_finished(self, job: J) -> bool:
        device = None if self.anywhere else self._devices[job.device, job.threads]
        return self._finished.has(job.id, device)

    def _is_ended(self, job: J) -> bool:
        """Whether a job is done, by this driver or by another one."""
        return (
            job.id in self._ended
            or self._is_finished(job)
            or (job.id in self.ledger.failed and job.id not in self._failed_before)
            or self._losses(job) >= TRIES
        )

    def _losses(self, job: J) -> int:
        """Return how often all drivers have lost a job since this one began."""
        return len(self.ledger.lost.get(job.id, ())) - self._losses_before.get(job.id, 0)

    def _note_device(self, job: J, device: str | None) -> None:
        if self.anywhere and device is not None:
            self._device_ids.setdefault(_machines(job), device)

    def _check_device(self, job: J, device: str) -> None:
        """Refuse a result of a device that differs from those of the other jobs for the same kind of machines."""
        expected = self._device_ids.get(_machines(job), device)
        if self.anywhere and device != expected:
            kind = f"machines of the kind {_kind(job)!r}" if _kind(job) else "machines without a --kind"
            raise WorkerLostError(
                "crash",
                f"a node of the device {device} has measured it, and other jobs for {kind} were measured on the device "
                f"{expected}; plan jobs with a --kind for each sort of node, or collect into another store",
            )

    def _note_elsewhere(self, job: J) -> None:
        if job.id not in self._ended:
            self._ended.add(job.id)
            self._ended_elsewhere.add(job.id)
            self.found.elsewhere += 1
            self._note_device(job, self._finished.get_device(job.id))
            self.ledger.forget(job.id)

    # -- submission ------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        """Claim and submit as many jobs as there are free slots."""
        if self._time_is_up():
            return
        room = min(self.executor.slots, self.limits.in_flight) - len(self.flights)
        if room <= 0:
            return
        chosen: list[tuple[int, J]] = []
        if any(self._left.values()):
            self.ledger.refresh()
        for kind in self._left:
            free = min(self.executor.capacity(kind) - self._busy[kind], room - len(chosen))
            chosen += self._next(kind, free)
        if chosen:
            self.ledger.append(self.name, *({"claim": job.id} for _, job in chosen))
            self.ledger.refresh()
            for place, job in chosen:
                rivals = self.ledger.rivals(job.id, self.name, self.limits.lease_s)
                if any(other < self.name for other in rivals):
                    self._held[job.id] = place  # claimed at the same moment: the first by name runs it
                else:
                    self._begin(place, job)
        elif self.anywhere and not any(self._left.values()):
            late = list(self._stragglers(room))
            if late:
                self.ledger.append(self.name, *({"claim": job.id} for _, job in late))
            for place, job in late:
                self.found.redone += 1
                self._begin(place, job)

    def _next(self, kind: str, count: int) -> Iterator[tuple[int, J]]:
        """Yield up to ``count`` jobs that nobody runs."""
        places = self._left[kind]
        while count > 0 and places:
            place = places.popleft()
            job = self.jobs[place]
            if job.id in self._answered:  # by a node that was late
                continue
            if self._is_ended(job):
                self._note_elsewhere(job)
            elif self.ledger.rivals(job.id, self.name, self.limits.lease_s):
                self._held[job.id] = place
            else:
                count -= 1
                yield place, job

    def _stragglers(self, count: int) -> Iterator[tuple[int, J]]:
        """Yield jobs of this driver and of others that take long, for nodes that would be idle."""
        if len(self._durations) < 2:
            return
        now, long_s = time.monotonic(), _STRAGGLERS * statistics.median(self._durations)
        begun = [(one.since, one.place, one.job) for one in self.flights.values() if not one.late]
        for job_id, place in self._held.items():
            begun.append((self.ledger.claimed_at.get(job_id, now), place, self.jobs[place]))
        for since, place, job in sorted(begun, key=lambda one: one[0]):
            if count <= 0 or now - since <= long_s:
                return
            copies = self._flying[job.id] + len(self.ledger.rivals(job.id, self.name, self.limits.lease_s))
            free = self._busy[_kind(job)] < self.executor.capacity(_kind(job))
            if copies == 1 and free and not self._is_ended(job) and job.id not in self._answered:
                count -= 1
                yield place, job

    def _begin(self, place: int, job: J) -> None:
        job = job if self.complete is None else self.complete(job)
        try:
            future = self.executor.submit(job)
        except TensorwiseError as error:  # the others go on
            future = Future()
            future.set_exception(error)
        self.flights[future] = _Flight(place, job, time.monotonic())
        self._flying[job.id] += 1
        self._busy[_kind(job)] += 1
        future.add_done_callback(self._answers.put)

    # -- results ---------------------------------------------------------------------------------------------------

    def _take(self) -> None:
        """Wait a moment for answers, and take all that are there."""
        with contextlib.suppress(queue.Empty):
            self._answer(self._answers.get(timeout=self.limits.look_s))
            if len(self.flights) >= _MANY:
                time.sleep(self.limits.gather_s)
            while True:
                self._answer(self._answers.get_nowait())

    def _answer(self, future: "Future[list[Record]]") -> None:
        flight = self.flights.pop(future)
        job = flight.job
        self._busy[_kind(job)] -= 1
        if not flight.late:
            self._land(job)
        try:
            records = future.result()
            if not records or not all(_is_of(record, job) for record in records):
                raise WorkerLostError("crash", "its answer is that of another job")
            self._check_device(job, records[0].device_id)
        except WorkerLostError as error:
            if not flight.late:
                self._lose(flight, error)
        except TensorwiseError as error:
            if not self._is_ended(job):
                self.ledger.append(self.name, {"job": job.id, "error": explain(job, error)})
                self._give_up(job, self.found.failed, error)
        except CancelledError:
            pass
        else:
            self._note_device(job, records[0].device_id)
            self._durations.append(time.monotonic() - flight.since)
            self._batch_since = self._batch_since if self._batch else time.monotonic()
            self._batch.append((job, JobRecords.of(job.id, records)))
            self._answered.add(job.id)
            self._batch_bytes += len(records) * len(records[0].to_json())

    def _land(self, job: J) -> None:
        self._flying[job.id] -= 1
        if not self._flying[job.id]:
            del self._flying[job.id]

    def _lose(self, flight: "_Flight[J]", error: WorkerLostError) -> None:
        """Begin a job again after all others, unless that was done often enough, or another node runs it."""
        job = flight.job
        if self._is_ended(job) or job.id in self._answered:
            return
        line = {"job": job.id, "lost": explain(job, error)}
        self.ledger.append(self.name, *[line] * error.tries)
        self.ledger.refresh()
        if self._losses(job) >= TRIES:
            self._give_up(job, self.found.lost, error)
        elif job.id not in self._flying:
            self.found.redone += 1
            self._left.setdefault(_kind(job), deque()).append(flight.place)

    def _give_up(self, job: J, reasons: list[str], error: TensorwiseError) -> None:
        self._ended.add(job.id)
        reasons.append(explain(job, error))
        self._given_up[job.id] = reasons, reasons[-1]
        self._tell(job)

    def _is_due(self) -> bool:
        """Whether the batch is to be appended."""
        most = self.limits.batch_jobs or min(max(self.executor.slots // 16, 1), 256)
        return bool(self._batch) and (
            len(self._batch) >= most
            or self._batch_bytes >= self.limits.batch_bytes
            or time.monotonic() - self._batch_since >= self.limits.batch_s
            or (
                not any(not one.late for one in self.flights.values())
                and (self._time_is_up() or not any(self._left.values()))
            )
        )

    def append(self) -> None:
        """Append the batch to the store; results of jobs that others have finished are dropped."""
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        self._answered.clear()
        new = {id(one) for one in self.store.append_jobs([one for _, one in batch], anywhere=self.anywhere)}
        self._finished = self.store.finished()
        for job, one in batch:
            if id(one) not in new:
                self.found.dropped += 1
                self._note_elsewhere(job)
                continue
            if job.id in self._ended_elsewhere:  # others gave it up, and its node here did not
                self._ended_elsewhere.discard(job.id)
                self.found.elsewhere -= 1
            if job.id in self._given_up:  # its node answers after all: it counts once, as measured
                reasons, reason = self._given_up.pop(job.id)
                reasons.remove(reason)
            self._ended.add(job.id)
            self._held.pop(job.id, None)
            self.ledger.forget(job.id)
            self.found.note(one.records)
            self._tell(job)

    def _tell(self, job: J) -> None:
        self.found.seconds = time.monotonic() - self.start
        if self.observe is not None:
            self.observe(job, self.found)


def _kind(job: AnyJob) -> str:
    return getattr(job, "kind", "")


def _machines(job: AnyJob) -> tuple[str, str, str]:
    """Return the kind of machines that a job is for, its device, and its threads: one device id measures them."""
    return _kind(job), str(job.device), str(job.threads)


def _is_of(record: Record, job: AnyJob) -> bool:
    """Whether a record is of a job, and of the kind of machines that it is for."""
    return record.has_fact("job", job.id) and (not _kind(job) or record.has_fact("kind", _kind(job)))


def _devices(jobs: Sequence[AnyJob]) -> dict[tuple[str, int | tuple[int, ...]], str]:
    """Return the ids of the devices of this machine that jobs are measured on."""
    devices: dict[tuple[str, int | tuple[int, ...]], str] = {}
    for job in jobs:
        if (job.device, job.threads) not in devices:
            with job.open() as device:
                devices[job.device, job.threads] = device.id
    return devices


def mixed_kinds(jobs: Sequence[AnyJob], store: JobStore) -> list[str]:
    """Return the kinds of machines whose records come from different hardware, which must not be mixed in one sample.

    For collections on machines that take jobs from each other: there a job is done when one of them has measured it.
    """
    groups = {job.id: _machines(job) for job in jobs}
    found: dict[tuple[str, str, str], dict[str, int]] = {}
    for job, device in store.finished().pairs:
        if job in groups:
            counts = found.setdefault(groups[job], {})
            counts[device] = counts.get(device, 0) + 1
    return [
        f"jobs{f' of the kind {kind!r}' if kind else ''} were measured on {len(counts)} different devices ("
        + ", ".join(f"{device}: {count} jobs" for device, count in sorted(counts.items()))
        + "): do not compare their times; give each kind of machine jobs of its own with --kind"
        for (kind, _, _), counts in found.items()
        if len(counts) > 1
    ]
