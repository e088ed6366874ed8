"""Repeat WACO's motivation (Tables 2.1 and 2.2) and its analysis of speed-ups (Table 5.3, section 5.2.2); see README.md.

    python experiments/waco-motivation/run.py [--matrices A,B] [--ops spmv,spmm] [--trials 64] [--page]

Steps that are in the result file are not repeated: after Ctrl-C the same command goes on. --page only draws.
"""

import argparse
import functools
import json
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from motivation.page import page
from motivation.steps import Settings, Steps

from benchmarks.baselines.fixed_csr import FixedCsr
from benchmarks.corpus import Results, drawn_of, items, resumable
from tensorwise.device.cpu import CpuDevice
from tensorwise.toolchain.compiler import find_compiler
from tensorwise.toolchain.threads import available_threads

HERE = Path(__file__).parent


def main() -> None:
    """Measure what is left, and write the page."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    given = values["settings"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--matrices", help="only these, several by commas")
    parser.add_argument("--ops", default=",".join(values["sources"]["ops"]), help="of Table 5.3")
    parser.add_argument("--trials", type=int, default=given["trials"], help="candidates of a search")
    parser.add_argument("--seeds", type=int, default=len(given["seeds"]), help="searches a tuning space")
    parser.add_argument("--rounds", type=int, default=given["reporting_rounds"], help="rounds of the figures")
    parser.add_argument("--threads", type=int, default=available_threads())
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--page", action="store_true", help="only draw the page of what was measured")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    if not options.page:
        measure(options, values)
    if not options.out.exists():
        raise SystemExit(f"{options.out} does not exist; make it without --page")
    held, expected = json.loads(options.out.read_text()), json.loads((HERE / "expected.json").read_text())
    target = options.out.with_suffix(".html")
    target.write_text(drawn_of(page(held, values, expected), options.out), encoding="utf-8")
    print(f"wrote {target}")


def measure(options: argparse.Namespace, values: dict) -> None:
    """Run the steps that are left; a step that fails is noted, and so are those that build on it."""
    if not FixedCsr.installed():
        raise SystemExit("Fixed CSR is compiled with gcc: install gcc")
    chosen = {"trials": options.trials, "reporting_rounds": options.rounds, "threads": options.threads}
    seeds = tuple(values["settings"]["seeds"][: options.seeds])
    settings = Settings(**{**values["settings"], **chosen, "seeds": seeds})
    recorded = {**asdict(settings), "seeds": list(seeds), "compiler": find_compiler().version}
    inputs = [HERE / "values.toml", HERE / "motivation"]
    results = Results(options.out, __doc__ or "", recorded, options.fresh, inputs=inputs)
    only = options.matrices.split(",") if options.matrices else None
    corpus = {item.name: item for item in items(2) if only is None or item.name in only}
    with CpuDevice(settings.threads, seed=seeds[0]) as device:
        steps = Steps(device, corpus, settings).planned(values, options.ops.split(","))
        results.work({key: functools.partial(step, results.runs) for key, step in steps.items()})


if __name__ == "__main__":
    resumable(main)
