"""Interpreted kernels: a Program run by the slow interpreter, with the interface of a compiled one."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import final

import numpy as np

from tensorwise.lower import ir
from tensorwise.lower.interpret import IMAGINARY_THREADS, interpret
from tensorwise.lower.lower import lower
from tensorwise.lower.program import Program
from tensorwise.program.workload import Workload
from tensorwise.runtime.kernel import BoundKernel, Kernel
from tensorwise.runtime.packed import Kernels, PackedOperands, arranged, compute, packed_parts


@final
class InterpretedKernel(Kernel):
    """A program as a Kernel that needs no compiler; it shuffles parallel loops and reports races."""

    name = "interpreter"

    def __init__(self, program: Program, rng: np.random.Generator) -> None:
        self.program, self.rng = program, rng

    def bind(self, workload: Workload, threads: int = 1) -> "BoundInterpreted":
        """Pack the operands and lower the program; raises as :class:`GeneratedKernel` does."""
        return BoundInterpreted(self.program, workload, self.rng)


@final
class BoundInterpreted(BoundKernel):
    """An interpreted program with packed operands."""

    def __init__(self, program: Program, workload: Workload, rng: np.random.Generator) -> None:
        self.program, self.workload, self.rng = program, workload, rng
        self.parts, self.conversion_s = packed_parts(program, workload, IMAGINARY_THREADS)
        self._plain = [lower(packed.plan(packed.program, None)) for packed in self.parts]

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Compute into ``out``; raise RaceError or IndexError on an incorrect program."""
        held = [*operands, out]
        compute(self.parts, self._on(self._plain, held), self._masked_on, held)

    def _masked_on(self, held: Sequence[np.ndarray]) -> Kernels:
        return self._on([lower(packed.plan(packed.program.masked(), True)) for packed in self.parts], held)

    def _on(self, kernels: Sequence[ir.LoweredFunction], held: Sequence[np.ndarray]) -> Kernels:
        pairs = zip(kernels, self.parts, strict=True)
        return [partial(self._interpret, kernel, packed, held) for kernel, packed in pairs]

    def _interpret(
        self, kernel: ir.LoweredFunction, packed: PackedOperands, held: Sequence[np.ndarray]
    ) -> bool:
        """Run one part; return whether it raised its flag."""
        return interpret(kernel, *_operands(kernel, packed, held), self.rng, packed.bounds())

    def kernels(self) -> Iterator[tuple[ir.LoweredFunction, dict[str, np.ndarray], dict[str, int]]]:
        """Yield the loops of each part with its buffers and sizes; dense operands and the result are not initialised."""
        work = self.workload
        held = [np.empty(work.shape(name), work.dtype_of(name)) for name in work.dense]
        held.append(np.empty(work.output_shape, work.output_dtype))
        for kernel, packed in zip(self._plain, self.parts, strict=True):
            yield kernel, *_operands(kernel, packed, held)


def _operands(
    kernel: ir.LoweredFunction, packed: PackedOperands, held: Sequence[np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """What a part's kernel is handed: one-dimensional buffers and sizes, by name."""
    *operands, out = held
    given = dict(zip(packed.workload.dense, operands, strict=True))
    buffers: dict[str, np.ndarray] = {}
    for buffer in kernel.buffers:
        array = packed.array(buffer.name, buffer.elem)
        if buffer.name == "out":
            array = out.reshape(-1)
        elif array is None:
            name = buffer.name.removesuffix("_values")
            array = arranged(given[name], packed.workload.column_major(name)).ravel(order="K")
        buffers[buffer.name] = array
    return buffers, {size.name: packed.size(size.name) for size in kernel.sizes}
