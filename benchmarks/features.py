"""Claim: the numbers of a matrix's pattern take at most 15 ms a million entries on one core, on the largest matrix of
each family of the corpus that has one of 200,000 entries and more.

    python benchmarks/features.py [--rounds 21] [--least 200000] [--fresh]

Median over the rounds of `MatrixPattern.features`, from entries in memory to the vector; nothing is kept from one round
to the next. A yardstick runs in the same rounds: what NumPy's ``bincount`` of the columns takes. Counting by NumPy, as
without a compiler, is timed once. ``off_by`` says how far numbers that are counted in a sample
(logarithms to base 2, and shares) lie from those of all entries, at most. Tensors and a small matrix are measured, too;
nothing is claimed about them. A matrix that is in the result file is not repeated.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from corpus import RESULTS, Item, Results, entries_of, items

from tensorwise.analysis import compiled, plain
from tensorwise.analysis.counts import skip
from tensorwise.analysis.matrix import MatrixPattern, numbers
from tensorwise.analysis.tensor import TensorPattern

LIMIT_MS, SMALL = 15.0, 10_000


def largest(order: int, least: int) -> list[Item]:
    """Return the largest matrix (order 2) or tensor (3) of each family."""
    found = {item.family: item for item in items(order, least=least)}
    return sorted(found.values(), key=lambda item: item.nonzeros)


def seconds(call: Callable[[], Any]) -> float:
    """Return what one call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(item: Item, rounds: int) -> dict[str, Any]:
    """Return ms a million entries, with what they depend on."""
    entries = entries_of(item.path)
    pattern = MatrixPattern() if entries.order == 2 else TensorPattern()
    columns = entries.coordinates[-1]
    taken: list[tuple[float, float]] = []
    for _ in range(rounds + 1):
        taken.append((seconds(lambda: pattern.features(entries)), seconds(lambda: np.bincount(columns))))
    ours, theirs = zip(*taken[1:], strict=True)  # the first round warms up
    scale = 1e9 / entries.nnz
    found = {
        "ms_per_million": statistics.median(ours) * scale,
        "best_ms_per_million": min(ours) * scale,
        "yardstick_ms_per_million": statistics.median(theirs) * scale,
        "ms": statistics.median(ours) * 1e3,
    }
    if entries.order == 2:
        all_of_it = numbers(compiled.matrix(entries, 1))
        found["off_by"] = float(abs(pattern.features(entries) - all_of_it).max())
        found["numpy_ms_per_million"] = seconds(lambda: plain.matrix(entries, skip(entries.nnz))) * scale
    return {
        **{name: round(value, 3) for name, value in found.items()},
        "family": item.family,
        "entries": entries.nnz,
        "shape": list(entries.shape),
    }


def summary(runs: Mapping[str, Mapping[str, Any]], least: int) -> tuple[list[str], bool]:
    """Return the lines that answer the claim, and whether it holds."""
    matrices = {name: run for name, run in runs.items() if len(run["shape"]) == 2}
    large = {name: run["ms_per_million"] for name, run in matrices.items() if run["entries"] >= least}
    slowest = sorted(large, key=large.__getitem__, reverse=True)[:3]
    over = [name for name, taken in large.items() if taken > LIMIT_MS]
    lines = [
        f"{len(large)} matrices: median {statistics.median(large.values()):.1f} ms a million entries; slowest: "
        + ", ".join(f"{name} {large[name]:.1f}" for name in slowest),
        f"over {LIMIT_MS:g} ms: {', '.join(over) or 'none'}",
        f"a sample's numbers are off by at most {max(matrices[name]['off_by'] for name in large):.3f}",
        "counting by NumPy: median "
        f"{statistics.median(matrices[name]['numpy_ms_per_million'] for name in large):.0f} ms a million",
    ]
    for name, run in runs.items():
        if name not in large:
            lines.append(
                f"{name} ({'x'.join(map(str, run['shape']))}, {run['entries']} entries): {run['ms']:.2f} ms, "
                f"{run['ms_per_million']:.1f} ms a million"
            )
    return lines, not over


def main() -> None:
    """Measure what is left, and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--least", type=int, default=200_000)
    parser.add_argument("--fresh", action="store_true")
    args = parser.parse_args()
    small = next(item for item in items(2) if item.nonzeros >= SMALL)
    wanted = {item.name: item for item in (small, *largest(2, args.least), *largest(3, args.least))}
    results = Results(
        RESULTS / "features.json",
        __doc__ or "",
        {"rounds": args.rounds, "least": args.least},
        args.fresh,
        inputs=[Path(__file__)],
    )
    for name in results.left(wanted):
        run = measure(wanted[name], args.rounds)
        print(
            f"{run['ms_per_million']:.2f} ms a million, NumPy {run.get('numpy_ms_per_million', '-')}",
            flush=True,
        )
        results.add(name, run)
    lines, holds = summary(results.runs, args.least)
    results.write(lines, holds)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
