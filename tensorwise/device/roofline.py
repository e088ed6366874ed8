"""What this machine can do at best: bandwidth by cache level, peak arithmetic, and the time nobody can beat.

The figures come from small compiled probes, take a fraction of a second for each number of threads
and are remembered on disk under the machine's id. What was measured beside other processes may be too low: such
figures are provisional, are measured again after a day, and allow a measurement to come twice as close.

``roofline_bound_s`` is built so that no true result lies below it. Bytes: each stored value, each
element of a dense operand that some entry touches, and the output once; no index is counted, since a
format may do without. Of these bytes as many as fit are granted to the first-level caches, the rest to
the next level, and so on, as an ideal replacement policy would after many warm runs; the levels are taken to
work at the same time, so the slowest share decides, not the sum. Arithmetic: one fused multiply-add a
term. What is left are errors of the measured peaks (other processes, clock boosts, loads and stores in
parallel): hence a time is called implausible only below half the bound, or a quarter while figures are provisional.
And a neighbour whom this machine does not see may have slowed all probes: before a time is not believed, `doubted` measures
them once more.
"""

import contextlib
import ctypes
import functools
import json
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, final

import numpy as np

from tensorwise.device.host import cpu_time, foreign_load, host
from tensorwise.errors import CompilerError, OutOfTimeError, TensorwiseError
from tensorwise.ids import content_id
from tensorwise.program.workload import Workload
from tensorwise.reading import WRONG_DATA, read_json
from tensorwise.system import allowed_cpus
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.deadline import is_over, uninterrupted
from tensorwise.toolchain.places import cache_dir, distrusted, private_dir
from tensorwise.toolchain.processor import vector_bytes
from tensorwise.toolchain.threads import most_threads
from tensorwise.writing import replacing

MEMORY_LEVELS: Final = ("L1", "L2", "L3", "DRAM")
IMPLAUSIBLE_SHARE: Final = 0.5
"""A time below this share of the bound is not believed; below half of this share while figures are provisional."""
_PROVISIONAL_S: Final = 86_400.0
"""Provisional figures are measured again when they are this old."""
_PROBE_S: Final = 0.004
_REPEATS: Final = 5
_GLANCE_S: Final = 0.002
"""A look at how things are now takes so long, twice."""
_REALS: Final = {"float32": "float", "float64": "double"}
_BEST: Final = dict[int, float]()
"""Number of threads -> the best rate of float32 that this process has seen or read."""
_Probe = Callable[[object, object], int]
_ASSUMED: Final = {"L1": 32 << 10, "L2": 1 << 20, "L3": 32 << 20}

_READ: Final = """
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
#ifdef __AVX512F__
    typedef double wide __attribute__((vector_size(64), may_alias));
#else
    typedef double wide __attribute__((vector_size(32), may_alias));
#endif
    const wide *a = (const wide *)buffers[0];
    const int64_t n = sizes[0] / (int64_t)sizeof(wide);
    wide s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, s4 = {0}, s5 = {0}, s6 = {0}, s7 = {0};
    for (int64_t pass = 0; pass < sizes[1]; pass++) {
        for (int64_t i = 0; i + 8 <= n; i += 8) {
            s0 += a[i], s1 += a[i + 1], s2 += a[i + 2], s3 += a[i + 3];
            s4 += a[i + 4], s5 += a[i + 5], s6 += a[i + 6], s7 += a[i + 7];
        }
        __asm__ volatile("" ::: "memory");
    }
    *(wide *)buffers[1] = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7));
    return 0;
}
"""

