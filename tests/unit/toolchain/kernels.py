"""Kernel texts that several tests use."""

import ctypes
from collections.abc import Sequence

import numpy as np

from tensorwise.toolchain.cache import LoadedKernel

BROKEN = "int TW_SYMBOL(void *const *buffers, const int64_t *sizes) { return no_such_name; }"


def returning(number: int) -> str:
    """Return a kernel that returns ``number``."""
    return f"int TW_SYMBOL(void *const *buffers, const int64_t *sizes) {{ return {number}; }}"


def call(kernel: LoadedKernel, buffers: Sequence[np.ndarray | int | None], sizes: Sequence[int] = ()) -> int:
    """Call ``kernel`` with arrays or addresses as buffers."""
    addresses = [b.ctypes.data if isinstance(b, np.ndarray) else b for b in buffers]
    pointers = (ctypes.c_void_p * len(addresses))(*addresses)
    numbers = (ctypes.c_int64 * len(sizes))(*sizes)
    return kernel.function(ctypes.addressof(pointers), ctypes.addressof(numbers))
