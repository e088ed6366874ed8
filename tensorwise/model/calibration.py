"""Calibrating a model: its last layers are fitted to what a machine takes, near the weights that they had.

The earlier layers, which turn a pattern and a config into numbers, stay as they are: minutes of measurements are too few to
train them. The last ones are linear, so the fit has a closed form and needs NumPy only. Times are compared within a job.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.model.evaluation import MIN_TIMED_CONFIGS, JobEvaluation, evaluate_ranking
from tensorwise.model.metrics import mean_quality
from tensorwise.model.ranking import RankingModel
from tensorwise.model.samples import Group, groups_of
from tensorwise.store.record import Record

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

PRIOR_CONFIGS: Final = 200
"""The old weights count for as much as so many measured configs."""
FEWEST: Final = 3
"""Workloads to calibrate with: each is held out once."""


@final
@dataclass(frozen=True)
class Calibration:
    """What a calibration came to.

    Attributes:
        model: with last layers fitted to all workloads; the old one where that is no better.
        better: whether it ranks configs within ten times the best better than before, in the mean of held-out workloads.
        before, after: how well each workload's configs are ranked by the old model, and by one fitted to the others.
    """

    model: RankingModel
    better: bool
    before: list[JobEvaluation]
    after: list[JobEvaluation]


def calibrate(
    model: RankingModel, records: Sequence[Record], workloads: "Callable[[Record], Workload]"
) -> Calibration:
    """Fit the last layers of ``model`` to ``records``, and judge the fit on workloads that it has not seen.

    Args:
        records: of one device.
        workloads: makes a record's workload, as ``Workloads.of`` does.

    Raises:
        InputError: the model's scores are no ratios, or the records are of too few workloads.
    """
    if model.returns != "ratio":
        raise InputError(
            "the model says only in which order configs are fast; calibrate one that was trained with --loss ratio"
        )
    by_workload: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_workload[record.workload_id].append(record)
    enough = [
        name
        for name, some in by_workload.items()
        if len({r.config for r in some if r.ok}) >= MIN_TIMED_CONFIGS
    ]
    if len(enough) < FEWEST:
        raise InputError(
            f"{len(enough)} workloads with {MIN_TIMED_CONFIGS} timed configs are too few to calibrate with and to tell "
            f"whether it helps; measure {FEWEST} or more: name more patterns, or allow more time"
        )
    works = {name: workloads(by_workload[name][0]) for name in enough}
    samples = {name: _samples(model, by_workload[name], works[name]) for name in enough}
    before: list[JobEvaluation] = []
    after: list[JobEvaluation] = []
    for name in enough:
        others = [sample for other, sample in samples.items() if other != name]
        for one, judged in ((model, before), (fitted(model, others), after)):
            judged += evaluate_ranking(one, by_workload[name], lambda record: works[record.workload_id])
    old, new = (mean_quality(one.quality for one in judged).near_spearman for judged in (before, after))
    better = new > old
    return Calibration(fitted(model, list(samples.values())) if better else model, better, before, after)


def fitted(model: RankingModel, samples: Sequence[tuple[np.ndarray, np.ndarray]]) -> RankingModel:
    """Return ``model`` with last layers that fit ``samples``: least squares, with a prior at the old weights.

    Args:
        samples: for each workload the inputs of the last layers, float64, (heads, n, width), and log2 of the times, float64,
            (n,), both with their means subtracted.
    """
    seen = np.concatenate([inputs for inputs, _ in samples], axis=1)
    logs = np.concatenate([targets for _, targets in samples])
    old = model.last_layers
    new = np.empty_like(old)
    for head, inputs in enumerate(seen):
        squares = inputs.T @ inputs
        # As much as PRIOR_CONFIGS configs whose inputs are as large as those of the measured ones, in every direction.
        prior = (
            PRIOR_CONFIGS
            * max(np.trace(squares) / inputs.size, np.finfo(np.float32).tiny)
            * np.eye(len(squares))
        )
        new[head] = old[head] + np.linalg.solve(squares + prior, inputs.T @ (logs - inputs @ old[head]))
    return model.with_last_layers(new)


def sample(model: RankingModel, group: Group, workload: "Workload") -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs of the last layers for a group's configs, and log2 of their times, as ``fitted`` takes them.

    Only configs within ten times the best are used: a search has to rank these, and otherwise the slowest dominate the fit.

    Args:
        group: some times of which are known, with configs as ``model.read`` returns them.
    """
    timed = group.take(np.flatnonzero(group.near))
    seen, logs = model.seen_last(workload, timed.configs), timed.ratios.astype(np.float64)
    return seen - seen.mean(axis=1, keepdims=True), logs - logs.mean()


def _samples(
    model: RankingModel, records: Sequence[Record], workload: "Workload"
) -> tuple[np.ndarray, np.ndarray]:
    """The samples of all jobs of one workload as one."""
    groups = groups_of(
        records, None, model.table, lambda _, configs: model.encode(workload, configs), partly=True
    )
    parts = [sample(model, group, workload) for group in groups if group.near.any()]
    return np.concatenate([seen for seen, _ in parts], axis=1), np.concatenate([logs for _, logs in parts])
