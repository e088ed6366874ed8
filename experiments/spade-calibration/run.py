"""Simulate what SPADE and HotTiles published, and say how far the simulated accelerator is like theirs; see README.md.

    python experiments/spade-calibration/run.py [--seconds 80] [--only MYC,KRO] [--out results.json]

Runs that are in the result file are not repeated. Simulated seconds are the same on every machine.
"""

import argparse
import json
import sys
import time
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from sensitivities.graphs import GRAPHS
from sensitivities.runs import bypassing, planned, simulate
from sensitivities.table import lines

from benchmarks.corpus import continued, digests, write_json
from tensorwise.device.spade import SPADES, Machine

HERE = Path(__file__).parent


def main() -> None:
    """Simulate what is left, and write the table."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="nothing is begun after so long")
    parser.add_argument("--only", default="", help="these graphs only")
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    machines = {name: Machine.load(name).id for name in SPADES}
    inputs = digests([HERE / "values.toml", HERE / "sensitivities"])
    about = {"machines": machines, "inputs": inputs}
    kept = continued(options.out, inputs, options.fresh)
    results = kept["runs"] if kept.get("machines") == machines else {}
    start = time.monotonic()

    def done(runs: Any) -> bool:
        """Simulate those that are left, a graph at a time; False if time ran out."""
        left = [
            run
            for run in runs
            if run.name not in results and run.graph in (options.only.split(",") if options.only else GRAPHS)
        ]
        left.sort(key=lambda run: run.graph)
        entries = None
        for place, run in enumerate(left):
            if time.monotonic() - start > options.seconds:
                return False
            if entries is None or run.graph != left[place - 1].graph:
                entries = GRAPHS[run.graph]()
            results[run.name] = simulate(run, entries, values)
            print(f"{run.name}: {1e3 * results[run.name]['seconds']:.3f} ms", flush=True)
            write_json(options.out, {**about, "runs": results})
        return not options.only

    if done(planned(values)) and done([past for _, past in bypassing(values, results)]):
        found = list(lines(values, json.loads((HERE / "expected.json").read_text()), results))
        for line in found:
            print(
                f"{'holds' if line.holds else 'NO':5} {line.what}: published {line.published}, ours {line.ours} ({line.off})"
            )
        table = [asdict(line) for line in found]
        write_json(options.out, {**about, "table": table, "runs": results})


if __name__ == "__main__":
    main()
