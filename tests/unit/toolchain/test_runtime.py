import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tensorwise.toolchain import runtime as module
from tensorwise.toolchain.cache import KernelCache, LoadedKernel
from tensorwise.toolchain.compiler import Compiler
from tensorwise.toolchain.runtime import DRIVER, driver_address
from tests.unit.toolchain.kernels import call

SOURCES = Path(module.__file__).parent

# Counts each index and each thread; with depth, every call opens another loop from inside.
COUNTING = """
typedef struct { int64_t *counts, *threads; tw_driver driver; int64_t depth; } TW_SYMBOL_state;
static void TW_SYMBOL_body(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    TW_SYMBOL_state *s = context;
    __atomic_fetch_add(&s->threads[thread], 1, __ATOMIC_RELAXED);
    if (s->depth) {
        TW_SYMBOL_state inner = {s->counts, s->threads, s->driver, s->depth - 1};
        s->driver(TW_SYMBOL_body, &inner, lo, hi, 4, 1, 0, 0);
    } else
        for (int64_t i = lo; i < hi; i++) __atomic_fetch_add(&s->counts[i], 1, __ATOMIC_RELAXED);
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    TW_SYMBOL_state s = {buffers[1], buffers[2], buffers[0], sizes[6]};
    for (int64_t repeat = 0; repeat < sizes[5]; repeat++)
        tw_run(buffers[0], TW_SYMBOL_body, &s, sizes[0], sizes[1], sizes[2], sizes[3], buffers[3], sizes[4]);
    return 0;
}
"""

IMPORTS = (
    "from tensorwise.toolchain.runtime import driver_address\n"
    "from tests.unit.toolchain.test_runtime import COUNTING, Run\n"
    "from tensorwise.toolchain.cache import default_cache\n"
)
"""What processes of their own need to run a loop."""
NEEDS_TWO = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one processor"
)


@pytest.fixture(scope="module")
def counting(shared_cache: KernelCache) -> LoadedKernel:
    DRIVER.load()
    return shared_cache.get([COUNTING])[0]


class Run:
    """One or more calls of the driver over [lo, hi); counts are per index and per thread."""

    def __init__(
        self,
        kernel: LoadedKernel,
        lo: int,
        hi: int,
        threads: int,
        chunk: int = 1,
        bounds: np.ndarray | None = None,
        repeats: int = 1,
        depth: int = 0,
    ) -> None:
        self.counts = np.zeros(max(hi, 0) + 1, np.int64)
        self.threads = np.zeros(1100, np.int64)
        parts = 0 if bounds is None else bounds.size - 1
        status = call(
            kernel,
            [driver_address(), self.counts, self.threads, bounds],
            [lo, hi, threads, chunk, parts, repeats, depth],
        )
        assert status == 0
        expected = np.zeros_like(self.counts)
        expected[lo:hi] = repeats
        np.testing.assert_array_equal(self.counts, expected)
        assert not self.threads[max(1, min(threads, 1024)) :].any()


@pytest.mark.parametrize("threads", [-1, 0, 1, 2, 3, 7])
@pytest.mark.parametrize("chunk", [-1, 0, 1, 3, 32, 2**62])
def test_chunks_cover_every_index_once(threads: int, chunk: int, counting: LoadedKernel) -> None:
    for lo, hi in [(0, 0), (5, 5), (9, 3), (0, 1), (0, 2), (3, 40), (7, 1000)]:
        Run(counting, lo, hi, threads, chunk)


@pytest.mark.parametrize("threads", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 20])
def test_bounds_cover_every_index_once(threads: int, parts: int, counting: LoadedKernel) -> None:
    rng = np.random.default_rng(parts)
    for hi in (0, 1, 5, 300):
        inner = np.sort(rng.integers(0, hi + 1, parts - 1))
        Run(counting, 0, hi, threads, bounds=np.concatenate([[0], inner, [hi]]))


def test_bounds_without_parts(counting: LoadedKernel) -> None:
    Run(counting, 0, 0, 4, bounds=np.zeros(1, np.int64))


def test_one_thread_is_one_call(counting: LoadedKernel) -> None:
    assert Run(counting, 3, 100, 1, 2).threads[0] == 1
    bounds = np.array([0, 10, 10, 100])
    assert Run(counting, 0, 100, 1, bounds=bounds).threads[0] == 2  # the empty part is skipped


def test_many_calls_with_changing_threads(counting: LoadedKernel) -> None:
    for threads in (2, 5, 3, 8, 2, 1, 4):
        Run(counting, 0, 50, threads, 1, repeats=300)


def test_threads_are_capped(counting: LoadedKernel) -> None:
    code = Run(counting, 0, 5000, 10**9, 1)
    assert code.threads.sum() == 5000
    assert DRIVER("workers") <= 1023


def test_nested_calls_are_served(counting: LoadedKernel) -> None:
    for repeats in (1, 50):
        Run(counting, 0, 40, 4, 5, repeats=repeats, depth=2)


def in_threads(count: int, work: Callable[[], object]) -> None:
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not errors


def test_python_threads_call_at_once(counting: LoadedKernel) -> None:
    in_threads(2, lambda: [Run(counting, 0, 200, 3, 1, repeats=200) for _ in range(5)])


def in_child(work: Callable[[], object]) -> None:
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("before", [0, 3])
def test_fork_then_call(before: int, counting: LoadedKernel) -> None:
    for _ in range(20):
        if before:
            Run(counting, 0, 100, before, 1)
        in_child(lambda: [Run(counting, 0, 100, threads, 1, repeats=5) for threads in (2, 4)])
    Run(counting, 0, 100, 3, 1)


