"""Running a program that may hang, fork or flood its output."""

import contextlib
import os
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tensorwise.toolchain.threads import unbound

_NICENESS = 10


def run_bounded(
    command: Sequence[str], scratch: Path, timeout_s: float, stop: threading.Event | None = None
) -> tuple[int | None, str]:
    """Run ``command`` in directory ``scratch``, in a process group of its own and of low priority.

    The group never outlives the call; temporary files that the program makes lie in ``scratch``.

    Returns:
        The exit status and the first 16 KiB of stderr. The status is None when the group was killed,
        because ``timeout_s`` had passed or another thread had set ``stop``.

    Raises:
        OSError: the program cannot be started, or ``scratch`` cannot be written.
    """
    log = scratch / "stderr"
    with log.open("wb") as stderr:  # not a pipe, which could fill up or stay open in a grandchild
        with unbound():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=scratch,
                env={**os.environ, "TMPDIR": str(scratch), "LC_ALL": "C"},
                start_new_session=True,
            )
        try:
            _restrain(process.pid, timeout_s)
            status = _wait(process, timeout_s, stop)
        finally:
            if process.returncode is None:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    with log.open("rb") as said:
        return status, said.read(1 << 14).decode(errors="replace")


def _restrain(pid: int, timeout_s: float) -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, pid, min(19, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS))
    with contextlib.suppress(OSError, ValueError, AttributeError):
        # Should we be killed, nobody watches the clock any more: then this ends a compiler that spins.
        limit = int(timeout_s * (os.cpu_count() or 1)) + 10
        resource.prlimit(pid, resource.RLIMIT_CPU, (limit, limit))


def _wait(process: subprocess.Popen[bytes], timeout_s: float, stop: threading.Event | None) -> int | None:
    """Return the exit status, or None when time ran out or ``stop`` was set.

    ``Popen.wait(timeout)`` polls with pauses of up to 50 ms, as long as a whole compilation takes.
    """
    deadline_s = time.monotonic() + timeout_s
    poll = select.poll()
    pause_s = 0.002
    try:
        ended = os.pidfd_open(process.pid)
        poll.register(ended, select.POLLIN)
        pause_s = 0.1
    except (AttributeError, OSError):
        ended = -1
    try:
        while process.poll() is None:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or (stop is not None and stop.is_set()):
                return None
            poll.poll(1000 * min(left_s, pause_s))
        return process.returncode
    finally:
        if ended >= 0:
            os.close(ended)
