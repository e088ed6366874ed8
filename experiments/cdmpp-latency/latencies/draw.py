"""The plots of the page: errors as bars, predicted over measured seconds, and errors over tasks measured."""

from collections.abc import Callable, Mapping, Sequence

from tensorwise.front.svg import COLOURS, Scale, drawing, element, escape, gridline, label
from tensorwise.units import time_text


def bars(errors: Mapping[str, float], best: str, limit: float | None = None) -> str:
    """Draw a bar for each method's error, from 0; beyond 100 % all look alike. A line marks ``limit``."""
    w, left, pitch = 460.0, 150.0, 26.0
    h = 12 + pitch * len(errors) + 26
    right = Scale(0.0, min(1.0, 1.1 * max(errors.values(), default=1.0)), left, w - 60)
    parts = []
    for place, (name, error) in enumerate(errors.items()):
        y, width = 12 + pitch * place, right(min(error, 1.0)) - left
        kind = "best" if name == best else "gen"
        parts.append(element("rect", class_=kind, x=left, y=y, width=max(width, 1.5), height=pitch - 7, rx=2))
        parts.append(label(left - 8, y + 14, name, "name", "end", limit=24))
        parts.append(label(left + width + 6, y + 14, f"{error:.1%}", "name"))
    if limit is not None:
        parts.append(
            element("path", class_="axis", stroke_dasharray="4 3", d=f"M{right(limit):.1f} 6V{h - 24:.1f}")
        )
        parts.append(label(right(limit), h - 8, f"wanted: {limit:.0%}", anchor="middle"))
    parts.append(element("path", class_="axis", d=f"M{left} 6V{h - 24:.1f}"))
    return drawing(w, h, "".join(parts), "Mean relative error of each method")


def dots(pairs: Sequence[Sequence[float]], title: str) -> str:
    """Draw a dot for each (measured, predicted) seconds, both logarithmic; on the line both are the same."""
    w, h, left, bottom = 340.0, 320.0, 58.0, 280.0
    ends = [second for pair in pairs for second in pair] or [1e-6, 1.0]
    across = Scale(min(ends), max(ends), left, w - 10, log=True)
    up = Scale(min(ends), max(ends), bottom, 18.0, log=True)
    parts = [gridline(up, tick, left, w - 10, time_text(tick)) for tick in up.ticks()]
    ticks = across.ticks()
    every = -(-len(ticks) // 4)  # there is room for four
    parts += [label(across(tick), bottom + 16, time_text(tick), anchor="middle") for tick in ticks[::every]]
    corner = (across(min(ends)), up(min(ends)), across(max(ends)), up(max(ends)))
    parts.append(element("path", class_="axis", d="M{:.1f} {:.1f}L{:.1f} {:.1f}".format(*corner)))
    parts += [
        element("circle", cx=across(x), cy=up(y), r=2, fill=COLOURS[0], fill_opacity=0.5) for x, y in pairs
    ]
    parts.append(label(left, 11, title, limit=46))
    parts.append(label(w - 10, h - 6, "measured", anchor="end"))
    return drawing(w, h, "".join(parts), f"Predicted over measured seconds: {title}")


def curves(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    title: str,
    beneath: str,
    text: Callable[[float], str],
) -> str:
    """Draw a line for each name, from 0 both ways; ``text`` writes what stands beside the grid."""
    w, h, left, bottom = 460.0, 302.0, 50.0, 238.0
    points = [point for line in lines.values() for point in line]
    key = left
    across = Scale(0, max((x for x, _ in points), default=1), left, w - 12)
    up = Scale(0.0, 1.1 * max((y for _, y in points), default=1.0), bottom, 18.0)
    parts = [gridline(up, tick, left, w - 12, text(tick)) for tick in up.ticks()]
    parts += [label(across(tick), bottom + 16, f"{tick:g}", anchor="middle") for tick in across.ticks()]
    for place, (name, line) in enumerate(lines.items()):
        colour = COLOURS[place % len(COLOURS)]
        path = "M" + "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y in line)
        parts.append(
            element(
                "path", element("title", escape(name)), d=path, fill="none", stroke=colour, stroke_width=2
            )
        )
        if len(line) < 20:
            parts += [element("circle", cx=across(x), cy=up(y), r=3, fill=colour) for x, y in line]
        parts.append(element("path", d=f"M{key:.1f} {h - 10}h16", stroke=colour, stroke_width=2))
        parts.append(label(key + 22, h - 6, name))
        key += 44 + 6.5 * len(name)
    parts.append(label(left, 11, title, limit=60))
    parts.append(label(w - 12, bottom + 36, beneath, anchor="end"))
    return drawing(w, h, "".join(parts), f"{title} over {beneath}")
