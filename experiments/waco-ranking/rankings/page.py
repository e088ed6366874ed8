"""The page of the results: how well each model ranks, places, losses."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.pages import card, document, paragraphs, table
from rankings.draw import losses, places
from rankings.judging import AGAIN, FIGURES, Run, judge, means, noise, rankings
from tensorwise.front.model_card import COLUMNS
from tensorwise.front.svg import element, escape

SHOWN = 3
"""Matrices whose places are drawn, as in Figure 5-6: from the smallest to the largest."""
COLOURS = ("#e4572e", "#1f78c8", "#1b9e77", "#e0a100", "#9b59b6", "#8a8f98")
STYLE = """
.curve { fill: none; stroke-width: 1.6; } circle.place { stroke: none; fill: #1f78c8; fill-opacity: .6; }
figure { display: flex; flex-wrap: wrap; gap: 12px; } figure svg { flex: 1 1 240px; }
""" + "".join(
    f".curve.n{number} {{ stroke: {colour}; }} .key i.n{number} {{ background: {colour}; }}\n"
    for number, colour in enumerate(COLOURS)
)
METHOD = """For each matrix, of a family from which no model has learned, random configs of the space are measured twice, the
second time in another order, the fastest of them in interleaved rounds; what counts is the ratio to the default config. A
model's places are compared with the first measurement. "Measured again" is what the second reaches in the place of a model:
the noise that none can see through."""
BY_RECORDS = """Random configs from records, of families from which no model has learned; those of a job are compared,
by their ratio to the default config. "Measured again" is what another measurement would reach if it were off as much as the
standard errors of these ratios say: the noise that none can see through."""


def page(held: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return the page of a result file; ``expected`` is ``expected.json``."""
    runs = held["runs"]
    found = rankings(runs)
    facts = ", ".join(f"{name} {value}" for name, value in {**held["machine"], **held["settings"]}.items())
    lines, holds = judge(runs, expected)
    verdict = {True: "All hold.", False: "Not all hold.", None: ""}[holds]
    method = BY_RECORDS if any(key.startswith("records ") for key in runs) else METHOD
    parts = [
        element("h1", "How well models rank"),
        paragraphs([method, facts]),
        card("Claims", paragraphs([verdict, *lines])),
    ]
    for op, models in found.items():
        if not models:
            continue
        theirs = expected["paper"]["spearman"].get(op)
        text = f"WACO's Spearman on its three matrices: {', '.join(map(str, theirs))}." if theirs else ""
        parts.append(card(f"Ranking: {op}", paragraphs([text]) + _means(models)))
        first = next(iter(models))
        drawn = _places(models[first])
        if drawn:
            parts.append(card(f"Figure 5-6: predicted places over true ones, {op}, {first}", drawn))
        parts.append(card(f"By matrix: {op}, {first}", _matrices(models[first])))
    for op in found:
        parts.append(
            card(f"Figure 5-7: losses in training and validation, {op}", _losses(op, runs, expected))
        )
    notes = [f"{key}: {run['error']}" for key, run in runs.items() if "error" in run]
    notes += [f"{key}: {run['note']}" for key, run in runs.items() if run.get("note")]
    parts.append(card("What failed, and notes", paragraphs(notes or ["Nothing."])))
    return document("WACO's cost model", "\n".join(parts), STYLE)


def _means(models: Mapping[str, list[Run]]) -> str:
    rows = []
    for name, some in models.items():
        known = means(some)
        looks = [row["predict_s"] for row in some if "predict_s" in row]
        look = f"{1e3 * statistics.median(looks):.1f} ms" if looks else ""
        rows.append([name, str(len(some)), *(_number(known[figure]) for figure in FIGURES), look])
    floor = noise(models)
    rows.append([AGAIN, "", *(_number(floor[figure]) for figure in FIGURES), ""])
    head = ["model", "matrices", *(heading for heading, _ in COLUMNS), "Kendall", "to predict all (median)"]
    return table(head, rows)


def _places(some: Sequence[Run]) -> str:
    known = [row for row in some if "places" in row]
    step = max(1, (len(known) - 1) / (SHOWN - 1)) if known else 1
    chosen = [known[round(number * step)] for number in range(min(SHOWN, len(known)))]
    plots = []
    for row in chosen:
        true, predicted = row["places"]
        plots.append(places(true, predicted, f"{row['matrix']}: {_number(row['spearman'])}"))
    return element("figure", "".join(plots)) if plots else ""


def _matrices(some: Sequence[Run]) -> str:
    rows = [
        [row["matrix"], row["family"], str(row["configs"]), *(_number(row[figure]) for figure in FIGURES)]
        for row in sorted(some, key=lambda row: row["spearman"] or 0.0)
    ]
    return table(["matrix", "family", "configs", *(heading for heading, _ in COLUMNS), "Kendall"], rows)


def _losses(op: str, runs: Mapping[str, Run], expected: Mapping[str, Any]) -> str:
    histories = {
        key.removeprefix("history "): run
        for key, run in runs.items()
        if key.startswith("history ") and run.get("op") == op
    }
    curves = {name: run["epochs"] for name, run in histories.items() if run["epochs"]}
    rows = []
    for name, run in histories.items():
        about = run["card"]
        last = min((row[2] for row in run["epochs"] if row[2] is not None), default=None)
        facts = [about.get(key) for key in ("records", "epochs", "heads", "loss")]
        rows.append([name, run["net"], *("" if one is None else str(one) for one in facts), _number(last)])
    head = ["model", "network", "records", "epochs", "heads", "loss function", "lowest validation loss"]
    kinds: dict[object, dict[str, Any]] = {}
    for name, curve in curves.items():
        kinds.setdefault(histories[name]["card"].get("loss"), {})[name] = curve
    plots = "".join(
        element("div", losses(some, f"loss {kind}") + _key({name: place for place, name in enumerate(some)}))
        for kind, some in kinds.items()
    )
    text = (
        f"Dashed: training. {expected['paper']['losses']}" if curves else "Nothing is known of the training."
    )
    return paragraphs([text]) + element("figure", plots) + table(head, rows)


def _key(names: Mapping[str, int]) -> str:
    rows = (
        element("li", element("i", "", class_=f"n{number}") + escape(name)) for name, number in names.items()
    )
    return element("ul", "".join(rows), class_="key")


def _number(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:.3f}"
