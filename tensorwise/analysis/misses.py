"""Misses: the cache misses of a program, counted by running its addresses through simulated caches.

How much of its data a loop keeps in a cache can be estimated from the sizes. But which lines map to the same set, which
are evicted before they are used again, and which a prefetcher cannot predict depends on the order of the accesses. So the
addresses of leaves are generated, without computing anything: all of them, or windows of their executions if there are
many. Within straight code (unrolled and vector loops) each element is accessed once and then held in registers. Compiled
code (``misses.c``) counts, or Python where there is no compiler: both give the same numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from pathlib import Path
from typing import Final, final

import numpy as np

from tensorwise.analysis.loop_tree import LINE_BYTES, PAGE_BYTES, Leaf, Loop, LoopTree
from tensorwise.analysis.place import Place
from tensorwise.errors import InputError
from tensorwise.toolchain.routines import POINTER, SIZE, Routines

MISSED: Final = {
    "first": ("lines", "misses of a first-level cache of 32 KiB"),
    "first.far": ("lines", "first-level misses that no prefetcher predicts"),
    "first.written": ("lines", "first-level misses of writes"),
    "first.conflict": ("lines", "first-level misses that a cache of higher associativity would avoid"),
    "first.conflict.written": ("lines", "such conflict misses of writes"),
    "second": ("lines", "misses of a second-level cache of 1 MiB"),
    "second.far": ("lines", "second-level misses that no prefetcher predicts"),
    "second.written": ("lines", "second-level misses of writes"),
    "second.conflict": ("lines", "second-level misses that a cache of higher associativity would avoid"),
    "pages": ("pages", "misses of a translation buffer (TLB) of 64 entries"),
    "pages.far": ("pages", "misses of a translation buffer (TLB) of 2048 entries"),
    "shared": ("writes", "writes to cache lines that another thread writes, too (false sharing)"),
}
"""What is counted, in the order of misses.c."""
WINDOW: Final = 60_000
"""Executions that are run at a stretch. Of the first half nothing is counted: it fills the caches."""
LINES: Final = 20 * WINDOW
"""Lines that a window touches, at most: executions that touch many are run less often."""
LONGEST: Final = 2**20
"""Bytes of an access that are run through at each execution, at most."""
PLACES: Final = (0.13, 0.47, 0.81)
"""Where windows begin in all executions of a leaf."""
SETS: Final = {"first": 64, "second": 2048, "pages": 8, "pages.far": 256}
SLOTS: Final = 10
"""Of an access, to know what a stretch of code has touched: 2**SLOTS."""
WAYS: Final = 8
FINER: Final = 8
"""Places are counted in bytes divided by two so often: a loop's mean step may be a part of a byte."""
NEAR, FAR = 2, 64
"""Lines from one miss of an access to its next that any prefetcher foresees, and within which it foresees equal steps."""
_MOST: Final = 2**62
MISSES: Final = Routines(
    "run addresses through caches",
    "tw_misses_",
    {"leaf": (SIZE, (SIZE, POINTER, SIZE, *(POINTER,) * 4, SIZE, POINTER, *(SIZE,) * 3, *(POINTER,) * 3))},
    Path(__file__).with_name("misses.c"),
)


