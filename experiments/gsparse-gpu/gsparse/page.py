"""The page: what failed, how the model ranks, and how fast the tuned programs are beside the peers."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.pages import card, document, paragraphs, table
from tensorwise.front.svg import COLOURS, Scale, drawing, element, gridline, label

METHOD = """Times are those of events on the GPU, operands in its memory, medians of interleaved rounds; what is given is
the time of a peer over that of our program, the geometric mean over graphs and in brackets the worst of them. Above 1 our
program is the faster. Default programs are what runs without tuning, on all graphs; tuned ones are those of the graphs
that were tuned. cuSPARSE is the fastest of its algorithms and layouts for each graph. Our programs and cuSPARSE are
replayed as CUDA graphs: what Python takes to start them is not counted; that of torch, PyG and Triton is."""

SEARCHED = """Times of what was found over that of the genetic search that starts from the model's best, with as many
trials: by three of the twenty best predicted, and by a genetic search without a model. A graph on which one of the three
found nothing that runs is not in the means."""

SUBSPACES = """Times of what is found among drawn configs that were all measured, over the best of them: by measuring as
many as a tuning does, those that the model ranks first, or as many that are drawn; and of the one that the model ranks
first, and of the default. Graphs that the model has not seen; in brackets the worst. A graph of which one of these did
not run (a program that failed, or took too long) is not in the means; the column of graphs says how many are."""

OURS = {"tensorwise": "tuned", "default": "default"}
"""Program -> its name in tables."""


def speedups(
    runs: Mapping[str, Mapping[str, Any]], ours: str = "tensorwise"
) -> dict[str, dict[int, dict[str, list[float]]]]:
    """Operation -> feature length -> peer -> its median time over that of our program, graph by graph."""
    found: dict[str, dict[int, dict[str, list[float]]]] = {}
    for key, run in runs.items():
        stage, _, op, length = key.split("|")
        if stage != "comparison" or ours not in run.get("rounds", {}):
            continue
        mine = run["rounds"][ours]
        for peer, theirs in run["rounds"].items():
            if peer not in OURS:
                ratio = statistics.median(b / a for a, b in zip(mine, theirs, strict=True))
                found.setdefault(op, {}).setdefault(int(length), {}).setdefault(peer, []).append(ratio)
    return found


def whole(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Graph -> peer, or the default programs -> its median time for a whole GraphSAGE over that with the tuned programs."""
    found: dict[str, dict[str, float]] = {}
    for key, run in runs.items():
        stage, name, *_ = key.split("|")
        if stage == "graphsage" and "tensorwise" in run.get("rounds", {}):
            mine = run["rounds"]["tensorwise"]
            found[name] = {
                peer: statistics.median(b / a for a, b in zip(mine, theirs, strict=True))
                for peer, theirs in run["rounds"].items()
                if peer != "tensorwise"
            }
    return found


def page(held: Mapping[str, Any]) -> str:
    """Return the page of a result file."""
    runs = held["runs"]
    gpus = ", ".join(sorted({run["gpu"] for run in runs.values() if "gpu" in run}))
    parts = [element("h1", "G-Sparse on a GPU"), paragraphs([METHOD, gpus])]
    checked = [run for key, run in runs.items() if key.startswith("correctness|")]
    ran = sum(sum(run.get("statuses", {}).values()) for run in checked)
    bad = [f"{name}: {note}" for run in checked for name, note in run.get("failures", {}).items()]
    parts.append(
        card("Correctness", paragraphs([f"{ran} programs ran, {len(bad)} of them failed.", *bad[:20]]))
    )
    trained = [
        (k.split("|")[2], run) for k, run in runs.items() if k.startswith("training|") and "pearson" in run
    ]
    rows = [[op, str(run["records"]), _two(run["pearson_seen"]), _two(run["pearson"])] for op, run in trained]
    if rows:
        names = ["operation", "records", "Pearson, seen", "Pearson, other graphs"]
        parts.append(card("Cost model", table(names, rows)))
    if searches := _searches(runs):
        searched = table(["operation", "graphs", "best of three", "genetic alone"], searches)
        parts.append(card("Search", paragraphs([SEARCHED]) + searched))
    if subspaces := _subspaces(runs):
        names = ["operation", "graphs", "by the model", "drawn", "the model's first", "default"]
        parts.append(card("Subspaces", paragraphs([SUBSPACES]) + table(names, subspaces)))
    by_ours = {ours: speedups(runs, ours) for ours in OURS}
    for op in dict.fromkeys(op for found in by_ours.values() for op in found):
        peers = sorted({p for by_op in by_ours.values() for one in by_op.get(op, {}).values() for p in one})
        lines = [
            [
                OURS[ours],
                str(length),
                str(len(next(iter(one.values())))),
                *(_with_worst(one.get(p, [])) for p in peers),
            ]
            for ours, by_op in by_ours.items()
            for length, one in sorted(by_op.get(op, {}).items())
        ]
        drawn = "".join(curves(by_op[op], ours) for ours, by_op in by_ours.items() if op in by_op)
        parts.append(card(op, table(["program", "features", "graphs", *peers], lines) + drawn))
    if sages := whole(runs):
        peers = sorted({peer for one in sages.values() for peer in one})
        lines = [[name, *(_two(one.get(peer)) for peer in peers)] for name, one in sages.items()]
        parts.append(card("GraphSAGE, end to end", table(["graph", *peers], lines)))
    failed = [f"{key}: {run['error']}" for key, run in runs.items() if "error" in run]
    failed += [f"{k}, {p}: {note}" for k, run in runs.items() for p, note in run.get("notes", {}).items()]
    parts.append(card("What failed", paragraphs(failed[:60] or ["Nothing."])))
    return document("G-Sparse on a GPU", "\n".join(parts), STYLE)


