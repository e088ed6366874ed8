"""Timing on a machine that is shared and drifts.

Medians of the same kernel drift by a factor of two within minutes on such machines, so variants are
compared within rounds: every variant once a round, in shuffled order, and the ratio of two is taken
round by round. Of a variant's calls in a round the fastest count (decision 0111): others can only slow
them down. Rounds during which other processes worked, or in which a variant was stopped by
the scheduler (times off by multiples of its 4 ms slice), are marked and repeated.
"""

import contextlib
import functools
import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Final, final

import numpy as np

from tensorwise.device.host import cpu_time, foreign_load, host
from tensorwise.device.rounds import MIN_ROUNDS, Ratio, RoundTable, median_of
from tensorwise.errors import InputError, OutOfTimeError
from tensorwise.system import at_fork, open_lock, unlock, wait_for_lock
from tensorwise.toolchain import forks
from tensorwise.toolchain.deadline import is_over, left_s, waiting
from tensorwise.toolchain.places import boot_id, cache_dir, private_dir
from tensorwise.toolchain.threads import available_threads

__all__ = [
    "Ratio",
    "RoundTable",
    "Slot",
    "interleave",
    "measuring_slot",
    "preparing",
    "resolution",
    "time_calls",
]

Call = Callable[[], object]

WARM_S: Final = 0.0015
"""Untimed calls before timing last this long: by then the caches hold this variant's data."""
SETTLE_S: Final = 0.03
"""Most seconds to wait until the threads that the previous variant's library left spinning have gone to sleep: one
that spins holds a processor, and a kernel of as many threads as processors shares one with it. libgomp spins 300,000
times, 8 ms where a pause takes 65 cycles (Zen 3) and 14 ms where it takes 140; LLVM's OpenMP, which spins for 200 ms,
is not waited for."""
FOREIGN_LIMIT: Final = 0.1
"""A round is disturbed when others used more than this share of our processors."""
ROUND_S: Final = 0.1
"""Most seconds for which a variant is timed in one round: of a slow one further rounds say more than further calls."""
SLICE_S: Final = 0.004
"""The scheduler's time slice (250 Hz)."""
_WINDOW_S: Final = 0.1  # shortest interval over which the kernel's tick counts say something


def time_calls(
    call: Call,
    min_s: float = 0.005,
    min_calls: int = 3,
    max_s: float = 1.0,
    *,
    warm_s: float = WARM_S,
    flush: Call | None = None,
) -> list[float]:
    """Time repeated calls of one variant.

    A sample is the mean of a batch of calls, as many as keep the clock's overhead below 1 %.

    Args:
        min_s: calls are timed for at least so many seconds,
        min_calls: and until there are so many samples;
        max_s: but no further sample is begun after so many timed seconds. One sample is always taken.
        warm_s: seconds of untimed calls before; at least one is made. If not 0, waits until idle threads stop spinning.
        flush: called untimed before every timed call, to empty the caches; each sample is then one call.

    Returns:
        Seconds per call, one for each sample, in the order taken.
    """
    totals, batch = _time(call, min_s, min_calls, max_s, warm_s, flush)
    return [total / batch for total in totals]


def _time(
    call: Call, min_s: float, min_calls: int, max_s: float, warm_s: float, flush: Call | None
) -> tuple[list[float], int]:
    """Seconds of each batch, and calls in a batch."""
    clock = time.perf_counter_ns
    if warm_s:
        _settle()
    fastest = _warm(call, warm_s)
    batch = 1 if flush is not None else max(1, int(np.ceil(100 * _clock_s() / max(fastest, 1e-9))))
    totals: list[float] = []
    spent = 0.0
    collects = gc.isenabled()
    gc.disable()
    try:
        while not totals or (spent < max_s and (spent < min_s or len(totals) < min_calls)):
            if flush is not None:
                flush()
            start = clock()
            for _ in repeat(None, batch):
                call()
            totals.append(max(1, clock() - start) * 1e-9)
            spent += totals[-1]
    finally:
        if collects:
            gc.enable()
    return totals, batch


def _settle() -> None:
    """Sleep until no other thread of this process uses a processor, at most ``SETTLE_S``."""
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        wall_s, used_s = time.monotonic(), time.process_time()
        time.sleep(0.0005)
        if time.process_time() - used_s < 0.2 * (time.monotonic() - wall_s):
            return


def _warm(call: Call, warm_s: float) -> float:
    """Call untimed for ``warm_s``; return the seconds of the fastest call."""
    fastest, begin = float("inf"), time.perf_counter()
    while True:
        start = time.perf_counter()
        call()
        end = time.perf_counter()
        fastest = min(fastest, end - start)
        if end - begin >= warm_s:
            return fastest


