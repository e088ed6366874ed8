"""Compare the learned tuner with other tuners, fixed code and libraries, and say when tuning pays; see README.md.

    python experiments/waco-tuner/run.py MODELS --records RECORDS [--ops spmv,spmm] [--matrices A,B] [--page]

Steps that are in the result file are not repeated: after Ctrl-C the same command goes on. --page only draws.
"""

import argparse
import json
import os
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tuners.choices import Settings, warm_folder
from tuners.judging import judge, kernel_runs
from tuners.page import page
from tuners.steps import Steps, models_in

from benchmarks.corpus import Results, resumable
from benchmarks.held_out import matrices, spread
from benchmarks.splits import PATH as SPLITS
from tensorwise.device.cpu import CpuDevice
from tensorwise.toolchain.compiler import find_compiler
from tensorwise.toolchain.threads import available_threads

HERE = Path(__file__).parent


def main() -> None:
    """Measure what is left, and write the page."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    expected = json.loads((HERE / "expected.json").read_text())
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    option = parser.add_argument
    option("models", type=Path, help="folder of a trained model, or one that holds several")
    option("--records", type=Path, action="append", default=[], help="that BestFormat learns from")
    option("--ops", default="spmv,spmm,sddmm,mttkrp", help="only these, where there is a model")
    option("--matrices", help="only these, several by commas")
    option("--limit", type=int, help="of each operation only so many, of all sizes")
    option("--trials", type=int, default=values["settings"]["trials"], help="of the long search, a seed")
    option("--threads", type=int, default=available_threads())
    option("--fresh", action="store_true", help="forget what the result file holds")
    option("--page", action="store_true", help="only draw the page of what was measured")
    option("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    given = values["settings"] | {"trials": options.trials, "threads": options.threads}
    settings, models, kernels = Settings(**given), models_in(options.models), kernel_runs()
    about = {"models": {op: one.id for op, one in models.items()}, "compiler": find_compiler().version}
    inputs = [HERE / "values.toml", *options.records, SPLITS, HERE / "tuners"]
    results = Results(
        options.out,
        __doc__ or "",
        asdict(settings) | about,
        options.fresh,
        inputs=inputs,
        drawing=options.page,
    )
    if not options.page:
        measure(options, settings, values["matrices"], models, results)
    results.write(*judge(results.runs, kernels, settings, expected))
    held = json.loads(options.out.read_text())
    print(f"wrote {results.draw(page(held, kernels, settings, values['applications'], expected))}")


def measure(options: Any, settings: Settings, sizes: Any, models: Any, results: Results) -> None:
    """Run the steps that are left."""
    os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = str(settings.threads)
    models = {op: one for op, one in models.items() if op in options.ops.split(",")}
    only = options.matrices.split(",") if options.matrices else ()
    chosen = {op: matrices(op, one.families, settings.n(op), sizes, only) for op, one in models.items()}
    chosen = {op: spread(some, options.limit) for op, some in chosen.items()}
    warm_folder(warm := options.out.with_suffix(".kernels") / "warm", models, settings.threads)
    with CpuDevice(settings.threads, seed=settings.seeds[0]) as device:
        steps = Steps(device, models, options.records, warm, settings)
        results.work(steps.planned(chosen, results.runs))


if __name__ == "__main__":
    resumable(main)
