"""Child processes of lowest priority that work for this one, and end with it."""

import _thread
import contextlib
import os
import subprocess
import sys
import threading

from tensorwise.registry import child_environment
from tensorwise.toolchain.forks import LOADING
from tensorwise.toolchain.threads import unbound

LOWEST_PRIORITY = 19


def start_child(module: str, *arguments: str) -> "subprocess.Popen[bytes]":
    """Start ``python -m module arguments`` with pipes to its stdin and from its stdout.

    The module calls `serve_parent` first: the child then ends soon after this process, however that ends.

    Raises:
        OSError: no process can be started.
    """
    with LOADING, unbound():
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("TENSORWISE_DEBUG") else subprocess.DEVNULL,
            env={**child_environment(), "TENSORWISE_AUTOTUNE": "off"},
            start_new_session=True,  # Ctrl-C at the user's terminal is not for it
        )


def serve_parent() -> None:
    """In a child: take the lowest priority, and be interrupted when the parent closes stdin, as when it ends."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
    threading.Thread(target=_watch, name="tensorwise-parent", daemon=True).start()


def _watch() -> None:
    with contextlib.suppress(OSError):
        while os.read(sys.stdin.fileno(), 1 << 12):
            pass
    _thread.interrupt_main()
