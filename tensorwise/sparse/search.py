"""The background search of formats for one product of a read-only matrix: its thread, and its child process."""

import atexit
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from tensorwise.errors import TensorwiseError
from tensorwise.sparse.children import (
    child_is_running,
    end_child,
    machine_is_busy,
    process_seconds,
    start_child,
)
from tensorwise.sparse.limits import autotune
from tensorwise.system import at_fork
from tensorwise.toolchain.forks import lock
from tensorwise.toolchain.scratch import scratch_prefix, sweep

if TYPE_CHECKING:
    from tensorwise.sparse.packed import PackedProduct

SHARED_MEMORY: Final = Path("/dev/shm")
"""Files there are memory: operands are handed over without a disk."""
COPIES: Final = 4
"""Copies of the arrays for which shared memory must have room: ours, and those of the processes that measure."""
MOST_COPIES: Final = 8
"""Copies of the arrays for which memory must be free: the processes that measure pack and verify as well."""
COMPILING: Final = "a child process compiles kernels"
_ONE_AT_A_TIME: Final = lock()
_running: "FormatSearch | None" = None


def background_work() -> str | None:
    """Return what this process does in the background, because of which a search would be declined; None: nothing."""
    if _running is not None:
        return "another search of this process is running"
    return COMPILING if child_is_running() else None