@final
@dataclass(frozen=True)
class Walked:
    """The executions of a leaf that are run.

    Attributes:
        extents: (loops,) of the loops that repeat, outermost first.
        first: (accesses,) where the first execution touches; steps: (loops, accesses), both in parts of a byte.
        held: (accesses,) bytes that one execution touches; written: (accesses,) 0 or 1. All int64.
        starts: (windows,) the first executions of windows; window: executions of each, of which ``warm`` are not counted.
        stretch: executions in which each access touches what it touches once, see `Place.stretch`.
        grains, thread_distances: (accesses,) int64, see `Place`.
    """

    extents: np.ndarray
    first: np.ndarray
    steps: np.ndarray
    held: np.ndarray
    written: np.ndarray
    starts: np.ndarray
    window: int
    warm: int
    stretch: int
    grains: np.ndarray
    thread_distances: np.ndarray

    @classmethod
    def of(cls, loops: Sequence[Loop], leaf: Leaf) -> "Walked":
        """Return what is run of a leaf within loops: conditions hold, and loops run a whole number of times.

        Raises:
            InputError: loops run more often, or reach farther, than 64 bits can say.
        """
        kept = [k for k, loop in enumerate(loops) if loop.kind != "condition" and round(loop.extent) > 1]
        extents = [round(loops[k].extent) for k in kept]
        every = math.prod(extents)
        if every >= _MOST:
            raise InputError(
                f"no program has {every:.3g} executions of a statement, as this one seems to have"
            )
        place = Place(tuple(loops), leaf)
        bases: dict[str, int] = {}
        free = PAGE_BYTES
        steps, first = [], []
        for access in leaf.accesses:
            if access.buffer not in bases:  # no two begin at the same place of a page
                bases[access.buffer] = free
                free += (
                    int(access.size * access.item_bytes) // PAGE_BYTES + 2
                ) * PAGE_BYTES + 37 * LINE_BYTES
            first.append(bases[access.buffer] << FINER)
            steps.append(
                [round(access.item_bytes * access.strides[k] * access.moves[k] * 2**FINER) for k in kept]
            )
            if first[-1] + sum(map(mul, extents, steps[-1])) + access.count * access.item_bytes >= _MOST:
                raise InputError(f"buffer {access.buffer!r} seems to have more than 2**54 bytes")
        held = [min(max(1, round(access.count * access.item_bytes)), LONGEST) for access in leaf.accesses]
        lines = sum(1 + one // LINE_BYTES for one in held)
        window = max(2, min(WINDOW, LINES // lines))
        whole = every <= len(PLACES) * window
        return cls(
            np.array(extents, np.int64),
            np.array(first, np.int64),
            np.array(steps, np.int64).reshape(len(first), len(kept)).T.copy(),
            np.array(held, np.int64),
            np.array([access.mode != "read" for access in leaf.accesses], np.int64),
            np.array([0] if whole else [int((every - window) * place) for place in PLACES], np.int64),
            every if whole else window,
            0 if whole else window // 2,
            min(place.stretch, _MOST),
            np.array([place.grain(access) for access in leaf.accesses], np.int64),
            np.array([place.thread_distance(access) for access in leaf.accesses], np.int64),
        )

    @property
    def counted(self) -> int:
        """Executions of all windows of which it is counted what they miss."""
        return len(self.starts) * (self.window - self.warm)


def missed(tree: LoopTree) -> dict[str, float]:
    """Return how much of each of MISSED one call of a program has, by name.

    Each leaf is run on its own, by one core, in empty caches of 32 KiB and 1 MiB with lines of 64 bytes.

    Raises:
        InputError: loops run more often, or reach farther, than 64 bits can say.
    """
    found = np.zeros(len(MISSED))
    for loops, leaf in tree.leaves():
        if leaf.accesses:
            walked = Walked.of(loops, leaf)
            times = math.prod(loop.extent for loop in loops)
            found += (_compiled if MISSES.works else plain)(walked) * (times / walked.counted)
    return dict(zip(MISSED, found.tolist(), strict=True))


def _compiled(walked: Walked) -> np.ndarray:
    found = np.empty(len(MISSED), np.int64)
    MISSES(
        "leaf", len(walked.extents), walked.extents.ctypes.data, len(walked.first), walked.first.ctypes.data,
        walked.held.ctypes.data, walked.written.ctypes.data, walked.steps.ctypes.data, len(walked.starts),
        walked.starts.ctypes.data, walked.window, walked.warm, walked.stretch, walked.grains.ctypes.data,
        walked.thread_distances.ctypes.data, found.ctypes.data,
    )  # fmt: skip
    return found


def _mixed(line: int) -> int:
    return line * 0x9E3779B97F4A7C15 % 2**64


class _Cache:
    """Sets of WAYS lines, of which those used last stay; ``by_lot``: sets are chosen as if by lot."""

    def __init__(self, sets: int, by_lot: bool = False) -> None:
        self._sets: list[list[int]] = [[] for _ in range(sets)]
        self._by_lot = by_lot

    def misses(self, line: int) -> bool:
        """Whether a line is not there; it is afterwards."""
        held = self._sets[(_mixed(line) >> 32 if self._by_lot else line) % len(self._sets)]
        known = line in held
        if known:
            held.remove(line)
        held.insert(0, line)
        del held[WAYS:]
        return not known


class _Stream:
    """The lines that an access missed."""

    def __init__(self) -> None:
        self._last = self._step = 0

    def unforeseen(self, line: int) -> bool:
        """Whether the next line follows from none before."""
        step = line - self._last
        same = step == self._step
        self._last, self._step = line, step
        return not 0 < abs(step) <= NEAR and not (same and abs(step) <= FAR)


def plain(walked: Walked) -> np.ndarray:
    """Do what misses.c does: (len(MISSED),) int64."""
    found = dict.fromkeys(MISSED, 0)
    levels = "first", "second"
    caches = {name: _Cache(count) for name, count in SETS.items()}
    by_lot = {level: _Cache(SETS[level], by_lot=True) for level in levels}
    streams = {(level, a): _Stream() for level in levels for a in range(len(walked.first))}
    inside = math.prod(walked.extents.tolist()) // np.cumprod(walked.extents)
    each = PAGE_BYTES // LINE_BYTES
    slots: dict[tuple[int, int], tuple[int, int]] = {}
    each_access = [numbers.tolist() for numbers in (walked.held, walked.grains, walked.thread_distances)]
    for start in walked.starts.tolist():
        runs = np.arange(start, start + walked.window)[:, None]
        places = (walked.first + runs // inside % walked.extents @ walked.steps) >> FINER
        before = [-1] * len(walked.first)
        for run, touched in enumerate(places.tolist()):
            for a, (place, held, size, distance) in enumerate(zip(touched, *each_access, strict=True)):
                if walked.stretch > 1 and held <= size:
                    grain = place // size
                    slot, now = (a, _mixed(grain) >> (64 - SLOTS)), (grain, (start + run) // walked.stretch)
                    if slots.get(slot) == now:
                        continue
                    slots[slot] = now
                if distance and walked.written[a] and (place + distance) // LINE_BYTES == place // LINE_BYTES:
                    found["shared"] += run >= walked.warm
                for line in range(place // LINE_BYTES, (place + held - 1) // LINE_BYTES + 1):
                    if line == before[a]:
                        continue
                    before[a] = line
                    names = []
                    for level in ("pages", "pages.far"):
                        if not caches[level].misses(line // each):
                            break
                        names.append(level)
                    alone = by_lot["first"].misses(line)
                    fetched = {"first": alone, "second": alone and by_lot["second"].misses(line)}
                    for level in levels:
                        if not caches[level].misses(line):
                            break
                        names.append(level)
                        if streams[level, a].unforeseen(line):
                            names.append(f"{level}.far")
                        if walked.written[a]:
                            names.append(f"{level}.written")
                        if not fetched[level]:
                            names.append(f"{level}.conflict")
                            if walked.written[a] and level == "first":
                                names.append("first.conflict.written")
                    for name in names if run >= walked.warm else ():
                        found[name] += 1
    return np.array(list(found.values()), np.int64)
