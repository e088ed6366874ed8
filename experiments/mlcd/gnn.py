"""Place GCN and GraphSAGE on devices, kernel by kernel, by the tree that was learned from GEMM; see README.md.

    python experiments/mlcd/gnn.py MODEL [--minutes 8] [--count 40] [--full]

MODEL is the folder that `run.py gemm` wrote. Goes on where it was stopped: after Ctrl-C, a kill or its minutes the same
command measures what is left.
"""

import argparse
import json
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from selections.measuring import Progress
from selections.networks import drawn, kernels_of_networks, measure
from selections.page import page
from selections.placing import Measured, judged

from benchmarks.corpus import machine
from tensorwise.data.parquet import read_records, write_records
from tensorwise.data.store import Store
from tensorwise.model.choosing import TreeModel

HERE = Path(__file__).parent


def main() -> None:
    """Measure the kernels that are left, place all networks, and write the page."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    expected = json.loads((HERE / "expected.json").read_text())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("model", type=Path, help="folder of the tree that was learned from GEMM")
    option("--count", type=int, default=40, help="networks on synthetic graphs")
    option("--minutes", type=float, default=8.0, help="of measuring in this run")
    option("--full", action="store_true", help="the paper's ranges")
    option("--judge", action="store_true", help="measure nothing; judge the records that were exported")
    option("--out", type=Path, default=HERE / "results", help="folder of records and results")
    options = parser.parse_args()
    path = options.out / ("gnn" + "-full" * options.full)
    options.out.mkdir(parents=True, exist_ok=True)
    seed = values["settings"]["seed"]
    networks = drawn(values["full" if options.full else "scaled"]["gnn"], options.count, seed)
    if not options.judge:
        kernels = [kernel for some in networks.values() for kernel in some]
        with Store(path.with_suffix(".sqlite")) as store, Progress("gnn") as progress:
            measure(kernels, budget_s=60 * options.minutes, store=store, progress=progress)
            write_records(path.with_suffix(".parquet"), store.query(space=kernels_of_networks().space.name))
    model = TreeModel.load(options.model)
    measured = Measured(read_records(path.with_suffix(".parquet")), model, values["gpu"])
    known = {
        name: some for name, some in networks.items() if all(kernel.key in measured.took for kernel in some)
    }
    if not known:
        raise SystemExit("no network has all of its kernels measured yet; run it again")
    report = {
        "gnn": judged(known, measured, values["link"]), "measured gpu": measured.has_gpu, "networks": len(known),
        "of": len(networks), "machine": machine(),
    }  # fmt: skip
    path.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    target = options.out / "results.html"
    target.write_text(page(options.out, expected), encoding="utf-8")
    print(f"wrote {target}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("\nstopped; the same command goes on from here") from None
