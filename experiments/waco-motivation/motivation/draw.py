"""The plot of the page: one column of dots a source."""

from collections.abc import Mapping, Sequence

from tensorwise.front.svg import Scale, drawing, element, escape, gridline, label


def strips(losses: Mapping[str, Sequence[tuple[str, str, float]]]) -> str:
    """Draw a column for each source with a dot a matrix.

    Args:
        losses: source -> (operation, matrix, time without the source over time with it).
    """
    w, h, left, bottom = 860.0, 320.0, 44.0, 276.0
    known = [loss for found in losses.values() for *_, loss in found]
    up = Scale(min([*known, 0.9]) / 1.05, max([*known, 2.0]) * 1.1, bottom, 14.0, log=True)
    parts = [gridline(up, tick, left, w - 8, f"{tick:g}x") for tick in up.ticks()]
    parts.append(element("path", class_="axis", d=f"M{left} {up(1.0):.1f}H{w - 8}"))
    step = (w - 8 - left) / len(losses)
    ops = list(dict.fromkeys(op for found in losses.values() for op, *_ in found))
    for place, (source, found) in enumerate(losses.items()):
        middle = left + step * (place + 0.5)
        parts.append(label(middle, bottom + 18 + 14 * (place % 2), source, anchor="middle"))
        for op, matrix, loss in found:
            x = middle + step * 0.22 * (ops.index(op) - (len(ops) - 1) / 2)
            tip = element("title", escape(f"{op} {matrix}: {loss:.2f}x"))
            parts.append(element("circle", tip, class_=op, cx=x, cy=up(loss), r=3.2))
    return drawing(w, h, "".join(parts), "What turning back each source costs")
