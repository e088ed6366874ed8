"""Move a cost model from CPU records to a simulated accelerator with a few matrices (COGNATE); see README.md.

    python experiments/cognate-transfer/run.py CORPUS [--ops spmm] [--machine spade] [--seconds 150] [--steps 10] [--page]

What configs touch of the patterns is counted once and kept in --cache. Steps that are in the result file are not repeated:
after Ctrl-C, or where --seconds or --steps ended it, the same command goes on. --page only draws.
"""

import argparse
import itertools
import json
import re
import sys
import time
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from cognate.data import sources, targets
from cognate.judging import judge
from cognate.page import page
from cognate.steps import Steps

from benchmarks.corpus import Results, UnfinishedError, resumable
from benchmarks.splits import PATH as SPLITS
from tensorwise.collect.corpus import patterns
from tensorwise.device.spade import SpadeDevice
from tensorwise.program.workload import Workload
from tensorwise.store.reading import records_of
from tensorwise.toolchain.places import cache_dir

HERE = Path(__file__).parent
RECORDS = HERE.parent / "records" / "cpu.parquet"


def main() -> None:
    """Read, learn and judge what is left, and write the page."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    expected = json.loads((HERE / "expected.json").read_text())
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--ops", default=",".join(values["ops"]), help="only these")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of counting, for each operation")
    parser.add_argument("--machine", default=values["machine"], help="the target; its table has this name")
    parser.add_argument(
        "--only", default="", help="steps with this in their names: 'fold 0', 'plain|additive|configs'"
    )
    parser.add_argument("--steps", type=int, help="do at most so many")
    parser.add_argument("--cache", type=Path, default=cache_dir() / "cognate-transfer")
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--page", action="store_true", help="only draw the page of what is known")
    parser.add_argument("--out", type=Path, help="results.json; of another machine results-MACHINE.json")
    options = parser.parse_args()
    values["machine"], usual = options.machine, options.machine == values["machine"]
    out = options.out or HERE / ("results.json" if usual else f"results-{options.machine}.json")
    torch.set_num_threads(1)  # networks this small only wait for each other
    device, known = SpadeDevice(values["machine"]), patterns([options.corpus])
    inputs = [HERE / f"{device.name}.parquet", RECORDS, SPLITS, HERE / "cognate"]
    settings = values | {"machine_id": device.id}
    results = Results(out, __doc__ or "", settings, options.fresh, inputs=inputs, drawing=options.page)
    records = [] if options.page else list(records_of([RECORDS]))
    for op in () if options.page else options.ops.split(","):
        ends = time.monotonic() + options.seconds
        left = lambda ends=ends: time.monotonic() < ends  # noqa: E731
        some, reads = [record for record in records if record.op == op], dict[str, Callable[[], Workload]]()
        try:
            source = sources(some, known, values["most_source"], options.cache, left, reads)
            target = targets(HERE / f"{device.name}.parquet", known, op, device, options.cache, left, reads)
        except UnfinishedError as error:
            raise SystemExit(f"{op}: {error}") from None
        workloads = cache(lambda workload_id, reads=reads: reads[workload_id]())
        steps = Steps(op, target, source, values, workloads).planned()
        todo = {key: steps[key] for key in steps if re.search(options.only, key) and key not in results.runs}
        results.work(dict(itertools.islice(todo.items(), options.steps)))
    results.write(*judge(results.runs, expected, values["few"]))
    print(f"wrote {results.draw(page(json.loads(out.read_text()), expected))}")


if __name__ == "__main__":
    resumable(main)
