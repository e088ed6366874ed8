"""The real GPU: candidates are compiled, verified and timed with events in a worker process, which they may end."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, final

from tensorwise.device.cpu import WorkerProcess, described
from tensorwise.device.device import Device, Measurement
from tensorwise.device.gpus import gpu_named
from tensorwise.device.libraries.cusparse import CusparseKernel
from tensorwise.device.rounds import RoundTable
from tensorwise.device.timing import measuring_slot
from tensorwise.device.worker import CHECK_S
from tensorwise.errors import MeasurementError
from tensorwise.ids import content_id
from tensorwise.program.program import Program
from tensorwise.program.workload import Workload
from tensorwise.space.config import Config
from tensorwise.space.cuda import CudaSpace, cuda_space
from tensorwise.tensor.primitives import PACKING
from tensorwise.toolchain.cubin import Resources
from tensorwise.toolchain.gpu import check_cupy
from tensorwise.toolchain.routines import Routines
from tensorwise.toolchain.threads import available_threads
from tensorwise.version import __version__

PROTOCOL: Final = "2"
"""Changes whenever times taken before and after are not comparable."""
WORKER: Final = "tensorwise.device.cuda_worker"
START_S: Final = 120.0
"""A process may take this long to get hold of a GPU."""
FIRST_RUN_S: Final = 60.0
"""Packing, compiling and a first run may take this long; then the process is ended."""


@final
class CudaDevice(Device):
    """A GPU of this machine.

    Its worker is one process that holds the GPU. A candidate that spoils it, by an address that is none or by running for
    ever, ends the process; the next one gets a new process.
    """

    name = "cuda"
    routines: ClassVar[tuple[Routines, ...]] = (PACKING,)
    """What is compiled before candidates can be."""
    threads: ClassVar[int] = 1
    """Of this process, in a call."""

    def __init__(self, number: int = 0, seed: int = 0) -> None:
        """Ask for the GPU.

        Args:
            number: which of the GPUs that CUDA shows.
            seed: of the dense operands.

        Raises:
            MissingExtraError: CuPy is not installed.
            MeasurementError: there is no GPU that can be used; the message says what CUDA said.
        """
        check_cupy("measuring on a GPU")
        self.number, self.seed = number, seed
        self._worker: WorkerProcess | None = None
        self._loaded: Workload | None = None
        self.compile_s = 0.0
        self.facts: Mapping[str, Any] = {}
        self._started()
        facts = self.facts
        self.gpu = gpu_named(facts["name"])
        self.id = content_id([PROTOCOL, facts["name"], facts["runtime"], facts["driver"]])

    def space(self, workload: Workload) -> CudaSpace:
        """Return the space of a workload on this GPU."""
        return cuda_space(workload.assignment, next(iter(workload.sparse)), self.gpu)

    def libraries(self, workload: Workload) -> list[str]:
        """Return the names of the library kernels that run ``workload``."""
        return [CusparseKernel.name] if CusparseKernel.why_not(workload) is None else []

    def start(self, workload: Workload) -> None:
        """Have the worker load ``workload``, as other devices do; what measures waits until it has.

        Raises:
            MeasurementError: the operands cannot be handed over.
        """
        self._ready(workload)

    def measure(self, workload: Workload, configs: Sequence[Config]) -> Iterator[Measurement]:
        """Yield a measurement for each config; see :class:`Device`."""
        space = self.space(workload)
        yield from self.measure_kernels(workload, [space.program(workload, config) for config in configs])

    def measure_kernels(
        self,
        workload: Workload,
        kernels: Sequence[Program | str],
        incumbent_s: float | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Measurement]:
        """Yield a measurement for each program or library name, in order.

        Args:
            incumbent_s: the best time so far: what is far slower is given up (``censored``).
            limit_s: no further kernel is asked for after so many seconds; then fewer measurements are yielded, but at
                least one.
        """
        answered, begin, found = 0, time.perf_counter(), list[Measurement]()
        while answered < len(kernels):
            if limit_s is not None and answered and time.perf_counter() - begin > limit_s:
                return
            first = started = answered
            asked = {"screen": [described(kernel) for kernel in kernels[first:]], "incumbent_s": incumbent_s}
            try:
                for answer in self._ask(workload, asked):
                    if "start" in answer:
                        started = first + answer["start"]
                    elif "compile_s" in answer and "measurement" not in answer:
                        self.compile_s += answer["compile_s"]
                    elif "measurement" in answer:
                        answered = started + 1
                        self.compile_s += answer["compile_s"]
                        facts = {k: v for k, v in answer.items() if k not in ("measurement", "compile_s")}
                        found.append(Measurement.from_json({**answer["measurement"], **facts}))
                        if answered < len(kernels):
                            yield found.pop()
                    else:
                        raise MeasurementError(f"the measuring worker failed: {answer['error']}")
            except _WorkerLostError as error:
                if answered <= started:  # else it fell with the one that was answered, or between two
                    answered = started + 1
                    found.append(Measurement.failed("crash", str(error)))
            yield from found  # the last one, behind all answers: a worker with one left over would be ended
            found.clear()

    def resources(self, workload: Workload, programs: Sequence[Program]) -> list[Resources | None]:
        """Compile programs side by side, and run none; return what a thread of each takes, None where nothing tells."""
        found: dict[int, Resources] = {}
        try:
            for answer in self._ask(workload, {"compile": [described(program) for program in programs]}):
                self.compile_s += answer.get("compile_s", 0.0)
                if "registers" in answer:
                    found[answer["at"]] = Resources(answer["registers"], answer["frame_bytes"])
        except _WorkerLostError:
            return [None] * len(programs)
        return [found.get(place) for place in range(len(programs))]

    def rounds(
        self, workload: Workload, kernels: Mapping[str, Program | str], max_rounds: int = 15
    ) -> RoundTable | None:
        """Time ``kernels`` (name -> program, or library name) against each other; None where too few of them run."""
        names = list(kernels)
        table = None
        asked = {
            "rounds": [described(kernels[name]) for name in names],
            "max_rounds": max_rounds,
            "seed": self.seed,
        }
        try:
            for answer in self._ask(workload, asked):
                if "table" in answer:
                    table = RoundTable.from_json(answer["table"])
        except _WorkerLostError:
            return None
        return table and table.renamed({str(place): name for place, name in enumerate(names)})

    def _ask(self, workload: Workload, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Send a request about ``workload`` and yield the answers; _WorkerLostError where a candidate ends the worker."""
        worker = self._ready(workload)
        with measuring_slot():
            try:
                yield from worker.ask(request, FIRST_RUN_S + CHECK_S)
            except MeasurementError as error:
                raise _WorkerLostError(str(error)) from error

    def _ready(self, workload: Workload) -> WorkerProcess:
        """Return the worker with ``workload`` loaded."""
        worker = self._started()
        if self._loaded is not workload:
            worker.load(workload, self.seed)
            self._loaded = workload
        return worker

    def _started(self) -> WorkerProcess:
        """Return the worker, with its hand on the GPU; MeasurementError where it cannot have it."""
        if self._worker is not None and self._worker.gone:
            self.close()
        if self._worker is None:
            self._worker, self._loaded = WorkerProcess(available_threads(), WORKER), None
            (facts,) = self._worker.ask({"gpu": self.number}, START_S)
            if "error" in facts:
                self.close()
                raise MeasurementError(str(facts["error"]))
            self.facts = facts
        return self._worker

    @property
    def provenance(self) -> dict[str, object]:
        """What a Record needs besides the times."""
        return {
            "version": __version__,
            "host": self.facts["name"],
            "host_id": self.id,
            "protocol": PROTOCOL,
            **self.facts,
        }

    def close(self) -> None:
        """End the worker process."""
        if self._worker is not None:
            with contextlib.suppress(OSError):
                self._worker.close()
        self._worker = self._loaded = None


class _WorkerLostError(Exception):
    """The worker process ended or fell silent while it measured."""