_ARITHMETIC: Final = """
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    typedef REAL wide __attribute__((vector_size(BYTES), may_alias));
    const wide b = *(const wide *)buffers[0], c = *((const wide *)buffers[0] + 1);
    /* they begin apart: a compiler makes one sum of those that are always equal */
    wide s0 = c, s1 = s0 + c, s2 = s1 + c, s3 = s2 + c, s4 = s3 + c, s5 = s4 + c, s6 = s5 + c, s7 = s6 + c;
    wide s8 = s7 + c, s9 = s8 + c, s10 = s9 + c, s11 = s10 + c;
    for (int64_t pass = 0; pass < sizes[1]; pass++) {
#if FUSED
        s0 = s0 * b + c, s1 = s1 * b + c, s2 = s2 * b + c, s3 = s3 * b + c;
        s4 = s4 * b + c, s5 = s5 * b + c, s6 = s6 * b + c, s7 = s7 * b + c;
        s8 = s8 * b + c, s9 = s9 * b + c, s10 = s10 * b + c, s11 = s11 * b + c;
#else
        s0 = s0 * b, s1 = s1 + b, s2 = s2 * b, s3 = s3 + b, s4 = s4 * b, s5 = s5 + b;
        s6 = s6 * b, s7 = s7 + b, s8 = s8 * b, s9 = s9 + b, s10 = s10 * b, s11 = s11 + b;
#endif
    }
    wide *out = (wide *)buffers[1];
    *out = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)) + ((s8 + s9) + (s10 + s11));
    return (1 + FUSED) * 12 * (int)(sizeof(wide) / sizeof(REAL));
}
"""
_VECTORS: Final = {"16": False, "32": True, "64": True}
"""Bytes of a vector, and whether x86's instructions for it have fused multiply-adds."""


@final
@dataclass(frozen=True)
class Roofline:
    """Best rates seen on this machine with ``threads`` threads.

    Attributes:
        bandwidth: level (L1, L2, L3, DRAM) -> bytes read per second, all threads together.
        flops: dtype name -> floating-point operations per second; a multiply-add counts as two.
        vectors: bytes of a vector -> float32 operations per second with vectors that wide, those this machine has: with
            fused multiply-adds where it has 32 or more, else with multiplications and additions.
        provisional: other processes ran beside the probes, so that true peaks may be higher.
    """

    threads: int
    bandwidth: Mapping[str, float]
    flops: Mapping[str, float]
    vectors: Mapping[str, float]
    provisional: bool = False


def roofline(threads: int) -> Roofline:
    """Return this machine's best rates, from disk or measured now.

    ``threads`` is limited to the number of available CPUs: more threads would only wait for each other.

    Raises:
        CompilerError: no C compiler works here.
    """
    return replace(_roofline_at(_running(threads), cache_dir()), threads=threads)


def _running(threads: int) -> int:
    """Return ``threads``, at most the number of available CPUs."""
    return min(threads, most_threads())


@functools.lru_cache
def _roofline_at(threads: int, directory: Path) -> Roofline:
    path = _path(threads, directory)
    known = _read_figures(path, threads)
    if known is not None and not (known.provisional and _age_s(path) > _PROVISIONAL_S):
        return known
    before = cpu_time()
    found = uninterrupted(functools.partial(_measure, threads))
    if foreign_load(before) >= 0.1:
        # Beside other processes many threads are cut short, one is not: better too high than too low.
        others = [] if known is None else [(1, known)]
        if threads > 1:
            others.append((threads, _roofline_at(1, directory)))
        found = _raised(found, others)
    _write_figures(path, found)
    return found


def _path(threads: int, directory: Path) -> Path:
    facts = [host().id, default_cache().compiler.id, _READ, _ARITHMETIC, str(threads)]
    return directory / f"roofline-{content_id(facts)}.json"


def doubted(threads: int) -> None:
    """Measure this machine's rates once more, since something was faster than they allow, and keep the higher ones.

    They are provisional then. A process does so once.

    Raises:
        CompilerError: no C compiler works here.
    """
    _doubted_at(_running(threads), cache_dir())


@functools.cache
def _doubted_at(threads: int, directory: Path) -> None:
    known = _roofline_at(threads, directory)
    found = uninterrupted(functools.partial(_measure, threads))
    _write_figures(_path(threads, directory), _raised(found, [(1, known)]))
    _roofline_at.cache_clear()