@final
class FormatSearch:
    """A search for packed kernels of one product of a read-only matrix, in a child process of lowest priority.

    At most one runs in a process, and none begins while the machine's load exceeds the CPUs allowed: such a search ends
    immediately, and ``note`` says why. Another may be made later.

    Args:
        array: SciPy's CSR or CSC array or matrix, whose arrays nobody writes to until the search is over.
        operation: ``spmv``, ``spmm``, or these with ``_t``, which multiply by the transpose.
        columns: of the dense operand; None: it is a vector.
        threads: of the kernels.
        baseline_s: seconds that a call takes now.
        spent_s: seconds that calls of the product have taken so far: the search spends a share of it (see
            `tensorwise.sparse.budget`).

    Attributes:
        note: why it found nothing, or what disturbed it; empty: nothing.
    """

    def __init__(
        self, array: Any, operation: str, columns: int | None, threads: int, baseline_s: float, spent_s: float
    ) -> None:
        self.note = ""
        self._given = array, operation, columns
        self._threads, self._baseline_s, self._spent_s = threads, baseline_s, spent_s
        self._found: list[PackedProduct] | None = None
        self._stopped = threading.Event()
        self._owner = os.getpid()
        self._child: subprocess.Popen[bytes] | None = None
        self._child_lock = lock()
        self._child_serves = False
        self._cpu_s = 0.0
        self._thread = threading.Thread(target=self._run, name="tensorwise-search", daemon=True)
        if declined := self._begin():
            self.note, self._found = declined, []

    def _begin(self) -> str | None:
        """Start the thread; return why there is none."""
        global _running
        if autotune() != "full" and (busy := machine_is_busy()):
            return busy
        with _ONE_AT_A_TIME:
            if work := background_work():
                return work
            _running = self
        try:
            _prepare_exit()
            self._thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter ends
            _running = None
            return f"no thread can be started: {error}"
        return None

    def poll(self) -> "list[PackedProduct] | None":
        """Return what was found, the fastest first, or None while it is running; never waits."""
        if self._found is None and os.getpid() != self._owner:
            return []  # a forked process has neither the thread nor the child
        return self._found

    @property
    def cpu_s(self) -> float:
        """CPU seconds that the child has taken, with those of its own children which have ended."""
        child = self._child
        if child is not None and os.getpid() == self._owner and child.returncode is None:
            self._cpu_s = max(self._cpu_s, process_seconds(child.pid))
        return self._cpu_s

    def stop(self) -> None:
        """End the child and the thread, and wait for their end; may be called any number of times."""
        if os.getpid() != self._owner:
            return
        self._stopped.set()
        with self._child_lock:
            child = self._child
        if child is not None:
            self._end(child)
        if self._thread is not threading.current_thread() and self._thread.ident is not None:
            self._thread.join()

    def _end(self, child: "subprocess.Popen[bytes]") -> None:
        self._cpu_s = self.cpu_s
        if not self._child_serves:  # it has no children yet, and does not look whether we end
            child.kill()
        end_child(child)

    # -- in the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        global _running
        found: list[PackedProduct] = []
        try:
            found = self._search()
        except (TensorwiseError, OSError, MemoryError, ValueError, RuntimeError) as error:
            self.note = f"{type(error).__name__}: {error}"
        finally:
            self._given = None, "", None  # the matrix may go
            self._found = found
            _running = None

    def _search(self) -> "list[PackedProduct]":
        # Only here: the first product of a program needs none of it.
        from tensorwise.sparse.given import GivenArrays, write_request
        from tensorwise.tensor.memory import available_bytes

        given = GivenArrays.of(*self._given)
        if not len(given.data):
            return []
        if MOST_COPIES * given.nbytes > available_bytes():
            self.note = f"there is too little memory to measure copies of {given.nbytes} bytes"
            return []
        folder = Path(tempfile.mkdtemp(prefix=scratch_prefix("search"), dir=_place(COPIES * given.nbytes)))
        try:
            write_request(
                folder, given, threads=self._threads, baseline_s=self._baseline_s, spent_s=self._spent_s
            )
            answer = self._answer(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self.note = str(answer.get("note", ""))
        return self._packed(given, answer)

    def _answer(self, folder: Path) -> Mapping[str, Any]:
        """Run the child on a folder and return its answer; empty where it gave none."""
        with self._child_lock:
            if self._stopped.is_set():
                return {}
            child = self._child = start_child("tensorwise.sparse.searching", str(folder), scratch=folder)
        if child is None:
            return {"note": COMPILING}
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            if line and not line.startswith(b"{"):  # an answer comes first where the request cannot be read
                self._child_serves = True
                line = child.stdout.readline()
            self._cpu_s = self.cpu_s
        finally:
            self._end(child)
            for pipe in (child.stdin, child.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
        if not line:
            return {
                "note": "" if self._stopped.is_set() else f"the search ended with status {child.returncode}"
            }
        answer: Mapping[str, Any] = json.loads(line)
        self._cpu_s = max(self._cpu_s, float(answer.get("cpu_s", 0.0)))
        return answer

    def _packed(self, given: Any, answer: Mapping[str, Any]) -> "list[PackedProduct]":
        """Pack what the child named."""
        if not answer.get("found"):
            return []
        from tensorwise.lower.program import program_for
        from tensorwise.sparse.packed import pack_product

        found: list[PackedProduct] = []
        for named in answer["found"]:
            if self._stopped.is_set():
                return found
            work = given.workload
            program = program_for(work, named["formats"], named["schedule"])
            expected_s = self._baseline_s * float(named["ratio"])
            try:
                packed = pack_product(
                    program, work, given.stored, self._threads, expected_s, named["facts"], found
                )
            except (TensorwiseError, MemoryError) as error:
                self.note = f"{program.name} cannot be packed: {error}"
                continue
            if packed is not None:
                found.append(packed)
        return found


def _place(nbytes: int) -> Path:
    """Return where the folder is made: in shared memory where it has room for ``nbytes``."""
    with contextlib.suppress(OSError, AttributeError):
        room = os.statvfs(SHARED_MEMORY)
        if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) and room.f_bavail * room.f_frsize > nbytes:
            _sweep()
            return SHARED_MEMORY
    return Path(tempfile.gettempdir())


@cache
def _sweep() -> None:
    """Remove what killed processes left in shared memory."""
    sweep(SHARED_MEMORY)


@cache
def _prepare_exit() -> None:
    """Stop what runs when this process ends; a forked process has nothing to stop."""
    atexit.register(_stop)
    at_fork(after_in_child=_forget)


def _stop() -> None:
    running = _running
    if running is not None:
        running.stop()


def _forget() -> None:
    global _running
    _running = None
