"""Pictures of measured kernels for the report: time a call, and the roofline.

The class of a mark carries its colour, defined in ``report.css``.
"""

import math
from collections.abc import Sequence

from tensorwise.front.draw_axes import CHART_WIDTH, LEFT, TOP, Mark, axes, chart, dot, line_key
from tensorwise.front.svg import Scale, element, label, number_text
from tensorwise.units import time_text

NAME_PITCH = 15.0
"""Distance of names below each other that do not touch."""


def time_chart(marks: Sequence[Mark], title: str = "time of a call") -> str:
    """Draw a bar a kernel, from zero, with the interquartile range as a whisker; lower is better."""
    pitch = 42.0
    floor = 10 + pitch * len(marks)
    most = min(max(m.seconds + m.spread_s / 2 for m in marks), 1.4 * max(m.seconds for m in marks))
    right = Scale(0, most or 1.0, 2.0, CHART_WIDTH - 90)  # longer whiskers are cut
    parts = []
    for tick in right.ticks(5):
        x = right(tick)
        parts.append(element("path", class_="grid", d=f"M{x:.1f} 4V{floor:.1f}"))
        parts.append(label(x, floor + 17, time_text(tick), anchor="middle" if tick else "start"))
    for n, mark in enumerate(marks):
        y = 22 + pitch * n
        mid = y + 8
        end = right(mark.seconds)
        lo, hi = (right(max(mark.seconds + side * mark.spread_s / 2, 0)) for side in (-1, 1))
        bar = element(
            "rect", mark.tip, class_=mark.kind, x=2, y=y, width=max(end - 2, 1.5), height=16, rx=2, data_c=mark.key
        )  # fmt: skip
        name_class = "name strong halo" if mark.kind == "best" else "name halo"
        parts += [bar, label(7, y - 5, mark.name, name_class, limit=64)]
        if mark.spread_s:
            parts.append(
                element(
                    "path",
                    class_="whisker",
                    d=f"M{lo:.1f} {mid:.1f}H{hi:.1f}M{lo:.1f} {mid - 4:.1f}v8M{hi:.1f} {mid - 4:.1f}v8",
                )
            )
        parts.append(label(max(hi, end) + 8, mid + 5, time_text(mark.seconds), name_class))
    parts.append(element("path", class_="axis", d=f"M2 4V{floor}"))
    parts.append(label(CHART_WIDTH - 4, floor + 37, title, "title", "end"))
    return chart(
        CHART_WIDTH, floor + 44, "".join(parts), f"Time of a call of {len(marks)} kernels, with spread"
    )


def roofline_chart(
    marks: Sequence[Mark],
    peak_flop_per_s: float | None,
    bandwidth_bytes_per_s: float | None,
    bandwidth_of: str = "",
) -> str:
    """Draw operations a second over operations a byte moved, under the peaks measured on the machine.

    Args:
        marks: candidates; those without operations or bytes are left out.
        peak_flop_per_s, bandwidth_bytes_per_s: of the machine; None: not known.
        bandwidth_of: memory or cache that has this bandwidth, for people.
    """
    marks = [m for m in marks if m.flop_per_byte and m.flop_per_s > 0]
    bottom, right = 282.0, CHART_WIDTH - 8
    ridge = [peak_flop_per_s / bandwidth_bytes_per_s] if peak_flop_per_s and bandwidth_bytes_per_s else []
    xs = [*(m.flop_per_byte for m in marks if m.flop_per_byte), *ridge] or [1.0]
    ys = [*(m.flop_per_s for m in marks), *([peak_flop_per_s] if peak_flop_per_s else [])] or [1e9]
    across = Scale(min(xs) / 4, max(xs) * 4, LEFT, right, log=True)
    up = Scale(min(ys) / 2.5 / 1e9, max(ys) * 2 / 1e9, bottom, TOP, log=True)
    titles = "operations per byte moved (flop/byte, log scale)", "speed (Gflop/s, log scale)"
    parts = [axes(across, up, titles)]
    parts.append(_roof(across, up, peak_flop_per_s, bandwidth_bytes_per_s, bandwidth_of))
    parts += _points(marks, across, up)
    return chart(CHART_WIDTH, 330, "".join(parts), "Roofline: operations a second over operations a byte")


def _roof(across: Scale, up: Scale, peak: float | None, bandwidth: float | None, source: str) -> str:
    ceiling = peak / 1e9 if peak else math.inf
    slope = bandwidth / 1e9 if bandwidth else math.inf
    if not math.isfinite(min(ceiling, slope)):
        return ""
    start = max(across.lo, up.lo / slope)
    corner = min(max(ceiling / slope, start), across.hi)
    points = [(v, min(ceiling, slope * v)) for v in (start, corner, across.hi)]
    path = "M" + "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y in points)
    reached = []
    if bandwidth:
        reached.append(f"{source or 'bandwidth'} {number_text(float(f'{slope:.3g}'))} GB/s")
    if peak:
        reached.append(f"peak {number_text(float(f'{ceiling:.3g}'))} Gflop/s")
    return element("path", class_="roof", d=path) + line_key("roof", ", ".join(reached))


def _points(marks: Sequence[Mark], across: Scale, up: Scale) -> list[str]:
    """Draw the dots, then the names of the best kernel and of the libraries, moved so that none overlap."""
    parts, named = [], []
    for mark in sorted(marks, key=lambda m: ("gen", "lib", "best").index(m.kind)):
        x, y = across(mark.flop_per_byte or across.lo), up(mark.flop_per_s / 1e9)
        parts.append(dot(mark, x, y))
        if mark.kind != "gen":
            named.append((y, x, mark))
    named.sort(key=lambda item: item[0])
    lows, low = list[float](), -math.inf
    for y, _, _ in named:
        low = max(y + 4, low + NAME_PITCH)
        lows.append(low)
    for place in reversed(range(len(lows))):  # none below the plot, where the numbers of the axis are
        lows[place] = min(lows[place], up.start - 4 - NAME_PITCH * (len(lows) - 1 - place))
    for low, (y, x, mark) in zip(lows, named, strict=True):
        flip = x > across.end - 150
        reach = x - 14 if flip else x + 14
        if abs(low - 4 - y) > 3:
            parts.append(element("path", class_="leader", d=f"M{x:.1f} {y:.1f}L{reach:.1f} {low - 4:.1f}"))
        class_ = "name strong halo" if mark.kind == "best" else "name halo"
        parts.append(
            label(reach + (-3 if flip else 3), low, mark.name, class_, "end" if flip else "start", limit=22)
        )
    return parts
