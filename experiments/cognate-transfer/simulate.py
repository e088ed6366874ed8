"""Simulate all configs of the matrices that enlarged.toml lists, and keep their seconds in MACHINE.parquet; see README.md.

    python experiments/cognate-transfer/simulate.py CORPUS [--machine spade] [--minutes 30]

A process a processor. What is in the table is not repeated: after Ctrl-C, a kill, or its minutes, the same command goes on.
"""

import argparse
import sys
import time
import tomllib
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from cognate.simulating import Simulations, each_simulated

from benchmarks.corpus import resumable
from tensorwise.collect.corpus import patterns
from tensorwise.device.spade import SpadeDevice

HERE = Path(__file__).parent


def main() -> None:
    """Simulate what is left, in the order of the list."""
    values = tomllib.loads((HERE / "enlarged.toml").read_text())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--machine", default="spade", choices=sorted(values["matrices"]))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="nothing is begun after so long")
    options = parser.parse_args()
    start, files = time.monotonic(), {one.name: one for one in patterns([options.corpus])}
    about = {"machine_id": SpadeDevice(options.machine).id, "n": str(values["n"])}
    table = Simulations(HERE / f"{options.machine}.parquet", about)
    jobs = [(op, name) for name, op in product(values["matrices"][options.machine], values["ops"])]
    left = table.left(jobs)
    rows = each_simulated(left, options.machine, files, values["n"], start + 60 * options.minutes)
    for done, row in enumerate(rows, 1):
        table.add(row)
        left_min = (time.monotonic() - start) / done * (len(left) - done) / 60
        apart = max(row["seconds"]) / min(row["seconds"])
        print(
            f"[{len(jobs) - len(left) + done}/{len(jobs)}] {row['op']} {row['pattern']}: {row['nnz']} entries, "
            f"slowest over fastest {apart:.2f} (about {left_min:.0f} min left)",
            flush=True,
        )
    print(f"{table.path}: {len(table.rows)} workloads")


if __name__ == "__main__":
    resumable(main)