def _raised(found: Roofline, others: Sequence[tuple[int, Roofline]]) -> Roofline:
    """``found`` as provisional figures, raised to ``factor`` times those of each other."""
    bandwidth, flops, vectors = dict(found.bandwidth), dict(found.flops), dict(found.vectors)
    for factor, other in others:
        for rates, more in ((bandwidth, other.bandwidth), (flops, other.flops), (vectors, other.vectors)):
            rates |= {name: max(rate, factor * more[name]) for name, rate in rates.items()}
    return Roofline(found.threads, bandwidth, flops, vectors, provisional=True)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return math.inf


def _read_figures(path: Path, threads: int) -> Roofline | None:
    """Read remembered figures; whatever is not exactly that is a miss."""
    try:
        if distrusted(path, path.parent):
            return None
        stored = read_json(path, "holds no figures of a machine")
        found = Roofline(
            threads,
            {level: float(stored["bandwidth"][level]) for level in MEMORY_LEVELS},
            {name: float(stored["flops"][name]) for name in _REALS},
            {size: float(stored["vectors"][size]) for size in _widths()},
            bool(stored["provisional"]),
        )
    except (OSError, TensorwiseError, *WRONG_DATA):
        return None
    rates = [*found.bandwidth.values(), *found.flops.values(), *found.vectors.values()]
    return found if all(math.isfinite(rate) and rate > 0 for rate in rates) else None


def _write_figures(path: Path, found: Roofline) -> None:
    """Remember figures; a place that cannot be written to costs another measurement, nothing more."""
    facts = {"bandwidth": dict(found.bandwidth), "flops": dict(found.flops), "vectors": dict(found.vectors)}
    text = json.dumps({**facts, "provisional": found.provisional})
    with contextlib.suppress(OSError), replacing(private_dir(path.parent) / path.name) as file:
        file.write(text.encode())


def _measure(threads: int) -> Roofline:
    """Measure, in a thread that Ctrl-C cannot unwind: others run in its buffers. Raises OutOfTimeError when time is up."""
    flops_of = {name: (name, _widths()[-1], True) for name in _REALS}
    vectors_of = {size: ("float32", size, _VECTORS[size]) for size in _widths()}
    # what is compiled together takes one start of the compiler
    texts = (_text(*kind) for kind in (*flops_of.values(), *vectors_of.values()))
    read, *_ = default_cache().get([_READ, *dict.fromkeys(texts)])
    bandwidth = {}
    least = 0.0
    for level, size in reversed(_working_sets(threads).items()):
        buffers = [_aligned(size) for _ in range(threads)]
        # a level is at least as fast as the one behind it: a disturbed probe shows here
        least = max(least, _rate(read.function, buffers) * size)
        bandwidth[level] = least
    flops = {name: _arithmetic(*kind, threads).best() for name, kind in flops_of.items()}
    vectors = {size: _arithmetic(*kind, threads).best() for size, kind in vectors_of.items()}
    return Roofline(threads, bandwidth, flops, vectors)


def _widths() -> list[str]:
    """Those of _VECTORS that this machine has, ascending."""
    return [size for size in _VECTORS if size == "16" or int(size) <= vector_bytes()]


@final
@dataclass(frozen=True, eq=False)
class _Arithmetic:
    """A probe of arithmetic: one buffer of constants a thread, and operations of a pass."""

    function: _Probe
    constants: Sequence[np.ndarray]
    operations: int

    def best(self) -> float:
        """Operations per second, all threads together."""
        return _rate(self.function, self.constants) * self.operations

    def now(self, least_s: float, flops: float) -> float:
        """The same in a run or two of about ``least_s`` seconds at a rate of ``flops``."""
        passes = max(1, int(flops / (len(self.constants) * self.operations) * least_s))
        took = _fastest_s(self.function, self.constants, passes, 2)
        return len(self.constants) * passes * self.operations / took


