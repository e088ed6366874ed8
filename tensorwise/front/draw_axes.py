"""What the pictures of a report share: a drawing that says what it shows, axes with titles, marks of candidates."""

import math
from dataclasses import dataclass
from typing import Final, final

from tensorwise.front.svg import Scale, element, escape, label, number_text
from tensorwise.units import time_text

CHART_WIDTH: Final = 520.0
"""Width of a picture, in its own units: pixels on a wide screen."""
LEFT, TOP = 66.0, 30.0
SIZES: Final = {"best": 6.0, "lib": 4.5, "gen": 4.0}
"""Radius of a mark of each kind."""


@final
@dataclass(frozen=True)
class Mark:
    """One kernel in the pictures.

    Attributes:
        key: number of the candidate; what has the same number is highlighted together.
        name: for people.
        kind: ``best``, ``gen`` (generated) or ``lib`` (library), also the class that colours it.
        seconds: of a call; of a candidate that was given up a lower bound, of one that failed infinite.
        spread_s: interquartile range.
        flop_per_byte: useful operations a byte that a call must at least move; None: not known.
        flop_per_s: useful operations a second.
        status: as the measurement's.
        at_s: seconds since the tuning began when it had been measured in the search; NaN: it was not, or that is not known.
        score: what the cost model predicted: log2 of the time up to a constant; None: nothing.
    """

    key: int
    name: str
    kind: str
    seconds: float
    spread_s: float = 0.0
    flop_per_byte: float | None = None
    flop_per_s: float = 0.0
    status: str = "ok"
    at_s: float = math.nan
    score: float | None = None

    @property
    def tip(self) -> str:
        """A ``title`` element with name and time."""
        time = time_text(self.seconds) if self.status == "ok" else self.status
        return element("title", escape(f"{self.name}: {time}"))


def chart(width: float, height: float, content: str, description: str) -> str:
    """Return an ``svg`` that scales with its column, and tells who cannot see it what it shows."""
    return element(
        "svg",
        content,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=description,
        style=f"max-width:{width * 1.15:.0f}px",
    )


def dot(mark: Mark, x: float, y: float) -> str:
    """Return the circle of a candidate."""
    return element(
        "circle", mark.tip, class_=mark.kind, cx=x, cy=y, r=SIZES.get(mark.kind, 4.0), data_c=mark.key
    )


def cross(mark: Mark, x: float, y: float) -> str:
    """Return the cross of a candidate that failed."""
    arms = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"
    return element("path", mark.tip, class_="failed", d=arms, data_c=mark.key)


def line_key(class_: str, text: str) -> str:
    """Return what a line means, with a piece of it, in the row above the plot: no point can lie there."""
    piece = element("path", class_=class_, d=f"M{CHART_WIDTH - 34} 9H{CHART_WIDTH - 8}")
    return piece + label(CHART_WIDTH - 40, 13, text, "name", "end", 42)


def logarithmic(values: list[float], start: float, end: float, least_ratio: float = 1.5) -> Scale:
    """Return a logarithmic scale with room around positive values."""
    low, high = (min(values), max(values)) if values else (1.0, 1.0)
    middle = math.sqrt(least_ratio / min(high / low, least_ratio))
    return Scale(low / middle / 1.12, high * middle * 1.12, start, end, log=True)


def axes(across: Scale, up: Scale, titles: tuple[str, str], texts: tuple[str, str] = ("", "")) -> str:
    """Draw grid, ticks, axes and their titles.

    Args:
        across, up: the scales.
        titles: of both axes, with units.
        texts: ``time`` where ticks of that axis are seconds that get a unit each, ``none`` for no ticks.
    """
    left, right, bottom, top = across.start, across.end, up.start, up.end
    parts = []
    for tick in _spread_out(up, 5, 22.0):
        parts.append(element("path", class_="grid", d=f"M{left} {up(tick):.1f}H{right}"))
        parts.append(label(left - 7, up(tick) + 4, _tick_text(tick, texts[1]), anchor="end"))
    if texts[0] != "none":
        for tick in _spread_out(across, 6, 58.0):
            parts.append(element("path", class_="grid", d=f"M{across(tick):.1f} {top}V{bottom}"))
            parts.append(
                label(across(tick), bottom + 17, _tick_text(tick, texts[0]), anchor=_anchor(across, tick))
            )
    parts.append(element("path", class_="axis", d=f"M{left} {top}V{bottom}H{right}"))
    parts.append(label(2, 13, titles[1], "title"))
    parts.append(label(right, bottom + 37, titles[0], "title", "end"))
    return "".join(parts)


def _spread_out(scale: Scale, count: int, distance: float) -> list[float]:
    """Return ticks whose labels do not touch."""
    kept: list[float] = []
    for tick in scale.ticks(count):
        if not kept or abs(scale(tick) - scale(kept[-1])) >= distance:
            kept.append(tick)
    if (
        len(kept) < 2 and scale.log and scale.hi > scale.lo
    ):  # less than a factor of two: no round ticks inside
        kept = [scale.lo * (scale.hi / scale.lo) ** share for share in (0.15, 0.5, 0.85)]
    return kept


def _anchor(across: Scale, tick: float) -> str:
    return "end" if across(tick) > across.end - 14 else "middle"


def _tick_text(tick: float, kind: str) -> str:
    return time_text(tick) if kind == "time" else number_text(float(f"{tick:.3g}"))
