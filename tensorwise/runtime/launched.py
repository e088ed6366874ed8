"""Launched kernels: a Program on a GPU, its operands packed there, ready to be called."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, final

import numpy as np

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir
from tensorwise.lower.arrays import check_bounds
from tensorwise.lower.cuda import Launch, print_cuda
from tensorwise.lower.lower import lower
from tensorwise.lower.program import PlanKey, Program
from tensorwise.program.workload import Workload
from tensorwise.runtime.kernel import BoundKernel, Kernel
from tensorwise.runtime.packed import PackedOperands, arranged, packed_parts
from tensorwise.toolchain.cubin import Resources
from tensorwise.toolchain.gpu import NARROW, SYMBOL, Gpu, Held, Launcher, source


@final
@dataclass(frozen=True)
class Launched:
    """A kernel that is ready but for the operands of a call.

    Attributes:
        function: the kernel.
        grid, block: numbers of blocks, and of threads of a block, along x and y.
        buffers: arrays, or names of those that differ from call to call.
        sizes: further arguments of the kernel, NumPy integers.
    """

    function: Any
    grid: tuple[int, int]
    block: tuple[int, int]
    buffers: Sequence[Any]
    sizes: Sequence[Any]

    def on(self, held: Mapping[str, Held], gpu: Gpu) -> Callable[[], None]:
        """Return a call on the dense operands and the output of a call, by name."""
        arrays = (held[one] if isinstance(one, str) else one for one in self.buffers)
        return partial(gpu.launch, self.function, self.grid, self.block, (*arrays, *self.sizes))


@final
class LaunchedKernel(Kernel):
    """A program as a Kernel on a GPU."""

    name = "tensorwise"

    def __init__(self, program: Program, gpu: Gpu) -> None:
        self.program, self.gpu = program, gpu

    def bind(self, workload: Workload, threads: int = 1) -> "BoundLaunched":
        """Pack the sparse operands, bring them to the GPU and compile the kernels; ``threads`` means nothing here.

        Raises:
            FormatError: the format would store far more than the entries.
            ScheduleError: the schedule does not fit, or no loop of it is dealt to blocks.
            CompilerError: the text was refused.
        """
        return BoundLaunched(self.program, workload, self.gpu)

    def texts(self, workload: Workload) -> list[str]:
        """Return the CUDA C++ of each part for 32-bit indices: what can be compiled before anything is packed.

        Raises ScheduleError as ``bind`` does.
        """
        _check_dealt(self.program)
        renumbered = frozenset(workload.sparse) if self.program.remainder else workload.renumbered
        plans = [
            part.plan(workload.elem, sizes=workload.sizes, halves=workload.halves, renumbered=renumbered)
            for part in self.program.parts
        ]
        return [source(cuda_text(PlanKey(plan))[0], "int") for plan in plans]

    def resources(self, workload: Workload) -> Resources | None:
        """Compile ``texts``; return what a thread takes, None where the machine code does not tell.

        Raises ScheduleError as ``bind`` does, CompilerError where a text is refused.
        """
        return _most(self.gpu, self.texts(workload))


def _most(gpu: Gpu, texts: Sequence[str]) -> Resources | None:
    """What the text takes that takes the most."""
    return max((found for found in map(gpu.resources, texts) if found is not None), default=None)


@lru_cache(maxsize=4096)
def cuda_text(key: PlanKey) -> tuple[str, tuple[Launch, ...], tuple[ir.Buffer, ...], tuple[str, ...]]:
    """Return CUDA C++ text, launches, buffers and names of sizes of a plan.

    Raises UnprovenError for a program that is not certain to stay inside its arrays.
    """
    kernel = lower(key.plan)
    check_bounds(key.plan, kernel)
    return *print_cuda(kernel), kernel.buffers, tuple(size.name for size in kernel.sizes)


@final
class BoundLaunched(BoundKernel):
    """A program with its operands in the memory of a GPU; a hybrid is a group of launches for each part.

    Attributes:
        sources: the CUDA C++ text of each part.
        output_shape: of the result.
        dense: the dense operands, and whether they are read by columns.
        unreached: places of elements of the result that no entry gives a value, where that is not 0; they become 0.
    """

    def __init__(self, program: Program, workload: Workload, gpu: Gpu) -> None:
        _check_dealt(program)
        self.program, self.workload, self.gpu = program, workload, gpu
        # Found out once: a call takes less time than asking the workload again.
        self.output_shape, self._elements = workload.output_shape, math.prod(workload.output_shape)
        self._dtype = workload.output_dtype
        self.dense = [(name, workload.column_major(name)) for name in workload.dense]
        parts, self.conversion_s = packed_parts(program, workload, gpu.multiprocessors)
        self._first = parts[0]
        self._held: dict[str, Held] = {}  # what ``ready`` brought there, and the result
        self.sources: list[str] = []
        self._launches = [launch for packed in parts for launch in self._prepared(packed)]
        self.source = "\n".join(self.sources)
        self.bytes_held = sum(packed.bytes_held for packed in parts)
        unreached = self._first.unreached
        self.unreached: Held | None = None
        if unreached is not None:
            empty = np.zeros(workload.output_shape, bool)
            empty[unreached] = True
            self.unreached = gpu.upload(np.flatnonzero(empty))

    def _prepared(self, packed: PackedOperands) -> list[Launched]:
        """Compile one part, upload what it reads, and return its launches."""
        text, launches, buffers, size_names = cuda_text(PlanKey(packed.plan(packed.program, None)))
        sizes = {name: packed.size(name) for name in size_names}
        arrays: dict[str, np.ndarray] = {}
        for buffer in buffers:
            array = packed.array(buffer.name, buffer.elem) if buffer.name != "out" else None
            if array is not None:
                arrays[buffer.name] = array
        uploaded = {name: self.gpu.upload(array) for name, array in arrays.items()}
        dense = [_size(self.workload, name) for name in self.workload.dense]
        longest = max(
            *sizes.values(), *(len(array) for array in arrays.values()), math.prod(self.workload.output_shape), *dense
        )  # fmt: skip
        narrow = longest < NARROW
        whole = source(text, "int" if narrow else "long long")
        self.sources.append(whole)
        names = [launch.name.replace("TW_SYMBOL", SYMBOL) for launch in launches]
        functions = self.gpu.load(whole, names)
        integer = np.int32 if narrow else np.int64
        return [
            Launched(
                functions[name],
                grid,
                (launch.threads, launch.teams),
                [uploaded.get(b, b.removesuffix("_values")) for b in launch.buffers],
                [integer(sizes[s]) for s in launch.sizes],
            )
            for name, launch in zip(names, launches, strict=True)
            if all(grid := launch.grid(sizes, arrays))
        ]

    @property
    def resources(self) -> Resources | None:
        """What a thread takes, of the part that takes the most; None where the machine code does not tell."""
        return _most(self.gpu, self.sources)

    def ready(self, operands: Sequence[np.ndarray], out: np.ndarray) -> Callable[[], object]:
        """Return a call that computes from ``operands``, which are brought to the GPU once, into the GPU's memory.

        What it leaves there is fetched by ``fetch``. The call returns before the GPU is done.
        """
        return self.ready_on(brought(self.workload, self.gpu, operands))

    def ready_on(self, operands: Mapping[str, Held]) -> Callable[[], object]:
        """Do the same with operands that are in the GPU's memory, by name; see ``brought``."""
        self._held = {"out": self._output(), **operands}
        return self._call(self._held)

    def compute(self, *operands: Held) -> Held:
        """Compute from operands that are in the GPU's memory, and return the result there, an array of its own.

        Operands that do not lie by rows (those that the workload reads by columns: by columns) are copied. The call returns
        before the GPU is done.

        Args:
            operands: arrays of the dense operands' shapes and dtypes.
        """
        held = {"out": self._output()}
        for (name, by_columns), operand in zip(self.dense, operands, strict=True):
            held[name] = (operand.T if by_columns else operand).reshape(-1)
        self._call(held)()
        return held["out"].reshape(self.output_shape)

    @cached_property
    def at(self) -> Launcher:
        """What computes from addresses in the GPU's memory, by name, into that of ``out``, on a stream.

        Operands lie as for `compute`. It takes a few microseconds, a call on arrays some hundred.
        Elements of ``unreached`` are left to the caller. Raises MeasurementError where the GPU takes no addresses.
        """
        launchers = [
            self.gpu.launcher(one.function, one.grid, one.block, (*one.buffers, *one.sizes))
            for one in self._launches
        ]
        size = self._elements * self._dtype.itemsize if self._first.program.accumulate else 0

        def at(addresses: Mapping[str, int], stream: int) -> None:
            if size:
                self.gpu.clear(addresses["out"], size, stream)
            for launch in launchers:
                launch(addresses, stream)

        return at

    def _output(self) -> Held:
        return self.gpu.empty(self._elements, self._dtype)

    def fetch(self, out: np.ndarray) -> None:
        """Wait for the last call and copy its result into ``out``."""
        self.gpu.download(self._held["out"], out.reshape(-1))

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Compute into ``out``; operands and result are copied. See :class:`BoundKernel`."""
        self.ready(operands, out)()
        self.fetch(out)

    def _call(self, held: Mapping[str, Held]) -> Callable[[], None]:
        """Return what fills ``out`` from the operands that are held."""
        calls = [launched.on(held, self.gpu) for launched in self._launches]
        if self._first.program.accumulate:
            calls.insert(0, partial(self.gpu.fill, held["out"]))
        if self.unreached is not None:  # no entry gives these a value, and 0 is not the reduction's identity
            calls.append(partial(self.gpu.fill, held["out"], self.unreached))

        def call() -> None:
            for one in calls:
                one()

        return call


def brought(workload: Workload, gpu: Gpu, operands: Sequence[np.ndarray]) -> dict[str, Held]:
    """Bring the dense operands to the GPU, each as the workload reads it; several programs may share them.

    Raises InputError where an operand has another shape or dtype.
    """
    workload.check_operands(operands)
    found = dict[str, Held]()
    for name, operand in zip(workload.dense, operands, strict=True):
        given = arranged(operand, workload.column_major(name)).ravel(order="K")
        found[name] = gpu.upload(given)
    return found


def _check_dealt(program: Program) -> None:
    if any(part.schedule.grid_bind is None for part in program.parts):
        raise ScheduleError(
            f"{program.schedule_text}: no loop is dealt to the blocks of a GPU, as in bind(i,block,8)"
        )


def _size(workload: Workload, name: str) -> int:
    """Number of elements of a dense operand."""
    return math.prod(workload.shape(name))
