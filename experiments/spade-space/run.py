"""Simulate all 256 configs of many matrices: how much choosing matters on the simulated accelerators; see README.md.

    python experiments/spade-space/run.py CORPUS [--machine spade] [--seconds 80] [--out results.json]

CORPUS is a folder with a manifest. Matrices that are in the result file are not repeated.
"""

import argparse
import json
import sys
import time
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from sweeps.gains import measured, summary

from benchmarks.corpus import continued, digests, write_json
from tensorwise.collect.corpus import patterns
from tensorwise.device.spade import SPADES, SpadeDevice

HERE = Path(__file__).parent


def main() -> None:
    """Simulate what is left, and sum up."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    expected = json.loads((HERE / "expected.json").read_text())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--machine", choices=SPADES, help="this one only")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="nothing is begun after so long")
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    paths, start = {one.name: one.path for one in patterns([options.corpus])}, time.monotonic()
    inputs = digests([HERE / "values.toml", HERE / "sweeps"])
    kept = continued(options.out, inputs, options.fresh) | {"inputs": inputs}
    for machine in [options.machine] if options.machine else SPADES:
        device = SpadeDevice(machine)
        runs = kept[machine]["runs"] if kept.get(machine, {}).get("machine_id") == device.id else {}
        for name in values[machine]["matrices"]:
            if name in runs or time.monotonic() - start > options.seconds:
                continue
            runs[name] = measured(device, paths[name.partition("~")[0]], name.partition("~")[2], values)
            found = {"machine_id": device.id, "summary": summary(runs, expected), "runs": runs}
            kept[machine] = found
            write_json(options.out, kept)
            print(machine, name, f"{runs[name]['default_s'] / runs[name]['optimum_s']:.2f}", flush=True)
        print(json.dumps(kept[machine]["summary"], indent=1))


if __name__ == "__main__":
    main()
