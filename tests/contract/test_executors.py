"""What every Executor promises: each job's records once, whatever happens to workers. Add one as a row of RIGS.

Those of a cluster are tested where its package is: pip install -e '.[ray,dask]'.
"""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from tensorwise.collect.cluster import ClusterExecutor, needed
from tensorwise.collect.collected import Collected
from tensorwise.collect.corpus import Pattern
from tensorwise.collect.dask import DaskExecutor
from tensorwise.collect.driver import collect
from tensorwise.collect.executors import AnyJob, Executor, ExecutorOptions, LocalExecutor
from tensorwise.collect.job import Job, plan
from tensorwise.collect.opening import EXECUTORS, open_executor
from tensorwise.collect.ray import RayExecutor
from tensorwise.collect.spool import Spool, SpoolExecutor, gather
from tensorwise.errors import InputError, MeasurementError, MissingExtraError
from tensorwise.store.parts import PartStore
from tensorwise.store.reading import open_store
from tensorwise.store.record import Record
from tensorwise.store.store import Store
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write
from tests.contract.odd_worker import COMMAND

SAMPLES, SILENCE_S, LEASE_S = 6, 5.0, 12.0
CLUSTER_SILENCE_S = 10.0
"""There a worker is started for each job, which is silent until then."""
RECORDS = SAMPLES + 2
"""Of a job: the samples, in two stages, and an anchor before each."""


@contextlib.contextmanager
def local(folder: Path, jobs: list[Job]) -> Iterator[Executor]:
    yield LocalExecutor(3, SILENCE_S, COMMAND)


@contextlib.contextmanager
def spool(folder: Path, jobs: list[Job]) -> Iterator[Executor]:
    """A spool with three nodes."""
    Spool(folder).plan(jobs)  # a node ends when it finds nothing to do
    nodes = [node(folder, f"node-{k}") for k in range(3)]
    yield SpoolExecutor(folder)
    for process in nodes:
        assert process.wait(30) == 0


