"""The measuring worker: a process of its own, in which candidates may crash, hang or eat memory.

``CpuDevice`` starts it by exec; it never runs a parallel kernel itself. For each batch it forks a
child, which packs, verifies and times; the child reports each start and result, so that after a crash
the next child resumes behind the culprit. Requests and answers are lines of JSON on stdin and stdout:

    {"load": FOLDER}                     the workload, its operands and limits
    {"screen": [KERNEL...], ...}     ->  {"at": i, "measurement": {...}} for each, {"done": true}
    {"rounds": [KERNEL...], ...}     ->  {"bound": i, ...} or {"failed": i, ...}, {"table": {...}}, {"done": true}

KERNEL is {"library": NAME} or {"formats": {operand: text}, "schedule": text}.
"""

import contextlib
import ctypes
import json
import os
import resource
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
from tensorwise.device.library import LIBRARY
from tensorwise.device.timing import interleave, time_calls
from tensorwise.device.verify import Checker, poison
from tensorwise.errors import FormatError, ScheduleError, TensorwiseError
from tensorwise.program.einsum import Einsum
from tensorwise.program.generated import GeneratedKernel
from tensorwise.program.kernel import BoundKernel, Kernel
from tensorwise.program.program import program_for
from tensorwise.program.work import check_work
from tensorwise.program.workload import Workload
from tensorwise.tensor.entries import Entries

Json = Mapping[str, Any]
FIRST_RUN_S: Final = 30.0
"""A candidate's first run, packing included, may take this long; then its process is killed."""
SCREEN_S: Final = 0.005
"""Timed runs of a candidate in the screening: at least 3, or this long."""
GIVE_UP: Final = 20.0
"""A candidate slower than the incumbent by this factor is not timed again: its first run is a censored time."""
PARENT_DIED: Final = 1
"""PR_SET_PDEATHSIG of Linux."""


def save_workload(workload: Workload, folder: Path) -> None:
    """Write ``workload`` for a worker; arrays are memory-mapped by the reader."""
    described: dict[str, Any] = {
        "op": workload.op,
        "einsum": str(workload.einsum),
        "sizes": dict(workload.sizes),
        "sparse": {},
    }
    for name, entries in workload.sparse.items():
        described["sparse"][name] = {"shape": list(entries.shape), "pointers": entries.pointers is not None}
        for mode, coordinates in enumerate(entries.coordinates):
            np.save(folder / f"{name}-{mode}.npy", coordinates)
        np.save(folder / f"{name}-values.npy", entries.values)
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
            array(f"{name}-values"),
            array(f"{name}-pointers") if facts["pointers"] else None,
        )
        for name, facts in described["sparse"].items()
    }
    return Workload(described["op"], Einsum.parse(described["einsum"]), sparse, described["sizes"])


def kernel_of(workload: Workload, request: Json) -> Kernel:
    """Return the kernel that a request names."""
    if "library" in request:
        return LIBRARY[request["library"]]()
    program = program_for(workload, request["formats"], request["schedule"])
    check_work(program, workload)
    return GeneratedKernel(program)


@dataclass
class _Bench:
    """A loaded workload with operands and checker; made once, inherited by every child."""

    workload: Workload
    operands: list[np.ndarray]
    out: np.ndarray
    checker: Checker

    @classmethod
    def load(cls, request: Json) -> "_Bench":
        workload = load_workload(Path(request["load"]))
        rng = np.random.default_rng(request["seed"])
        operands = workload.operands(rng)
        out = np.empty(workload.output_shape, workload.output_dtype)
        return cls(workload, operands, out, Checker(workload, operands, rng))

    def verify(self, bound: BoundKernel) -> tuple[str | None, float]:
        """Run once into a poisoned output; return what is wrong, and the seconds of the run."""
        poison(self.out)
        start = time.perf_counter()
        bound.run(self.operands, self.out)
        took = time.perf_counter() - start
        return self.checker.check(self.out), took


