"""BestFormat: a selector that knows five formats, each with the schedule that suits it, and tells them by the pattern.

The five are those most frequent among the best configs of training records, as in WACO (section 5.1). What chooses is a
small decision tree over the numbers that describe patterns, grown so that the times of its choices are short; WACO takes
the networks of earlier work. Its families are those that the cost model has learned from.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

import numpy as np

from tensorwise.errors import InputError
from tensorwise.model.samples import featurizer
from tensorwise.program.workload import Workload
from tensorwise.space.config import Config, Value
from tensorwise.space.cpu import CpuSpace, cpu_space_of
from tensorwise.space.portfolio import portfolio
from tensorwise.space.readings import operand, stored_format
from tensorwise.store.record import Record

FORMATS: Final = 5
"""Formats that are told apart."""
DEPTH: Final = 4
"""Questions on the way to a leaf."""
LEAST: Final = 6
"""Workloads in a leaf."""
THRESHOLDS: Final = 16
"""Values of a number at which it is asked about."""


MOST: Final = 150
"""Workloads on which the formats are measured, at most."""

Make: TypeAlias = Callable[[], Workload]
Measure: TypeAlias = Callable[[Workload, Mapping[str, Config]], Mapping[str, float]]
"""Returns, of configs by name, the logarithms of their times over that of the default config, of those that ran."""


@dataclass(frozen=True)
class Sample:
    """A training workload.

    Attributes:
        features: numbers that describe its pattern, (fields,).
        logs: format -> logarithm of its time over that of the default config, where it ran.
    """

    features: np.ndarray
    logs: Mapping[str, float]


@dataclass(frozen=True)
class Known:
    """A format with its schedule: the choices in which it differs from the default config."""

    name: str
    choices: Mapping[str, Value]

    def config(self, space: CpuSpace, work: Workload) -> Config | None:
        """Return the config for a workload; None where the format cannot be had."""
        try:
            config = space.complete(self.choices, work)
        except InputError:
            return None
        return config if all(config[name] == value for name, value in self.choices.items()) else None


@dataclass(frozen=True)
class BestFormat:
    """A fitted selector.

    Attributes:
        formats: what it chooses from; counts: how often each was the best of a training workload.
        tree: a leaf is ``{"order": [numbers of formats, the fastest first]}``; any other node asks whether the number
            ``feature`` is at most ``at``, and goes on at ``yes`` or ``no``.
        workloads: how many it was fitted on.
    """

    formats: tuple[Known, ...]
    counts: Mapping[str, int]
    tree: Mapping[str, Any]
    workloads: int

    def choose(self, space: CpuSpace, work: Workload) -> Config:
        """Return the config of the format that is expected to be fastest and can be had for ``work``; else the default."""
        numbers = featurizer(work.entries.order).features(work.entries)
        order: list[int] = _leaf(self.tree, numbers)["order"]
        for place in order:
            config = self.formats[place].config(space, work)
            if config is not None:
                return config
        return space.default(work)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        formats = [{"name": known.name, "choices": Config(known.choices).text} for known in self.formats]
        return {
            "formats": formats,
            "counts": dict(self.counts),
            "tree": self.tree,
            "workloads": self.workloads,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read back what ``to_json`` returned."""
        formats = tuple(Known(one["name"], dict(Config.parse(one["choices"]))) for one in data["formats"])
        return cls(formats, data["counts"], data["tree"], data["workloads"])


