"""The page of the results, with the paper's figures as far as they are repeated."""

import re
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.pages import card, document, paragraphs, table
from cognate.draw import bars, curves, matrices
from cognate.judging import baselines, by_matrix, expense, figures, judge, named_here, samples, unpacked, ways
from cognate.steps import SMALL
from tensorwise.front.svg import element, escape

COLOURS: Final = ("#4c78a8", "#f58518", "#54a24b", "#e45756")
STYLE: Final = """
.curve { fill: none; stroke-width: 1.6; } .bound { fill: none; stroke: #8a8f98; stroke-dasharray: 4 3; }
figure { display: flex; flex-wrap: wrap; gap: 12px; } figure > * { flex: 1 1 320px; }
rect.way.one { fill: #4c78a8; } rect.way.five { fill: #4c78a8; fill-opacity: .35; }
""" + "".join(
    f".curve.n{number} {{ stroke: {colour}; }} .dot.n{number} {{ fill: {colour}; }}\n"
    f".key i.n{number} {{ background: {colour}; }}\n"
    for number, colour in enumerate(COLOURS)
)
METHOD: Final = """Each family of matrices is tested once, on what was learned from other families, of the source (CPU
records) and of the target (a simulated accelerator with 256 configs, all of them known). Speed-ups are over the default
config, geometric means; top-1 and top-5 what the config predicted best, and the fastest of the five predicted best, are of
the optimum. Matrices to learn from are drawn several times, the same ones for every way; "apart" is how far top-1 of one
draw is from another's."""
HEAD: Final = (
    ("speed-up", "speedup1"), ("best of 5", "speedup5"), ("top-1", "top1"), ("top-5", "top5"), ("gained", "gained1"),
    ("pairs", "ordered"), ("Kendall", "kendall"), ("apart", "apart"),
)  # fmt: skip
STUDIES: Final = {
    "what the network consists of (figure 7)": (
        "COGNATE with footprints", "without featurizer", "without mapper", "without encoder",
    ),
    "other predictors (figure 8)": ("LSTM", "GRU", "Transformer"),
    "what becomes of a device's own choices (figure 9)": ("variational encoder", "PCA", "augmented choices"),
}  # fmt: skip
"""Variants of the network, by what they are about."""
_OF: Final = re.compile(r"^(?P<way>.*), of (?P<count>\d+)$")
_FROM: Final = re.compile(r"^network: COGNATE, of (?P<few>\d+), from (?P<count>\d+)$")

Figures = Mapping[str, Mapping[str, float]]


