"""The search of a tuning: ask a strategy, measure, record, tell.

A strategy proposes configs of the device's space until the search's share of the budget is spent. If there is a model, its
proposals are measured first. Slow preparations run at the same time: the worker process loads operands and libraries while
this process compiles the package's C files and asks the model.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from tensorwise.device.device import Candidate, Device, Measurement
from tensorwise.errors import (
    CompilerError,
    InputError,
    MeasurementError,
    OutOfTimeError,
    StoreError,
    TensorwiseError,
)
from tensorwise.program.workload import Workload
from tensorwise.reading import reason, shown
from tensorwise.search import STRATEGIES, Strategy
from tensorwise.space.config import Config
from tensorwise.space.portfolio import portfolio
from tensorwise.space.space import Space
from tensorwise.store.record import Record, check_facts
from tensorwise.store.store import Store
from tensorwise.toolchain.deadline import is_over, left_s, within
from tensorwise.toolchain.routines import load_all
from tensorwise.tuning.advice import SHIPPED, Advisor, load_bundled_advisors
from tensorwise.tuning.forecast import DOUBTFUL, ERROR, Forecast
from tensorwise.tuning.limits import DEFAULT_GUIDANCE, SILENT, Guidance, Listener, TuningLimits
from tensorwise.tuning.result import Trial
from tensorwise.tuning.worth import Prospect, chance, per_call_s, worth_s
from tensorwise.units import SHORTEST_S

SEARCH_SHARE: Final = 0.65
"""Share of the budget for the search; the rest is for rounds, which decide."""
BATCH: Final = 8
"""Configs asked for at a time: one compilation, and on a CPU one child of the worker."""
FEW: Final = 5
"""Configs tried at a time where a model chooses the next ones by the measured times."""
MODEL_SHARE: Final = 0.05
"""Largest share of the budget spent on finding configs with the model."""
NAMED: Final = 32
"""Configs tried by the advice of a model that predicts only a ranking."""
CHANCE: Final = 0.1
"""Without `expected_calls`, a model's config is tried where it beats the fastest so far with at least this probability."""
SPREAD: Final = 0.4
"""Prior standard deviation of the logarithm of the candidates' times."""
PRIOR: Final = 16
"""Weight of that prior, in measured candidates."""
REMEMBERED: Final = 4
"""Configs that were the fastest in earlier tunings of the same workload, and are tried first."""

INTERRUPTED: Final = "interrupted: this is the best found so far"
"""Note of a search that Ctrl-C ended."""