def _text(name: str, size: str, fused: bool) -> str:
    """C of the probe of a dtype with vectors of ``size`` bytes."""
    text = _ARITHMETIC.replace("REAL", _REALS[name]).replace("BYTES", size)
    return text.replace("FUSED", str(int(fused)))


@functools.cache
def _arithmetic(name: str, size: str, fused: bool, threads: int) -> _Arithmetic:
    """The probe of a dtype with vectors of ``size`` bytes."""
    (found,) = default_cache().get([_text(name, size, fused)])
    constants = [_aligned(256) for _ in range(threads)]
    for constant in constants:
        constant.view(name)[: int(size) // np.dtype(name).itemsize] = 0.5
    return _Arithmetic(found.function, constants, found.function(*_arguments(constants[0], _aligned(64), 1)))


def share_of_peak(threads: int) -> float:
    """Return the share of its best rate that arithmetic of ``threads`` threads reaches now, in a few milliseconds.

    On a virtual machine it is a half while somebody whom this machine does not see computes on the other hyperthread of its
    cores: no counter of the kernel tells of that.

    Raises:
        CompilerError: no C compiler works here.
    """
    threads = _running(threads)
    best = _BEST.get(threads, roofline(threads).flops["float32"])
    probe = _arithmetic("float32", _widths()[-1], True, threads)
    flops = uninterrupted(functools.partial(probe.now, _GLANCE_S, best))
    _BEST[threads] = max(flops, best)
    return flops / _BEST[threads]


def _working_sets(threads: int) -> dict[str, int]:
    """Bytes that each thread reads to meet each level: half its share, and far more than all for memory."""
    size = _capacities(1)
    shared = max(2 * size["L2"], size["L3"] // (2 * threads))
    memory = min(max(64 << 20, 3 * size["L3"]), 512 << 20) // threads
    return {"L1": size["L1"] // 2, "L2": size["L2"] // 2, "L3": shared, "DRAM": max(memory, 2 * shared)}


def _capacities(threads: int) -> dict[str, int]:
    """Bytes of all caches of a level that ``threads`` threads own; the last level is shared."""
    known = {"L1": host().l1d_bytes, "L2": host().l2_bytes, "L3": host().l3_bytes}
    size = {level: known[level] or assumed for level, assumed in _ASSUMED.items()}
    return {"L1": size["L1"] * threads, "L2": size["L2"] * threads, "L3": size["L3"]}


def level_holding(size: int, threads: int) -> str:
    """Return the nearest of ``MEMORY_LEVELS`` that holds ``size`` bytes for ``threads`` threads."""
    return next(
        (level for level, capacity in _capacities(threads).items() if size <= capacity), MEMORY_LEVELS[-1]
    )


def _aligned(size: int) -> np.ndarray:
    raw = np.zeros(size + 64, np.uint8)
    offset = -raw.ctypes.data % 64
    raw[:] = 0  # touched, so that pages exist
    return raw[offset : offset + size]


def _arguments(buffer: np.ndarray, sink: np.ndarray, passes: int) -> tuple[object, object]:
    pointers = (ctypes.c_void_p * 2)(buffer.ctypes.data, sink.ctypes.data)
    return pointers, (ctypes.c_int64 * 2)(buffer.nbytes, passes)


def _rate(function: _Probe, buffers: Sequence[np.ndarray]) -> float:
    """Best number of passes per second, added over one thread for each buffer."""
    passes = 1
    # the best of three: a single run may have lost its processor
    while (took := _fastest_s(function, buffers, passes, 3)) < _PROBE_S / 4 and passes < 1 << 40:
        passes *= 4
    passes = max(1, int(passes * _PROBE_S / took))
    return len(buffers) * passes / _fastest_s(function, buffers, passes, _REPEATS)


def _fastest_s(function: _Probe, buffers: Sequence[np.ndarray], passes: int, repeats: int) -> float:
    """Seconds from the first thread's begin to the last one's end, the least of some runs.

    Raises:
        OutOfTimeError: no time is left for another run.
    """
    sinks = [_aligned(64) for _ in buffers]
    arguments = [_arguments(b, s, passes) for b, s in zip(buffers, sinks, strict=True)]
    every = sorted(allowed_cpus())
    # Linux wakes one thread next to another, and both share a processor
    pinned = len(every) == len(buffers) > 1

    def run() -> float:
        if is_over():
            raise OutOfTimeError("no time is left to measure what this machine can do at best")
        spans = [(0.0, 0.0)] * len(buffers)
        start = threading.Barrier(len(buffers))

        def one(place: int) -> None:
            if pinned:
                os.sched_setaffinity(0, {every[place]})
            with contextlib.suppress(threading.BrokenBarrierError):
                start.wait()
            begin = time.perf_counter()
            function(*arguments[place])
            spans[place] = (begin, time.perf_counter())

        workers = [threading.Thread(target=one, args=(place,)) for place in range(len(buffers))]
        try:
            for worker in workers:
                worker.start()
        except RuntimeError as error:
            # the system grants no more threads: those that wait for the others must not
            start.abort()
            raise OutOfTimeError(f"{len(buffers)} threads cannot be started: {error}") from error
        finally:
            for worker in workers:
                if worker.ident is not None:
                    worker.join()
        return max(end for _, end in spans) - min(begin for begin, _ in spans)

    return min(run() for _ in range(repeats))


def roofline_bound_s(workload: Workload, threads: int) -> float:
    """Return the seconds that no run of ``workload`` on ``threads`` threads can beat (see the module).

    It is 0, which bounds nothing, if no compiler works, or if a deadline leaves no time to measure the peaks.
    """
    try:
        peak = roofline(threads)
    except (CompilerError, OutOfTimeError):
        return 0.0
    bound = 2 * workload.terms / peak.flops[workload.dtype.name]
    left = _least_bytes(workload)
    for level, capacity in {**_capacities(threads), "DRAM": left}.items():
        part = min(left, capacity)
        bound = max(bound, part / peak.bandwidth[level])
        left -= part
    return bound


def plausible_s(workload: Workload, threads: int) -> float:
    """Return the seconds below which a measurement is not believed; 0 where no compiler works."""
    bound_s = roofline_bound_s(workload, threads)
    if not bound_s:
        return 0.0
    return IMPLAUSIBLE_SHARE * (0.5 if roofline(threads).provisional else 1.0) * bound_s


_LEAST_BYTES: weakref.WeakKeyDictionary[Workload, int] = weakref.WeakKeyDictionary()


def _least_bytes(workload: Workload) -> int:
    """Bytes that any implementation moves: stored values, touched parts of dense operands, the output."""
    known = _LEAST_BYTES.get(workload)
    if known is not None:
        return known
    least = workload.output_dtype.itemsize * math.prod(workload.output_shape)
    least += sum(workload.sparse[name].values.nbytes for name in workload.valued)
    touched: dict[str, int] = {}
    for name, entries in workload.sparse.items():
        for index, coordinate in zip(
            workload.assignment.access(name).indices, entries.coordinates, strict=True
        ):
            seen = np.zeros(workload.sizes[index], bool)
            seen[coordinate] = True
            # entries of several sparse operands are joined: fewer may be touched than either has
            touched[index] = 0 if len(workload.sparse) > 1 else int(np.count_nonzero(seen))
    for name in workload.dense:
        extents = dict(zip(workload.assignment.access(name).indices, workload.shape(name), strict=True))
        stored = [touched[index] for index in extents if index in touched]
        free = math.prod(extent for index, extent in extents.items() if index not in touched)
        # that many combinations at least, when several indices are stored ones
        item = workload.dtype_of(name).itemsize
        least += item * free * (max(stored) if stored else int(workload.entries.nnz > 0))
    _LEAST_BYTES[workload] = least
    return least
