"""Adapt a model to another device by measurements of a few matrices there (COGNATE).

The adaptation can be interrupted and resumed: each measurement is stored when it is taken, and none is repeated.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from tensorwise.adapt.sampling import representative
from tensorwise.collect.measuring import CONFIGS_PER_BATCH, Drawn, answers, initial
from tensorwise.device.device import Device
from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.model.additive import AdditiveModel
from tensorwise.model.gains import Gain, gain
from tensorwise.model.samples import Times
from tensorwise.model.transfer import TransferModel
from tensorwise.space.config import Config
from tensorwise.store.record import Record

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload
    from tensorwise.space.space import Space
    from tensorwise.store.store import Store

SAMPLES: Final = 100
"""Configs measured on a matrix (COGNATE, section 4.1)."""
FEWEST: Final = 2
"""Matrices to measure: each is held out once, to tell how good the model is."""


@final
@dataclass(frozen=True)
class Transferred:
    """What a transfer came to.

    Attributes:
        model: of the device, fitted to all that was measured.
        records: of each measured matrix by name, those that were there before among them.
        fresh: how many were measured by this run.
        expected: by matrix, the gain of choosing one of its measured configs with a model fitted to the other matrices only
            (leave one out). The optimum is the fastest measured config. Matrices without a time of the default config
            are left out.
    """

    model: AdditiveModel | TransferModel
    records: Mapping[str, Sequence[Record]]
    fresh: int
    expected: Mapping[str, Gain]


def transfer(
    start: TransferModel | None,
    device: "Device[Workload]",
    space: "Space",
    works: "Mapping[str, Workload]",
    *,
    budget: int,
    samples: int = SAMPLES,
    store: "Store | None" = None,
    facts: Mapping[str, Mapping[str, object]] | None = None,
    seed: int = 0,
    progress: Callable[[str, float], None] = lambda now, share: None,
) -> Transferred:
    """Measure a few matrices on ``device``, and return a model of it.

    Args:
        start: a trained model of another device to fine-tune; None: fit an AdditiveModel to the new measurements alone,
            which predicts better.
        device, space: where to measure, and what can be chosen there; the space has a ``mapper``.
        works: workloads of one operation by name. If the budget does not suffice for all, the most informative ones are
            chosen (see ``sampling.representative``).
        budget: number of measurements in all, counting those that the store has already.
        samples: smallest number of measurements of a matrix (or all configs, if the space has fewer).
        store: where measurements are kept; measurements of the chosen matrices in it are not repeated. On a simulated
            device (``provenance`` says so) all of these are used, on others only those made by earlier transfers.
        facts: further facts for the records of a workload, by its name, such as its ``family``.
        seed: of the choice of configs.
        progress: called with a description of the current step, and the share of measurements done.

    Raises:
        InputError: there are fewer than two matrices, the budget affords fewer, the device cannot run the operation, the
            space does not say how its configs are read as loops, or nothing that was measured can be compared.
        MeasurementError: the device is gone.
    """
    if len(works) < FEWEST:
        raise InputError(f"{len(works)} matrices are too few: each is held out once; name {FEWEST} or more")
    first = next(iter(works.values()))
    space.program(first, space.default(first))  # raises where the device does not know the operation
    least = min(samples, space.size_bound(first, limit=samples))
    count = min(len(works), budget // least)
    if count < FEWEST:
        raise InputError(
            f"a budget of {budget} does not afford {FEWEST} matrices with {least} configs each; allow {FEWEST * least}, or "
            "fewer samples a matrix"
        )
    names = representative(works, space, count, progress)
    plans = {name: _Plan.of(works[name], device, space, budget // count, seed, store) for name in names}
    total, records = sum(len(plan.left) for plan in plans.values()), dict[str, list[Record]]()
    done = 0
    for name, plan in plans.items():
        records[name] = list(plan.known)
        about = {**getattr(device, "provenance", {}), "pattern": name, **(facts or {}).get(name, {})}
        for begin in range(0, len(plan.left), CONFIGS_PER_BATCH):
            for one, measurement in answers(
                device, space, plan.work, plan.left[begin : begin + CONFIGS_PER_BATCH]
            ):
                how = {**about, **one.how, "job": plan.job}
                record = Record.of(measurement, plan.work, device, space.name, one.config, how)
                if store is not None:
                    store.append([record])
                records[name].append(record)
                done += 1
                progress(f"{name}: {done} of {total} configs", done / total)
    known = {plan.work.id: plan.work for plan in plans.values()}.__getitem__
    expected = {}
    for name, plan in plans.items():
        progress(f"testing without {name}", 1.0)
        others = [record for other, some in records.items() if other != name for record in some]
        found = _held_out(_learned(start, space, others, known), records[name], plan.work, device)
        if found is not None:
            expected[name] = found
    every = [record for some in records.values() for record in some]
    return Transferred(_learned(start, space, every, known), records, done, expected)


def _learned(
    start: TransferModel | None, space: "Space", records: Sequence[Record], known: "Callable[[str], Workload]"
) -> AdditiveModel | TransferModel:
    if start is not None:
        return start.transferred(space, records, known)
    model = AdditiveModel(space, known)
    model.fit(records)
    return model


@final
@dataclass(frozen=True)
class _Plan:
    """What is measured of one matrix.

    Attributes:
        known: what the store has of it; left: what it has not.
        job: what all records of it carry, so that they are compared with each other.
    """

    work: "Workload"
    known: list[Record]
    left: list[Drawn]
    job: str

    @classmethod
    def of(
        cls,
        work: "Workload",
        device: "Device[Workload]",
        space: "Space",
        samples: int,
        seed: int,
        store: "Store | None",
    ) -> "_Plan":
        job = content_id(["transfer", work.id, device.id, space.name])
        known = []
        for record in store.query(work.id, device.id, space.name) if store is not None else ():
            about: Mapping[str, Any] = record.provenance
            if not about.get("lost") and (about.get("job") == job or about.get("simulated")):
                known.append(replace(record, provenance={**about, "job": job}))
        have = {record.config for record in known}
        rng = np.random.default_rng([seed, int(work.id, 16)])
        left = [one for one in initial(space, work, rng, samples) if one.config not in have]
        return cls(work, known, left, job)


def _held_out(
    model: AdditiveModel | TransferModel,
    records: Sequence[Record],
    work: "Workload",
    device: "Device[Workload]",
) -> Gain | None:
    """What choosing by a model that has not seen a matrix gains on it; None without a time of the default config."""
    by_config: dict[Config, list[Record]] = {}
    for record in records:
        by_config.setdefault(record.config, []).append(record)
    times = Times.of(by_config)
    if np.isnan(times.default_s):
        return None
    costs = np.where(times.exact, times.seconds, np.inf)
    return gain(costs, model.predict(work, list(by_config), device), times.default_s)
