"""The real GPU: candidates are compiled, verified and timed with events in a worker process, which they may end."""

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final, Self, final

from tensorwise.device.cpu import WorkerProcess, described
from tensorwise.device.device import Candidate, Device, Measurement, Rounds
from tensorwise.device.gpus import gpu_named
from tensorwise.device.libraries.cusparse import CusparseKernel
from tensorwise.device.opening import DeviceOptions
from tensorwise.device.rounds import RoundTable
from tensorwise.device.timing import measuring_slot
from tensorwise.device.worker import CHECK_S
from tensorwise.errors import MeasurementError
from tensorwise.ids import content_id
from tensorwise.lower.program import Program
from tensorwise.program.workload import Workload
from tensorwise.runtime.kernel import Kernel
from tensorwise.runtime.launched import LaunchedKernel
from tensorwise.space.config import Config
from tensorwise.space.cuda import CudaSpace, cuda_space
from tensorwise.tensor.primitives import PACKING
from tensorwise.toolchain.cubin import Resources
from tensorwise.toolchain.gpu import check_cupy, find_gpu
from tensorwise.toolchain.routines import Routines
from tensorwise.toolchain.threads import available_threads
from tensorwise.version import __version__

CUDA_PROTOCOL: Final = "2"
"""Changes whenever times taken before and after are not comparable."""
WORKER: Final = "tensorwise.device.cuda_worker"
WORKER_START_S: Final = 120.0
"""A process may take this long to get hold of a GPU."""
FIRST_RUN_S: Final = 60.0
"""Packing, compiling and a first run may take this long; then the process is ended."""


@final
class CudaDevice(Device):
    """A GPU of this machine.

    One worker process uses the GPU. A candidate that accesses an invalid address or never ends makes that process useless:
    it is ended, and the next candidate gets a new one.
    """

    name = "cuda"
    budget_s: ClassVar[float] = 60.0
    baseline: ClassVar[str] = CusparseKernel.name
    verifies: ClassVar[bool] = True
    routines: ClassVar[tuple[Routines, ...]] = (PACKING,)

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
        self.id = content_id([CUDA_PROTOCOL, facts["name"], facts["runtime"], facts["driver"]])

    @classmethod
    def from_options(cls, options: DeviceOptions) -> Self:
        """Open the first GPU; see `DeviceOptions`."""
        return cls(seed=options.seed)

    def space(self, workload: Workload) -> CudaSpace:
        """Return the space of a workload on this GPU."""
        return cuda_space(workload.assignment, next(iter(workload.sparse)), self.gpu)

    def libraries(self, workload: Workload) -> list[str]:
        """Return the names of the library kernels that run ``workload``."""
        return [CusparseKernel.name] if CusparseKernel.why_not(workload) is None else []

    def kernel(self, workload: Workload, candidate: Candidate) -> Kernel:
        """Return the kernel of a config or a library; its calls are launched by this process, not by the worker.

        Raises MeasurementError where this process cannot open the GPU.
        """
        gpu = find_gpu(self.number)
        if isinstance(candidate, str):
            return CusparseKernel(gpu)
        return LaunchedKernel(self.space(workload).program(workload, candidate), gpu)

    def start(self, workload: Workload) -> None:
        """Have the worker load ``workload``, as other devices do; what measures waits until it has.

        Raises:
            MeasurementError: the operands cannot be handed over.
        """
        self._ready(workload)

    def measure(
        self,
        workload: Workload,
        candidates: Sequence[Candidate | Program],
        *,
        incumbent_s: float | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Measurement]:
        """Yield a measurement for each config, program or library name; see :class:`Device`."""
        kernels = self._resolve(workload, candidates)
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

    def resources(self, workload: Workload, configs: Sequence[Config]) -> list[Resources | None]:
        """Compile configs side by side, and run none; see :class:`Device`."""
        programs = self._resolve(workload, configs)
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
        self,
        workload: Workload,
        candidates: Mapping[str, Candidate | Program],
        *,
        budget_s: float = math.inf,
        max_rounds: int = 15,
    ) -> Rounds:
        """Time ``candidates`` (name -> config, program or library name) against each other; see :class:`Device`.

        Where a candidate ends the worker there is no table, and all of them have failed.
        """
        names = list(candidates)
        table, facts = None, dict[str, Mapping[str, float]]()
        asked = {
            "rounds": [described(kernel) for kernel in self._resolve(workload, candidates.values())],
            "budget_s": budget_s,
            "max_rounds": max_rounds,
            "seed": self.seed,
        }
        try:
            for answer in self._ask(workload, asked):
                if "bound" in answer:
                    facts[names[answer["bound"]]] = {
                        k: answer[k] for k in ("conversion_s", "bytes_held", "compile_s")
                    }
                elif "table" in answer:
                    table = RoundTable.from_json(answer["table"])
        except _WorkerLostError as error:
            return Rounds(None, {}, dict.fromkeys(names, str(error)))
        return Rounds(
            table and table.renamed({str(place): name for place, name in enumerate(names)}), facts, {}
        )

    def _resolve(self, workload: Workload, candidates: Iterable[Candidate | Program]) -> list[Program | str]:
        """Return the programs of configs; programs and names of libraries are themselves."""
        space = self.space(workload)
        return [space.program(workload, one) if isinstance(one, Config) else one for one in candidates]

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
        if self._worker is not None and not self._worker.is_usable:
            self.close()
        if self._worker is None:
            self._worker, self._loaded = WorkerProcess(available_threads(), WORKER), None
            (facts,) = self._worker.ask({"gpu": self.number}, WORKER_START_S)
            if "error" in facts:
                self.close()
                raise MeasurementError(str(facts["error"]))
            self.facts = facts
        return self._worker

    @cached_property
    def provenance(self) -> dict[str, object]:
        """What a Record needs besides the times."""
        return {
            "version": __version__,
            "host": self.facts["name"],
            "host_id": self.id,
            "protocol": CUDA_PROTOCOL,
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
