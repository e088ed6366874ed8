"""The page of the results: CDMPP's tables and figures beside ours."""

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.pages import card, document, paragraphs, table
from latencies.draw import bars, curves, dots
from latencies.judging import BASELINES, best, machines, off, targets, tuned
from tensorwise.front.svg import element

METHOD: Final = """Random schedules of the tasks of real networks were timed on settings of CPUs, and on a GPU. Errors are
relative to the measured seconds, in the mean (MAPE). Tasks of the held-out networks, whatever other network they occur in,
are in no training. Which variant of a method is judged, tasks of other networks decide, which it has not learned from
either."""
STYLE: Final = """.plots { display: flex; flex-wrap: wrap; gap: 16px; } .plots svg { flex: 1 1 340px; max-width: 520px; }"""


_WAYS: Final = (
    ("KMeans", "kmeans", "alone", ""),
    ("KMeans, known elsewhere", "kmeans", "alone", "elsewhere"),
    ("random", "random", "alone", ""),
    ("random, known elsewhere", "random", "alone", "elsewhere"),
    ("KMeans, others seen again", "kmeans", "plain", ""),
    ("and CMD", "kmeans", "cmd", ""),
)
"""Of fine-tuning: title, how tasks are chosen, what is learned from, and what the answer is put right by."""


