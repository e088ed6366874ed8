"""The ways to predict sparse kernels that are compared, family by family, and what came out."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.pages import card, document, paragraphs, table
from latencies.baselines import Predict, boosted, flat, mean, roofline
from latencies.draw import bars, dots
from latencies.judging import dotted, errors
from latencies.page import STYLE
from latencies.patterned import folds, without_patterns
from tensorwise.front.svg import element
from tensorwise.model.latency import train_latency
from tensorwise.model.programs import Programs

OURS: Final = "cdmpp"
OTHERS: Final = ("cdmpp without patterns", "trees", "roofline", "mean")
METHOD: Final = """Kernels that were generated for a matrix are programs: their loops, with how long rows are and where
gathers go as they are on this matrix, are read into the same rows of numbers as dense programs, without running anything.
Statistics of the pattern stand beside them. Each family of matrices is held out once. Errors are relative to the measured
seconds, in the mean (MAPE)."""
Step = Callable[[], dict[str, Any] | None]


def steps(
    op: str, programs: Programs, values: Mapping[str, Any], cache: Path, ends: float
) -> dict[str, Step]:
    """Return the steps by key; one returns None when the time was over."""
    found: dict[str, Step] = {}
    fits: dict[str, Callable[[Programs], Predict]] = {
        "mean": mean,
        "roofline": roofline,
        "trees": lambda known: boosted(flat, known, values["boosted"], values["seed"]),
    }
    for number, families in enumerate(folds(programs, values["folds"], values["seed"])):
        known, held = programs.without(families)
        for name, fit in fits.items():
            found[f"{op} fold {number} {name}"] = partial(_fitted, op, fit, known, held, values["seed"])
        bare = without_patterns(known), without_patterns(held)
        for name, (learned, asked) in ((OURS, (known, held)), (OTHERS[0], bare)):
            folder = cache / "models" / f"{op} {number} {name}"
            found[f"{op} fold {number} {name}"] = partial(_model, op, learned, asked, values, folder, ends)
    return found


def _fitted(
    op: str, fit: Callable[[Programs], Predict], known: Programs, held: Programs, seed: int
) -> dict[str, Any]:
    return _judged(op, held, seed, fit(known)(held))


def _model(
    op: str, known: Programs, held: Programs, values: Mapping[str, Any], folder: Path, ends: float
) -> dict[str, Any] | None:
    from tensorwise.model.latency_training import LatencyTraining

    settings = LatencyTraining(**values["training"], seed=values["seed"])
    model = train_latency(
        known, settings, sizes=values["sizes"], members=values["members"], validation=values["validation"],
        checkpoints=folder, budget_s=ends - time.monotonic(),
    )  # fmt: skip
    if model is None:
        return None
    said = model.of(held)
    dots = dotted(held, said.seconds, values["seed"])
    return {**_judged(op, held, values["seed"], said.seconds), **said.covering(held.seconds), "dots": dots}


def _judged(op: str, held: Programs, seed: int, predicted: np.ndarray) -> dict[str, Any]:
    return {"op": op, **errors(held, predicted, (), seed)}


def figures(runs: Mapping[str, Mapping[str, Any]], op: str) -> dict[str, dict[str, float]]:
    """Return by way, over the programs of all folds that are there: ``mape``, mean ``median``; ``covered`` where known."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for key, run in runs.items():
        if run.get("op") == op:
            found.setdefault(key.split(" ", 3)[3], []).append(run)
    most = max((len(some) for some in found.values()), default=0)
    told = {}
    for way, some in found.items():
        if len(some) == most:
            weights = [run["programs"] for run in some]
            names = [name for name in ("mape", "median", "covered", "width") if name in some[0]]
            told[way] = {
                name: float(np.average([run[name] for run in some], weights=weights)) for name in names
            }
    return told


def judge(
    runs: Mapping[str, Mapping[str, Any]], expected: Mapping[str, Any]
) -> tuple[list[str], bool | None]:
    """Return which claims hold, in words, and whether all do; None where nothing is known."""
    lines, holds = list[str](), list[bool]()
    for op in expected["mape"]:
        found = figures(runs, op)
        if OURS not in found:
            continue
        ours, wanted = found[OURS]["mape"], expected["mape"][op]
        holds.append(ours <= wanted)
        lines.append(f"{op}: {ours:.1%} off on families held out, {wanted:.0%} wanted ({_mark(holds[-1])})")
        for way in OTHERS:
            if way in found:
                holds.append(ours < found[way]["mape"])
                lines.append(f"{op}, {way}: {found[way]['mape']:.1%} ({_mark(holds[-1])})")
    return lines, all(holds) if holds else None


def _mark(holds: bool) -> str:
    return "holds" if holds else "does not hold"


def page(results: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return the page of a result file."""
    runs = results["runs"]
    parts = [
        element("h1", "What will a sparse kernel take on that matrix?"),
        paragraphs([METHOD, *results["summary"]]),
    ]
    for op, limit in expected["mape"].items():
        found = figures(runs, op)
        if found:
            drawn = bars({way: one["mape"] for way, one in found.items()}, OURS, limit)
            pairs = [pair for key, run in runs.items() if key.startswith(f"{op} ") and key.endswith(f" {OURS}")
                     for pair in run["dots"]]  # fmt: skip
            plots = element("div", drawn + dots(pairs, OURS), class_="plots")
            rows = [[way, *(f"{one[name]:.1%}" if name in one else "" for name in ("mape", "median", "covered"))]
                    for way, one in found.items()]  # fmt: skip
            parts.append(
                card(op, plots + table(["", "mean error", "median error", "90 % intervals cover"], rows))
            )
    return document("CDMPP: sparse kernels", "\n".join(parts), STYLE)
