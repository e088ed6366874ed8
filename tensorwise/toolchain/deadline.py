"""The deadline of the current work, and how long it has waited for other processes.

A budget of wall time applies to everything that is done for it: compilers, locks, other processes. They ask here how much
time is left, so that it need not be passed as an argument. A deadline belongs to a thread; `carried` passes it to others.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Final, TypeVar, final

R = TypeVar("R")


@final
@dataclass(eq=False)
class _Limit:
    """The end of some work, on the clock of ``time.monotonic``; ``outer`` is that of the work it is a part of, ``whole_s``
    are the seconds that were given by whichever ends first."""

    until_s: float
    outer: "_Limit | None"
    whole_s: float

    def left_s(self) -> float:
        mine = self.until_s - time.monotonic()
        return mine if self.outer is None else min(mine, self.outer.left_s())


@final
@dataclass(eq=False)
class Waited:
    """Seconds that the thread which made it has waited for others."""

    seconds: float = 0.0
    thread: int = field(default_factory=threading.get_ident)


STARTING_S: Final = 0.2
"""A thread that has not begun by then was interrupted before it was started."""
_LIMIT: Final[ContextVar[_Limit | None]] = ContextVar("tensorwise_limit", default=None)
_WAITED: Final[ContextVar[Waited | None]] = ContextVar("tensorwise_waited", default=None)


@contextlib.contextmanager
def within(seconds: float, *, afresh: bool = False) -> Iterator[None]:
    """Limit the work inside to ``seconds`` from now, or to what is left of an outer limit (not if ``afresh``).

    If an exception leaves the block, as by Ctrl-C, the time of threads that still run is over.
    """
    outer = None if afresh else _LIMIT.get()
    whole_s = seconds if outer is None or seconds < outer.left_s() else outer.whole_s
    limit = _Limit(time.monotonic() + seconds, outer, whole_s)
    token = _LIMIT.set(limit)
    try:
        yield
    except BaseException:
        limit.until_s = -math.inf
        raise
    finally:
        _LIMIT.reset(token)


def left_s(most_s: float = math.inf) -> float:
    """Return the seconds that are left here, at least 0 and at most ``most_s``."""
    limit = _LIMIT.get()
    return most_s if limit is None else max(0.0, min(most_s, limit.left_s()))


def whole_s() -> float:
    """Return the seconds that were given by the limit that ends first here; infinite where there is none."""
    limit = _LIMIT.get()
    return math.inf if limit is None else limit.whole_s


def is_over() -> bool:
    """Whether no time is left."""
    return left_s() <= 0


def carried(work: Callable[..., R]) -> Callable[..., R]:
    """Return ``work`` for another thread, with what is left here."""
    context = copy_context()
    return lambda *given: context.copy().run(work, *given)


@contextlib.contextmanager
def counting_waits() -> Iterator[Waited]:
    """Count what this thread waits for others inside."""
    waited = Waited()
    token = _WAITED.set(waited)
    try:
        yield waited
    finally:
        _WAITED.reset(token)


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """What is done inside is waiting for others."""
    begin = time.monotonic()
    try:
        yield
    finally:
        waited = _WAITED.get()
        if waited is not None and waited.thread == threading.get_ident():
            waited.seconds += time.monotonic() - begin


def uninterrupted(work: Callable[[], R]) -> R:
    """Return what ``work`` returns, from a thread of its own, which Ctrl-C cannot unwind: it reaches the main thread alone.

    For work that others go on with for a moment when it is left: processes that it has started, buffers that threads use.
    When the caller is interrupted, time is up for the work, which must look at `left_s`, and its end is waited for.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    found: list[R] = []
    failed: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    thread: threading.Thread | None = None
    try:
        with within(math.inf):
            thread = threading.Thread(target=carried(run), name="tensorwise-uninterrupted")
            thread.start()
            thread.join()
    except BaseException:
        if thread is not None and not ended.wait(STARTING_S) and thread.ident is not None:
            ended.wait()
        raise
    if failed:
        raise failed[0]
    return found[0]
