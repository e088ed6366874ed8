"""What is done where a system lacks what Linux has: simulated in child processes."""

import importlib.metadata
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tensorwise import system
from tensorwise.device.libraries import mkl
from tensorwise.sparse import forked
from tensorwise.tensor import memory
from tests.house import ROOT

OTHER_SYSTEM: Final = textwrap.dedent(
    """
    # The standard library and SciPy are loaded first: they may use what Linux has.
    import asyncio, concurrent.futures, fcntl, logging.config, os, platform, select, signal, sqlite3
    import subprocess, sys, tempfile
    import platformdirs, numpy as np, scipy.sparse as sp, scipy.sparse.linalg
    flock = fcntl.flock
    for name in ("fcntl", "resource", "pwd", "grp", "pty", "termios"):
        sys.modules[name] = None
    lacking = (
        "O_NOFOLLOW O_CLOEXEC O_DIRECTORY O_NONBLOCK O_NOCTTY fork forkpty register_at_fork killpg setpgid getpgid setsid "
        "getuid geteuid getgid getegid getgroups sched_getaffinity sched_setaffinity getloadavg sysconf statvfs pidfd_open "
        "waitid WNOHANG WEXITED WNOWAIT P_PID setpriority getpriority PRIO_PGRP PRIO_PROCESS pread pwrite fchmod fchown "
        "chown mkfifo uname"
    )
    for name in lacking.split():
        delattr(os, name)
    subprocess.Popen.kill = subprocess.Popen.terminate  # as on Windows, which has no SIGKILL
    touch = os.utime
    def utime(path, *arguments, **named):
        if isinstance(path, int):
            raise TypeError("utime: path should be string, bytes or os.PathLike, not int")
        touch(path, *arguments, **named)
    os.utime = utime
    del select.poll, signal.SIGKILL, signal.pthread_kill, signal.SIGHUP, signal.SIGALRM
    """
)
"""Takes away what Windows lacks, so that using it fails as there. The rest is still Linux: files, loader, compiler."""
MSVCRT: Final = textwrap.dedent(
    """
    import types
    def locking(descriptor, how, count):
        try:
            flock(descriptor, {1: 8, 2: 6}[how])  # LK_UNLCK, LK_NBLCK: LOCK_UN, LOCK_EX | LOCK_NB
        except BlockingIOError as error:
            raise PermissionError(13, "Permission denied") from error
    sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_UNLCK=1, LK_NBLCK=2)
    """
)
"""The locks of Windows' C library, by flock."""