@functools.cache
def _clock_s() -> float:
    """Seconds that two readings of the clock take."""
    clock = time.perf_counter_ns
    return float(np.median([-(clock() - clock()) for _ in range(200)])) * 1e-9 + 1e-8


def interleave(
    calls: Mapping[str, Call],
    rounds: int,
    budget_s: float,
    rng: np.random.Generator,
    *,
    min_s: float = 0.005,
    min_calls: int = 3,
    max_s: float = ROUND_S,
    warm_s: float = WARM_S,
    cache: str = "warm",
    foreign_limit: float = FOREIGN_LIMIT,
) -> RoundTable:
    """Time variants against each other.

    Args:
        calls: variant -> a call of it.
        rounds: undisturbed rounds wanted; up to as many again are run when rounds are disturbed.
        budget_s: wall seconds. When they are spent no further round starts, except up to three rounds
            while less than twice the budget is spent; one round is always run.
        rng: shuffles the order within each round.
        min_s, min_calls, max_s, warm_s: of one variant in one round, see ``time_calls``.
        cache: ``warm``, or ``cold``: caches are flushed before every timed call.
        foreign_limit: share of our processors' time that others may use in a round.

    Raises:
        InputError: no variant, no round, or an unknown cache condition.
    """
    if not calls or rounds < 1:
        raise InputError(f"rounds need a variant and a count of at least 1, got {len(calls)} and {rounds}")
    if cache not in ("warm", "cold"):
        raise InputError(f"cache must be warm or cold, got {cache!r}")
    names = list(calls)
    begin = time.perf_counter()
    table: list[dict[str, float]] = []
    disturbed: list[bool] = []
    window, watched = cpu_time(), 0
    with _flusher(cache) as flush:
        while not _enough(disturbed, rounds, time.perf_counter() - begin, budget_s):
            row: dict[str, float] = {}
            stopped = False
            for place in rng.permutation(len(names)):
                name = names[place]
                totals, batch = _time(calls[name], min_s, min_calls, max_s, warm_s, flush)
                usual = median_of([row[name] for row in table]) * batch if len(table) >= MIN_ROUNDS else None
                stopped |= _stopped(totals, usual)
                row[name] = min(totals) / batch
            table.append(row)
            disturbed.append(stopped)
            now = cpu_time()
            if now.at_s - window.at_s >= _WINDOW_S:
                if foreign_load(window, now) > foreign_limit:
                    disturbed[watched:] = [True] * (len(disturbed) - watched)
                window, watched = now, len(disturbed)
    if foreign_load(window, cpu_time()) > foreign_limit:
        disturbed[watched:] = [True] * (len(disturbed) - watched)
    return RoundTable(tuple(names), tuple(table), tuple(disturbed), cache, time.perf_counter() - begin)


def _enough(disturbed: Sequence[bool], rounds: int, spent_s: float, budget_s: float) -> bool:
    done = len(disturbed)
    if done == 0:
        return False
    if done - sum(disturbed) >= rounds or done >= 2 * rounds:
        return True
    return spent_s >= budget_s and (done >= MIN_ROUNDS or spent_s >= 2 * budget_s)


def _stopped(totals: Sequence[float], usual: float | None) -> bool:
    """Whether the scheduler stopped a quarter of the batches, or this variant's whole round."""
    middle = median_of(totals)
    if usual is not None and _by_slices(middle, usual):
        return True
    return 4 * sum(_by_slices(total, middle) for total in totals) >= len(totals)


def _by_slices(total: float, usual: float) -> bool:
    """Whether ``total`` is far above ``usual``, by close to a whole number of time slices."""
    slices = (total - usual) / SLICE_S
    return total > 1.5 * usual and slices > 0.9 and abs(slices - round(slices)) < 0.1


def resolution(
    call: Call, rounds: int, rng: np.random.Generator, *, budget_s: float = 2.0, cache: str = "warm"
) -> float:
    """Time the same call under two names; return the half-width of ratios that cannot be told from 1 now."""
    table = interleave({"a": call, "b": call}, rounds, budget_s, rng, cache=cache)
    return table.resolution("a", "b")


