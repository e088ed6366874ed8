"""Measuring a job: configs are drawn, measured in batches and recorded, all of them or none.

Times of different minutes are not comparable on a machine that drifts, and on a shared one not even those of different
tenths of a second. So every batch begins with the space's default config, the anchor, and those of a batch that are not
far slower than its best run against each other again, in interleaved rounds: what counts is their ratio to the anchor in
the same rounds. Half of the configs are drawn from the space, a quarter are known good ones, the rest are mutations of
the best so far, because a model must learn to tell good from bad, and good from better. A job may also name configs to
measure, such as those that a model predicts to be the fastest, so that its errors there are seen. If a space has no more
configs than are asked for, all of them are measured.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tensorwise.device.device import Device, Measurement
from tensorwise.device.rounds import MIN_ROUNDS, RoundTable
from tensorwise.errors import InputError, MeasurementError, TensorwiseError
from tensorwise.program.workload import Workload
from tensorwise.space.config import Config
from tensorwise.space.portfolio import portfolio
from tensorwise.space.space import Space
from tensorwise.store.record import Record

if TYPE_CHECKING:
    from tensorwise.collect.job import Job

CONFIGS_PER_BATCH: Final = 12
"""Configs between two anchors."""
RANDOM, KNOWN = 0.5, 0.25
"""Shares of the samples drawn from the space, and taken from the portfolio; the others are mutations."""
MUTATION: Final = 0.05
"""Probability that a further choice changes in a mutation: of some thirty, one or two."""
NEAR: Final = 4.0
"""What is slower than a batch's best by more than this is not timed again in rounds: its place is plain."""
COMPARISON_ROUNDS: Final = 6
ROUNDS_S: Final = 1.5
"""Rounds of a batch, and seconds for them, packing and verification included."""
PARENTS: Final = 8
"""The fastest configs so far, of which mutations are made."""

Beat = Callable[[], None]
"""Called after every measurement: a sign of life."""


@final
@dataclass(frozen=True)
class Drawn:
    """A config, and how it was chosen, for its Record.

    Attributes:
        config: the config.
        how: entries of the provenance.
    """

    config: Config
    how: Mapping[str, object]


def measured(job: "Job", beat: Beat = lambda: None) -> list[Record]:
    """Measure a job and return its records, failures and censored times among them.

    Each record's provenance has ``job``, ``pattern``, ``family``, ``batch``, ``kind`` (of machines, where the job has one)
    and ``drawn``: ``default`` (the anchor),
    ``random`` (with ``log_probability``, natural logarithm), ``known``, ``mutated`` (with ``parent``, a config id),
    ``named`` by the job, or ``every`` where the space is measured whole.
    Those that ended ok have ``conversion_s`` and ``bytes_held``, too; and those that ran in the rounds of their batch
    ``ratio``, their time over the anchor's, and ``ratio_error``, the standard error of its natural logarithm.

    Raises:
        InputError: see ``Job.load``.
        MeasurementError: the device is gone; what was measured before does not count, since a job is measured whole.
    """
    name, work = job.load()
    rng = np.random.default_rng([int(job.digest, 16), job.variant, job.seed, 1])
    beat()
    records: list[Record] = []
    with job.open() as device:
        facts, space = _facts(job, name, device), device.space(work)
        anchor = Drawn(space.default(work), {"drawn": "default"})
        cost: dict[Config, float] = {}
        mutations = job.samples - round(RANDOM * job.samples) - round(KNOWN * job.samples)
        named = {config: None for config in map(Config.parse, job.named) if config != anchor.config}
        others = [anchor.config, *named]
        stages: tuple[Callable[[], list[Drawn]], ...] = (
            lambda: [
                *(Drawn(config, {"drawn": "named"}) for config in named),
                *_first(space, work, rng, others, job.samples - mutations),
            ],
            lambda: _mutated(space, work, rng, cost, mutations),
        )
        if space.size_bound(work, limit=job.samples) <= job.samples:
            stages = (lambda: _every(space, work, anchor.config),)
        batch = 0
        # The first measurement of a fresh worker takes up to four times as long as those that follow: not an anchor.
        for _ in answers(device, space, work, [anchor]):
            beat()
        for stage in stages:
            drawn = stage()
            device.prepare(work, [one.config for one in drawn])
            for begin in range(0, len(drawn), CONFIGS_PER_BATCH):
                some = [anchor, *drawn[begin : begin + CONFIGS_PER_BATCH]]
                found = []
                for answer in answers(device, space, work, some):
                    found.append(answer)
                    beat()
                ratios = _ratios(device, work, found)
                beat()
                for one, measurement in found:
                    how = {
                        **facts,
                        "batch": batch,
                        **one.how,
                        **_price(measurement),
                        **ratios.get(one.config, {}),
                    }
                    records.append(Record.of(measurement, work, device, space.name, one.config, how))
                    if measurement.ok:
                        cost[one.config] = measurement.seconds
                batch += 1
    return records


def _price(measurement: Measurement) -> dict[str, object]:
    """What a format costs besides the time of a call: a tuning that must pay for itself learns it, too."""
    if not measurement.ok:
        return {}
    return {"conversion_s": measurement.conversion_s, "bytes_held": measurement.bytes_held}