def fit(jobs: Sequence[tuple[Make, Sequence[Record]]], measure: Measure) -> BestFormat:
    """Return the selector for some jobs: their workloads, with the records of all that was tried on them.

    The records say which formats are often the best. Which of these is fastest on each workload, with the schedule that
    suits it, is measured anew: in the records formats have as many schedules as chance gave them.

    Raises:
        InputError: no job has a time.
    """
    known, counts = frequent(jobs)
    samples = []
    for make, _ in jobs[:: -(-len(jobs) // MOST)]:
        work = make()
        space = cpu_space_of(work)
        configs = {one.name: one.config(space, work) for one in known}
        logs = measure(work, {name: config for name, config in configs.items() if config is not None})
        samples.append(Sample(featurizer(work.entries.order).features(work.entries), logs))
    tree = grow(np.stack([one.features for one in samples]), costs(samples, [one.name for one in known]))
    return BestFormat(tuple(known), dict(counts.most_common()), tree, len(samples))


def frequent(jobs: Iterable[tuple[Make, Sequence[Record]]]) -> tuple[list[Known], Counter[str]]:
    """Return the formats that are most often the best of a job, and how often each is.

    Only formats of the portfolio count: others were drawn by chance, and nobody knows a schedule for them.

    Raises:
        InputError: no job has a time.
    """
    known: dict[str, Known] = {}
    best: list[dict[str, float]] = []
    for make, records in jobs:
        work = make()
        space = cpu_space_of(work)
        default = space.default(work)
        for config in portfolio(space, work):
            name = name_of(config, work)
            changed = {one: value for one, value in config.items() if value not in (None, default[one])}
            known.setdefault(name, Known(name, changed))
        times: dict[str, float] = {}
        for record in records:
            if record.ok:
                name = name_of(record.config, work)
                times[name] = min(times.get(name, math.inf), record.seconds)
        best.append(times)
    ranked = [sorted((one for one in times if one in known), key=times.__getitem__) for times in best]
    counts = Counter(names[0] for names in ranked if names)
    if not counts:
        raise InputError("no job has a time of a known format: there is nothing to learn from")
    return [known[name] for name, _ in counts.most_common(FORMATS)], counts


def name_of(config: Mapping[str, Value], work: Workload) -> str:
    """Return the format of a config as text, and what it sets apart; of the workload only the modes' names enter."""
    text = str(stored_format(config, operand(work).indices))
    apart = config.get("apart")
    return text if apart in (None, "none") else f"{text}, {apart} apart"


def costs(samples: Sequence[Sample], formats: Sequence[str]) -> np.ndarray:
    """Return the logarithms of times, (samples, formats); one that nobody measured is expected to be as in the mean."""
    table = np.array([[one.logs.get(name, math.nan) for name in formats] for one in samples])
    return np.where(np.isnan(table), np.nanmean(table, axis=0), table)


def grow(features: np.ndarray, costs: np.ndarray, depth: int = DEPTH) -> dict[str, Any]:
    """Return the decision tree whose leaves' best formats take the least time.

    Args:
        features: (samples, fields); costs: (samples, formats), logarithms of times.
        depth: questions that may still be asked.
    """
    totals = costs.sum(axis=0)
    leaf = {"order": np.argsort(totals, kind="stable").tolist()}
    least, question = float(totals.min()) - 1e-9, None
    for feature in range(features.shape[1] if depth else 0):
        numbers = features[:, feature]
        for at in np.unique(np.quantile(numbers, np.linspace(0, 1, THRESHOLDS + 2)[1:-1], method="lower")):
            yes = numbers <= at
            if min(yes.sum(), (~yes).sum()) < LEAST:
                continue
            total = float(costs[yes].sum(axis=0).min() + costs[~yes].sum(axis=0).min())
            if total < least:
                least, question = total, (feature, float(at))
    if question is None:
        return leaf
    feature, at = question
    yes = features[:, feature] <= at
    parts = {
        "yes": grow(features[yes], costs[yes], depth - 1),
        "no": grow(features[~yes], costs[~yes], depth - 1),
    }
    return {"feature": feature, "at": at, **parts}


def _leaf(tree: Mapping[str, Any], numbers: np.ndarray) -> Mapping[str, Any]:
    while "order" not in tree:
        tree = tree["yes" if numbers[tree["feature"]] <= tree["at"] else "no"]
    return tree
