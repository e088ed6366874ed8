"""Recorded spaces: all configs of a kernel with their times on several GPUs, as benchmark_hub publishes them."""

import gzip
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tensorwise.errors import InputError

WARPS: Final = (32, 64)
"""Threads that run together on GPUs of NVIDIA and of AMD."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """A space that was measured whole.

    Attributes:
        kernel: its name.
        params: names of the params that take more than one value.
        values: (configs, params) float64.
        seconds: GPU -> (configs,) float64, infinite where a config failed.
    """

    kernel: str
    params: tuple[str, ...]
    values: np.ndarray
    seconds: dict[str, np.ndarray]

    def numbers(self) -> np.ndarray:
        """Return what a model sees of configs: (configs, fields) float64, of mean 0 and deviation 1.

        Powers of two of each param, of a block's threads and of a thread's elements, and whether blocks are whole warps.
        """
        columns = [np.log2(np.maximum(column, 0.5)) for column in self.values.T]
        threads, elements = (self._product(start) for start in ("block_size", "tile_size"))
        columns += [np.log2(threads), np.log2(elements), *(threads % warp == 0 for warp in WARPS)]
        table = np.column_stack(columns).astype(float)
        table = table[:, table.std(axis=0) > 0]
        return np.asarray((table - table.mean(axis=0)) / table.std(axis=0))

    def _product(self, start: str) -> np.ndarray:
        of = [place for place, name in enumerate(self.params) if name.startswith(start)]
        return np.asarray(self.values[:, of].prod(axis=1))


def recorded(folder: Path, kernel: str) -> Recorded:
    """Return a kernel's space, as far as all its GPUs have its configs.

    Args:
        folder: has files KERNEL_GPU.json.gz in the format T4 of the auto-tuning community: times in milliseconds.
        kernel: which.

    Raises:
        InputError: there is no file of the kernel, or one is malformed.
    """
    found: dict[str, dict[tuple[tuple[str, float], ...], float]] = {}
    for path in sorted(folder.glob(f"{kernel}_*.json.gz")):
        try:
            found[path.name.removeprefix(f"{kernel}_").removesuffix(".json.gz")] = dict(_times(path))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} has no times of configs that can be read: {error}") from error
    if not found:
        raise InputError(f"{folder} has no {kernel}_GPU.json.gz; the README says where the data is from")
    known = sorted(set.intersection(*map(set, found.values())))
    if not known:
        raise InputError(f"the GPUs of {kernel} in {folder} have no config in common")
    values = np.array([[value for _, value in config] for config in known])
    varied = values.std(axis=0) > 0
    params = tuple(name for (name, _), kept in zip(known[0], varied, strict=True) if kept)
    seconds = {gpu: np.array([times[config] for config in known]) for gpu, times in found.items()}
    return Recorded(kernel, params, values[:, varied], seconds)


def _times(path: Path) -> Iterator[tuple[tuple[tuple[str, float], ...], float]]:
    """Configs of a file, and their mean times in seconds."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        results: list[dict[str, Any]] = json.load(file)["results"]
    for result in results:
        config = tuple(sorted((name, float(value)) for name, value in result["configuration"].items()))
        runs = result["times"]["runtimes"] if result.get("invalidity") == "correct" else []
        yield config, 1e-3 * float(np.mean(runs)) if runs else math.inf
