"""Spool: append-only files that survive whatever their writers meet. Nodes are tested in tests/contract."""

import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tensorwise.collect import ledger as ledgers
from tensorwise.collect.corpus import patterns
from tensorwise.collect.driver import collect, mixed_kinds
from tensorwise.collect.executors import Executor, LocalExecutor
from tensorwise.collect.job import Job, plan
from tensorwise.collect.measuring import measured
from tensorwise.collect.spool import Spool, SpoolExecutor, UnplannedError, gather, work
from tensorwise.errors import InputError, MeasurementError, StoreError
from tensorwise.front.cli import app
from tensorwise.store.record import Record
from tensorwise.store.store import Store
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    for k in range(5):
        write(tmp_path / f"{k}.mtx", entries_from(np.eye(8 + k)))
    return plan(patterns([tmp_path]), ["spmm"], n=[4], device="null", samples=3)


def _append_many(folder: Path, writer: int, count: int) -> None:
    spool = Spool(folder)
    for k in range(count):
        spool.append("same", {"claim": f"{writer}-{k}", "filling": "x" * 20_000})


def test_two_processes_that_append_to_one_file_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_many, args=(tmp_path, writer, 100)) for writer in range(2)]
    for writer in writers:
        writer.start()
    spool = Spool(tmp_path)
    while any(writer.is_alive() for writer in writers):
        spool.refresh()  # reading meanwhile sees whole lines only
    spool.refresh()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert spool.claims == {f"{writer}-{k}": {"same"} for writer in range(2) for k in range(100)}
    assert spool.damaged == 0


