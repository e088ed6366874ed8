"""How many threads a kernel may use: never more than the process was given."""

import ctypes
import logging
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from numbers import Integral
from pathlib import Path, PurePosixPath
from typing import Final

from tensorwise.errors import InputError
from tensorwise.system import allowed_cpus
from tensorwise.toolchain.places import number_from

_log = logging.getLogger(__name__)


def _bound() -> bool:
    """Whether OpenMP runtimes bind their threads, the main thread among them."""
    return os.environ.get("OMP_PROC_BIND", "false").strip().lower() not in ("", "false")


def _places() -> set[int]:
    """The CPUs to which the OpenMP runtimes of this process bind threads: PyTorch's, for one, does so as it is imported."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return set()
    found: set[int] = set()
    for path in {line.split(maxsplit=5)[-1].strip() for line in lines}:
        if not re.fullmatch(r"lib(g|i)?omp\d*\b.*\.so.*", PurePosixPath(path).name):
            continue
        with suppress(OSError, AttributeError):  # it is gone, or has no places: it is older than OpenMP 4.5
            runtime = ctypes.CDLL(path)
            for place in range(runtime.omp_get_num_places()):
                numbers = (ctypes.c_int * runtime.omp_get_place_num_procs(place))()
                runtime.omp_get_place_proc_ids(place, numbers)
                found.update(numbers)
    return found


_CPUS: Final = allowed_cpus() and allowed_cpus() | (_places() if _bound() else set())
"""The CPUs of this process: those of its affinity mask, and where a runtime was there before us, those of its places."""


def available_threads() -> int:
    """Return the number of threads this process may use, at least 1.

    It is the least of: the CPUs in the affinity mask, the cgroup's CPU quota (rounded up),
    ``OMP_NUM_THREADS`` (its first number) and ``TENSORWISE_NUM_THREADS``.

    Raises:
        InputError: ``TENSORWISE_NUM_THREADS`` is not a positive whole number.
    """
    limits = [most_threads()]
    omp = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if omp.isdecimal():  # somebody else's variable: what we cannot read is not ours to refuse
        limits.append(int(omp))
    limits.append(number_from("TENSORWISE_NUM_THREADS", limits[0], "threads, at least 1,", least=1))
    return max(1, min(limits))


def most_threads() -> int:
    """Return how many threads run in parallel here: the CPUs of this process, or its quota where that is less."""
    quota = cpu_quota()
    return max(1, min(_affinity(), _affinity() if quota is None else math.ceil(quota)))


def granted_threads(asked: int | None) -> int:
    """Return how many threads to use where ``asked`` are asked for; None: as many as this process may use.

    The number is limited to the available CPUs: threads of a call wait for each other, and one that waits for a processor
    delays all of them by a hundred times the run time of the call. The log says so, once for each number.

    Raises:
        InputError: it is no number of threads.
    """
    if asked is None:
        return available_threads()
    if isinstance(asked, bool) or not isinstance(asked, Integral) or asked < 1:
        raise InputError(f"threads must be a positive integer, got {asked!r}")
    asked = int(asked)
    most = most_threads()
    if asked > most:
        _say_too_many(asked, most)
    return min(asked, most)


def too_many(asked: int, granted: int) -> str:
    """What is said of threads that were asked for and are not used."""
    return f"{asked} threads were asked for; {granted} are used, as many as this process has processors"


@cache
def _say_too_many(asked: int, granted: int) -> None:
    _log.warning("%s", too_many(asked, granted))


def _affinity() -> int:
    return len(_CPUS if _bound() else allowed_cpus()) or os.cpu_count() or 1


@contextmanager
def unbound() -> Iterator[None]:
    """Processes that are started inside, and libraries loaded there, may run where this process may.

    Else they inherit the one processor to which an OpenMP runtime has bound this thread.
    """
    if not (_bound() and hasattr(os, "sched_getaffinity")):
        yield
        return
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, _CPUS)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


@cache
def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the CPU quota of this process's cgroup in CPUs, or None without one.

    Reads control groups of version 2 and 1 once a process; ``root`` is where ``proc`` and ``sys`` lie.
    """
    try:
        membership = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    quotas = [
        quota
        for line in membership
        if line.count(":") >= 2
        for directory in _directories(root / "sys/fs/cgroup", *line.split(":", 2)[1:])
        if (quota := _quota_of(directory)) is not None
    ]
    return min(quotas, default=None)


def _directories(base: Path, controllers: str, path: str) -> list[Path]:
    """Return the directories whose limits hold for a group: its own and all above it."""
    if controllers and "cpu" not in controllers.split(","):
        return []
    mounts = [base / controllers, base / "cpu"] if controllers else [base, base / "unified"]
    # Inside a container the path is the host's and is absent here: then the mount itself is our group.
    inner = PurePosixPath(path.lstrip("/"))
    return [mount / part for mount in mounts for part in (inner, *inner.parents)]


def _quota_of(directory: Path) -> float | None:
    """Return quota / period of one cgroup directory, or None where nothing is limited."""
    try:
        if (directory / "cpu.max").exists():
            quota, period = (directory / "cpu.max").read_text().split()
        else:
            quota = (directory / "cpu.cfs_quota_us").read_text()
            period = (directory / "cpu.cfs_period_us").read_text()
        return float(quota) / float(period) if float(quota) > 0 and float(period) > 0 else None
    except (OSError, ValueError):  # absent, or "max"
        return None
