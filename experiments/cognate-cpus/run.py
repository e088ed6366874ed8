"""Use cost models on processors that they have not learned from (real ones, from records); see README.md.

    python experiments/cognate-cpus/run.py CORPUS [--ops spmm] [--steps 5] [--page]

Nothing is measured. What configs do on patterns is counted once and kept in --cache. Steps that are in the result file are
not repeated: after Ctrl-C, or where --steps ended it, the same command goes on. --page only draws.
"""

import argparse
import itertools
import json
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from processors.data import machine_groups
from processors.judging import judge
from processors.page import page
from processors.steps import Steps

from benchmarks.corpus import Results, resumable
from benchmarks.splits import PATH as SPLITS
from tensorwise.collect.corpus import patterns
from tensorwise.ids import content_id
from tensorwise.toolchain.places import cache_dir

HERE = Path(__file__).parent
RECORDS = HERE.parent / "records"


def main() -> None:
    """Read, learn and judge what is left, and write the page."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    expected = json.loads((HERE / "expected.json").read_text())
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--ops", default=",".join(values["ops"]), help="only these")
    parser.add_argument("--steps", type=int, help="do at most so many")
    parser.add_argument("--cache", type=Path, default=cache_dir() / "cognate-cpus")
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--page", action="store_true", help="only draw the page of what is known")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    torch.set_num_threads(1)  # networks this small only wait for each other
    files = {name: (RECORDS / file, threads) for name, (file, threads) in values["machines"].items()}
    about = {name: content_id([path.read_bytes()], 16) for name, (path, _) in files.items()}
    inputs = [*(path for path, _ in files.values()), SPLITS, HERE / "processors"]
    results = Results(
        options.out,
        __doc__ or "",
        values | {"records": about},
        options.fresh,
        inputs=inputs,
        drawing=options.page,
    )
    known, left = patterns([options.corpus]), options.steps
    for op in () if options.page else options.ops.split(","):
        steps = Steps(op, machine_groups(files, op, known, options.cache), values)
        todo = {key: step for key, step in steps.planned().items() if key not in results.runs}
        todo = dict(itertools.islice(todo.items(), left))
        left = None if left is None else left - len(todo)
        results.work(todo)
    results.write(*judge(results.runs, expected))
    print(f"wrote {results.draw(page(json.loads(options.out.read_text()), expected))}")


if __name__ == "__main__":
    resumable(main)
