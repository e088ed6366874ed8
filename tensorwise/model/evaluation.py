"""Evaluate a model on records: how well it ranks each job's configs, and how well a second measurement would."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.model.metrics import Quality, mean_quality, quality
from tensorwise.model.model import CostModel
from tensorwise.model.samples import Times
from tensorwise.moved import forward_names
from tensorwise.space.config import Config
from tensorwise.store.record import Record
from tensorwise.store.recorded import RecordedDevice

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

MIN_TIMED_CONFIGS: Final = 8
"""Number of timed configs that a job needs, so that its ranking is evaluated."""
REPEATS: Final = 4
"""Number of simulated second measurements."""


@final
@dataclass(frozen=True)
class PredictedConfig:
    """A config of a job: what the model predicted, and what was measured.

    Attributes:
        config: the config.
        drawn: how collection chose it: ``random``, ``known``, ``mutated``, ``default``, ...
        predicted: the model's score or seconds.
        seconds: measured; a lower bound where not ``exact``, infinite for a config that failed.
        exact: whether ``seconds`` is a time.
    """

    config: Config
    drawn: str
    predicted: float
    seconds: float
    exact: bool


@final
@dataclass(frozen=True)
class JobEvaluation:
    """How well one job's configs are ranked.

    Attributes:
        workload_id, pattern, family: what was measured.
        quality: of the model's predictions.
        again: of a simulated second measurement, an upper bound for any model. Its noise is the spread between rounds, or
            without rounds that of the job's times of the default config; None if that was timed fewer than three times.
        configs: each with its prediction and its time.
    """

    workload_id: str
    pattern: str
    family: str
    quality: Quality
    again: Quality | None
    configs: tuple[PredictedConfig, ...] = ()


def jobs_of(records: Iterable[Record]) -> list[list[Record]]:
    """Return the records of each job, without those that were not measured alone or were lost."""
    jobs: defaultdict[tuple[str, str, object], list[Record]] = defaultdict(list)
    for record in records:
        if record.is_isolated and not record.provenance.get("lost"):
            jobs[record.workload_id, record.device_id, record.provenance.get("job")].append(record)
    return list(jobs.values())


def evaluate_ranking(
    model: CostModel,
    records: Iterable[Record],
    workloads: "Callable[[Record], Workload]",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[JobEvaluation]:
    """Evaluate how ``model`` ranks the configs of every job with at least MIN_TIMED_CONFIGS timed configs.

    A config that failed or was given up may be among the k best predicted; it then counts as one of the k without a time.

    Args:
        workloads: makes a record's workload, as ``Workloads.of`` does.
        progress: receives the number of jobs done and the total.

    Raises:
        InputError: no job has so many timed configs.
    """
    chosen = [job for job in jobs_of(records) if len({r.config for r in job if r.ok}) >= MIN_TIMED_CONFIGS]
    if not chosen:
        raise InputError(
            f"no job among the records has {MIN_TIMED_CONFIGS} timed configs; measure more of them"
        )
    found = []
    for job in chosen:
        found.append(_evaluate_job(model, job, workloads(job[0])))
        progress(len(found), len(chosen))
    return found


def _evaluate_job(model: CostModel, job: Sequence[Record], workload: "Workload") -> JobEvaluation:
    records: defaultdict[Config, list[Record]] = defaultdict(list)
    for record in job:
        records[record.config].append(record)
    times = Times.of(records)
    repeated = max(([r.seconds for r in of if r.ok] for of in records.values()), key=len)
    predicted = model.predict(workload, list(records), RecordedDevice(job))
    first = job[0]
    configs = tuple(
        PredictedConfig(
            config, str(of[0].provenance.get("drawn", "")), float(score), float(seconds), bool(exact)
        )
        for (config, of), score, seconds, exact in zip(
            records.items(), predicted, times.seconds, times.exact, strict=True
        )
    )
    return JobEvaluation(
        first.workload_id,
        str(first.provenance.get("pattern", first.workload_id)),
        str(first.provenance.get("family", first.workload_id)),
        quality(times.seconds, predicted, times.exact),
        _again(times, repeated),
        configs,
    )


def _again(times: Times, repeated: Sequence[float]) -> Quality | None:
    costs, exact = times.seconds, times.exact
    in_rounds = ~np.isnan(times.errors)
    if in_rounds.any():
        noise = np.where(in_rounds, times.errors, np.median(times.errors[in_rounds]))
    elif len(repeated) >= 3:
        noise = np.full(len(costs), np.std(np.log(repeated), ddof=1))
    else:
        return None
    rng = np.random.default_rng(len(costs))
    logs = np.log(np.minimum(costs, 2 * costs[np.isfinite(costs)].max()))
    return mean_quality(
        quality(costs, logs + noise * rng.standard_normal(len(costs)), exact) for _ in range(REPEATS)
    )


__getattr__ = forward_names(__name__, {
    "LEAST": f"{__name__}:MIN_TIMED_CONFIGS", "Judged": f"{__name__}:JobEvaluation", "judge": f"{__name__}:evaluate_ranking",
})  # fmt: skip
