"""Small words for drawing: escaped elements, scales with round ticks, quantities as text.

The report draws with these instead of a plotting library, so that it needs none, is one light file,
and follows the reader's light or dark theme: colours are CSS classes, never numbers here.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final


def escape(text: object) -> str:
    """Return ``text`` safe to stand in HTML or SVG, in an element or an attribute.

    Control characters, which no HTML may hold, become the replacement character.

    >>> escape('<a href="x">')
    '&lt;a href=&quot;x&quot;&gt;'
    """
    clean = "".join(c if c in "\t\n" or (c.isprintable() or c.isspace()) else "\ufffd" for c in str(text))
    return html.escape(clean, quote=True)


def element(tag: str, content: str = "", /, **attributes: object) -> str:
    """Return one element; ``content`` is markup already, attribute values are escaped here.

    An underscore in an attribute's name stands for a hyphen, a trailing one is dropped;
    floats keep two decimals.

    >>> element("rect", x=1.2345, class_="bar", stroke_width=2)
    '<rect x="1.23" class="bar" stroke-width="2"></rect>'
    """
    parts = [tag]
    for name, value in attributes.items():
        if value is None:
            continue
        text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else escape(value)
        parts.append(f'{name.rstrip("_").replace("_", "-")}="{text}"')
    return f"<{' '.join(parts)}>{content}</{tag}>"


def label(
    x: float, y: float, text: object, class_: str = "tick", anchor: str = "start", limit: int = 0
) -> str:
    """Return a text element; longer than ``limit`` characters it is cut, and the whole is its tooltip."""
    full = str(text)
    cut = full if not limit or len(full) <= limit else full[: limit - 1] + "…"
    tip = element("title", escape(full)) if cut != full else ""
    return element("text", escape(cut) + tip, x=float(x), y=float(y), class_=class_, text_anchor=anchor)


def drawing(width: float, height: float, content: str, description: str) -> str:
    """Return an ``svg`` that scales with its column and reads ``description`` aloud."""
    return element(
        "svg",
        element("title", escape(description)) + content,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        style=f"max-width:{width * 1.15:.0f}px",
    )


COLOURS: Final = (
    "#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#eeca3b", "#9d755d", "#ff9da6", "#79706e",
)  # fmt: skip
"""For things that have no order, such as versions of a function."""

STYLE: Final = """
svg { font: 12px system-ui, "Segoe UI", Roboto, sans-serif; background: #ffffff; }
text { fill: #5d6068; font-variant-numeric: tabular-nums; } text.name { fill: #1c1d21; } text.inside { fill: #ffffff; }
.grid { stroke: #ecece8; fill: none; } .frame { stroke: #5d6068; fill: none; }
"""


def picture(width: float, height: float, content: str, description: str) -> str:
    """Return a drawing as a file of its own, with the few styles that it needs."""
    whole = element(
        "svg",
        element("title", escape(description)) + element("style", STYLE) + content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=float(width),
        height=float(height),
        role="img",
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{whole}\n'


@final
@dataclass(frozen=True)
class Scale:
    """A map from values ``lo..hi`` to pixels ``start..end``, linear or logarithmic (then ``lo > 0``)."""

    lo: float
    hi: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        lo, hi, v = self.lo, self.hi, value
        if self.log:
            lo, hi, v = math.log(lo), math.log(hi), math.log(max(v, 1e-300))
        share = (v - lo) / (hi - lo) if hi > lo else 0.5
        return self.start + min(max(share, -0.05), 1.05) * (self.end - self.start)

    def ticks(self, count: int = 5) -> Sequence[float]:
        """Return about ``count`` round values inside: 1, 2 or 5 times a power of ten, or powers of ten."""
        return _log_ticks(self.lo, self.hi) if self.log else _linear_ticks(self.lo, self.hi, count)


def gridline(up: Scale, value: float, left: float, right: float, text: str) -> str:
    """Return a horizontal line at ``value`` with its text to the left."""
    line = element("path", class_="grid", d=f"M{left} {up(value):.1f}H{right}")
    return line + label(left - 6, up(value) + 4, text, anchor="end")


def _linear_ticks(lo: float, hi: float, count: int) -> list[float]:
    """Return round values.

    >>> _linear_ticks(0, 7.3, 4)
    [0.0, 2.0, 4.0, 6.0]
    """
    if not hi > lo:
        return [lo]
    raw = (hi - lo) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw * 0.999)
    first = math.ceil(lo / step - 1e-9)
    return [(first + i) * step for i in range(int((hi - first * step) / step + 1e-9) + 1)]


def _log_ticks(lo: float, hi: float) -> list[float]:
    """Return powers of ten inside, with their doubles and quintuples if there are few.

    >>> _log_ticks(0.5, 30)
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
    """
    powers = range(math.floor(math.log10(lo)), math.ceil(math.log10(hi)) + 1)
    wide = math.log10(hi / lo) > 2.2
    values = [m * 10.0**p for p in powers for m in ((1,) if wide else (1, 2, 5))]
    return [v for v in values if lo * 0.999 <= v <= hi * 1.001]


def number_text(value: float) -> str:
    """Return a count with thousands separated, or three significant digits.

    >>> number_text(1234567), number_text(0.01234), number_text(3.0), number_text(float("inf"))
    ('1,234,567', '0.0123', '3', '∞')
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else "–"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def size_text(value_bytes: float) -> str:
    """Return an amount of memory in decimal units.

    >>> size_text(512), size_text(1536000), size_text(2.5e9)
    ('512 B', '1.54 MB', '2.50 GB')
    """
    if not math.isfinite(value_bytes):
        return "–"
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value_bytes) >= scale:
            return (
                f"{value_bytes / scale:.3g} {unit}"
                if value_bytes / scale >= 10
                else f"{value_bytes / scale:.2f} {unit}"
            )
    return f"{value_bytes:.0f} B"
