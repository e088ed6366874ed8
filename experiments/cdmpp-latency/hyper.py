"""Search for sizes and settings of CDMPP's network and of what it is compared with, by Optuna; see README.md. Extra search.

    python experiments/cdmpp-latency/hyper.py RECORDS... [--methods cdmpp,trees,lstm] [--minutes 30]

After Ctrl-C, a kill or its minutes the same command goes on, with the trial that was cut off.
"""

import argparse
import json
import sys
import time
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from latencies.hyper import METHODS, Search, best_of, chosen, page

from benchmarks.corpus import Results, resumable
from benchmarks.splits import PATH as SPLITS
from benchmarks.splits import with_networks
from tensorwise.model.programs import Programs
from tensorwise.store.reading import records_of
from tensorwise.toolchain.places import cache_dir

HERE = Path(__file__).parent


def main() -> None:
    """Make the trials that are left, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option(
        "records",
        nargs="+",
        type=Path,
        help="stores or Parquet files, as `tensorwise tasks collect` makes them",
    )
    option("--methods", default=",".join(METHODS), help="which to search for, one after the other")
    option(
        "--minutes",
        type=float,
        default=float("inf"),
        help="for all of them; of the last one a trial is cut off",
    )
    option("--values", type=Path, default=HERE / "hyper.toml")
    option(
        "--cache",
        type=Path,
        default=cache_dir() / "cdmpp-hyper",
        help="for Optuna's journals and checkpoints",
    )
    option("--out", type=Path, default=HERE / "hyper.json")
    options = parser.parse_args()
    methods = options.methods.split(",")
    if odd := set(methods) - set(METHODS):
        parser.error(f"unknown methods {', '.join(sorted(odd))}; known: {', '.join(METHODS)}")
    values = with_networks(tomllib.loads(options.values.read_text()))
    inputs = [*options.records, SPLITS, HERE / "latencies" / "hyper.py"]
    results = Results(options.out, __doc__ or "", values, inputs=inputs)
    search = Search(
        Programs.of(records_of(options.records)),
        values,
        options.cache,
        time.monotonic() + 60 * options.minutes,
    )
    for method in methods:
        results.refuse_elsewhere()
        results.add(method, {"trials": search.run(method, lambda text: print(text, flush=True))})
    told = []
    for method, run in results.runs.items():
        best = best_of(run["trials"])
        if best is not None:
            own = json.dumps(chosen(best, values[method]))
            told.append(f"{method}: {best['error']:.1%} after {len(run['trials'])} trials, with {own}")
    complete = all(len(results.runs.get(m, {}).get("trials", ())) >= values["trials"] for m in METHODS)
    results.write(told, None)
    target = results.draw(page(json.loads(options.out.read_text())))
    print(*told, f"wrote {target}", "" if complete else "the same command goes on from here", sep="\n")


if __name__ == "__main__":
    resumable(main)
