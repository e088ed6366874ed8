"""Library routines as Kernels: baselines of every measurement and candidates of every tuning.

A routine is one leaf file in ``device/libraries/`` and one row of ``LIBRARY``, or an entry point of another package.
"""

from typing import Final

from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.program.workload import Workload
from tensorwise.registry import Registry, needs_subclass
from tensorwise.runtime.kernel import Kernel

LIBRARY: Final[Registry[type[LibraryKernel]]] = Registry(
    "library kernel",
    "library_kernels",
    {
        "scipy": "tensorwise.device.libraries.scipy:ScipyKernel",
        "mkl": "tensorwise.device.libraries.mkl:MklKernel",
        "torch": "tensorwise.device.libraries.torch:TorchKernel",
    },
    needs_subclass(LibraryKernel),
    crosses=True,
)
"""Kernel name -> class, in the order in which reports list them."""


def available(workload: Workload) -> list[Kernel]:
    """Return the library kernels that are installed and able to run ``workload``.

    Only their presence is checked here: torch is imported, and MKL loaded, by the first ``bind``.
    """
    kernels = [cls() for cls in LIBRARY.sound(crossing=True).values() if cls.installed()]
    return [kernel for kernel in kernels if kernel.why_not(workload) is None]