def page(results: Mapping[str, Any], expected: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Return the page of a result file."""
    runs = {key: run for key, run in results["runs"].items() if "error" not in run}
    parts = [element("h1", "What will it take on that device?"), paragraphs([METHOD, *results["summary"]])]
    if "data" in runs:
        parts.append(card("Data", _data(runs["data"])))
    if any(key.startswith("model|") for key in runs):
        parts.append(card("Networks held out", _models(runs, expected)))
    ours = best(runs, "model|cdmpp")
    if ours is not None and ours.get("whole"):
        parts.append(card("Whole networks, compiled and run", _whole(ours["whole"])))
    if any(key.startswith("study|") for key in runs):
        parts.append(card("Labels, losses, places, code (Tables 3 and 4)", _studies(runs, expected["paper"])))
    if machines(runs):
        parts.append(card("Machines held out (Figures 10, 12 and 13)", _machines(runs, expected, values)))
    return document("CDMPP: latency of tensor programs", "\n".join(parts), STYLE)


def _data(run: Mapping[str, Any]) -> str:
    known = [
        ("programs on devices", "programs"),
        ("tasks", "tasks"),
        ("learned from", "training"),
        ("held out", "held out"),
    ]
    rows = [[title, f"{run[key]:,}"] for title, key in known]
    rows.append(["the same program timed again is off by, in the median", _percent(run["noise"])])
    ranks = []
    for one, programs in run["devices"].items():
        row = [one, f"{programs:,}"]
        for which in ("ranks", "ranks within tasks"):
            others = {other: rho for other, rho in run[which][one].items() if rho is not None}
            nearest = max(others, key=lambda other: others[other], default="")
            row += [nearest, _number(others.get(nearest))]
        ranks.append(row)
    head = [
        "device", "programs", "ranks programs most like", "rank correlation",
        "schedules of a task most like", "rank correlation",
    ]  # fmt: skip
    return table(["", ""], rows) + table(head, ranks)


def _models(runs: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    named = {name: best(runs, f"model|{name}") for name in ("cdmpp", *BASELINES)}
    found = {name: run for name, run in named.items() if run is not None}
    devices = sorted({device for run in found.values() for device in run["devices"]})
    networks = sorted({network for run in found.values() for network in run.get("networks", {})})
    rows = []
    for name, run in found.items():
        row = [name, _percent(run["mape"]), _percent(run["median"])]
        for network in networks:
            one = run.get("networks", {}).get(network, {})
            row += [_percent(one.get("mape")), _percent(one.get("sum"))]
        rate = run.get("programs_per_s")
        rows.append(
            [
                *row,
                _percent(run.get("covered")),
                _number(run.get("width")),
                "" if rate is None else f"{rate:,.0f}",
            ]
        )
    head = ["", "MAPE", "median", *(text for one in networks for text in (one, f"{one}, sum"))]
    plots = bars({name: run["mape"] for name, run in found.items()}, "cdmpp", expected["wanted"]["model"])
    plots += "".join(dots(run["dots"], name) for name, run in found.items() if name in ("cdmpp", "trees"))
    each = [[one, *(_percent(run["devices"].get(one)) for run in found.values())] for one in devices]
    return "".join([
        element("div", plots, class_="plots"), table([*head, "covered", "width", "trained programs/s"], rows),
        table(["MAPE on", *found], each),
    ])  # fmt: skip


def _whole(found: Mapping[str, Mapping[str, float]]) -> str:
    rows = [
        [
            name,
            f"{1e3 * one['measured']:.2f}",
            *(
                f"{1e3 * one[what]:.2f} ({one[what] / one['measured'] - 1:+.0%})"
                for what in ("replayed", "predicted")
            ),
        ]
        for name, one in sorted(found.items())
    ]
    said = "Milliseconds of a pass. Replayed: the sum of its programs' measured times; predicted: of those that CDMPP says."
    return paragraphs([said]) + table(["", "measured", "replayed", "predicted"], rows)


def _studies(runs: Mapping[str, Any], paper: Mapping[str, Any]) -> str:
    rows = []
    for key, run in runs.items():
        if key.startswith("study|"):
            name = key.removeprefix("study|")
            theirs = [f"{error:.1%}" for error in paper["studies"].get(name, [])] or ["", "", ""]
            rows.append([name, _percent(run["mape"]), _percent(run["median"]), *theirs])
    return table(["", "MAPE", "median", *(f"paper, {device}" for device in paper["devices"])], rows)


def _machines(runs: Mapping[str, Any], expected: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    foreign, counts = targets(runs, expected["wanted"]["ranks"]), values["cross"]["tasks"]
    said = [
        """All settings of a machine are held out together. Judged are the networks that are held out, of which nothing is
        measured on it; other machines ran them, but for the columns that say otherwise. Models learn from what was measured
        on it alone; or what other machines took is seen again in half of all steps, and CMD draws embeddings towards each
        other, as in the paper. Known elsewhere: by how much the model, before it was tuned, is off on the same
        program on other machines, the tuned one is put right, as far as the measured tasks say that machines are off
        alike."""
    ]
    if foreign:
        said.append(f"These rank programs unlike all others, and count as devices: {', '.join(foreign)}.")
    elif "data" in runs:
        said.append(
            "No machine ranks programs unlike all others: these are similar processors, and none counts as another device."
        )
    last = counts[-1]
    rows, networks, plots = [], [], ""
    for machine in machines(runs):
        plain = [runs.get(f"device|{machine}|{way}", {}) for way in ("source", "scaled", "trees")]
        ways = [tuned(runs, machine, choose, last, kind, beside) for _, choose, kind, beside in _WAYS]
        unknown = runs.get(f"device|{machine}|unknown", {}), tuned(runs, machine, "unknown", last)
        rows.append([machine, *(_percent(one.get("mape")) for one in (*plain, *ways, *unknown))])
        ends = [off(one["whole"], "predicted") if one.get("whole") else None for one in plain]
        if any(end is not None for end in ends):
            networks.append([machine, *map(_percent, (*ends, *(one.get("whole") for one in ways)))])
        lines = {
            choose: [
                (count, found["mape"]) for count in counts if (found := tuned(runs, machine, choose, count))
            ]
            for choose in ("kmeans", "random")
        }
        if any(lines.values()):
            plots += curves(
                {name: line for name, line in lines.items() if line},
                f"Error on {machine}",
                "tasks measured on the new machine",
                "{:.0%}".format,
            )
    head = [
        "not tuned",
        "scaled from the same program",
        "trees",
        *(title for title, *_ in _WAYS),
    ]
    shown = table(["programs", *head, "unknown elsewhere, not tuned", "and tuned"], rows)
    if networks:
        shown += table(["whole networks", *head], networks)
    return paragraphs(said) + element("div", plots, class_="plots") + shown


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
