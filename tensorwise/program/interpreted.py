"""Interpreted kernels: a Program run by the slow interpreter, with the interface of a compiled one."""

from collections.abc import Sequence
from typing import final

import numpy as np

from tensorwise.codegen.interpret import IMAGINARY_THREADS, interpret
from tensorwise.program.kernel import BoundKernel, Kernel
from tensorwise.program.lower import lower
from tensorwise.program.packed import PackedOperands, arranged
from tensorwise.program.program import Program
from tensorwise.program.workload import Workload


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
        self.packed = PackedOperands(program, workload, IMAGINARY_THREADS)
        self.kernel = lower(self.packed.plan(program, None))

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Compute into ``out``; raise RaceError or IndexError on an incorrect program."""
        if self._interpret(False, operands, out):
            self._interpret(True, operands, out)
        self.packed.finish(out)

    def _interpret(self, masked: bool, operands: Sequence[np.ndarray], out: np.ndarray) -> bool:
        """Run the program; return whether its result must be computed again, masked."""
        kernel = lower(self.packed.plan(self.program.masked(), True)) if masked else self.kernel
        given = dict(zip(self.workload.dense, operands, strict=True))
        buffers: dict[str, np.ndarray] = {}
        for buffer in kernel.buffers:
            array = self.packed.array(buffer.name)
            if buffer.name == "out":
                array = out.reshape(-1)
            elif array is None:
                name = buffer.name.removesuffix("_values")
                array = arranged(given[name], self.workload.column_major(name)).ravel(order="K")
            buffers[buffer.name] = array
        sizes = {size.name: self.packed.size(size.name) for size in kernel.sizes}
        return interpret(kernel, buffers, sizes, self.rng, self.packed.bounds())
