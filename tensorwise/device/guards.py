"""Arrays that end where memory does: code that reads or writes past one is killed, instead of meeting a neighbour.

::

    | no access | ...array | no access |
                          ^ a page boundary
"""

import ctypes
import mmap
from collections.abc import Sequence
from typing import Final

import numpy as np

from tensorwise.tensor.memory import available_bytes

MOST_SHARE: Final = 1 / 8
"""Copies may take this share of the memory that is free; larger operands are used as they are."""
_NO_ACCESS: Final = 0


def guarded(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return copies that lie between pages without access, each up to the end of a page, in the layout of the originals.

    Elements are aligned to their size, as generated code expects; vectors need not be. The arrays themselves are returned
    where copies would take too much memory, or the system has no such pages.
    """
    if sum(array.nbytes + 3 * mmap.PAGESIZE for array in arrays) > MOST_SHARE * available_bytes():
        return list(arrays)
    try:
        return [_between_guards(array) for array in arrays]
    except (OSError, ValueError, AttributeError):
        return list(arrays)


def _between_guards(array: np.ndarray) -> np.ndarray:
    page = mmap.PAGESIZE
    inside = -(-max(array.nbytes, 1) // page) * page
    memory = mmap.mmap(-1, inside + 2 * page)
    whole = np.frombuffer(memory, np.uint8)
    for place in (0, page + inside):
        _forbid(whole.ctypes.data + place, page)
    by_columns = array.flags.f_contiguous and not array.flags.c_contiguous
    end = page + inside
    copy = (
        whole[end - array.nbytes : end]
        .view(array.dtype)
        .reshape(array.shape, order="F" if by_columns else "C")
    )
    copy[...] = array
    return copy


def _forbid(address: int, size: int) -> None:
    """Take all access from some pages; raise OSError where that is not possible."""
    if ctypes.CDLL(None, use_errno=True).mprotect(
        ctypes.c_void_p(address), ctypes.c_size_t(size), _NO_ACCESS
    ):
        raise OSError(ctypes.get_errno(), "mprotect")