def node(folder: Path, name: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    arguments = [str(folder), name, str(SILENCE_S), str(LEASE_S)]
    return subprocess.Popen([*COMMAND, *arguments], env=environment)


@contextlib.contextmanager
def ray(folder: Path, jobs: list[Job]) -> Iterator[Executor]:
    needs("ray")
    yield RayExecutor(None, 3, CLUSTER_SILENCE_S, COMMAND)


@contextlib.contextmanager
def dask(folder: Path, jobs: list[Job]) -> Iterator[Executor]:
    needs("dask")
    yield DaskExecutor(None, 3, CLUSTER_SILENCE_S, COMMAND)


class Foreign(Executor[AnyJob]):
    """An executor as another package writes one: it knows the interface only."""

    remote = False

    def __init__(self, options: ExecutorOptions) -> None:
        self.slots = options.slots or 1
        self._workers = LocalExecutor(self.slots, options.silence_s or SILENCE_S, COMMAND)

    def submit(self, job: AnyJob) -> "Future[list[Record]]":
        return self._workers.submit(job)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._workers.shutdown(wait, cancel_futures=cancel_futures)


def install(monkeypatch: pytest.MonkeyPatch, name: str, attribute: str) -> None:
    """Have an entry point found, as after another package was installed."""
    point = EntryPoint(name, f"{__name__}:{attribute}", "tensorwise.executors")
    monkeypatch.setattr(EXECUTORS, "_installed", {name: point})
    monkeypatch.setattr(EXECUTORS, "_rows", dict(EXECUTORS._rows))


@contextlib.contextmanager
def foreign(folder: Path, jobs: list[Job]) -> Iterator[Executor]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        install(monkeypatch, "foreign", "Foreign")
        yield open_executor("foreign", ExecutorOptions(slots=3))


def needs(kind: str) -> None:
    package = {"local": "tensorwise", "ray": "ray", "dask": "distributed"}[kind]
    if importlib.util.find_spec(package) is None:  # importing Ray has to be left to its executor
        pytest.skip(f"the executor {kind} needs {package}, which is not installed")


Rig = Callable[[Path, list[Job]], "contextlib.AbstractContextManager[Executor]"]
RIGS: dict[str, Rig] = {"local": local, "spool": spool, "ray": ray, "dask": dask, "foreign": foreign}


@pytest.fixture(params=RIGS.values(), ids=RIGS.keys())
def rig(request: pytest.FixtureRequest) -> Rig:
    made: Rig = request.param
    return made


def jobs_of(folder: Path, families: dict[str, str]) -> list[Job]:
    """One job a name, whose family decides what happens to its worker."""
    found = []
    for k, (name, family) in enumerate(families.items()):
        path = folder / f"{name}.npz"
        if family == "unreadable":
            path.write_text("no matrix")
        else:
            write(path, entries_from(np.eye(10 + k)))
        found.append(Pattern(name, path, family, 2))
    return plan(found, ["spmm"], n=[8], device="null", samples=SAMPLES)


def assert_each_once(store: Store | PartStore, jobs: list[Job]) -> None:
    """Every job has its records, all of one run, and nothing is there twice."""
    records = list(store)
    counts = Counter(str(record.provenance["job"]) for record in records)
    for job in jobs:
        assert counts.pop(job.id, 0) == (0 if job.family in ("kills", "hangs") else RECORDS), job.label
    assert not counts
    assert len({record.id for record in records}) == len(records)


def test_every_executor_is_tested() -> None:
    assert RIGS.keys() - {"foreign"} == set(EXECUTORS)


NO_EXECUTOR = "a text"


def broken(options: ExecutorOptions) -> Executor[AnyJob]:
    raise ValueError("no such machine")


def wrong(options: ExecutorOptions) -> str:
    return "no executor"


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("Absent", "is installed as .*Absent, but cannot be loaded"),
        ("NO_EXECUTOR", "is installed as .*NO_EXECUTOR, but .* cannot be called"),
        ("broken", "executor 'foreign' cannot be started: ValueError: no such machine"),
        ("wrong", "executor 'foreign' cannot be started: .* returns .*no executor.*, not an Executor"),
    ],
)
def test_an_executor_of_another_package_that_is_none(
    attribute: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, "foreign", attribute)
    with pytest.raises(InputError, match=message):
        open_executor("foreign", ExecutorOptions())


def test_an_executor_takes_the_options_that_it_understands(tmp_path: Path) -> None:
    executor = open_executor("local", ExecutorOptions(slots=2, silence_s=7.0))
    assert isinstance(executor, LocalExecutor)
    assert (executor.slots, executor._silence_s, executor.remote) == (2, 7.0, False)
    executor.shutdown()
    spool = open_executor("spool", ExecutorOptions(address=str(tmp_path / "spool")))
    assert isinstance(spool, SpoolExecutor)
    assert spool.remote
    spool.shutdown(wait=False)
    for name, options, message in (
        ("local", ExecutorOptions(address="host:1"), "runs jobs on this machine, got address 'host:1'"),
        ("spool", ExecutorOptions(), "needs the spool's folder as its address"),
        ("absent", ExecutorOptions(), "unknown executor 'absent'; known: local, spool, ray, dask"),
    ):
        with pytest.raises(InputError, match=message):
            open_executor(name, options)


