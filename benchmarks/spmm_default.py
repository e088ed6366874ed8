"""Claim: SpMM with 256 columns in float32: the default generated CSR program, untuned, is at least 1.5x as fast
as MKL's inspector-executor in geometric mean at equal threads, over all corpus matrices of 10,000
nonzeros and more, and below 0.9x on at most 5 % of them.

    python benchmarks/spmm_default.py [--threads 1,2] [--limit N] [--budget 2] [--rounds 9]

The three kernels are timed in interleaved rounds by the measuring worker; a speedup is the median of
ratios within a round. A matrix that is in the result file is not repeated.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corpus import RESULTS, Results, entries_of, geometric_mean, items, resumable, speedups

from tensorwise.device.cpu import CpuDevice
from tensorwise.program.workload import workload
from tensorwise.space.cpu import cpu_space

COLUMNS, LEAST, TARGET, FLOOR, SHARE = 256, 10_000, 1.5, 0.9, 0.05


def measure(path: Path, device: CpuDevice, options: argparse.Namespace) -> dict[str, Any]:
    """Return medians, and the speedups over each library with their 95 % intervals."""
    entries = entries_of(path)
    work = workload("spmm", entries, n=COLUMNS)
    space = cpu_space(work.assignment, "A")
    program = space.program(work, space.default(work))
    found = device.rounds(
        work,
        {"default": program, "mkl": "mkl", "scipy": "scipy"},
        budget_s=options.budget,
        max_rounds=options.rounds,
    )
    told: dict[str, Any] = {
        "nonzeros": entries.nnz,
        "shape": list(entries.shape),
        "program": program.name,
        "failed": dict(found.failed),
    }
    table = found.table
    if table is None:
        return told
    told["note"], told["rounds"] = table.note, len(table.rounds)
    told["seconds"] = {name: table.median(name) for name in table.names}
    if "default" in table.names and "default" not in found.failed:
        ratios = {name: table.ratio(name, "default") for name in table.names if name != "default"}
        told["speedup"] = {
            name: [r.median, r.low, r.high] for name, r in ratios.items() if name not in found.failed
        }
    return told


def summary(runs: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the lines that answer the claim, and whether it holds."""
    failed = [key for key, found in runs.items() if "default" in found["failed"]]
    lines = [
        f"{len(runs)} runs; the default program failed on {len(failed)}: {', '.join(failed[:5]) or 'none'}"
    ]
    holds = not failed and bool(runs)
    for threads in sorted({key.split(" ")[1] for key in runs}):
        for library in ("mkl", "scipy"):
            ratios = {
                key.split(" ")[0]: found["speedup"][library][0]
                for key, found in runs.items()
                if key.split(" ")[1] == threads and library in found.get("speedup", {})
            }
            lines.append(f"{threads} against {library}: {speedups(ratios, FLOOR, 8)}")
            if library == "mkl" and ratios:
                below = sum(ratio < FLOOR for ratio in ratios.values()) / len(ratios)
                holds &= geometric_mean(ratios.values()) >= TARGET and below <= SHARE
    return lines, holds


def main() -> None:
    """Run what is not in the result file yet, then print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--core", action="store_true", help="the core set only")
    parser.add_argument("--limit", type=int, help="the first so many matrices")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds of rounds for a matrix")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=RESULTS / "spmm_default.json")
    options = parser.parse_args()
    matrices = {item.name: item for item in items(2, options.core, LEAST)[: options.limit]}
    settings = {"columns": COLUMNS, "budget_s": options.budget, "rounds": options.rounds}
    results = Results(options.out, __doc__ or "", settings, options.fresh, inputs=[Path(__file__)])
    for threads in map(int, options.threads.split(",")):
        with CpuDevice(threads) as device:
            for key in results.left(f"{name} {threads}-threads" for name in matrices):
                found = measure(matrices[key.split(" ")[0]].path, device, options)
                results.add(key, found)
                told = {name: f"{ratio[0]:.2f}x" for name, ratio in found.get("speedup", {}).items()}
                print(told or found["failed"], found.get("note", ""), flush=True)
    lines, holds = summary(results.runs)
    results.write(lines, holds)
    print("\n".join(lines), f"\nthe claim {'holds' if holds else 'does not hold'}")


if __name__ == "__main__":
    resumable(main)
