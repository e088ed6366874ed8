"""Judge how well models rank configs on matrices they have not learned from (WACO's section 5.3); see README.md.

    python experiments/waco-ranking/run.py NAME=MODEL [NAME=MODEL ...] [--records RECORDS] [--ops spmv] [--page]

Steps that are in the result file are not repeated: after Ctrl-C the same command goes on. --page only draws.
"""

import argparse
import json
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from rankings.judging import judge
from rankings.page import page
from rankings.steps import Settings, Steps, named

from benchmarks.corpus import Results, resumable
from benchmarks.held_out import spread
from benchmarks.splits import PATH as SPLITS
from tensorwise.device.cpu import CpuDevice
from tensorwise.toolchain.compiler import find_compiler
from tensorwise.toolchain.threads import available_threads

HERE = Path(__file__).parent


def main() -> None:
    """Measure and rank what is left, and write the page."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    expected = json.loads((HERE / "expected.json").read_text())
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    option = parser.add_argument
    option(
        "models",
        nargs="+",
        metavar="NAME=MODEL",
        help="folders of trained models; claims are of an operation's first",
    )
    option("--records", type=Path, action="append", default=[], help="judge by these, and measure nothing")
    option("--ops", default="spmv,spmm,sddmm,mttkrp", help="measure only these, where there is a model")
    option("--matrices", help="only these, several by commas")
    option("--limit", type=int, help="of each operation only so many, of all sizes")
    option("--configs", type=int, default=values["settings"]["configs"], help="of a matrix")
    option("--threads", type=int, default=available_threads())
    option("--fresh", action="store_true", help="forget what the result file holds")
    option("--page", action="store_true", help="only draw the page of what was measured")
    option("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    given = values["settings"] | {"configs": options.configs, "threads": options.threads}
    settings, models = Settings(**given), named(options.models)
    about = {"models": {name: one.id for name, one in models.items()}, "compiler": find_compiler().version}
    inputs = [HERE / "values.toml", *options.records, SPLITS, HERE / "rankings"]
    results = Results(
        options.out,
        __doc__ or "",
        asdict(settings) | about,
        options.fresh,
        inputs=inputs,
        drawing=options.page,
    )
    if not options.page:
        only = options.matrices.split(",") if options.matrices else ()
        with CpuDevice(settings.threads, seed=settings.seed) as device:
            steps = Steps(device, models, options.records, settings)
            chosen = steps.unseen(values["matrices"], only)
            some = {op: spread(chosen[op], options.limit) for op in options.ops.split(",") if op in chosen}
            results.work(steps.planned(some, results.runs))
    results.write(*judge(results.runs, expected))
    print(f"wrote {results.draw(page(json.loads(options.out.read_text()), expected))}")


if __name__ == "__main__":
    resumable(main)
