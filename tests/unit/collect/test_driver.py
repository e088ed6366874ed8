"""Driver: what it holds at most, what it takes for lost, whose jobs it takes over, and which result stays."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorwise import entries_from
from tensorwise.collect.collected import Collected
from tensorwise.collect.corpus import patterns
from tensorwise.collect.driver import Limits, collect, ledger_of
from tensorwise.collect.executors import Executor
from tensorwise.collect.job import Job, plan
from tensorwise.collect.ledger import Ledger
from tensorwise.errors import MeasurementError
from tensorwise.store.finished import JobRecords
from tensorwise.store.record import Record
from tensorwise.store.store import Store
from tensorwise.tensor.files import write

QUICK = Limits(look_s=0.02, batch_s=0.02, gather_s=0.0)


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    for k in range(12):
        write(tmp_path / f"m{k}.mtx", entries_from(np.eye(8 + k)))
    made = plan(patterns([tmp_path]), ["spmm"], n=[4], samples=2, device="null")
    return sorted(made, key=lambda job: int(job.name[1:]))


@dataclass
class Nodes(Executor[Job]):
    """Keeps what is submitted until the test answers."""

    slots: int = 4
    open: "list[tuple[Job, Future[list[Record]]]]" = field(default_factory=list)
    submitted: list[str] = field(default_factory=list)
    most: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    answer: Callable[["Nodes"], None] | None = None

    def submit(self, job: Job) -> "Future[list[Record]]":
        future: Future[list[Record]] = Future()
        self.open.append((job, future))
        self.submitted.append(job.name)
        self.most = max(self.most, len(self.open))
        if self.answer is not None:
            self.answer(self)
        return future

    def capacity(self, kind: str) -> int:
        return self.kinds.get(kind, self.slots)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass

    def finish(self, name: str) -> None:
        """Answer the job of a name that was submitted first."""
        ((job, future), *_) = [one for one in self.open if one[0].name == name]
        self.open.remove((job, future))
        future.set_result(job.measured())


def finish_soon(nodes: Nodes) -> None:
    name = nodes.submitted[-1]
    threading.Timer(0.01, nodes.finish, [name]).start()


def until(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.005)


class Beside:
    """A collection in a thread of its own."""

    def __init__(self, jobs: Sequence[Job], path: Path, nodes: Nodes, **options: Any) -> None:
        self.found: Collected | None = None
        self._arguments = jobs, path, nodes
        self._options = {"limits": QUICK, **options}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        jobs, path, nodes = self._arguments
        with Store(path) as store:
            self.found = collect(jobs, store, nodes, **self._options)

    def end(self) -> Collected:
        self._thread.join(60)
        assert self.found is not None
        return self.found


def test_no_more_is_in_flight_than_there_are_slots(jobs: list[Job], tmp_path: Path) -> None:
    nodes = Nodes(4, answer=finish_soon)
    assert Beside(jobs, tmp_path / "s.sqlite", nodes).end().jobs == 12
    assert nodes.most == 4
    nodes = Nodes(4, answer=finish_soon)
    limits = replace(QUICK, in_flight=2)
    assert Beside(jobs, tmp_path / "t.sqlite", nodes, limits=limits).end().jobs == 12
    assert nodes.most == 2


def test_kinds_of_machines_do_not_wait_for_each_other(
    jobs: list[Job], tmp_path: Path, wait_for_looks: Callable[[], None]
) -> None:
    """The one node of a kind is busy: jobs of the other kind are submitted, and no more of this one."""
    rare = [replace(job, kind="rare") for job in jobs[:6]]
    nodes = Nodes(8, kinds={"rare": 1, "": 3})
    beside = Beside([*rare, *jobs[6:]], tmp_path / "s.sqlite", nodes, anywhere=True)
    until(lambda: len(nodes.submitted) == 4)
    wait_for_looks()
    assert sorted(job.kind for job, _ in nodes.open) == ["", "", "", "rare"]
    nodes.answer = finish_soon
    for job, _ in list(nodes.open):
        nodes.finish(job.name)
    assert beside.end().jobs == 12


class Counting(Store):  # type: ignore[misc]
    """A store that is slow, and counts its batches."""

    sizes: list[int]
    nodes: Nodes

    def append_jobs(self, results: Sequence[JobRecords], *, anywhere: bool = False) -> list[JobRecords]:
        before = len(self.nodes.submitted)
        time.sleep(0.05)
        assert len(self.nodes.submitted) == before, "nothing is submitted while the store is written"
        self.sizes.append(len(results))
        return super().append_jobs(results, anywhere=anywhere)


@pytest.mark.parametrize(
    ("limits", "most"), [({"batch_jobs": 4, "batch_s": 99.0}, 4), ({"batch_jobs": 12, "batch_bytes": 1}, 2)]
)
def test_results_are_appended_in_batches(
    jobs: list[Job], tmp_path: Path, limits: dict[str, Any], most: int
) -> None:
    nodes = Nodes(2, answer=lambda one: one.finish(one.submitted[-1]))
    store = Counting(tmp_path / "s.sqlite")
    store.nodes, store.sizes = nodes, []
    assert collect(jobs, store, nodes, limits=replace(QUICK, **limits)).jobs == 12
    assert sum(store.sizes) == 12
    assert store.sizes[0] == most
    assert max(store.sizes) <= most + 1


def test_an_answer_of_another_job_is_no_answer(jobs: list[Job], tmp_path: Path) -> None:
    nodes = Nodes(1)
    beside = Beside(jobs[:2], tmp_path / "s.sqlite", nodes)
    until(lambda: nodes.open)
    job, future = nodes.open.pop()
    future.set_result(jobs[5].measured())
    nodes.answer = finish_soon
    until(lambda: nodes.submitted.count(job.name) == 2 or nodes.open)
    found = beside.end()
    assert (found.jobs, found.redone, nodes.submitted.count(job.name)) == (2, 1, 2)


def test_an_answer_of_another_kind_of_machines_is_no_answer(jobs: list[Job], tmp_path: Path) -> None:
    job = replace(jobs[0], kind="zen4")
    nodes = Nodes(1)
    beside = Beside([job], tmp_path / "s.sqlite", nodes, anywhere=True)
    until(lambda: nodes.open)
    _, future = nodes.open.pop()
    wrong = [replace(one, provenance={**one.provenance, "kind": "zen5"}) for one in job.measured()]
    passed = [Record.from_row(one.to_row(), parse=False) for one in wrong]
    nodes.answer = finish_soon
    future.set_result(passed)
    found = beside.end()
    assert (found.jobs, found.redone) == (1, 1)


def test_a_late_job_is_begun_again_and_the_first_result_stays(jobs: list[Job], tmp_path: Path) -> None:
    nodes, measured = Nodes(2), list(jobs[0].measured())  # before: it would be late a second time meanwhile
    beside = Beside(jobs[:1], tmp_path / "s.sqlite", nodes, limits=replace(QUICK, patience_s=1.0))
    until(lambda: len(nodes.submitted) == 2)
    (_, late), (_, second) = nodes.open
    for future, who in ((late, "late"), (second, "second")):  # the late one is the first after all
        future.set_result([replace(one, note=who) for one in measured])
    found = beside.end()
    assert (found.jobs, found.redone, found.num_left) == (1, 1, 0)
    with Store(tmp_path / "s.sqlite") as store:
        assert {one.note for one in store} == {"late"}


def test_what_is_late_each_time_is_lost_and_ends_the_run(jobs: list[Job], tmp_path: Path) -> None:
    nodes = Nodes(3)
    found = Beside(jobs[:1], tmp_path / "s.sqlite", nodes, limits=replace(QUICK, patience_s=0.05)).end()
    assert (found.jobs, found.num_left, len(found.lost), len(nodes.submitted)) == (0, 0, 1, 3)
    assert "no answer for 0.05 s" in found.lost[0]


def test_a_result_that_comes_after_its_job_was_given_up_counts_once(jobs: list[Job], tmp_path: Path) -> None:
    other = replace(jobs[1], kind="b")  # whose machines are there when the first job was given up
    nodes = Nodes(
        8, kinds={"b": 0}, answer=lambda one: finish_soon(one) if one.submitted[-1] == "m1" else None
    )
    reasons: list[int] = []

    def observe(job: object, found: Collected) -> None:
        reasons.append(len(found.lost))
        if not nodes.kinds["b"]:
            nodes.finish("m0")
            nodes.kinds["b"] = 1

    limits = replace(QUICK, patience_s=0.1)
    path = tmp_path / "s.sqlite"
    found = Beside([jobs[0], other], path, nodes, limits=limits, anywhere=True, observe=observe).end()
    assert (found.jobs, found.lost, found.num_left) == (2, [], 0)
    assert reasons[0] == 1, "it was given up"


def test_idle_nodes_begin_the_last_jobs_once_more(jobs: list[Job], tmp_path: Path) -> None:
    nodes = Nodes(4, answer=lambda one: None if one.submitted[-1] == "m11" else finish_soon(one))
    beside = Beside(jobs, tmp_path / "s.sqlite", nodes, anywhere=True)
    until(lambda: nodes.submitted.count("m11") == 2)
    nodes.finish("m11")
    found = beside.end()
    assert (found.jobs, found.redone, found.num_left) == (12, 1, 0)
    assert len(nodes.submitted) == 13, "once more, and not more often"


def test_an_idle_driver_helps_another(jobs: list[Job], tmp_path: Path) -> None:
    """The job of a driver whose node is slow is begun by the other, whose result is the first."""
    path = tmp_path / "s.sqlite"
    slow, fast = Nodes(1), Nodes(2, answer=finish_soon)
    one = Beside(jobs, path, slow, anywhere=True)
    until(lambda: slow.open)
    other = Beside(jobs, path, fast, anywhere=True)
    found = other.end()
    assert (found.jobs, found.num_left) == (12, 0)
    assert fast.submitted.count(slow.submitted[0]) == 1
    found = one.end()  # it sees that all is done, and does not wait for its node
    assert (found.jobs, found.elsewhere, found.num_left) == (0, 12, 0)


class Clock:
    """The clock of the ledger, which the test sets."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def wait_for_looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that returns when the driver has read the whole ledger again, and has gone on."""
    refresh, count = Ledger.refresh, [0]

    def counted(ledger: Ledger) -> None:
        refresh(ledger)
        count[0] += 1

    def wait() -> None:
        before = count[0]
        until(lambda: count[0] >= before + 4)

    monkeypatch.setattr(Ledger, "refresh", counted)
    return wait


