"""Pictures of a search: candidates over time, and what a cost model predicted against what was measured."""

import math
from collections.abc import Sequence

from tensorwise.front.draw_axes import (
    CHART_WIDTH,
    LEFT,
    TOP,
    Mark,
    axes,
    chart,
    cross,
    dot,
    line_key,
    logarithmic,
)
from tensorwise.front.svg import Scale, element, label

HEIGHT, BOTTOM = 330.0, 282.0
STRIP = 26.0
"""Height of the strip above the plot in which failed candidates are marked."""


def progress_chart(
    marks: Sequence[Mark], end_s: float | None = None, library: tuple[str, float] | None = None
) -> str:
    """Draw each candidate of a search by when it was measured and what a call took, and the best so far as a line.

    Args:
        marks: in the order of the search; those that failed have no finite time.
        end_s: seconds that the whole tuning took.
        library: name of the fastest library, and its seconds a call.
    """
    timed = all(math.isfinite(mark.at_s) for mark in marks)
    places = [mark.at_s if timed else float(n) for n, mark in enumerate(marks, 1)]
    last = max([*places, end_s or 0.0] if timed else places, default=1.0)
    failed = [(x, mark) for x, mark in zip(places, marks, strict=True) if not math.isfinite(mark.seconds)]
    ran = [(x, mark) for x, mark in zip(places, marks, strict=True) if math.isfinite(mark.seconds)]
    top = TOP + (STRIP if failed else 0.0)
    across = Scale(0.0, max(last, 1e-9), LEFT, CHART_WIDTH - 8)
    seconds = [mark.seconds for _, mark in ran] + ([library[1]] if library else [])
    up = logarithmic(seconds, BOTTOM, top)
    unit = "seconds since the tuning began" if timed else "number of the candidate"
    parts = [axes(across, up, (unit, "time of a call, log scale"), ("", "time"))]
    if failed:
        parts.append(element("path", class_="grid", d=f"M{LEFT} {top - 5}H{CHART_WIDTH - 8}"))
        parts.append(label(LEFT - 7, top - 12, "failed", anchor="end"))
        parts += [cross(mark, across(x), top - 16) for x, mark in failed]
    if library:
        y = up(library[1])
        parts.append(element("path", class_="reference", d=f"M{LEFT} {y:.1f}H{CHART_WIDTH - 8}"))
    parts.append(_steps(ran, across, up))
    for x, mark in sorted(ran, key=lambda one: one[1].kind == "best"):
        if mark.status == "censored":
            tip = f"M{across(x) - 4:.1f} {up(mark.seconds) + 3:.1f}h8l-4 -7z"
            parts.append(element("path", mark.tip, class_="censored", d=tip, data_c=mark.key))
        else:
            parts.append(dot(mark, across(x), up(mark.seconds)))
    if library:
        parts.append(line_key("reference", f"{library[0]}, the fastest library"))
    about = f"{len(ran)} candidates by when they were measured and the time of a call; {len(failed)} failed"
    return chart(CHART_WIDTH, HEIGHT, "".join(parts), about)


def _steps(ran: Sequence[tuple[float, Mark]], across: Scale, up: Scale) -> str:
    """The time of the best candidate so far, as a line of steps."""
    path, best = "", math.inf
    for x, mark in ran:
        if mark.status == "ok" and mark.seconds < best:
            best = mark.seconds
            path += f"V{up(best):.1f}" if path else f"M{across(x):.1f} {up(best):.1f}"
        if path:
            path += f"H{across(x):.1f}"
    return element("path", class_="steps", d=f"{path}H{across.end:.1f}") if path else ""


def prediction_chart(marks: Sequence[Mark]) -> str:
    """Draw what a call took over the model's score, a point a candidate; all have a score and a time."""
    scores = [mark.score or 0.0 for mark in marks]
    pad = 0.06 * (max(scores) - min(scores)) or 0.5
    across = Scale(min(scores) - pad, max(scores) + pad, LEFT, CHART_WIDTH - 8)
    up = logarithmic([mark.seconds for mark in marks], BOTTOM, TOP)
    parts = [
        axes(
            across,
            up,
            ("model's score: log2 of the time, up to a constant", "measured time, log scale"),
            ("", "time"),
        )
    ]
    for mark in sorted(marks, key=lambda one: one.kind == "best"):
        parts.append(dot(mark, across(mark.score or 0.0), up(mark.seconds)))
    return chart(
        CHART_WIDTH,
        HEIGHT,
        "".join(parts),
        f"Measured time over the model's score of {len(marks)} candidates",
    )