def test_fork_while_another_thread_calls(counting: LoadedKernel) -> None:
    stop = threading.Event()

    def call_on() -> None:
        while not stop.is_set():
            Run(counting, 0, 500, 3, 1, repeats=20)

    thread = threading.Thread(target=call_on)
    thread.start()
    library = ctypes.CDLL(None)
    try:
        for _ in range(20):
            # in C alone: after a fork from several threads Python itself may not be usable
            child = os.fork()
            if child == 0:
                library.alarm(60)
                Run(counting, 0, 100, 4, 1, repeats=5)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("spin", ["0", "50", "rubbish", "-1", ""])
def test_spinning_is_a_matter_of_speed_only(spin: str, counting: LoadedKernel, tmp_path: Path) -> None:
    code = (
        "import time\n"
        "from tests.unit.toolchain.test_runtime import COUNTING, Run\n"
        "from tensorwise.toolchain.cache import default_cache\n"
        "kernel = default_cache().get([COUNTING])[0]\n"
        "for _ in range(50):\n"
        "    Run(kernel, 0, 100, 3, 1, repeats=5); time.sleep(0.0005)\n"
    )
    root = Path(__file__).parents[3]
    environment = {**os.environ, "TENSORWISE_SPIN_US": spin, "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=300)


@NEEDS_TWO
def test_threads_run_anywhere_but_on_their_callers_processor(counting: LoadedKernel) -> None:
    """An OpenMP runtime binds the main thread: ours would inherit its one processor. And Linux wakes them up there."""
    code = (
        "import os, time\n" + IMPORTS + "given = os.sched_getaffinity(0)\n"
        "driver_address()\n"
        "kernel = default_cache().get([COUNTING])[0]\n"
        "os.sched_setaffinity(0, {min(given)})\n"
        "before = set(os.listdir('/proc/self/task'))\n"
        "Run(kernel, 0, 1000, 2, repeats=50)\n"
        "(ours,) = set(os.listdir('/proc/self/task')) - before\n"
        "assert os.sched_getaffinity(int(ours)) == given - {min(given)}\n"
        "os.sched_setaffinity(0, {max(given)})\n"
        "time.sleep(0.5)\n"  # until it sleeps
        "Run(kernel, 0, 1000, 2)\n"
        "assert os.sched_getaffinity(int(ours)) == given - {max(given)}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@NEEDS_TWO
def test_a_thread_sleeps_between_loops_where_others_use_its_processor(counting: LoadedKernel) -> None:
    """It would spin for a second; a yield then gives away milliseconds in which it is needed."""
    code = (
        "import os, subprocess, sys, time\n"
        + IMPORTS
        + "mine, others = sorted(os.sched_getaffinity(0))[:2]\n"
        "os.sched_setaffinity(0, {mine, others})\n"
        "driver_address()\n"
        "kernel = default_cache().get([COUNTING])[0]\n"
        "os.sched_setaffinity(0, {mine})\n"
        "before = set(os.listdir('/proc/self/task'))\n"
        "def state():\n"
        "    Run(kernel, 0, 1000, 2)\n"
        "    (ours,) = set(os.listdir('/proc/self/task')) - before\n"
        "    time.sleep(0.02)\n"
        "    return open(f'/proc/self/task/{ours}/stat').read().rpartition(')')[2].split()[0]\n"
        "end = time.monotonic() + 60\n"
        "while state() != 'R':\n"
        "    assert time.monotonic() < end, 'it never spins'\n"
        "busy = f'import os; os.sched_setaffinity(0, {{{others}}})\\nwhile os.getppid() == {os.getpid()}: pass'\n"
        "other = subprocess.Popen([sys.executable, '-c', busy])\n"
        "end = time.monotonic() + 60\n"
        "while state() != 'S':\n"
        "    assert time.monotonic() < end, 'it never sleeps'\n"
        "other.kill()\n"
        "other.wait()\n"
    )
    environment = {**os.environ, "TENSORWISE_SPIN_US": "1000000"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)


def test_runtime_is_compiled_once_a_machine(own_cache_dir: Path) -> None:
    code = (
        "from tensorwise.toolchain.runtime import DRIVER, driver_address\n"
        "from tensorwise.toolchain.cache import default_cache\n"
        "DRIVER.load(); assert driver_address(); assert driver_address() == driver_address()\n"
        "print(default_cache().info().entries)"
    )
    for _ in range(2):
        answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert answer.stdout.strip() == "1"


def test_thread_sanitizer_is_silent(tmp_path: Path, compiler: Compiler) -> None:
    if compiler.kind == "zig":
        pytest.skip("zig brings no thread sanitizer")
    program = tmp_path / "program"
    build = [
        *compiler.command,
        "-O1",
        "-g",
        "-fsanitize=thread",
        "-std=gnu11",
        "-pthread",
        "-w",
        f"-I{SOURCES}",
    ]
    built = subprocess.run(
        [*build, str(SOURCES / "runtime.c"), str(Path(__file__).with_name("race.c")), "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        pytest.skip(f"no thread sanitizer: {built.stderr[:200]}")
    # Address randomisation of recent kernels is more than older sanitizers bear.
    prefix = ["setarch", "-R"] if shutil.which("setarch") else []
    for spin in ("0", "100", ""):
        environment = {**os.environ, "TENSORWISE_SPIN_US": spin}
        ran = subprocess.run(
            [*prefix, str(program)], capture_output=True, text=True, env=environment, timeout=300
        )
        if "unexpected memory mapping" in ran.stderr or "setarch" in ran.stderr:
            pytest.skip("the thread sanitizer does not run on this kernel")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert ran.stdout == "fine\n"