def test_a_driver_elsewhere_that_shows_no_life_is_replaced(
    jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_for_looks: Callable[[], None]
) -> None:
    clock = Clock()
    monkeypatch.setattr("tensorwise.collect.ledger.time", clock)
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        ledger = ledger_of(store)
    ledger.append("elsewhere", {"host": "another machine"}, {"claim": jobs[0].id})
    nodes = Nodes(4, answer=finish_soon)
    beside = Beside(jobs[:3], path, nodes, limits=replace(QUICK, lease_s=600.0))
    until(lambda: len(nodes.submitted) == 2)
    for now in (590.0, 1180.0, 1770.0):
        clock.now = now
        wait_for_looks()
        assert jobs[0].name not in nodes.submitted
        ledger.append("elsewhere", {"beat": 1})
        wait_for_looks()
    clock.now = 1770.0 + 601.0
    assert beside.end().jobs == 3


def test_of_two_that_claim_a_job_at_the_same_moment_the_first_by_name_runs_it(
    jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_for_looks: Callable[[], None]
) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        ledger = ledger_of(store)
    append = Ledger.append

    def append_both(self: Ledger, driver: str, *lines: dict[str, Any]) -> None:
        if {"claim": jobs[0].id} in lines:
            append(self, "-first", {"host": "another machine"}, {"claim": jobs[0].id})
        if {"claim": jobs[1].id} in lines:
            append(self, "~last", {"host": "another machine"}, {"claim": jobs[1].id})
        append(self, driver, *lines)

    monkeypatch.setattr(Ledger, "append", append_both)
    nodes = Nodes(4, answer=finish_soon)
    beside = Beside(jobs[:3], path, nodes)
    until(lambda: len(nodes.submitted) == 2)
    wait_for_looks()
    assert sorted(nodes.submitted) == ["m1", "m2"]
    monkeypatch.setattr(Ledger, "append", append)
    ledger.remove("-first")
    assert beside.end().jobs == 3


