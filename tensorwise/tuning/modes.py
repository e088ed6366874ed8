"""MTTKRP in every mode of one tensor, tuned together: how many stored tensors serve all modes is part of the answer.

Each mode is searched alone first. The fastest formats, and some that suit all modes, are then tried for every mode, and
the fastest kernels are timed in interleaved rounds. An arrangement gives each mode a kernel and a stored tensor; those
that no other one beats in both time and memory are kept. The best of them within the memory limit are bound, and timed
sweeps over all modes decide.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final

from tensorwise.device.cpu import CpuDevice
from tensorwise.errors import InputError, MeasurementError
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.generated import BoundProgram, GeneratedKernel
from tensorwise.space.config import Config
from tensorwise.space.cpu import CpuSpace, cpu_space
from tensorwise.store.store import Store
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.memory import available_bytes
from tensorwise.toolchain.deadline import within
from tensorwise.tuning.arrangement import (
    Arrangement,
    Stored,
    Way,
    arrangements,
    choose,
    finalists,
    fits,
    promising,
    too_little,
    why,
)
from tensorwise.tuning.limits import Guidance, Listener, Observe, Progress, TuningLimits
from tensorwise.tuning.operator import Operator, default_kernel
from tensorwise.tuning.searching import INTERRUPTED, SEARCH_SHARE, Search
from tensorwise.tuning.sharing import common, keeping, starts
from tensorwise.tuning.sweep import Sweep, SweepResult, bind_all, bytes_held, time_sweeps
from tensorwise.tuning.tune import RUNS

MODE_S: Final = 30.0
"""Seconds for each mode where no budget is given."""
OWN_SHARE: Final = 0.38
"""Share of the budget for searching each mode by itself ..."""
SHARED_SHARE: Final = 0.33
"""... for trying its kernels on tensors that other modes read ..."""
CHOOSING_SHARE: Final = 0.11
"""... for the rounds that choose kernels ..."""
CONFIRMING_SHARE: Final = 0.1
"""... and for those that time the chosen ones again; the rest is for sweeps."""
SHARED_TRIALS: Final = 32
"""Candidates that are tried for a mode with one stored tensor: what is left to choose is soon known."""


def tune_modes(
    A: Any,
    *,
    n: int | None = None,
    memory_bytes: int | None = None,
    budget_s: float | None = None,
    trials: int | None = None,
    expected_calls: float | None = None,
    threads: int | None = None,
    strategy: str = "genetic",
    dtype: Any = None,
    store: Store | bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    observe: Observe | None = None,
) -> Sweep:
    """Find the fastest way to run MTTKRP in every mode of ``A``, as a CP decomposition calls them in turn.

    One stored tensor can serve all modes, or each mode has its own, which is the fastest and takes the most memory,
    or some share one. The answer is the fastest that fits; of those that are as fast within 2 % the smallest.

    Args:
        A: NumPy array, path of a .tns or .npz file, ``(shape, coordinates, values)`` or ``Entries``, of order 3 to 5.
        n: rank: columns of the factors (default 16).
        memory_bytes: most bytes that the stored tensors, each counted once, and workspaces may take (default: no
            limit). Entries, factors and results come besides.
        budget_s: wall seconds for all of it (default 30 a mode, unlimited when ``trials`` is given).
        trials: most candidates to try for a mode by itself, and as many again with each tensor that modes may share.
        expected_calls: how often every mode will be called; then conversion counts, of each stored tensor once.
        threads: threads of a call (default: what this process may use).
        strategy: a name of ``tensorwise.search.STRATEGIES``.
        dtype: float32, float64, float16 or bfloat16, for tensor and factors; default A's own.
        store: where measurements are remembered: a Store, True for the default one, False for nowhere.
        seed: of operands and search.
        progress: called with what is going on and the share of the budget spent.
        observe: called with each candidate that was tried.

    Returns:
        The sweep: ``sweep[mode](*factors)`` with the factors of the other modes, (extent, n) each, gives
        (extent of ``mode``, n). ``sweep.result`` holds times, bytes and the alternatives, ``sweep.report()``
        shows them. After Ctrl-C it is the best found so far.

    Raises:
        InputError: the tensor or an argument is not usable, the factors do not fit into memory, or no way was found
            to store the tensor within ``memory_bytes``.
    """
    start = time.perf_counter()
    TuningLimits.of(budget_s, trials, expected_calls, MODE_S, start)  # before the tensor is read
    guidance = Guidance(strategy, None, store, seed)
    if memory_bytes is not None and (
        isinstance(memory_bytes, bool) or not isinstance(memory_bytes, int) or memory_bytes < 1
    ):
        raise InputError(f"memory_bytes must be a positive number of bytes, or None, got {memory_bytes!r}")
    entries = entries_from(A, dtype)
    works = [workload("mttkrp", entries, n=n, mode=mode) for mode in range(max(1, entries.order))]
    if memory_bytes is not None and entries.values.nbytes > memory_bytes:
        raise InputError(
            f"memory_bytes={memory_bytes} is less than the {entries.values.nbytes} bytes that the values alone take; "
            "give more, or no limit"
        )
    works[0].check_memory(*works[0].dense, works[0].assignment.output.tensor)
    limits = TuningLimits.of(budget_s, trials, expected_calls, MODE_S * entries.order, start)
    with within(limits.left_s), CpuDevice(threads, seed=seed) as device:
        return _Modes(works, device, limits, guidance, Listener(progress, observe), memory_bytes).tune()


class _Modes:
    """The state of one tuning of all modes."""

    def __init__(
        self,
        works: Sequence[Workload],
        device: CpuDevice,
        limits: TuningLimits,
        guidance: Guidance,
        listener: Listener,
        memory_bytes: int | None,
    ) -> None:
        self.works, self.device, self.limits, self.guidance = works, device, limits, guidance
        self.listener, self.memory_bytes = listener, memory_bytes
        self.stored: dict[str, Stored] = {}
        self.ways: list[dict[str, Way]] = [{} for _ in works]
        """For each mode the ways that are known to work, by name."""
        self.winners: dict[str, Config] = {}
        """The format with which each mode was fastest by itself -> a config that stores it."""
        self.formats: dict[str, Config] = {}
        """The formats that all modes are tried with -> a config that stores the tensor so."""
        self.notes: dict[str, None] = {}
        self.candidates = 0
        self.stopped = False
        """Nothing more can be measured, or shall be."""

    def tune(self) -> Sweep:
        """Search, choose, confirm and bind."""
        try:
            self._search_all()
        except KeyboardInterrupt:
            self._stop(INTERRUPTED)
        return self._answer(*self._decide())

    def _search_all(self) -> None:
        """Search each mode by itself, then on tensors that modes may share; let the best of each mode meet."""
        count = len(self.works)
        for mode in range(count):
            self._search(mode, self._until(OWN_SHARE * (mode + 1) / count))
        self.formats = self._formats()
        share = (SHARED_SHARE + CHOOSING_SHARE) / count
        for mode in range(count):
            until = OWN_SHARE + share * mode
            self._search_shared(mode, self._until(until + SHARED_SHARE / count))
            self._choosing_rounds(mode, self._until(until + share))

    def _until(self, share: float) -> float:
        """The time at which a share of the budget is spent."""
        return self.limits.start + share * self.limits.budget_s

    # -- searching ----------------------------------------------------------------------------------------

    def _search(
        self, mode: int, until: float, space: CpuSpace | None = None, first: Sequence[Config] = ()
    ) -> None:
        """Search one mode, within ``space`` where its storage is decided, and remember what worked."""
        if self.stopped:
            return
        now, trials = time.perf_counter(), self.limits.trials
        most = trials if space is None or trials is not None else SHARED_TRIALS
        left_s = max(1e-3, until - now) / SEARCH_SHARE  # all of it is for searching
        search = Search(
            self.works[mode],
            self.device,
            TuningLimits(left_s, most, self.limits.calls, now),
            self.guidance,
            Listener(self._progress_of(mode), self.listener.observe),
            space,
        )
        self.guidance = replace(self.guidance, store=False if search.store is None else search.store)
        search.run(libraries=space is None, starts=first)
        self.stopped = search.interrupted or search.worker_lost
        self.notes |= dict.fromkeys(search.notes)
        self.candidates += len(search.trials)
        for name, measurement in search.libraries.items():
            if measurement.ok:
                held = Stored(f"{name}, mode {mode}", measurement.bytes_held, measurement.conversion_s)
                self.ways[mode][name] = Way(name, held, measurement.seconds, measurement.spread_s)
        ranked = sorted((t for t in search.trials if t.measurement.ok), key=lambda t: t.measurement.seconds)
        for trial in ranked:
            found, format = trial.measurement, trial.program.format_text
            workspace = GeneratedKernel(trial.program).workspace_bytes(self.works[mode], self.device.threads)
            known = self.stored.setdefault(
                format, Stored(format, found.bytes_held - workspace, found.conversion_s)
            )
            way = Way(trial.program, known, found.seconds, found.spread_s, 0, workspace)
            self.ways[mode].setdefault(way.name, way)
        small = (
            t for t in ranked if self.memory_bytes is None or t.measurement.bytes_held <= self.memory_bytes
        )
        winner = next(small, None) if space is None else None
        if winner is not None:
            self.winners.setdefault(winner.program.format_text, winner.config)

    def _progress_of(self, mode: int) -> Progress | None:
        """Return a callback that reports a mode's progress as a share of the whole tuning; None without a listener."""
        tell = self.listener.progress
        if tell is None:
            return None

        def progress(what: str, _: float) -> None:
            tell(f"mode {mode}: {what}", min(1.0, self.limits.spent_s / self.limits.budget_s))

        return progress

    def _formats(self) -> dict[str, Config]:
        """Those that some mode was fastest with, and some that suit all; the first is sure to be tried."""
        space, work = cpu_space(self.works[0].assignment), self.works[0]
        first, *others = ((space.program(work, config).format_text, config) for config in common(space, work))
        return dict([first, *self.winners.items(), *others])

    def _search_shared(self, mode: int, until: float) -> None:
        """Try a mode with the storage that others may share."""
        work = self.works[mode]
        left = len(self.formats)
        for place, config in enumerate(self.formats.values()):
            now = time.perf_counter()
            if self.stopped or (place and now >= until):
                return
            share = (until - now) / left if math.isfinite(until) else math.inf
            left -= 1
            try:
                space = keeping(cpu_space(work.assignment), config)
                first = starts(space, work)
            except InputError:  # this storage leaves the mode no choice that its rules allow
                continue
            self._search(mode, now + share, space, first)

    # -- choosing -----------------------------------------------------------------------------------------

    def _choosing_rounds(self, mode: int, until: float) -> None:
        """Time the promising ways of a mode, and forget the others: their times would not compare."""
        ways = promising(self.ways[mode].values(), self.formats)
        self.ways[mode] = {way.name: way for way in (*ways, *self._libraries(mode)[:1])}
        self._rounds(mode, ways, until, 15)

    def _rounds(self, mode: int, ways: Sequence[Way], until: float, most: int) -> None:
        """Time ways of one mode against each other; what fails is forgotten."""
        if self.stopped or not ways:
            return
        left_s = max(0.3, until - time.perf_counter()) if math.isfinite(until) else 3.0
        ranked = sorted(ways, key=lambda way: way.seconds)
        costs = accumulate(RUNS * way.seconds for way in ranked)
        timed = [way for way, cost in zip(ranked, costs, strict=True) if cost < left_s] or ranked[:1]
        tell = self._progress_of(mode)
        try:
            if tell is not None:
                tell("rounds", 0.0)
            found = self.device.rounds(
                self.works[mode], {way.name: way.kernel for way in timed}, budget_s=left_s, max_rounds=most
            )
        except KeyboardInterrupt:
            self._stop(INTERRUPTED)
            return
        except MeasurementError as error:
            self._stop(str(error))
            return
        for name, reason in found.failed.items():
            del self.ways[mode][name]
            self.notes[f"mode {mode}: {name} dropped out of the rounds: {reason}"] = None
        table = found.table
        if table is None:
            return
        if table.note:
            self.notes[f"mode {mode}: {table.note}"] = None
        for name in table.names:
            if name in self.ways[mode]:
                way = self.ways[mode][name]
                self.ways[mode][name] = replace(
                    way, seconds=table.median(name), spread_s=table.spread(name), rounds=len(table.rounds)
                )

    def _stop(self, reason: str) -> None:
        self.stopped = True
        self.device.close()
        self.notes[reason] = None

    def _decide(self) -> tuple[Arrangement, list[Arrangement]]:
        """Time the kernels of all good arrangements again, and choose one of those in which none fails."""
        while True:
            found = self._arrangements()
            best = choose(found, self.memory_bytes, self.limits.calls)
            if self.stopped:
                return best, found
            others = self._confirm(found)
            found = self._arrangements()
            able = [one for one in found if math.isfinite(one.seconds) or math.isinf(best.seconds)]
            if any(fits(one, self.memory_bytes) for one in able):
                return choose(able, self.memory_bytes, self.limits.calls), able
            # Kernels failed that all of these need: what was not timed again takes part once more.
            self.ways = [known | more for known, more in zip(self.ways, others, strict=True)]

    def _arrangements(self) -> list[Arrangement]:
        """What can be answered with the ways that are known."""
        choices = [
            promising(known.values(), self.formats) or [self._untuned(mode)]
            for mode, known in enumerate(self.ways)
        ]
        return arrangements(choices, self.limits.calls)

    def _confirm(self, found: Sequence[Arrangement]) -> list[dict[str, Way]]:
        """Time the kernels of arrangements, and the fastest library of each mode, in fresh rounds.

        Returns the ways of each mode that were not among them, and are set aside.
        """
        aside: list[dict[str, Way]] = []
        end = self._until(OWN_SHARE + SHARED_SHARE + CHOOSING_SHARE + CONFIRMING_SHARE)
        for mode, known in enumerate(self.ways):
            now = time.perf_counter()
            left = max(0.0, end - now) / (len(self.ways) - mode)
            wanted = {one.ways[mode].name for one in found}
            wanted |= {way.name for way in self._libraries(mode)[:1]}
            aside.append({name: way for name, way in known.items() if name not in wanted})
            self.ways[mode] = {name: way for name, way in known.items() if name in wanted}
            self._rounds(mode, list(self.ways[mode].values()), now + 0.9 * left, 25)
        return aside

    def _libraries(self, mode: int) -> list[Way]:
        """Library kernels, the fastest first."""
        return sorted(
            (way for way in self.ways[mode].values() if isinstance(way.kernel, str)),
            key=lambda way: way.seconds,
        )

    def _untuned(self, mode: int) -> Way:
        """What is used where nothing could be measured."""
        self.notes[f"mode {mode}: nothing could be measured; this is the default kernel"] = None
        kernel = default_kernel(self.works[mode])
        if isinstance(kernel, GeneratedKernel):
            format = kernel.program.format_text
            return Way(kernel.program, self.stored.get(format, Stored(format, 0, 0.0)), math.inf)
        return Way(kernel.name, Stored(f"{kernel.name}, mode {mode}", 0, 0.0), math.inf)

    # -- answering ----------------------------------------------------------------------------------------

    def _answer(self, best: Arrangement, found: Sequence[Arrangement]) -> Sweep:
        """Bind what was chosen, and say what was found."""
        best, found, operators = self._swept(best, found)
        held = bytes_held(operators)
        if self.memory_bytes is not None and held > self.memory_bytes:
            raise too_little(self.memory_bytes, held)
        fastest = Arrangement(
            tuple(
                min(known.values(), key=lambda way: way.seconds, default=way)
                for known, way in zip(self.ways, best.ways, strict=True)
            )
        )
        baseline = [way for mode in range(len(self.works)) for way in self._libraries(mode)[:1]]
        result = SweepResult(
            workloads=self.works,
            threads=self.device.threads,
            best=best,
            why=why(best, found, self.memory_bytes, self.limits.calls),
            alternatives=found,
            unshared=next((one for one in found if one.names == fastest.names), fastest),
            baseline=Arrangement(tuple(baseline)) if len(baseline) == len(self.works) else None,
            memory_bytes=self.memory_bytes,
            candidates=self.candidates,
            tuning_s=self.limits.spent_s,
            compile_s=self.device.compile_s,
            verified=math.isfinite(best.seconds),
            notes=list(self.notes),
        )
        return Sweep(operators, result)

    def _swept(
        self, best: Arrangement, found: Sequence[Arrangement]
    ) -> tuple[Arrangement, Sequence[Arrangement], list[Operator]]:
        """Bind the best arrangements, call their modes in turn, and choose by what that takes."""
        last = finalists(found, best, self.memory_bytes, self.limits.calls)
        needed = sum(one.nbytes for one in {held for one in last for held in one.stored})
        if self.stopped or math.isinf(best.seconds) or needed > 0.5 * available_bytes():
            last = [best]
        packed: dict[Stored, BoundProgram] = {}
        bound = [bind_all(self.works, one, self.device.threads, self.notes, packed) for one in last]
        if len(last) == 1:
            return best, found, bound[0]
        left_s = (
            max(0.3, self._until(1.0) - time.perf_counter()) if math.isfinite(self.limits.budget_s) else 3.0
        )
        try:
            table = time_sweeps(self.works, bound, left_s, self.guidance.seed)
        except KeyboardInterrupt:
            self._stop(INTERRUPTED)
            return best, found, bound[last.index(best)]
        timed = [replace(one, sweep_s=table.median(str(place))) for place, one in enumerate(last)]
        chosen = choose(timed, self.memory_bytes, self.limits.calls)
        swept = {id(one): fresh for one, fresh in zip(last, timed, strict=True)}
        return chosen, [swept.get(id(one), one) for one in found], bound[timed.index(chosen)]