@contextlib.contextmanager
def _flusher(cache: str) -> Iterator[Call | None]:
    """Yield what empties the caches, or None when they are to stay warm.

    Memory larger than the last level is streamed through, by as many threads as kernels use, so that the
    caches of single cores are emptied too.
    """
    if cache == "warm":
        yield None
        return
    from concurrent.futures import ThreadPoolExecutor

    threads = available_threads()
    size = min(max(64 << 20, 2 * host().l3_bytes, 4 * threads * host().l2_bytes), 512 << 20)
    parts = np.array_split(np.ones(size // 8), threads)

    def stream(part: np.ndarray) -> None:
        np.add(part, 1.0, out=part)

    with ThreadPoolExecutor(threads, "tensorwise-flush") as pool:
        yield lambda: list(pool.map(stream, parts))


@final
@dataclass(frozen=True)
class Slot:
    """The right to time.

    Attributes:
        exclusive: no other Tensorwise process of this user times meanwhile.
        waited_s: seconds spent waiting for it.
        note: why it is not exclusive, in words; empty when it is.
    """

    exclusive: bool
    waited_s: float
    note: str


class _Held:
    """What this process holds: one lock, counted for nested use."""

    def __init__(self) -> None:
        self.lock = forks.lock()
        self.depth = 0
        self.slot = Slot(True, 0.0, "")


_HELD = _Held()


def _forget() -> None:
    """In a child that another thread forked, nobody is left who holds the slot."""
    if not _HELD.lock._is_owned():
        _HELD.depth = 0


at_fork(after_in_child=_forget)


@contextlib.contextmanager
def measuring_slot(timeout_s: float = 60.0) -> Iterator[Slot]:
    """Wait until no other Tensorwise process on this machine times, and keep others waiting meanwhile.

    It is a lock of the operating system on a file of the cache directory, freed when its holder ends
    in whatever way. After ``timeout_s`` the caller goes on nevertheless, and the slot says so. It may
    be taken again inside itself, and by a process forked inside; threads wait for each other.

    Raises:
        OutOfTimeError: the time that the caller may take (see `deadline`) was over before.
    """
    start = time.monotonic()
    given_s, timeout_s = timeout_s, left_s(timeout_s)
    with waiting():
        got = _HELD.lock.acquire(timeout=max(0.0, timeout_s))
    if not got:
        if timeout_s < given_s:
            raise OutOfTimeError(f"another thread of this process kept timing for {timeout_s:.3g} s")
        yield Slot(False, time.monotonic() - start, "another thread of this process kept timing")
        return
    try:
        if _HELD.depth:
            yield _HELD.slot
            return
        with _machine_lock(max(0.0, timeout_s - (time.monotonic() - start))) as note:
            if note and timeout_s < given_s and is_over():
                raise OutOfTimeError(note)
            _HELD.depth, _HELD.slot = 1, Slot(not note, time.monotonic() - start, note)
            try:
                yield _HELD.slot
            finally:
                _HELD.depth = 0
    finally:
        _HELD.lock.release()


@contextlib.contextmanager
def preparing(timeout_s: float = 60.0) -> Iterator[None]:
    """Wait until no other Tensorwise process on this machine times, and let none begin meanwhile: for work between timings.

    Any number of processes may prepare in parallel, for example compile what they time next. Threads of one process take
    turns. Nothing may be timed inside. Where another process keeps timing, the caller proceeds after ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    if not _HELD.lock.acquire(timeout=timeout_s):
        yield
        return
    try:
        if _HELD.depth:  # what is prepared between two timings of a slot is its holder's affair
            yield
            return
        with _machine_lock(max(0.0, deadline - time.monotonic()), shared=True):
            yield
    finally:
        _HELD.lock.release()


@contextlib.contextmanager
def _machine_lock(timeout_s: float, shared: bool = False) -> Iterator[str]:
    """Hold the machine's lock, alone or with others; yield why it is not held, or nothing.

    Who waits for it stands first in a line: some that prepare in turns would keep one that wants to time out for ever.
    """
    deadline = time.monotonic() + timeout_s
    with contextlib.ExitStack() as line:
        line.enter_context(_file_lock("line", timeout_s))
        with _file_lock("measuring", max(0.0, deadline - time.monotonic()), shared) as note:
            line.close()
            yield note


@contextlib.contextmanager
def _file_lock(what: str, timeout_s: float, shared: bool = False) -> Iterator[str]:
    """Hold a lock of this machine; yield why it is not held, or nothing."""
    name = f"{what}-{(boot_id() or host().id)[:16]}.lock"  # machines, also equal ones, may share a home directory
    descriptor = -1
    owner = os.getpid()
    with contextlib.suppress(OSError):
        descriptor = open_lock(private_dir(cache_dir()) / name)
    if descriptor < 0:
        with contextlib.suppress(OSError):
            user = os.getuid() if hasattr(os, "getuid") else "user"
            descriptor = open_lock(Path(tempfile.gettempdir()) / f"tensorwise-{user}-{name}")
    if descriptor < 0:
        yield "no lock file can be made in the cache directory or the temporary directory"
        return
    try:
        with forks.opened(descriptor):
            note = ""
            try:
                with waiting():
                    if not wait_for_lock(descriptor, timeout_s, shared):
                        note = f"another Tensorwise process kept timing for {timeout_s:.3g} s"
            except OSError as error:
                note = f"the lock file cannot be locked: {error}"
            yield note
    finally:
        # a forked child shares the lock: closing its copy leaves the parent's in place
        if os.getpid() == owner:
            unlock(descriptor)
        os.close(descriptor)
