"""What the results show: the claims and whether they hold, and a page with curves."""

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.pages import card, document, paragraphs, table
from searches.draw import Curve, best_so_far
from searches.methods import METHODS
from searches.steps import BUILD
from tensorwise.front.svg import element, escape, size_text

Run = Mapping[str, Any]
NAMES = {
    "walk": "nearest-neighbour graph",
    "random": "random",
    "genetic": "genetic",
    "tpe": "Optuna's TPE",
    "exhaustive": "exhaustive",
}
STYLE = """
path.curve { fill: none; stroke-width: 1.6; stroke-opacity: .8; } circle { stroke: none; }
figure { display: flex; flex-wrap: wrap; gap: 12px; } figure svg { flex: 1 1 380px; }
""" + "".join(
    f".key i.{name} {{ background: {colour}; }} path.{name} {{ stroke: {colour}; }} circle.{name} {{ fill: {colour}; }}\n"
    for name, colour in zip(METHODS, ("#e4572e", "#8a8f98", "#1b9e77", "#1f78c8", "#9b59b6"), strict=True)
)


def searches(runs: Mapping[str, Run]) -> dict[str, dict[str, list[Run]]]:
    """Return the finished searches: matrix -> method -> a run a seed."""
    found: dict[str, dict[str, list[Run]]] = {}
    for key, run in runs.items():
        if key.startswith("search ") and "error" not in run:
            _, matrix, method, _ = key.split()
            found.setdefault(matrix, {}).setdefault(method, []).append(run)
    return found


def judge(runs: Mapping[str, Run], expected: Mapping[str, Any]) -> tuple[list[str], bool | None]:
    """Return a line for each claim, and whether all hold; None while something is missing to tell.

    A search counts as ahead where its median cost is lower by more than the tolerance, a share of the distance between the
    pool's best and its median.
    """
    walks = {matrix: some["walk"][0] for matrix, some in searches(runs).items() if "walk" in some}
    timed = {
        key.split()[1]: run for key, run in runs.items() if key.startswith("time ") and "error" not in run
    }
    if not walks or BUILD not in runs or "configs" not in runs[BUILD]:
        return ["nothing was searched yet"], None
    pool = int(runs[BUILD]["configs"])
    cheaper = {matrix: run["cheaper"] for matrix, run in walks.items()}
    evaluated = {matrix: run["evaluated"] / pool for matrix, run in walks.items()}
    milliseconds = {matrix: 1e3 * run["seconds"] for matrix, run in timed.items()}
    claims = [
        ("share of valid configs cheaper than what the walk ends with", cheaper, expected["top"], "{:.3%}"),
        ("configs of the pool that the walk evaluates", evaluated, expected["evaluations"], "{:.1%}"),
        ("milliseconds beyond featurizing", milliseconds, expected["milliseconds"], "{:.1f}"),
    ]
    lines, holds = [], True
    for what, found, limit, form in claims:
        if found:
            worst = max(found, key=lambda matrix: found[matrix])
            median = form.format(statistics.median(found.values()))
            lines.append(
                f"{what}: at most {form.format(found[worst])} ({worst}), median {median} over {len(found)}; "
                f"limit {form.format(limit)}"
            )
            holds &= found[worst] <= limit
    if shares := [run["checking_share"] for run in timed.values()]:
        lines.append(f"of that time {statistics.median(shares):.0%} goes into asking the space what is valid")
    for method in METHODS:
        behind = [matrix for matrix in walks if _ahead(runs, matrix, method, expected["tolerance"])]
        against = [matrix for matrix in walks if method in searches(runs)[matrix]]
        if method not in ("walk", "exhaustive") and against:
            lines.append(
                f"{NAMES[method]} ends clearly cheaper than the walk on {len(behind)} of {len(against)} matrices"
                + (f": {', '.join(behind)}" if behind else "")
            )
            holds &= not behind
    return lines, holds


