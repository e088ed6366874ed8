"""Choose formats, and formats on devices, from the measurements of ginkgo-data; see README.md.

    python experiments/mlcd-ginkgo/run.py FOLDER [--out results.json]

Nothing is timed: all figures follow from the files in FOLDER.
"""

import argparse
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from recordings.ginkgo import Transfers, records

from benchmarks.corpus import digests, machine, write_json
from tensorwise.model.cases import Cases, config_name
from tensorwise.model.choosing import cross_validated

HERE = Path(__file__).parent


def judged(cases: Cases, folds: int, seed: int) -> dict[str, Any]:
    """Return the measures of the choice, and the ideal speed that each version alone would keep."""
    found = cases.quality(cross_validated(cases, folds, np.random.default_rng(seed))).to_json()
    least = cases.seconds.min(axis=1).sum()
    alone = dict(
        zip(map(config_name, cases.configs), (least / cases.seconds.sum(axis=0)).tolist(), strict=True)
    )
    return {**found, "pois_alone": alone}


def main() -> None:
    """Judge the choice on each device, and over all of them."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    given = values["settings"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    listed = {name: tuple(values["transfers"][name]) for name in ("devices", "hosts")}
    transfers = Transfers(**{**values["transfers"], **listed})
    problems = records(options.folder, given["fields"], given["formats"])
    problems |= records(options.folder, given["fields"], given["formats"], transfers)
    results: dict[str, Any] = {}
    for name, found in sorted(problems.items()):
        cases = Cases.of(found)
        if len(cases) < given["fewest"]:
            continue
        results[name] = told = judged(cases, given["folds"], given["seed"])
        if name == "all":
            of = [config_name(config).partition(" on ")[2] for config in cases.configs]
            wins = np.bincount(cases.best, minlength=len(of)) / len(cases)
            told["device_wins"] = {d: float(wins[[one == d for one in of]].sum()) for d in dict.fromkeys(of)}
        print(
            f"{name}: {told['inputs']} matrices, PoIS {100 * told['pois']:.2f} %, penalty {100 * told['ppp']:.2f} %, "
            f"{told['speedup']:.2f} times as fast as always {told['constant']}", flush=True,
        )  # fmt: skip
    inputs = digests([HERE / "values.toml", HERE / "recordings", *sorted(options.folder.glob("**/*.json"))])
    write_json(options.out, {**values, "machine": machine(), "inputs": inputs, "results": results})


if __name__ == "__main__":
    main()
