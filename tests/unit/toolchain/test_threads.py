import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensorwise.errors import InputError
from tensorwise.toolchain import threads
from tensorwise.toolchain.threads import available_threads, cpu_quota, granted_threads


@pytest.fixture(autouse=True)
def eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_affinity", lambda: 8)
    monkeypatch.setattr(threads, "cpu_quota", lambda: None)
    for name in ("OMP_NUM_THREADS", "TENSORWISE_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("omp", "own", "expected"), [
    ("", "", 8), ("4", "", 4), ("4,2", "", 4), (" 3 , 2", "", 3), ("many", "", 8), ("0", "", 1),
    ("", "2", 2), ("4", "2", 2), ("2", "4", 2), ("", "100", 8),
])  # fmt: skip
def test_variables(omp: str, own: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", omp)
    monkeypatch.setenv("TENSORWISE_NUM_THREADS", own)
    assert available_threads() == expected


@pytest.mark.parametrize("own", ["0", "-1", "two", "1.5"])
def test_own_variable_must_be_right(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORWISE_NUM_THREADS", own)
    with pytest.raises(InputError, match=f"TENSORWISE_NUM_THREADS is '{own}'"):
        available_threads()


@pytest.mark.parametrize(
    ("quota", "expected"), [(None, 8), (0.5, 1), (1.0, 1), (1.5, 2), (3.0, 3), (99.0, 8)]
)
def test_quota_is_rounded_up(quota: float | None, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)
    assert available_threads() == expected


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")
def test_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 7})
    monkeypatch.delenv("OMP_PROC_BIND", raising=False)
    assert threads._affinity() == 3


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")
def test_an_openmp_runtime_that_binds_the_main_thread_takes_no_threads_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(threads, "_CPUS", {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {2})
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    assert threads._affinity() == 4


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one processor"
)
@pytest.mark.parametrize("bound", [True, False])
def test_processes_run_anywhere_though_their_starter_was_bound(
    bound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = os.sched_getaffinity(0)
    monkeypatch.setattr(threads, "_CPUS", given)
    monkeypatch.setenv("OMP_PROC_BIND", str(bound))
    code = "import os; print(len(os.sched_getaffinity(0)))"
    os.sched_setaffinity(0, {min(given)})
    try:
        with threads.unbound():
            said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert os.sched_getaffinity(0) == {min(given)}
    finally:
        os.sched_setaffinity(0, given)
    assert int(said.stdout) == (len(given) if bound else 1)


BOUND_BEFORE_US = """
import ctypes, os, pathlib, sys
given = os.sched_getaffinity(0)
ctypes.CDLL(sys.argv[1])
os.sched_setaffinity(0, {min(given)})  # as PyTorch's runtime does while it is imported
import numpy as np
from tensorwise.front.gnn import Graph, gspmm
from tensorwise.toolchain.threads import available_threads
assert available_threads() == len(given), available_threads()
rng = np.random.default_rng(0)
graph = Graph(rng.integers(0, 2000, 60000), rng.integers(0, 2000, 60000), threads=len(given))
before = {int(one.name) for one in pathlib.Path("/proc/self/task").iterdir()}
for _ in range(3):
    gspmm(graph, "copy_lhs", "sum", np.ones((2000, 64), np.float32))
started = {int(one.name) for one in pathlib.Path("/proc/self/task").iterdir()} - before
assert started
assert os.sched_getaffinity(0) == {min(given)}
assert all(os.sched_getaffinity(thread) - {min(given)} for thread in started)
"""


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one processor"
)
def test_threads_run_anywhere_though_a_runtime_had_bound_the_main_one_before_we_were_imported() -> None:
    library = ctypes.util.find_library("gomp")
    if library is None:
        pytest.skip("no OpenMP runtime")
    environment = {**os.environ, "OMP_PROC_BIND": "true"}
    for name in ("OMP_NUM_THREADS", "TENSORWISE_NUM_THREADS", "OMP_PLACES"):
        environment.pop(name, None)
    said = subprocess.run(
        [sys.executable, "-c", BOUND_BEFORE_US, library],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


CGROUPS = {
    "none": ({}, None),
    "v2 unlimited": ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "max 100000\n"}, None),
    "v2": ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n"}, 1.5),
    "v2, limited above": (
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
        },
        2.0,
    ),
    "v2, own root in a container": (
        {"proc/self/cgroup": "0::/../x\n", "sys/fs/cgroup/cpu.max": "400000 100000"},
        4.0,
    ),
    "v1": (
        {
            "proc/self/cgroup": "5:memory:/m\n4:cpu,cpuacct:/c\n1:name=systemd:/\n",
            "sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us": "250000\n",
            "sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us": "100000\n",
        },
        2.5,
    ),
    "v1 in a container": (
        {
            "proc/self/cgroup": "4:cpu:/docker/0123\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        1.0,
    ),
    "v1 unlimited": (
        {
            "proc/self/cgroup": "4:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        None,
    ),
    "rubbish": ({"proc/self/cgroup": "what\n0::/a\n", "sys/fs/cgroup/a/cpu.max": "lots of it\n"}, None),
}


@pytest.mark.parametrize("name", CGROUPS)
def test_cgroups(name: str, tmp_path: Path) -> None:
    files, expected = CGROUPS[name]
    assert cpu_quota(write(tmp_path, files)) == expected


def test_no_more_threads_than_can_run_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    threads._say_too_many.cache_clear()
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert granted_threads(None) == 2
    assert [granted_threads(asked) for asked in (1, 2, 5, 8)] == [1, 2, 5, 8]  # what is asked for counts more
    assert not caplog.records
    assert [granted_threads(64), granted_threads(64), granted_threads(10**9)] == [8, 8, 8]
    assert [r.getMessage().split(";")[0] for r in caplog.records] == [
        "64 threads were asked for", "1000000000 threads were asked for",
    ]  # fmt: skip
    monkeypatch.setattr(threads, "cpu_quota", lambda: 1.5)
    assert granted_threads(8) == 2


@pytest.mark.parametrize("omp", ["64", "0", "-1", "abc", "2,3", "9" * 21, ""])
def test_a_strange_omp_num_threads_is_no_error(omp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", omp)
    assert 1 <= available_threads() <= 8
