"""Choose among versions of GEMM, as MLCD's first case study does; see README.md.

    python experiments/mlcd-gemm/run.py [--samples 20000] [--minutes 8] [--guided-after 1000] [--nearby] [--full]

Goes on where it was stopped: after Ctrl-C, a kill or its minutes the same command measures what is left.
"""

import argparse
import json
import sys
import tomllib
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from gemm.versions import gemm, inputs, nearby

from tensorwise.data.store import Store
from tensorwise.model.cases import Cases
from tensorwise.model.choosing import cross_validated

HERE = Path(__file__).parent


def main() -> None:
    """Measure what is left, and judge the choice by cross-validation over shapes."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=20_000, help="inputs in all")
    parser.add_argument("--minutes", type=float, default=8.0, help="of measuring in this run")
    parser.add_argument("--guided-after", type=int, help="active learning, once so many inputs are known")
    parser.add_argument("--nearby", action="store_true", help="GEMM*: many nearby sizes")
    parser.add_argument("--full", action="store_true", help="the paper's ranges: needs its memory, and days")
    parser.add_argument("--folder", type=Path, default=HERE / "results")
    options = parser.parse_args()
    name = (
        "gemm" + "-nearby" * options.nearby + "-full" * options.full + "-active" * bool(options.guided_after)
    )
    ranges, settings = values["full" if options.full else "scaled"], values["settings"]
    selection = gemm(name, (nearby if options.nearby else inputs)(ranges))
    options.folder.mkdir(parents=True, exist_ok=True)
    with Store(options.folder / f"{name}.sqlite") as store:
        selection.train(
            samples=options.samples, budget_s=60 * options.minutes, guided_after=options.guided_after, store=store,
            seed=settings["seed"],
            progress=lambda now, share: print(f"\r{now}, {100 * share:.0f} %", end="", flush=True),
        )  # fmt: skip
        cases = Cases.of(store)
    selection.save(options.folder / name)
    chosen = cross_validated(cases, settings["folds"], np.random.default_rng(settings["seed"]))
    found = cases.quality(chosen).to_json()
    report = {"ranges": ranges, "settings": settings, "card": dict(selection.model.card), **found}
    (options.folder / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"\n{json.dumps(found, indent=1)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("\nstopped; the same command goes on from here") from None
