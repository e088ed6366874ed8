"""The plots of the page: predicted over true places (Figure 5-6), and losses over epochs (Figure 5-7)."""

from collections.abc import Mapping, Sequence

from tensorwise.front.svg import Scale, drawing, element, escape, gridline, label


def places(true: Sequence[int], predicted: Sequence[int], title: str) -> str:
    """Draw a dot for each config; on the line both places are the same."""
    w, h, left, bottom = 280.0, 280.0, 34.0, 244.0
    most = max(1, len(true) - 1)
    across, up = Scale(0, most, left, w - 8), Scale(0, most, bottom, 18.0)
    parts = [gridline(up, tick, left, w - 8, f"{tick:g}") for tick in up.ticks()]
    parts += [label(across(tick), bottom + 16, f"{tick:g}", anchor="middle") for tick in across.ticks()]
    parts.append(
        element("path", class_="axis", d=f"M{across(0):.1f} {up(0):.1f}L{across(most):.1f} {up(most):.1f}")
    )
    parts += [
        element("circle", class_="place", cx=across(x), cy=up(y), r=2.2)
        for x, y in zip(true, predicted, strict=True)
    ]
    parts.append(label(left, 11, title, limit=44))
    parts.append(label(w - 8, h - 6, "true place", anchor="end"))
    return drawing(w, h, "".join(parts), f"Predicted over true places: {title}")


def losses(curves: Mapping[str, Sequence[Sequence[float | None]]], title: str) -> str:
    """Draw the losses of each model's epochs: dashed in training, whole in validation.

    Args:
        curves: model -> rows of number, training loss, validation loss, ...; of None nothing is drawn.
    """
    w, h, left, bottom = 460.0, 280.0, 44.0, 238.0
    rows = [row for curve in curves.values() for row in curve]
    known = [loss for row in rows for loss in row[1:3] if loss is not None]
    across = Scale(1, max([2.0, *(row[0] or 0 for row in rows)]), left, w - 8)
    up = Scale(0.95 * min(known, default=0.0), 1.05 * max(known, default=1.0), bottom, 18.0)
    parts = [gridline(up, tick, left, w - 8, f"{tick:g}") for tick in up.ticks()]
    parts += [label(across(tick), bottom + 16, f"{tick:g}", anchor="middle") for tick in across.ticks()]
    for number, (name, curve) in enumerate(curves.items()):
        for column, dash in ((1, "4 3"), (2, None)):
            points = [(row[0], row[column]) for row in curve]
            drawn = [f"{across(x):.1f} {up(y):.1f}" for x, y in points if x is not None and y is not None]
            if drawn:
                tip = element("title", escape(f"{name}, {'training' if dash else 'validation'}"))
                path = "M" + "L".join(drawn)
                parts.append(element("path", tip, class_=f"curve n{number}", stroke_dasharray=dash, d=path))
    parts.append(label(left, 11, title))
    parts.append(label(w - 8, h - 6, "epoch", anchor="end"))
    return drawing(w, h, "".join(parts), f"Losses: {title}")