def run_elsewhere(code: str, setup: str = OTHER_SYSTEM, **environment: str) -> str:
    """Run code in a child that lacks what Linux has, and return what it prints."""
    ran = subprocess.run(
        [sys.executable, "-c", f"{setup}\n{textwrap.dedent(code)}"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_public_modules_import() -> None:
    """No module that a user of arrays and of the tuner meets needs what only Linux has."""
    names = "tensorwise tensorwise.sparse tensorwise.patch tensorwise.tuning.tune tensorwise.device.cpu tensorwise.front.cli"
    run_elsewhere(f"import importlib\nfor name in {names.split()}: importlib.import_module(name)\n")


PRODUCTS: Final = """
import tensorwise as tw, tensorwise.sparse
rng = np.random.default_rng(0)
given = sp.random_array((300, 200), density=0.05, format="csr", rng=rng)
x = rng.standard_normal(200)
A = tw.asarray(given)
for _ in range(50):
    np.testing.assert_allclose(A @ x, given @ x)
    np.testing.assert_allclose(A.T @ (A @ x), given.T @ (given @ x))
from tensorwise.sparse.library import library
print(library(wait=COMPILED) is not None)
np.testing.assert_allclose(A @ x, given @ x)
"""


def test_products_by_scipy(tmp_path: Path) -> None:
    """Without a compiler and with an empty cache SciPy multiplies."""
    code = PRODUCTS.replace("COMPILED", "False")
    environment = {"TENSORWISE_CACHE_DIR": str(tmp_path), "TENSORWISE_CC": str(tmp_path / "none")}
    assert run_elsewhere(code, **environment) == "False\n"


def test_products_by_compiled_kernels() -> None:
    """The compiler, the cache and its locks work without process groups, limits and user ids."""
    assert run_elsewhere(PRODUCTS.replace("COMPILED", "True"), OTHER_SYSTEM + MSVCRT) == "True\n"


def test_a_new_kernel_is_compiled(tmp_path: Path) -> None:
    code = """
    from tensorwise.toolchain.cache import KernelCache
    from pathlib import Path
    cache = KernelCache(Path(PLACE))
    from tensorwise.toolchain import shelf
    shelf._TOUCH_EVERY_S = -1.0  # each use is noted
    (kernel,) = cache.get(["int TW_SYMBOL(void *const *b, const int64_t *s) { return 7; }"])
    print(kernel.function(None, None), kernel.path.is_relative_to(PLACE), cache.failures)
    """.replace("PLACE", repr(str(tmp_path / "cache")))
    assert run_elsewhere(code, OTHER_SYSTEM + MSVCRT) == "7 True {}\n"


LOCKS: Final = """
from tensorwise.system import open_lock, try_lock, unlock, wait_for_lock
from pathlib import Path
first, second = open_lock(Path(PLACE)), open_lock(Path(PLACE))
print(try_lock(first), try_lock(second), wait_for_lock(second, 0.05))
unlock(first)
print(try_lock(second, shared=True), try_lock(first, shared=True))
"""


@pytest.mark.parametrize(
    ("setup", "shared"), [("", True), (OTHER_SYSTEM + MSVCRT, False)], ids=["flock", "msvcrt"]
)
def test_locks(tmp_path: Path, setup: str, shared: bool) -> None:
    """Windows has exclusive locks only."""
    found = run_elsewhere(LOCKS.replace("PLACE", repr(str(tmp_path / "lock"))), setup)
    assert found == f"True False False\nTrue {shared}\n"


def test_without_locks_the_error_says_so(tmp_path: Path) -> None:
    code = f"""
    from tensorwise.system import open_lock, try_lock
    from pathlib import Path
    try:
        try_lock(open_lock(Path({str(tmp_path / "lock")!r})))
    except OSError as error:
        print(error.strerror)
    """
    assert run_elsewhere(code) == "this system has no locks of files\n"


def test_files_are_not_inherited_by_programs(tmp_path: Path) -> None:
    """Python opens files so on every system, without O_CLOEXEC."""
    assert not os.get_inheritable(system.open_lock(tmp_path / "lock"))


def test_the_time_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = system.cpu_seconds()
    monkeypatch.setattr(system, "_resource", None)
    assert abs(system.cpu_seconds() - exact) < 1.0
    assert exact > 0


def test_memory_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free memory is at most what the machine has."""

    def absent(path: Path, *_: Any) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", absent)
    assert memory.available_bytes() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.delattr(os, "sysconf")
    assert memory.available_bytes() == memory._UNLIMITED


@pytest.mark.parametrize(("name", "forks"), [("linux", True), ("darwin", False)])
def test_workers_are_forked_on_linux_only(monkeypatch: pytest.MonkeyPatch, name: str, forks: bool) -> None:
    started: list[str] = []
    monkeypatch.setattr(sys, "platform", name)
    monkeypatch.setattr(forked, "ForkedWorker", lambda threads: started.append("fork"))
    monkeypatch.setattr(forked, "WorkerProcess", lambda threads: started.append("interpreter"))
    forked.start_worker(1)
    assert started == ["fork" if forks else "interpreter"]


@pytest.mark.parametrize(
    "file", ["lib/libmkl_rt.so.2", "lib/libmkl_rt.2.dylib", "Library/bin/mkl_rt.2.dll", "lib/libmkl_rt.a"]
)
def test_mkl_is_found_by_the_name_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: SimpleNamespace(files=[]))
    assert mkl._path.__wrapped__() == (None if file.endswith(".a") else path)
