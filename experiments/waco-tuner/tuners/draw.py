"""The plot of Figure 5-9: what tuning costs over what it gains."""

from collections.abc import Mapping, Sequence

from tensorwise.front.svg import Scale, drawing, element, escape, gridline, label, number_text


def costs_and_gains(found: Mapping[str, Sequence[tuple[str, float, float]]], description: str) -> str:
    """Draw a dot for each matrix and tuner.

    Args:
        found: tuner -> (matrix, cost in calls of untuned MKL, speed-up over it). Free tunings stand at the left edge.
    """
    w, h, left, bottom = 460.0, 300.0, 44.0, 252.0
    dots = [dot for some in found.values() for dot in some]
    least = min((cost for _, cost, _ in dots if cost > 0), default=1.0)
    across = Scale(least / 1.5, max(1.5 * max(cost for _, cost, _ in dots), 2 * least), left, w - 8, log=True)
    gains = [gain for *_, gain in dots]
    up = Scale(min([*gains, 0.8]) / 1.1, max([*gains, 2.0]) * 1.1, bottom, 14.0, log=True)
    parts = [gridline(up, tick, left, w - 8, f"{tick:g}x") for tick in up.ticks()]
    parts += [label(across(tick), bottom + 16, number_text(tick), anchor="middle") for tick in across.ticks()]
    parts.append(element("path", class_="axis", d=f"M{left} {up(1.0):.1f}H{w - 8}"))
    for tuner, some in found.items():
        for matrix, cost, gain in some:
            tip = element("title", escape(f"{tuner}, {matrix}: {gain:.2f}x for {number_text(cost)} calls"))
            place = across(max(cost, across.lo))
            parts.append(element("circle", tip, class_=tuner.replace(" ", "_"), cx=place, cy=up(gain), r=3.0))
    parts.append(label(w - 8, h - 8, "spent before the first call, in calls of untuned MKL", anchor="end"))
    return drawing(w, h, "".join(parts), description)
