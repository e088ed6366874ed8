"""The plots of the page: bars of ways, curves over how much was learned from, and speed-ups matrix by matrix."""

from collections.abc import Mapping, Sequence
from typing import Final

from tensorwise.front.svg import Scale, drawing, element, escape, gridline, label

MARKED: Final = 10
"""Up to so many values across are written at the axis, each of them."""


def bars(some: Sequence[tuple[str, float, float]], optimum: float, title: str) -> str:
    """Draw for each way the speed-up of what it predicts best, and behind it that of the best of five.

    Args:
        some: names and both speed-ups over the default config, which is the line at 1.
        optimum: the line above.
    """
    w, left, step = 680.0, 250.0, 20.0
    h = 40 + step * len(some) + 20
    across = Scale(min([0.5, *(one for _, one, _ in some)]), 1.03 * optimum, left, w - 16)
    parts = []
    for tick in across.ticks():
        parts.append(element("path", class_="grid", d=f"M{across(tick):.1f} 24V{h - 24:.1f}"))
        parts.append(label(across(tick), h - 8, f"{tick:g}", anchor="middle"))
    for place, (name, one, five) in enumerate(some):
        y = 30 + step * place
        parts.append(label(left - 8, y + 11, name, class_="name", anchor="end", limit=44))
        tip = element("title", escape(f"{name}: {one:.3f}, best of five {five:.3f}"))
        start = across(across.lo)
        for value, kind in ((five, "five"), (one, "one")):
            width = max(across(value) - start, 0.5)
            parts.append(
                element("rect", tip, x=start, y=float(y), width=width, height=14.0, class_=f"way {kind}")
            )
    for value, name in ((1.0, "default"), (optimum, f"optimum {optimum:.2f}")):
        parts.append(element("path", class_="bound", d=f"M{across(value):.1f} 24V{h - 24:.1f}"))
        parts.append(label(across(value), 18, name, anchor="middle"))
    return drawing(w, h, "".join(parts), title)


def curves(some: Mapping[str, Sequence[tuple[float, float]]], across_text: str, title: str) -> str:
    """Draw a curve for each way, such as speed-ups over how many matrices were learned from; across is logarithmic."""
    w, h, left, bottom = 460.0, 280.0, 44.0, 238.0
    points = [point for curve in some.values() for point in curve]
    xs, ys = ([point[place] for point in points] for place in (0, 1))
    across = Scale(min(xs, default=1), max(xs, default=10), left + 8, w - 16, log=True)
    up = Scale(0.98 * min(ys, default=0.0), 1.02 * max(ys, default=1.0), bottom, 18.0)
    parts = [gridline(up, tick, left, w - 8, f"{tick:g}") for tick in up.ticks()]
    known = sorted(set(xs))
    marked = known if len(known) <= MARKED else across.ticks()
    parts += [label(across(x), bottom + 16, f"{x:g}", anchor="middle") for x in marked]
    for number, (name, curve) in enumerate(some.items()):
        drawn = [f"{across(x):.1f} {up(y):.1f}" for x, y in sorted(curve)]
        parts.append(
            element(
                "path", element("title", escape(name)), class_=f"curve n{number}", d="M" + "L".join(drawn)
            )
        )
        for x, y in curve:
            tip = element("title", escape(f"{name}, {x:g}: {y:.3f}"))
            parts.append(element("circle", tip, class_=f"dot n{number}", cx=across(x), cy=up(y), r=3.0))
    parts.append(label(left, 11, title))
    parts.append(label(w - 8, h - 6, across_text, anchor="end"))
    return drawing(w, h, "".join(parts), title)


def matrices(rows: Mapping[str, Sequence[float]], title: str) -> str:
    """Draw for each matrix the speed-up of the config predicted best, a dot, and the optimum, a line; sorted by the latter.

    Args:
        rows: by name; the first number, the second (the best of five) and the third (the optimum) are drawn.
    """
    w, h, left, bottom = 640.0, 280.0, 44.0, 250.0
    ordered = sorted(rows.items(), key=lambda item: item[1][2])
    values = [value for _, row in ordered for value in row[:3]]
    across = Scale(0, max(1, len(ordered) - 1), left + 4, w - 8)
    up = Scale(min([0.5, *values]), max([2.0, *values]), bottom, 18.0, log=True)
    parts = [gridline(up, tick, left, w - 8, f"{tick:g}") for tick in up.ticks()]
    parts.append(element("path", class_="bound", d=f"M{left} {up(1.0):.1f}H{w - 8}"))
    line = "L".join(f"{across(place):.1f} {up(row[2]):.1f}" for place, (_, row) in enumerate(ordered))
    parts.append(element("path", class_="curve n1", d=f"M{line}"))
    for place, (name, row) in enumerate(ordered):
        tip = element(
            "title", escape(f"{name}: {row[0]:.2f}, best of five {row[1]:.2f}, optimum {row[2]:.2f}")
        )
        parts.append(element("circle", tip, class_="dot n0", cx=across(place), cy=up(row[0]), r=2.4))
    parts.append(label(left, 11, title, limit=90))
    parts.append(label(w - 8, h - 8, f"{len(ordered)} matrices, by their optimum", anchor="end"))
    return drawing(w, h, "".join(parts), title)
