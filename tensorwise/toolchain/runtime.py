"""The parallel driver, ``runtime.c``: the threads that compiled kernels of this process share."""

from pathlib import Path
from typing import Final

from tensorwise.toolchain.routines import POINTER, SIZE, Routines
from tensorwise.toolchain.threads import unbound

DRIVER: Final = Routines(
    "run loops in parallel",
    "tw_",
    {"parallel": (None, (POINTER, POINTER, *(SIZE,) * 4, POINTER, SIZE)), "workers": (SIZE, ())},
    Path(__file__).with_name("runtime.c"),
)
"""``parallel`` runs a loop, ``workers`` counts the threads that wait for one."""


def driver_address() -> int:
    """Return the address of ``tw_parallel``, which generated kernels get as ``buffers[0]``.

    Raises:
        CompilerError: no compiler works here.
    """
    with unbound():  # as it is loaded it looks where our threads may run
        return DRIVER.address("parallel")
