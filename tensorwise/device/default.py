"""The kernel of a CPU that is used without tuning."""

from tensorwise.device.library import LIBRARY
from tensorwise.errors import TensorwiseError
from tensorwise.program.workload import Workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.kernel import Kernel
from tensorwise.space.cpu import cpu_space_of
from tensorwise.toolchain.compiler import find_compiler


def default_kernel(work: Workload) -> Kernel:
    """Return the kernel that is used without tuning: the space's default program, or SciPy without a compiler."""
    try:
        find_compiler()
    except TensorwiseError:
        return LIBRARY["scipy"]()
    space = cpu_space_of(work)
    return GeneratedKernel(space.program(work, space.default(work)))
