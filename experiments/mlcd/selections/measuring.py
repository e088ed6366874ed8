"""Measuring a benchmark, with one line that says how far it is."""

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

from selections.table import described_s, selection
from tensorwise.data.parquet import write_records
from tensorwise.data.store import Store
from tensorwise.device.versions import VersionsDevice

EVERY_S: Final = 1.0


@final
class Progress:
    """Prints what is going on and how long it will take, over the same line again and again.

    Args:
        name: what is measured.
    """

    def __init__(self, name: str) -> None:
        self.name, self._start_s, self._first, self._next_s = name, 0.0, -1.0, 0.0

    def __call__(self, now: str, share: float) -> None:
        """Say that ``share`` of the work is done; what was done before the first call took none of the time."""
        if self._first < 0:
            self._start_s, self._first = time.monotonic(), share
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + EVERY_S
        done, spent_s = share - self._first, time.monotonic() - self._start_s
        left = f"about {spent_s * (1 - share) / done / 60:.1f} min left" if done > 0.001 else ""
        print(f"\r{self.name}: {now}, {100 * share:.0f} % {left:<24}", end="", flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        print(flush=True)


def measure(
    name: str,
    path: Path,
    ranges: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    samples: int,
    budget_s: float,
    libraries: bool,
) -> float:
    """Measure inputs of a benchmark until a limit is met, and export all records that are known.

    Args:
        name: of the benchmark.
        path: without an ending: the store is PATH.sqlite, the export PATH.parquet.
        ranges: of inputs, a table of values.toml.
        settings: ``seed``, and ``budget_s`` for timing one input.
        samples: inputs in all.
        budget_s: seconds for measuring now.
        libraries: with versions of libraries.

    Returns:
        Seconds that the features of an input take.

    Raises:
        KeyboardInterrupt: somebody pressed Ctrl-C; what was measured is exported.
    """
    function = selection(name, ranges, libraries)
    device = VersionsDevice(
        function.space, function.agree, budget_s=settings["budget_s"], seed=settings["seed"]
    )
    with Store(path.with_suffix(".sqlite")) as store, Progress(name) as progress:
        model = function.train(
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
    return described_s(function)
