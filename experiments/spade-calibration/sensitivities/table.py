"""The published figures beside ours, and which of them hold."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from sensitivities.runs import Run, bypassing, kernels, past_caches


@final
@dataclass(frozen=True)
class Line:
    """A published figure and ours.

    Attributes:
        what: which figure; published, ours: the two; holds: whether ours is near enough; off: how far, in words.
    """

    what: str
    published: float
    ours: float
    holds: bool
    off: str


def lines(
    values: Mapping[str, Any], expected: Mapping[str, Any], results: Mapping[str, Any]
) -> Iterator[Line]:
    """Yield a line for each published figure that was simulated."""
    judged, given = values["judged"], values["barriers"]
    for graph in given["graphs"]:
        for kernel, width in kernels(values):
            plain, barrier = (
                Run(
                    f"{graph}/8",
                    "isca/8",
                    kernel,
                    width,
                    given["row_panel"],
                    given["column_panels"][str(width)],
                    b,
                )
                for b in (False, True)
            )
            published = expected["barrier_pct"][f"{kernel} {width}"][graph]
            yield _change(f"barrier, {kernel} {width}, {graph}", published, results, plain, barrier, judged)
    for best, past in bypassing(values, results):
        published = expected["bypass_pct"][f"{best.kernel} {best.width}"][best.graph.removesuffix("/8")]
        what = f"bypass, {best.kernel} {best.width}, {best.graph.removesuffix('/8')}, at {best.name.split(': ')[1]}"
        yield _change(what, published, results, best, past, judged)
    for graph in values["bypass"]["graphs"]:
        past = past_caches(graph, values)
        what = f"bypass, spmm 32, {graph}, at {past.row_panel} x {past.column_panel} as in the paper"
        published = expected["bypass_pct"]["spmm 32"][graph]
        yield _change(what, published, results, replace(past, bypass=False), past, judged)
    for graph, rows in expected["panels"].items():
        listed = [
            (Run(f"{graph}/8", "isca/8", "spmm", 32, int(row), column), seconds)
            for row, published in rows.items()
            for column, seconds in zip(values["panels"]["column_panels"], published, strict=True)
        ]
        most = max(results[run.name]["seconds"] for run, _ in listed)
        for run, published in listed:
            yield _ratio(f"panels, {run.name}", published, results[run.name]["seconds"] / most, judged)
    for graph, published in expected["hottiles_ms"].items():
        seconds = results[Run(graph, "hottiles-16", "spmm", 32, 64, bypass=True).name]["seconds"]
        yield _ratio(f"ms of HotTiles, {graph}", published, 1e3 * seconds, judged)
    for name, means in expected["hottiles_geomean"].items():
        for unit, published in means.items():
            logs = [
                math.log(_rates(results[Run(graph, name, "spmm", 32, 64, bypass=True).name])[unit])
                for graph in expected["hottiles_ms"]
            ]
            yield _ratio(f"{unit}, {name}", published, math.exp(sum(logs) / len(logs)), judged)


def _change(
    what: str,
    published: float,
    results: Mapping[str, Any],
    before: Run,
    after: Run,
    judged: Mapping[str, float],
) -> Line:
    """Percentages: by their sign, and within a factor; those near nought have none."""
    ours = 100 * (results[after.name]["seconds"] / results[before.name]["seconds"] - 1)
    nought, factor = judged["nought"], judged["factor"]
    small, near = abs(published) <= nought, abs(ours - published) <= nought
    like = published * ours > 0 and 1 / factor <= ours / published <= factor
    return Line(
        what, published, round(ours, 1), near or (like and not small), f"{ours - published:+.1f} points"
    )


def _ratio(what: str, published: float, ours: float, judged: Mapping[str, float]) -> Line:
    factor = ours / published
    return Line(
        what, published, float(f"{ours:.3g}"), max(factor, 1 / factor) <= judged["factor"], f"x {factor:.2f}"
    )


def _rates(found: Mapping[str, float]) -> dict[str, float]:
    moved = found["read_lines"] + found["written_lines"]
    return {
        "GB/s": 64 * moved / found["seconds"] / 1e9,
        "lines an entry": found["read_lines"] / found["entries"],
        "GFLOP/s": 64 * found["entries"] / found["seconds"] / 1e9,
    }
