"""The page of the results: WACO's tables and figures beside ours, and when tuning pays."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.corpus import geometric_mean
from benchmarks.kernels.draw import curve_key, sorted_curves
from benchmarks.kernels.targets import FLOOR, Speedups
from benchmarks.pages import card, document, paragraphs, table
from tensorwise.front.svg import element, number_text
from tuners.choices import Settings
from tuners.draw import costs_and_gains
from tuners.earning import Tuned, crossing, told_for, wins
from tuners.judging import (
    LIBRARIES,
    NAMES,
    Run,
    break_even,
    compared,
    fates,
    judge,
    shares,
    speedups,
    tuned,
)
from tuners.steps import OURS

TUNERS = (OURS, "best_format", "mkl")
CURVES = ("best_format", "mkl", "fixed_csr", "tiling", LIBRARIES, "default")
METHOD = """The model has learned from none of the matrices' families. Of ten configs that are measured for its sake, half
of them chosen by what the other half took, the fastest is what the paper calls WACO. The long search has the stated
candidates for each seed and no model. All figures are from fresh interleaved rounds in which the choices of all tuners
and all libraries run in shuffled order: medians of ratios within a round, each kernel verified before and after, in
float32."""
PRICES = """Seconds from the matrix in CSR to the first call: describing the pattern, predicting, compiling what is not in
the cache, measuring, packing. Before each tuning the cache holds what `tensorwise cache warm` compiles, and nothing
else; Python, the libraries and the model are loaded. For MKL it is what its inspector takes beyond the handle, and
nothing for the format. A tuning that is told how often the result is called decides by that what to spend."""
STYLE = """
.curve { fill: none; stroke-width: 1.6; } circle { stroke: none; fill-opacity: .75; }
figure { display: flex; flex-wrap: wrap; gap: 12px; } figure svg { flex: 1 1 380px; }
""" + "".join(
    f".curve.{name} {{ stroke: {colour}; }} circle.{name} {{ fill: {colour}; }} .key i.{name} {{ background: {colour}; }}\n"
    for name, colour in {
        "BestFormat": "#1f78c8", "MKL_inspected": "#e0a100", "Fixed_CSR": "#8a8f98", "ASpT-like_tiling": "#9b59b6",
        "the_best_library": "#1b9e77", "our_default": "#c069a5", "best_of_ten": "#e4572e", "told": "#1b9e77",
    }.items()
)  # fmt: skip


def page(
    held: Mapping[str, Any],
    kernels: Mapping[str, Run],
    settings: Settings,
    applications: Mapping[str, Mapping[str, int]],
    expected: Mapping[str, Any],
) -> str:
    """Return the page.

    Args:
        held: the result file; kernels: the runs of ``benchmarks/results/kernels.json``.
        applications: operation -> name of an application -> its calls.
        expected: ``expected.json``.
    """
    runs = held["runs"]
    found = compared(runs)
    facts = ", ".join(f"{name} {value}" for name, value in {**held["machine"], **held["settings"]}.items())
    lines, holds = judge(runs, kernels, settings, expected)
    verdict = {True: "All hold.", False: "Not all hold.", None: ""}[holds]
    parts = [
        element("h1", "A learned tuner against others"),
        paragraphs([METHOD, facts]),
        card("Claims", paragraphs([verdict, *lines])),
    ]
    if found:
        parts += [
            card("Table 5.1: speed-up over other tuners", _means(found, ("best_format", "mkl"), expected)),
            card("Table 5.2: speed-up over fixed code", _means(found, ("fixed_csr", "tiling"), expected)),
            card("Against all libraries, and our default", _means(found, (LIBRARIES, "default"), expected)),
            card("Share of the long search's speed", _shares(found)),
            card("Figures 5-1 to 5-3: sorted speed-ups of the best of ten", _curves(found)),
        ]
    for op, some in found.items():
        if any("naive" in run for run in some):
            parts.append(card(f"What tuning costs: {op}", _prices(op, some, settings, expected)))
            parts.append(
                card(f"Table 5.5: {op}", _applications(op, some, settings, applications[op], expected))
            )
    for key, run in runs.items():
        if "tree" in run:
            parts.append(card(f"BestFormat: {key.removeprefix('formats ')}", _formats(run)))
    parts.append(card("By matrix", _matrices(found)))
    notes = [f"{key}: {run['error']}" for key, run in runs.items() if "error" in run]
    for key, run in runs.items():
        notes += [f"{key}: {run['note']}"] if run.get("note") else []
        notes += [f"{key}, {name}: {why}" for name, why in run.get("failed", {}).items()]
    parts.append(card("What failed, and notes", paragraphs(notes or ["Nothing."])))
    return document("WACO's results", "\n".join(parts), STYLE)


def _means(found: Mapping[str, Sequence[Run]], others: Sequence[str], expected: Mapping[str, Any]) -> str:
    """Return a table with a row an operation: geometric means over each of ``others``, and WACO's."""
    rows = []
    for op, some in found.items():
        row = [op]
        for name in others:
            theirs = expected["paper"].get(name, {}).get(op)
            row += [_mean(speedups(some, name)), f"{theirs:.2f}x" if theirs else ""]
        rows.append(row)
    head = ["", *(cell for name in others for cell in (f"over {NAMES.get(name, name)}", "WACO's"))]
    return table(head, rows)


