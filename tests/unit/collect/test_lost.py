"""Lost is not crashed: what a lost worker, node or device was to measure is done again, or reported, never recorded."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tensorwise.collect.corpus import patterns
from tensorwise.collect.driver import collect
from tensorwise.collect.executors import TRIES, Executor, WorkerLostError, records_in
from tensorwise.collect.job import Job, plan
from tensorwise.collect.opening import EXECUTORS
from tensorwise.collect.spool import Spool, gather, work
from tensorwise.device.device import Measurement
from tensorwise.device.null import NullDevice
from tensorwise.errors import InputError, MeasurementError
from tensorwise.front.cli import app
from tensorwise.store.record import Record
from tensorwise.store.store import Store
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write

SAMPLES, RECORDS = 6, 8
JOBS = 3


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    for k in range(JOBS):
        write(tmp_path / f"m{k}.mtx", entries_from(np.eye(8 + k)))
    made = plan(patterns([tmp_path]), ["spmm"], n=[4], samples=SAMPLES, device="null")
    return sorted(made, key=lambda job: job.name)


class Losing(Executor[Any]):
    """Runs jobs in this process; ``fails`` says of a job's k-th try what goes wrong instead."""

    slots = 2

    def __init__(self, fails: Callable[[Job, int], BaseException | None] = lambda job, k: None) -> None:
        self.tries: Counter[str] = Counter()
        self._fails = fails

    def submit(self, job: Job) -> "Future[list[Record]]":
        future: Future[list[Record]] = Future()
        self.tries[job.name] += 1
        error = self._fails(job, self.tries[job.name])
        if error is None:
            future.set_result(job.measured())
        else:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass


def loses(name: str, times: int) -> Callable[[Job, int], BaseException | None]:
    return lambda job, k: WorkerLostError("crash", "taken") if job.name == name and k <= times else None


def test_a_lost_job_is_done_again_after_the_others(jobs: list[Job], tmp_path: Path) -> None:
    ended: list[str] = []
    with Store(tmp_path / "s.sqlite") as store:
        executor = Losing(loses("m0", TRIES - 1))
        found = collect(jobs, store, executor, observe=lambda job, _: ended.append(job.name))
        assert (found.jobs, found.num_left, found.lost, found.redone) == (JOBS, 0, [], TRIES - 1)
        assert ended[-1] == "m0"
        assert Counter(str(one.provenance["pattern"]) for one in store) == dict.fromkeys(
            executor.tries, RECORDS
        )
        assert {one.status for one in store} == {"ok"}


def test_what_stays_lost_is_said_not_recorded_and_done_by_the_next_run(
    jobs: list[Job], tmp_path: Path
) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        executor = Losing(loses("m0", 99))
        found = collect(jobs, store, executor)
        assert executor.tries["m0"] == TRIES
        assert (found.jobs, found.num_left, found.failed, found.redone) == (JOBS - 1, 0, [], TRIES - 1)
        assert found.lost == ["m0 spmm n=4: taken"]
        assert found.to_json()["lost"] == found.lost
        assert not [one for one in store if one.provenance["pattern"] == "m0" or not one.ok]
        again = collect(jobs, store, Losing())
        assert (again.before, again.jobs) == (JOBS - 1, 1)


class Ending(NullDevice):
    """A device that is gone after some measurements: it says so, or just ends."""

    left, says = 5, True

    def measure(self, workload: Any, configs: Sequence[Any]) -> Iterator[Measurement]:
        for one in super().measure(workload, configs):
            if Ending.left == 0:
                if Ending.says:
                    raise MeasurementError("the measuring worker ended with status -9")
                return
            Ending.left -= 1
            yield one


@pytest.mark.parametrize("says", [True, False])
def test_a_job_is_measured_whole_or_lost(
    jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: bool
) -> None:
    monkeypatch.setattr(Job, "open", lambda job: Ending())
    monkeypatch.setattr(Ending, "says", says)
    monkeypatch.setattr(Ending, "left", 5)
    with pytest.raises(MeasurementError, match=r"status -9|ended before all"):
        jobs[0].measured()


def test_a_worker_tells_a_device_that_is_gone_from_a_job_that_cannot_be_run(jobs: list[Job]) -> None:
    script = (
        "from tests.unit.collect.test_lost import Ending, Job\n"
        "from tensorwise.collect.serve import main\n"
        "Job.open = lambda job: Ending()\n"
        "main()\n"
    )
    asked = [jobs[0], replace(jobs[0], path="nowhere.mtx")]
    lines = [*(json.dumps(job.to_json()) for job in asked), '{"torn', "[]", "1", '{"name": "\\ud800"}']
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        input="\n".join(lines) + "\n",
        env=environment,
        capture_output=True,
        text=True,
    )
    answers = [one for line in done.stdout.splitlines() if "beat" not in (one := json.loads(line))]
    assert [next(iter(one)) for one in answers] == ["lost", *["error"] * 5], done.stderr
    with pytest.raises(WorkerLostError, match="status -9"):
        records_in(answers[0])
    with pytest.raises(MeasurementError, match=r"nowhere\.mtx"):
        records_in(answers[1])


