"""Predict what tensor programs take on held-out networks and devices (CDMPP, section 7); see README.md.

    python experiments/cdmpp-latency/run.py RECORDS... [--minutes 3] [--only model] [--page]

Steps that are in the result file are not repeated, and a training goes on from its last epoch: after Ctrl-C, a kill or its
minutes the same command goes on. --page only draws.
"""

import argparse
import json
import sys
import time
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from latencies.judging import judge
from latencies.page import page
from latencies.steps import Experiment

from benchmarks.corpus import Results, resumable
from benchmarks.splits import PATH as SPLITS
from benchmarks.splits import with_networks
from tensorwise.model.programs import Programs
from tensorwise.store.reading import records_of
from tensorwise.toolchain.places import cache_dir

HERE = Path(__file__).parent


def main() -> None:
    """Train and judge what is left, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    option = parser.add_argument
    option(
        "records",
        nargs="+",
        type=Path,
        help="stores or Parquet files, as `tensorwise tasks collect` makes them",
    )
    option(
        "--networks",
        type=Path,
        nargs="+",
        default=[],
        help="whole networks, as `tensorwise tasks measure --json` says of them, a line each",
    )
    option("--minutes", type=float, default=float("inf"), help="begin no further epoch or step after these")
    option("--only", default="", help="only steps whose names begin so: model, study, device, ...")
    option("--values", type=Path, default=HERE / "values.toml")
    option("--cache", type=Path, default=cache_dir() / "cdmpp-latency", help="for checkpoints and models")
    option("--fresh", action="store_true", help="forget what the result file holds")
    option("--page", action="store_true", help="only draw the page of what was found")
    option("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    ends = time.monotonic() + 60 * options.minutes
    values = with_networks(tomllib.loads(options.values.read_text()))
    expected = json.loads((HERE / "expected.json").read_text())
    inputs = [*options.records, *options.networks, SPLITS, HERE / "latencies" / "steps.py"]
    results = Results(options.out, __doc__ or "", values, options.fresh, inputs=inputs, drawing=options.page)
    if not options.page:
        lines = [line for path in options.networks for line in path.read_text().splitlines()]
        networks = [json.loads(line) for line in lines if line.strip()]
        programs = Programs.of(records_of(options.records))
        steps = Experiment(programs, values, options.cache, ends, networks).steps()
        for key in results.left(key for key in steps if key.startswith(options.only)):
            found = None if time.monotonic() > ends else steps[key]()
            if found is None:
                print("the time is over; the same command goes on from here")
                break
            results.add(key, found)
            print(f"{found['mape']:.1%}" if "mape" in found else "done", flush=True)
    results.write(*judge(results.runs, expected))
    print(f"wrote {results.draw(page(json.loads(options.out.read_text()), expected, results.settings))}")


if __name__ == "__main__":
    resumable(main)
