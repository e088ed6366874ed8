"""Pictures of what choosing learns, of where plans move data, and of ratios."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tensorwise.front.svg import COLOURS, Scale, drawing, element, gridline, label, number_text

W, H, LEFT, BOTTOM, TOP = 460.0, 280.0, 56.0, 232.0, 14.0


def learning(curves: Mapping[str, Sequence[Sequence[float]]], goal: float, description: str) -> str:
    """Draw the penalty on the test set over how many inputs were measured, a line a way of choosing them.

    Args:
        curves: name -> pairs of inputs and penalty.
        goal: penalty that has to be reached.
        description: for those who do not see it.
    """
    points = [point for curve in curves.values() for point in curve]
    across = Scale(min(x for x, _ in points), max(x for x, _ in points) * 1.02, LEFT, W - 8, log=True)
    least = max(min([y for _, y in points] + [goal]), 1e-4)
    up = Scale(least / 1.3, max(max(y for _, y in points), 1.5 * goal), BOTTOM, TOP, log=True)
    parts = [gridline(up, tick, LEFT, W - 8, f"{100 * tick:g} %") for tick in up.ticks()]
    parts += [label(across(tick), BOTTOM + 16, number_text(tick), anchor="middle") for tick in across.ticks()]
    parts.append(element("path", class_="axis", d=f"M{LEFT} {up(goal):.1f}H{W - 8}", stroke_dasharray="4 3"))
    parts.append(label(W - 10, up(goal) - 5, "goal", anchor="end"))
    apart = min(130.0, (W - LEFT - 100) / len(curves))  # the axis is named at the right end
    for place, (name, curve) in enumerate(curves.items()):
        way = "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y in curve)
        parts.append(element("path", d=f"M{way}", fill="none", stroke=COLOURS[place], stroke_width="1.8"))
        parts += [element("circle", cx=across(x), cy=up(y), r=2.2, fill=COLOURS[place]) for x, y in curve]
        x = LEFT + apart * place
        parts.append(element("rect", x=x, y=H - 14, width=11, height=11, rx=2, fill=COLOURS[place]))
        parts.append(label(x + 16, H - 4, name, "name"))
    parts.append(label(W - 8, H - 4, "inputs measured", anchor="end"))
    return drawing(W, H, "".join(parts), description)


def bars(shares: Mapping[str, float], description: str, width: float = 460.0) -> str:
    """Draw a bar for each name, as long as its share of one."""
    parts = []
    for row, (name, share) in enumerate(shares.items()):
        y = 6.0 + 22 * row
        parts.append(label(150, y + 12, name, "name", anchor="end", limit=24))
        parts.append(
            element(
                "rect",
                x=158,
                y=y,
                width=(width - 230) * share,
                height=15,
                rx=2,
                fill=COLOURS[row % len(COLOURS)],
            )
        )
        parts.append(label(164 + (width - 230) * share, y + 12, f"{100 * share:.1f} %"))
    return drawing(width, 22.0 * len(shares) + 10, "".join(parts), description)


def histogram(ratios: Sequence[float], description: str) -> str:
    """Draw how many of the ratios lie where, on a logarithmic scale; those below one in another colour."""
    # half an octave each; one lies between two of them
    halves = np.round(2 * np.log2(ratios) - 0.5).astype(int)
    first, last = int(min(halves.min(), -1)), int(max(halves.max(), 0))
    counts = np.bincount(halves - first, minlength=last - first + 1)
    across = Scale(2 ** (first / 2), 2 ** ((last + 1) / 2), LEFT, W - 8, log=True)
    up = Scale(0.0, float(counts.max()), BOTTOM, TOP)
    parts = [gridline(up, tick, LEFT, W - 8, number_text(tick)) for tick in up.ticks()]
    for place, count in enumerate(counts.tolist(), first):
        x, top = across(2 ** (place / 2)), up(count)
        wide, colour = across(2 ** ((place + 1) / 2)) - x - 1, COLOURS[1 if place < 0 else 0]
        parts.append(element("rect", x=x, y=top, width=wide, height=BOTTOM - top, fill=colour))
    octaves = range(math.ceil(first / 2), math.floor((last + 1) / 2) + 1)
    every = 1 + len(octaves) // 9
    parts += [
        label(across(2.0**octave), BOTTOM + 16, number_text(2.0**octave), anchor="middle")
        for octave in octaves if octave % every == 0
    ]  # fmt: skip
    parts.append(label(W - 8, H - 4, description, anchor="end"))
    return drawing(W, H, "".join(parts), description)
