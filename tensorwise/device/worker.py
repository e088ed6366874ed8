"""The measuring worker: a process of its own, in which candidates may crash, hang or eat memory.

``CpuDevice`` starts it by exec; it never runs a parallel kernel itself. For each batch it forks a
child, which packs, verifies and times; the child reports each start and result, so that after a crash
the next child resumes behind the culprit. Requests and answers are lines of JSON on stdin and stdout:

    {"load": FOLDER, "libraries": [NAME...], ...}   the workload; libraries that will be measured are imported
    {"screen": [KERNEL...], ...}     ->  {"at": i, "measurement": {...}} for each that was started
    {"rounds": [KERNEL...], ...}     ->  {"bound": i, ...} or {"failed": i, ...}, {"table": {...}}

Each request is answered by {"done": true} or {"error": text} in the end.
KERNEL is {"library": NAME} or {"formats": {operand: text}, "schedule": text}.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np

from tensorwise.device.device import Measurement
from tensorwise.device.guards import guarded
from tensorwise.device.library import LIBRARY
from tensorwise.device.timing import interleave, time_calls
from tensorwise.device.verify import Checker, poison
from tensorwise.errors import FormatError, ScheduleError, TensorwiseError
from tensorwise.lower.program import program_for
from tensorwise.program.einsum import Einsum
from tensorwise.program.workload import Workload
from tensorwise.runtime.generated import BoundProgram, GeneratedKernel
from tensorwise.runtime.kernel import BoundKernel, Kernel
from tensorwise.runtime.work import check_work
from tensorwise.tensor.elements import as_bits, value_dtype
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.memory import available_bytes

Json = Mapping[str, Any]
_Send = Callable[[Json], None]
FIRST_RUN_S: Final = 30.0
"""A candidate's first run, packing included, may take this long; then its process is killed."""
CHECK_S: Final = 60.0
"""Comparing an output with what it must be may take this long."""
SCREEN_S: Final = 0.005
"""Timed runs of a candidate in the screening: at least 3, and this long ..."""
SCREEN_MOST_S: Final = 0.25
"""... but no further one after so long."""
GIVE_UP: Final = 20.0
"""A candidate slower than the incumbent by this factor is given up: its first run is a censored time."""
SLOW_S: Final = 0.5
"""A candidate whose first run took this long is not timed again: that run is its time. No run is
killed sooner, since a busy machine may stop any run for a while."""
FIRST_COSTS_S: Final = 0.005
"""Starting threads and touching fresh memory may cost a first run this much."""
PARENT_DIED: Final = 1
"""PR_SET_PDEATHSIG of Linux."""
_TICK_S: Final = 0.5


def save_workload(workload: Workload, folder: Path) -> None:
    """Write ``workload`` for a worker; arrays are memory-mapped by the reader."""
    described: dict[str, Any] = {
        "op": workload.op,
        "einsum": str(workload.einsum),
        "sizes": dict(workload.sizes),
        "dtypes": {name: dtype.name for name, dtype in workload.dtypes.items()},
        "sparse": {},
    }
    for name, entries in workload.sparse.items():
        described["sparse"][name] = {
            "shape": list(entries.shape),
            "dtype": entries.dtype.name,
            "pointers": entries.pointers is not None,
        }
        for mode, coordinates in enumerate(entries.coordinates):
            np.save(folder / f"{name}-{mode}.npy", coordinates)
        np.save(folder / f"{name}-values.npy", as_bits(entries.values))
        if entries.pointers is not None:
            np.save(folder / f"{name}-pointers.npy", entries.pointers)
    (folder / "workload.json").write_text(json.dumps(described))


def load_workload(folder: Path) -> Workload:
    """Read what ``save_workload`` wrote."""
    described = json.loads((folder / "workload.json").read_text())

    def array(name: str) -> np.ndarray:
        return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))

    sparse = {
        name: Entries(
            tuple(facts["shape"]),
            tuple(array(f"{name}-{mode}") for mode in range(len(facts["shape"]))),
            array(f"{name}-values").view(value_dtype(facts["dtype"])),
            array(f"{name}-pointers") if facts["pointers"] else None,
        )
        for name, facts in described["sparse"].items()
    }
    dtypes = {name: value_dtype(dtype) for name, dtype in described["dtypes"].items()}
    return Workload(described["op"], Einsum.parse(described["einsum"]), sparse, described["sizes"], dtypes)


