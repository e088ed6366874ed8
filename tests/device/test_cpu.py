"""The CPU device: real measurements, and candidates that crash, hang, eat memory or lie.

Hostile kernels need no hook in the product: a shared object that does what a test wants is published in a
cache of the test's own, under the key of a harmless program; the worker then loads it as that program.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.device.cpu import CpuDevice
from tensorwise.errors import CompilerError, InputError, MeasurementError
from tensorwise.lower.program import Program, program_for
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.space.cpu import cpu_space
from tensorwise.space.portfolio import portfolio
from tensorwise.tensor.convert import entries_from
from tensorwise.toolchain.cache import PRELUDE, KernelCache, default_cache
from tensorwise.toolchain.compiler import Compiler, CompilerTimeoutError
from tensorwise.toolchain.shelf import Shelf

CSR, SERIAL = "(i,k) -> U(i) C(k)", "reorder(i,k)"

CRASH = "*(volatile int *)8 = 1; return 0;"
HANG = "for (volatile int64_t i = 0; i >= 0; i = 1) {} return 0;"
WRONG = "((float *)buffers[BUFFERS - 1])[0] = 42; return 0;"
EXIT = "extern void exit(int); exit(1); return 0;"
QUIET_EXIT = "extern void _exit(int); _exit(0); return 0;"
ABORT = "extern void abort(void); abort(); return 0;"
CODE = "return 7;"
FORK = (
    "extern int fork(void); extern unsigned sleep(unsigned);"
    "if (!fork()) for (;;) sleep(1); for (;;) {} return 0;"
)
GARBAGE = (
    "extern int puts(const char *); extern int fflush(void *); extern long write(int, const void *, unsigned long);"
    'puts("{\\"done\\": true}"); fflush(0); write(1, "\\nno json\\n", 9); return 0;'
)
GREEDY = (
    "extern void *malloc(unsigned long); extern void *memset(void *, int, unsigned long); extern void abort(void);"
    "for (;;) { void *p = malloc(1 << 24); if (!p) abort(); memset(p, 1, 1 << 24); } return 0;"
)


@pytest.fixture(scope="module")
def cache_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that may be poisoned, with what every candidate needs in it: none has to wait for its compilation."""
    root = tmp_path_factory.mktemp("cache")
    environment = {**os.environ, "TENSORWISE_CACHE_DIR": str(root)}
    script = (
        "from tensorwise.tensor.primitives import PACKING; from tensorwise.toolchain.routines import load_all;"
        "from tensorwise.toolchain.runtime import DRIVER; load_all(DRIVER, PACKING)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    return root


@pytest.fixture(autouse=True)
def _own_cache(cache_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use it. The roofline would be measured in it anew, and decides nothing here."""
    monkeypatch.setenv("TENSORWISE_CACHE_DIR", str(cache_root))
    monkeypatch.setattr("tensorwise.device.cpu.plausible_s", lambda workload, threads: 0.0)


@pytest.fixture
def work() -> Workload:
    rng = np.random.default_rng(0)
    return workload("spmv", entries_from(sp.random_array((60, 40), density=0.1, rng=rng, dtype=np.float32)))


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    with CpuDevice(2, first_run_s=1.0, memory_bytes=1 << 28) as made:
        yield made


def program(work: Workload, schedule: str = SERIAL, format: str = CSR) -> Program:
    return program_for(work, format, schedule)


def poison(work: Workload, victim: Program, body: str, tmp_path: Path) -> None:
    """Put a kernel that does ``body`` where the worker will look for ``victim``'s."""
    cache = default_cache()
    (text,) = GeneratedKernel(victim).texts(work)
    key = cache.key(text)
    source, out = tmp_path / f"{key}.c", tmp_path / f"{key}.so"
    source.write_text(
        f"{PRELUDE}\nint tw_{key}(void *const *buffers, const int64_t *sizes)\n"
        f"{{ (void)buffers; (void)sizes; {body.replace('BUFFERS', '1')} }}\n"
    )
    compiler = cache.compiler
    subprocess.run(
        [*compiler.command, "-O0", "-w", "-shared", "-fPIC", str(source), "-o", str(out)], check=True
    )
    Shelf(Path(os.environ["TENSORWISE_CACHE_DIR"]) / "kernels").publish(out.read_bytes(), [key])


def children(pid: int) -> list[int]:
    """Processes whose parent is ``pid``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found


def eventually(condition: object, limit_s: float = 10.0) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def worker_of(device: CpuDevice) -> int:
    assert device._worker is not None
    return device._worker.process.pid


@pytest.mark.parametrize(("again", "status"), [(0.0, "ok"), (1.0, "implausible")])
def test_what_is_faster_than_the_machine_can_be_is_doubted_once_more(
    work: Workload, device: CpuDevice, monkeypatch: pytest.MonkeyPatch, again: float, status: str
) -> None:
    """What the machine can do may have been measured beside somebody else: it is looked at again, once for all."""
    least = [1.0]
    monkeypatch.setattr("tensorwise.device.cpu.plausible_s", lambda workload, threads: least[-1])
    monkeypatch.setattr("tensorwise.device.cpu.doubted", lambda threads: least.append(again))
    kernels = [program(work), "scipy", program(work, SERIAL, "(i,k) -> U(i) U(k)")]
    found = list(device.measure(work, kernels))
    assert [one.status for one in found] == [status] * 3
    assert least == [1.0, again]
    assert found[0].bytes_held > 0
    assert ("faster than this machine can be" in found[0].note) == (status == "implausible")


def test_candidates_are_measured(device: CpuDevice, work: Workload) -> None:
    space = cpu_space(work.assignment, "A")
    configs = portfolio(space, work)[:4]
    measured = list(device.measure(work, configs))
    assert [one.status for one in measured] == ["ok"] * len(configs)
    for one in measured:
        assert 0 < one.seconds < 1
        assert len(one.samples) >= 3
        assert one.bytes_held > 0


def test_libraries_and_programs_mix(device: CpuDevice, work: Workload) -> None:
    measured = list(device.measure(work, ["scipy", program(work), "scipy"]))
    assert [one.status for one in measured] == ["ok"] * 3


@pytest.mark.parametrize("torch", ["import os; os.abort()", "raise ImportError('no such thing')"])
def test_a_library_that_cannot_be_imported_spoils_nothing_else(
    device: CpuDevice, work: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: str
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(torch)
    monkeypatch.syspath_prepend(tmp_path)
    device.start(work)
    assert [one.status for one in device.measure(work, ["scipy", "torch"])] == ["ok", "crash"]
    (one,) = device.measure(work, [program(work)])
    assert one.status == "ok", one.note


def test_a_workload_can_be_loaded_ahead(device: CpuDevice, work: Workload) -> None:
    device.start(work)
    first = worker_of(device)
    device.start(work)
    assert [one.status for one in device.measure(work, ["scipy"])] == ["ok"]
    other = workload("spmm", work.entries, n=5)
    device.start(work)
    device.start(other)
    assert [one.status for one in device.measure(work, ["scipy"])] == ["ok"]
    assert worker_of(device) == first


def test_one_worker_serves_many_batches_and_workloads(device: CpuDevice, work: Workload) -> None:
    list(device.measure(work, [program(work)]))
    first = worker_of(device)
    assert [one.status for one in device.measure(work, [program(work)])] == ["ok"]
    other = workload("spmm", work.entries, n=5)
    assert [one.status for one in device.measure(other, ["scipy"])] == ["ok"]
    assert [one.status for one in device.measure(work, ["scipy"])] == ["ok"]
    assert worker_of(device) == first


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (4, 3), (1, 40), (40, 1)])
def test_empty_and_thin_matrices(device: CpuDevice, shape: tuple[int, int], dtype: str) -> None:
    dense = np.ones(shape) if 40 in shape else np.zeros(shape)
    for op in ("spmv", "spmm", "sddmm"):
        work = workload(op, entries_from(sp.csr_array(dense.astype(dtype))))
        space = cpu_space(work.assignment, "A")
        assert [m.status for m in device.measure(work, [space.default(work)])] == ["ok"], op


def test_rounds_compare_in_the_same_rounds(device: CpuDevice, work: Workload) -> None:
    found = device.rounds(
        work, {"ours": program(work), "scipy": "scipy"}, budget_s=0.2, max_rounds=4, same_twice=True
    )
    assert found.table is not None
    assert set(found.table.names) == {"ours", "scipy", "again"}
    assert found.table.ratio("ours", "scipy").median > 0
    assert not found.failed
    assert found.facts["ours"]["bytes_held"] > 0


def test_nothing_to_compare(device: CpuDevice, work: Workload) -> None:
    assert device.rounds(work, {}, budget_s=0.1).table is None


def test_a_schedule_that_cannot_run_is_refused(device: CpuDevice, work: Workload) -> None:
    hopeless = program(work, "parallel(k,dynamic,4)")
    first, second = device.measure(work, [hopeless, program(work)])
    assert second.status == "ok"
    assert first.status in ("ok", "refused")


HOSTILE = {
    "crash": (CRASH, {"crash"}, "SIGSEGV"),
    "abort": (ABORT, {"crash"}, "SIGABRT"),
    "hang": (HANG, {"timeout", "censored"}, ""),
    "fork and hang": (FORK, {"timeout", "censored"}, ""),
    "exit": (EXIT, {"crash"}, "exit status 1"),
    "exit with status 0": (QUIET_EXIT, {"crash"}, ""),
    "writes nothing": ("return 0;", {"wrong"}, ""),
    "error code": (CODE, {"crash", "refused"}, "error 7"),
    "garbage on stdout": (GARBAGE, {"wrong"}, ""),
    "eats memory": (GREEDY, {"crash", "memory", "censored"}, ""),  # censored: a busy machine was slower
}


@pytest.mark.parametrize(("body", "expected", "word"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_candidate_costs_only_itself(
    device: CpuDevice, work: Workload, tmp_path: Path, body: str, expected: set[str], word: str
) -> None:
    victim = program(work, "reorder(i,k) unroll(k,2)")
    poison(work, victim, body, tmp_path)
    good = program(work)
    measured = list(device.measure(work, [good, victim, "scipy", victim, good, victim]))
    assert [one.status for one in measured[::2]][:2] == ["ok", "ok"]
    assert measured[2].ok
    assert measured[4].ok
    for bad in (measured[1], measured[3], measured[5]):
        assert bad.status in expected, bad
        assert word in bad.note
        assert bad.note
    # and the device goes on with the same worker
    assert [one.status for one in device.measure(work, [good])] == ["ok"]
    worker = worker_of(device)
    assert eventually(lambda: not children(worker))
    device.close()
    assert eventually(lambda: worker not in children(os.getpid()))


@pytest.mark.parametrize(
    "body", [CRASH, HANG, EXIT, GARBAGE, QUIET_EXIT], ids=["crash", "hang", "exit", "garbage", "quiet"]
)
def test_a_hostile_kernel_drops_out_of_the_rounds(
    device: CpuDevice, work: Workload, tmp_path: Path, body: str
) -> None:
    victim = program(work, "reorder(i,k) unroll(k,2)")
    poison(work, victim, body, tmp_path)
    found = device.rounds(
        work, {"ours": program(work), "bad": victim, "scipy": "scipy"}, budget_s=0.1, max_rounds=3
    )
    assert set(found.failed) == {"bad"}
    assert found.failed["bad"]
    assert found.table is not None
    assert set(found.table.names) == {"ours", "scipy"}


def test_only_hostile_kernels_leave_no_table(device: CpuDevice, work: Workload, tmp_path: Path) -> None:
    victim = program(work, "reorder(i,k) unroll(k,2)")
    poison(work, victim, CRASH, tmp_path)
    found = device.rounds(work, {"bad": victim}, budget_s=0.1)
    assert found.table is None
    assert set(found.failed) == {"bad"}


def test_a_slow_candidate_is_given_up(work: Workload, tmp_path: Path) -> None:
    victim = program(work, "reorder(i,k) unroll(k,2)")
    poison(work, victim, HANG, tmp_path)
    with CpuDevice(1) as device:  # the limit of a first run is 30 s
        (one,) = device.measure(work, [victim], incumbent_s=1e-5)
    assert one.status == "censored"
    assert one.seconds < 10


def test_the_time_limit_ends_a_batch_between_candidates(device: CpuDevice, work: Workload) -> None:
    good = program(work)
    list(device.measure(work, [good]))
    worker = worker_of(device)
    some = list(device.measure(work, [good] * 50, limit_s=0.0))
    assert 1 <= len(some) < 50
    assert all(one.ok for one in some)
    assert worker_of(device) == worker, "no answers are left over"
    assert [one.status for one in device.measure(work, [good])] == ["ok"]


def test_an_abandoned_batch_leaves_no_process(device: CpuDevice, work: Workload, tmp_path: Path) -> None:
    victim = program(work, "reorder(i,k) unroll(k,2)")
    poison(work, victim, FORK, tmp_path)
    results = device.measure(work, ["scipy", victim])
    assert next(results).ok
    worker = worker_of(device)
    assert eventually(lambda: bool(children(worker)))
    del results
    assert eventually(lambda: worker not in children(os.getpid()))
    assert [one.status for one in device.measure(work, ["scipy"])] == ["ok"]


def test_a_worker_killed_from_outside(device: CpuDevice, work: Workload) -> None:
    good = program(work)
    results = device.measure(work, [good] * 40)
    assert next(results).ok
    os.kill(worker_of(device), signal.SIGKILL)
    with pytest.raises(MeasurementError, match="worker"):
        list(results)
    assert [one.status for one in device.measure(work, [good])] == ["ok"]


def test_a_worker_killed_between_calls(device: CpuDevice, work: Workload) -> None:
    good = program(work)
    list(device.measure(work, [good]))
    worker = worker_of(device)
    os.kill(worker, signal.SIGKILL)
    assert eventually(lambda: device._worker is not None and not device._worker.is_usable)
    assert [one.status for one in device.measure(work, [good])] == ["ok"]
    assert worker_of(device) != worker


def test_the_worker_does_not_outlive_its_user(tmp_path: Path) -> None:
    """Killed without a chance to clean up, the user's process takes worker and candidate along."""
    script = tmp_path / "user.py"
    script.write_text(
        "import os, sys, numpy as np, scipy.sparse as sp\n"
        "from tests.device import test_cpu as t\n"
        "from pathlib import Path\n"
        "import tensorwise.device.cpu as cpu\n"
        "cpu.plausible_s = lambda w, n: 0.0\n"
        "work = t.workload('spmv', t.entries_from(sp.eye_array(50, dtype=np.float32).tocsr()))\n"
        "victim = t.program(work)\n"
        "t.poison(work, victim, t.HANG, Path(sys.argv[1]))\n"
        "device = t.CpuDevice(1)\n"
        "results = device.measure(work, ['scipy', victim])\n"
        "next(results)\n"
        "print(t.worker_of(device), flush=True)\n"
        "next(results)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    ) as user:
        assert user.stdout is not None
        worker = int(user.stdout.readline())
        assert eventually(lambda: bool(children(worker)))
        candidates = children(worker)
        user.kill()
        user.wait()
    assert eventually(lambda: not Path(f"/proc/{worker}").exists() or _is_zombie(worker))
    for pid in candidates:
        assert eventually(lambda pid=pid: not Path(f"/proc/{pid}").exists() or _is_zombie(pid))  # type: ignore[misc]


def test_a_forked_child_leaves_its_parent_s_worker_alone(device: CpuDevice, work: Workload) -> None:
    assert [one.status for one in device.measure(work, ["scipy"])] == ["ok"]
    worker = worker_of(device)
    child = os.fork()
    if child == 0:
        try:
            assert [one.status for one in device.measure(work, ["scipy"])] == ["ok"]
            assert worker_of(device) != worker
            device.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [one.status for one in device.measure(work, ["scipy"])] == ["ok"]
    assert worker_of(device) == worker


def test_a_forked_child_keeps_no_worker_alive(tmp_path: Path) -> None:
    """It has the pipe that the worker listens to."""
    script = tmp_path / "user.py"
    script.write_text(
        "import os, time\n"
        "from tensorwise.device.cpu import WorkerProcess\n"
        "worker = WorkerProcess(1)\n"
        "child = os.fork()\n"
        "if child == 0: time.sleep(600)\n"
        "print(worker.process.pid, child, flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment
    ) as user:
        assert user.stdout is not None
        worker, child = map(int, user.stdout.readline().split())
        try:
            user.kill()
            user.wait()
            assert eventually(lambda: not Path(f"/proc/{worker}").exists() or _is_zombie(worker))
        finally:
            os.kill(child, signal.SIGKILL)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_close_may_come_first_and_twice(work: Workload) -> None:
    device = CpuDevice(1)
    device.close()
    list(device.measure(work, ["scipy"]))
    device.close()
    device.close()
    assert not children(os.getpid()) or device._worker is None


def test_threads_and_cache_are_checked() -> None:
    for wrong in ({"threads": 0}, {"threads": -2}, {"cache": "lukewarm"}):
        with pytest.raises(InputError):
            CpuDevice(**wrong)  # type: ignore[arg-type]


def test_the_id_tells_what_times_depend_on() -> None:
    assert CpuDevice(1).id != CpuDevice(2).id
    assert CpuDevice(1).id != CpuDevice(1, cache="cold").id
    assert CpuDevice(1).id == CpuDevice(1, seed=3).id


def test_cold_caches(work: Workload) -> None:
    with CpuDevice(1, cache="cold") as device:
        found = device.rounds(work, {"scipy": "scipy"}, budget_s=0.1, max_rounds=3)
    assert found.table is not None
    assert found.table.cache == "cold"


def test_without_a_compiler_libraries_still_run(work: Workload, tmp_path: Path) -> None:
    script = (
        "import numpy as np, scipy.sparse as sp\n"
        "from tensorwise.device.cpu import CpuDevice\n"
        "from tensorwise.program.workload import workload\n"
        "from tensorwise.lower.program import program_for\n"
        "from tensorwise.tensor.convert import entries_from\n"
        "work = workload('spmv', entries_from(sp.eye_array(9, dtype=np.float32).tocsr()))\n"
        "ours = program_for(work, '(i,k) -> U(i) C(k)', 'reorder(i,k)')\n"
        "with CpuDevice(1) as device:\n"
        "    print([m.status for m in device.measure(work, ['scipy', ours])])\n"
    )
    environment = {**os.environ, "TENSORWISE_CC": "/nonexistent/cc"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "['ok', 'refused']", done.stderr
    assert done.stderr == ""


def test_code_out_of_proportion_is_refused_before_it_is_compiled(
    device: CpuDevice, work: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorwise.device.cpu.MOST_TEXT", 10)
    ours, library = device.measure(work, [program(work), "scipy"])
    assert (ours.status, library.status) == ("refused", "ok")
    assert "unroll less" in ours.note


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (CompilerTimeoutError("gcc was killed on kernels.c after 60 s"), "timeout"),
        (CompilerError("gcc refused kernels.c"), "refused"),
    ],
)
def test_a_compilation_that_took_too_long_is_a_timeout(
    fault: CompilerError, status: str, work: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile(*_: object) -> None:
        raise fault

    own = KernelCache(tmp_path)
    monkeypatch.setattr("tensorwise.device.cpu.default_cache", lambda: own)
    monkeypatch.setattr(Compiler, "compile", compile)
    monkeypatch.setattr(Compiler, "answers", lambda _: True)
    with CpuDevice(1) as device:
        found = device.compile(work, ["scipy", program(work)])[1]
    assert (found.status, found.note) == (status, f"{CSR}; {SERIAL}: {fault}")