def test_records_name_the_device_that_ran(
    jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other(NullDevice):
        def __init__(self) -> None:
            super().__init__()
            self.name, self.id = "other", "0" * 32

    class Elsewhere(Losing):
        def submit(self, job: Job) -> "Future[list[Record]]":
            with monkeypatch.context() as there:
                there.setattr(Job, "open", lambda job: Other())
                return super().submit(job)

    with Store(tmp_path / "s.sqlite") as store:
        found = collect(jobs, store, Elsewhere(loses("m0", 1)), anywhere=True)
        assert found.jobs == JOBS
        assert {(one.device_id, one.provenance["device"]) for one in store} == {("0" * 32, "other")}


def test_the_command_says_what_is_lost_and_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "m0.mtx", entries_from(np.eye(8)))
    store = tmp_path / "s.sqlite"
    command = [
        "collect",
        str(tmp_path / "m0.mtx"),
        "--op",
        "spmm",
        "--device",
        "null",
        "--samples",
        "4",
        "--store",
        str(store),
    ]
    monkeypatch.setitem(EXECUTORS._rows, "local", lambda options: Losing(loses("m0", 99)))
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "lost, and not recorded: m0 spmm" in result.output
    assert "the same command tries them again" in result.output
    monkeypatch.setitem(EXECUTORS._rows, "local", lambda options: Losing(loses("m0", 1)))
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    assert "1 begun again after a worker or node was lost" in result.output


# -- a spool --------------------------------------------------------------------------------------------


def test_odd_lines_of_a_spool_stop_nobody(jobs: list[Job], tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.plan(jobs)
    whole = json.loads((spool.folder / "jobs.jsonl").read_text().splitlines()[0])
    changes: list[dict[str, object]] = [
        {"threads": "two"}, {"threads": True}, {"samples": 0}, {"device": "abacus"}, {"digest": "zz"}, {"n": [1]},
        {"path": "/etc/passwd"}, {"path": "patterns/../../x.mtx"}, {"seed": -1}, {"more": 1}, {"named": [1]},
    ]  # fmt: skip
    odd = [
        b'{"torn": ', b"[]", b"1", b"null", b"\xff\xfe", b'"\\ud800"', b"[" * 5000, b"9" * 5000, b'{"name": NaN}',
        *(json.dumps({**whole, **change}).encode() for change in changes),
        json.dumps(whole).replace("10.0", "1e400").encode(),
    ]  # fmt: skip
    with (spool.folder / "jobs.jsonl").open("ab") as file:
        file.write(b"\n".join(odd) + b"\n")
    assert len(spool.jobs()) == JOBS
    assert len(spool.odd) == len(odd)
    assert all("jobs.jsonl, line" in text for text in spool.odd)
    results = [
        b'{"job": "x", "records": 5}',
        b'{"job": 1, "records": [5]}',
        b'{"records": ["{}"]}',
        b"[1]",
        b'"\\ud800"',
    ]
    results += [b"\xff", b'{"claim": []}', b"{}", b'{"lost": 1}', b'{"error": {}}']
    (spool.results / "stranger.jsonl").write_bytes(b"\n".join(results) + b"\n")
    assert work(spool, "me", Losing()) == JOBS
    with Store(tmp_path / "s.sqlite") as store:
        assert gather(Spool(spool.folder), store) == (JOBS, JOBS * RECORDS)


def test_a_job_that_is_lost_by_a_worker_of_a_spool_is_done_again(jobs: list[Job], tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.plan(jobs)
    said: list[str] = []
    executor = Losing(loses("m0", 99))
    work(spool, "first", executor, observe=lambda done, of, what: said.append(what))
    assert executor.tries == {"m0": TRIES, "m1": 1, "m2": 1}
    assert sum("lost, to be done again: m0" in what for what in said) == TRIES
    with Store(tmp_path / "s.sqlite") as store:
        assert gather(Spool(spool.folder), store)[0] == JOBS - 1
        assert {one.status for one in store} == {"ok"}
        assert work(Spool(spool.folder), "second", Losing()) == 1, "another worker does it at once"
        assert gather(Spool(spool.folder), store) == (1, RECORDS)


@pytest.mark.parametrize(
    "answer", [[], 1, None, "text", {"records": 5}, {"records": [5]}, {"records": ["{}"]}, {"records": None}]
)
def test_an_answer_that_is_none_is_an_error(answer: Any) -> None:
    with pytest.raises(InputError):
        records_in(answer)
