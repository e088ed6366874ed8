"""The C files of this directory as one library: the parallel driver and the packing primitives."""

import ctypes
from functools import cache
from pathlib import Path

from tensorwise.toolchain.cache import default_cache

_HERE = Path(__file__).parent


@cache
def load_runtime() -> ctypes.CDLL:
    """Return the library of all ``toolchain/*.c``, compiled once a machine and loaded once a process.

    Raises:
        CompilerError: no compiler works here.
    """
    library = ctypes.CDLL(str(default_cache().library(sorted(_HERE.glob("*.c")), sorted(_HERE.glob("*.h")))))
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    library.tw_parallel.argtypes = (pointer, pointer, integer, integer, integer, integer, pointer, integer)
    library.tw_parallel.restype = None
    library.tw_workers.argtypes, library.tw_workers.restype = (), integer
    for count in (library.tw_count_nan_f32, library.tw_count_nan_f64):
        count.argtypes, count.restype = (pointer, integer), integer
    return library


@cache
def driver_address() -> int:
    """Return the address of ``tw_parallel``, which generated kernels get as ``buffers[0]``."""
    return ctypes.cast(load_runtime().tw_parallel, ctypes.c_void_p).value or 0
