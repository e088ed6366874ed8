"""The loop: ask a strategy, measure, record, tell - then time the best against what the user had.

A strategy proposes configs of the CPU's space until its share of the budget is spent. The fastest few
and the libraries meet in interleaved rounds; the winner is timed again in rounds that did not choose it, and
the answer is the fastest verified kernel, possibly a library's.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import numpy as np

from tensorwise.data.record import Record
from tensorwise.data.store import Store
from tensorwise.device.cpu import CpuDevice, Rounds
from tensorwise.device.device import Measurement
from tensorwise.device.library import LIBRARY, available
from tensorwise.device.rounds import RoundTable
from tensorwise.errors import CompilerError, InputError, MeasurementError, StoreError, TensorwiseError
from tensorwise.operator import Operator, bind, default_kernel
from tensorwise.program.generated import GeneratedKernel
from tensorwise.program.kernel import Kernel
from tensorwise.program.program import Program
from tensorwise.program.workload import Workload, workload
from tensorwise.result import Standing, Trial, TuneResult
from tensorwise.search import STRATEGIES
from tensorwise.space.config import Config
from tensorwise.space.cpu import CpuSpace, cpu_space
from tensorwise.space.portfolio import portfolio
from tensorwise.tensor.elements import value_dtype
from tensorwise.tensor.entries import entries_from
from tensorwise.toolchain.compiler import find_compiler

SEARCH_SHARE: Final = 0.65
"""Share of the budget for the search; the rest is for rounds, which decide."""
BATCH: Final = 8
"""Configs asked for at a time: one compilation, one child of the worker."""
FINALISTS: Final = 4
"""Generated kernels that meet the libraries in the choosing rounds."""
RUNS: Final = 8
"""Runs of a slow kernel in rounds: one before and one after to see that it is right, two in each of three rounds."""
CLEARLY: Final = 1.0
"""A generated kernel is the answer when its time over the best library's is below this in the last rounds."""

Progress = Callable[[str, float], None]
"""Called with what is going on and the share of the budget spent (0 to 1)."""
Observe = Callable[[Trial], None]
"""Called with each candidate that was tried."""


def tune(
    A: Any,
    op: str,
    *,
    n: int | None = None,
    mode: int = 0,
    budget_s: float | None = None,
    trials: int | None = None,
    calls: float | None = None,
    threads: int | None = None,
    strategy: str = "genetic",
    dtype: Any = None,
    store: Store | bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    observe: Observe | None = None,
) -> Operator:
    """Find the fastest way to run ``op`` on the sparse operand ``A``.

    Args:
        A: SciPy sparse array or matrix, NumPy array, torch sparse tensor, path of a .mtx, .tns or .npz
            file, or ``Entries``.
        op: ``spmv``, ``spmm``, ``spmv_t``, ``spmm_t`` (A transposed), ``sddmm``, ``mttkrp``, ``ttv`` or ``ttm``.
        n: extent of the dense-only index (columns of B, inner dimension of SDDMM, rank).
        mode: output mode of MTTKRP.
        budget_s: wall seconds for all of it (default 30, unlimited when ``trials`` is given).
        trials: most candidates to try.
        calls: how often the operator will be called; then conversion counts against a format.
        threads: threads of a call (default: what this process may use).
        strategy: a name of ``tensorwise.search.STRATEGIES``.
        dtype: float32, float64, float16 or bfloat16, for all operands; default A's own. A dict names the dtype of
            some: ``{"A": "bfloat16", "B": "float32"}``; dense ones are otherwise as A. Halves are accumulated in
            float32, and so is the result unless all operands are of the same half type.
        store: where measurements are remembered: a Store, True for the default one, False for nowhere.
        seed: of operands and search.
        progress: called as the work goes on; observe: called with each candidate that was tried.

    Returns:
        The operator; ``operator.result`` holds the numbers, ``operator.report()`` shows them. After
        Ctrl-C it is the best found so far.

    Raises:
        InputError: the operand, the operation or an argument is not usable, or the dense operands and the
            output do not fit into memory.
    """
    check_limits(budget_s, trials, calls, strategy)
    start = time.perf_counter()
    dtypes = dict(dtype) if isinstance(dtype, Mapping) else {"A": dtype}
    entries = entries_from(A, dtypes.pop("A", None))
    work = workload(op, entries, n=n, mode=mode, dtypes={name: value_dtype(d) for name, d in dtypes.items()})
    work.check_memory(*work.dense, work.assignment.output.tensor)
    budget = budget_s if budget_s is not None else (30.0 if trials is None else math.inf)
    with CpuDevice(threads, seed=seed) as device:
        run = Tuning(work, device, start, budget, trials, calls, store, progress, observe)
        run.search(strategy, np.random.default_rng(seed))
        return run.decide()