STYLE = "".join(
    f".line.n{n} {{ fill: none; stroke: {c}; stroke-width: 1.8; }} text.n{n} {{ fill: {c}; }}\n"
    for n, c in enumerate(COLOURS)
)


def curves(by_length: Mapping[int, Mapping[str, Sequence[float]]], ours: str) -> str:
    """Draw the ratios of all graphs in ascending order, a line a peer, for each feature length."""
    found = []
    for length, by_peer in sorted(by_length.items()):
        every = [ratio for line in by_peer.values() for ratio in line]
        up = Scale(min(0.5, *every), max(2.0, *every), 250, 20, log=True)
        most = max(map(len, by_peer.values()))
        parts = [gridline(up, value, 60, 460, f"{value:g}") for value in up.ticks()]
        for number, (peer, line) in enumerate(sorted(by_peer.items())):
            places = np.linspace(60, 460, len(line)) if len(line) > 1 else [260.0]
            points = " L".join(
                f"{x:.1f} {up(ratio):.1f}" for x, ratio in zip(places, sorted(line), strict=True)
            )
            parts.append(element("path", class_=f"line n{number}", d=f"M{points}"))
            parts.append(label(470, 30 + 16 * number, peer, class_=f"n{number}"))
        parts.append(
            label(
                260, 268, f"{most} graphs, the worst first: {OURS[ours]}, {length} features", anchor="middle"
            )
        )
        about = f"time of peers over that of the {OURS[ours]} program, graph by graph"
        found.append(drawing(620, 280, "".join(parts), about))
    return "".join(found)


def _subspaces(runs: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """By operation, times of what is found in drawn subspaces over the best that is there, geometric means."""
    kinds = ("model_s", "random_s", "first_s", "default_s")
    found: dict[str, list[Mapping[str, Any]]] = {}
    for key, run in runs.items():
        stage, _, op, _ = key.split("|")
        if stage == "subspace":
            found.setdefault(op, []).append(run)
    rows = []
    for op, drawn in found.items():
        whole = [run for run in drawn if all(run.get(kind) for kind in ("best_s", *kinds))]
        means = [_with_worst([run[kind] / run["best_s"] for run in whole], max) for kind in kinds]
        rows.append([op, f"{len(whole)} of {len(drawn)}", *means])
    return rows


def _searches(runs: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Times of searches over that of the search with a model, as many trials each, geometric means by operation."""
    kinds = ("three_s", "genetic_s")
    found: dict[str, list[Mapping[str, Any]]] = {}
    for key, run in runs.items():
        if key.startswith("tuning|"):
            found.setdefault(key.split("|")[2], []).append(run)
    rows = []
    for op, tuned in found.items():
        whole = [run for run in tuned if all(run.get(kind) for kind in ("model_s", *kinds))]
        means = [_with_worst([run[kind] / run["model_s"] for run in whole], max) for kind in kinds]
        rows.append([op, f"{len(whole)} of {len(tuned)}", *means])
    return rows


def _mean(values: Sequence[float]) -> float:
    return statistics.geometric_mean(values)


def _with_worst(ratios: Sequence[float], worst: Callable[[Sequence[float]], float] = min) -> str:
    return f"{_two(_mean(ratios))} ({_two(worst(ratios))})" if ratios else ""


def _two(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
