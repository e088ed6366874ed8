"""Spool: append-only files that survive whatever their writers meet. Nodes are tested in tests/contract."""

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensorwise.data.collect import mixed_kinds
from tensorwise.data.corpus import patterns
from tensorwise.data.executors import LocalExecutor
from tensorwise.data.job import Job, plan
from tensorwise.data.measuring import measured
from tensorwise.data.spool import Spool, gather, work
from tensorwise.data.store import Store
from tensorwise.errors import InputError
from tensorwise.tensor.entries import entries_from
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
