"""What is remembered of packed products: their times beside the product in place, in searches and on users' calls."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from tensorwise.device.device import Device
from tensorwise.lower.program import Program
from tensorwise.program.workload import Workload
from tensorwise.space.config import Config
from tensorwise.space.space import Space
from tensorwise.store.record import MEASURED_BY, Record
from tensorwise.store.store import Store
from tensorwise.version import __version__

if TYPE_CHECKING:
    from tensorwise.sparse.packed import PackedProduct

IN_PLACE: Final = "in_place_ratio"
"""Key of the provenance: seconds over those of the product in place, measured in turn with it."""
SEARCHED: Final = "searched_s"
"""Key of the provenance: CPU seconds that the search could spend which measured it."""
BETTER: Final = 0.95
"""Share of the time in place that a packed product must stay below to be worth its memory and a trial."""
LARGER: Final = 4.0
"""A search that may spend this many times as much as the last one is worth making, though its outcome is known."""
FEW: Final = 8
"""Configs that must have been measured alone for the fastest of them to be named without another search."""


@final
@dataclass(frozen=True)
class Known:
    """A config that is known to be fast.

    Attributes:
        config: of the space.
        program: what it stands for.
        ratio: its seconds over those of the product in place.
    """

    config: Config
    program: Program
    ratio: float


def known_outcome(
    records: Sequence[Record], work: Workload, space: Space[Any], budget_s: float
) -> list[Known] | None:
    """Return what earlier searches and trials of this workload came to, the fastest first; None: search.

    A config that was tried on users' calls is as fast as it was there, whatever a search measured.

    Args:
        records: of the workload, on this device and in this space, oldest first.
        work: the workload.
        space: of the configs.
        budget_s: CPU seconds that a search could spend now.
    """
    usable = [r for r in records if r.ok and r.provenance.get("version") == __version__]
    ratios = _compared(usable, budget_s)
    if ratios is None:
        ratios = _measured_alone(usable, space.default(work))
    if ratios is None:
        return None
    found = []
    for config, ratio in sorted(ratios.items(), key=lambda one: one[1]):
        current = space.migrate(config, work) if ratio < BETTER else None
        program = None if current is None else space.program(work, current)
        if (
            current is not None and program is not None and program.remainder is None
        ):  # hybrids take two kernels
            found.append(Known(current, program, ratio))
    return found


def _compared(records: Sequence[Record], budget_s: float) -> dict[Config, float] | None:
    """Ratios to the product in place by config, where searches measured them that were not much smaller than one now."""
    ratios: dict[Config, float] = {}
    used: set[Config] = set()
    searched_s = 0.0
    for record in records:
        ratio, by_use = record.provenance.get(IN_PLACE), record.has_fact(MEASURED_BY, "use")
        if not isinstance(ratio, int | float) or (record.config in used and not by_use):
            continue
        ratios[record.config] = float(ratio)
        searched_s = max(searched_s, float(record.provenance.get(SEARCHED, 0.0)))  # type: ignore[arg-type]
        if by_use:
            used.add(record.config)
    return ratios if ratios and budget_s < LARGER * searched_s else None


def _measured_alone(records: Sequence[Record], default: Config) -> dict[Config, float] | None:
    """Ratios to the default config, which is much as the product in place, where a tuning measured many."""
    seconds: dict[Config, float] = {}
    for record in records:
        if record.is_isolated and record.seconds > 0:
            seconds[record.config] = record.seconds
    if len(seconds) < FEW or default not in seconds:
        return None
    return {config: took / seconds[default] for config, took in seconds.items()}


def outcome_facts(
    work: Workload, device: Device[Workload], space: Space[Any], config: Config, budget_s: float
) -> dict[str, Any]:
    """Return what a record of this config says besides seconds, JSON-able: the parent knows neither device nor space."""
    provenance = {"device": device.name, **device.provenance, SEARCHED: budget_s}
    return {
        "workload_id": work.id,
        "workload": work.describe(),
        "device_id": device.id,
        "space": space.name,
        "config": config.text,
        "provenance": provenance,
    }


def record_of(
    facts: Mapping[str, Any],
    how: str,
    seconds: float,
    in_place_s: float,
    spread_s: float = 0.0,
    **more: object,
) -> Record:
    """Return the record of an outcome.

    Args:
        facts: as `outcome_facts` returns them.
        how: ``background`` or ``use``.
        seconds: median of a call.
        in_place_s: the same of the product in place, called in turn with it.
        spread_s: interquartile range.
        more: entries of the provenance.
    """
    now = datetime.datetime.now(datetime.UTC).isoformat()
    told = {**facts["provenance"], "when": now, MEASURED_BY: how, IN_PLACE: seconds / in_place_s, **more}
    return Record(
        facts["workload_id"], facts["workload"], facts["device_id"], facts["space"], Config.parse(facts["config"]),
        seconds, spread_s, "ok", "", told,
    )  # fmt: skip


def record_outcome(
    product: "PackedProduct",
    seconds: float,
    in_place_s: float,
    *,
    calls: int,
    spread_s: float = 0.0,
    store: Store | None = None,
) -> None:
    """Remember what a packed product took on the user's calls. It writes to a file: call it in a thread of the background.

    The record's provenance has ``measured_by: use``, so that models are not trained with it.

    Args:
        product: what was tried.
        seconds: median of its calls.
        in_place_s: median of the calls in place that were made in turn with it.
        calls: of the product.
        spread_s: interquartile range of the product's calls.
        store: where; None: the default one.

    Raises:
        StoreError: it cannot be written.
    """
    record = record_of(product.facts, "use", seconds, in_place_s, spread_s, calls=calls)
    if store is not None:
        store.append([record])
        return
    with Store() as opened:
        opened.append([record])
