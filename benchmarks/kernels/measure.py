"""One comparison: search the best generated kernel of a workload, then time it against everything else.

The search runs in the measuring worker of ``CpuDevice``: portfolio, random and bred configs, of which the fastest
few and the default run against each other in rounds that choose the best. The comparison is made in this
process, in fresh rounds, with all baselines at once. Every kernel is verified before and after.
"""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.baselines import BASELINES
from benchmarks.corpus import entries_of
from tensorwise.device.cpu import CpuDevice
from tensorwise.device.roofline import level_holding, roofline
from tensorwise.device.rounds import MIN_ROUNDS, RoundTable
from tensorwise.device.timing import interleave, measuring_slot
from tensorwise.device.verify import Checker, poison
from tensorwise.errors import InputError, TensorwiseError
from tensorwise.lower.program import Program
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.kernel import BoundKernel, Kernel
from tensorwise.search import STRATEGIES
from tensorwise.space.config import Config
from tensorwise.space.cpu import CpuSpace, cpu_space
from tensorwise.space.portfolio import portfolio
from tensorwise.tuning.searching import BATCH
from tensorwise.tuning.tune import FINALISTS

OURS = ("best", "default")
SLOW = 5.0
"""Kernels slower than the fastest by this factor run in a few rounds of their own, beside ours."""
LONGEST_S = 0.1
"""After so many timed seconds a kernel is not called again in a round."""


@dataclass(frozen=True)
class Settings:
    """What the figures depend on.

    Attributes:
        trials, budget_s: the search ends after so many candidates, or seconds; the portfolio is tried in any case.
        seed: of operands, search and the order within rounds.
        rounds, rounds_s: undisturbed rounds of the comparison, and seconds after which no further one starts
            (three are run in any case).
    """

    trials: int = 64
    budget_s: float = 5.0
    seed: int = 0
    rounds: int = 15
    rounds_s: float = 2.5


@dataclass(frozen=True)
class Found:
    """What a search found: the best and the default program, candidates tried and timed, seconds."""

    best: Program
    default: Program
    tried: int
    timed: int
    seconds: float


@dataclass(frozen=True)
class Explored:
    """What a search tried: seconds of the configs that ran right, how many were tried, seconds it took."""

    times: Mapping[Config, float]
    tried: int
    seconds: float

    def fastest(self, count: int) -> list[Config]:
        """Return the fastest ``count`` configs."""
        return sorted(self.times, key=lambda config: self.times[config])[:count]


def measure(path: Path, op: str, n: int | None, device: CpuDevice, settings: Settings) -> dict[str, Any]:
    """Search and compare on the device's number of threads; return figures for a result file.

    ``speedup`` holds time of the baseline over time of our best kernel: median of in-round ratios, and the
    bounds of its 95 % interval; ``default`` the medians for our untuned kernel.
    """
    work = workload(op, entries_of(path), n=n)
    found = search(work, device, settings)
    told: dict[str, Any] = {
        "shape": list(work.entries.shape),
        "nonzeros": work.entries.nnz,
        "program": {"format": found.best.format_text, "schedule": found.best.schedule_text},
        "search": {"tried": found.tried, "timed": found.timed, "seconds": round(found.seconds, 2)},
        "roof": _roof(work, device.threads),
    }
    return told | compare(work, found, device.threads, settings)


def measure_here(path: Path, op: str, n: int | None, threads: int, settings: Settings) -> dict[str, Any]:
    """Measure with a device that this process keeps for its next runs."""
    return measure(path, op, n, _device(threads, settings.seed), settings)


def explore(space: CpuSpace, work: Workload, device: CpuDevice, settings: Settings) -> Explored:
    """Try configs of ``space``: its portfolio, then random and bred ones."""
    start = time.perf_counter()
    known = portfolio(space, work)
    strategy = STRATEGIES["genetic"](space, work, np.random.default_rng(settings.seed), seeds=known)
    times: dict[Config, float] = {}
    tried = 0
    while tried < settings.trials:
        left = settings.budget_s - (time.perf_counter() - start)
        if left <= 0 and tried >= len(known):
            break
        configs = strategy.ask(min(BATCH, settings.trials - tried))
        if not configs:
            break
        programs = [space.program(work, config) for config in configs]
        limit_s = None if tried < len(known) else left
        measured = list(
            device.measure(work, programs, incumbent_s=min(times.values(), default=None), limit_s=limit_s)
        )
        tried += len(measured)
        strategy.tell(configs[: len(measured)], [m.cost for m in measured])
        times |= {config: m.seconds for config, m in zip(configs, measured, strict=False) if m.ok}
    return Explored(times, tried, time.perf_counter() - start)