def main() -> None:
    """Serve requests until stdin ends."""
    # Results travel on the real stdout; whatever a library prints must not get between them.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    bench: _Bench | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "load" in request:
                bench = _Bench.load(request)
            elif bench is not None:
                serve: Callable[[_Bench, Json, TextIO], None] = _screen if "screen" in request else _rounds
                serve(bench, request, answers)
            answers.write('{"done": true}\n')
        except (TensorwiseError, MemoryError, OSError) as error:
            answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")


# -- the parent's side: fork, watch, resume -------------------------------------------------------------


def _screen(bench: _Bench, request: Json, answers: TextIO) -> None:
    """Measure candidates one after the other; a culprit costs only itself."""
    at, count = 0, len(request["screen"])
    incumbent_s = float(request["incumbent_s"] or np.inf)
    while at < count:
        child = _Child(
            lambda send, first=at, best=incumbent_s: _screen_child(bench, request, first, best, send)
        )  # type: ignore[misc]
        started = at
        for message in child.messages(FIRST_RUN_S):
            if "start" in message:
                started = message["start"]
                continue
            answers.write(json.dumps(message) + "\n")
            at = message["at"] + 1
            seconds = message["measurement"]["seconds"]
            if message["measurement"]["status"] == "ok" and seconds:
                incumbent_s = min(incumbent_s, seconds)
        if child.ended_well:
            break
        at = max(at, started) + 1
        failed = Measurement.failed("timeout" if child.timed_out else "crash", child.epitaph)
        answers.write(json.dumps({"at": at - 1, "measurement": failed.to_json()}) + "\n")


def _rounds(bench: _Bench, request: Json, answers: TextIO) -> None:
    """Time kernels against each other in interleaved rounds; after a crash, once more without the culprit."""
    left = list(range(len(request["rounds"])))
    while left:
        child = _Child(lambda send, some=tuple(left): _rounds_child(bench, request, some, send))  # type: ignore[misc]
        started = -1
        for message in child.messages(FIRST_RUN_S + float(request["budget_s"]) * 2):
            started = message.get("start", started)
            if "start" not in message:
                answers.write(json.dumps(message) + "\n")
        if child.ended_well:
            return
        culprit = started if started in left else left[-1]
        left.remove(culprit)
        answers.write(json.dumps({"failed": culprit, "note": child.epitaph}) + "\n")


class _Child:
    """A forked child that sends lines of JSON and is killed when it is silent for too long."""

    def __init__(self, work: Callable[[Callable[[Json], None]], None]) -> None:
        self.ended_well = self.timed_out = False
        self.epitaph = ""
        self.pipe, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self.pipe)
                os.setpgid(0, 0)
                _tie_to_parent()
                _limit_memory()
                with os.fdopen(write, "w", buffering=1) as sink:
                    work(lambda message: _send(sink, message))
                code = 0
            except BaseException as error:  # a child must end here, whatever happened
                sys.stderr.write(f"worker child: {type(error).__name__}: {error}\n")
            finally:
                os._exit(code)
        os.close(write)

    def messages(self, silence_s: float) -> Iterator[Json]:
        """Yield what the child sends, until it ends or is silent for ``silence_s``."""
        buffer = b""
        try:
            while True:
                ready, _, _ = select.select([self.pipe], [], [], silence_s)
                if not ready:
                    self.timed_out = True
                    self.epitaph = f"killed: no sign of life for {silence_s:.0f} s"
                    break
                data = os.read(self.pipe, 1 << 16)
                if not data:
                    break
                buffer += data
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    yield json.loads(line)
        finally:
            self._bury()

    def _bury(self) -> None:
        os.close(self.pipe)
        if self.timed_out:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self.ended_well = not self.timed_out and status == 0
        if not self.epitaph and os.WIFSIGNALED(status):
            self.epitaph = f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
        elif not self.epitaph and status:
            self.epitaph = f"ended with exit status {os.waitstatus_to_exitcode(status)}"


def _send(sink: TextIO, message: Json) -> None:
    sink.write(json.dumps(message) + "\n")


