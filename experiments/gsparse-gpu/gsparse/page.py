"""The page: what failed, how the model ranks, and how fast the tuned programs are beside the peers."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.pages import card, document, paragraphs, table
from tensorwise.front.svg import COLOURS, Scale, drawing, element, gridline, label

METHOD = """Times are those of events on the GPU, operands in its memory, medians of interleaved rounds; what is given is the
time of a peer over that of the tuned program, the geometric mean over graphs that the model has not seen. Above 1 the tuned
program is the faster."""

SEARCHED = """Times of what was found over that of the genetic search that starts from the model's best, with as many
trials: by three of the twenty best predicted, and by a genetic search without a model."""


def speedups(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[int, dict[str, list[float]]]]:
    """Operation -> feature length -> peer -> its median time over that of the tuned program, graph by graph."""
    found: dict[str, dict[int, dict[str, list[float]]]] = {}
    for key, run in runs.items():
        stage, _, op, length = key.split("|")
        if stage != "comparison" or "rounds" not in run:
            continue
        mine = run["rounds"]["tensorwise"]
        for peer, theirs in run["rounds"].items():
            if peer != "tensorwise":
                ratio = statistics.median(b / a for a, b in zip(mine, theirs, strict=True))
                found.setdefault(op, {}).setdefault(int(length), {}).setdefault(peer, []).append(ratio)
    return found


def whole(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Graph -> peer -> its median time for a whole GraphSAGE over that with the tuned programs."""
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
    parts.append(
        card("Cost model", table(["operation", "records", "Pearson, seen", "Pearson, other graphs"], rows))
    )
    searched = table(["operation", "best of three", "genetic alone"], _searches(runs))
    parts.append(card("Search", paragraphs([SEARCHED]) + searched))
    for op, by_length in speedups(runs).items():
        peers = sorted({peer for found in by_length.values() for peer in found})
        lines = [
            [str(length), *(_two(_mean(found[p])) if p in found else "" for p in peers)]
            for length, found in sorted(by_length.items())
        ]
        parts.append(card(op, table(["features", *peers], lines) + plot(by_length, peers)))
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


def plot(by_length: Mapping[int, Mapping[str, Sequence[float]]], peers: Sequence[str]) -> str:
    """Draw the ratios over feature lengths, a line a peer."""
    means = {p: {n: _mean(found[p]) for n, found in sorted(by_length.items()) if p in found} for p in peers}
    every = [ratio for line in means.values() for ratio in line.values()]
    up = Scale(min(0.5, *every), max(2.0, *every), 250, 20, log=True)
    lengths = sorted(by_length)
    right = Scale(lengths[0], max(lengths[-1], lengths[0] + 1), 60, 460, log=True)
    parts = [gridline(up, value, 60, 460, f"{value:g}") for value in up.ticks()]
    parts += [label(right(n), 268, n, anchor="middle") for n in lengths]
    for number, (peer, line) in enumerate(means.items()):
        points = " L".join(f"{right(n):.1f} {up(ratio):.1f}" for n, ratio in line.items())
        parts.append(element("path", class_=f"line n{number}", d=f"M{points}"))
        parts.append(label(470, 30 + 16 * number, peer, class_=f"n{number}"))
    return drawing(
        620, 280, "".join(parts), "time of peers over that of the tuned program, by feature length"
    )


def _searches(runs: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Times of searches over that of the search with a model, as many trials each, geometric means by operation."""
    found: dict[str, list[tuple[float, float]]] = {}
    for key, run in runs.items():
        if key.startswith("tuning|") and run.get("model_s") and run.get("genetic_s") and run.get("three_s"):
            ratios = run["three_s"] / run["model_s"], run["genetic_s"] / run["model_s"]
            found.setdefault(key.split("|")[2], []).append(ratios)
    return [
        [op, *(_two(_mean(column)) for column in zip(*ratios, strict=True))] for op, ratios in found.items()
    ]


def _mean(values: Sequence[float]) -> float:
    return statistics.geometric_mean(values)


def _two(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
