"""A spool: a folder by which machines that cannot see each other, or only a shared disk, collect together.

    jobs.jsonl            a job a line
    patterns/             the files that the jobs need
    results/WORKER.jsonl  the journal of a worker (see ``ledger.py``), with {"job": JOB, "device": ID, "records": [...]}
                          after each job that was measured, and {"job": JOB, "unfit": WHY} for each that it leaves to others

A job's records are one line. Two workers that claim a job at the same moment may both measure it; gathering takes
one of the results. The folder may be copied to a machine and its ``results`` copied back.
"""

import contextlib
import json
import math
import os
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self, final, overload

from tensorwise.collect.executors import TRIES, Executor, ExecutorOptions, WorkerLostError, explain
from tensorwise.collect.job import NAME, Job
from tensorwise.collect.ledger import BEAT_S, LEASE_S, Ledger, append_text
from tensorwise.errors import InputError, MeasurementError, TensorwiseError
from tensorwise.ids import content_id
from tensorwise.reading import (
    open_regular,
    parse_json,
    printable,
    reading,
    reason,
    shown,
    user_path,
)
from tensorwise.store.finished import JobRecords
from tensorwise.store.parts import PartStore
from tensorwise.store.record import Record
from tensorwise.store.store import Store
from tensorwise.toolchain.threads import most_threads
from tensorwise.writing import replacing

_POLL_S: Final = 0.5
_GATHERED: Final = 100
"""Jobs that are appended to a store at a time."""
_PATTERN: Final = re.compile(r"patterns/[^/\0]+")
"""Where a spool keeps files: a plan from elsewhere names no other file of this machine."""


@final
class UnplannedError(InputError):
    """Jobs that were not written into a spool, since their files cannot be copied; ``planned`` others were."""

    def __init__(self, planned: int, left_out: int, problems: list[str]) -> None:
        super().__init__(
            "; ".join(problems[:9]) + (f"; and {len(problems) - 9} more" if problems[9:] else "")
        )
        self.planned, self.left_out, self.problems = planned, left_out, problems


@final
class PlannedJobs(Sequence[Job]):
    """The jobs of a spool's plan, read one at a time: a million take 40 MB."""

    def __init__(self, folder: Path, places: Sequence[int]) -> None:
        self._folder, self._places = folder, places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Job: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Job]: ...
    def __getitem__(self, place: int | slice) -> Job | Sequence[Job]:
        if isinstance(place, slice):
            return PlannedJobs(self._folder, self._places[place])
        begin = self._places[place]
        with open(self._folder / "jobs.jsonl", "rb") as file:
            file.seek(begin)
            return _job_of(file.readline(), self._folder)


