"""Collection: jobs are run by an executor, and each one's records are appended to the store in one transaction.

May be ended in any way at any time. What is in the store stays, what was under way is lost as a whole, and the same
call goes on with what is left: a job that has records of this device is done.
"""

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, final

from tensorwise.collect.dask import DaskExecutor
from tensorwise.collect.executors import TRIES, AnyJob, Executor, LocalExecutor, WorkerLostError, explain
from tensorwise.collect.ray import RayExecutor
from tensorwise.collect.spool import SpoolExecutor
from tensorwise.data.record import Record
from tensorwise.data.store import Store, exclusive
from tensorwise.errors import StoreError, TensorwiseError

EXECUTORS: Final[dict[str, type[Executor[Any]]]] = {
    "local": LocalExecutor,
    "spool": SpoolExecutor,
    "ray": RayExecutor,
    "dask": DaskExecutor,
}
"""Executors by name."""
_TICK_S: Final = 0.5
J = TypeVar("J", bound=AnyJob)


@final
@dataclass
class Collected:
    """How a collection stands.

    Attributes:
        planned: jobs in all; before: those that the store had when this run began.
        jobs: jobs finished in this run; records: their records; statuses: how those ended.
        failed: why jobs could not be run; they are tried again by the next run.
        lost: jobs whose workers or nodes were lost each time; nothing is recorded, and the next run tries them again.
        mixed: of which kinds of machines jobs were measured on devices that differ; see ``mixed_kinds``.
        redone: how often a job was begun again after its worker or node was lost.
        seconds: since this run began.
        interrupted: whether it was ended by hand.
    """

    planned: int
    before: int
    jobs: int = 0
    records: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)
    redone: int = 0
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def left(self) -> int:
        """Jobs neither done, nor failed, nor lost."""
        return self.planned - self.before - self.ended

    @property
    def ended(self) -> int:
        """Jobs of this run that are done, failed or lost."""
        return self.jobs + len(self.failed) + len(self.lost)

    @property
    def left_s(self) -> float:
        """Seconds that what is left will take at the pace so far; infinite before the first job is done."""
        return self.left * self.seconds / self.ended if self.ended else math.inf

    @property
    def per_minute(self) -> float:
        """Records a minute."""
        return 60 * self.records / self.seconds if self.seconds else 0.0

    def note(self, records: Sequence[Record]) -> None:
        """Count a finished job."""
        self.jobs += 1
        self.records += len(records)
        self.statuses.update(record.status for record in records)

    def to_json(self) -> dict[str, object]:
        """Return a JSON object; numbers may be infinite."""
        return {
            "planned": self.planned,
            "before": self.before,
            "jobs": self.jobs,
            "left": self.left,
            "records": self.records,
            "statuses": dict(self.statuses.most_common()),
            "failed": self.failed,
            "lost": self.lost,
            "mixed": self.mixed,
            "redone": self.redone,
            "seconds": self.seconds,
            "records_per_minute": self.per_minute,
            "left_s": self.left_s,
        }


Observe = Callable[[Any, Collected], None]
"""Called with each job that ended, and how the collection stands."""


def collect(
    jobs: Sequence[J],
    store: Store,
    executor: Executor[J],
    *,
    budget_s: float = math.inf,
    anywhere: bool = False,
    observe: Observe | None = None,
    complete: Callable[[J], J] | None = None,
) -> Collected:
    """Run the jobs that are left and append their records to ``store``.

    Ctrl-C gives up what is under way and returns. The executor is shut down in the end. A job whose worker or node is lost
    is begun again after all others, ``TRIES`` times in all; what is recorded was measured.

    Args:
        budget_s: no job is begun after so many seconds.
        anywhere: a job is done when any device's records are there, not only this machine's.
        observe: called with each job that ended.
        complete: says what is still to be said of a job that is about to be run; its id stays what it is.

    Raises:
        StoreError: the store cannot be written, or another collection is writing to it.
    """
    start = time.monotonic()
    pending: dict[Future[list[Record]], J] = {}
    tries: Counter[str] = Counter()
    clean = False
    try:
        with _alone(store):
            waiting = _left(jobs, store, anywhere)
            found = Collected(len(jobs), len(jobs) - len(waiting))
            waiting.reverse()
            try:
                while pending or (waiting and time.monotonic() - start < budget_s):
                    while waiting and len(pending) < executor.slots and time.monotonic() - start < budget_s:
                        job = waiting.pop()
                        job = job if complete is None else complete(job)
                        pending[_submitted(executor, job)] = job
                    ended, _ = wait(pending, _TICK_S, FIRST_COMPLETED)
                    for future in ended:
                        job = pending.pop(future)
                        try:
                            records = future.result()
                        except WorkerLostError as error:
                            tries[job.id] += error.tries
                            if tries[job.id] < TRIES:
                                found.redone += 1
                                waiting.insert(0, job)
                                continue
                            found.lost.append(explain(job, error))
                        except TensorwiseError as error:
                            found.failed.append(explain(job, error))
                        else:
                            store.append(records)
                            found.note(records)
                        found.seconds = time.monotonic() - start
                        if observe is not None:
                            observe(job, found)
                clean = True
            except KeyboardInterrupt:
                found.interrupted = True
            found.seconds = time.monotonic() - start
            if anywhere:
                found.mixed = mixed_kinds(jobs, store)
            return found
    finally:
        executor.shutdown(wait=clean, cancel_futures=True)


def _submitted(executor: Executor[J], job: J) -> "Future[list[Record]]":
    """Submit a job; one that cannot be submitted is a failed one, and the others go on."""
    try:
        return executor.submit(job)
    except TensorwiseError as error:
        future: Future[list[Record]] = Future()
        future.set_exception(error)
        return future


def _left(jobs: Sequence[J], store: Store, anywhere: bool) -> list[J]:
    """Jobs that are not in the store."""
    done = store.jobs()
    if anywhere:
        known = {job for job, _ in done}
        return [job for job in jobs if job.id not in known]
    devices: dict[tuple[str, int | tuple[int, ...]], str] = {}
    for job in jobs:
        if (job.device, job.threads) not in devices:
            with job.open() as device:
                devices[job.device, job.threads] = device.id
    return [job for job in jobs if (job.id, devices[job.device, job.threads]) not in done]


def mixed_kinds(jobs: Sequence[AnyJob], store: Store) -> list[str]:
    """Say which kinds of machines are several by their records: what was measured on different hardware is not one sample.

    For collections on machines that take jobs from each other: there a job is done when one of them has measured it.
    """
    groups = {job.id: (getattr(job, "kind", ""), str(job.device), str(job.threads)) for job in jobs}
    found: dict[tuple[str, str, str], dict[str, int]] = {}
    for job, device in store.jobs():
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


@contextlib.contextmanager
def _alone(store: Store) -> Iterator[None]:
    """Hold what only one collection may: two with the same plan would measure everything twice."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(exclusive(store.path.with_name(f"{store.path.name}.collecting"), 0.0))
        except StoreError as error:
            raise StoreError(
                f"another collection is writing to the store {store.path}; wait for it, or name another file with --store"
            ) from error
        yield
