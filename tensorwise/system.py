"""What operating systems differ in: each matter once, with what is done where a system lacks it (docs/platforms.md)."""

import contextlib
import errno
import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _module(name: str) -> Any:
    with contextlib.suppress(ImportError):
        return importlib.import_module(name)
    return None


_fcntl, _msvcrt, _resource = map(_module, ("fcntl", "msvcrt", "resource"))


def open_flags(*names: str) -> int:
    """Return the flags of ``os.open`` with these names; those that the system does not have are left out."""
    return sum(getattr(os, f"O_{name}", 0) for name in names)


def open_lock(path: Path) -> int:
    """Open a file of this user, made if absent, that `try_lock` locks; return its descriptor. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | open_flags("NOFOLLOW"), 0o600)


def try_lock(descriptor: int, shared: bool = False) -> bool:
    """Lock a file, until `unlock` or the end of the process; return False where another process has it.

    Windows has no shared locks: there all are exclusive. Raises OSError where the file system has no locks.
    """
    try:
        _lock(descriptor, "SH" if shared else "EX")
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
            raise
        return False
    return True


def wait_for_lock(descriptor: int, timeout_s: float, shared: bool = False) -> bool:
    """Try to lock a file for ``timeout_s``; return whether it is locked. Raises OSError as `try_lock`."""
    deadline_s, pause_s = time.monotonic() + timeout_s, 0.001
    while not try_lock(descriptor, shared):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(left_s, pause_s))
        pause_s = min(2 * pause_s, 0.02)
    return True


def unlock(descriptor: int) -> None:
    """Release a lock: closing alone would leave it with the copy that a child forked meanwhile has."""
    with contextlib.suppress(OSError):
        _lock(descriptor, "UN")


def _lock(descriptor: int, how: str) -> None:
    if _fcntl:
        _fcntl.flock(descriptor, getattr(_fcntl, f"LOCK_{how}") | _fcntl.LOCK_NB)
    elif _msvcrt:
        os.lseek(descriptor, 0, os.SEEK_SET)
        _msvcrt.locking(descriptor, _msvcrt.LK_UNLCK if how == "UN" else _msvcrt.LK_NBLCK, 1)
    else:
        raise OSError(errno.ENOSYS, "this system has no locks of files")


def at_fork(**functions: Callable[[], object]) -> None:
    """Register functions as ``os.register_at_fork`` does, where processes can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**functions)


def allowed_cpus() -> set[int]:
    """Return the CPUs that this thread may use; empty where the system does not tell."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    if not _resource:
        return sum(os.times()[:4])
    used = (_resource.getrusage(who) for who in (_resource.RUSAGE_SELF, _resource.RUSAGE_CHILDREN))
    return float(sum(one.ru_utime + one.ru_stime for one in used))


def sysconf(name: str) -> int:
    """Return a value of ``os.sysconf``; 0 where the system does not tell."""
    with contextlib.suppress(ValueError, OSError, AttributeError):
        return max(0, os.sysconf(name))
    return 0