def test_workers_that_die_or_hang_cost_their_job_only(rig: Rig, tmp_path: Path) -> None:
    well = {f"well-{k}": "well" for k in range(4)}
    jobs = jobs_of(tmp_path, {"k": "kills", "o": "kills-once", "h": "hangs", "u": "unreadable", **well})
    readable = [job for job in jobs if job.family != "unreadable"]
    seen: list[tuple[int, int]] = []

    def observe(job: Job, found: Collected) -> None:
        seen.append((found.ended, found.num_left))

    with Store(tmp_path / "store.sqlite") as store:
        with rig(tmp_path / "spool", jobs) as executor:
            found = collect(jobs, store, executor, observe=observe)
        assert_each_once(store, readable)
        assert seen == [(k + 1, 7 - k) for k in range(8)]
        assert (found.jobs, found.num_left, len(found.failed), len(found.lost)) == (5, 0, 1, 2)
        assert found.failed[0].startswith("u spmm n=8: ")
        assert found.records == len(store)
        lost = {text.partition(" ")[0]: text for text in found.lost}
        assert lost.keys() == {"k", "h"}
        assert "ended with status -9" in lost["k"]
        assert "no sign of life" in lost["h"]
        drawn = Counter(r.provenance["drawn"] for r in store if r.provenance["pattern"] == "well-0")
        assert drawn == {"default": 2, "random": 3, "known": 2, "mutated": 1}
        # Once more: what was lost is tried again, and on a machine that does not lose it, it is done.
        again = collect(readable, store, LocalExecutor(1))
        assert (again.before, again.jobs, again.num_left, again.lost) == (5, 2, 0, [])


def test_a_collection_that_is_killed_at_any_moment_goes_on(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, {f"{k}": "slow" for k in range(12)})
    script = (
        "import json, sys\n"
        "from tests.contract.odd_worker import COMMAND\n"
        "from tensorwise.collect.driver import collect\n"
        "from tensorwise.collect.executors import LocalExecutor\n"
        "from tensorwise.collect.job import Job\n"
        "from tensorwise.store.store import Store\n"
        "jobs = [Job.from_json(one) for one in json.load(open(sys.argv[1]))]\n"
        "print('begun', flush=True)\n"
        "collect(jobs, Store(sys.argv[2]), LocalExecutor(2, 10.0, COMMAND))\n"
    )
    (tmp_path / "jobs.json").write_text(json.dumps([job.to_json() for job in jobs]))
    path = tmp_path / "store.sqlite"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    rng = np.random.default_rng(0)
    for _ in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", script, tmp_path / "jobs.json", path],
            env=environment,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.8 + 0.7 * float(rng.random()))
            process.send_signal(signal.SIGKILL)
    with Store(path) as store:
        before = {job for job, _ in store.jobs()}
        assert_each_once(store, [job for job in jobs if job.id in before])
        found = collect(jobs, store, LocalExecutor(3, 10.0, COMMAND))
        assert found.before == len(before)
        assert_each_once(store, jobs)


@pytest.mark.parametrize("place", ["s.sqlite", "s.parts"])
def test_two_collections_share_the_jobs(tmp_path: Path, place: str) -> None:
    """Both measure at the same time, none what the other does, and both end when all is done."""
    if place == "s.parts":
        pytest.importorskip("pyarrow")
    jobs = jobs_of(tmp_path, {f"{k}": "slow" for k in range(8)})

    def collected(_: int) -> Collected:
        with open_store(tmp_path / place) as store:
            return collect(jobs, store, LocalExecutor(1, SILENCE_S, COMMAND))

    with ThreadPoolExecutor(2) as beside:
        found = list(beside.map(collected, range(2)))
    assert sum(one.jobs for one in found) == 8
    assert min(one.jobs for one in found) > 0
    for one in found:
        assert (one.num_left, one.elsewhere + one.before) == (0, 8 - one.jobs)
        assert one.dropped <= 1, "two may claim a job at the same moment, but rarely"
    with open_store(tmp_path / place) as store:
        assert_each_once(store, jobs)


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, {f"{k}": "slow" for k in range(6)})

    def observe(job: Job, found: Collected) -> None:
        if found.jobs == 2:
            raise KeyboardInterrupt

    with Store(tmp_path / "s.sqlite") as store:
        found = collect(jobs, store, LocalExecutor(1, SILENCE_S, COMMAND), observe=observe)
        assert (found.interrupted, found.jobs, found.num_left) == (True, 2, 4)
        assert collect(jobs, store, LocalExecutor(1, SILENCE_S, COMMAND), budget_s=1e-9).num_left == 4
        assert collect(jobs, store, LocalExecutor(2, SILENCE_S, COMMAND)).jobs == 4
        assert_each_once(store, jobs)


