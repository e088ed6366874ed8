"""Measuring a benchmark, until a limit is met."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from selections.table import selection
from tensorwise.device.versions import VersionsDevice
from tensorwise.errors import InputError
from tensorwise.front.terminal import progress_bar
from tensorwise.store.parquet import read_records, write_records
from tensorwise.store.record import Record
from tensorwise.store.store import Store


def measure(
    name: str,
    path: Path,
    ranges: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    samples: int,
    budget_s: float,
    libraries: bool,
    of: Path | None = None,
) -> int:
    """Measure inputs of a benchmark until a limit is met, and export all records that are known.

    Args:
        name: of the benchmark.
        path: without an ending: the store is PATH.sqlite, the export PATH.parquet.
        ranges: of inputs, a table of values.toml.
        settings: ``seed``, and ``budget_s`` for timing one input.
        samples: inputs in all.
        budget_s: seconds for measuring now.
        libraries: with versions of libraries.
        of: another path, some of whose inputs are measured once more; else inputs are drawn.

    Returns:
        Inputs that are known by now.

    Raises:
        InputError: what is known was measured on another machine, or in another way.
        KeyboardInterrupt: somebody pressed Ctrl-C; what was measured is exported.
    """
    function = selection(name, ranges, libraries)
    device = VersionsDevice(
        function.space, function.agree, budget_s=settings["budget_s"], seed=settings["seed"]
    )
    inputs = None if of is None else _some(of, samples, settings["seed"])
    with Store(path.with_suffix(".sqlite")) as store, progress_bar(path.name) as progress:
        take_up(store, path.with_suffix(".parquet"))
        if len(store) and not store.count(device_id=device.id):
            raise InputError(
                f"{path} has records of another machine, or of an older way of timing; name another folder with --out"
            )
        model = function.train(
            inputs,
            samples=samples,
            budget_s=budget_s,
            store=store,
            seed=settings["seed"],
            progress=progress,
            device=device,
        )
        write_records(path.with_suffix(".parquet"), store.query(device_id=device.id))
    if any("interrupted" in note for note in model.card["notes"]):
        raise KeyboardInterrupt
    return int(model.card["inputs"])


def known(path: Path) -> tuple[list[Record], list[Record]]:
    """Return what was exported: what inputs took, and what they took at another time.

    Args:
        path: without an ending.
    """
    again = twice(path).with_suffix(".parquet")
    return [*read_records(path.with_suffix(".parquet"))], [*read_records(again)] if again.is_file() else []


def twice(path: Path) -> Path:
    """Where is kept what inputs took at another time."""
    return path.with_name(f"{path.name}-again")


def take_up(store: Store, exported: Path) -> None:
    """Put what was exported into a store that is empty, as it is in a fresh checkout: measuring goes on from there."""
    if not len(store) and exported.is_file():
        store.append(read_records(exported))


def _some(path: Path, count: int, seed: int) -> list[Any]:
    """Parameters of some of the inputs that were measured."""
    known = sorted({str(record.provenance["input"]) for record in read_records(path.with_suffix(".parquet"))})
    chosen = np.random.default_rng([seed, 1]).permutation(len(known))[:count]
    return [json.loads(known[place]) for place in chosen]
