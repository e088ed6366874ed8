"""What the results come to: means over matrices for each model, and whether the claims hold."""

import math
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.splits import splits
from tensorwise.front.model_card import COLUMNS

Run = Mapping[str, Any]
AGAIN: Final = "measured again"
"""What another measurement of the same configs reaches: the noise that no model can see through."""
FIGURES: Final = (*(key for _, key in COLUMNS), "kendall")
OURS: Final = "statistics"
WACOS: Final = "waco"
"""Networks: our featurizer, and WACO's sparse convolution."""


def rankings(runs: Mapping[str, Run]) -> dict[str, dict[str, list[Run]]]:
    """Return what is known of each matrix: operation -> model, in the order in which they were given -> a row a matrix.

    Matrices of origins that a model may have learned from are left out, whatever group of the corpus they are listed in.
    """
    found: dict[str, dict[str, list[Run]]] = {}
    for key, run in runs.items():
        if key.startswith("history ") and "error" not in run:
            found.setdefault(run["op"], {})[key.removeprefix("history ")] = []
    for key, run in runs.items():
        if key.startswith("rank ") and "error" not in run:
            found.setdefault(run["op"], {}).setdefault(run["model"], []).append(run)
        elif key.startswith("records ") and "error" not in run:
            found.setdefault(run["op"], {}).setdefault(key.removeprefix("records "), []).extend(run["jobs"])
    return {
        op: {
            name: kept
            for name, some in models.items()
            if (kept := _foreign(some, runs.get(f"history {name}", {})))
        }
        for op, models in found.items()
    }


def _foreign(rows: list[Run], history: Run) -> list[Run]:
    """The rows of matrices that a model with this history has learned nothing of."""
    met = splits().met(history.get("families", ()))
    return [row for row in rows if not met & {row["family"], splits().family(row["matrix"], row["family"])}]


def means(rows: list[Run]) -> dict[str, float]:
    """Return the mean of each figure over matrices; what does not exist is left out."""
    return {name: _mean([row.get(name) for row in rows]) for name in FIGURES}


def noise(models: Mapping[str, list[Run]]) -> dict[str, float]:
    """Return the same means for another measurement in the place of a model."""
    rows = max(models.values(), key=len, default=[])
    return means([row["again"] for row in rows if row.get("again")])


def _mean(values: list[float | None]) -> float:
    known = [value for value in values if value is not None and value == value]
    return sum(known) / len(known) if known else math.nan


def judge(runs: Mapping[str, Run], expected: Mapping[str, Any]) -> tuple[list[str], bool | None]:
    """Return a line for each claim, and whether all hold; None where nothing was ranked.

    The claims are about the first model of an operation that was given.
    """
    lines, holds = [], True
    for op, models in rankings(runs).items():
        if not models:
            continue
        name = next(iter(models))
        found, floor = means(models[name]), noise(models)
        claims = [
            ("Spearman", "spearman", expected["wanted"]["spearman"].get(op)),
            ("Spearman within the fastest quarter", "fastest_spearman", expected["wanted"]["fastest"]),
        ]
        for what, figure, least in claims:
            if least is not None:
                met = found[figure] >= least - expected["tolerance"]
                holds &= met
                lines.append(
                    f"{op}, {name}: {what} {found[figure]:.3f}, mean over {len(models[name])} (wanted {least:g}, "
                    f"{AGAIN} {floor.get(figure, math.nan):.3f}): {'reached' if met else 'not reached'}"
                )
        lines.append(
            f"{op}: {found['slower_than_10x']:.0%} of the configs take more than ten times as long as the best"
        )
        nets = {runs[f"history {one}"]["net"]: one for one in reversed(models)}
        if OURS in nets and WACOS in nets:
            ahead = means(models[nets[OURS]])["spearman"] - means(models[nets[WACOS]])["spearman"]
            met = ahead >= -expected["wanted"]["behind"]
            holds &= met
            lines.append(
                f"{op}: {nets[OURS]} ranks by {ahead:+.3f} Spearman better than {nets[WACOS]} (wanted at least "
                f"-{expected['wanted']['behind']:g}): {'reached' if met else 'not reached'}"
            )
    return (lines, holds) if lines else (["nothing was ranked yet"], None)
