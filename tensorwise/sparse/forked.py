"""A measuring worker that a search's child forks, instead of starting an interpreter that imports all of it again.

It saves half a second of processor time a search. Only a process without other threads may fork so.
"""

import os
import signal
import sys
import time
from typing import IO, Any, Final, final

from tensorwise.device import worker
from tensorwise.device.cpu import WorkerProcess
from tensorwise.registry import count_registrations

_LOOK_S: Final = 0.005
"""Seconds between two looks whether a killed worker has ended."""


@final
class _ForkedProcess:
    """What `WorkerProcess` needs of a ``Popen``."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        if self.returncode is None:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                ended, status = self.pid, 0
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def kill(self) -> None:
        """End it."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Return the exit status when it has ended."""
        while (status := self.poll()) is None:
            time.sleep(_LOOK_S)
        return status


@final
class ForkedWorker(WorkerProcess):
    """The measuring worker as a fork of this process, which must have no other threads yet."""

    def __init__(self, threads: int) -> None:
        requests, ask = os.pipe()
        hear, answers = os.pipe()
        user = os.getpid()
        pid = os.fork()
        if pid == 0:
            _serve(user, threads, requests, answers, (ask, hear))
        os.close(requests)
        os.close(answers)
        process: Any = _ForkedProcess(pid, os.fdopen(ask, "wb"), os.fdopen(hear, "rb", buffering=0))
        self.process = process
        self.buffer = b""
        self._owner = user
        self._known = count_registrations()
        self._loading = None


def start_worker(threads: int) -> WorkerProcess:
    """Return a worker: a fork on Linux; elsewhere a new interpreter, since a fork beside system frameworks may end early."""
    return ForkedWorker(threads) if sys.platform.startswith("linux") else WorkerProcess(threads)


def _serve(user: int, threads: int, requests: int, answers: int, others: tuple[int, int]) -> None:
    """Serve requests until the pipe is closed, then end: nothing of the process that forked may run here."""
    status = 1
    try:
        for descriptor in others:
            os.close(descriptor)
        os.dup2(requests, 0)
        os.dup2(answers, 1)
        os.environ |= {"OMP_NUM_THREADS": str(threads), "TENSORWISE_NUM_THREADS": str(threads)}
        sys.argv[1:] = [str(user)]
        worker.main()
        status = 0
    except BaseException as error:
        sys.stderr.write(f"forked worker: {type(error).__name__}: {error}\n")
    finally:
        os._exit(status)
