"""Tuning one operation: search, then time the best against what the user had.

The fastest few of a search (``searching.py``) and the libraries meet in interleaved rounds; the winner is timed again
in rounds that did not choose it, and the answer is the fastest verified kernel, possibly a library's.
"""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np

from tensorwise.device.device import Candidate, Device, MeasuredOnly, Measurement, Rounds
from tensorwise.device.opening import DeviceOptions, opened
from tensorwise.device.rounds import MIN_ROUNDS, RoundTable
from tensorwise.errors import InputError, MeasurementError, TensorwiseError
from tensorwise.model import CostModel
from tensorwise.program.workload import Workload, workload
from tensorwise.registry import Registry, needs_function
from tensorwise.runtime.kernel import Kernel
from tensorwise.store.store import Store
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.elements import is_float, value_dtype
from tensorwise.toolchain.deadline import counting_waits, is_over, left_s, within
from tensorwise.tuning.advice import SHIPPED, Advisor
from tensorwise.tuning.limits import (
    DEFAULT_GUIDANCE,
    SILENT,
    Guidance,
    Listener,
    Observe,
    Progress,
    TuningLimits,
)
from tensorwise.tuning.operator import Operator, bind, mismatch
from tensorwise.tuning.result import Standing, Trial, TuneResult, program_texts
from tensorwise.tuning.searching import Search
from tensorwise.tuning.worth import per_call_s
from tensorwise.units import SHORTEST_S

FINALISTS: Final = 4
"""Generated kernels that meet the libraries in the choosing rounds."""
RUNS: Final = 8
"""Runs of a slow kernel in rounds: one before and one after to see that it is right, two in each of three rounds."""
UNTUNED_S: Final = 60.0
"""Where the budget is spent and no library computes it, the untuned kernel may take this long to compile all the same."""
CLEARLY: Final = 1.0
"""A generated kernel is the answer when its time over the best library's is below this in the last rounds."""
MORE: Final = "a larger budget_s (--budget) measures more"
"""How a user goes on where measurements were too few."""
SHORTCUTS: Final[Registry[Callable[[Search], Operator | None]]] = Registry(
    "shortcut",
    "shortcuts",
    {"without_search": "tensorwise.tuning.without_search:tune_without_search"},
    needs_function,
)
"""Ways to an operator without a search, tried in order where ``expected_calls`` is given: each returns None where a search
pays."""


