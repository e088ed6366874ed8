"""The searches: each looks for the cheapest config with a number of evaluations."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from searches.problem import Problem, Settings, Trace
from tensorwise.errors import MissingExtraError
from tensorwise.search.genetic import Genetic
from tensorwise.search.walk import Walk
from tensorwise.space.param import ListedParam, Param
from tensorwise.space.params import Choice, Permutation

Search = Callable[[Problem, Trace, Settings, np.random.Generator], None]
"""(what to minimise, predictor, how long, generator)."""


def walk(problem: Problem, trace: Trace, settings: Settings, rng: np.random.Generator) -> None:
    """Walk the graph, until it rests at its best few; ours, after WACO's."""
    Walk(problem.graph, trace.rows, lambda row: bool(problem.valid[row])).take(settings.best)


def exhaustive(problem: Problem, trace: Trace, settings: Settings, rng: np.random.Generator) -> None:
    """Predict the whole pool at once."""
    trace.rows(np.arange(len(problem.graph)))


def random(problem: Problem, trace: Trace, settings: Settings, rng: np.random.Generator) -> None:
    """Predict configs of the pool in random order."""
    order = rng.permutation(len(problem.graph))[: settings.evaluations]
    for first in range(0, len(order), settings.batch):
        trace.rows(order[first : first + settings.batch])


def genetic(problem: Problem, trace: Trace, settings: Settings, rng: np.random.Generator) -> None:
    """Breed configs of the space, as G-Sparse does."""
    strategy = Genetic(problem.space, problem.workload, rng)
    while trace.evaluated < settings.evaluations:
        configs = strategy.ask(min(settings.batch, settings.evaluations - trace.evaluated))
        strategy.tell(configs, trace.configs(configs).tolist())


def tpe(problem: Problem, trace: Trace, settings: Settings, rng: np.random.Generator) -> None:
    """Let Optuna's tree-structured Parzen estimator suggest choices, which the space repairs to a valid config."""
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("optuna", "search", "searching with Optuna") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=int(rng.integers(2**31))))
    while trace.evaluated < settings.evaluations:
        trial = study.ask()
        choices = {param.name: _suggested(trial, param) for param in problem.space.params}
        config = problem.space.complete(choices, problem.workload)
        study.tell(trial, float(trace.configs([config])[0]))


def _suggested(trial: Any, param: Param) -> object:
    """Let Optuna choose a value: names by category, numbers by their place, orders by a priority of each item."""
    if isinstance(param, Permutation):
        priority = {item: trial.suggest_float(f"{param.name}.{item}", 0, 1) for item in param.items}
        return tuple(sorted(param.items, key=lambda item: priority[item]))
    if not isinstance(param, ListedParam):
        raise TypeError(f"{param.name} is of a kind that no suggestion is known for")
    places = param.range.size
    if isinstance(param, Choice):
        return param.range.values[trial.suggest_categorical(param.name, list(range(places)))]
    return param.range.values[trial.suggest_int(param.name, 0, places - 1)]


METHODS: Final[dict[str, Search]] = {
    "walk": walk,
    "random": random,
    "genetic": genetic,
    "tpe": tpe,
    "exhaustive": exhaustive,
}
"""All searches by name."""
WITHOUT_CHANCE: Final = ("walk", "exhaustive")
"""Searches that are the same for every seed."""