def test_a_node_that_is_lost_is_replaced(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, {**{f"{k}": "slow" for k in range(5)}, "h": "hangs"})
    folder = tmp_path / "spool"
    made = Spool(folder)
    assert (made.plan(jobs), made.plan(jobs)) == (6, 0)
    for path in tmp_path.glob("*.npz"):
        path.unlink()  # the spool has what it needs
    first = node(folder, "first")
    claimed = folder / "results" / "first.jsonl"
    while not claimed.exists() or claimed.read_bytes().count(b"records") < 2:
        time.sleep(0.02)
    first.kill()
    first.wait()
    with claimed.open("ab") as file:
        file.write(b'{"job": "torn, as by a full disk')
    with Store(tmp_path / "s.sqlite") as store:
        assert gather(made, store)[0] >= 2
        others = [node(folder, "second"), node(folder, "third")]
        assert [process.wait(60) for process in others] == [0, 0]
        gather(made, store)
        assert gather(made, store) == (0, 0)
        assert_each_once(store, jobs)
    again = node(folder, "first")  # it comes back: nothing is left to do
    assert again.wait(30) == 0


Kill = Callable[[], object]


class RayCluster:
    """A cluster of several nodes on this machine; the head has no slot."""

    def __init__(self, folder: Path) -> None:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # as its executor does, before Ray is imported
        from ray.cluster_utils import Cluster

        soon = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500}
        self._cluster = Cluster(True, head_node_args={**self._node(), "_system_config": soon})
        self.address = self._cluster.address

    def _node(self) -> dict[str, object]:
        return {"num_cpus": 1, "include_dashboard": False, "node_ip_address": "127.0.0.1"}

    def add(self, kind: str = "") -> Kill:
        node = self._cluster.add_node(resources=needed(kind), **self._node())
        return lambda: self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()


