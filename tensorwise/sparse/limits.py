"""What a user allows: threads, background work, and whether results must be equal to the last bit from call to call."""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from tensorwise.errors import InputError
from tensorwise.sparse.library import Library, library, loaded_libraries
from tensorwise.toolchain.forks import lock
from tensorwise.toolchain.threads import available_threads

AUTOTUNE_MODES: Final = ("off", "background", "full")
"""Values of ``TENSORWISE_AUTOTUNE``: nothing is tried, the default, and a search that ignores other load."""
_NO_LIMIT: Final = 1 << 62
_LOCK: Final = lock()
_SOLVERS: Final = ("scipy.sparse.linalg.", "scipy.integrate.", "scipy.optimize.")
"""Beginnings of the names of modules whose functions call a matrix many times and expect one matrix."""

threads_limit: int = _NO_LIMIT
_reproducible: int = 0


def autotune() -> str:
    """Return the mode of ``TENSORWISE_AUTOTUNE``; raises InputError where it is none of `AUTOTUNE_MODES`."""
    given = os.environ.get("TENSORWISE_AUTOTUNE", "").strip() or AUTOTUNE_MODES[1]
    if given not in AUTOTUNE_MODES:
        raise InputError(f"TENSORWISE_AUTOTUNE is {given!r}; expected one of {', '.join(AUTOTUNE_MODES)}")
    return given


def is_reproducible() -> bool:
    """Whether equal inputs must give equal results to the last bit."""
    return _reproducible > 0 or os.environ.get("TENSORWISE_REPRODUCIBLE", "").strip() in ("1", "true", "on")


@contextmanager
def reproducible() -> Iterator[None]:
    """Have products inside give bitwise equal results for equal inputs, whatever the call, number of threads or process.

    Only kernels are used whose order of additions depends on nothing but the matrix: products that scatter (``A.T @ x`` of a
    CSR array, ``A @ x`` of a CSC array) run on one thread, and packed forms are not used. The library of kernels is compiled
    first where it is missing, since SciPy adds in another order. It holds for all threads of this process;
    ``TENSORWISE_REPRODUCIBLE=1`` does the same for a whole process.
    """
    global _reproducible
    with _LOCK:
        _reproducible += 1
    try:
        apply_limits()
        yield
    finally:
        with _LOCK:
            _reproducible -= 1
        apply_limits()


def allowed_threads() -> int:
    """Return how many threads a product may use now."""
    return min(available_threads(), threads_limit)


def limit_threads(most: int | None) -> AbstractContextManager[None]:
    """Let products use at most ``most`` threads from now on; None: as many as the process may use.

    It holds for the process until the next call, or to the end of a ``with`` statement. Operators of `tensorwise.tune` have
    a number of threads of their own.

    >>> with limit_threads(1):
    ...     pass  # products here run on one thread
    """
    global threads_limit
    before = threads_limit
    threads_limit = _NO_LIMIT if most is None else max(1, int(most))
    apply_limits()
    return _restoring(before)


@contextmanager
def _restoring(before: int) -> Iterator[None]:
    """Restore a limit of threads in the end."""
    try:
        yield
    finally:
        limit_threads(before)


def apply_limits() -> None:
    """Tell the library what is wanted now, once it is there."""
    same_bits = is_reproducible()
    library(wait=same_bits)
    for found in loaded_libraries():
        tell_limits(found, same_bits)


def tell_limits(found: Library, same_bits: bool) -> None:
    """Apply the limits to a library. All libraries of a process share one set of limits.

    Args:
        found: the library.
        same_bits: what `is_reproducible` returned.
    """
    found.limit(threads_limit, int(same_bits))


def solver_call() -> Any:
    """Return the frame of the outermost function of a SciPy solver above this call, None without one.

    A solver expects one matrix, to the last bit. Calls of solvers are distinguished by the identity of the frame, which the
    caller must hold as long as it compares it.
    """
    frame: Any = sys._getframe(1)
    found = None
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_SOLVERS):
            found = frame
        frame = frame.f_back
    return found