def explore_seeds(
    work: Workload, device: CpuDevice, trials: int, budget_s: float, seeds: Sequence[int]
) -> Explored:
    """Try configs of the CPU's space once for each seed, ``trials`` or ``budget_s`` seconds each."""
    space = cpu_space(work.assignment, "A")
    some = [explore(space, work, device, Settings(trials, budget_s, seed)) for seed in seeds]
    times: dict[Config, float] = {}
    for one in some:
        times |= {config: min(took, times.get(config, took)) for config, took in one.times.items()}
    return Explored(times, sum(one.tried for one in some), sum(one.seconds for one in some))


def search(work: Workload, device: CpuDevice, settings: Settings) -> Found:
    """Find the fastest generated program for ``work``."""
    start = time.perf_counter()
    space = cpu_space(work.assignment, "A")
    default = space.default(work)
    explored = explore(space, work, device, settings)
    finalists = [*explored.fastest(FINALISTS), default]
    entered = {
        str(place): space.program(work, config) for place, config in enumerate(dict.fromkeys(finalists))
    }
    rounds = device.rounds(
        work, entered, budget_s=max(0.5, 0.1 * settings.budget_s), max_rounds=settings.rounds
    )
    untuned = space.program(work, default)
    chosen = untuned
    if rounds.table is not None and rounds.table.best() not in rounds.failed:
        chosen = entered[rounds.table.best()]
    return Found(chosen, untuned, explored.tried, len(explored.times), time.perf_counter() - start)


def fastest(
    work: Workload, device: CpuDevice, configs: Sequence[Config], rounds: int, budget_s: float
) -> Config:
    """Let the programs of some configs run against each other, and return the fastest.

    Raises:
        InputError: none could be timed.
    """
    space = cpu_space(work.assignment, "A")
    programs = {str(place): space.program(work, config) for place, config in enumerate(configs)}
    found = device.rounds(work, programs, budget_s=budget_s, max_rounds=rounds)
    if found.table is None or found.table.best() in found.failed:
        raise InputError(f"no candidate could be timed: {dict(found.failed)}")
    return configs[int(found.table.best())]


def compare(work: Workload, found: Found, threads: int, settings: Settings) -> dict[str, Any]:
    """Time our best and default kernel and all baselines in the same rounds."""
    kernels: dict[str, Kernel] = {
        "best": GeneratedKernel(found.best),
        "default": GeneratedKernel(found.default),
        **{name: cls() for name, cls in BASELINES.items() if cls.installed() and cls().why_not(work) is None},
    }
    with measuring_slot() as slot:
        contest = Contest(work, threads, settings.seed)
        for name, kernel in kernels.items():
            contest.enter(name, kernel)
        told = _compared(contest, settings)
    told["note"] = "; ".join(filter(None, (slot.note, told["note"])))
    return told


