"""Running a program that may hang, fork or flood its output."""

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tensorwise.toolchain import deadline
from tensorwise.toolchain.forks import LOADING
from tensorwise.toolchain.threads import unbound

_NICENESS = 10


def run_bounded(
    command: Sequence[str],
    scratch: Path,
    timeout_s: float,
    stop: threading.Event | None = None,
    *,
    wanted: str = "stderr",
) -> tuple[int | None, str]:
    """Run ``command`` in directory ``scratch``, in a process group of its own and of low priority.

    The group never outlives the call; temporary files that the program makes lie in ``scratch``.

    Args:
        wanted: what is returned of its output, ``stderr`` or ``stdout``.

    Returns:
        The exit status and the first 16 KiB of its output. The status is None when the group was killed,
        because ``timeout_s`` had passed, or what is left (`deadline`), or another thread had set ``stop``.

    Raises:
        OSError: the program cannot be started, or ``scratch`` cannot be written.
    """
    return deadline.uninterrupted(partial(_run, command, scratch, timeout_s, stop, wanted))


def _run(
    command: Sequence[str], scratch: Path, timeout_s: float, stop: threading.Event | None, wanted: str
) -> tuple[int | None, str]:
    log = scratch / "said"
    with log.open("wb") as said:  # not a pipe, which could fill up or stay open in a grandchild
        with unbound(), LOADING:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said if wanted == "stdout" else subprocess.DEVNULL,
                stderr=said if wanted == "stderr" else subprocess.DEVNULL,
                cwd=scratch,
                env={**_own_environment(), "TMPDIR": str(scratch), "LC_ALL": "C"},
                process_group=0,  # not a session: Linux gives each the same share, whatever its processes' priorities
            )
        try:
            _restrain(process.pid, timeout_s)
            ended = _wait(process, timeout_s, stop)
        finally:  # what it may have left running ends too: nobody else has the number of its group until we take its status
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
            process.wait()
    with log.open("rb") as written:
        return process.returncode if ended else None, written.read(1 << 14).decode(errors="replace")


def _own_environment() -> dict[str, str]:
    """The environment without libraries that are put in front of this process's own, as those of sanitizers."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def _restrain(pid: int, timeout_s: float) -> None:
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PGRP, pid, min(19, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS))
    with contextlib.suppress(OSError, ValueError, AttributeError, ImportError):
        import resource

        # Should we be killed, nobody watches the clock any more: then this ends a compiler that spins.
        limit = int(timeout_s * (os.cpu_count() or 1)) + 10
        resource.prlimit(pid, resource.RLIMIT_CPU, (limit, limit))


def _wait(process: subprocess.Popen[bytes], timeout_s: float, stop: threading.Event | None) -> bool:
    """Return whether it ended, before time ran out or ``stop`` was set; its status is still to be taken.

    ``Popen.wait(timeout)`` polls with pauses of up to 50 ms, as long as a whole compilation takes.
    """
    deadline_s = time.monotonic() + timeout_s
    watched = -1
    with contextlib.suppress(AttributeError, OSError):
        watched = os.pidfd_open(process.pid)
        poll = select.poll()
        poll.register(watched, select.POLLIN)
    try:
        while not _has_ended(process):
            left_s = min(deadline_s - time.monotonic(), deadline.left_s())
            if left_s <= 0 or (stop is not None and stop.is_set()):
                return False
            if watched >= 0:
                poll.poll(1000 * min(left_s, 0.1))
            else:
                time.sleep(min(left_s, 0.002))
        return True
    finally:
        if watched >= 0:
            os.close(watched)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