def _mean(found: Speedups) -> str:
    if not found.ratios:
        return "not measured"
    return f"{found.mean:.2f}x over {len(found.ratios)}, {100 * found.slower:.0f} % below {FLOOR:g}x"


def _shares(found: Mapping[str, Sequence[Run]]) -> str:
    rows = []
    for op, some in found.items():
        row = [op]
        for name in (OURS, "top1", "best_format", "default"):
            known = shares(some, name)
            row.append(
                f"{100 * known.mean:.1f} % (worst {100 * known.worst[1]:.0f} %)" if known.ratios else ""
            )
        tried = statistics.median(run["search"]["tried"] for run in some)
        rows.append(
            [
                *row,
                f"{tried:.0f} candidates, {statistics.median(run['search']['seconds'] for run in some):.0f} s",
            ]
        )
    head = [
        "",
        *(NAMES[name] for name in (OURS, "top1", "best_format", "default")),
        "the long search (medians)",
    ]
    return table(head, rows)


def _curves(found: Mapping[str, Sequence[Run]]) -> str:
    plots, drawn = [], dict[str, None]()
    for op, some in found.items():
        curves = {NAMES.get(name, name): list(speedups(some, name).ratios.values()) for name in CURVES}
        curves = {name: ratios for name, ratios in curves.items() if ratios}
        drawn |= dict.fromkeys(curves)
        plots.append(element("div", element("p", op) + sorted_curves(curves)))
    return element("figure", "".join(plots)) + curve_key(list(drawn))


def _told(settings: Settings, op: str) -> list[str]:
    return [f"told {calls}" for calls in settings.calls.get(op, ())]


def _prices(op: str, some: Sequence[Run], settings: Settings, expected: Mapping[str, Any]) -> str:
    rows = []
    for name in (*TUNERS, *_told(settings, op)):
        known = [one for run in some if (one := tuned(run, name)) is not None]
        if not known:
            continue
        paid = break_even(some, name)
        prices = [run["prices"][name] for run in some if name in run["prices"]]
        parts = {
            part: statistics.median(price.get(part, 0.0) for price in prices)
            for part in ("seconds", "compile_s", "conversion_s", "measured")
        }
        rows.append(
            [
                NAMES.get(name, f"{name} calls"),
                f"{1e3 * parts['seconds']:,.1f} ms",
                f"{1e3 * parts['compile_s']:,.1f} ms",
                f"{1e3 * parts['conversion_s']:,.1f} ms",
                f"{parts['measured']:.0f}",
                number_text(round(statistics.median(one.initial for one in known), 1)),
                f"{1 / geometric_mean(one.call for one in known):.2f}x",
                f"{number_text(round(statistics.median(paid)))} ({len(paid)} of {len(known)})"
                if paid
                else "none",
            ]
        )
    head = [
        "tuner", "spent", "compiling", "packing", "candidates", "spent, in calls", "speed-up over untuned MKL",
        "calls to break even, where faster",
    ]  # fmt: skip
    told = []
    for calls in settings.calls.get(op, ()):
        if fate := fates(some, calls):
            told.append(
                [
                    f"{calls:,}",
                    *(f"{100 * fate[what]:.0f} %" for what in ("tuned", "left alone", "earned", "never")),
                ]
            )
    outcome = table(
        ["told calls", "tuned", "left alone", "earned back within these calls", "never earning back"], told
    )
    dots = {
        NAMES.get(name, "told"): [
            (run["name"], one.initial, 1 / one.call) for run in some if (one := tuned(run, name)) is not None
        ]
        for name in (*TUNERS, *_told(settings, op)[:1])
    }
    plot = costs_and_gains(dots, f"Figure 5-9: {op}") if any(dots.values()) else ""
    theirs = expected["paper"]["break_even"].get(op)
    return (
        paragraphs(
            [PRICES, f"Medians over {len(some)} matrices. WACO breaks even after {theirs} calls on average."]
        )
        + table(head, rows)
        + outcome
        + paragraphs(["Figure 5-9: a dot for each matrix and tuner."])
        + element("figure", plot)
        + curve_key([name for name, some_dots in dots.items() if some_dots])
    )


