"""Library routines as Kernels: baselines of every measurement and candidates of every tuning.

A routine is one leaf file in ``device/libraries/`` and one row of ``LIBRARY``.
"""

from typing import Final

from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.device.libraries.mkl import MklKernel
from tensorwise.device.libraries.scipy import ScipyKernel
from tensorwise.device.libraries.torch import TorchKernel
from tensorwise.program.kernel import Kernel
from tensorwise.program.workload import Workload

LIBRARY: Final[dict[str, type[LibraryKernel]]] = {
    "scipy": ScipyKernel,
    "mkl": MklKernel,
    "torch": TorchKernel,
}
"""Kernel name -> class, in the order in which reports list them."""


def available(workload: Workload) -> list[Kernel]:
    """Return the library kernels that are installed and able to run ``workload``.

    Only their presence is checked here: torch is imported, and MKL loaded, by the first ``bind``.
    """
    kernels = [cls() for cls in LIBRARY.values() if cls.installed()]
    return [kernel for kernel in kernels if kernel.why_not(workload) is None]