def _tie_to_parent() -> None:
    """End when the parent does, so that no candidate outlives the user's process."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PARENT_DIED, signal.SIGKILL)


def _limit_memory() -> None:
    """Let a candidate have what is free now, not what makes the machine swap."""
    with contextlib.suppress(OSError, ValueError):
        facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(facts["MemAvailable"].split()[0]) * 1024
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = used + int(0.9 * free)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


# -- the child's side ------------------------------------------------------------------------------------


def _screen_child(
    bench: _Bench, request: Json, first: int, incumbent_s: float, send: Callable[[Json], None]
) -> None:
    threads = int(request["threads"])
    for at in range(first, len(request["screen"])):
        send({"start": at})
        measurement, facts = _one(
            bench, request["screen"][at], threads, incumbent_s, float(request["plausible_s"])
        )
        if measurement.ok:
            incumbent_s = min(incumbent_s, measurement.seconds)
        send({"at": at, "measurement": measurement.to_json(), **facts})


def _one(
    bench: _Bench, request: Json, threads: int, incumbent_s: float, plausible_s: float
) -> tuple[Measurement, dict[str, Any]]:
    """Bind, verify and time one candidate."""
    facts: dict[str, Any] = {}
    try:
        bound = kernel_of(bench.workload, request).bind(bench.workload, threads)
    except (FormatError, ScheduleError) as error:
        return Measurement.failed("refused", str(error)), facts
    except MemoryError as error:
        return Measurement.failed("memory", str(error)), facts
    except TensorwiseError as error:
        return Measurement.failed("refused", f"{type(error).__name__}: {error}"), facts
    try:
        facts = {"conversion_s": bound.conversion_s, "bytes_held": bound.bytes_held}
        wrong, first_s = bench.verify(bound)
        if wrong:
            return Measurement.failed("wrong", wrong), facts
        if first_s > GIVE_UP * incumbent_s:
            return Measurement(first_s, 0.0, (), "censored", f"slower than {GIVE_UP:g} times the best"), facts
        samples = time_calls(
            lambda: bound.run(bench.operands, bench.out), min_s=SCREEN_S, min_calls=3, max_s=1.0
        )
        measurement = Measurement.of(samples)
        if measurement.seconds < plausible_s:
            return Measurement.failed(
                "implausible", f"{measurement.seconds:.3g} s is faster than this machine can be"
            ), facts
        return measurement, facts
    except MemoryError as error:
        return Measurement.failed("memory", str(error)), facts
    finally:
        bound.close()


def _rounds_child(bench: _Bench, request: Json, which: tuple[int, ...], send: Callable[[Json], None]) -> None:
    threads = int(request["threads"])
    bound: dict[str, BoundKernel] = {}
    for at in which:
        send({"start": at})
        try:
            kernel = kernel_of(bench.workload, request["rounds"][at]).bind(bench.workload, threads)
            wrong, _ = bench.verify(kernel)
        except (TensorwiseError, MemoryError) as error:
            send({"failed": at, "note": f"{type(error).__name__}: {error}"})
            continue
        if wrong:
            send({"failed": at, "note": f"wrong: {wrong}"})
            continue
        bound[str(at)] = kernel
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
    calls = {name: (lambda k=kernel: k.run(bench.operands, bench.out)) for name, kernel in bound.items()}  # type: ignore[misc]
    if request.get("same_twice"):
        # The A/A check: the first kernel under a second name shows what this machine cannot resolve.
        calls["again"] = next(iter(calls.values()))
    send({"start": -1})
    rng = np.random.default_rng(request["seed"])
    table = interleave(
        calls,
        rounds=int(request["max_rounds"]),
        budget_s=float(request["budget_s"]),
        rng=rng,
        cache=request["cache"],
    )
    for name, kernel in bound.items():
        wrong, _ = bench.verify(kernel)
        if wrong:
            send({"failed": int(name), "note": f"wrong after timing: {wrong}"})
    send({"table": table.to_json()})


if __name__ == "__main__":
    main()
