"""Optuna's search for sizes and settings of a method; trials that were cut off begin again where their checkpoints are."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from benchmarks.pages import card, document, paragraphs, table
from latencies import baselines
from latencies.baselines import Predict
from latencies.draw import curves
from latencies.steps import predictor
from tensorwise.errors import MissingExtraError
from tensorwise.front.svg import element
from tensorwise.ids import content_id
from tensorwise.model.latency import parts, train_latency
from tensorwise.model.latency_training import LatencyTraining
from tensorwise.model.programs import Programs

try:
    import optuna
except ImportError as error:
    raise MissingExtraError("optuna", "search", "searching for sizes of networks") from error

METHODS: Final = "cdmpp", "trees", "lstm"
STARTUP: Final = 5
"""Trials before any is ended early."""


@final
@dataclass(frozen=True)
class Search:
    """What all trials share.

    Attributes:
        programs: all that is measured; values: ``hyper.toml``.
        folder: of Optuna's journal and the trials' checkpoints; ends: value of ``time.monotonic`` at which it stops.
    """

    programs: Programs
    values: Mapping[str, Any]
    folder: Path
    ends: float

    def run(self, method: str, told: Callable[[str], None]) -> list[dict[str, Any]]:
        """Make the trials of a method that are left, and return all that are over, as ``trials_of`` does."""
        study = self.study(method)
        for trial in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):  # cut off
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            study.enqueue_trial(trial.params)
        if not study.get_trials() and (first := self.values[method].get("first")):
            study.enqueue_trial(self._choices(method, first))
        while len(trials_of(study)) < self.values["trials"] and time.monotonic() < self.ends:
            trial = study.ask()
            given = {part: self._drawn(trial, method, part) for part in ("sizes", "training")}
            try:
                predict: Predict | None = getattr(self, f"_{method}")(trial, **given)
            except optuna.TrialPruned:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                told(f"{method} {trial.number}: ended early")
                continue
            if predict is None:
                break
            _, chosen = self._split
            error = float(np.abs(predict(chosen) / chosen.seconds - 1).mean())
            study.tell(trial, error)
            told(f"{method} {trial.number}: {error:.1%}, best {study.best_value:.1%}")
        return trials_of(study)

    def study(self, method: str) -> "optuna.Study":
        """Return the study of a method as it was left."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.folder.mkdir(parents=True, exist_ok=True)
        journal = optuna.storages.journal.JournalFileBackend(str(self.folder / f"{method}.journal"))
        return optuna.create_study(
            study_name=method, storage=optuna.storages.JournalStorage(journal), load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=self.values["seed"]),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=self.values["epochs"] // 4),
        )  # fmt: skip

    def _drawn(self, trial: "optuna.Trial", method: str, part: str) -> dict[str, Any]:
        found = {}
        for name, values in self.values[method][part].items():
            key = f"{part}.{name}"
            if isinstance(values, dict):
                found[name] = trial.suggest_float(key, values["low"], values["high"], log=True)
            else:  # by place: Optuna takes no lists
                found[name] = values[trial.suggest_categorical(key, list(range(len(values))))]
        return found

    def _choices(self, method: str, given: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """What a trial would have drawn to have these settings; ``chosen`` the other way round."""
        return {
            f"{part}.{name}": value
            if isinstance(values := self.values[method][part][name], dict)
            else values.index(value)
            for part, some in given.items()
            for name, value in some.items()
        }

    @cached_property
    def _known(self) -> Programs:
        known = self.programs.without(self.values["held_out"])[0]
        rng = np.random.default_rng(self.values["seed"])
        return known.where(rng.random(len(known)) < self.values["share"])

    @cached_property
    def _split(self) -> tuple[Programs, Programs]:
        training, chosen, _ = parts(self._known, self.values["validation"], self.values["seed"])
        return training, chosen

    def _settings(self, training: Mapping[str, Any]) -> LatencyTraining:
        return LatencyTraining(epochs=self.values["epochs"], seed=self.values["seed"], **training)

    def _cdmpp(
        self, trial: "optuna.Trial", sizes: Mapping[str, Any], training: Mapping[str, Any]
    ) -> Predict | None:
        """None when the time is over; the checkpoint is found by what was drawn, whatever the trial's number."""

        def progress(member: int, epoch: int, loss: float, error: float) -> None:
            trial.report(error, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned

        place = self.folder / "checkpoints" / content_id([repr(sorted(trial.params.items()))])
        model = train_latency(
            self._known, self._settings(training), sizes=sizes, members=1, validation=self.values["validation"],
            checkpoints=place, budget_s=self.ends - time.monotonic(), progress=progress,
        )  # fmt: skip
        return None if model is None else predictor(model)

    def _lstm(self, trial: "optuna.Trial", sizes: Mapping[str, Any], training: Mapping[str, Any]) -> Predict:
        from latencies.lstm import train

        predict, _ = train(*self._split, self._settings(training), sizes["width"], float("inf"))
        return predict

    def _trees(self, trial: "optuna.Trial", sizes: Mapping[str, Any], training: Mapping[str, Any]) -> Predict:
        known, _ = self._split
        return baselines.boosted(baselines.flat, known, {**sizes, **training}, self.values["seed"])


def trials_of(study: "optuna.Study") -> list[dict[str, Any]]:
    """Return number, choices, error on validation (None: ended early) of the trials that are over."""
    done = optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED
    return [
        {
            "number": trial.number,
            "choices": trial.params,
            "error": trial.value if trial.state == done[0] else None,
        }
        for trial in study.get_trials(states=done)
    ]


def chosen(trial: Mapping[str, Any], ranges: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what a trial chose, by part, as ``values.toml`` has it."""
    found: dict[str, dict[str, Any]] = {part: {} for part in ("sizes", "training")}
    for key, value in trial["choices"].items():
        part, name = key.split(".")
        values = ranges[part][name]
        found[part][name] = value if isinstance(values, dict) else values[value]
    return found


def best_of(trials: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the trial with the least error."""
    return min(
        (one for one in trials if one["error"] is not None), key=lambda one: one["error"], default=None
    )


def page(results: Mapping[str, Any]) -> str:
    """Return the page of a result file."""
    runs, values = results["runs"], results["settings"]
    said = (
        "Errors (MAPE) on tasks of networks that a trial has not learned from; the networks that the experiment "
        "holds out are seen by none. Trials behind the median of the others at the same epoch end early."
    )
    parts = [element("h1", "Sizes and settings"), paragraphs([said, *results["summary"]])]
    lines = {}
    for method, run in runs.items():
        errors = [np.inf if one["error"] is None else one["error"] for one in run["trials"]]
        least = np.minimum.accumulate(errors) if errors else np.array([])
        lines[method] = [(n + 1.0, float(e)) for n, e in enumerate(least) if np.isfinite(e)]
    if any(lines.values()):
        drawn = curves(
            {m: line for m, line in lines.items() if line}, "least error", "trials", "{:.0%}".format
        )
        parts.append(card("The best so far", element("div", drawn, class_="plots")))
    for method, run in runs.items():
        done = sorted(
            (one for one in run["trials"] if one["error"] is not None), key=lambda one: one["error"]
        )
        names = [f"{part}.{name}" for part in ("sizes", "training") for name in values[method][part]]
        rows = []
        for one in done[:10]:
            own = chosen(one, values[method])
            told = [own[part].get(name) for part, name in (key.split(".") for key in names)]
            rows.append(
                [f"{one['error']:.2%}", *(f"{x:.2g}" if isinstance(x, float) else str(x) for x in told)]
            )
        parts.append(card(f"{method}: the ten best of {len(run['trials'])}", table(["error", *names], rows)))
    return document("CDMPP: sizes and settings", "\n".join(parts), ".plots svg { max-width: 560px; }")
