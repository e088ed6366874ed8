"""Pictures of measured kernels for the report: time a call, and the roofline.

The class of a mark carries its colour, defined in ``report.css``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from tensorwise.front.svg import Scale, drawing, element, escape, gridline, label, number_text
from tensorwise.units import time_text


@final
@dataclass(frozen=True)
class Mark:
    """One kernel in a chart: its class is ``best``, ``gen`` or ``lib``."""

    name: str
    kind: str
    seconds: float
    spread_s: float
    flop_per_byte: float | None = None
    flop_per_s: float = 0.0


def time_chart(marks: Sequence[Mark]) -> str:
    """Draw a bar a kernel, from zero, with the interquartile range as a whisker; lower is better."""
    w, left, pitch = 900.0, 215.0, 26.0
    h = 12 + pitch * len(marks) + 34
    right = Scale(0, max(m.seconds + m.spread_s / 2 for m in marks) or 1.0, left, w - 74)
    floor = h - 30
    parts = []
    for tick in right.ticks(7):
        x = right(tick)
        parts.append(element("path", class_="grid", d=f"M{x:.1f} 6V{floor:.1f}"))
        parts.append(label(x, floor + 15, time_text(tick), anchor="middle"))
    for n, mark in enumerate(marks):
        y = 12 + pitch * n
        mid = y + pitch / 2 - 3
        end = right(mark.seconds)
        lo, hi = (right(max(mark.seconds + side * mark.spread_s / 2, 0)) for side in (-1, 1))
        tip = element(
            "title", escape(f"{mark.name}: {time_text(mark.seconds)}, spread {time_text(mark.spread_s)}")
        )
        bar = element(
            "rect", tip, class_=mark.kind, x=left, y=y, width=max(end - left, 1.5), height=pitch - 7, rx=2
        )
        whisker = element(
            "path",
            class_="whisker",
            d=f"M{lo:.1f} {mid:.1f}H{hi:.1f}M{lo:.1f} {mid - 4:.1f}v8M{hi:.1f} {mid - 4:.1f}v8",
        )
        name_class = "name strong" if mark.kind == "best" else "name"
        parts += [bar, whisker, label(left - 10, mid + 4, mark.name, name_class, "end", limit=30)]
        parts.append(label(max(hi, end) + 8, mid + 4, time_text(mark.seconds), name_class))
    parts.append(element("path", class_="axis", d=f"M{left} 6V{floor}"))
    return drawing(w, h, "".join(parts), "Seconds a call of each kernel, with spread")


def roofline_chart(
    marks: Sequence[Mark], peak_flop_per_s: float | None, bandwidth_bytes_per_s: float | None
) -> str:
    """Draw operations a second over operations a byte moved, under the peaks measured on the machine."""
    marks = [m for m in marks if m.flop_per_byte and m.flop_per_s > 0]
    w, h, left, bottom = 460.0, 300.0, 54.0, 256.0
    ridge = [peak_flop_per_s / bandwidth_bytes_per_s] if peak_flop_per_s and bandwidth_bytes_per_s else []
    xs = [*(m.flop_per_byte for m in marks if m.flop_per_byte), *ridge] or [1.0]
    ys = [*(m.flop_per_s for m in marks), *([peak_flop_per_s] if peak_flop_per_s else [])] or [1e9]
    across = Scale(min(xs) / 3, max(xs) * 4, left, w - 6, log=True)
    up = Scale(min(ys) / 2.5, max(ys) * 2, bottom, 14.0, log=True)
    parts = [gridline(up, t, left, w, number_text(t / 1e9)) for t in up.ticks()]
    for tick in across.ticks():
        parts.append(element("path", class_="grid", d=f"M{across(tick):.1f} 14V{bottom}"))
        parts.append(label(across(tick), bottom + 15, number_text(tick), anchor="middle"))
    parts.append(_roof(across, up, peak_flop_per_s, bandwidth_bytes_per_s))
    parts += _points(marks, across, up, w)
    parts.append(element("path", class_="axis", d=f"M{left} 14V{bottom}H{w}"))
    parts.append(label(8, 9, "Gflop/s"))
    parts.append(label(w, h - 6, "flop per byte moved", anchor="end"))
    return drawing(w, h, "".join(parts), "Roofline: operations a second over operations a byte")


def _roof(across: Scale, up: Scale, peak: float | None, bandwidth: float | None) -> str:
    ceiling = peak if peak else math.inf
    slope = bandwidth if bandwidth else math.inf
    if not math.isfinite(min(ceiling, slope)):
        return ""
    start = max(across.lo, up.lo / slope)
    corner = min(max(ceiling / slope, start), across.hi)
    points = [(v, min(ceiling, slope * v)) for v in (start, corner, across.hi)]
    path = "M" + "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y in points)
    parts = [element("path", class_="roof", d=path)]
    if peak:
        parts.append(
            label(across(across.hi), up(peak) - 6, f"{number_text(peak / 1e9)} Gflop/s", anchor="end")
        )
    if bandwidth:
        x = math.exp((math.log(start) + math.log(corner)) / 2) if corner > start else start
        text = f"{number_text(bandwidth / 1e9)} GB/s"
        parts.append(label(across(x) - 8, up(min(slope * x, ceiling)) - 4, text, anchor="end"))
    return "".join(parts)


def _points(marks: Sequence[Mark], across: Scale, up: Scale, width: float) -> list[str]:
    """Draw the dots, then the names of the best kernel and of the libraries, moved so that none overlap."""
    parts, named = [], []
    for mark in sorted(marks, key=lambda m: ("gen", "lib", "best").index(m.kind)):
        x, y = across(mark.flop_per_byte or across.lo), up(mark.flop_per_s)
        tip = element("title", escape(f"{mark.name}: {number_text(mark.flop_per_s / 1e9)} Gflop/s"))
        parts.append(
            element("circle", tip, class_=mark.kind, cx=x, cy=y, r=5.5 if mark.kind == "best" else 4.0)
        )
        if mark.kind != "gen":
            named.append((y, x, mark))
    low = -math.inf
    for y, x, mark in sorted(named, key=lambda item: item[0]):
        low = max(y + 4, low + 14)
        flip = x > width - 130
        reach = x - 12 if flip else x + 12
        if abs(low - 4 - y) > 3:
            parts.append(element("path", class_="leader", d=f"M{x:.1f} {y:.1f}L{reach:.1f} {low - 4:.1f}"))
        class_ = "name strong" if mark.kind == "best" else "name"
        parts.append(
            label(reach + (-3 if flip else 3), low, mark.name, class_, "end" if flip else "start", limit=20)
        )
    return parts
