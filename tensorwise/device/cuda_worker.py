"""The measuring worker of a GPU: the only process that holds it, ended by a candidate that spoils it.

Requests and answers are lines of JSON on stdin and stdout, as those of ``worker.py``; but candidates run in this
process, because a forked child cannot use a GPU; the client starts another worker after a crash:

    {"gpu": N}                           ->  {"name": ..., "multiprocessors": ..., "runtime": ..., "driver": ...}
    {"load": FOLDER, "seed": N}
    {"screen": [KERNEL...], ...}         ->  {"compile_s": ...}, then {"start": i}, {"measurement": {...}, ...} for each
    {"compile": [KERNEL...]}             ->  {"compile_s": ...}, then {"at": i, "registers": ..., ...} for each
    {"rounds": [KERNEL...], ...}         ->  {"table": {...}}
"""

import contextlib
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tensorwise.device.device import Measurement
from tensorwise.device.libraries.cusparse import BoundCusparse, CusparseKernel
from tensorwise.device.rounds import MIN_ROUNDS, RoundTable
from tensorwise.device.verify import poison
from tensorwise.device.worker import GIVE_UP, Bench, requests, user_of
from tensorwise.errors import FormatError, MeasurementError, ScheduleError, TensorwiseError
from tensorwise.lower.program import program_for
from tensorwise.runtime.launched import BoundLaunched, LaunchedKernel, brought
from tensorwise.runtime.work import check_work
from tensorwise.toolchain.gpu import Gpu, Held, find_gpu

Json = Mapping[str, Any]
Send = Callable[[Json], None]
SAMPLE_S: Final = 100e-6
"""A sample takes this long at least: as many calls as it takes."""
SAMPLES: Final = 10
"""Samples of a candidate, as in the paper (section III-D: ten runs after one to warm up)."""
_BROUGHT: Final[dict[Bench, Mapping[str, Held]]] = {}
"""The dense operands of the workload that is served, in the GPU's memory."""
SLOW_S: Final = 0.2
"""A candidate whose first timed run took this long is not timed again."""


