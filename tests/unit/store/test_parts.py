"""Stores of whole jobs: each job once, in one order, whatever dies whenever and however many append."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorwise.errors import InputError, StoreError
from tensorwise.store.finished import JobRecords
from tensorwise.store.parts import Commit, PartStore
from tensorwise.store.reading import open_store, records_of
from tensorwise.store.record import Record
from tensorwise.store.sqlite import CorruptStoreError
from tensorwise.store.store import Store
from tests.unit.store.examples import record

pytest.importorskip("pyarrow")
COUNT = 3
"""Records of a job."""


def job_of(name: str, run: str = "first", device: str = "d") -> JobRecords:
    """Return the records of a job; ``run`` tells two measurements of it apart."""
    facts = [{"job": name, "batch": k, "when": run} for k in range(COUNT)]
    return JobRecords.of(name, [record(k, device_id=device, provenance=one) for k, one in enumerate(facts)])


def runs_of(store: Store | PartStore) -> dict[str, str]:
    """Return the run that each job is from, after checking that the store has each job whole and once."""
    found: dict[str, list[str]] = {}
    for one in store:
        found.setdefault(str(one.provenance["job"]), []).append(str(one.provenance["when"]))
    assert all(len(runs) == COUNT and len(set(runs)) == 1 for runs in found.values()), found
    assert {job for job, _ in store.jobs()} == found.keys()
    return {job: runs[0] for job, runs in found.items()}


@pytest.fixture(params=["s.sqlite", "s.parts"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def test_the_first_result_of_a_job_stays(path: Path) -> None:
    with open_store(path) as one, open_store(path) as other:
        both = [job_of("a"), job_of("b"), job_of("a", "second"), JobRecords("empty", "d", [])]
        assert one.append_jobs(both) == both[:2]
        assert other.append_jobs([job_of("b", "second"), job_of("c", "second")]) == [job_of("c", "second")]
        assert one.append_jobs([job_of("c"), job_of("b")]) == []
        assert runs_of(one) == runs_of(other) == {"a": "first", "b": "first", "c": "second"}
        assert len(one) == 3 * COUNT
        assert one.finished().has("a", "d")
        assert not one.finished().has("a", "e")
        assert one.append_jobs([job_of("a", device="e")], anywhere=True) == []
        assert len(one.append_jobs([job_of("a", device="e")])) == 1
    assert len(list(records_of([path]))) == 4 * COUNT


def test_records_are_what_was_appended(tmp_path: Path) -> None:
    made = [record(k, seconds=[0.5, float("inf")][k % 2], status=["ok", "crash"][k % 2]) for k in range(6)]
    store = PartStore(tmp_path / "s.parts")
    store.append_jobs([JobRecords.of("j", made)])
    assert [one.id for one in store] == [one.id for one in made]
    assert [one.to_row() for one in store] == [one.to_row() for one in made]


def _append_all(path: Path, run: str, names: Sequence[str]) -> None:
    with open_store(path) as store:
        for begin in range(0, len(names), 2):
            store.append_jobs([job_of(name, run) for name in names[begin : begin + 2]], anywhere=True)


def test_processes_that_append_the_same_jobs_append_each_once(path: Path) -> None:
    names = [f"job{k}" for k in range(24)]
    context = multiprocessing.get_context("spawn")
    orders = {
        run: [names[int(k)] for k in np.random.default_rng(seed).permutation(24)]
        for seed, run in enumerate("xyz")
    }
    writers = [context.Process(target=_append_all, args=(path, run, order)) for run, order in orders.items()]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    with open_store(path) as store:
        assert runs_of(store).keys() == set(names)


@pytest.mark.parametrize("taken", ["the same job", "another job"])
def test_a_number_that_another_takes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    """The other commits between the moment when the log was read and that when the number is taken."""
    store, other = PartStore(tmp_path), PartStore(tmp_path)
    take, faster = PartStore._take_number, ["a" if taken == "the same job" else "z"]

    def late(self: PartStore, commit: Commit) -> bool:
        while self is store and faster:
            other.append_jobs([job_of(faster.pop(), "other")])
        return take(self, commit)

    monkeypatch.setattr(PartStore, "_take_number", late)
    new = store.append_jobs([job_of("a"), job_of("b")])
    assert [one.job for one in new] == (["b"] if taken == "the same job" else ["a", "b"])
    assert (
        runs_of(store)
        == runs_of(other)
        == {**{one.job: "first" for one in new}, ("a" if len(new) == 1 else "z"): "other"}
    )
    assert len(list((tmp_path / "data").iterdir())) == 2, "what was written in vain is removed"
    assert sorted(one.name for one in (tmp_path / "log").iterdir()) == [
        "000000000000.json",
        "000000000001.json",
    ]


def test_a_lost_answer_of_a_network_file_system_is_no_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS may make the link, lose its answer, try again and say that the name exists."""
    link = os.link

    def twice(source: Any, target: Any) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", twice)
    store = PartStore(tmp_path)
    assert len(store.append_jobs([job_of("a")])) == 1
    assert runs_of(store) == {"a": "first"}


