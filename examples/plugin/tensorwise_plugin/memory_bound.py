"""A device: a machine that waits for memory alone. Seconds are the bytes that a program keeps and reads over a bandwidth."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, final

import numpy as np

from tensorwise.device.device import Candidate, Device, Measurement
from tensorwise.device.opening import DeviceOptions
from tensorwise.errors import TensorwiseError
from tensorwise.ids import content_id
from tensorwise.program.workload import Workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.kernel import Kernel
from tensorwise.space.config import Config
from tensorwise.space.cpu import CpuSpace, cpu_space_of


@final
class MemoryBound(Device[Workload]):
    """Packs the operand as a program reads it, and counts bytes; operators run on this computer's CPU.

    Args:
        bytes_per_s: bandwidth of the memory.
    """

    name = "memory-bound"
    deterministic: ClassVar[bool] = True

    def __init__(self, bytes_per_s: float = 1e10) -> None:
        self.bytes_per_s = bytes_per_s
        self.id = content_id([self.name, "1", repr(bytes_per_s)])

    def space(self, workload: Workload) -> CpuSpace:
        """Return the choices: programs of CPUs."""
        return cpu_space_of(workload)

    def kernel(self, workload: Workload, candidate: Candidate) -> Kernel:
        """Return the program as a kernel of the CPU."""
        assert isinstance(candidate, Config)
        return GeneratedKernel(self.space(workload).program(workload, candidate))

    def measure(
        self,
        workload: Workload,
        candidates: Sequence[Candidate],
        *,
        incumbent_s: float | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Measurement]:
        """Yield the seconds that the bytes of each config take; numbers are compared with the reference."""
        operands = workload.operands(np.random.default_rng(0))
        reference, out = workload.reference(operands), np.empty(workload.output_shape, workload.output_dtype)
        for candidate in candidates:
            try:
                bound = self.kernel(workload, candidate).bind(workload, 1)
                bound.run(operands, out)
            except TensorwiseError as error:
                yield Measurement.failed("refused", str(error))
                continue
            wrong = reference.mismatch(out)
            moved = bound.bytes_held + sum(operand.nbytes for operand in operands) + out.nbytes
            yield Measurement.failed("wrong", wrong) if wrong else Measurement.of([moved / self.bytes_per_s])


def open_memory_bound(options: DeviceOptions) -> MemoryBound:
    """Open the device; it has no use for options."""
    return MemoryBound()
