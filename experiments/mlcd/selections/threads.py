"""Where libraries' threads run while they are timed.

Virtual machines often wake a thread on its waker's own processor (decision 0108): a library's second thread waits for the
first one then, up to the scheduler's slice of 4 ms. Ours keep off by themselves; others have to be kept off.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path


def place_others() -> dict[int, set[int]]:
    """Keep all threads but the main one, those that are there now, on the other processors; where they could run before.

    Nothing happens where the system tells of no threads, or there is one processor.
    """
    threads = Path("/proc/self/task")
    before: dict[int, set[int]] = {}
    if not threads.is_dir():  # not Linux
        return before
    _, *processors = sorted(os.sched_getaffinity(0))
    others = sorted({int(one.name) for one in threads.iterdir()} - {os.getpid()})
    for thread, processor in zip(others, cycle(processors), strict=False):
        with suppress(OSError):  # it may have ended
            before[thread] = set(os.sched_getaffinity(thread))
            os.sched_setaffinity(thread, {processor})
    return before


@contextmanager
def placed() -> Iterator[None]:
    """Do the same for a while, with the main thread on the first processor."""
    before = place_others()
    if before:
        before[os.getpid()] = set(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    try:
        yield
    finally:
        for thread, processors in before.items():
            with suppress(OSError):
                os.sched_setaffinity(thread, processors)
