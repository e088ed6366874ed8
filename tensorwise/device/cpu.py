"""The real CPU: candidates are compiled, then verified and timed in a worker process."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, final

from tensorwise.device.default import default_kernel
from tensorwise.device.device import Candidate, Device, Measurement, Rounds
from tensorwise.device.host import host
from tensorwise.device.library import LIBRARY, available
from tensorwise.device.opening import DeviceOptions
from tensorwise.device.roofline import doubted, plausible_s
from tensorwise.device.timing import RoundTable, measuring_slot
from tensorwise.device.worker import CHECK_S, FIRST_RUN_S, save_workload
from tensorwise.errors import (
    CompilerError,
    InputError,
    MeasurementError,
    OutOfTimeError,
    ScheduleError,
    TensorwiseError,
)
from tensorwise.ids import content_id
from tensorwise.lower.program import Program
from tensorwise.moved import renamed
from tensorwise.program.workload import Workload
from tensorwise.registry import child_environment, count_registrations
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.kernel import Kernel
from tensorwise.runtime.work import check_work
from tensorwise.space.config import Config
from tensorwise.space.cpu import CpuSpace, cpu_space_of
from tensorwise.tensor.primitives import PACKING
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.compiler import CompilerTimeoutError, find_compiler
from tensorwise.toolchain.deadline import is_over, left_s, waiting, within
from tensorwise.toolchain.forks import LOADING
from tensorwise.toolchain.routines import Routines, load_all
from tensorwise.toolchain.runtime import DRIVER
from tensorwise.toolchain.scratch import scratch_prefix
from tensorwise.toolchain.threads import granted_threads, too_many, unbound
from tensorwise.version import __version__

CPU_PROTOCOL = "2"
"""Changes whenever times taken before and after are not comparable."""
MOST_TEXT = 50_000
"""Characters of C of a candidate. Compilers need 3 s for twice as many, and a loop that long never won."""
LOAD_S = 600.0
"""A worker may take this long to map a workload and compute its reference."""


@final
class CpuDevice(Device):
    """This machine's CPU with a fixed number of threads.

    One worker process serves all calls; ``close`` ends it. Only one process of this machine times at
    once (``measuring_slot``).
    """

    name = "cpu"
    baseline: ClassVar[str] = "scipy"
    routines: ClassVar[tuple[Routines, ...]] = (DRIVER, PACKING)
    in_process: ClassVar[bool] = True
    verifies: ClassVar[bool] = True
    drifts: ClassVar[bool] = True

    def __init__(
        self,
        threads: int | None = None,
        cache: str = "warm",
        seed: int = 0,
        *,
        first_run_s: float = FIRST_RUN_S,
        memory_bytes: int | None = None,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            threads: threads of a kernel (default: those that this process may use), at most the number of available CPUs.
            cache: ``warm`` (operands as the last run left them) or ``cold`` (flushed before every run).
            seed: of the dense operands.
            first_run_s: a candidate that packs, or runs for the first time, for longer is killed.
            memory_bytes: what a candidate may allocate (default: most of what is free).

        Raises:
            InputError: threads below 1, or an unknown cache condition.
        """
        if cache not in ("warm", "cold"):
            raise InputError(f"cache must be warm or cold, got {cache!r}")
        self.threads = granted_threads(threads)
        asked = int(threads or self.threads)
        self.warnings = [too_many(asked, self.threads)] if self.threads < asked else []
        self.cache, self.seed = cache, seed
        self.first_run_s, self.memory_bytes = first_run_s, memory_bytes
        try:
            compiler = find_compiler().id
        except CompilerError:
            compiler = "none"  # library kernels still run
        self.id = content_id([CPU_PROTOCOL, host().id, compiler, str(self.threads), cache])
        self._worker: WorkerProcess | None = None
        self._loaded: Workload | None = None
        self.compile_s = 0.0

    @classmethod
    def from_options(cls, options: DeviceOptions) -> Self:
        """Open this machine's CPU; see `DeviceOptions`."""
        limit_s = FIRST_RUN_S if options.first_run_s is None else options.first_run_s
        return cls(options.threads, seed=options.seed, first_run_s=limit_s)

    def space(self, workload: Workload) -> CpuSpace:
        """Return the space of a workload on this CPU."""
        return cpu_space_of(workload)

    def libraries(self, workload: Workload) -> list[str]:
        """Return the names of the library kernels that are installed and run ``workload``."""
        return [kernel.name for kernel in available(workload)]

    def kernel(self, workload: Workload, candidate: Candidate) -> Kernel:
        """Return the generated kernel of a config, or a library's."""
        if isinstance(candidate, str):
            return LIBRARY[candidate]()
        return GeneratedKernel(self.space(workload).program(workload, candidate))

    def default_kernel(self, workload: Workload) -> Kernel:
        """Return the space's default program, or SciPy where there is no compiler."""
        return default_kernel(workload)

    measure_kernels = renamed("measure")

    def measure(
        self,
        workload: Workload,
        candidates: Sequence[Candidate | Program],
        *,
        incumbent_s: float | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Measurement]:
        """Yield a measurement for each config, program or library name; see :class:`Device`.

        Candidates are compiled together, before the first is timed.
        """
        kernels = self._resolve(workload, candidates)
        begin = time.perf_counter()
        with within(left_s() / 2):  # the rest is for libraries, if a compiler hangs
            refused = self.compile(workload, kernels)
        runnable = [place for place in range(len(kernels)) if place not in refused]
        answers: Iterator[Mapping[str, Any]] = iter(())
        least_s, doubtful = 0.0, dict[int, Measurement]()
        if runnable:
            left = None if limit_s is None else max(0.0, limit_s - (time.perf_counter() - begin))
            request = {
                "screen": [described(kernels[place]) for place in runnable],
                "incumbent_s": incumbent_s,
                "limit_s": left,
            }
            least_s = plausible_s(workload, self.threads)  # before the worker begins: it may measure peaks
            answers = self._ask(workload, request)
        results: dict[int, Measurement] = dict(refused)
        for place in range(len(kernels)):
            while place not in results:
                answer = next(answers, None)
                if answer is None and doubtful:
                    results |= self._believed(workload, doubtful)
                    doubtful.clear()
                    continue
                if answer is None:  # the time is up
                    return
                if "error" in answer:
                    raise MeasurementError(f"the measuring worker failed: {answer['error']}")
                facts = {k: answer[k] for k in ("conversion_s", "bytes_held") if k in answer}
                measurement = Measurement.from_json({**answer["measurement"], **facts})
                wait = measurement.status == "ok" and measurement.seconds < least_s
                (doubtful if wait else results)[runnable[answer["at"]]] = measurement
            if len(results) == len(kernels):
                for _ in answers:  # to its end: a worker with an answer left over would be ended
                    pass
            yield results[place]

    def _believed(self, workload: Workload, doubtful: Mapping[int, Measurement]) -> dict[int, Measurement]:
        """What seemed faster than this machine can be, judged by another look at what it can, while nothing else runs."""
        # without another look they are not believed
        with contextlib.suppress(OutOfTimeError), measuring_slot():
            doubted(self.threads)
        least_s = plausible_s(workload, self.threads)
        found = dict(doubtful)
        for place, one in doubtful.items():
            if one.seconds < least_s:
                note = f"{one.seconds:.3g} s is faster than this machine can be"
                failed = Measurement.failed("implausible", note)
                found[place] = replace(failed, conversion_s=one.conversion_s, bytes_held=one.bytes_held)
        return found

    def _resolve(self, workload: Workload, candidates: Iterable[Candidate | Program]) -> list[Program | str]:
        """Return the programs of configs; programs and names of libraries are themselves."""
        found = list(candidates)
        space = self.space(workload) if any(isinstance(one, Config) for one in found) else None
        return [space.program(workload, one) if space and isinstance(one, Config) else one for one in found]  # type: ignore[misc]

    def prepare(self, workload: Workload, configs: Sequence[Config]) -> None:
        """Compile ``configs`` together: many kernels in one file take a third less time than a few."""
        programs: list[Program | str] = []
        for config in configs:
            with contextlib.suppress(TensorwiseError):
                programs += self._resolve(workload, [config])
        self.compile(workload, programs)

    def compile(self, workload: Workload, kernels: Sequence[Program | str]) -> dict[int, Measurement]:
        """Compile the programs among ``kernels`` into the cache; return how those that fail ended."""
        texts, names = dict[int, tuple[str, ...]](), dict[int, str]()
        refused: dict[int, Measurement] = {}
        for place, program in enumerate(kernels):
            if isinstance(program, str):
                continue
            try:
                check_work(program, workload)
                parts = GeneratedKernel(program).texts(workload)
                length = sum(map(len, parts))
                if length > MOST_TEXT:
                    raise ScheduleError(
                        f"{program.name}: {length} characters of C, more than {MOST_TEXT}; unroll less"
                    )
                texts[place], names[place] = parts, program.name
            except ScheduleError as error:
                refused[place] = Measurement.failed("refused", str(error))
        if not texts:
            return refused
        start = time.perf_counter()
        try:
            load_all(DRIVER, PACKING)  # or the first candidate would compile them, in its own time
            wanted = list(dict.fromkeys(text for parts in texts.values() for text in parts))
            cache = default_cache()
            loaded = dict(zip(wanted, cache.get(wanted, on_error="none"), strict=True))
        except CompilerError as error:
            return refused | dict.fromkeys(texts, _uncompiled(error, str(error)))
        self.compile_s += time.perf_counter() - start
        for place, parts in texts.items():
            for text in parts:
                if loaded[text] is None:
                    why = cache.failures[cache.key(text)]
                    refused[place] = _uncompiled(why, f"{names[place]}: {why}")
        return refused

    def rounds(
        self,
        workload: Workload,
        candidates: Mapping[str, Candidate | Program],
        *,
        budget_s: float,
        max_rounds: int = 30,
        same_twice: bool = False,
    ) -> Rounds:
        """Time ``candidates`` (name -> config, program or library name) against each other.

        Args:
            budget_s: seconds for all of it: conversion, verification before and after, and rounds, to which a
                quarter is left at least; three rounds are run if they fit into twice of what is left.
            same_twice: enter the first kernel twice, as ``again``: an A/A check.
        """
        names = list(candidates)
        kernels = dict(zip(names, self._resolve(workload, candidates.values()), strict=True))
        failed: dict[str, str] = {}
        for place, measurement in self.compile(workload, list(kernels.values())).items():
            failed[names[place]] = measurement.note
        names = [name for name in names if name not in failed]
        if not names:
            return Rounds(None, {}, failed)
        facts: dict[str, dict[str, float]] = {}
        table = None
        request = {
            "rounds": [described(kernels[name]) for name in names],
            "budget_s": budget_s,
            "max_rounds": max_rounds,
            "cache": self.cache,
            "seed": self.seed,
            "same_twice": same_twice,
        }
        for answer in self._ask(workload, request):
            if "bound" in answer:
                facts[names[answer["bound"]]] = {
                    k: answer[k] for k in ("conversion_s", "bytes_held", "compile_s")
                }
            elif "failed" in answer:
                failed[names[answer["failed"]]] = answer["note"]
            elif "table" in answer:
                table = RoundTable.from_json(answer["table"])
            elif "error" in answer:
                raise MeasurementError(f"the measuring worker failed: {answer['error']}")
        if table is not None:
            table = table.renamed({str(place): name for place, name in enumerate(names)})
        return Rounds(table, facts, failed)

    def start(self, workload: Workload) -> None:
        """Have the worker load ``workload`` and its libraries, which takes seconds; return without waiting.

        ``measure`` and ``rounds`` wait for it. Calling this is optional: other work can go on meanwhile, and libraries are
        imported once instead of by each process in which kernels run.

        Raises:
            MeasurementError: the operands cannot be handed over.
        """
        plausible_s(workload, self.threads)  # peaks are measured while nothing else runs, if they must be
        self._started(workload, self.libraries(workload))

    def _ask(self, workload: Workload, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Send a request about ``workload`` and yield the answers."""
        worker = self._ready(workload)
        # Every candidate answers, or its child is killed and buried, within this time.
        silence_s = 3 * self.first_run_s + CHECK_S + 30 + 3 * float(request.get("budget_s", 0))
        limits = {"first_run_s": self.first_run_s, "memory_bytes": self.memory_bytes}
        with measuring_slot():
            yield from worker.ask({**request, **limits, "threads": self.threads}, silence_s)

    def _ready(self, workload: Workload) -> "WorkerProcess":
        """Return the worker with ``workload`` loaded."""
        worker = self._started(workload)
        try:
            worker.wait()
        except MeasurementError:
            if is_over():
                raise
            # A library may end any process that imports it: its own measurement will say so.
            self._loaded = None
            worker = self._started(workload)
            worker.wait()
        return worker

    def _started(self, workload: Workload, libraries: Sequence[str] = ()) -> "WorkerProcess":
        """Return the worker, which has loaded ``workload`` or is loading it."""
        if self._worker is not None and not self._worker.is_usable:
            self.close()
        if self._worker is None:
            self._worker, self._loaded = WorkerProcess(self.threads), None
        if self._loaded is not workload:
            self._loaded = None
            self._worker.load(workload, self.seed, libraries)
            self._loaded = workload
        return self._worker

    @cached_property
    def provenance(self) -> dict[str, object]:
        """What a Record needs besides the times: versions, host, compiler and flags, threads, cache."""
        facts: dict[str, object] = {
            "version": __version__,
            "host": host().cpu,
            "host_id": host().id,
            "threads": self.threads,
            "cache": self.cache,
            "protocol": CPU_PROTOCOL,
        }
        with contextlib.suppress(CompilerError):
            compiler = find_compiler()
            facts |= {"compiler": compiler.version, "flags": " ".join(compiler.flags)}
        return facts

    @property
    def workers(self) -> tuple[int, ...]:
        """The process that measures, where there is one."""
        return () if self._worker is None else (self._worker.process.pid,)

    def take_worker(self, worker: "WorkerProcess | None") -> None:
        """Measure with a process that was started already, until it ends."""
        self._worker = worker

    def close(self) -> None:
        """End the worker process."""
        if self._worker is not None:
            self._worker.close()
        self._worker = self._loaded = None


class WorkerProcess:
    """A worker process, which runs ``module``, and the two pipes to it."""

    def __init__(self, threads: int, module: str = "tensorwise.device.worker") -> None:
        environment = {
            **child_environment(),
            "OMP_NUM_THREADS": str(threads),
            "TENSORWISE_NUM_THREADS": str(threads),
        }
        with unbound(), LOADING:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL if not os.environ.get("TENSORWISE_DEBUG") else None,
                env=environment,
            )
        self.buffer = b""
        self._owner = os.getpid()
        self._known = count_registrations()
        self._loading: Path | None = None  # the folder with what it was told to load, until it has

    @property
    def is_usable(self) -> bool:
        """Whether it runs, is not that of the process which forked this one, and knows all that is registered."""
        ours = os.getpid() == self._owner and self.process.poll() is None
        return ours and self._known == count_registrations()

    def load(self, workload: Workload, seed: int, libraries: Sequence[str] = ()) -> None:
        """Tell it to load a workload, whose operands it draws by ``seed``, and ``libraries``; ``wait`` for it.

        Raises MeasurementError where it cannot be told.
        """
        with contextlib.suppress(MeasurementError):  # what it was told to load before is not needed any more
            self.wait()
        self._loading = folder = Path(tempfile.mkdtemp(prefix=scratch_prefix("operands")))
        try:
            save_workload(workload, folder)
        except OSError as error:
            self._unload()
            raise MeasurementError(
                f"cannot hand the operands to the worker through {folder}: {error}"
            ) from error
        self._tell({"load": str(folder), "seed": seed, "libraries": list(libraries)})

    def wait(self) -> None:
        """Return when it has loaded what it was told to. Raises MeasurementError where it cannot have it."""
        if self._loading is None:
            return
        try:
            with waiting():
                for answer in self._answers(LOAD_S):
                    if "error" in answer:
                        raise MeasurementError(f"the worker cannot load the workload: {answer['error']}")
        finally:
            self._unload()

    def _unload(self) -> None:
        """Remove the files of a workload. The worker has mapped them: they live on until it lets go of them."""
        if self._loading is not None:
            shutil.rmtree(self._loading, ignore_errors=True)
        self._loading = None

    def ask(self, request: Mapping[str, Any], silence_s: float) -> Iterator[Mapping[str, Any]]:
        """Wait until the workload is loaded, then yield the worker's answers to a request.

        Raises:
            MeasurementError: the worker died or was silent for ``silence_s``, or no time is left; it is ended.
        """
        self.wait()
        self._tell(request)
        yield from self._answers(silence_s)

    def _tell(self, request: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            self.close()
            raise MeasurementError(f"the measuring worker is gone: {error}") from error

    def _answers(self, silence_s: float) -> Iterator[Mapping[str, Any]]:
        """Yield what it answers to one request."""
        finished = False
        try:
            for line in self._lines(silence_s):
                answer = json.loads(line)
                if "done" in answer or "error" in answer:
                    finished = True
                    if "error" in answer:
                        yield answer
                    return
                yield answer
        finally:
            if not finished:
                self.close()  # an abandoned answer must not be taken for the next one

    def _lines(self, silence_s: float) -> Iterator[bytes]:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while True:
            while b"\n" in self.buffer:
                line, _, self.buffer = self.buffer.partition(b"\n")
                yield line
            ready, _, _ = select.select([descriptor], [], [], left_s(silence_s))
            if not ready and is_over():
                raise OutOfTimeError("the budget was spent before the measuring worker was done")
            data = os.read(descriptor, 1 << 16) if ready else b""
            if not data:
                code = self.process.poll()
                raise MeasurementError(
                    f"the measuring worker {'was silent' if not ready else f'ended with status {code}'}; "
                    "set TENSORWISE_DEBUG=1 to see what it prints"
                )
            self.buffer += data

    def close(self) -> None:
        """Kill the process; its children die with it. A forked child lets go of its parent's."""
        mine = os.getpid() == self._owner
        if mine:
            with contextlib.suppress(OSError):
                self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        if mine:
            self.process.wait()
            self._unload()


def _uncompiled(error: CompilerError, note: str) -> Measurement:
    return Measurement.failed("timeout" if isinstance(error, CompilerTimeoutError) else "refused", note)


def described(kernel: Program | str) -> dict[str, Any]:
    """Return the JSON that describes a program, or a library's routine by name, to a worker."""
    if isinstance(kernel, str):
        return {"library": kernel}
    return {"formats": kernel.format_texts, "schedule": kernel.schedule_text}