def tune(
    A: Any,
    op: str,
    *,
    operands: Mapping[str, Any] | None = None,
    n: int | None = None,
    mode: int = 0,
    budget_s: float | None = None,
    trials: int | None = None,
    expected_calls: float | None = None,
    threads: int | None = None,
    device: str | Device[Workload] = "cpu",
    strategy: str = "genetic",
    model: CostModel | str | os.PathLike[str] | None = SHIPPED,
    dtype: Any = None,
    store: Store | bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    observe: Observe | None = None,
) -> Operator:
    """Find the fastest way to run ``op`` on the sparse operand ``A``.

    Args:
        A: SciPy sparse array or matrix, NumPy array, torch sparse tensor, path of a .mtx, .tns, .npz or .h5
            file, or ``Entries``.
        op: ``spmv``, ``spmm``, ``spmv_t``, ``spmm_t`` (A transposed), ``sddmm``, ``mttkrp``, ``ttv``, ``ttm``, or the text
            of an einsum whose sparse operand is called A, such as ``C[i,j] += A[i,k] * B[k,j] * D[i]``.
        operands: the other operands by name, as `compile` takes them: dense arrays or shapes, which tell the extents of
            indices that A lacks, and arrays their dtypes; values are those of a call. A second sparse one is refused.
        n: extent of the indices that neither A nor ``operands`` tell (columns of B, inner dimension of SDDMM, rank).
        mode: output mode of MTTKRP.
        budget_s: wall seconds for all of it, waiting for other processes and starting our own included (default 30, on a
            GPU 60, unlimited when ``trials`` is given). When they are spent, what is known by then decides, and where
            nothing is, the operator is that of the untuned kernel. Reading and packing the operand is not cut short.
        trials: most candidates to try; those that are refused without being run are listed, but do not count.
        expected_calls: number of calls that you expect. Costs that occur once, such as conversion, are weighed against what
            these calls save, and the search ends when no candidate is worth measuring; for few calls there is no search.
            If ``trials`` is given, so many candidates are tried in any case.
        threads: threads of a call (default: what this process may use); no more than there are processors.
        device: where it is to run: a name of ``tensorwise.device.opening.DEVICES`` (``cpu``, ``cuda``, ``spade``,
            ``spade-small``, or one that another package brings), or a `Device`, which stays open.
        strategy: a name of ``tensorwise.search.STRATEGIES``.
        model: the cost model that names candidates: ``shipped``, the one calibrated on this machine or else the bundled
            one; ``none`` or None; a `CostModel`, or the folder of one (see ``tensorwise train``).
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
        InputError: the operand, the operation, the model or an argument is not usable, or the dense operands and the
            output do not fit into memory.
    """
    start = time.perf_counter()
    with opened(device, DeviceOptions(threads, seed)) as where:
        limits = TuningLimits.of(budget_s, trials, expected_calls, where.budget_s, start)
        guidance = Guidance(strategy, advisor_of(model), store, seed)
        dtypes = dict(dtype) if isinstance(dtype, Mapping) else {"A": dtype}
        entries = entries_from(A, dtypes.pop("A", None))
        shapes, kinds = _read_dense_operands(operands or {})
        if not isinstance(dtype, Mapping) and dtype is not None:
            kinds = {}  # it is that of all operands
        kinds |= {name: value_dtype(d) for name, d in dtypes.items()}
        work = workload(op, entries, n=n, mode=mode, dtypes=kinds, shapes=shapes)
        work.check_memory(*work.dense, work.assignment.output.tensor)
        return tune_workload(work, where, limits, guidance, Listener(progress, observe))


def _read_dense_operands(
    operands: Mapping[str, Any],
) -> tuple[dict[str, tuple[int, ...]], dict[str, np.dtype]]:
    """Return shapes, and dtypes of arrays of floats; raise InputError for operands that are not dense."""
    shapes: dict[str, tuple[int, ...]] = {}
    dtypes: dict[str, np.dtype] = {}
    for name, operand in operands.items():
        if name == "A":
            raise InputError("operand A is given twice, as the first argument and in operands")
        if isinstance(operand, tuple) and all(isinstance(extent, int) for extent in operand):
            shapes[name] = operand
        elif isinstance(operand, np.ndarray):
            shapes[name] = operand.shape
            dtypes |= {name: operand.dtype} if is_float(operand.dtype) else {}
        else:
            raise InputError(
                f"tune takes one sparse operand, A; {name} is given as {type(operand).__name__}, expected a NumPy array "
                "or a shape. Compile products of several sparse operands with tensorwise.compile; tensorwise.interpret "
                "computes their sums and sparse results, slowly"
            )
    return shapes, dtypes


def tune_workload(
    work: Workload,
    device: Device[Workload],
    limits: TuningLimits,
    guidance: Guidance = DEFAULT_GUIDANCE,
    listener: Listener = SILENT,
) -> Operator:
    """Find the fastest way to run a workload of one sparse operand; see `tune`.

    Args:
        device: where candidates are measured, and the operator runs.
        limits: what may be spent.
        guidance: strategy, model and store.
        listener: callbacks that receive progress.
    """
    with within(limits.left_s), counting_waits() as waited:
        search = Search(work, device, limits, guidance, listener)
        operator = None
        if limits.calls is not None:
            found = (shortcut(search) for shortcut in SHORTCUTS.sound().values())
            try:
                operator = next((one for one in found if one is not None), None)
            except KeyboardInterrupt:
                search.interrupt()
        if operator is None:
            if not search.interrupted:
                search.run()
            operator = _Decision(search).decide()
        if operator.result is not None:
            operator.result.waited_s = waited.seconds
        return operator


