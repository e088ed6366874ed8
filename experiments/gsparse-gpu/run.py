"""Check, measure, learn, tune and compare graph operators on a GPU, as G-Sparse does; see README.md.

    python experiments/gsparse-gpu/run.py [--graphs FOLDER] [--minutes 8] [--stages tuning,comparison] [--page]

Goes on where it was stopped: after Ctrl-C, a kill or its minutes the same command does what is left. --page only draws.
"""

import argparse
import sys
import time
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from gsparse.graphs import graphs
from gsparse.page import page
from gsparse.steps import STAGES, Steps

from benchmarks.corpus import Results, resumable
from benchmarks.splits import PATH as SPLITS
from tensorwise.errors import TensorwiseError

HERE = Path(__file__).parent
LIMITS = ("least", "largest", "families")
"""Settings that say which matrices of a folder are graphs."""


def main() -> None:
    """Do what is left, as far as the minutes go, and write the page."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--graphs", type=Path, help="a folder of matrices; without it graphs are drawn")
    parser.add_argument("--minutes", type=float, default=8.0, help="of this run")
    parser.add_argument("--stages", default=",".join(STAGES), help="only these")
    parser.add_argument("--page", action="store_true", help="only draw the page of what was found")
    parser.add_argument("--again", action="store_true", help="try again what failed")
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--values", type=Path, help="other values than values.toml")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "results.json")
    options = parser.parse_args()
    values = tomllib.loads(options.values.read_text()) if options.values else values
    recorded = {**values["settings"], "graphs": options.graphs.name if options.graphs else "drawn"}
    inputs = [options.values or HERE / "values.toml", SPLITS, HERE / "gsparse"]
    results = Results(
        options.out, __doc__ or "", recorded, options.fresh, inputs=inputs, drawing=options.page
    )
    if not options.page:
        work(
            Steps(
                graphs(options.graphs, values["drawn"], *(values["settings"][name] for name in LIMITS)),
                values,
                options.out.parent,
            ),
            options,
            results,
        )
    print(f"wrote {results.draw(page({'runs': results.runs}))}")


def work(steps: Steps, options: argparse.Namespace, results: Results) -> None:
    """Do the steps that are left, stage by stage, until the minutes are over."""
    until = time.monotonic() + 60 * options.minutes
    options.out.parent.mkdir(parents=True, exist_ok=True)
    steps.tuned = results.runs
    for key in [key for key, run in results.runs.items() if "error" in run and options.again]:
        del results.runs[key]
    stages = options.stages.split(",")
    if all(key in results.runs for stage in stages for key in steps.planned(stage)):
        return
    try:
        print(f"on {steps.device.facts['name']}", flush=True)
    except TensorwiseError as error:  # not a failure of the first step, nor of all that follow
        raise SystemExit(f"nothing can be run: {error}") from None
    for stage in stages:
        for key in results.left(steps.planned(stage)):
            if time.monotonic() > until:
                print("the minutes are over; the same command goes on from here")
                return
            begin = time.monotonic()
            try:
                results.add(key, steps.run(key))
            except TensorwiseError as error:
                results.add(key, {"error": f"{type(error).__name__}: {error}"[:500]})
            print(f"{results.runs[key].get('error', 'done')} ({time.monotonic() - begin:.1f} s)", flush=True)
            if stage == "comparison" and "error" in results.runs[key]:
                print("the GPU may be spoiled for this process; the same command goes on from here")
                return
        steps.close()


if __name__ == "__main__":
    resumable(main)