def main() -> None:
    """Serve requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)  # whatever a library prints must not get between them
    os.dup2(2, 1)
    bench: Bench | None = None
    gpu: Gpu | None = None

    def send(message: Json) -> None:
        answers.write(json.dumps(message) + "\n")

    for line in requests(user_of()):
        request = json.loads(line)
        try:
            if "gpu" in request:
                gpu = find_gpu(int(request["gpu"]))
                send(gpu.facts)
            elif "load" in request:
                bench = Bench.load(request)
            elif bench is not None and gpu is not None:
                serve = {"screen": _screen, "compile": _compile, "rounds": _rounds}
                serve[next(kind for kind in serve if kind in request)](bench, gpu, request, send)
            send({"done": True})
        except (TensorwiseError, MemoryError, OSError) as error:
            send({"error": f"{error}" if "gpu" in request else f"{type(error).__name__}: {error}"})


def _kernel(bench: Bench, gpu: Gpu, request: Json) -> LaunchedKernel | CusparseKernel:
    if "library" in request:
        return CusparseKernel(gpu)
    program = program_for(bench.workload, request["formats"], request["schedule"])
    check_work(program, bench.workload)
    return LaunchedKernel(program, gpu)


def _texts(bench: Bench, gpu: Gpu, request: Json) -> list[str]:
    """What a kernel will have compiled; nothing where that is refused, which shows when it is bound."""
    try:
        kernel = _kernel(bench, gpu, request)
        return kernel.texts(bench.workload) if isinstance(kernel, LaunchedKernel) else []
    except TensorwiseError:
        return []


def _screen(bench: Bench, gpu: Gpu, request: Json, send: Send) -> None:
    incumbent_s = float(request["incumbent_s"] or np.inf)
    before_s = gpu.compile_s
    gpu.prepare([text for kernel in request["screen"] for text in _texts(bench, gpu, kernel)])
    send({"compile_s": gpu.compile_s - before_s})
    for at, kernel in enumerate(request["screen"]):
        send({"start": at})
        facts: dict[str, float] = {"conversion_s": 0.0, "bytes_held": 0}
        before_s = gpu.compile_s
        try:
            bound = _kernel(bench, gpu, kernel).bind(bench.workload, 1)
            facts = {"conversion_s": bound.conversion_s, "bytes_held": bound.bytes_held}
            if isinstance(bound, BoundLaunched) and bound.resources is not None:
                facts |= bound.resources._asdict()
            call = _ready(bound, bench, gpu)
            poison(bench.out)
            call()
            bound.fetch(bench.out)
            wrong = bench.checker.check(bench.out)
            found = Measurement.failed("wrong", wrong) if wrong else timed(gpu, call, incumbent_s)
        except MemoryError as error:
            found = Measurement.failed("memory", str(error) or "out of memory")
        except (FormatError, ScheduleError) as error:
            found = Measurement.failed("refused", str(error))
        except Exception as error:  # whatever CUDA says; where it spoiled the GPU, nothing works from now on
            found = Measurement.failed("crash", f"{type(error).__name__}: {error}")
        if found.ok:
            incumbent_s = min(incumbent_s, found.seconds)
        send({"measurement": found.to_json(), "compile_s": gpu.compile_s - before_s, **facts})
        if found.status == "crash":
            try:
                gpu.synchronize()
            except MeasurementError:
                os._exit(1)  # nothing works here any more


def _ready(bound: BoundLaunched | BoundCusparse, bench: Bench, gpu: Gpu) -> Callable[[], object]:
    """Return a call on the operands, which all programs share: bringing them takes longer than most programs do."""
    if isinstance(bound, BoundCusparse):
        return bound.ready(bench.operands, bench.out)
    if bench not in _BROUGHT:
        _BROUGHT.clear()
        _BROUGHT[bench] = brought(bench.workload, gpu, bench.operands)
    return bound.ready_on(_BROUGHT[bench])


def _compile(bench: Bench, gpu: Gpu, request: Json, send: Send) -> None:
    """Compile kernels side by side, and say what a thread of each takes."""
    before_s = gpu.compile_s
    gpu.prepare([text for kernel in request["compile"] for text in _texts(bench, gpu, kernel)])
    send({"compile_s": gpu.compile_s - before_s})
    for at, asked in enumerate(request["compile"]):
        with contextlib.suppress(TensorwiseError):  # what is refused says so when it is measured
            kernel = _kernel(bench, gpu, asked)
            taken = kernel.resources(bench.workload) if isinstance(kernel, LaunchedKernel) else None
            send({"at": at, **(taken._asdict() if taken is not None else {})})


def timed(gpu: Gpu, call: Callable[[], object], incumbent_s: float = np.inf) -> Measurement:
    """Time a kernel that is right."""
    (first_s,) = gpu.seconds(call, 1)
    if first_s > GIVE_UP * incumbent_s:
        return Measurement(first_s, 0.0, (), "censored", f"slower than {GIVE_UP:g} times the best")
    if first_s > SLOW_S:
        return Measurement.of([first_s], "too slow to be timed more than once")
    count = calls_for(first_s)
    calls = several(gpu, call, count)
    return Measurement.of([sample(gpu, calls, count) for _ in range(SAMPLES)])


def calls_for(seconds: float) -> int:
    """Calls of a sample, of a kernel that takes ``seconds``."""
    return max(1, min(100, int(SAMPLE_S / max(seconds, 1e-7))))


def several(gpu: Gpu, call: Callable[[], object], count: int) -> Callable[[], object]:
    """Return ``count`` consecutive calls, captured in one CUDA graph where possible."""
    calls = repeated(call, count)
    return gpu.captured(calls) or calls


def repeated(call: Callable[[], object], count: int) -> Callable[[], object]:
    """Return ``count`` calls one after the other."""

    def calls() -> None:
        for _ in range(count):
            call()

    return calls


def sample(gpu: Gpu, calls: Callable[[], object], count: int) -> float:
    """Seconds of each of the ``count`` calls that ``calls`` makes."""
    (seconds,) = gpu.seconds(calls, 1)
    return seconds / count


def _rounds(bench: Bench, gpu: Gpu, request: Json, send: Send) -> None:
    """Time kernels against each other: one sample each a round, in shuffled order."""
    calls: dict[str, Callable[[], object]] = {}
    counts: dict[str, int] = {}
    for at, kernel in enumerate(request["rounds"]):
        before_s = gpu.compile_s
        bound = _kernel(bench, gpu, kernel).bind(bench.workload, 1)
        calls[str(at)] = _ready(bound, bench, gpu)
        send(
            {
                "bound": at, "conversion_s": bound.conversion_s, "bytes_held": bound.bytes_held,
                "compile_s": gpu.compile_s - before_s,
            }
        )  # fmt: skip
        warm = statistics.median(gpu.seconds(calls[str(at)], 3))
        counts[str(at)] = calls_for(warm)
    rng, names, start = np.random.default_rng(request["seed"]), list(calls), time.perf_counter()
    rounds = []
    sampled = {name: several(gpu, call, counts[name]) for name, call in calls.items()}
    for _ in range(int(request["max_rounds"])):
        row = {}
        for place in rng.permutation(len(names)).tolist():
            row[names[place]] = sample(gpu, sampled[names[place]], counts[names[place]])
        rounds.append(row)
        if len(rounds) >= MIN_ROUNDS and time.perf_counter() - start > request["budget_s"]:
            break
    table = RoundTable(
        tuple(names), tuple(rounds), (False,) * len(rounds), "warm", time.perf_counter() - start
    )
    send({"table": table.to_json()})


if __name__ == "__main__":
    main()
