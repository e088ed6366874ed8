"""The search of a tuning: ask a strategy, measure, record, tell.

A strategy proposes configs of the CPU's space until the search's share of the budget is spent.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from tensorwise.data.record import Record
from tensorwise.data.store import Store
from tensorwise.device.cpu import CpuDevice
from tensorwise.device.device import Measurement
from tensorwise.device.library import available
from tensorwise.errors import CompilerError, InputError, MeasurementError, StoreError, TensorwiseError
from tensorwise.model.model import CostModel
from tensorwise.program.workload import Workload
from tensorwise.result import Trial
from tensorwise.search import STRATEGIES
from tensorwise.space.config import Config
from tensorwise.space.cpu import CpuSpace, cpu_space
from tensorwise.space.portfolio import portfolio
from tensorwise.toolchain.compiler import find_compiler
from tensorwise.worth import Prospect, per_call_s, worth_s

SEARCH_SHARE: Final = 0.65
"""Share of the budget for the search; the rest is for rounds, which decide."""
BATCH: Final = 8
"""Configs asked for at a time: one compilation, one child of the worker."""
IMAGINED: Final = 512
"""Configs whose cost a model predicts before anything is measured, the portfolio among them ..."""
IMAGINED_SHARE: Final = 0.05
"""... but no more once this share of the budget is spent on it."""
NAMED: Final = 32
"""Configs that the model names; the rest of the portfolio follows in its order."""
BROOD: Final = 64
"""Configs predicted at a time."""
SPREAD: Final = 0.4
"""Standard deviation of the logarithm of the times of candidates, before any was measured ..."""
PRIOR: Final = 16
"""... which counts for as much as so many of them."""
REMEMBERED: Final = 4
"""Configs that were the fastest in earlier tunings of the same workload, and are tried first."""

Progress = Callable[[str, float], None]
"""Called with what is going on and the share of the budget spent (0 to 1)."""
Observe = Callable[[Trial], None]
"""Called with each candidate that was tried."""


def check_limits(budget_s: float | None, trials: int | None, calls: float | None, strategy: str) -> None:
    """Raise InputError for a budget, a number of trials or calls, or a strategy that makes no sense."""
    if budget_s is not None and not budget_s > 0:
        raise InputError(f"budget_s must be positive, got {budget_s}")
    if trials is not None and trials < 0:
        raise InputError(f"trials must not be negative, got {trials}")
    if strategy not in STRATEGIES:
        raise InputError(f"unknown strategy {strategy!r}; known: {', '.join(STRATEGIES)}")
    if calls is not None and not calls > 0:
        raise InputError(f"expected_calls must be positive, got {calls}")


class Search:
    """The candidates of one tuning: what was tried, and what may still be.

    Attributes:
        space: where candidates come from; by default all that the CPU's space has for the workload.
        model: names what is tried first, where there is one.
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
        model: CostModel | None = None,
    ) -> None:
        self.model = model
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
        self._begun = 0.0  # seconds before the first candidate

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

    def spent(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    def left_s(self) -> float:
        """Seconds that are left of the budget."""
        return self.budget_s - self.spent()

    def say(self, what: str) -> None:
        """Report progress."""
        if self.progress is not None:
            share = self.spent() / self.budget_s if math.isfinite(self.budget_s) else 0.0
            if self.most_trials:
                share = max(share, len(self.trials) / self.most_trials)
            self.progress(what, min(1.0, share))

    def run(
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
            self._begun = self.spent()
            seeds = [*starts, *self._remembered(), *self._promising(rng)]
            search = STRATEGIES[strategy](self.space, self.work, rng, seeds=list(dict.fromkeys(seeds)))
            while not self._search_is_over():
                left = BATCH if self.most_trials is None else min(BATCH, self.most_trials - len(self.trials))
                configs = search.ask(left)
                if not configs:
                    break
                costs = [self.cost(measurement) for measurement in self._measure(configs)]
                search.tell(configs[: len(costs)], costs)
        except KeyboardInterrupt:
            self.interrupt()
        except CompilerError as error:
            self.notes.append(f"nothing was generated, only libraries were compared: {error}")
        except MeasurementError as error:
            self.worker_lost = True
            self.notes.append(str(error))

    def _promising(self, rng: np.random.Generator) -> list[Config]:
        """Return the known structures, the default first; with a model, those that it predicts to be fast before the others.

        The model also sees configs that are bred by its own predictions: measuring one takes as long as predicting hundreds.
        """
        known = portfolio(self.space, self.work)
        if self.model is None:
            return known
        if why := self._misfit(self.model):
            self.notes.append(f"the model was not asked: {why}")
            return known
        self.say("predicting")
        predicted: dict[Config, float] = {}
        until = self.spent() + IMAGINED_SHARE * self.budget_s
        imagined = STRATEGIES["genetic"](self.space, self.work, rng, seeds=known)
        try:
            while len(predicted) < IMAGINED and (configs := imagined.ask(BROOD)):
                costs = self.model.predict(self.work, configs, self.device).tolist()
                imagined.tell(configs, costs)
                predicted |= zip(configs, costs, strict=True)
                if self.spent() > until and len(predicted) >= len(known):
                    break
        except TensorwiseError as error:
            self.notes.append(f"the model cannot tell what is fast here: {error}")
            return known
        ranked = sorted(predicted, key=lambda config: predicted[config])
        structures = set(known)
        rest = [config for config in ranked if config in structures]
        return list(dict.fromkeys([known[0], *ranked[:NAMED], *rest]))

    def _misfit(self, model: CostModel) -> str | None:
        """Return why a model is of no use here, None where it may be; its card says what it was made for."""
        made_for = model.card.get("op", self.work.op)
        if made_for != self.work.op:
            return f"it is of {made_for}, and this is {self.work.op}"
        data = model.card.get("data")
        hosts = data.get("hosts", []) if isinstance(data, Mapping) else []
        here = self.device.provenance.get("host")
        if hosts and here not in hosts:
            self.notes.append(
                f"the model has learned on other processors ({', '.join(map(str, hosts))}); this is {here}: what it says "
                "is tried first, and measured as ever"
            )
        return None

    def _search_is_over(self) -> bool:
        if self.most_trials is not None and len(self.trials) >= self.most_trials:
            return True
        # However large the operand, the default program gets its chance.
        if not self.trials:
            return False
        return self.spent() >= SEARCH_SHARE * self.budget_s or not self._pays()

    def _pays(self) -> bool:
        """Whether another candidate is expected to save more than it costs; so it is where calls are not known.

        Its time is expected to be like that of the candidates so far. Those that are tried first resemble each other,
        so that a spread as usual counts beside what they show.
        """
        if self.calls is None or self.most_trials is not None:
            return True
        tried = [trial.measurement for trial in self.trials if math.isfinite(trial.measurement.seconds)]
        known = [m for m in (*tried, *self.libraries.values()) if m.ok]
        if len(self.trials) < BATCH or not tried or not known:
            return True
        logs = np.log([max(m.seconds, 1e-12) for m in tried])
        spread = math.sqrt((PRIOR * SPREAD**2 + logs.var() * len(logs)) / (PRIOR + len(logs)))
        price_s = (self.spent() - self._begun) / len(self.trials)
        another = Prospect(
            math.exp(logs.mean()), spread, float(np.median([m.conversion_s for m in tried])), price_s
        )
        best = min(known, key=self.cost)
        return worth_s(another, Prospect(best.seconds, conversion_s=best.conversion_s), self.calls) > 0

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

    def cost(self, measurement: Measurement) -> float:
        """Seconds a call, with the conversion's share where the number of calls is known."""
        return per_call_s(measurement.cost, measurement.conversion_s, self.calls)

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
        return list(dict.fromkeys(found))[:REMEMBERED]

    def interrupt(self) -> None:
        """Stop measuring, and say so."""
        self.interrupted = True
        self.device.close()
        self.notes.append("interrupted: this is the best found so far")