def _ratios(
    device: Device, work: Workload, answers: Sequence[tuple[Drawn, Measurement]]
) -> dict[Config, dict[str, float]]:
    """Return what the rounds of a batch say of its configs; nothing where they say too little."""
    taken = {one.config: measurement.seconds for one, measurement in answers if measurement.ok}
    anchor = answers[0][0].config
    if not device.drifts or anchor not in taken:
        return {}
    limit_s = NEAR * min(taken.values())
    near = [config for config, seconds in taken.items() if config == anchor or seconds <= limit_s]
    if len(near) == 1:
        return {}
    compared = {config.id: config for config in near}
    table = device.rounds(work, compared, budget_s=ROUNDS_S, max_rounds=COMPARISON_ROUNDS).table
    if table is None or len(table.rounds) < MIN_ROUNDS or anchor.id not in table.names:
        return {}
    found = levels(table, anchor.id)
    return {
        config: dict(zip(("ratio", "ratio_error"), found[config.id])) for config in near if config.id in found
    }


def _facts(job: "Job", name: str, device: Device) -> dict[str, object]:
    """What all records of a job say of how they were made."""
    about = {"threads": job.threads, "job": job.id, "pattern": name, "family": job.family}
    kind = {"kind": job.kind} if job.kind else {}
    return {**device.provenance, **about, **kind}


def answers(
    device: Device, space: Space, work: Workload, drawn: Sequence[Drawn]
) -> Iterator[tuple[Drawn, Measurement]]:
    """Yield each of ``drawn`` with what it took; a config that is no program here is refused.

    Raises:
        MeasurementError: the device is gone.
    """
    sound: list[Drawn] = []
    for one in drawn:
        try:
            space.program(work, one.config)
        except TensorwiseError as error:
            yield one, Measurement.failed("refused", str(error))
        else:
            sound.append(one)
    found = device.measure(work, [one.config for one in sound])
    for one in sound:
        measurement = next(found, None)
        if measurement is None:
            raise MeasurementError(f"the device {device.name} ended before all configs were measured")
        yield one, measurement


def initial(space: Space, work: Workload, rng: np.random.Generator, samples: int) -> list[Drawn]:
    """Return up to ``samples`` configs that need no earlier measurement, the default one first.

    That is the whole space if it has no more configs; otherwise some configs known to be good, and random ones.
    """
    default = space.default(work)
    whole = space.size_bound(work, limit=samples) <= samples
    others = _every(space, work, default) if whole else _first(space, work, rng, [default], samples - 1)
    return [Drawn(default, {"drawn": "default"}), *others]


def _every(space: Space, work: Workload, default: Config) -> list[Drawn]:
    """All configs but the anchor."""
    return [Drawn(config, {"drawn": "every"}) for config in space.enumerate(work) if config != default]


def _first(
    space: Space, work: Workload, rng: np.random.Generator, others: Sequence[Config], count: int
) -> list[Drawn]:
    """What needs no earlier measurement: known good configs and random ones, shuffled, none of ``others`` among them."""
    known = [config for config in portfolio(space, work) if config not in others]
    most = round(count * KNOWN / (RANDOM + KNOWN))
    chosen = [known[int(place)] for place in rng.permutation(len(known))[:most]]
    drawn = [Drawn(config, {"drawn": "known"}) for config in chosen]
    seen = {*others, *chosen}
    for _ in range(4 * count):  # a small space has no more
        if len(drawn) >= count:
            break
        config, log_probability = space.sample_with_log_probability(work, rng)
        if config not in seen:
            seen.add(config)
            drawn.append(Drawn(config, {"drawn": "random", "log_probability": log_probability}))
    return [drawn[int(place)] for place in rng.permutation(len(drawn))]


def _mutated(
    space: Space, work: Workload, rng: np.random.Generator, cost: Mapping[Config, float], count: int
) -> list[Drawn]:
    """Neighbours of the fastest configs so far."""
    parents = sorted(cost, key=lambda config: cost[config])[:PARENTS]
    drawn: dict[Config, Drawn] = {}
    for _ in range(4 * count if parents else 0):
        if len(drawn) >= count:
            break
        parent = parents[int(rng.integers(len(parents)))]
        with contextlib.suppress(InputError):
            child = space.mutate(parent, work, rng, rate=MUTATION)
            if child not in cost:
                drawn.setdefault(child, Drawn(child, {"drawn": "mutated", "parent": parent.id}))
    return list(drawn.values())


def levels(table: RoundTable, unit: str) -> dict[str, tuple[float, float]]:
    """Return the time of each variant over that of ``unit``, and the standard error of that ratio's natural logarithm.

    Each time is first divided by the geometric mean of its round; the median over rounds is used. The mean of a round
    varies less than any single time in it, so many variants can be told apart better than by ``RoundTable.ratio``.
    """
    logs = table.log_relative()
    middle = np.median(logs, axis=0)
    # the median's error is 1.25 times the mean's
    error = (
        1.25 * logs.std(axis=0, ddof=1) / math.sqrt(len(logs))
        if len(logs) > 1
        else np.full(len(middle), np.inf)
    )
    at = table.names.index(unit)
    ratios = np.exp(middle - middle[at])
    return {
        name: (float(ratios[k]), float(np.hypot(error[k], error[at]))) for k, name in enumerate(table.names)
    }
