"""Choose among versions of functions, as MLCD's case studies do; see README.md.

    python experiments/mlcd/run.py gemm|gemm-relu|gemm-near|pagerank|nbody|kmotif ... [--minutes 15] [--full]

Goes on where it was stopped: after Ctrl-C, a kill or its minutes the same command measures what is left.
"""

import argparse
import json
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from selections.judging import judged
from selections.measuring import measure
from selections.page import page
from selections.table import BENCHMARKS

from benchmarks.corpus import machine
from tensorwise.data.parquet import read_records
from tensorwise.model.cases import Cases
from tensorwise.model.choosing import TreeModel

HERE = Path(__file__).parent


def main() -> None:
    """Measure what is left, judge, and write the page."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    expected = json.loads((HERE / "expected.json").read_text())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("benchmarks", nargs="+", choices=[*BENCHMARKS], metavar="BENCHMARK", help=", ".join(BENCHMARKS))
    option("--samples", type=int, help="inputs in all; default: what the claims ask for")
    option("--minutes", type=float, default=15.0, help="of measuring a benchmark in this run")
    option("--full", action="store_true", help="the paper's ranges: needs its memory, and days")
    option("--libraries", action="store_true", help="measure igraph and GraphBLAS, too")
    option("--judge", action="store_true", help="measure nothing; judge the records that were exported")
    option("--out", type=Path, default=HERE / "results", help="folder of records, models and results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.benchmarks:
        path = options.out / (name + "-full" * options.full)
        held = path.with_suffix(".json")
        took_s = json.loads(held.read_text())["described_s"] if options.judge and held.exists() else None
        if not options.judge:
            took_s = measure(
                name, path, values["full" if options.full else "scaled"], values["settings"],
                samples=options.samples or values["samples"][name], budget_s=60 * options.minutes,
                libraries=options.libraries,
            )  # fmt: skip
        cases = Cases.of(read_records(path.with_suffix(".parquet")))
        model = TreeModel()
        model.fit_cases(cases)
        model.save(path)
        found = judged(cases, values["settings"], values["initial"][name])
        about = {"benchmark": name, "full": options.full, "described_s": took_s, "machine": machine()}
        about |= found
        held.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    target = options.out / "results.html"
    target.write_text(page(options.out, expected), encoding="utf-8")
    print(f"wrote {target}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("\nstopped; the same command goes on from here") from None
