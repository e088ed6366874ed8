"""Plots of the kernels' page as SVG: sorted speed-ups and rooflines. Colours are CSS classes."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensorwise.device.roofline import MEMORY_LEVELS
from tensorwise.front.svg import Scale, drawing, element, escape, gridline, label, number_text


def sorted_curves(curves: Mapping[str, Sequence[float]], each: str = "baseline") -> str:
    """Draw a curve for ``each`` baseline: its speed-ups in ascending order over the share of the matrices.

    As in WACO's Figures 5-1 to 5-3: what lies below the line at 1 are matrices on which the baseline is faster.
    """
    w, h, left, bottom = 460.0, 300.0, 40.0, 258.0
    values = [ratio for ratios in curves.values() for ratio in ratios]
    across = Scale(0.0, 100.0, left, w - 8)
    up = Scale(min([*values, 0.5]) / 1.1, min(max([*values, 2.0]) * 1.1, 64.0), bottom, 14.0, log=True)
    parts = [gridline(up, tick, left, w - 8, f"{tick:g}") for tick in up.ticks()]
    for share in (0, 25, 50, 75, 100):
        parts.append(label(across(share), bottom + 16, f"{share} %", anchor="middle"))
    parts.append(element("path", class_="axis", d=f"M{left} {up(1.0):.1f}H{w - 8}"))
    for name, ratios in curves.items():
        ordered = sorted(ratios)
        places = [100 * (place + 0.5) / len(ordered) for place in range(len(ordered))]
        points = [(across(x), up(ratio)) for x, ratio in zip(places, ordered, strict=True)]
        tip = element("title", escape(name))
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(element("path", tip, class_=f"curve {class_name(name)}", d=path))
        if len(points) <= 40:
            parts += [element("circle", class_=class_name(name), cx=x, cy=y, r=2.4) for x, y in points]
    parts.append(label(4, 9, "speed-up"))
    parts.append(label(w - 8, h - 8, f"matrices, sorted for each {each}", anchor="end"))
    return drawing(w, h, "".join(parts), f"Speed-ups of each {each}, sorted")


def curve_key(names: Sequence[str]) -> str:
    """Return the legend of ``sorted_curves``."""
    rows = (element("li", element("i", "", class_=class_name(name)) + escape(name)) for name in names)
    return element("ul", "".join(rows), class_="key")


def class_name(name: str) -> str:
    """Return the CSS class of what is called ``name``."""
    return re.sub(r"\W", "_", name)


@dataclass(frozen=True)
class Point:
    """A run in the roofline: what it did, and the measured rates of the level that holds its data."""

    name: str
    level: str
    flop_per_byte: float
    flop_per_s: float
    bytes_per_s: float
    peak_flop_per_s: float

    @property
    def roof(self) -> float:
        """Operations a second that the level's bandwidth and the peak allow."""
        return min(self.peak_flop_per_s, self.bytes_per_s * self.flop_per_byte)


def roofline_plot(points: Sequence[Point]) -> str:
    """Draw operations a second over operations a byte, with the roof of each level that holds somebody's data."""
    w, h, left, bottom = 460.0, 300.0, 48.0, 258.0
    xs = [point.flop_per_byte for point in points]
    ys = [point.flop_per_s for point in points] + [point.peak_flop_per_s for point in points]
    across = Scale(min(xs) / 1.6, max(xs) * 1.6, left, w - 8, log=True)
    up = Scale(min(ys) / 1.6, max(ys) * 1.3, bottom, 14.0, log=True)
    parts = [gridline(up, tick, left, w - 8, number_text(tick / 1e9)) for tick in up.ticks()]
    for tick in across.ticks():
        parts.append(label(across(tick), bottom + 16, f"{tick:g}", anchor="middle"))
    for level in MEMORY_LEVELS:
        held = [point for point in points if point.level == level]
        if not held:
            continue
        bandwidth, peak = held[0].bytes_per_s, held[0].peak_flop_per_s
        start = max(across.lo, up.lo / bandwidth)
        corner = min(max(peak / bandwidth, start), across.hi)
        marks = [(x, min(peak, bandwidth * x)) for x in (start, corner, across.hi)]
        path = "M" + "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y in marks)
        parts.append(element("path", class_=f"curve {level}", d=path))
        middle = math.sqrt(start * corner)
        right = max(across(middle), left + 96)
        parts.append(
            label(
                right,
                up(bandwidth * middle) - 5,
                f"{level} {number_text(bandwidth / 1e9)} GB/s",
                anchor="end",
            )
        )
        for point in held:
            tip = element(
                "title", escape(f"{point.name}: {100 * point.flop_per_s / point.roof:.0f} % of the roof")
            )
            parts.append(
                element(
                    "circle",
                    tip,
                    class_=level,
                    cx=across(point.flop_per_byte),
                    cy=up(point.flop_per_s),
                    r=2.6,
                )
            )
    parts.append(element("path", class_="axis", d=f"M{left} 14V{bottom}H{w - 8}"))
    parts.append(label(4, 9, "Gflop/s"))
    parts.append(label(w - 8, h - 8, "flop per byte", anchor="end"))
    return drawing(w, h, "".join(parts), "Roofline of our best kernels")
