"""Measuring a job: configs are drawn, measured in batches and recorded, all of them or none.

Times of different minutes are not comparable on a machine that drifts. So every batch begins with the space's default
config, the anchor, and what counts is the ratio to the anchor of the same batch. Half of the configs are drawn from the
space, a quarter are known good ones, the rest are mutations of the best so far: a model must tell good from bad, and
also good from better.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tensorwise.data.job import Job
from tensorwise.data.record import Record
from tensorwise.device.cpu import CpuDevice
from tensorwise.device.device import Device, Measurement, Status
from tensorwise.errors import InputError, MeasurementError, TensorwiseError
from tensorwise.program.workload import Workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space
from tensorwise.space.portfolio import portfolio
from tensorwise.space.space import Space

BATCH: Final = 12
"""Configs between two anchors."""
RANDOM, KNOWN = 0.5, 0.25
"""Shares of the samples drawn from the space, and taken from the portfolio; the others are mutations."""
MUTATION: Final = 0.05
"""Probability that a further choice changes in a mutation: of some thirty, one or two."""
PARENTS: Final = 8
"""The fastest configs so far, of which mutations are made."""

Beat = Callable[[], None]
"""Called after every measurement: a sign of life."""


@dataclass(frozen=True)
class _Drawn:
    """A config, and what a Record says of how it was come by."""

    config: Config
    how: Mapping[str, object]


def measured(job: Job, beat: Beat = lambda: None) -> list[Record]:
    """Measure a job and return its records, failures and censored times among them.

    Each record's provenance has ``job``, ``pattern``, ``family``, ``batch`` and ``drawn``: ``default`` (the anchor),
    ``random`` (with ``log_probability``, natural logarithm), ``known`` or ``mutated`` (with ``parent``, a config id).
    Those that ended ok have ``conversion_s`` and ``bytes_held``, too.

    Raises:
        InputError: see ``Job.load``.
        MeasurementError: the device is gone, and nothing was measured.
    """
    name, work = job.load()
    space = cpu_space(work.assignment, next(iter(work.sparse)))
    rng = np.random.default_rng([int(job.digest, 16), job.variant, job.seed, 1])
    beat()
    records: list[Record] = []
    with job.open() as device:
        facts = _facts(job, name, device)
        anchor = _Drawn(space.default(work), {"drawn": "default"})
        cost: dict[Config, float] = {}
        mutations = job.samples - round(RANDOM * job.samples) - round(KNOWN * job.samples)
        stages: tuple[Callable[[], list[_Drawn]], ...] = (
            lambda: _first(space, work, rng, anchor.config, job.samples - mutations),
            lambda: _mutated(space, work, rng, cost, mutations),
        )
        batch = 0
        try:
            # The first measurement of a fresh worker takes up to four times as long as those that follow: not an anchor.
            for _ in _answers(device, space, work, [anchor]):
                beat()
            for stage in stages:
                drawn = stage()
                _compile(device, space, work, drawn)
                for begin in range(0, len(drawn), BATCH):
                    some = [anchor, *drawn[begin : begin + BATCH]]
                    for one, measurement in _answers(device, space, work, some):
                        how = {**facts, "batch": batch, **one.how, **_price(measurement)}
                        records.append(Record.of(measurement, work, device, space.name, one.config, how))
                        if measurement.ok:
                            cost[one.config] = measurement.seconds
                        beat()
                    batch += 1
        except MeasurementError:
            if not records:
                raise
    return records


def _price(measurement: Measurement) -> dict[str, object]:
    """What a format costs besides the time of a call: a tuning that must pay for itself learns it, too."""
    if not measurement.ok:
        return {}
    return {"conversion_s": measurement.conversion_s, "bytes_held": measurement.bytes_held}


def lost(job: Job, status: Status, note: str) -> Record:
    """Return the record of a job whose worker died or hung: the default config ended with ``status``.

    Raises:
        InputError: see ``Job.load``.
    """
    name, work = job.load()
    space = cpu_space(work.assignment, next(iter(work.sparse)))
    with job.open() as device:
        facts = {**_facts(job, name, device), "drawn": "default", "lost": True}
        failed = Measurement.failed(status, note)
        return Record.of(failed, work, device, space.name, space.default(work), facts)


def _facts(job: Job, name: str, device: Device) -> dict[str, object]:
    """What all records of a job say of how they were made."""
    about = {"threads": job.threads, "job": job.id, "pattern": name, "family": job.family}
    return {**getattr(device, "provenance", {}), **about}


def _compile(device: Device, space: Space, work: Workload, drawn: Sequence[_Drawn]) -> None:
    """Compile a stage at once: many kernels a file take a third less than a batch's few."""
    if not isinstance(device, CpuDevice):
        return
    programs = []
    for one in drawn:
        with contextlib.suppress(TensorwiseError):
            programs.append(space.program(work, one.config))
    device.compile(work, programs)


def _answers(
    device: Device, space: Space, work: Workload, drawn: Sequence[_Drawn]
) -> Iterator[tuple[_Drawn, Measurement]]:
    """Yield each of ``drawn`` with what it took; a config that is no program here is refused."""
    sound: list[_Drawn] = []
    for one in drawn:
        try:
            space.program(work, one.config)
        except TensorwiseError as error:
            yield one, Measurement.failed("refused", str(error))
        else:
            sound.append(one)
    yield from zip(sound, device.measure(work, [one.config for one in sound]), strict=False)


def _first(
    space: Space, work: Workload, rng: np.random.Generator, default: Config, count: int
) -> list[_Drawn]:
    """What needs no earlier measurement: known good configs and random ones, shuffled."""
    known = [config for config in portfolio(space, work) if config != default]
    most = round(count * KNOWN / (RANDOM + KNOWN))
    chosen = [known[int(place)] for place in rng.permutation(len(known))[:most]]
    drawn = [_Drawn(config, {"drawn": "known"}) for config in chosen]
    seen = {default, *chosen}
    for _ in range(4 * count):  # a small space has no more
        if len(drawn) >= count:
            break
        config, log_probability = space.sample_with_log_probability(work, rng)
        if config not in seen:
            seen.add(config)
            drawn.append(_Drawn(config, {"drawn": "random", "log_probability": log_probability}))
    return [drawn[int(place)] for place in rng.permutation(len(drawn))]


def _mutated(
    space: Space, work: Workload, rng: np.random.Generator, cost: Mapping[Config, float], count: int
) -> list[_Drawn]:
    """Neighbours of the fastest configs so far."""
    parents = sorted(cost, key=lambda config: cost[config])[:PARENTS]
    drawn: dict[Config, _Drawn] = {}
    for _ in range(4 * count if parents else 0):
        if len(drawn) >= count:
            break
        parent = parents[int(rng.integers(len(parents)))]
        with contextlib.suppress(InputError):
            child = space.mutate(parent, work, rng, rate=MUTATION)
            if child not in cost:
                drawn.setdefault(child, _Drawn(child, {"drawn": "mutated", "parent": parent.id}))
    return list(drawn.values())
