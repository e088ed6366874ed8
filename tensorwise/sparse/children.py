"""Child processes of lowest priority that work for this one, and end with it."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from tensorwise.system import at_fork
from tensorwise.toolchain.forks import LOADING, lock
from tensorwise.toolchain.threads import most_threads, unbound

LOWEST_PRIORITY: Final = 19
LOOK_S: Final = 0.5
"""Seconds between two looks whether the parent is there: a process that it forked may hold the pipe open."""
ENDING_S: Final = 2.0
"""Seconds that an interrupted child has to end its own children, before its parent kills it ..."""
ORPHANED_S: Final = 20.0
"""... and before it kills itself, when the parent is gone: at its priority little takes long on a busy machine."""
_SLOT: Final = lock()
_started: Final[list["subprocess.Popen[bytes]"]] = []
"""The child that works, if any."""
at_fork(after_in_child=_started.clear)


def machine_is_busy() -> str | None:
    """Return why nothing should begin in the background: the machine's load exceeds the CPUs that this process may use."""
    try:
        load, cpus = os.getloadavg()[0], most_threads()
    except (OSError, AttributeError):  # Windows has none
        return None
    return f"the machine's load, {load:.2f}, exceeds the CPUs allowed, {cpus}" if load > cpus else None


def child_is_running() -> bool:
    """Whether a child process of this one works in the background: there is one at most."""
    with _SLOT:
        _started[:] = [child for child in _started if child.poll() is None]
        return bool(_started)


def start_child(
    module: str, *arguments: str, scratch: Path | None = None
) -> "subprocess.Popen[bytes] | None":
    """Start ``python -m module arguments`` with pipes to its stdin and from its stdout; None: another one still works.

    The module calls `serve_parent` first: the child then ends soon after this process, however that ends.

    Args:
        module: what is run.
        arguments: of the module.
        scratch: where the child makes its temporary files; None: where this process does.

    Raises:
        OSError: no process can be started.
    """
    from tensorwise.registry import child_environment  # a program that starts no child need not wait for it

    environment = {**child_environment(), "TENSORWISE_AUTOTUNE": "off"}
    if scratch is not None:
        environment["TMPDIR"] = str(scratch)
    with _SLOT:
        if child_is_running():
            return None
        child = _start([sys.executable, "-P", "-m", module, *arguments], environment)
        _started.append(child)
    return child


def _start(command: list[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    with LOADING, unbound():
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("TENSORWISE_DEBUG") else subprocess.DEVNULL,
            env=environment,
            # Ctrl-C at the user's terminal is not for it. In a session of its own its priority would count for nothing:
            # Linux gives each session the same share of the processors.
            process_group=0,
        )


def end_child(child: "subprocess.Popen[bytes]") -> None:
    """Have a child end, and wait for its end: at first by closing its stdin, so that it can end its own children."""
    if child.stdin is not None:
        with contextlib.suppress(OSError):
            child.stdin.close()
    try:
        child.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def process_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and of its children that have ended; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def take_lowest_priority() -> None:
    """In a child, before it does anything: let all others come first."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)


def serve_parent() -> None:
    """In a child: take the lowest priority, and be interrupted when the parent closes stdin or ends.

    The main thread gets a KeyboardInterrupt. Where it does not end within `ORPHANED_S`, the process is killed.
    """
    take_lowest_priority()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a parent in the background of a shell ignores it
    threading.Thread(target=_watch, args=(os.getppid(),), name="tensorwise-parent", daemon=True).start()


def _watch(parent: int) -> None:
    source = sys.stdin.fileno()
    with contextlib.suppress(OSError):
        while os.getppid() == parent:
            if select.select([source], [], [], LOOK_S)[0] and not os.read(source, 1 << 12):
                break
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # it wakes a main thread that waits for a worker
    time.sleep(ORPHANED_S)
    os.kill(os.getpid(), signal.SIGKILL)