class Search:
    """The candidates of one tuning: what was tried, and what may still be.

    Attributes:
        space: where candidates come from; by default all that the device's space has for the workload.
        trials: every candidate that was tried.
        libraries: what each library took.
        notes: what a reader of the result should know.
        forecast: what the model says, None without one.
        interrupted, worker_lost: why nothing more can be measured.
    """

    def __init__(
        self,
        work: Workload,
        device: Device[Workload],
        limits: TuningLimits,
        guidance: Guidance = DEFAULT_GUIDANCE,
        listener: Listener = SILENT,
        space: Space[Any] | None = None,
    ) -> None:
        """Prepare; nothing is measured yet.

        Args:
            work: what is computed.
            device: what measures.
            limits: time and number of candidates.
            guidance: the strategy, the model that names the first candidates, and the store.
            listener: callbacks that receive progress.
            space: see the attribute.

        Raises:
            InputError: the model cannot read configs of this space, or records cannot keep what the device says of itself.
        """
        self.work, self.device, self.limits = work, device, limits
        self.guidance, self.listener = guidance, listener
        self.space = space or device.space(work)
        self.trials: list[Trial] = []
        self.notes: list[str] = list(device.warnings)
        self.interrupted = False
        check_facts("provenance", device.provenance)
        self.store = self._open(guidance.store)
        self.libraries: dict[str, Measurement] = {}
        self.worker_lost = False
        self._begun = 0.0  # seconds before the first candidate
        self.forecast: Forecast | None = None
        # What the model speaks of and was not tried, the best predicted first:
        self._untried: list[Config] = []
        model = guidance.model
        if isinstance(model, Advisor) and model.made_for(work) and (why := model.model.misfit(self.space)):
            raise InputError(f"the model cannot be used here: {why}")

    def _open(self, store: Store | bool) -> Store | None:
        if isinstance(store, Store):
            return store
        if not isinstance(store, bool | None):
            raise InputError(
                "store is a Store, such as tensorwise.store.store.Store('my.sqlite'), or whether to use the default one; "
                f"got {shown(store)}"
            )
        if not store:
            return None
        try:
            return Store()
        except StoreError as error:
            self.notes.append(f"measurements are not remembered: {error}")
            return None

    def _part(self, share: float) -> contextlib.AbstractContextManager[None]:
        """What may hang gets a share of the time that is left: libraries are to be compared all the same."""
        return within(share * left_s())

    def say(self, what: str) -> None:
        """Report progress."""
        if self.listener.progress is not None:
            tried = len(self.trials) / self.limits.trials if self.limits.trials else 0.0
            self.listener.progress(what, min(1.0, max(self.limits.spent_s / self.limits.budget_s, tried)))

    def run(self, *, libraries: bool = True, starts: Sequence[Config] = ()) -> None:
        """Measure libraries, then candidates until the search's share of the budget is spent; ``starts`` first."""
        rng = np.random.default_rng(self.guidance.seed)
        try:
            if libraries:
                with self._part(0.5):
                    self.device.start(self.work)  # it loads while a model is asked
            search = self._prepared(rng, starts)
            if libraries:
                self._measure_libraries()
            self._begun = self.limits.spent_s
            while search is not None and not self._search_is_over():
                configs = self._next(search)
                if not configs:
                    break
                measured = list(self._measure(configs))
                if self.forecast is not None:
                    for config, measurement in zip(configs, measured, strict=False):
                        self.forecast.learn(config, measurement.seconds)
                search.tell(configs[: len(measured)], [self.cost(measurement) for measurement in measured])
        except KeyboardInterrupt:
            self.interrupt()
        except MeasurementError as error:
            self.worker_lost = True
            self.notes.append(str(error))

    def _prepared(self, rng: np.random.Generator, starts: Sequence[Config]) -> Strategy | None:
        """Ask the model, and return what proposes candidates; None where nothing can be compiled."""
        self.say("predicting" if self.advisor else "preparing")
        try:
            with self._part(0.75):  # without it nothing is generated
                load_all(*self.device.routines, *(self.advisor.model.routines if self.advisor else ()))
        except CompilerError as error:
            self.notes.append(f"nothing was generated, only libraries were compared: {error}")
            return None
        known = portfolio(self.space, self.work)
        first = list(dict.fromkeys([*starts, *self._remembered(), known[0]]))
        self._predict(known, first, rng)
        seeds = list(dict.fromkeys([*first, *self._ranked(known)]))
        return STRATEGIES[self.guidance.strategy](self.space, self.work, rng, seeds=seeds)

    def _measure_libraries(self) -> None:
        self.say("libraries")
        names = self.device.libraries(self.work)
        left = SEARCH_SHARE * self.limits.budget_s - self.limits.spent_s
        found = self._answers(names, None, left)
        for name, measurement in zip(names, found, strict=False):  # fewer when the time is up
            self.libraries[name] = measurement
            if measurement.note:
                self.notes.append(f"{name}: {measurement.note}")
        if self.work.halves and any(measurement.ok for measurement in self.libraries.values()):
            self.notes.append(
                f"libraries do not take {self.work.dtype_text}: they compute in float32, and their times "
                "include converting dense operands and results at every call"
            )

    # -- what a model says ---------------------------------------------------------------------------------

    @cached_property
    def advisor(self) -> Advisor | None:
        """The model that is asked, None where none is of use; a note says why. One that was shipped is read here."""
        if isinstance(self.guidance.model, Advisor):
            if self.guidance.model.made_for(self.work):
                return self.guidance.model
            op = self.guidance.model.model.card["op"]
            self.notes.append(f"the model was not asked: it is of {op}, and this is {self.work.op}")
        elif self.guidance.model == SHIPPED and self.device.in_process:  # those that are shipped are of CPUs
            problems: list[str] = []
            for found in load_bundled_advisors(self.work, self.device.threads, problems):
                if (why := found.model.misfit(self.space)) is None:
                    return found
                problems.append(why)
            self.notes += [f"the shipped model is not used: {problem}" for problem in problems]
        return None

    @cached_property
    def doubtful(self) -> bool:
        """Whether the model was trained for something else, so that larger errors are expected, and more is measured."""
        doubts = self.advisor.doubts(self.work, self.device.threads, self.space) if self.advisor else []
        if doubts:
            self.notes.append(
                f"the model was trained under other conditions ({'; '.join(doubts)}): the expected error of its predictions "
                f"is a factor of {2**DOUBTFUL:.1f} instead of {2**ERROR:.1f}, so that more candidates are measured"
            )
        return bool(doubts)

    def _predict(self, known: Sequence[Config], first: Sequence[Config], rng: np.random.Generator) -> None:
        """Predict the run times of ``known``, of ``first`` and of promising configs that the model finds.

        ``first`` are tried whatever the prediction.
        """
        if self.advisor is None:
            return
        until = self.limits.spent_s + MODEL_SHARE * self.limits.budget_s
        try:
            self.forecast = self.advisor.promising(
                self.work, self.space, self.device, list(dict.fromkeys([*known, *first])), rng,
                lambda: self.limits.spent_s > until, doubtful=self.doubtful,
            )  # fmt: skip
        except TensorwiseError as error:
            self.notes.append(f"the model cannot tell what is fast here: {error}")
            return
        named = [config for config in self.forecast.named if config not in first]
        self._untried = [*first, *(named if self.forecast.measures else named[:NAMED])]

    def _ranked(self, known: Sequence[Config]) -> list[Config]:
        """Return the known structures as the model ranks them, the default first."""
        if self.forecast is None:
            return list(known)
        place = {config: place for place, config in enumerate(self.forecast.scores)}
        return sorted(known, key=lambda config: -1 if config == known[0] else place[config])

    def _next(self, search: Strategy) -> list[Config]:
        """Return what to try: what the model says is worth it, then what the strategy proposes.

        Where calls are known and the model is believed, what is not worth it is not tried by chance either.
        """
        left = BATCH if self.limits.trials is None else self.limits.trials - self._ran
        worth = self._worth()
        ranked = sorted(worth, key=lambda config: -worth[config])
        few = FEW if self.forecast is not None and self.forecast.measures else BATCH
        chosen = [config for config in ranked[: min(few, left)] if worth[config] > 0]
        self._untried = [config for config in self._untried if config not in chosen]
        if chosen:
            return chosen
        final = self._untried and self._priced and not self.doubtful
        self._untried = []
        return [] if final else search.ask(min(BATCH, left))

    def _worth(self) -> dict[Config, float]:
        """Return how much what the model speaks of is worth measuring; what is not worth it has nothing or less.

        Before anything was measured, and by a model that says only in which order, all of it is worth the same.
        """
        forecast, best = self.forecast, self._best
        if forecast is None or not forecast.compared or best is None:
            return dict.fromkeys(self._untried, 1.0)
        conversion_s, price_s = self._conversion_s, self._price_s
        prospects = {config: forecast.prospect(config, conversion_s, price_s) for config in self._untried}
        calls = self.limits.calls if self._priced else None
        if calls is not None:
            return {config: worth_s(prospect, best, calls) for config, prospect in prospects.items()}
        return {config: chance(prospect, best) - CHANCE for config, prospect in prospects.items()}

    def _search_is_over(self) -> bool:
        if self.limits.trials is not None and self._ran >= self.limits.trials:
            return True
        if is_over():
            return True
        # However large the operand, the default program gets its chance.
        if not self.trials:
            return False
        return self.limits.spent_s >= SEARCH_SHARE * self.limits.budget_s or not self._pays()

    # -- what it costs -------------------------------------------------------------------------------------

    @property
    def _ran(self) -> int:
        """Candidates that count as tried: for what is refused without being run, others are tried, up to as many again."""
        refused = sum(trial.measurement.status == "refused" for trial in self.trials)
        return len(self.trials) - min(refused, self.limits.trials or 0)

    @property
    def _priced(self) -> bool:
        """Whether what another candidate may save is weighed against what measuring it costs."""
        return self.limits.calls is not None and self.limits.trials is None

    @property
    def _best(self) -> Prospect | None:
        """The best so far, a library or a candidate."""
        known = [m for m in (*self._tried, *self.libraries.values()) if m.ok]
        best = min(known, key=self.cost, default=None)
        return None if best is None else Prospect(best.seconds, conversion_s=best.conversion_s)

    @property
    def _tried(self) -> list[Measurement]:
        """What candidates took that ran."""
        return [trial.measurement for trial in self.trials if math.isfinite(trial.measurement.seconds)]

    @property
    def _price_s(self) -> float:
        """Seconds of compiling and measuring a candidate, in the mean so far."""
        return (self.limits.spent_s - self._begun) / len(self.trials)

    @property
    def _conversion_s(self) -> float:
        """Seconds of packing the operand for a candidate, in the median so far."""
        return float(np.median([measurement.conversion_s for measurement in self._tried]))

    def _pays(self) -> bool:
        """Whether another candidate is expected to save more than it costs; so it is where calls are not known.

        Its time is expected to be like that of the candidates so far. Those that are tried first resemble each other,
        so that a spread as usual counts beside what they show. What a model says is weighed candidate by candidate.
        """
        tried, best = self._tried, self._best
        if (
            not self._priced
            or self.limits.calls is None
            or self._untried
            or len(self.trials) < BATCH
            or not tried
            or best is None
        ):
            return True
        logs = np.log([max(m.seconds, SHORTEST_S) for m in tried])
        spread = math.sqrt((PRIOR * SPREAD**2 + logs.var() * len(logs)) / (PRIOR + len(logs)))
        another = Prospect(math.exp(logs.mean()), spread, self._conversion_s, self._price_s)
        return worth_s(another, best, self.limits.calls) > 0

    def _measure(self, configs: Sequence[Config]) -> Iterator[Measurement]:
        """Measure, remember and yield; fewer than asked for when the time is up."""
        programs = [self.space.program(self.work, config) for config in configs]
        known = [t.measurement.seconds for t in self.trials if t.measurement.ok]
        if known:  # however fast a library is, one candidate is timed to its end: the result states both
            known += [m.seconds for m in self.libraries.values() if m.ok]
        records: list[Record] = []
        scores = self.forecast.scores if self.forecast else {}
        try:
            left = SEARCH_SHARE * self.limits.budget_s - self.limits.spent_s
            results = self._answers(configs, min(known, default=None), left)
            for config, program, measurement in zip(configs, programs, results, strict=False):
                trial = Trial(config, program, measurement, self.limits.spent_s, scores.get(config))
                self.trials.append(trial)
                facts = self.work, self.device, self.space.name, config, self.device.provenance
                records.append(Record.of(measurement, *facts))
                if self.listener.observe is not None:
                    self.listener.observe(trial)
                self.say(f"{len(self.trials)} candidates")
                yield measurement
        finally:
            self._remember(records)

    def _answers(
        self, candidates: Sequence[Candidate], incumbent_s: float | None, left_s: float
    ) -> Iterator[Measurement]:
        """Yield the device's measurements.

        Raises:
            MeasurementError: the device is gone, fails in another way, or gives no measurement at all.
        """
        answered = 0
        try:
            for measurement in self.device.measure(
                self.work,
                candidates,
                incumbent_s=incumbent_s,
                limit_s=left_s if math.isfinite(left_s) else None,
            ):
                if not isinstance(measurement, Measurement):
                    raise TypeError(f"measure yields {shown(measurement)}, not a Measurement")
                answered += 1
                yield measurement
        except TensorwiseError as error:
            if isinstance(error, MeasurementError | OutOfTimeError):
                raise
            raise MeasurementError(f"the device {self.device.name!r} failed: {error}") from error
        except Exception as error:  # whatever a device of another package raises
            name = type(error).__name__
            raise MeasurementError(
                f"the device {self.device.name!r} failed: {name}: {reason(error)}"
            ) from error
        if candidates and not answered and not is_over():
            raise MeasurementError(
                f"the device {self.device.name!r} gave no measurement of {len(candidates)} candidates"
            )

    def cost(self, measurement: Measurement) -> float:
        """Seconds a call, with the conversion's share where the number of calls is known."""
        return per_call_s(measurement.cost, measurement.conversion_s, self.limits.calls)

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
        found = (self.space.migrate(r.config, self.work) for r in ranked)
        return list(dict.fromkeys(config for config in found if config is not None))[:REMEMBERED]

    def interrupt(self) -> None:
        """Stop measuring, and say so."""
        self.interrupted = True
        self.device.close()
        self.notes.append(INTERRUPTED)