def page(held: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return the page of a result file; ``expected`` is ``expected.json``."""
    runs, few = held["runs"], held["settings"]["few"]
    lines, holds = judge(runs, expected, few)
    verdict = {True: "All hold.", False: "Not all hold.", None: "Nothing is known yet."}[holds]
    facts = ", ".join(f"{name} {value}" for name, value in held["machine"].items())
    parts = [
        element("h1", "A cost model moves to an accelerator"),
        paragraphs([METHOD, facts]),
        card("Claims", paragraphs([verdict, *lines])),
    ]
    for op in expected["aims"]:
        found = {way: figures(draws) for way, draws in ways(runs, op).items()}
        if found:
            parts += _operation(op, found, runs, few)
    failed = [f"{key}: {run['error']}" for key, run in runs.items() if "error" in run]
    parts.append(card("What failed", paragraphs(failed or ["Nothing."])))
    return document("COGNATE: transfer", "\n".join(parts), STYLE)


def _operation(op: str, found: Figures, runs: Mapping[str, Any], few: int) -> list[str]:
    optimum = next(iter(found.values()))["optimum"]
    ours = [f"counted, of {few}", f"counted, of {few} chosen"]
    studies = {
        title: [named_here(name, few) for name in ("COGNATE", *names)] for title, names in STUDIES.items()
    }
    parts = [
        card(
            f"{op}: {few} matrices of the target (figure 4)",
            _bars(found, [*baselines(few), *ours], optimum, op),
        ),
        *(
            card(f"{op}: {title}", _bars(found, names, optimum, op))
            for title, names in studies.items()
            if found.keys() & set(names)
        ),
        *_training(op, runs),
        *_featurizers(op, runs),
        card(f"{op}: how much was learned from (figures 10, 11 and 12)", _amounts(found, few)),
    ]
    shown = [
        matrices(rows, f"{op}, {way}")
        for way in (*ours, f"network: COGNATE, of {few}")
        if (rows := by_matrix(runs, op, way))
    ]
    parts.append(card(f"{op}: matrix by matrix (figures 5 and 13 to 15)", element("figure", "".join(shown))))
    parts += _expenses(op, found, runs)
    cells = [
        [way, str(one["workloads"]), *(f"{one[key]:.3f}" for _, key in HEAD)] for way, one in found.items()
    ]
    parts.append(
        card(f"{op}: all ways", table(["way", "matrices", *(heading for heading, _ in HEAD)], cells))
    )
    return parts


def _bars(found: Figures, names: list[str], optimum: float, op: str) -> str:
    some = [(name, found[name]["speedup1"], found[name]["speedup5"]) for name in names if name in found]
    return paragraphs(["Light: the fastest of the five predicted best."]) + bars(
        some, optimum, f"Speed-ups, {op}"
    )


def _training(op: str, runs: Mapping[str, Any]) -> list[str]:
    """Losses and rank correlations over the epochs of learning from the source."""
    epochs = runs.get(f"{op} training", {}).get("epochs")
    if not epochs:
        return []
    losses = {
        name: [(float(number), row[place]) for number, row in enumerate(epochs, 1)]
        for place, name in enumerate(("loss", "loss on families kept back"))
    }
    ranks = {"kept back": [(float(number), row[2]) for number, row in enumerate(epochs, 1)]}
    plots = [
        curves(losses, "epochs", "loss") + _key(list(losses)),
        curves(ranks, "epochs", "Spearman's correlation, families kept back"),
    ]
    drawn = element("figure", "".join(element("div", plot) for plot in plots))
    return [card(f"{op}: learning from the source (figure 6)", drawn)]


def _featurizers(op: str, runs: Mapping[str, Any]) -> list[str]:
    """What the network reaches with each featurizer, on the small patterns of one fold."""
    cells, counts = [], dict[str, int]()
    for run in runs.values():
        if run.get("op") == op and "featurizer" in run:
            found, counts = figures([unpacked(draw) for draw in run["draws"]]), run["counts"]
            cells.append([run["featurizer"], *(f"{found[key]:.3f}" for _, key in HEAD)])
    if not cells:
        return []
    said = (
        f"On one fold: learned from {counts['source']} workloads of the source and a few of {counts['learn']} of the "
        f"target, none of more than {SMALL:,} entries, judged on {counts['tests']} others."
    )
    rows = table(["featurizer", *(heading for heading, _ in HEAD)], cells)
    return [card(f"{op}: featurizers", paragraphs([said]) + rows)]


def _expenses(op: str, found: Figures, runs: Mapping[str, Any]) -> list[str]:
    """What learning cost, and what was wrong with the choice then."""
    rows = []
    for way, one in found.items():
        learned = samples(way, runs, op)
        if learned is not None and any(learned):
            cells = [f"{learned[0]:,}", f"{learned[1]:,}", f"{one['speedup1']:.2f}", f"{one['ape']:.1f}"]
            rows.append([way, *cells, f"{expense(learned) / 1e6:.2f}"])
    if not rows:
        return []
    said = "APE: by how many percent the config predicted best takes longer than the best one, in the mean over matrices."
    head = ["way", "CPU samples", "target samples", "speed-up", "APE", "DCE, millions"]
    return [card(f"{op}: error and expense (table 2)", paragraphs([said]) + table(head, rows))]


def _amounts(found: Figures, few: int) -> str:
    """Speed-ups over the number of matrices of the target, and of workloads of the source."""
    tuned: dict[str, list[tuple[float, float]]] = {}
    begun: list[tuple[float, float]] = []
    for way, one in found.items():
        if (known := _OF.match(way)) and known["way"] in (
            "counted", "network: COGNATE", "network: no transfer",
        ):  # fmt: skip
            tuned.setdefault(known["way"], []).append((float(known["count"]), one["speedup1"]))
        if known := _FROM.match(way):
            begun.append((float(known["count"]), one["speedup1"]))
    plots = [curves(tuned, "matrices of the target", "speed-up") + _key(list(tuned))]
    if begun:
        plots.append(
            curves({"network: COGNATE": begun}, "workloads of the source", f"speed-up, of {few} matrices")
        )
    return element("figure", "".join(element("div", plot) for plot in plots))


def _key(names: list[str]) -> str:
    rows = (
        element("li", element("i", "", class_=f"n{place}") + escape(name)) for place, name in enumerate(names)
    )
    return element("ul", "".join(rows), class_="key")
