"""Judging a model on records: how well it ranks each job's configs, and how well measuring again would."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.model.metrics import Quality, mean_quality, quality
from tensorwise.model.model import CostModel
from tensorwise.model.samples import Times
from tensorwise.space.config import Config
from tensorwise.store.record import Record
from tensorwise.store.recorded import RecordedDevice

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

LEAST: Final = 8
"""Timed configs of a job below which nothing is said about their order."""
REPEATS: Final = 4
"""How often measuring again is simulated."""


@final
@dataclass(frozen=True)
class Judged:
    """How well one job's configs are ranked.

    Attributes:
        workload_id, pattern, family: what was measured.
        quality: of the model's predictions.
        again: of another measurement, were its times off as much as rounds say that these are, or without rounds as much as
            the job's times of the default config; None where that was not timed three times. No model can be expected to
            rank better.
    """

    workload_id: str
    pattern: str
    family: str
    quality: Quality
    again: Quality | None


def judge(
    model: CostModel,
    records: Iterable[Record],
    workloads: "Callable[[Record], Workload]",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Judged]:
    """Judge ``model`` on every job that has LEAST timed configs and more.

    A config that was given up or failed may be among the best predicted, and then takes a place without a time.

    Args:
        workloads: makes a record's workload, as ``Workloads.of`` does.
        progress: receives the number of jobs done and the total.

    Raises:
        InputError: no job has so many.
    """
    jobs: defaultdict[tuple[str, str, object], list[Record]] = defaultdict(list)
    for record in records:
        if record.is_isolated and not record.provenance.get("lost"):
            jobs[record.workload_id, record.device_id, record.provenance.get("job")].append(record)
    chosen = [job for job in jobs.values() if len({r.config for r in job if r.ok}) >= LEAST]
    if not chosen:
        raise InputError(f"no job among the records has {LEAST} timed configs; measure more of them")
    found = []
    for job in chosen:
        found.append(_judged(model, job, workloads(job[0])))
        progress(len(found), len(chosen))
    return found


def _judged(model: CostModel, job: Sequence[Record], workload: "Workload") -> Judged:
    records: defaultdict[Config, list[Record]] = defaultdict(list)
    for record in job:
        records[record.config].append(record)
    times = Times.of(records)
    repeated = max(([r.seconds for r in of if r.ok] for of in records.values()), key=len)
    predicted = model.predict(workload, list(records), RecordedDevice(job))
    first = job[0]
    return Judged(
        first.workload_id,
        str(first.provenance.get("pattern", first.workload_id)),
        str(first.provenance.get("family", first.workload_id)),
        quality(times.seconds, predicted, times.exact),
        _again(times, repeated),
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
