"""Locks that are free in a forked child.

A child has only the thread that forked. A lock that another thread held at that moment would never be released in the
child. So every lock of this package that a call may wait for is made by `lock`, and is free in a child.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, Final
from weakref import WeakSet

from tensorwise.system import at_fork

_LOCKS: Final[WeakSet[Any]] = WeakSet()
_FILES: Final[dict[int, int]] = {}

LOADING: Final = threading.RLock()
"""Held while a library is loaded or a process is started, so that no fork begins then: nobody frees the loader's own lock in
a child, and a child that has a copy of the pipe by which ``Popen`` learns that a program runs would let it wait."""


def lock() -> Any:
    """Return a new ``threading.RLock`` that a forked child has free, unless the thread that forks holds it.

    It is reentrant, since a signal's handler may call what it has interrupted.
    """
    made = threading.RLock()
    _LOCKS.add(made)
    return made


@contextmanager
def opened(descriptor: int) -> Iterator[None]:
    """Within the block, close ``descriptor`` in every child that another thread forks.

    ``flock`` locks a file until the last copy of its descriptor is closed: a child would keep the lock after this process.
    """
    _FILES[descriptor] = threading.get_ident()
    try:
        yield
    finally:
        _FILES.pop(descriptor, None)


def _free_all() -> None:
    for descriptor, owner in list(_FILES.items()):
        if owner != threading.get_ident():
            del _FILES[descriptor]
            with suppress(OSError):
                os.close(descriptor)
    for one in _LOCKS:
        if not one._is_owned():
            one._at_fork_reinit()
    if sys.version_info < (3, 12):  # there a cached property has a lock, one for all objects of the class
        for name, module in list(sys.modules.items()):
            if name.startswith("tensorwise."):
                _free_properties(vars(module))


def _free_properties(names: dict[str, Any]) -> None:
    for found in list(names.values()):
        if isinstance(found, type) and found.__module__.startswith("tensorwise."):
            for one in vars(found).values():
                if isinstance(one, cached_property) and not one.lock._is_owned():  # type: ignore[attr-defined]
                    one.lock._at_fork_reinit()  # type: ignore[attr-defined]


def _loading_in_child() -> None:
    LOADING._at_fork_reinit()  # type: ignore[attr-defined]


at_fork(before=LOADING.acquire, after_in_parent=LOADING.release, after_in_child=_loading_in_child)
at_fork(after_in_child=_free_all)
