"""Search for a network's schedules with CDMPP's model, with TVM's own, and at random (CDMPP, Figure 14 b); see README.md.

    python experiments/cdmpp-latency/search.py [bert-tiny] --folder networks [--model MODEL] [--isa avx2] [--threads 1]

Each task of the network is searched once with each guide, with equal trials; then the best programs of all guides are timed
together. Needs the extra tvm and, for TVM's own model, xgboost. Steps that are in the result file are not repeated.
"""

import argparse
import json
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from latencies.searches import page, steps, summary

from benchmarks.corpus import Results, resumable
from tensorwise.front.networks import latency_model
from tensorwise.tasks.cpu import TvmCpu
from tensorwise.tasks.cutting import TaskGraph
from tensorwise.toolchain.places import cache_dir

HERE = Path(__file__).parent


def main() -> None:
    """Search what is left, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("network", nargs="?", default="bert-tiny", help="of the folder, see `tensorwise tasks cut`")
    option("--batch", type=int, default=1, help="inputs at a time")
    option("--folder", type=Path, default=Path("networks"), help="where networks and tasks are kept")
    option("--model", type=Path, help="folder of the latency model; default: the user's")
    option("--isa", default="avx2")
    option("--threads", type=int, default=1)
    option("--values", type=Path, default=HERE / "search.toml")
    option("--cache", type=Path, default=cache_dir() / "cdmpp-search", help="for TVM's databases")
    option("--fresh", action="store_true", help="forget what the result file holds")
    option("--out", type=Path, default=HERE / "search.json")
    options = parser.parse_args()
    values = tomllib.loads(options.values.read_text())
    graph = TaskGraph.load(options.folder / "networks" / f"{options.network}-b{options.batch}.json")
    settings = {
        **values, "network": graph.name, "inputs": options.batch, "isa": options.isa, "threads": options.threads,
    }  # fmt: skip
    inputs = [HERE / "latencies" / "searches.py"]
    results = Results(options.out, __doc__ or "", settings, options.fresh, inputs=inputs)
    model, device = latency_model(options.model), TvmCpu(options.isa, options.threads)
    results.work(steps(graph, options.folder, model, device, values, options.cache))
    told, holds = summary(results.runs, graph.multiplicity)
    results.write(told, holds)
    target = results.draw(page(json.loads(options.out.read_text()), graph.multiplicity))
    print(*told, f"wrote {target}", sep="\n")


if __name__ == "__main__":
    resumable(main)
