"""Pictures of what choosing learns, and of where plans move data."""

from collections.abc import Mapping, Sequence

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
    for place, (name, curve) in enumerate(curves.items()):
        way = "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y in curve)
        parts.append(element("path", d=f"M{way}", fill="none", stroke=COLOURS[place], stroke_width="1.8"))
        x = LEFT + 130.0 * place
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