def test_every_torn_end_is_survived(tmp_path: Path, jobs: list[Job]) -> None:
    """A worker is killed at any byte of a line: what was whole before stays, what comes after is read."""
    spool = Spool(tmp_path / "spool")
    spool.plan(jobs)
    texts = [record.to_json() for record in measured(jobs[0])]
    spool.append("w", {"job": jobs[0].id, "device": "d", "records": texts})
    path = spool.results / "w.jsonl"
    whole = path.read_bytes()
    for cut in (1, 10, len(whole) // 2, len(whole) - 2):
        path.write_bytes(whole + whole[:cut])
        Spool(spool.folder).append("w", {"claim": "later"})
        again = Spool(spool.folder)
        again.refresh()
        assert again.done == {jobs[0].id: None}
        assert again.claims == {"later": {"w"}}
        assert again.damaged == 1


def test_a_job_that_two_workers_measured_is_gathered_once(tmp_path: Path, jobs: list[Job]) -> None:
    spool = Spool(tmp_path / "spool")
    spool.plan(jobs)
    with Store(tmp_path / "s.sqlite") as store:
        for worker in ("second", "first"):  # the later one is the first by name
            records = measured(jobs[0])
            spool.append(
                worker,
                {
                    "job": jobs[0].id,
                    "device": records[0].device_id,
                    "records": [r.to_json() for r in records],
                },
            )
            found = gather(spool, store)
            assert found == ((1, len(records)) if worker == "second" else (0, 0))
        assert len(store) == len(measured(jobs[0]))


def test_a_damaged_record_is_not_taken_and_its_job_is_done_again(tmp_path: Path, jobs: list[Job]) -> None:
    spool = Spool(tmp_path / "spool")
    spool.plan(jobs[:1])
    for records in (['{"id": "made up"}'], [], None):
        spool.append("bad", {"job": jobs[0].id, "device": "d", "records": records})
    with Store(tmp_path / "s.sqlite") as store:
        assert gather(spool, store) == (0, 0)
        assert (spool.done, spool.damaged) == ({}, 2)
        executor = LocalExecutor()
        assert work(spool, "good", executor) == 1
        executor.shutdown()
        assert gather(spool, store)[0] == 1
        assert spool.damaged == 2


def test_files_of_one_content_and_two_names(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.mtx", entries_from(np.eye(3)))
    twins = plan(patterns([tmp_path]), ["spmm"], n=[4], device="null")
    spool = Spool(tmp_path / "spool")
    assert spool.plan(twins) == 2
    assert all(Path(job.path).is_file() for job in spool.jobs())


def test_shares_together_are_everything(tmp_path: Path, jobs: list[Job]) -> None:
    """Machines that never see each other's files: each has a copy of the spool."""
    ran = []
    for k in (1, 2):
        copy = Spool(tmp_path / f"copy-{k}")
        copy.plan(jobs)
        executor = LocalExecutor()
        ran.append(work(copy, f"node-{k}", executor, share=(k, 2)))
        executor.shutdown()
        brought = tmp_path / "home" / "results" / f"node-{k}.jsonl"
        brought.parent.mkdir(parents=True, exist_ok=True)
        brought.write_bytes((copy.results / f"node-{k}.jsonl").read_bytes())
    assert ran == [3, 2]
    home = Spool(tmp_path / "home")
    with Store(tmp_path / "s.sqlite") as store:
        assert gather(home, store)[0] == 5
        assert {job for job, _ in store.jobs()} == {job.id for job in jobs}


@pytest.mark.parametrize(("name", "share"), [("../x", (1, 1)), ("", (1, 1)), ("w", (0, 2)), ("w", (3, 2))])
def test_bad_names_and_shares_are_refused(tmp_path: Path, name: str, share: tuple[int, int]) -> None:
    executor = LocalExecutor()
    with pytest.raises(InputError):
        work(Spool(tmp_path), name, executor, share=share)
    executor.shutdown()


def test_a_plan_that_was_interrupted_is_completed(tmp_path: Path, jobs: list[Job]) -> None:
    spool = Spool(tmp_path / "spool")
    spool.plan(jobs)
    lines = (spool.folder / "jobs.jsonl").read_text()
    (spool.folder / "jobs.jsonl").write_text(lines[: len(lines) - 40])
    again = Spool(spool.folder)
    assert again.plan(jobs) == 1
    assert {job.id for job in again.jobs()} == {job.id for job in jobs}
    assert all(json.loads(line)["path"].startswith("patterns/") for line in lines.splitlines())


def test_a_worker_takes_the_jobs_of_its_kind(tmp_path: Path) -> None:
    write(tmp_path / "a.mtx", entries_from(np.eye(9)))
    both = plan(patterns([tmp_path]), ["spmm"], n=[4], device="null", samples=3, kinds=("zen4", "zen5"))
    spool, executor = Spool(tmp_path / "spool"), LocalExecutor()
    assert spool.plan(both) == 2
    with pytest.raises(InputError, match=r"kind ''; there are: 'zen4', 'zen5'"):
        work(spool, "any", executor)
    assert work(spool, "one", executor, kind="zen4") == 1
    with Store(tmp_path / "s.sqlite") as store:
        assert gather(spool, store)[0] == 1
        assert {record.provenance["kind"] for record in store} == {"zen4"}
        assert work(spool, "two", executor, kind="zen5") == 1
        assert gather(spool, store)[0] == 1
        assert mixed_kinds(both, store) == []
    executor.shutdown()


def test_jobs_with_more_threads_than_a_worker_has_are_left_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.mtx", entries_from(np.eye(9)))
    both = plan(patterns([tmp_path]), ["spmm"], n=[4], device="null", samples=3, threads=(1, 8))
    spool, executor = Spool(tmp_path / "spool"), LocalExecutor()
    spool.plan(both)
    monkeypatch.setattr("tensorwise.collect.spool.most_threads", lambda: 2)
    assert work(spool, "small", executor) == 1
    assert [*spool.unfit] == [both[1].id]
    assert both[1].id not in spool.done
    told = CliRunner().invoke(
        app, ["collect", "--spool", str(spool.folder), "--gather", "--store", str(tmp_path / "s.sqlite")]
    )
    assert "1 jobs were left by a worker" in told.stderr
    assert "needs 8 threads, and this worker may use 2" in told.stderr
    with pytest.raises(InputError, match=r"no job of this worker's share .* needs 8 threads.*--threads"):
        work(spool, "smaller", executor, share=(2, 2))
    monkeypatch.setattr("tensorwise.collect.spool.most_threads", lambda: 8)
    assert work(spool, "large", executor) == 1
    executor.shutdown()


def test_machines_that_differ_are_not_taken_for_one(tmp_path: Path, jobs: list[Job]) -> None:
    spool = Spool(tmp_path / "spool")
    spool.plan(jobs[:2])
    for worker, job in zip(("here", "there"), jobs[:2]):
        records = [replace(record, device_id=worker) for record in measured(job)]
        spool.append(
            worker, {"job": job.id, "device": worker, "records": [record.to_json() for record in records]}
        )
    with Store(tmp_path / "s.sqlite") as store:
        assert gather(spool, store)[0] == 2
        (said,) = mixed_kinds(spool.jobs(), store)
        assert "measured on 2 different devices (here: 1 jobs, there: 1 jobs)" in said
        assert mixed_kinds(jobs[:1], store) == []


@pytest.mark.parametrize(
    "line",
    [
        '{"job":[1],"device":"x","records":[]}',
        '{"job":"a","device":{"x":1},"records":[]}',
        '{"claim":"a","device":[1]}',
        '{"claim":["a"]}',
        '{"claim":null}',
        '{"job":"a","records":"x"}',
        '{"job":"a","error":5}',
        '{"job":"a","lost":[]}',
        '{"records":[]}',
        '{"claim":"a","records":[]}',
        '{"host":"h","error":"e"}',
        '{"beat":1,"lost":"e"}',
        '{"x":1}',
        "[1]",
        "5",
        "\x00",
    ],
)
def test_an_odd_line_is_counted_and_left_out(tmp_path: Path, jobs: list[Job], line: str) -> None:
    spool = Spool(tmp_path / "spool")
    spool.plan(jobs)
    for worker, job in (("a", jobs[0]), ("z", jobs[1])):  # before and after it
        _answer(spool, worker, job)
    (spool.results / "odd.jsonl").write_text(line + "\n")
    with Store(tmp_path / "s.sqlite") as store:
        assert gather(spool, store)[0] == 2
        assert spool.damaged == 1
        assert gather(spool, store) == (0, 0)


def _answer(spool: Spool, worker: str, job: Job) -> None:
    records = measured(job)
    texts = [record.to_json() for record in records]
    spool.append(worker, {"job": job.id, "device": records[0].device_id, "records": texts})


def test_what_is_no_file_of_results_is_named_and_the_others_are_read(tmp_path: Path, jobs: list[Job]) -> None:
    spool = Spool(tmp_path / "spool")
    spool.plan(jobs)
    (spool.results / "b.jsonl").mkdir()
    (spool.results / "c.jsonl").symlink_to(tmp_path / "absent")
    os.mkfifo(spool.results / "d.jsonl")
    (spool.results / "e.jsonl").symlink_to("/dev/zero")
    odd = {"b.jsonl", "c.jsonl", "d.jsonl", "e.jsonl"}
    executor = LocalExecutor()
    try:
        assert work(spool, "w", executor) == len(jobs)
    finally:
        executor.shutdown()
    assert spool.unread.keys() == odd
    told = CliRunner().invoke(
        app,
        [
            "collect",
            "--spool",
            str(spool.folder),
            "--gather",
            "--store",
            str(tmp_path / "s.sqlite"),
            "--json",
        ],
    )
    assert told.exit_code == 1
    found = json.loads(told.stdout)
    assert (found["jobs"], found["left"], len(found["unread"])) == (len(jobs), 0, 4)
    for name in odd:
        assert f"{name}: its results are left out: " in told.stderr
    for name in odd:
        path = spool.results / name
        path.rmdir() if path.is_dir() else path.unlink()
    spool.refresh()
    assert not spool.unread
    (spool.results / "f.jsonl").mkdir()
    with pytest.raises(StoreError, match="results cannot be written to it"):
        spool.append("f", {"claim": "x"})


def test_a_line_of_results_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path)
    (spool.results / "a.jsonl").write_bytes(b" " * 2000)
    spool.append("b", {"claim": "x"})
    monkeypatch.setattr(ledgers, "MOST_BYTES", 1000)
    spool.refresh()
    assert spool.claims == {"x": {"b"}}
    assert "a line is longer than 1000 bytes" in spool.unread["a.jsonl"]


def test_a_file_that_is_gone_stops_no_other_job(tmp_path: Path, jobs: list[Job]) -> None:
    Path(jobs[2].path).unlink()
    spool = Spool(tmp_path / "spool")
    with pytest.raises(UnplannedError, match=f"{jobs[2].path}: cannot be copied into the spool") as told:
        spool.plan(jobs)
    assert (told.value.planned, told.value.left_out) == (4, 1)
    assert {job.id for job in spool.jobs()} == {job.id for job in jobs} - {jobs[2].id}
    write(Path(jobs[2].path), entries_from(np.eye(3)))
    assert spool.plan(jobs) == 1


@pytest.mark.parametrize("spool", [True, False])
def test_a_plan_names_files_that_cannot_be_read_and_plans_the_others(tmp_path: Path, spool: bool) -> None:
    write(tmp_path / "a.mtx", entries_from(np.eye(4)))
    os.mkfifo(tmp_path / "pipe.mtx")
    (tmp_path / "gone.tns").symlink_to(tmp_path / "absent")
    (tmp_path / "m.csv").write_text("name,file,order,nnz,group\nb,b.mtx,2,9,h\nbig,c.mtx,2,999999999,h\n")
    where = ["--spool", tmp_path / "spool"] if spool else ["--store", tmp_path / "s.sqlite"]
    arguments = ["collect", tmp_path, tmp_path / "m.csv", "--op", "spmv", "--samples", 2, "--device", "null"]
    told = CliRunner().invoke(app, list(map(str, [*arguments, *where, "--json"])))
    assert told.exit_code == 1
    assert isinstance(told.exception, SystemExit)
    said = [line for line in told.stderr.splitlines() if "left out" in line]
    assert sorted(one.split("left out: ")[1].split(":")[0] for one in said) == [
        str(tmp_path / name) for name in ("b.mtx", "gone.tns", "pipe.mtx")
    ]
    last = json.loads(told.stdout.splitlines()[-1])
    assert last["planned"] == 1
    assert last["new"] == 1 if spool else last["jobs"] == 1


# -- the executor ------------------------------------------------------------------------------------


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[SpoolExecutor]:
    made = SpoolExecutor(tmp_path / "spool")
    yield made
    made.shutdown(cancel_futures=True)


def test_results_that_cannot_be_read_are_tried_again(executor: SpoolExecutor, jobs: list[Job]) -> None:
    (executor._spool.results / "old.jsonl").mkdir()
    future = executor.submit(jobs[0])
    _answer(executor._spool, "w", jobs[0])
    assert future.result(60)


def test_a_job_that_no_worker_can_run_ends(
    executor: SpoolExecutor, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    future = executor.submit(jobs[0])
    executor._spool.append("small", {"job": jobs[0].id, "unfit": "it needs 8 threads"})
    time.sleep(0.5)
    assert not future.done()  # a larger machine may come
    monkeypatch.setattr("tensorwise.collect.spool.LEASE_S", 0.1)
    with pytest.raises(MeasurementError, match="no worker can run it: it needs 8 threads"):
        future.result(30)


def test_an_error_of_the_watch_reaches_whoever_waits_and_ends_nothing_else(
    executor: SpoolExecutor, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Spool, "lines", fail)
        with pytest.raises(MeasurementError, match="Input/output error"):
            executor.submit(jobs[0]).result(60)
    future = executor.submit(jobs[0])
    _answer(executor._spool, "w", jobs[0])
    assert future.result(60)
    executor.shutdown()


def test_each_future_of_a_job_ends(executor: SpoolExecutor, jobs: list[Job]) -> None:
    cancelled, *others = (executor.submit(job) for job in (jobs[1], jobs[0], jobs[0]))
    assert cancelled.cancel()
    for job in jobs[:2]:
        _answer(executor._spool, "w", job)
    assert [len(future.result(60)) for future in others] == [len(measured(jobs[0]))] * 2
    assert executor.submit(jobs[0]).result(60)  # it was answered before
    executor.shutdown()
    with pytest.raises(MeasurementError, match="was shut down"):
        executor.submit(jobs[2]).result(0)


def test_a_job_that_cannot_be_submitted_is_a_failed_one(
    tmp_path: Path, executor: SpoolExecutor, jobs: list[Job]
) -> None:
    Path(jobs[0].path).unlink()
    assert isinstance(executor.submit(jobs[0]).exception(0), UnplannedError)
    _answer(executor._spool, "w", jobs[1])
    with Store(tmp_path / "s.sqlite") as store:
        found = collect(jobs[:2], store, executor)
    assert (found.jobs, found.num_left, len(found.failed)) == (1, 0, 1)
    assert "cannot be copied into the spool" in found.failed[0]


class _Refusing(Executor[Job]):
    slots = 1

    def submit(self, job: Job) -> "Future[list[Record]]":
        raise InputError("it takes none")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass


def test_an_executor_that_raises_fails_its_jobs_only(tmp_path: Path, jobs: list[Job]) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        found = collect(jobs, store, _Refusing())
    assert (found.num_left, len(found.failed)) == (0, len(jobs))
