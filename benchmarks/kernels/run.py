"""Claim: over all corpus matrices of 10,000 nonzeros and more, in float32, on one and on two threads, the best
generated kernel is in geometric mean 1.5x (SpMV), 2x (SpMM, 32 and 256 columns; 2.2x on pruned networks) and 1.8x
(SDDMM, inner extent 32 and 256; 2.5x torch) as fast as the best baseline for that matrix, and slower than 0.95x on
at most 3 %, 1 % (none) and 1 % of them; MTTKRP of rank 16 and 64 is 1.5x as fast as Fixed CSF and 2x as fast as Numba
loops, slower on at most 5 %.

    python benchmarks/kernels/run.py [--ops spmv,spmm] [--part core] [--every 10] [--threads 1,2] [--trials 64] [--seed 0]

Baselines: SciPy, MKL's inspector-executor (which takes its generic path on AMD processors), torch.sparse, C
loops by gcc, Numba loops, pydata/sparse, and Fixed CSR: the frozen kernels that TACO generates
(``benchmarks/baselines/fixed_csr.c``). For each matrix the best generated kernel is searched (portfolio, random and
bred candidates) and chosen in rounds of its own; then it is timed again in fresh interleaved rounds with the default
kernel and all baselines. A speed-up is the median of ratios within a round. ``--part`` is ``all``, ``core``, a
family of the corpus, a matrix, or the beginning of names (``dlmc``), several by commas; ``--every 10`` takes every
tenth of it by size, so that a share of the corpus has all sizes. Runs that are in the
result file are not repeated; after Ctrl-C the same command goes on. ``page.py`` draws the figures. Baselines that are
not installed are left out and named: ``pip install -e '.[mkl,torch,numba]' sparse`` brings all but gcc.
"""

import argparse
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.baselines import BASELINES
from benchmarks.bench import Bench
from benchmarks.corpus import RESULTS, Item, Results, items, resumable
from benchmarks.kernels.measure import Settings, measure_here
from benchmarks.kernels.targets import BEST_BASELINE, case_name, reached, speedups
from tensorwise.errors import MeasurementError, TensorwiseError
from tensorwise.toolchain.compiler import find_compiler

LEAST = 10_000
OPS = ("spmv", "spmm", "sddmm", "mttkrp")


@dataclass(frozen=True)
class Wanted:
    """A run that is asked for."""

    item: Item
    op: str
    n: int | None
    threads: int

    @property
    def key(self) -> str:
        """Its name in the result file."""
        return f"{self.item.name} {case_name(self.op, self.n)} {self.threads}-threads"


def measured(bench: Bench, wanted: Wanted, settings: Settings) -> dict[str, Any]:
    """Run ``measure_here`` in the bench's process; when that dies of it, say so."""
    try:
        return bench.call(measure_here, wanted.item.path, wanted.op, wanted.n, wanted.threads, settings)
    except MeasurementError as error:
        return {"failed": {"all": str(error)}}
    except (TensorwiseError, MemoryError, OSError) as error:
        told = str(error).replace(str(wanted.item.path), wanted.item.path.name)  # results are of no folder
        return {"failed": {"all": f"{type(error).__name__}: {told}"[:300]}}


def wanted_runs(options: argparse.Namespace) -> list[Wanted]:
    """Return what the options ask for, by threads, smallest matrix first."""
    parts, ops = options.part.split(","), options.ops.split(",")
    sizes = {"spmv": [None], "mttkrp": [int(rank) for rank in options.ranks.split(",")]}
    chosen = [item for item in items(least=LEAST) if any(item.belongs_to(part) for part in parts)]
    orders = [[item for item in chosen if (item.order > 2) == tensor] for tensor in (False, True)]
    some = [item for group in orders for item in group[(options.every - 1) // 2 :: options.every]]
    some.sort(key=lambda item: item.nonzeros)
    return [
        Wanted(item, op, n, int(threads))
        for threads in options.threads.split(",")
        for item in some[: options.limit]
        for op in OPS
        if op in ops and (op == "mttkrp") == (item.order > 2)
        for n in sizes.get(op, [int(size) for size in options.sizes.split(",")])
    ]


def line_about(found: dict[str, Any]) -> str:
    """Return the progress line of a run."""
    if not found.get("speedup"):
        return f"FAILED: {found['failed']}"
    best = speedups([found], BEST_BASELINE).worst[1]
    each = ", ".join(f"{name} {ratio[0]:.2f}x" for name, ratio in found["speedup"].items())
    failed = f"; failed: {found['failed']}" if found["failed"] else ""
    return f"{best:.2f}x the best baseline ({each}){failed}; {found['note']}".rstrip("; ")


def main() -> None:
    """Run what is not in the result file yet, then print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Settings()
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--sizes", default="32,256", help="columns in SpMM, inner extents in SDDMM")
    parser.add_argument("--ranks", default="16,64", help="ranks of MTTKRP")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--part", default="all")
    parser.add_argument("--every", type=int, default=1, help="take every so many of the part, by size")
    parser.add_argument("--limit", type=int, help="the smallest so many of the part")
    parser.add_argument("--trials", type=int, default=default.trials, help="most candidates of a search")
    parser.add_argument("--budget", type=float, default=default.budget_s, help="most seconds of a search")
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--rounds", type=int, default=default.rounds, help="rounds of a comparison")
    parser.add_argument(
        "--rounds-s", type=float, default=default.rounds_s, help="seconds of a comparison's rounds"
    )
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=RESULTS / "kernels.json")
    options = parser.parse_args()
    settings = Settings(options.trials, options.budget, options.seed, options.rounds, options.rounds_s)
    baselines = [name for name, cls in BASELINES.items() if cls.installed()]
    if missing := [name for name in BASELINES if name not in baselines]:
        print(f"not installed, so not compared with: {', '.join(missing)}")
    results = Results(
        options.out,
        __doc__ or "",
        {**asdict(settings), "baselines": baselines, "compiler": find_compiler().version},
        options.fresh,
        inputs=[Path(__file__).with_name("measure.py")],
    )
    runs = {run.key: run for run in wanted_runs(options)}
    if not runs:
        raise SystemExit("no matrix of the corpus matches --part and --ops")
    left, start = len(runs.keys() - results.runs.keys()), time.perf_counter()
    for threads in dict.fromkeys(run.threads for run in runs.values()):
        with Bench(threads) as there:
            for key in results.left(key for key, run in runs.items() if run.threads == threads):
                run = runs[key]
                found = {
                    "name": run.item.name, "family": run.item.family, "op": run.op, "n": run.n, "threads": threads,
                    **measured(there, run, settings),
                }  # fmt: skip
                results.add(key, found)
                left -= 1
                passed = time.perf_counter() - start
                done = len(runs) - left
                print(
                    f"{line_about(found)} [{passed / 60:.0f} min passed, {left} of {done + left} left]",
                    flush=True,
                )
    told = reached(list(results.runs.values()))
    results.write([str(row) for row in told], all(row.met for row in told))
    print("\n".join(map(str, told)))


if __name__ == "__main__":
    resumable(main)
