"""What all configs of a matrix take, and how much choosing among them matters."""

from pathlib import Path
from typing import Any

import numpy as np

from tensorwise.collect.augment import Augmentation
from tensorwise.collect.corpus import read_pattern
from tensorwise.device.spade import SpadeDevice
from tensorwise.program.workload import workload


def measured(device: SpadeDevice, path: Path, change: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return what the configs of a matrix take, in table order, and what follows from it."""
    entries = read_pattern(path, Augmentation.parse(change) if change else None)
    work = workload(values["op"], entries, n=values["n"])
    default, *configs = [device.space(work).default(work), *device.space(work).enumerate(work)]
    base, *seconds = [one.seconds for one in device.measure(work, [default, *configs])]
    best = int(np.argmin(seconds))
    return {
        "shape": list(entries.shape), "nnz": entries.nnz, "default_s": base, "optimum_s": seconds[best],
        "optimum": dict(configs[best]), "distinct": len(set(seconds)), "worst_s": max(seconds),
    }  # fmt: skip


def summary(runs: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Return how much choosing matters, over all matrices and where enough configs differ."""
    rich = [run for run in runs.values() if run["distinct"] >= expected["distinct"]]
    if not rich:
        return {"matrices": len(runs), "at_least_128_distinct": 0}
    gains = np.array([run["default_s"] / run["optimum_s"] for run in rich])
    chosen = [run["optimum"] for run in rich]
    return {
        "matrices": len(runs), "at_least_128_distinct": len(rich),
        "optimum_over_default": float(np.exp(np.log(gains).mean())), "published": expected["optimum_over_default"],
        "gains": {str(q): float(np.percentile(gains, q)) for q in (0, 25, 50, 75, 100)},
        "optimum_has": {
            name: {str(v): sum(one[name] == v for one in chosen) for v in dict.fromkeys(one[name] for one in chosen)}
            for name in chosen[0]
        },
    }  # fmt: skip