@final
class Spool(Ledger):
    """The files of a spool: a plan, the patterns that it needs, and a ledger of workers that has their records, too.

    Args:
        folder: made if absent.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = user_path(folder).absolute()
        super().__init__(self.folder / "results")
        self.results = self.journals
        (self.folder / "patterns").mkdir(exist_ok=True)
        self.done: dict[str, str | None] = {}
        """Job id -> None, or why it cannot be run."""
        self.unfit: dict[str, dict[str, str]] = {}
        """Job id -> worker -> why it leaves the job to other machines."""
        self.odd: list[str] = []
        """Lines of ``jobs.jsonl`` that `jobs` could not read, and why; the others are done all the same."""
        self._planned: set[str] | None = None

    def plan(self, jobs: Iterable[Job]) -> int:
        """Write down the jobs that are not there yet, with their files; return how many are new.

        Raises:
            UnplannedError: some files cannot be copied; all other jobs are written down.
        """
        if self._planned is None:
            self._planned = {job.id for job in self.jobs()}
        new = [job for job in jobs if job.id not in self._planned]
        problems: dict[str, str] = {}
        for job in {_pattern_path(job): job for job in new}.values():
            target = self.folder / _pattern_path(job)
            try:
                if not target.exists():
                    with open_regular(job.path) as source, replacing(target) as file:
                        shutil.copyfileobj(source, file)
            except (OSError, ValueError) as error:
                problems[_pattern_path(job)] = (
                    f"{printable(job.path)}: cannot be copied into the spool ({reason(error)})"
                )
        planned = [job for job in new if _pattern_path(job) not in problems]
        if planned:
            lines = [json.dumps(replace(job, path=_pattern_path(job)).to_json()) for job in planned]
            append_text(self.folder / "jobs.jsonl", "".join(f"{line}\n" for line in lines))
            self._planned.update(job.id for job in planned)
        if problems:
            raise UnplannedError(len(planned), len(new) - len(planned), list(problems.values()))
        return len(planned)

    def jobs(self) -> list[Job]:
        """Return the jobs in the order planned."""
        return list(self.planned())

    def planned(self) -> "PlannedJobs":
        """Return the jobs in the order planned; each is read from the file when it is its turn."""
        path, places = self.folder / "jobs.jsonl", dict[str, int]()
        self.odd = []
        place = 0
        try:
            with open_regular(path) if path.exists() else contextlib.nullcontext(()) as lines:
                for number, line in enumerate(lines, 1):
                    try:
                        if line.strip():
                            places[_job_of(line, self.folder).id] = place
                    except (
                        InputError
                    ) as error:  # a plan that was interrupted, perhaps: planning again adds it
                        self.odd.append(f"{path}, line {number}: left out: {error}")
                    place += len(line)
        except (OSError, ValueError) as error:
            raise InputError(f"{printable(str(path))} is no plan of jobs ({reason(error)})") from error
        return PlannedJobs(self.folder, list(places.values()))

    def note(self, driver: str, line: dict[str, Any]) -> None:
        """Take note of a line; a job whose records can be read is done."""
        super().note(driver, line)
        if "error" in line:
            self.done.setdefault(line["job"], line["error"])
        elif "unfit" in line and "job" in line:
            self.unfit.setdefault(line["job"], {})[driver] = str(line["unfit"])
        elif "records" in line and self.results_of(line, parse=False):
            self.done[line["job"]] = None

    def results_of(self, line: dict[str, Any], *, parse: bool = True) -> list[Record]:
        """Return the records in a line; if the content of one does not match its id, none, and the line counts as damaged.

        ``parse`` is that of ``Record.from_row``.
        """
        try:
            with reading("a line of results"):
                return [Record.from_json(text, parse=parse) for text in line["records"]]
        except InputError:
            self.damaged += 1
            return []


def work(
    spool: Spool,
    worker: str,
    executor: Executor[Job],
    *,
    share: tuple[int, int] = (1, 1),
    kind: str = "",
    lease_s: float = LEASE_S,
    until: float = float("inf"),
    observe: Callable[[int, int, str], None] | None = None,
) -> int:
    """Run jobs of the spool until all of its share are done; return how many were run here.

    Jobs that others have claimed are left to them, and waited for; those of a worker that died or shows no life are taken
    over, and those whose worker process died or hung are begun again, ``TRIES`` times in all since this call began.
    A job with more threads than this process may use is left to other machines, and ``spool.unfit`` says so: with fewer
    threads, its records would be those of another job.

    Args:
        worker: a name that no other worker of this spool has; one that comes back continues its file.
        share: (k, of): run only every ``of``-th job from the k-th on, for machines that do not see each other's files.
        kind: of this machine: jobs that are for another kind, or for any where this is given, are left to others.
        lease_s: see ``ledger.LEASE_S``.
        until: ``time.monotonic()`` after which no job is begun.
        observe: called with (jobs done, jobs in all, what happened last).

    Raises:
        InputError: the name is no file's name, the share is none, no job is for machines of the kind, or each of them has
            too many threads for this one.
        StoreError: another process is a worker of this name.
    """
    if not NAME.fullmatch(worker):
        raise InputError(f"a worker's name is made of letters, digits, '.', '_' and '-', got {worker!r}")
    if not 1 <= share[0] <= share[1]:
        raise InputError(f"a share is K/N with 1 <= K <= N, got {share[0]}/{share[1]}")
    planned = spool.jobs()
    fitting = [job for job in planned if job.kind == kind]
    if planned and not fitting:
        kinds = ", ".join(sorted(f"{job.kind!r}" for job in {job.kind: job for job in planned}.values()))
        raise InputError(f"no job of the spool is for machines of the kind {kind!r}; there are: {kinds}")
    mine = [job for place, job in enumerate(fitting) if place % share[1] == share[0] - 1]
    most = most_threads()
    unfit = [job for job in mine if job.threads > most]
    mine = [job for job in mine if job.threads <= most]
    # Workers begin at different places, so that they rarely want the same job.
    start = int(content_id([worker]), 16) % max(len(mine), 1)
    mine, ran = mine[start:] + mine[:start], 0
    spool.refresh()
    before = {job: len(times) for job, times in spool.lost.items()}

    def losses(job: Job) -> int:
        return len(spool.lost.get(job.id, ())) - before.get(job.id, 0)

    with spool.hold(worker):
        spool.append(worker, *({"job": job.id, "unfit": _too_many(job, most)} for job in unfit))
        spool.refresh()
        if unfit and not mine:
            raise InputError(f"no job of this worker's share can be run here: {_too_many(unfit[0], most)}")
        while True:
            spool.refresh()
            left = [job for job in mine if job.id not in spool.done and losses(job) < TRIES]
            free = next(
                (job for job in sorted(left, key=losses) if not spool.rivals(job.id, worker, lease_s)), None
            )
            if not left or time.monotonic() >= until:
                return ran
            if free is None:
                time.sleep(_POLL_S)
                continue
            spool.append(worker, {"claim": free.id})
            spool.refresh()
            if any(other < worker for other in spool.rivals(free.id, worker, lease_s)):
                continue  # claimed at the same moment: the first by name runs it
            said = _run(spool, worker, executor, free)
            ran += 1
            if observe is not None:
                observe(len(mine) - len(left) + 1, len(mine), said)


def _too_many(job: Job, most: int) -> str:
    return (
        f"{job.label} needs {job.threads} threads, and this worker may use {most}; start a worker on a machine with more "
        "CPUs, allow it more (affinity, the scheduler's --cpus-per-task), or plan fewer (--threads)"
    )


def _run(spool: Spool, worker: str, executor: Executor[Job], job: Job) -> str:
    try:
        future = executor.submit(job)
        while not wait([future], BEAT_S).done:
            spool.append(worker, {"beat": 1})
        records = future.result()
    except WorkerLostError as error:
        spool.append(worker, {"job": job.id, "lost": explain(job, error)})
        return f"lost, to be done again: {explain(job, error)}"
    except TensorwiseError as error:
        spool.append(worker, {"job": job.id, "error": explain(job, error)})
        return explain(job, error)
    texts = [record.to_json() for record in records]
    spool.append(worker, {"job": job.id, "device": records[0].device_id, "records": texts})
    return f"{job.label}: {len(records)} records"


def gather(spool: Spool, store: Store | PartStore) -> tuple[int, int]:
    """Append the results of all workers to ``store``; return how many jobs and records were new.

    May be done at any time and again: a job's records are appended as a whole, and once, whichever of
    several workers measured it. ``spool.done`` says afterwards what is done and what cannot be run.
    """
    spool.refresh()
    files = Spool(spool.folder)  # read from the beginning, and what is damaged is not counted again
    stored = store.jobs()
    finished = {
        str(line["job"]) for _, line in files.lines() if (line.get("job"), line.get("device")) in stored
    }
    jobs = new = 0
    batch: list[JobRecords] = []

    def append() -> None:
        nonlocal jobs, new
        appended = store.append_jobs(batch)
        jobs += len(appended)
        new += sum(len(one.records) for one in appended)
        batch.clear()

    for _, line in files.lines():
        job = str(line.get("job"))
        if "records" in line and job not in finished and (records := files.results_of(line)):
            batch.append(JobRecords.of(job, records))
            finished.add(job)
            if len(batch) >= _GATHERED:
                append()
    append()
    spool.unread |= files.unread
    return jobs, new


@final
class SpoolExecutor(Executor[Job]):
    """Writes jobs into a spool and waits for workers elsewhere to do them.

    Args:
        folder: of the spool.
    """

    slots = 2**31  # the spool takes them all

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._spool = Spool(folder)
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Future[list[Record]]]] = {}
        self._answered: set[str] = set()
        self._ended = threading.Event()
        self._read: dict[str, int] = {}
        self._early: dict[str, list[Record] | TensorwiseError] = {}
        self._losses: Counter[str] = Counter()
        self._heard_s = -math.inf  # when a worker last wrote
        self._unfit: dict[str, str] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @classmethod
    def from_options(cls, options: ExecutorOptions) -> Self:
        """Write jobs into the spool whose folder is the address.

        Raises:
            InputError: no address is given.
        """
        if options.address is None:
            raise InputError("the executor spool needs the spool's folder as its address, got none")
        return cls(options.address)

    def submit(self, job: Job) -> "Future[list[Record]]":
        future: Future[list[Record]] = Future()
        try:
            if self._ended.is_set():
                raise MeasurementError("the executor was shut down")
            self._spool.plan([job])
        except (TensorwiseError, OSError) as error:
            future.set_running_or_notify_cancel()
            future.set_exception(_as_tensorwise_error(error))
            return future
        with self._lock:
            self._waiting.setdefault(job.id, []).append(future)
            if job.id in self._answered:  # before; that is to be found again
                self._answered.clear()
                self._read.clear()
                self._losses.clear()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        while wait and not cancel_futures and self._waiting and self._thread.is_alive():
            time.sleep(_POLL_S / 5)
        self._ended.set()
        self._thread.join()
        for futures in self._waiting.values():
            for future in futures:
                future.cancel()

    def _watch(self) -> None:
        while not self._ended.wait(_POLL_S / 5):
            with self._lock:
                try:
                    self._look()
                    known = self._early.keys() & self._waiting.keys()
                    ready = [(self._waiting.pop(job), self._early.pop(job)) for job in known]
                    self._answered |= known
                except Exception as error:  # the waiting futures get the error, and polling continues
                    ready = [(futures, _as_tensorwise_error(error)) for futures in self._waiting.values()]
                    self._waiting.clear()
            for futures, result in ready:
                for future in futures:
                    if not future.set_running_or_notify_cancel():
                        continue
                    if isinstance(result, TensorwiseError):
                        future.set_exception(result)
                    else:
                        future.set_result(result)

    def _look(self) -> None:
        """Note what workers have written since the last time."""
        for _, line in self._spool.lines(self._read):
            job = str(line.get("job"))
            self._heard_s = time.monotonic()
            if "unfit" in line:
                self._unfit.setdefault(job, str(line["unfit"]))
            elif "lost" in line:
                self._losses[job] += 1
                if self._losses[job] >= TRIES:  # the workers have given it up
                    self._early.setdefault(job, WorkerLostError("crash", str(line["lost"]), TRIES))
            elif "error" in line:
                self._early.setdefault(job, MeasurementError(str(line["error"])))
            elif "records" in line and (records := self._spool.results_of(line)):
                self._early.setdefault(job, records)
        if self._heard_s <= time.monotonic() - LEASE_S:  # a worker that could run them would have written
            for job in self._unfit.keys() & self._waiting.keys() - self._early.keys():
                self._early[job] = MeasurementError(f"no worker can run it: {self._unfit[job]}")


def _as_tensorwise_error(error: Exception) -> TensorwiseError:
    """Return why a job cannot be run, as futures tell it."""
    return error if isinstance(error, TensorwiseError) else MeasurementError(reason(error))


def _job_of(line: bytes, folder: Path) -> Job:
    """Return the job in a line of a plan, with the place of its file in the spool."""
    job = Job.from_json(parse_json(line, "no job"))
    if not _PATTERN.fullmatch(job.path):
        raise InputError(f"its file {shown(job.path)} is not one of the spool's patterns")
    return replace(job, path=str(folder / job.path))


def _pattern_path(job: Job) -> str:
    """Where a spool keeps the file of a job; the name ends as the file's does, which tells its kind."""
    return f"patterns/{job.digest}-{Path(job.path).name}"
