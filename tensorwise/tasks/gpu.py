"""A GPU of this machine that times staged programs of tasks; TVM is not needed here.

The timed calls run one after the other, launched without waiting, on the same operands: so does a network whose weights
fit into the L2 cache.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, final

import numpy as np

from tensorwise.device.cuda_worker import timed
from tensorwise.device.device import Candidate, Device, Measurement
from tensorwise.device.gpus import gpu_named
from tensorwise.device.hardware import Hardware, described
from tensorwise.device.timing import measuring_slot
from tensorwise.errors import InputError, MeasurementError
from tensorwise.ids import content_id
from tensorwise.space.config import Config
from tensorwise.tasks.cutting import TaskGraph
from tensorwise.tasks.staged import StagedProgram, StagedTask
from tensorwise.tasks.task import agreeing, drawn
from tensorwise.toolchain.cubin import resources
from tensorwise.toolchain.gpu import Gpu, Held, find_gpu

STAGED_PROTOCOL: Final = "warm-1"
"""How is measured; part of the device's id."""
POOL_ELEMENTS: Final = 2**24
"""Elements of each dtype that operands are parts of, at least: drawing them anew for each task would take longest of all."""
OPERAND_ALIGNMENT: Final = 64
"""Elements between the beginnings of operands: as far as programs may believe them to be aligned."""


@final
class TaskGpu(Device[StagedTask]):
    """A GPU that times staged programs.

    Args:
        gpu: the GPU; default: the first of this machine.

    Raises:
        MissingExtraError: CuPy is not installed.
        MeasurementError: there is no GPU that can be used.
        InputError: the GPU is none of those that are described.
    """

    def __init__(self, gpu: Gpu | None = None) -> None:
        self._gpu = find_gpu() if gpu is None else gpu
        facts = self._gpu.facts
        self.name = gpu_named(self._gpu.name).name
        if self.name not in described():
            raise InputError(
                f"{self._gpu.name} has no description, which models need; expected one of: {', '.join(described())}"
            )
        self.id = content_id(
            ["staged", STAGED_PROTOCOL, self._gpu.name, str(facts["runtime"]), str(facts["driver"])]
        )
        self._pools: dict[str, Held] = {}

    @cached_property
    def provenance(self) -> Mapping[str, object]:
        """What a Record says about the device besides the times."""
        return {**self._gpu.facts, "host": self._gpu.name, "protocol": STAGED_PROTOCOL}

    @property
    def hardware(self) -> Hardware:
        """The device's description for models."""
        return described()[self.name]

    def measure(
        self,
        workload: StagedTask,
        candidates: Sequence[Candidate],
        *,
        incumbent_s: float | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Measurement]:
        """Yield a measurement for each config; see :class:`Device`. There are no libraries."""
        configs = [one for one in candidates if isinstance(one, Config)]
        programs = {one.config: one for one in workload.programs}
        known = [programs[config] for config in configs if config in programs]
        times = dict(zip([one.config for one in known], self.time(workload, known), strict=True))
        for config in configs:
            yield times.get(config, Measurement.failed("refused", "no program of this schedule is staged"))

    def time(self, task: StagedTask, programs: Sequence[StagedProgram]) -> list[Measurement]:
        """Run programs of a task, one after the other; results of the first that runs are those that others must give.

        Raises:
            MeasurementError: a program has spoiled the GPU for this process, or it is for another GPU.
        """
        if task.gpu != self.name:
            raise MeasurementError(f"the staged programs are for {task.gpu}, but this GPU is {self.name}")
        with measuring_slot():
            given = self.operands(task)
            wanted: np.ndarray | None = None
            found = []
            for program in programs:
                try:
                    call = self.call(task, program, given)
                    result = np.empty(given[-1].size, given[-1].dtype)
                    self._gpu.fill(given[-1])
                    call()
                    self._gpu.download(given[-1], result)
                    wanted = result if wanted is None else wanted
                    agreeing(result, wanted)
                    one = replace(timed(self._gpu, call), **resources(program.code)._asdict())
                except MemoryError as error:
                    one = Measurement.failed("memory", str(error) or "out of memory")
                except ValueError as error:
                    one = Measurement.failed("wrong", str(error))
                found.append(one)
        return found

    def network(self, graph: TaskGraph, parts: Mapping[str, tuple[StagedTask, StagedProgram]]) -> Measurement:
        """Time a network's programs, launched without waiting, one after the other; each reads the results of earlier ones.

        Each run has its own weights, as in a network. A run's inputs are matched to earlier results by size. Integer
        inputs, which are indices, are drawn at random within their range instead.

        Args:
            graph: the network.
            parts: task -> what runs it.
        """
        with measuring_slot():
            calls, results, begin = [], list[Held](), 0
            for node in graph.nodes:
                task, program = parts[node.task]
                given = self.operands(task, begin)
                begin += sum(_room(shape) for shape, _ in task.operands)
                own = list(range(len(given) - 1))
                for result in (results[before] for before in node.after):
                    place = next((k for k in own if _alike(given[k], result)), None)
                    if place is not None and result.dtype.kind == "f":
                        own.remove(place)
                        given[place] = result
                results.append(given[-1])
                calls.append(self.call(task, program, given))

            def whole() -> None:
                for call in calls:
                    call()

            return timed(self._gpu, whole)

    def operands(self, task: StagedTask, begin: int = 0) -> list[Held]:
        """Return the operands of a task in the GPU's memory: parts of one array a dtype, all but the result.

        Args:
            begin: where in the array; the same part has the same numbers.
        """
        *given, (shape, elem) = task.operands
        held = []
        for size, kind in given:
            held.append(self._part(math.prod(size), kind, begin))
            begin += _room(size)
        return [*held, self._gpu.empty(math.prod(shape), np.dtype(elem))]

    def call(self, task: StagedTask, program: StagedProgram, given: Sequence[Held]) -> Any:
        """Return what launches a program on operands."""
        kernels = self._gpu.functions(program.code, sorted({one.kernel for one in program.launches}))
        buffers = [*given, *(self._gpu.empty(size, np.dtype(np.uint8)) for size in program.scratch)]
        launches = [
            (kernels[one.kernel], one.grid, one.block, [buffers[place] for place in one.arguments])
            for one in program.launches
        ]

        def call() -> None:
            for launch in launches:
                self._gpu.launch(*launch)

        return call

    def _part(self, size: int, elem: str, begin: int) -> Held:
        """Elements of the pool of a dtype."""
        if elem not in self._pools or self._pools[elem].size < begin + size:
            length = max(POOL_ELEMENTS, 2 * (begin + size))
            self._pools[elem] = self._gpu.upload(drawn((length,), elem, np.random.default_rng(0)))
        return self._pools[elem][begin : begin + size]


def _room(shape: tuple[int, ...]) -> int:
    """Elements from the beginning of an operand to that of the next one."""
    return -(-math.prod(shape) // OPERAND_ALIGNMENT) * OPERAND_ALIGNMENT


def _alike(operand: Held, result: Held) -> bool:
    """Whether an operand may be another program's result; shapes are TVM's business."""
    return bool(operand.dtype == result.dtype and operand.size == result.size)