def advisor_of(model: CostModel | str | os.PathLike[str] | None) -> Advisor | str | None:
    """Open the model that the user names; a shipped one is looked for when it is known what for."""
    if model is None or model == "none":
        return None
    if isinstance(model, CostModel):
        return Advisor(model)
    return SHIPPED if model == SHIPPED else Advisor.load(model)


class _Decision:
    """Which of the kernels that a search has tried is the answer."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.work, self.device, self.limits = search.work, search.device, search.limits
        self.calls, self.notes = search.limits.calls, search.notes
        self._default = search.space.default(search.work)
        self._untuned = search.space.program(search.work, self._default)
        self._failed: list[Any] = []  # programs that failed in the rounds

    def decide(self) -> Operator:
        """Time the best against the libraries and return the fastest verified kernel."""
        tried = (trial for trial in self.search.trials if trial.measurement.ok)
        ranked = sorted(tried, key=lambda trial: self.search.cost(trial.measurement))
        winner = ranked[0] if ranked else None
        rounds = Rounds(None, {}, {})  # until some were run
        if not self.search.interrupted and not self.search.worker_lost and not is_over():
            try:
                winner, rounds = self._rounds(ranked)
            except KeyboardInterrupt:
                self.search.interrupt()
            except MeasurementError as error:
                self.notes.append(str(error))
        return self._answer(*self._settle(winner, rounds))

    def _rounds(self, ranked: Sequence[Trial]) -> tuple[Trial | None, Rounds]:
        """Choose a winner in rounds and confirm it in others; one that fails there makes room for the next."""
        while True:
            winner = self._choose(ranked)
            rounds = self._confirm(winner)
            why = rounds.failed.get("tensorwise")
            if winner is None or why is None:
                return winner, rounds
            self.notes.append(f"{program_texts(winner.program)[0]} dropped out of the rounds: {why}")
            ranked = [trial for trial in ranked if trial is not winner]
            self._failed.append(winner.program)
            if self.limits.left_s <= 0:
                return None, rounds

    def _choose(self, ranked: Sequence[Trial]) -> Trial | None:
        """Let the finalists of the search run against each other, and against the untuned kernel if it was tried."""
        finalists = [*ranked[:FINALISTS], *(t for t in ranked[FINALISTS:] if t.config == self._default)]
        share = self._share(0.25, 0.3) if self.limits.is_timed else 3.0
        costs = accumulate(RUNS * trial.measurement.seconds for trial in finalists)
        finalists = [t for t, cost in zip(finalists, costs, strict=True) if cost < share] or finalists[:1]
        if len(finalists) < 2:
            return finalists[0] if finalists else None
        self.search.say("choosing rounds")
        found = self.device.rounds(
            self.work,
            {str(place): t.config for place, t in enumerate(finalists)},
            budget_s=share,
            max_rounds=15,
        )
        self.notes += [
            f"{program_texts(finalists[int(name)].program)[0]} dropped out of the choosing rounds: {why}"
            for name, why in found.failed.items()
        ]
        table = found.table
        if table is None:
            return next((one for place, one in enumerate(finalists) if str(place) not in found.failed), None)
        standing = [name for name in table.names if name not in found.failed]
        if self.calls is None and table.best() in standing:
            return finalists[int(table.best())]

        def total(name: str) -> float:
            return per_call_s(table.median(name), finalists[int(name)].measurement.conversion_s, self.calls)

        return finalists[int(min(standing, key=total))] if standing else None

    def _share(self, share: float, least_s: float) -> float:
        """Seconds of a share of what is left, or the least that rounds need if there are as many."""
        return max(share * self.limits.left_s, min(least_s, share * left_s()))

    def _confirm(self, winner: Trial | None) -> Rounds:
        """Time the winner, the untuned kernel and the libraries in fresh rounds."""
        self.search.say("confirming rounds")
        left = self._share(0.8, 0.5) if self.limits.is_timed else 5.0
        wanted: dict[str, tuple[Candidate, float]] = {
            name: (name, measurement.seconds)
            for name, measurement in self.search.libraries.items()
            if measurement.ok
        }
        always = {"tensorwise", min(wanted, key=lambda name: wanted[name][1], default="")}
        if winner is not None:
            wanted["tensorwise"] = (winner.config, winner.measurement.seconds)
            known = [t.measurement for t in self.search.trials if t.program == self._untuned]
            if winner.program != self._untuned and all(m.ok for m in known):
                wanted["untuned"] = (self._default, max((m.seconds for m in known), default=0.0))
                always.add("untuned")
        kernels: dict[str, Candidate] = {}
        cost = 0.0
        for name in sorted(wanted, key=lambda name: (name not in always, wanted[name][1])):
            kernel, seconds = wanted[name]
            cost += RUNS * seconds
            if name in always or cost < left or not self.limits.is_timed:
                kernels[name] = kernel
        return self.device.rounds(self.work, kernels, budget_s=left, max_rounds=25)

    def _settle(self, winner: Trial | None, rounds: Rounds) -> tuple[Trial | None, Rounds]:
        """Replace the winner by the untuned kernel unless the interval of their ratio in the rounds (of few rounds, in the
        search, too) is below 1."""
        known = next((t for t in self.search.trials if t.program == self._untuned), None)
        if winner is None or self._untuned in (winner.program, *self._failed) or "untuned" in rounds.failed:
            return winner, rounds
        table, low, high, count = rounds.table, 0.0, 0.0, 0
        if table is not None and {"tensorwise", "untuned"} <= {*table.names}:
            ratio = table.ratio("tensorwise", "untuned")
            low, high, count = ratio.low, ratio.high, ratio.rounds
            known = known or Trial(self._default, self._untuned, Measurement.of([table.median("untuned")]))
        if known is None or not known.measurement.ok:
            return winner, rounds
        ours, theirs = winner.measurement, known.measurement
        if count < MIN_ROUNDS:
            high = max(high, (ours.seconds + ours.spread_s) / max(theirs.seconds, SHORTEST_S))
        untuned_s = per_call_s(theirs.seconds, theirs.conversion_s, self.calls)
        if per_call_s(theirs.seconds * high, ours.conversion_s, self.calls) < untuned_s:
            return winner, rounds
        took = f"{low:.2f} to {high:.2f} times its time in {count} rounds" if count else "not timed again"
        self.notes.append(
            f"the untuned kernel is the answer: the fastest of the search, {program_texts(winner.program)[0]}, is not "
            f"certainly faster ({took}); {MORE}"
        )
        names = {"tensorwise": "fastest of the search", "untuned": "tensorwise"}
        facts = {names.get(name, name): known_of for name, known_of in rounds.facts.items()}
        return known, Rounds(None if table is None else table.renamed(names), facts, rounds.failed)

    def _answer(self, winner: Trial | None, rounds: Rounds) -> Operator:
        """Bind the fastest kernel, and say what was found."""
        generated = (
            self._standing_of("tensorwise", rounds, winner.measurement, winner.program) if winner else None
        )
        untuned = self._standing_of("untuned", rounds, None, self._untuned)
        found = {
            name: self._standing_of(name, rounds, known) for name, known in self.search.libraries.items()
        }
        libraries = {name: standing for name, standing in found.items() if standing is not None}
        self._note_failures(rounds)
        best, ratio = self._best(generated, libraries, rounds.table)
        kernel: Kernel
        if best is None:
            kernel = self.device.default_kernel(self.work)
            why = f" before the budget was spent, {self.limits.budget_s:.3g} s" if is_over() else ""
            self.notes.append(
                f"nothing was measured{why}: this is the untuned kernel, compared with nothing; {MORE}"
            )
        elif best is generated and winner is not None:
            kernel = self.device.kernel(self.work, winner.config)
        else:
            kernel = self.device.kernel(self.work, best.name)
        operator = self._bound(kernel)
        if best is None:
            best = Standing(
                kernel.name, operator.format, operator.schedule, seconds=math.inf, spread_s=0.0, rounds=0,
                conversion_s=operator.conversion_s, bytes_held=operator.bytes_held,
            )  # fmt: skip
        operator.result = TuneResult(
            self.work, self.device.threads, best, generated, libraries, untuned, ratio, tuple(self.search.trials),
            self.limits.spent_s, self.device.compile_s, math.isfinite(best.seconds), rounds.table, self.notes,
            device=self.device.name, host=str(self.device.provenance.get("host", self.device.name)),
            baseline=self.device.baseline,
        )  # fmt: skip
        return operator

    def _standing_of(
        self, name: str, rounds: Rounds, searched: Measurement | None, program: Any = None
    ) -> Standing | None:
        """Return a kernel's times from the rounds, else from the search; None where it failed or neither timed it."""
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
        _, format_text, schedule_text = program_texts(program)
        return Standing(
            name="tensorwise" if program else name,
            format=format_text,
            schedule=schedule_text,
            seconds=seconds,
            spread_s=spread_s,
            rounds=count,
            conversion_s=facts.get("conversion_s", searched.conversion_s if searched else 0.0),
            bytes_held=int(facts.get("bytes_held", searched.bytes_held if searched else 0)),
            program=program,
        )

    def _note_failures(self, rounds: Rounds) -> None:
        """Note what disturbed the rounds, who dropped out of them, and which candidates were wrong."""
        once = self.device.deterministic and rounds.table is not None and len(rounds.table.seconds) == 1
        if rounds.table is not None and rounds.table.note and not once:
            self.notes.append(rounds.table.note + f"; {MORE}" * self.limits.is_timed)
        for name, why in rounds.failed.items():
            if name != "tensorwise":  # noted already
                self.notes.append(f"{name} dropped out of the rounds: {why}")
        tried = self.search.trials
        if tried and not any(t.measurement.ok for t in tried):
            first = tried[0].measurement
            self.notes.append(f"no candidate ran; the first of {len(tried)}: {first.status}: {first.note}")
        wrong = [t for t in self.search.trials if t.measurement.status == "wrong"]
        if wrong:
            name, why = program_texts(wrong[0].program)[0], wrong[0].measurement.note
            self.notes.append(f"{len(wrong)} candidates gave wrong numbers, such as {name}: {why}")

    def _best(
        self, generated: Standing | None, libraries: Mapping[str, Standing], table: RoundTable | None
    ) -> tuple[Standing | None, float]:
        """Return the fastest kernel, and its time over the best library's."""
        library = min(libraries.values(), key=lambda s: self._total(s), default=None)
        if generated is None:
            return library, 1.0
        if library is None:
            return generated, 1.0
        ratio = max(generated.seconds, SHORTEST_S) / max(library.seconds, SHORTEST_S)
        if table is not None and library.name in table.names and generated.rounds:
            ratio = table.ratio("tensorwise", library.name).median
        pays = ratio if self.calls is None else self._total(generated) / self._total(library)
        return (generated, ratio) if pays < CLEARLY else (library, 1.0)

    def _total(self, standing: Standing) -> float:
        return per_call_s(standing.seconds, standing.conversion_s, self.calls)

    def _bound(self, kernel: Kernel) -> Operator:
        """Bind the winner in this process: its first runs were in the worker."""
        operator = self._bind(kernel)
        if not self.device.verifies and not isinstance(kernel, MeasuredOnly):
            wrong = mismatch(operator)
            if wrong is not None:
                raise MeasurementError(
                    f"the kernel that the device {self.device.name!r} gives for {program_texts(kernel.program)[0]} computes "
                    f"wrong numbers: {wrong}"
                )
        return operator

    def _bind(self, kernel: Kernel) -> Operator:
        try:
            return bind(kernel, self.work, self.device.threads, self.device.in_process)
        except (TensorwiseError, MemoryError) as error:
            had = self.device.baseline
            if had not in self.device.libraries(self.work):
                if not is_over():
                    raise
                self.notes.append(f"the budget was exceeded, since nothing else computes it: {error}")
                with within(UNTUNED_S, afresh=True):
                    kernel = self.device.default_kernel(self.work)
                    return bind(kernel, self.work, self.device.threads, self.device.in_process)
            self.notes.append(f"{kernel.name} cannot be bound here ({error}); this is {had}")
            kernel = self.device.kernel(self.work, had)
            return bind(kernel, self.work, self.device.threads, self.device.in_process)