def _ahead(runs: Mapping[str, Run], matrix: str, method: str, tolerance: float) -> bool:
    found = searches(runs)[matrix]
    if method not in found:
        return False
    costs = runs[f"pool {matrix}"]["costs"]
    room = tolerance * (costs["0.5"] - costs["0.0"])
    middle = statistics.median(float(run["cost"]) for run in found[method])
    return bool(middle < found["walk"][0]["cost"] - room)


def page(held: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return the page of a result file."""
    runs = held["runs"]
    facts = ", ".join(f"{name} {value}" for name, value in {**held["machine"], **held["settings"]}.items())
    lines, holds = judge(runs, expected)
    verdict = {True: "All hold.", False: "Not all hold.", None: ""}[holds]
    parts = [
        element("h1", "Searching by predicted cost: a graph against other strategies"),
        paragraphs([facts]),
        card("Claims", paragraphs([verdict, *lines])),
        card("Figure 5-8: what each search costs and finds", _table(runs, expected)),
    ]
    if "seconds" in runs.get(BUILD, {}):
        parts.append(card("The graph", paragraphs([_built(runs[BUILD])])))
    key = "".join(element("li", element("i", "", class_=name) + escape(NAMES[name])) for name in METHODS)
    for matrix, found in searches(runs).items():
        pool = runs[f"pool {matrix}"]
        shape = "x".join(map(str, pool["shape"]))
        text = (
            f"{shape}, {pool['nonzeros']:,} nonzeros; {pool['valid']:,} configs of the pool are valid for it."
        )
        floor = {"best of the pool": pool["costs"]["0.0"], "top 0.1 %": pool["costs"]["0.001"]}
        plots = [
            best_so_far(
                {method: [_curve(run, axis) for run in some] for method, some in found.items()}, unit, floor
            )
            for axis, unit in ((0, "evaluations"), (1, "seconds"))
        ]
        markup = paragraphs([text]) + element("figure", "".join(plots)) + element("ul", key, class_="key")
        parts.append(card(matrix, markup))
    notes = [f"{key}: {run['error']}" for key, run in runs.items() if "error" in run]
    parts.append(card("What failed", paragraphs(notes or ["Nothing."])))
    return document("WACO's search", "\n".join(parts), STYLE)


def _table(runs: Mapping[str, Run], expected: Mapping[str, Any]) -> str:
    rows = []
    for matrix, found in searches(runs).items():
        for method, some in found.items():
            middle = {
                name: statistics.median(run[name] for run in some)
                for name in ("evaluated", "seconds", "scoring_share", "cost", "cheaper")
            }
            rows.append(
                [
                    matrix,
                    NAMES[method],
                    f"{middle['evaluated']:,.0f}",
                    f"{1e3 * middle['seconds']:,.1f} ms",
                    f"{100 * middle['scoring_share']:.0f} %",
                    f"{middle['cost']:.4g}",
                    f"{100 * middle['cheaper']:.3f} %",
                ]
            )
    shares = expected["paper"]["share of the search's time spent on predicting"]
    text = (
        "Medians over seeds. Only valid configs count; times leave out featurizing, and for searches of the pool finding "
        "out what is valid, which the claim about the walk's time includes. WACO's shares of time spent on predicting: "
        + ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares.items())
        + "."
    )
    head = ["matrix", "search", "evaluations", "time", "of it predicting", "cost", "cheaper in the pool"]
    return paragraphs([text]) + table(head, rows)


def _built(run: Run) -> str:
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in run["seconds"].items())
    return (
        f"{run['configs']:,} configs with {run['links']['mean']:.1f} links each (at most {run['links']['most']}), "
        f"{size_text(run['bytes'])} on disk; {seconds}."
    )


def _curve(run: Run, axis: int) -> Curve:
    found = [(max(point[axis], 1e-6), point[2]) for point in run["best"]]
    return [*found, (max(run[("evaluated", "seconds")[axis]], 1e-6), run["cost"])]
