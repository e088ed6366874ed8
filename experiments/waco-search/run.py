"""Compare searches for the config that a model predicts to be cheapest (WACO's Figure 5-8); see README.md.

    python experiments/waco-search/run.py MODEL [--op spmm] [--n 256] [--matrices A,B] [--methods walk,tpe] [--page]

Steps that are in the result file are not repeated: after Ctrl-C the same command goes on. --page only draws.
"""

import argparse
import json
import sys
import tomllib
from dataclasses import asdict, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from searches.methods import METHODS
from searches.page import judge, page
from searches.problem import Settings
from searches.steps import Steps

from benchmarks.corpus import Results, items, resumable
from tensorwise.model import load_model
from tensorwise.model.model import describe

HERE = Path(__file__).parent


def main() -> None:
    """Search what is left, and write the page."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    expected = json.loads((HERE / "expected.json").read_text())
    given = Settings(**{**values["settings"], "seeds": tuple(values["settings"]["seeds"])})
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, help="folder of a trained model that embeds configs")
    parser.add_argument("--op", default="spmm", help="that the model was trained for")
    parser.add_argument("--n", type=int, default=256, help="columns of B; 0 for operations without")
    parser.add_argument("--matrices", default=",".join(values["matrices"]["searched"]), help="only these")
    parser.add_argument("--methods", default=",".join(METHODS), help="only these")
    parser.add_argument("--configs", type=int, default=given.configs, help="in the pool")
    parser.add_argument("--evaluations", type=int, default=given.evaluations, help="of a search")
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--page", action="store_true", help="only draw the page of what was found")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    settings = replace(given, configs=options.configs, evaluations=options.evaluations)
    about = {"model": str(describe(options.model)["sha256"])[:16], "op": options.op, "n": options.n}
    recorded = {**asdict(settings), "seeds": list(settings.seeds), **about}
    inputs = [HERE / "values.toml", HERE / "searches"]
    results = Results(
        options.out, __doc__ or "", recorded, options.fresh, inputs=inputs, drawing=options.page
    )
    if not options.page:
        search(options, settings, values["matrices"]["drawn_for"], results)
    results.write(*judge(results.runs, expected))
    print(f"wrote {results.draw(page(json.loads(options.out.read_text()), expected))}")


def search(options: argparse.Namespace, settings: Settings, drawn_for: list, results: Results) -> None:
    """Run the steps that are left."""
    corpus, folder = {item.name: item for item in items(2)}, options.out.with_suffix(".graph")
    steps = Steps(load_model(options.model), folder, corpus, options.op, options.n or None, settings)
    planned = steps.planned(drawn_for, options.matrices.split(","), options.methods.split(","))
    results.work(planned)


if __name__ == "__main__":
    resumable(main)