def check_limits(budget_s: float | None, trials: int | None, calls: float | None, strategy: str) -> None:
    """Raise InputError for a budget, a number of trials or calls, or a strategy that makes no sense."""
    if budget_s is not None and not budget_s > 0:
        raise InputError(f"budget_s must be positive, got {budget_s}")
    if trials is not None and trials < 0:
        raise InputError(f"trials must not be negative, got {trials}")
    if strategy not in STRATEGIES:
        raise InputError(f"unknown strategy {strategy!r}; known: {', '.join(STRATEGIES)}")
    if calls is not None and not calls > 0:
        raise InputError(f"calls must be positive, got {calls}")


class Tuning:
    """The state of one tuning.

    Attributes:
        space: where candidates come from; by default all that the CPU's space has for the workload.
        trials: every candidate that was tried.
        libraries: what each library took.
        notes: what a reader of the result should know.
        interrupted, worker_lost: why nothing more can be measured.
    """

    def __init__(
        self,
        work: Workload,
        device: CpuDevice,
        start: float,
        budget_s: float,
        trials: int | None,
        calls: float | None,
        store: Store | bool,
        progress: Progress | None,
        observe: Observe | None = None,
        space: CpuSpace | None = None,
    ) -> None:
        self.work, self.device, self.start, self.budget_s = work, device, start, budget_s
        self.most_trials, self.calls = trials, calls
        self.progress, self.observe = progress, observe
        self.space = space or cpu_space(work.assignment, next(iter(work.sparse)))
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        self.interrupted = False
        self.store = self._open(store)
        self.libraries: dict[str, Measurement] = {}
        self.worker_lost = False

    def _open(self, store: Store | bool) -> Store | None:
        if isinstance(store, Store):
            return store
        if not store:
            return None
        try:
            return Store()
        except StoreError as error:
            self.notes.append(f"measurements are not remembered: {error}")
            return None

    @cached_property
    def _default(self) -> Config:
        return self.space.default(self.work)

    @cached_property
    def _untuned(self) -> Program:
        return self.space.program(self.work, self._default)

    def spent(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    def say(self, what: str) -> None:
        """Report progress."""
        if self.progress is not None:
            share = self.spent() / self.budget_s if math.isfinite(self.budget_s) else 0.0
            if self.most_trials:
                share = max(share, len(self.trials) / self.most_trials)
            self.progress(what, min(1.0, share))

    # -- searching ----------------------------------------------------------------------------------------

    def search(
        self,
        strategy: str,
        rng: np.random.Generator,
        *,
        libraries: bool = True,
        starts: Sequence[Config] = (),
    ) -> None:
        """Measure libraries, then candidates until the search's share of the budget is spent; ``starts`` first."""
        try:
            self.say("libraries")
            names = [kernel.name for kernel in available(self.work)] if libraries else []
            for name, measurement in zip(names, self.device.measure_kernels(self.work, names), strict=True):
                self.libraries[name] = measurement
            if self.work.halves and any(measurement.ok for measurement in self.libraries.values()):
                self.notes.append(
                    f"libraries do not take {self.work.dtype_text}: they compute in float32, and their times "
                    "include converting dense operands and results at every call"
                )
            find_compiler()
            seeds = [*starts, *self._remembered(), *portfolio(self.space, self.work)]
            search = STRATEGIES[strategy](self.space, self.work, rng, seeds=list(dict.fromkeys(seeds)))
            while not self._search_is_over():
                left = BATCH if self.most_trials is None else min(BATCH, self.most_trials - len(self.trials))
                configs = search.ask(left)
                if not configs:
                    break
                costs = [self._cost(measurement) for measurement in self._measure(configs)]
                search.tell(configs[: len(costs)], costs)
        except KeyboardInterrupt:
            self._interrupt()
        except CompilerError as error:
            self.notes.append(f"nothing was generated, only libraries were compared: {error}")
        except MeasurementError as error:
            self.worker_lost = True
            self.notes.append(str(error))

    def _search_is_over(self) -> bool:
        if self.most_trials is not None and len(self.trials) >= self.most_trials:
            return True
        # However large the operand, the default program gets its chance.
        return bool(self.trials) and self.spent() >= SEARCH_SHARE * self.budget_s

    def _measure(self, configs: Sequence[Config]) -> Iterator[Measurement]:
        """Measure, remember and yield; fewer than asked for when the time is up."""
        programs = [self.space.program(self.work, config) for config in configs]
        known = [t.measurement.seconds for t in self.trials if t.measurement.ok]
        known += [m.seconds for m in self.libraries.values() if m.ok]
        records: list[Record] = []
        try:
            left = SEARCH_SHARE * self.budget_s - self.spent()
            results = self.device.measure_kernels(
                self.work, programs, min(known, default=None), left if math.isfinite(left) else None
            )
            for config, program, measurement in zip(configs, programs, results, strict=False):
                self.trials.append(Trial(config, program, measurement))
                records.append(self._record(config, measurement))
                if self.observe is not None:
                    self.observe(self.trials[-1])
                self.say(f"{len(self.trials)} candidates")
                yield measurement
        finally:
            self._remember(records)

    def _cost(self, measurement: Measurement) -> float:
        """Seconds a call, with the conversion's share where the number of calls is known."""
        if self.calls is None or not math.isfinite(measurement.cost):
            return measurement.cost
        return measurement.cost + measurement.conversion_s / self.calls

    def _record(self, config: Config, measurement: Measurement) -> Record:
        return Record.of(measurement, self.work, self.device, self.space.name, config, self.device.provenance)

    def _remember(self, records: Sequence[Record]) -> None:
        if self.store is None or not records:
            return
        try:
            self.store.append(records)
        except StoreError as error:
            self.notes.append(f"measurements are not remembered: {error}")
            self.store = None

    def _remembered(self) -> list[Config]:
        """The best configs that this device measured on this workload before."""
        if self.store is None:
            return []
        try:
            records = self.store.query(
                workload_id=self.work.id, device_id=self.device.id, space=self.space.name
            )
        except StoreError as error:
            self.notes.append(f"earlier measurements cannot be read: {error}")
            return []
        ranked = sorted((r for r in records if r.ok), key=lambda r: r.seconds)
        found = [r.config for r in ranked if self.space.why_not(r.config, self.work) is None]
        return list(dict.fromkeys(found))[:FINALISTS]

    def _interrupt(self) -> None:
        self.interrupted = True
        self.device.close()
        self.notes.append("interrupted: this is the best found so far")

    # -- deciding -----------------------------------------------------------------------------------------

    def decide(self) -> Operator:
        """Time the best against the libraries and return the fastest verified kernel."""
        ranked = sorted((t for t in self.trials if t.measurement.ok), key=lambda t: self._cost(t.measurement))
        winner = ranked[0] if ranked else None
        rounds = Rounds(None, {}, {})  # until some were run
        if not self.interrupted and not self.worker_lost:
            try:
                winner, rounds = self._rounds(ranked)
            except KeyboardInterrupt:
                self._interrupt()
            except MeasurementError as error:
                self.notes.append(str(error))
        return self._answer(winner, rounds)

    def _rounds(self, ranked: Sequence[Trial]) -> tuple[Trial | None, Rounds]:
        """Choose a winner in rounds and confirm it in others; one that fails there makes room for the next."""
        while True:
            winner = self._choose(ranked)
            rounds = self._confirm(winner)
            why = rounds.failed.get("tensorwise")
            if winner is None or why is None:
                return winner, rounds
            self.notes.append(f"{winner.program.name} dropped out of the rounds: {why}")
            ranked = [trial for trial in ranked if trial is not winner]
            if self.spent() >= self.budget_s:
                return None, rounds

    def _choose(self, ranked: Sequence[Trial]) -> Trial | None:
        """Let the finalists of the search run against each other."""
        # The untuned kernel is always among them: an answer that it beats would be no answer.
        finalists = [*ranked[:FINALISTS], *(t for t in ranked[FINALISTS:] if t.config == self._default)]
        share = max(0.3, 0.25 * (self.budget_s - self.spent())) if math.isfinite(self.budget_s) else 3.0
        costs = accumulate(RUNS * trial.measurement.seconds for trial in finalists)
        finalists = [t for t, cost in zip(finalists, costs, strict=True) if cost < share] or finalists[:1]
        if len(finalists) < 2:
            return finalists[0] if finalists else None
        self.say("choosing rounds")
        found = self.device.rounds(
            self.work,
            {str(place): trial.program for place, trial in enumerate(finalists)},
            budget_s=share,
            max_rounds=15,
        )
        table = found.table
        if table is None:
            return finalists[0]
        standing = [name for name in table.names if name not in found.failed]
        if self.calls is None and table.best() in standing:
            return finalists[int(table.best())]
        per_call = 0.0 if self.calls is None else 1 / self.calls

        def total(name: str) -> float:
            return table.median(name) + per_call * finalists[int(name)].measurement.conversion_s

        return finalists[int(min(standing, key=total))] if standing else None

    def _confirm(self, winner: Trial | None) -> Rounds:
        """Time the winner, the untuned kernel and the libraries in fresh rounds."""
        self.say("confirming rounds")
        left = max(0.5, 0.9 * (self.budget_s - self.spent())) if math.isfinite(self.budget_s) else 5.0
        wanted: dict[str, tuple[Program | str, float]] = {
            name: (name, measurement.seconds)
            for name, measurement in self.libraries.items()
            if measurement.ok
        }
        always = {"tensorwise", min(wanted, key=lambda name: wanted[name][1], default="")}
        if winner is not None:
            wanted["tensorwise"] = (winner.program, winner.measurement.seconds)
            known = [t.measurement for t in self.trials if t.program == self._untuned]
            if winner.program != self._untuned and all(m.ok for m in known):
                wanted["untuned"] = (self._untuned, max((m.seconds for m in known), default=0.0))
        kernels: dict[str, Program | str] = {}
        cost = 0.0
        for name in sorted(wanted, key=lambda name: (name not in always, wanted[name][1])):
            kernel, seconds = wanted[name]
            cost += RUNS * seconds
            if name in always or cost < left or math.isinf(self.budget_s):
                kernels[name] = kernel
        return self.device.rounds(self.work, kernels, budget_s=left, max_rounds=25)

    def _answer(self, winner: Trial | None, rounds: Rounds) -> Operator:
        """Bind the fastest kernel, and say what was found."""
        generated = (
            self._standing("tensorwise", rounds, winner.measurement, winner.program) if winner else None
        )
        untuned = self._standing("untuned", rounds, None, self._untuned)
        found = {name: self._standing(name, rounds, known) for name, known in self.libraries.items()}
        libraries = {name: standing for name, standing in found.items() if standing is not None}
        self._note_failures(rounds)
        best, ratio = self._best(generated, libraries, rounds.table)
        kernel: Kernel
        if best is None:
            kernel = default_kernel(self.work)
            self.notes.append("nothing could be measured; this is the default kernel")
        elif best is generated and winner is not None:
            kernel = GeneratedKernel(winner.program)
        else:
            kernel = LIBRARY[best.name]()
        operator = self._bound(kernel)
        if best is None:
            best = Standing(
                kernel.name, operator.format, operator.schedule, seconds=math.inf, spread_s=0.0, rounds=0,
                conversion_s=operator.conversion_s, bytes_held=operator.bytes_held,
            )  # fmt: skip
        operator.result = TuneResult(
            self.work, self.device.threads, best, generated, libraries, untuned, ratio, tuple(self.trials),
            self.spent(), self.device.compile_s, math.isfinite(best.seconds), rounds.table, self.notes,
        )  # fmt: skip
        return operator

    def _standing(
        self, name: str, rounds: Rounds, searched: Measurement | None, program: Program | None = None
    ) -> Standing | None:
        """Where a kernel stands: as timed in the rounds, else in the search; None where it failed or was in neither."""
        if name in rounds.failed:
            return None
        table = rounds.table
        if table is not None and name in table.names:
            seconds, spread_s, count = table.median(name), table.spread(name), len(table.rounds)
        elif searched is not None and searched.ok:
            seconds, spread_s, count = searched.seconds, searched.spread_s, 0
        else:
            return None
        facts = rounds.facts.get(name, {})
        return Standing(
            name="tensorwise" if program else name,
            format=program.format_text if program else "",
            schedule=program.schedule_text if program else "",
            seconds=seconds,
            spread_s=spread_s,
            rounds=count,
            conversion_s=facts.get("conversion_s", searched.conversion_s if searched else 0.0),
            bytes_held=int(facts.get("bytes_held", searched.bytes_held if searched else 0)),
        )

    def _note_failures(self, rounds: Rounds) -> None:
        """Note what disturbed the rounds, who dropped out of them, and which candidates were wrong."""
        if rounds.table is not None and rounds.table.note:
            self.notes.append(rounds.table.note)
        for name, why in rounds.failed.items():
            if name != "tensorwise":  # noted already
                self.notes.append(f"{name} dropped out of the rounds: {why}")
        wrong = [t for t in self.trials if t.measurement.status == "wrong"]
        if wrong:
            self.notes.append(
                f"{len(wrong)} candidates gave wrong numbers, such as {wrong[0].program.name}: {wrong[0].measurement.note}"
            )

    def _best(
        self, generated: Standing | None, libraries: Mapping[str, Standing], table: RoundTable | None
    ) -> tuple[Standing | None, float]:
        """Return the fastest kernel, and its time over the best library's."""
        library = min(libraries.values(), key=lambda s: self._total(s), default=None)
        if generated is None:
            return library, 1.0
        if library is None:
            return generated, 1.0
        ratio = generated.seconds / library.seconds
        if table is not None and library.name in table.names and generated.rounds:
            ratio = table.ratio("tensorwise", library.name).median
        pays = ratio if self.calls is None else self._total(generated) / self._total(library)
        return (generated, ratio) if pays < CLEARLY else (library, 1.0)

    def _total(self, standing: Standing) -> float:
        return standing.seconds + (standing.conversion_s / self.calls if self.calls else 0.0)

    def _bound(self, kernel: Kernel) -> Operator:
        """Bind the winner in this process: its first runs were in the worker."""
        try:
            return bind(kernel, self.work, self.device.threads)
        except (TensorwiseError, MemoryError) as error:
            self.notes.append(f"{kernel.name} cannot be bound here ({error}); this is SciPy")
            return bind(LIBRARY["scipy"](), self.work, self.device.threads)