def kernel_of(workload: Workload, request: Json) -> Kernel:
    """Return the kernel that a request names."""
    if "library" in request:
        return LIBRARY[request["library"]]()
    program = program_for(workload, request["formats"], request["schedule"])
    check_work(program, workload)
    return GeneratedKernel(program)


@dataclass(eq=False)
class Bench:
    """A loaded workload with operands and checker; made once, inherited by every child.

    Attributes:
        guarded: the same operands, and another output, that end where memory does: for first runs.
    """

    workload: Workload
    operands: list[np.ndarray]
    out: np.ndarray
    checker: Checker
    guarded: tuple[list[np.ndarray], np.ndarray]

    @classmethod
    def load(cls, request: Json) -> "Bench":
        workload = load_workload(Path(request["load"]))
        rng = np.random.default_rng(request["seed"])
        operands = workload.operands(rng)
        out = np.empty(workload.output_shape, workload.output_dtype)
        *copies, out_copy = guarded([*operands, out])
        return cls(workload, operands, out, Checker(workload, operands, rng), (copies, out_copy))

    def verify(self, bound: BoundKernel, send: "_Send", limit_s: float) -> tuple[str | None, float]:
        """Run the kernel once, into an output full of NaN; return what is wrong with the result, and the seconds of the run.

        Operands of generated code end at a page that nothing may access: code that goes beyond them crashes this process.
        """
        operands, out = self.guarded if isinstance(bound, BoundProgram) else (self.operands, self.out)
        poison(out)
        send({"run": True, "limit_s": limit_s})
        start = time.perf_counter()
        bound.run(operands, out)
        took = time.perf_counter() - start
        send({"check": True, "limit_s": CHECK_S})
        return self.checker.check(out), took


def main() -> None:
    """Serve requests until stdin ends."""
    # Results travel on the real stdout; whatever a library prints must not get between them.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    bench: Bench | None = None
    user = user_of()
    for line in requests(user):
        request = json.loads(line)
        try:
            if "load" in request:
                bench = Bench.load(request)
                for name in request["libraries"]:
                    # one that cannot be imported says so when it is measured
                    with contextlib.suppress(Exception):
                        LIBRARY[name].preload()
            elif bench is not None:
                serve: Callable[[Bench, Json, TextIO], None] = _screen if "screen" in request else _rounds
                serve(bench, {**request, "user": user}, answers)
            answers.write('{"done": true}\n')
        except (TensorwiseError, MemoryError, OSError) as error:
            answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")


def user_of() -> int:
    """The process that this one works for, as it says: when it is gone before we look, our parent is another."""
    return int(sys.argv[1]) if len(sys.argv) > 1 else os.getppid()


def requests(user: int) -> Iterator[bytes]:
    """Yield the lines of stdin, until it ends or who asks is gone: a child that it forked may hold the pipe open."""
    buffer, source = b"", sys.stdin.fileno()
    while os.getppid() == user:
        if not select.select([source], [], [], _TICK_S)[0]:
            continue
        data = os.read(source, 1 << 16)
        if not data:
            return
        *lines, buffer = (buffer + data).split(b"\n")
        yield from lines


# -- the parent's side: fork, watch, resume -------------------------------------------------------------


def _screen(bench: Bench, request: Json, answers: TextIO) -> None:
    """Measure candidates one after the other; a culprit costs only itself."""
    at, count = 0, len(request["screen"])
    incumbent_s = float(request["incumbent_s"] or np.inf)
    limit_s = request["limit_s"]
    deadline = time.monotonic() + (np.inf if limit_s is None else float(limit_s))
    while at < count and (at == 0 or time.monotonic() < deadline):
        child = _Child(
            lambda send, first=at, best=incumbent_s: _screen_child(  # type: ignore[misc]
                bench, request, first, best, deadline, send
            ),
            request,
        )
        started, running = at, False
        for message in child.messages(float(request["first_run_s"])):
            started = message.get("start", started)
            running = "run" in message
            if "at" in message:
                answers.write(json.dumps(message) + "\n")
                at = message["at"] + 1
                seconds = message["measurement"]["seconds"]
                if message["measurement"]["status"] == "ok" and seconds:
                    incumbent_s = min(incumbent_s, seconds)
        if child.ended_well:
            break
        if started < at:
            continue  # it fell between two candidates: nobody's fault that could be told
        if child.timed_out and running and GIVE_UP * incumbent_s < child.waited_s:
            note = f"slower than {GIVE_UP:g} times the best"
            failed = Measurement(child.waited_s, 0.0, (), "censored", note)
        else:
            failed = Measurement.failed("timeout" if child.timed_out else "crash", child.epitaph)
        answers.write(json.dumps({"at": started, "measurement": failed.to_json()}) + "\n")
        at = started + 1


