"""Predict what our own sparse kernels take on matrices of families held out, by CDMPP's model; see README.md.

    python experiments/cdmpp-latency/sparse_kernels.py CORPUS [--minutes 3] [--ops spmm,sddmm] [--page]

The loops of each config are read on its matrix once and kept in --cache. Steps that are in the result file are not
repeated, and a training goes on from its last epoch.
"""

import argparse
import json
import sys
import time
import tomllib
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from latencies.patterned import chosen, programs_of
from latencies.sparse_steps import judge, page, steps

from benchmarks.corpus import Results, UnfinishedError, resumable
from benchmarks.splits import PATH as SPLITS
from tensorwise.collect.corpus import patterns
from tensorwise.collect.workloads import Workloads
from tensorwise.device.hardware import Hardware
from tensorwise.store.reading import records_of
from tensorwise.toolchain.places import cache_dir

HERE = Path(__file__).parent


def _told(op: str, done: int, of: int) -> None:
    print(f"\r{op}: {done} of {of} matrices are read", end="", flush=True)


def main() -> None:
    """Read, train and judge what is left, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    option = parser.add_argument
    option("corpus", type=Path)
    option(
        "--records", type=Path, nargs="+", default=sorted((HERE.parent / "records").glob("cpu-zen5*.parquet"))
    )
    option("--ops", default="spmm,sddmm")
    option(
        "--minutes",
        type=float,
        default=float("inf"),
        help="begin no further matrix, epoch or step after these",
    )
    option("--only", default="", help="only steps whose names have this")
    option(
        "--cache",
        type=Path,
        default=cache_dir() / "cdmpp-sparse",
        help="for programs, checkpoints and models",
    )
    option("--fresh", action="store_true", help="forget what the result file holds")
    option("--page", action="store_true", help="only draw the page of what was found")
    option("--out", type=Path, default=HERE / "sparse.json")
    options = parser.parse_args()
    ends = time.monotonic() + 60 * options.minutes
    values = tomllib.loads((HERE / "sparse.toml").read_text())
    expected = json.loads((HERE / "expected.json").read_text())["sparse"]
    inputs = [
        *options.records,
        SPLITS,
        HERE / "latencies" / "sparse_steps.py",
        HERE / "latencies" / "patterned.py",
    ]
    results = Results(options.out, __doc__ or "", values, options.fresh, inputs=inputs, drawing=options.page)
    known = list(records_of(options.records)) if not options.page else []
    works, hardware = Workloads(patterns([options.corpus])), Hardware.from_json(values["hardware"])
    for op in () if options.page else options.ops.split(","):
        jobs = {job: some for job, some in chosen(known, op, values).items() if works.has(some[0])}
        try:
            programs = programs_of(
                jobs, works, hardware, options.cache, lambda: time.monotonic() < ends, partial(_told, op)
            )  # fmt: skip
        except UnfinishedError as error:
            raise SystemExit(f"\n{op}: {error}") from None
        print(f", {len(programs)} programs")
        todo = steps(op, programs, values, options.cache, ends)
        for key in results.left(key for key in todo if options.only in key):
            found = None if time.monotonic() > ends else todo[key]()
            if found is None:
                print("the time is over; the same command goes on from here")
                break
            results.add(key, found)
            print(f"{found['mape']:.1%}", flush=True)
    results.write(*judge(results.runs, expected))
    print(f"wrote {results.draw(page(json.loads(options.out.read_text()), expected))}")


if __name__ == "__main__":
    resumable(main)
