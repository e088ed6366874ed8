"""Move a cost model from CPU records to a simulated accelerator with a few matrices (COGNATE); see README.md.

    python experiments/cognate-transfer/run.py CORPUS [--ops spmm] [--seconds 150] [--steps 10] [--page]

What configs touch of the patterns is counted once and kept in --cache. Steps that are in the result file are not repeated:
after Ctrl-C, or where --seconds or --steps ended it, the same command goes on. --page only draws.
"""

import argparse
import itertools
import json
import sys
import time
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from cognate.data import sources, targets
from cognate.judging import judge
from cognate.page import page
from cognate.steps import Steps

from benchmarks.corpus import Results, UnfinishedError, resumable
from tensorwise.data.corpus import patterns
from tensorwise.data.reading import records_of
from tensorwise.device.spade import SpadeDevice
from tensorwise.toolchain.places import cache_dir

HERE = Path(__file__).parent


def main() -> None:
    """Read, learn and judge what is left, and write the page."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    expected = json.loads((HERE / "expected.json").read_text())
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--ops", default=",".join(values["ops"]), help="only these")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of counting, for each operation")
    parser.add_argument("--only", default="", help="steps whose names have this, such as 'fold 0 network'")
    parser.add_argument("--steps", type=int, help="do at most so many")
    parser.add_argument("--cache", type=Path, default=cache_dir() / "cognate-transfer")
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--page", action="store_true", help="only draw the page of what is known")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    torch.set_num_threads(1)  # networks this small only wait for each other
    device, known = SpadeDevice(values["machine"]), patterns([options.corpus])
    results = Results(options.out, __doc__ or "", values | {"machine_id": device.id}, options.fresh)
    records = [] if options.page else list(records_of([HERE.parent / "records" / "cpu.parquet"]))
    for op in () if options.page else options.ops.split(","):
        ends = time.monotonic() + options.seconds
        left = lambda ends=ends: time.monotonic() < ends  # noqa: E731
        some = [record for record in records if record.op == op]
        try:
            source = sources(some, known, values["most_source"], options.cache, left)
            target = targets(HERE / f"{device.name}.parquet", known, op, device, options.cache, left)
        except UnfinishedError as error:
            raise SystemExit(f"{op}: {error}") from None
        steps = Steps(op, target, source, values).planned()
        todo = {key: steps[key] for key in steps if options.only in key and key not in results.runs}
        results.work(dict(itertools.islice(todo.items(), options.steps)))
    results.write(*judge(results.runs, expected, values["few"]))
    target_page = options.out.with_suffix(".html")
    target_page.write_text(page(json.loads(options.out.read_text()), expected), encoding="utf-8")
    print(f"wrote {target_page}")


if __name__ == "__main__":
    resumable(main)