def test_twenty_kills_lose_nothing_that_was_acknowledged(path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tests.unit.store.test_parts import job_of, open_store\n"
        "store, k = open_store(Path(sys.argv[1])), int(sys.argv[2])\n"
        "while True:\n"
        "    store.append_jobs([job_of(f'{k}'), job_of(f'{k + 1}')])\n"
        "    print(k, flush=True)\n"
        "    k += 2\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one or os.getcwd() for one in sys.path)}
    rng, begun = np.random.default_rng(0), 0
    for _ in range(3):
        command = [sys.executable, "-c", script, str(path), str(begun)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            for _ in range(1 + int(rng.integers(20))):
                last = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            last = max([last, *map(int, process.stdout.read().split())])
        with open_store(path) as store:
            found = runs_of(store)
        assert {str(k) for k in range(begun, last + 2)} <= found.keys()
        begun = last + 100


def test_compacting_keeps_every_record_once(tmp_path: Path) -> None:
    store, old = PartStore(tmp_path), PartStore(tmp_path)
    for k in range(7):
        store.append_jobs([job_of(f"{k}")])
    old.finished()
    before = {one.id for one in store}
    reading = iter(old)
    next(reading)
    assert store.compact(3 * COUNT) == 6
    assert len(list(reading)) == 7 * COUNT - 1, "whoever reads goes on with the files of before"
    assert old.append_jobs([job_of("3", "second"), job_of("7")]) == [job_of("7")]
    for one in (store, old, PartStore(tmp_path)):
        assert len(one) == len(list(one)) == 8 * COUNT
        assert {each.id for each in one} > before
        assert runs_of(one).keys() == {f"{k}" for k in range(8)}
    assert store.compact() == 4
    assert len(list(store)) == 8 * COUNT
    assert len(list((tmp_path / "data").iterdir())) == 5, "the six that the first call replaced are removed"


def test_two_that_compact_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = PartStore(tmp_path), PartStore(tmp_path)
    for k in range(4):
        store.append_jobs([job_of(f"{k}")])
    take, faster = PartStore._take_number, [other]

    def late(self: PartStore, commit: Commit) -> bool:
        while self is store and faster:
            assert faster.pop().compact() == 4
        return take(self, commit)

    monkeypatch.setattr(PartStore, "_take_number", late)
    assert store.compact() == 0
    assert len(list(store)) == 4 * COUNT
    assert runs_of(PartStore(tmp_path)).keys() == {"0", "1", "2", "3"}


def test_files_that_no_commit_names_are_not_read(tmp_path: Path) -> None:
    store = PartStore(tmp_path)
    store.append_jobs([job_of("a")])
    (part,) = (tmp_path / "data").iterdir()
    (tmp_path / "data" / f"{'0' * 32}.parquet").write_bytes(part.read_bytes())
    (tmp_path / "data" / f"{'1' * 32}.parquet").write_bytes(part.read_bytes()[:100])
    (tmp_path / "log" / ".0123.tmp").write_text("{")
    assert runs_of(PartStore(tmp_path)) == {"a": "first"}
    for path in [*(tmp_path / "data").iterdir(), *(tmp_path / "log").glob(".*")]:
        os.utime(path, (1, 1))
    store.compact()
    assert [*(tmp_path / "data").iterdir(), *(tmp_path / "log").glob(".*")] == [part]


def test_damage_is_named(tmp_path: Path) -> None:
    store = PartStore(tmp_path)
    store.append_jobs([job_of("a")])
    store.append_jobs([job_of("b")])
    part = tmp_path / "data" / store._parts.popitem()[0]
    whole = part.read_bytes()
    part.write_bytes(whole[:-10])
    with pytest.raises(CorruptStoreError, match=f"has {len(whole) - 10} bytes, and had {len(whole)} when"):
        list(PartStore(tmp_path))
    part.write_bytes(bytes(len(whole)))
    with pytest.raises(CorruptStoreError, match="no records can be read from it"):
        list(PartStore(tmp_path))
    part.unlink()
    with pytest.raises(StoreError, match="is gone"):
        list(PartStore(tmp_path))
    entry = tmp_path / "log" / "000000000001.json"
    for text in ('{"part": "x"', '{"part": "../../x.parquet", "size": 1, "records": 1}', '{"part": 1}', "[]"):
        entry.write_text(text)
        with pytest.raises(CorruptStoreError, match=r"000000000001\.json"):
            PartStore(tmp_path).jobs()
    with pytest.raises(StoreError, match="cannot be made a folder of records"):
        PartStore(entry)


def test_a_full_disk_is_an_error_and_the_next_try_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PartStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _fail)
        with pytest.raises(StoreError, match="No space left on device"):
            store.append_jobs([job_of("a")])
    assert len(store.append_jobs([job_of("a")])) == 1
    assert runs_of(store) == {"a": "first"}


def _fail(*_: object) -> Iterator[None]:
    raise OSError(28, "No space left on device")


# -- records that are passed on --------------------------------------------------------------------------------


def test_a_record_that_is_not_parsed_is_the_same_record() -> None:
    made = record(1)
    passed = Record.from_row(made.to_row(), parse=False)
    assert passed.to_row() == made.to_row()
    assert passed.id == made.id
    assert passed == made
    assert (passed.workload, passed.config, passed.provenance) == (
        made.workload,
        made.config,
        made.provenance,
    )
    assert passed.to_json() == made.to_json()
    with pytest.raises(AttributeError, match="a record has no 'colour'"):
        passed.colour  # noqa: B018


def test_a_record_that_is_not_parsed_is_checked_against_its_id() -> None:
    row = list(record(1).to_row())
    row[6] = 0.25
    with pytest.raises(InputError, match="does not have the content"):
        Record.from_row(row, parse=False)