class DaskCluster:
    """A scheduler and workers as they are started by hand."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "scheduler.json"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("scheduler", "--host", "127.0.0.1", "--port", "0")
        self.address = self._wait_for_address()

    def _wait_for_address(self) -> str:
        while True:  # the file is there before it is written
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                return str(json.loads(self._file.read_text())["address"])
            time.sleep(0.02)

    def _start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--scheduler-file", str(self._file)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        process = subprocess.Popen(
            [*command, "--no-dashboard", *options], env=environment, stderr=subprocess.DEVNULL
        )
        self._processes.append(process)
        return process

    def add(self, kind: str = "") -> Kill:
        has = " ".join(f"{name}={units}" for name, units in needed(kind).items())
        return self._start(
            "worker", "--host", "127.0.0.1", "--no-nanny", "--nthreads", "1", "--resources", has
        ).kill

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


CLUSTERS: dict[str, tuple[type[RayCluster | DaskCluster], type[ClusterExecutor]]] = {
    "ray": (RayCluster, RayExecutor),
    "dask": (DaskCluster, DaskExecutor),
}


@pytest.mark.parametrize("kind", CLUSTERS)
def test_a_node_of_a_cluster_that_is_lost_is_replaced(kind: str, tmp_path: Path) -> None:
    """A job waits on the only node; another one comes, and the first is killed."""
    needs(kind)
    make, executor_of = CLUSTERS[kind]
    jobs = jobs_of(tmp_path, {"a": "waits-once", "b": "well", "c": "well", "d": "kills"})
    marker = tmp_path / "a.a-was-here"

    def collected(executor: ClusterExecutor) -> Collected:
        with Store(tmp_path / "s.sqlite") as store:
            found = collect(jobs, store, executor)
            assert_each_once(store, jobs)
            return found

    with contextlib.closing(make(tmp_path)) as cluster, ThreadPoolExecutor(1) as beside:
        with pytest.raises(MeasurementError, match=r"no node of the cluster at .*; add nodes with: "):
            executor_of(cluster.address)
        lose = cluster.add()
        collecting = beside.submit(collected, connected(executor_of, cluster.address))
        process = waiting(marker)
        try:
            cluster.add()
            lose()
            found = collecting.result()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)  # it may outlive its node by the time it sleeps
    # The node's job is done again elsewhere; the one that kills its worker on any node is lost, and not recorded.
    assert (found.jobs, found.failed, [text.partition(" ")[0] for text in found.lost]) == (3, [], ["d"])


def waiting(marker: Path) -> int:
    """The process that runs a job of the family ``waits-once``, as soon as it waits."""
    while not (marker.exists() and marker.read_text().endswith("\n")):
        time.sleep(0.02)
    return int(marker.read_text())


def running(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.parametrize("kind", ["local", *CLUSTERS])
def test_what_is_given_up_ends(kind: str, tmp_path: Path) -> None:
    needs(kind)
    executor_of: type[LocalExecutor | ClusterExecutor] = (
        LocalExecutor if kind == "local" else CLUSTERS[kind][1]
    )
    executor = executor_of(silence_s=100.0, command=COMMAND)
    future = executor.submit(jobs_of(tmp_path, {"a": "waits-once"})[0])
    process = waiting(tmp_path / "a.a-was-here")
    executor.shutdown(wait=False)
    assert future.done()
    while running(process):
        time.sleep(0.02)


def connected(executor_of: type[ClusterExecutor], address: str) -> ClusterExecutor:
    """An executor, as soon as the cluster has noticed its node."""
    while True:
        with contextlib.suppress(MeasurementError):
            return executor_of(address, silence_s=100.0, command=COMMAND)
        time.sleep(0.1)


@pytest.mark.parametrize("kind", CLUSTERS)
def test_a_cluster_of_ones_own_listens_on_this_machine_only(kind: str) -> None:
    needs(kind)
    psutil = pytest.importorskip("psutil", reason="sockets are read with psutil, which is not installed")
    executor = CLUSTERS[kind][1]()
    try:
        ours = psutil.Process()
        listening = {
            socket.laddr.ip.removeprefix("::ffff:")
            for process in [ours, *ours.children(recursive=True)]
            for socket in process.net_connections("inet")
            if socket.status == psutil.CONN_LISTEN
        }
    finally:
        executor.shutdown()
    assert listening <= {"127.0.0.1"}


@pytest.mark.parametrize("kind", CLUSTERS)
def test_without_its_package_an_executor_names_the_extra(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("ray", "distributed"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'tensorwise\[{kind}\]'"):
        CLUSTERS[kind][1]()


@pytest.mark.parametrize("kind", CLUSTERS)
def test_jobs_run_on_nodes_of_their_kind(kind: str, tmp_path: Path) -> None:
    """A node of another kind may be free: it is not taken, and a kind that no node has is refused at once."""
    needs(kind)
    make, executor_of = CLUSTERS[kind]
    (job,) = jobs_of(tmp_path, {"a": "well"})
    own, others = replace(job, kind="zen4"), replace(job, kind="zen5")
    with contextlib.closing(make(tmp_path)) as cluster:
        cluster.add("zen4")
        with Store(tmp_path / "s.sqlite") as store:
            found = collect([others, own], store, connected(executor_of, cluster.address))
            assert (found.jobs, found.mixed) == (1, [])
            assert [text.partition(": ")[2] for text in found.failed] == [
                "no node of the cluster has the resource 'tensorwise-zen5', of machines of the kind 'zen5'"
            ]
            assert {record.provenance["kind"] for record in store} == {"zen4"}
            cluster.add("zen5")
            executor = connected(executor_of, cluster.address)
            while executor.slots < 2:  # it joins
                executor.shutdown()
                executor = connected(executor_of, cluster.address)
            again = collect([others, own], store, executor, anywhere=True)
            assert (again.before, again.jobs) == (1, 1)
            assert_each_once(store, [own, others])