class Contest:
    """Bound kernels of one workload that are timed against each other, and what they took.

    Attributes:
        bound: the kernels that run and are right, by name.
        took: seconds of one call of each.
        failed: why the others are not among them.
    """

    def __init__(self, work: Workload, threads: int, seed: int) -> None:
        self.work, self.threads, self.rng = work, threads, np.random.default_rng(seed)
        self.operands = work.operands(self.rng)
        self.out = np.empty(work.output_shape, work.output_dtype)
        self.checker = Checker(work, self.operands, self.rng)
        self.bound: dict[str, BoundKernel] = {}
        self.took: dict[str, float] = {}
        self.failed: dict[str, str] = {}

    def enter(self, name: str, kernel: Kernel) -> None:
        """Bind and verify a kernel; one that cannot run or is wrong is noted as failed."""
        try:
            bound = kernel.bind(self.work, self.threads)
            wrong = self._wrong(bound)
        except (TensorwiseError, MemoryError, RuntimeError, ValueError, TypeError) as error:
            # whatever a library raises costs this kernel only
            self.failed[name] = f"{type(error).__name__}: {error}"[:200]
            return
        if wrong:
            self.failed[name] = f"wrong: {wrong}"[:200]
            return
        start = time.perf_counter()
        bound.run(self.operands, self.out)
        self.bound[name], self.took[name] = bound, time.perf_counter() - start

    def _wrong(self, bound: BoundKernel) -> str | None:
        poison(self.out)
        bound.run(self.operands, self.out)
        return self.checker.check(self.out)

    def time(self, names: Sequence[str], rounds: int, budget_s: float) -> RoundTable:
        """Time the named kernels in interleaved rounds; seconds that are too few for three rounds are raised."""
        calls = {name: self.bound[name].ready(self.operands, self.out) for name in names}
        enough_s = 2 * MIN_ROUNDS * sum(self.took[name] for name in names)
        return interleave(calls, rounds, max(budget_s, enough_s), self.rng, max_s=LONGEST_S)

    def tables(self, ours: Sequence[str], rounds: int, budget_s: float) -> list[RoundTable]:
        """Time all, but those that are far slower than the fastest in a few rounds of their own, beside ``ours``."""
        limit = SLOW * min(self.took.values(), default=0.0)
        slow = [name for name in self.bound if name not in ours and self.took[name] > limit]
        found = [self.time([name for name in self.bound if name not in slow], rounds, budget_s)]
        mine = [name for name in ours if name in self.bound]
        if slow and mine:
            found.append(self.time([*mine, *slow], MIN_ROUNDS, budget_s / 2))
        return found

    def check(self) -> None:
        """Verify all again, after timing; what is wrong now has failed."""
        for name, bound in self.bound.items():
            if wrong := self._wrong(bound):
                self.failed[name] = f"wrong after timing: {wrong}"[:200]

    def close(self) -> None:
        """Release what the kernels hold."""
        for bound in self.bound.values():
            bound.close()


def _compared(contest: Contest, settings: Settings) -> dict[str, Any]:
    """Run the rounds, verify again and return the figures."""
    bound = contest.bound
    tables = contest.tables(OURS, settings.rounds, settings.rounds_s)
    contest.check()
    told: dict[str, Any] = {"seconds": {}, "speedup": {}, "default": {}, "failed": contest.failed}
    for table in tables:
        right = [name for name in table.names if name not in contest.failed]
        told["seconds"] |= {name: short(table.median(name)) for name in right if name not in told["seconds"]}
        for name in right:
            if name not in OURS and "best" in right:
                ratio = table.ratio(name, "best")
                told["speedup"][name] = [short(r) for r in (ratio.median, ratio.low, ratio.high)]
            if name not in OURS and "default" in right:
                told["default"][name] = short(table.ratio(name, "default").median)
    if "best" in bound:
        best = bound["best"]
        told |= {"conversion_s": short(best.conversion_s), "bytes_held": best.bytes_held}
    told["rounds"] = len(tables[0].rounds)
    told["note"] = "; ".join(dict.fromkeys(table.note for table in tables[:1] if table.note))
    contest.close()
    return told


def _roof(work: Workload, threads: int) -> Mapping[str, Any]:
    """Return the level of memory that holds the data, the measured rates there, and the work.

    A multiply-add a term is counted, and the bytes of each operand and of the output once.
    """
    level = level_holding(work.compulsory_bytes, threads)
    peak = roofline(threads)
    return {
        "level": level,
        "bytes_per_s": short(peak.bandwidth[level]),
        "flop_per_s": short(peak.flops[work.dtype.name]),
        "flop": 2 * int(work.terms),
        "bytes": int(work.compulsory_bytes),
    }


def short(number: float) -> float:
    """Return ``number`` with four significant digits."""
    return float(f"{number:.4g}")


@functools.cache
def _device(threads: int, seed: int) -> CpuDevice:
    return CpuDevice(threads, seed=seed)