def _rounds(bench: Bench, request: Json, answers: TextIO) -> None:
    """Time kernels against each other in interleaved rounds; after a crash, once more without the culprit."""
    left = list(range(len(request["rounds"])))
    while left:
        child = _Child(
            lambda send, some=tuple(left): _rounds_child(bench, request, some, send),  # type: ignore[misc]
            request,
        )
        started = -1
        for message in child.messages(float(request["first_run_s"])):
            started = message.get("start", started)
            if {"bound", "failed", "table"} & message.keys():
                answers.write(json.dumps(message) + "\n")
        if child.ended_well:
            return
        culprit = started if started in left else left[-1]
        left.remove(culprit)
        answers.write(json.dumps({"failed": culprit, "note": child.epitaph}) + "\n")


class _Child:
    """A forked child that sends lines of JSON and is killed when it is silent for too long.

    A message may say for how long there will be silence after it: ``limit_s``.
    """

    def __init__(self, work: Callable[[Callable[[Json], None]], None], request: Json) -> None:
        self.ended_well = self.timed_out = self._finished = False
        self.epitaph, self.waited_s = "", 0.0
        self._user = int(request["user"])
        self.pipe, write = os.pipe()
        worker = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self.pipe)
                os.setpgid(0, 0)
                _tie_to_parent(worker)
                _limit_memory(request["memory_bytes"])
                with os.fdopen(write, "w", buffering=1) as sink:
                    work(lambda message: _send(sink, message))
                    _send(sink, {"finished": True})
                code = 0
            except BaseException as error:  # a child must end here, whatever happened
                sys.stderr.write(f"worker child: {type(error).__name__}: {error}\n")
            finally:
                os._exit(code)
        os.close(write)

    def messages(self, silence_s: float) -> Iterator[Json]:
        """Yield what the child sends, until it ends or is silent for ``silence_s``."""
        buffer = b""
        limit_s, since = silence_s, time.monotonic()
        try:
            while True:
                waited_s = time.monotonic() - since
                ready, _, _ = select.select([self.pipe], [], [], max(0.0, min(_TICK_S, limit_s - waited_s)))
                if not ready:
                    if os.getppid() != self._user:  # who asked is gone; nobody else ends us while we wait
                        self.timed_out = True
                        self._bury()
                        os._exit(1)
                    self.waited_s = time.monotonic() - since
                    if self.waited_s < limit_s:
                        continue
                    self.timed_out = True
                    self.epitaph = f"killed: no sign of life for {limit_s:.3g} s"
                    break
                data = os.read(self.pipe, 1 << 16)
                if not data:
                    break
                buffer += data
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    message = json.loads(line)
                    limit_s, since = float(message.get("limit_s", silence_s)), time.monotonic()
                    if "finished" in message:  # a status of 0 can be had from exit() as well
                        self._finished = True
                    else:
                        yield message
        finally:
            self._bury()

    def _bury(self) -> None:
        if self.pipe < 0:
            return
        os.close(self.pipe)
        self.pipe = -1
        # Also what a candidate may have started itself.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.timed_out:
                os.killpg(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self.ended_well = self._finished and not self.timed_out and status == 0
        if not self.epitaph and os.WIFSIGNALED(status):
            self.epitaph = f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
        elif not self.epitaph:
            self.epitaph = f"ended with exit status {os.waitstatus_to_exitcode(status)}"


def _send(sink: TextIO, message: Json) -> None:
    sink.write(json.dumps(message) + "\n")


def _tie_to_parent(parent: int) -> None:
    """End when the parent does, so that no candidate outlives the user's process."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PARENT_DIED, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it ended before we could ask to be told


def _limit_memory(most_bytes: int | None) -> None:
    """Let a candidate have what is free now, not what makes the machine swap or kill its largest process."""
    with contextlib.suppress(OSError, ValueError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(OSError, ValueError):
        import resource  # what forks has it

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = used + (int(0.9 * available_bytes()) if most_bytes is None else most_bytes)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


# -- the child's side ------------------------------------------------------------------------------------


def _screen_child(
    bench: Bench, request: Json, first: int, incumbent_s: float, deadline: float, send: Callable[[Json], None]
) -> None:
    for at in range(first, len(request["screen"])):
        if at > first and time.monotonic() >= deadline:
            return
        send({"start": at})
        try:
            measurement, facts = _one(bench, request["screen"][at], request, incumbent_s, send)
        except MemoryError as error:
            measurement, facts = Measurement.failed("memory", str(error) or "out of memory"), {}
        except Exception as error:  # whatever a library raises costs this candidate only
            measurement, facts = Measurement.failed("crash", f"{type(error).__name__}: {error}"), {}
        if measurement.ok:
            incumbent_s = min(incumbent_s, measurement.seconds)
        send({"at": at, "measurement": measurement.to_json(), **facts})


def _one(
    bench: Bench, kernel: Json, request: Json, incumbent_s: float, send: Callable[[Json], None]
) -> tuple[Measurement, dict[str, Any]]:
    """Bind, verify and time one candidate."""
    if "library" in kernel:
        incumbent_s = np.inf  # a baseline is not given up, and its first run may set up a thread pool
    try:
        bound = kernel_of(bench.workload, kernel).bind(bench.workload, int(request["threads"]))
    except TensorwiseError as error:
        kind = "" if isinstance(error, FormatError | ScheduleError) else f"{type(error).__name__}: "
        return Measurement.failed("refused", f"{kind}{error}"), {}
    try:
        facts = {"conversion_s": bound.conversion_s, "bytes_held": bound.bytes_held}
        first_run_s = float(request["first_run_s"])
        limit_s = min(first_run_s, max(SLOW_S, GIVE_UP * incumbent_s))
        wrong, first_s = bench.verify(bound, send, limit_s)
        if wrong:
            return Measurement.failed("wrong", wrong), facts
        if first_s > max(FIRST_COSTS_S, GIVE_UP * incumbent_s):
            return Measurement(first_s, 0.0, (), "censored", f"slower than {GIVE_UP:g} times the best"), facts
        if first_s > SLOW_S:
            slow = "too slow to be timed more than once"
            return Measurement.of([first_s], "; ".join(filter(None, (bound.note, slow)))), facts
        send({"timing": True, "limit_s": first_run_s})
        samples = time_calls(
            bound.ready(bench.operands, bench.out), min_s=SCREEN_S, min_calls=3, max_s=SCREEN_MOST_S
        )
        return Measurement.of(samples, bound.note), facts
    finally:
        bound.close()


def _rounds_child(bench: Bench, request: Json, which: tuple[int, ...], send: Callable[[Json], None]) -> None:
    threads, first_run_s = int(request["threads"]), float(request["first_run_s"])
    begin, budget_s, last_runs_s = time.perf_counter(), float(request["budget_s"]), 0.0
    bound: dict[str, BoundKernel] = {}
    for at in which:
        send({"start": at})
        try:
            kernel = kernel_of(bench.workload, request["rounds"][at]).bind(bench.workload, threads)
            wrong, took_s = bench.verify(kernel, send, first_run_s)
        except Exception as error:  # whatever a library raises costs this kernel only
            send({"failed": at, "note": f"{type(error).__name__}: {error}"})
            continue
        if wrong:
            send({"failed": at, "note": f"wrong: {wrong}"})
            continue
        bound[str(at)] = kernel
        last_runs_s += took_s
        compile_s = getattr(kernel, "compile_s", 0.0)
        send(
            {
                "bound": at,
                "conversion_s": kernel.conversion_s,
                "bytes_held": kernel.bytes_held,
                "compile_s": compile_s,
            }
        )
    if not bound:
        return
    calls = {name: kernel.ready(bench.operands, bench.out) for name, kernel in bound.items()}
    if request.get("same_twice"):
        # The A/A check: the first kernel under a second name shows what this machine cannot resolve.
        calls["again"] = next(iter(calls.values()))
    left_s = budget_s - (time.perf_counter() - begin) - last_runs_s
    send({"start": -1, "limit_s": first_run_s + 3 * budget_s})
    rng = np.random.default_rng(request["seed"])
    table = interleave(
        calls,
        rounds=int(request["max_rounds"]),
        budget_s=max(budget_s / 4, left_s),
        rng=rng,
        cache=request["cache"],
    )
    for name, kernel in bound.items():
        wrong, _ = bench.verify(kernel, send, first_run_s)
        if wrong:
            send({"failed": int(name), "note": f"wrong after timing: {wrong}"})
    send({"table": table.to_json()})


if __name__ == "__main__":
    main()
