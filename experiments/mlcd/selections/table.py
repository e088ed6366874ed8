"""The benchmarks by name."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from selections.gemm import gemm
from selections.motifs import motifs
from selections.nbody import nbody
from selections.pagerank import pagerank
from tensorwise.selection import Selection

BENCHMARKS: Final[Mapping[str, Callable[[str, Mapping[str, Any]], Selection]]] = {
    "gemm": gemm,
    "gemm-relu": gemm,
    "gemm-near": gemm,
    "pagerank": pagerank,
    "nbody": nbody,
    "kmotif": motifs,
}


def selection(name: str, values: Mapping[str, Any], libraries: bool = False) -> Selection:
    """Return a benchmark's function: its versions, and inputs.

    Args:
        name: one of ``BENCHMARKS``.
        values: ranges of inputs, a table of values.toml.
        libraries: with versions of libraries that were never seen to be fastest.
    """
    ranges = values[name.partition("-")[0]]
    return pagerank(name, ranges, libraries) if name == "pagerank" else BENCHMARKS[name](name, ranges)


def described_s(function: Selection, count: int = 20) -> float:
    """Return the median of the seconds that it takes to read the features of an input from its data."""
    assert function.inputs is not None
    assert function.make is not None
    rng, took_s = np.random.default_rng(1), list[float]()
    for _ in range(count):
        of = {name: value for name, value in function.inputs(rng).items() if name != "cell"}
        (made,) = function.make(**of)
        took_s.append(made.described_s)
    return float(np.median(took_s))