def _applications(
    op: str,
    some: Sequence[Run],
    settings: Settings,
    applications: Mapping[str, int],
    expected: Mapping[str, Any],
) -> str:
    """Return Table 5.5: what all calls of an application take, in calls of untuned MKL."""
    told = settings.calls.get(op, ())
    known = []
    for run in some:
        each = {name: tuned(run, name) for name in (*TUNERS, *_told(settings, op))}
        if all(each.get(name) is not None for name in (OURS, "mkl")):
            known.append({name: one for name, one in each.items() if one is not None})
    if not known:
        return paragraphs(["Not measured yet."])
    rows = []
    for label, calls in {"Initial cost": 0, **applications}.items():
        row = [label, f"{calls:,}"]
        columns = {**{name: name for name in TUNERS}, "told": f"told {told_for(calls, told)}" if told else ""}
        present = {shown: name for shown, name in columns.items() if all(name in one for one in known)}
        won = [wins({shown: one[name] for shown, name in present.items()}, calls) for one in known]
        for shown, name in columns.items():
            if shown not in present:
                row += ["", ""]
                continue
            total = geometric_mean(max(one[name].total(calls), 1e-3) for one in known)
            theirs = expected["paper"]["table_5_5"][op].get(str(calls), {}).get(name)
            paper = f" (WACO's {number_text(theirs)})" if theirs is not None else ""
            row += [f"{number_text(round(total, 1))}{paper}", f"{100 * won.count(shown) / len(won):.0f} %"]
        rows.append([*row, f"{100 * won.count('untuned') / len(won):.0f} %" if calls else ""])
    head = ["application", "calls"]
    head += [cell for name in (*TUNERS, "told") for cell in (NAMES.get(name, "told the calls"), "wins")]
    text = (
        "Spent first, and all calls, in calls of untuned MKL: geometric means over the matrices; then on how many "
        "matrices it takes least in all. On those of the last column nobody does better than never to tune."
    )
    return paragraphs([text]) + table([*head, "never tuning wins"], rows) + _crossings(op, known, expected)


def _crossings(op: str, known: Sequence[Mapping[str, Tuned]], expected: Mapping[str, Any]) -> str:
    texts = []
    for name in ("mkl", "best_format"):
        calls = [crossing(one[OURS], one[name]) for one in known if name in one]
        if calls:
            median = statistics.median(calls)
            after = "no number of" if math.isinf(median) else number_text(round(median))
            never = sum(map(math.isinf, calls))
            texts.append(
                f"The best of ten overtakes {NAMES[name]} after {after} calls in the median, never on {never} of "
                f"{len(calls)} matrices; WACO after {number_text(expected['paper']['crossings'][op][name])}."
            )
    return paragraphs(texts)


def _formats(run: Run) -> str:
    rows = [[one["name"], str(run["counts"].get(one["name"], 0))] for one in run["formats"]]
    text = (
        f"Fitted on {run['workloads']} workloads; the tree asks {_questions(run['tree'])} questions in all."
    )
    return paragraphs([text]) + table(["format", "best of a training workload"], rows)


def _questions(tree: Mapping[str, Any]) -> int:
    return 0 if "order" in tree else 1 + _questions(tree["yes"]) + _questions(tree["no"])


def _matrices(found: Mapping[str, Sequence[Run]]) -> str:
    rows = [
        [
            op,
            run["name"],
            run["family"],
            f"{run['nonzeros']:,}",
            *(f"{100 * run['share'][name]:.0f} %" if name in run["share"] else "" for name in (OURS, "top1")),
            f"{speedups([run], LIBRARIES).mean:.2f}x",
            *(run["programs"].get(name, "") for name in (OURS, "best_format", "long")),
        ]
        for op, some in found.items()
        for run in some
    ]
    head = ["", "matrix", "family", "nonzeros", "best of ten", "first named", "over libraries"]
    return table([*head, "best of ten", "BestFormat", "long search"], rows)
