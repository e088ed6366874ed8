"""Print what figures of WACO's experiments are without the matrices whose origins the models may have learned from.

    python experiments/restated.py

From the committed results alone. A model's card says which groups of the corpus it has learned from; a matrix or tensor of
another group may yet be of an origin that is in one of them: the tensor of a graph, features of its nodes (splits.toml).
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.splits import splits

HERE = Path(__file__).parent
MODELS = HERE.parent / "models" / "tensorwise_models"
FIGURES = ("spearman", "near_spearman", "fastest_spearman")


def main() -> None:
    """Read both results, and print a table each."""
    paths = [HERE / name / "results.json" for name in ("waco-ranking", "waco-tuner")]
    ranking, tuner = (json.loads(path.read_text())["runs"] for path in paths)
    families = {run["op"]: run["families"] for key, run in ranking.items() if key.startswith("history ")}
    print("Spearman over 100 random configs, within ten times the best, within the fastest quarter")
    for op in families:
        rows = [run for key, run in ranking.items() if key.startswith("rank ") and run["op"] == op]
        told(op, rows, "matrix", families[op], FIGURES, fmean)
    print("Share of a long search's speed: best of ten, first named")
    for op in families:
        rows = [{**run, **run["share"]} for run in tuner.values() if run.get("op") == op and "share" in run]
        told(op, rows, "name", families[op], ("top10", "top1"), geometric)
    print(
        "Cards of the models that come along: Spearman, within ten times the best, within the fastest quarter"
    )
    for path in sorted(MODELS.glob("*/model.json")):
        cards(json.loads(path.read_text())["card"])


def cards(card: Mapping[str, Any]) -> None:
    """Print what a card says of its test families, and of those of which no origin was learned from."""
    learned = {*card["split"]["training"], *card["split"]["validation"]}
    crossing = {
        group for name, groups in splits().groups.items() if name in splits().met(learned) for group in groups
    }
    every = card["metrics"]["families"]
    left = {name: one for name, one in every.items() if name not in crossing}
    for what, some in (("all", every), ("left", left)):
        jobs = sum(one["jobs"] for one in some.values())
        values = [
            sum(one["jobs"] * (one[key] or 0) for one in some.values()) / max(jobs, 1) for key in FIGURES
        ]
        print(
            f"  {card['op']}: {what}, {jobs} jobs of {', '.join(some)}: {', '.join(f'{one:.3f}' for one in values)}"
        )


def told(
    op: str,
    rows: list[Mapping[str, Any]],
    name: str,
    learned: list[str],
    figures: Iterable[str],
    mean: Callable[[list[float]], float],
) -> None:
    """Print the figures over all rows, over those that are left, and the names of the others."""
    met = splits().met(learned)
    left = [row for row in rows if not met & {row["family"], splits().family(row[name], row["family"])}]
    out = [row[name] for row in rows if row not in left]
    for what, some in (("all", rows), ("left", left)):
        values = ", ".join(f"{mean([row[figure] for row in some]):.3f}" for figure in figures)
        print(f"  {op}: {what}, {len(some)}: {values}")
    print(f"    left out: {', '.join(out) or 'none'}")


def geometric(values: list[float]) -> float:
    """Return the geometric mean."""
    return math.exp(fmean(map(math.log, values)))


if __name__ == "__main__":
    main()
