"""The plots of the page: the cheapest cost found so far, over evaluations and over time."""

from collections.abc import Mapping, Sequence

from tensorwise.front.svg import Scale, drawing, element, escape, gridline, label

Curve = Sequence[tuple[float, float]]
"""Where something cheaper was found, and its cost; the last point ends the curve."""


def best_so_far(curves: Mapping[str, Sequence[Curve]], unit: str, floor: Mapping[str, float]) -> str:
    """Draw a falling staircase for each curve.

    Args:
        curves: method -> a curve a seed.
        unit: of the horizontal axis, which is logarithmic.
        floor: name of a level worth knowing -> its cost.
    """
    w, h, left, top, bottom = 420.0, 280.0, 48.0, 14.0, 240.0
    points = [point for some in curves.values() for curve in some for point in curve]
    costs = [cost for _, cost in points] + list(floor.values())
    along = Scale(min(x for x, _ in points), max(x for x, _ in points), left, w - 8, log=True)
    room = 0.04 * (max(costs) - min(costs)) or 1.0
    up = Scale(min(costs) - room, max(costs) + room, bottom, top)
    parts = [gridline(up, tick, left, w - 8, f"{tick:g}") for tick in up.ticks()]
    parts += [label(along(tick), bottom + 16, f"{tick:g}", anchor="middle") for tick in along.ticks()]
    parts.append(label(w - 8, bottom + 34, unit, anchor="end"))
    for name, cost in floor.items():
        parts.append(
            element("path", class_="axis", stroke_dasharray="4 3", d=f"M{left} {up(cost):.1f}H{w - 8}")
        )
        parts.append(label(w - 8, up(cost) - 4, name, anchor="end"))
    for method, some in curves.items():
        for curve in some:
            steps = "".join(f"H{along(x):.1f}V{up(cost):.1f}" for x, cost in curve[1:])
            start = f"M{along(curve[0][0]):.1f} {up(curve[0][1]):.1f}"
            tip = element("title", escape(f"{method}: {curve[-1][1]:.4g}"))
            parts.append(element("path", tip, class_=f"curve {method}", d=start + steps))
            parts.append(
                element("circle", tip, class_=method, cx=along(curve[-1][0]), cy=up(curve[-1][1]), r=3.0)
            )
    return drawing(w, h, "".join(parts), f"The cheapest predicted cost found, over {unit}")
