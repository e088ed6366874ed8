"""Choose among versions of functions, as MLCD's case studies do, and place networks by what was learned; see README.md.

    python experiments/mlcd/run.py [BENCHMARK ...] [--minutes 7] [--full]

Without a name all of them, the networks last; each gets an equal share of the minutes that are left. Goes on where it was
stopped: after Ctrl-C, a kill or its minutes the same command measures what is left, and judges what is complete.
"""

import argparse
import json
import os
import sys
import time
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
# A library's second thread that is woken where the first one spins waits 4 ms for it, in a quarter of MKL's calls.
os.environ.setdefault("OMP_PROC_BIND", "true")
# SciPy's BLAS has threads of its own, which spin for 100 ms, longer than anybody waits before the next version is timed.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "24")  # 2^24 cycles: 6 ms
# A BLAS that is told to take this processor for an older one is no rival: it takes twice as long.
os.environ.pop("OPENBLAS_CORETYPE", None)
os.environ.pop("OPENBLAS_L2_SIZE", None)

from selections import stages
from selections.gemm import scipy_sgemm
from selections.page import drawn, page
from selections.table import BENCHMARKS
from selections.threads import place_others

from benchmarks.corpus import resumable
from tensorwise.toolchain.runtime import driver_address

HERE = Path(__file__).parent


def place_threads() -> None:
    """Give each thread of SciPy's BLAS a processor beside the main thread's, as OpenMP's have.

    It is loaded now, and so are our threads: both look where they may run when they are, and soon OpenMP binds the main one.
    """
    driver_address()
    scipy_sgemm()
    place_others()


def main() -> None:
    """Measure what is left, judge what is complete, and write the page."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    expected = json.loads((HERE / "expected.json").read_text())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    every = [*BENCHMARKS, "gnn"]
    option("benchmarks", nargs="*", choices=[*every, []], metavar="BENCHMARK", help=", ".join(every))
    option("--samples", type=int, help="inputs of each in all; default: what the claims ask for")
    option("--minutes", type=float, default=7.0, help="of measuring in this run")
    option("--full", action="store_true", help="the paper's ranges: needs its memory, and days")
    option("--libraries", action="store_true", help="measure igraph and GraphBLAS, too")
    option("--judge", action="store_true", help="measure nothing; judge what was measured so far")
    option("--out", type=Path, default=HERE / "results", help="folder of records, models and results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    place_threads()
    end, names = time.monotonic() + 60 * options.minutes, options.benchmarks or every
    target = options.out / "results.html"
    for place, name in enumerate(names):
        path = options.out / (name + "-full" * options.full)
        budget_s = (end - time.monotonic()) / (len(names) - place)
        if budget_s <= 0 and not options.judge:
            print("these minutes are over; the same command goes on")
            break
        if name == "gnn":
            told = stages.networks(path, values, full=options.full, budget_s=budget_s, judge=options.judge)
        else:
            told = stages.benchmark(
                name, path, values, full=options.full, samples=options.samples or values["samples"][name],
                budget_s=budget_s, libraries=options.libraries, judge=options.judge,
            )  # fmt: skip
        print(told, flush=True)
        target.write_text(drawn(page(options.out, expected), options.out), encoding="utf-8")
    print(f"wrote {target}")


if __name__ == "__main__":
    resumable(main)