def test_a_driver_of_this_machine_that_died_is_replaced_at_once(jobs: list[Job], tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        ledger = ledger_of(store)
    with ledger.hold("dead"):
        ledger.append("dead", {"claim": jobs[0].id})
        ledger.refresh()
        assert ledger.rivals(jobs[0].id, "me", 600.0) == {"dead"}
    ledger.refresh()
    assert ledger.rivals(jobs[0].id, "me", 600.0) == set()
    nodes = Nodes(4, answer=finish_soon)
    assert Beside(jobs[:3], path, nodes, limits=replace(QUICK, lease_s=600.0)).end().jobs == 3
    assert list(ledger.journals.iterdir()) == [], "journals of drivers that ended are removed"


@pytest.mark.parametrize("begin", [0, 1])
def test_what_another_driver_gave_up_is_not_tried_again(
    jobs: list[Job],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wait_for_looks: Callable[[], None],
    begin: int,
) -> None:
    """Unless it runs here already: then its result is taken, and it counts once."""
    monkeypatch.setattr("secrets.randbelow", lambda end: begin)  # by how much the order is rotated
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        ledger = ledger_of(store)
    ledger.append("old", {"job": jobs[1].id, "error": "before this run: tried again"})
    nodes = Nodes(1)
    beside = Beside(jobs[:3], path, nodes)
    until(lambda: nodes.open)
    ledger.append("other", {"job": jobs[2].id, "error": "it cannot be read"})
    wait_for_looks()
    nodes.answer = finish_soon
    nodes.finish(nodes.submitted[0])
    found = beside.end()
    if begin == 0:
        assert (found.jobs, found.elsewhere, found.num_left) == (2, 1, 0)
        assert jobs[2].name not in nodes.submitted
    else:
        assert nodes.submitted[0] == jobs[2].name
        assert (found.jobs, found.elsewhere, found.num_left) == (3, 0, 0)


def test_a_job_that_cannot_be_run_is_said_to_the_others(jobs: list[Job], tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    nodes = Nodes(2)
    beside = Beside(jobs[:2], path, nodes)
    until(lambda: len(nodes.open) == 2)
    with Store(path) as store:
        ledger = ledger_of(store)
    (job, future), (_, other) = nodes.open
    future.set_exception(MeasurementError("it cannot be read"))
    until(lambda: ledger.refresh() or job.id in ledger.failed)
    other.set_result(nodes.open[1][0].measured())
    found = beside.end()
    assert (found.jobs, found.failed) == (1, [f"{job.label}: it cannot be read"])


def test_a_result_of_another_device_of_the_same_kind_is_refused(jobs: list[Job], tmp_path: Path) -> None:
    """The first result says what device the machines of a kind are, also for a driver that begins later."""
    path = tmp_path / "s.sqlite"
    mine = [replace(job, kind="zen4") for job in jobs[:3]]

    def answer(nodes: Nodes) -> None:
        """Be a node of another device for the job m1, the first two times."""
        job, future = nodes.open.pop()
        odd = job.name == "m1" and nodes.submitted.count("m1") <= 2
        records = job.measured()
        future.set_result([replace(one, device_id="odd") for one in records] if odd else records)

    with Store(path) as store:
        assert collect(mine[:1], store, Nodes(1, answer=answer), anywhere=True, limits=QUICK).jobs == 1
        found = collect(mine, store, Nodes(1, answer=answer), anywhere=True, limits=QUICK)
        assert (found.before, found.jobs, found.redone, found.lost, found.mixed) == (1, 2, 2, [], [])
        assert len({one.device_id for one in store}) == 1


def test_nodes_of_another_device_only_lose_their_jobs(jobs: list[Job], tmp_path: Path) -> None:
    def answer(nodes: Nodes) -> None:
        job, future = nodes.open.pop()
        changes = {"device_id": "odd"} if job.name == "m1" else {}
        future.set_result([replace(one, **changes) for one in job.measured()])

    with Store(tmp_path / "s.sqlite") as store:
        found = collect(jobs[:2], store, Nodes(1, answer=answer), anywhere=True, limits=QUICK)
    assert (found.jobs, found.num_left, len(found.lost)) == (1, 0, 1)
    assert "a node of the device odd has measured it" in found.lost[0]
    assert "--kind" in found.lost[0]


@pytest.mark.parametrize("limit", [{"batch_s": 0.02}, {"batch_bytes": 1}])
def test_results_do_not_wait_for_a_slow_node(jobs: list[Job], tmp_path: Path, limit: dict[str, Any]) -> None:
    """A batch is appended when its first result has waited, or its records are large, however few they are."""
    path = tmp_path / "s.sqlite"
    nodes = Nodes(4, answer=lambda one: None if one.submitted[-1] == "m1" else finish_soon(one))
    limits = replace(QUICK, batch_jobs=100, **{"batch_s": 1e9, **limit})
    beside = Beside(jobs[:2], path, nodes, limits=limits)
    with Store(path) as store:
        until(lambda: store.finished().has(jobs[0].id, None))
    assert [job.name for job, _ in nodes.open] == ["m1"]
    nodes.finish("m1")
    assert beside.end().jobs == 2


def test_a_result_that_another_driver_was_first_to_append_is_dropped(jobs: list[Job], tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    nodes = Nodes(4)
    beside = Beside(jobs[:1], path, nodes, limits=replace(QUICK, look_s=30.0))  # it does not look meanwhile
    until(lambda: nodes.open)
    with Store(path) as store:
        first = [replace(one, note="first") for one in jobs[0].measured()]
        store.append_jobs([JobRecords.of(jobs[0].id, first)])
    nodes.finish("m0")
    found = beside.end()
    assert (found.jobs, found.dropped, found.elsewhere, found.num_left) == (0, 1, 1, 0)
    with Store(path) as store:
        assert {one.note for one in store} == {"first"}


def test_a_driver_gives_signs_of_life_while_it_waits(jobs: list[Job], tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    nodes = Nodes(4)
    beside = Beside(jobs[:1], path, nodes, limits=replace(QUICK, beat_s=0.0))
    with Store(path) as store:
        journals = ledger_of(store).journals
    until(lambda: sum(path.read_text().count('"beat"') for path in journals.glob("*.jsonl")) >= 2)
    until(lambda: nodes.open)
    nodes.finish("m0")
    assert beside.end().jobs == 1


def test_no_more_jobs_of_a_kind_are_in_flight_than_it_has_machines(jobs: list[Job], tmp_path: Path) -> None:
    most = 0

    def answer(nodes: Nodes) -> None:
        nonlocal most
        most = max(most, sum(job.kind == "b" for job, _ in nodes.open))
        finish_soon(nodes)

    nodes = Nodes(8, kinds={"b": 2}, answer=answer)
    of_kind = [replace(job, kind="b") for job in jobs[:6]]
    found = Beside([*of_kind, *jobs[6:]], tmp_path / "s.sqlite", nodes, anywhere=True).end()
    assert (found.jobs, found.num_left) == (12, 0)
    assert most == 2


def test_a_job_that_was_lost_is_claimed_by_nobody(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "drivers")
    ledger.append("a", {"host": "another machine"}, {"claim": "job"})
    ledger.refresh()
    assert ledger.rivals("job", "me", 600.0) == {"a"}
    ledger.append("a", {"job": "job", "lost": "its node was taken"})
    ledger.refresh()
    assert ledger.rivals("job", "me", 600.0) == set()
