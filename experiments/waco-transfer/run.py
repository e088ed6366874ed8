"""Run programs chosen under one setting of this machine under another (WACO's Table 5.4, by proxy); see README.md.

    python experiments/waco-transfer/run.py [--ops spmm] [--matrices A,B] [--trials 128] [--page]

Steps that are in the result file are not repeated: after Ctrl-C the same command goes on. --page only draws.
"""

import argparse
import json
import sys
import tomllib
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from transfers.measure import Settings, two_settings
from transfers.page import judge, page
from transfers.steps import Steps

from benchmarks.baselines.fixed_csr import FixedCsr
from benchmarks.bench import Bench
from benchmarks.corpus import Results, items, resumable
from tensorwise.toolchain.compiler import find_compiler

HERE = Path(__file__).parent


def main() -> None:
    """Measure what is left, and write the page."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    expected = json.loads((HERE / "expected.json").read_text())
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    option = parser.add_argument
    option("--ops", default=",".join(values["compared"]["ops"]), help="only these")
    option("--matrices", default=",".join(values["compared"]["matrices"]), help="only these")
    option("--limit", type=int, help="only the first so many of these")
    option("--trials", type=int, default=values["settings"]["trials"], help="of a search, for each seed")
    option("--fresh", action="store_true", help="forget what the result file holds")
    option("--page", action="store_true", help="only draw the page of what was measured")
    option("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    settings, places = Settings(**{**values["settings"], "trials": options.trials}), two_settings()
    about = {"compared": [place.name for place in places], "compiler": find_compiler().version}
    inputs = [HERE / "values.toml", HERE / "transfers"]
    results = Results(
        options.out,
        __doc__ or "",
        asdict(settings) | about,
        options.fresh,
        inputs=inputs,
        drawing=options.page,
    )
    if not options.page:
        if not FixedCsr.installed():
            raise SystemExit("Fixed CSR is compiled with gcc: install gcc")
        names = options.matrices.split(",")[: options.limit]
        corpus = {item.name: item for item in items(2)}
        chosen = [corpus[name] for name in names if name in corpus]
        with ExitStack() as stack:
            benches = {place: stack.enter_context(Bench(place.threads, place.variables)) for place in places}
            steps = Steps(benches, settings)
            results.work(steps.planned(chosen, options.ops.split(","), results.runs))
    results.write(*judge(results.runs, expected))
    print(f"wrote {results.draw(page(json.loads(options.out.read_text()), expected))}")


if __name__ == "__main__":
    resumable(main)
