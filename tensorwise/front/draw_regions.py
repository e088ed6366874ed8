"""A picture of what a decision tree chooses where, as MLCD's Figure 1 shows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tensorwise.front.svg import COLOURS, Scale, element, escape, label, number_text, picture
from tensorwise.model.cases import config_name
from tensorwise.model.choosing import TreeModel

CELLS: Final = 60
"""Squares in a row of a panel."""
WIDE: Final = 20.0
"""A feature whose largest value is so many times its least is drawn on a logarithmic scale."""
MOST_TICKS: Final = 5
SIDE: Final = 240.0
LEFT: Final = 62.0
TOP: Final = 46.0
GAP: Final = 28.0


@final
@dataclass(frozen=True)
class _Axis:
    """A feature along an edge of a panel."""

    name: str
    place: int
    values: np.ndarray
    log: bool

    def scale(self, start: float, end: float) -> Scale:
        return Scale(float(self.values[0]), float(self.values[-1]), start, end, self.log)


def most_asked(model: TreeModel) -> list[str]:
    """Return the features, those first that the tree asks for most often, a question near the root counting for more."""
    assert model.choice is not None
    weight, tree = np.zeros(len(model.fields)), model.choice
    share = np.ones(len(tree.feature))
    for node in np.flatnonzero(tree.feature >= 0):
        weight[tree.feature[node]] += share[node]
        share[[node + 1, tree.above[node]]] = share[node] / 2
    return [model.fields[place] for place in np.argsort(-weight, kind="stable")]


def draw_regions(model: TreeModel, axes: Sequence[str], units: Sequence[str]) -> str:
    """Return an SVG file: what is chosen along two features, for low, middle and high values of a third.

    Args:
        model: a trained model.
        axes: names of two features, or of three: across, up, and one that differs from panel to panel. The others are
            at their medians.
        units: words for each of ``axes``, empty for none.
    """
    across, up = (_axis(model, name) for name in axes[:2])
    third = model.fields.index(axes[2]) if len(axes) > 2 else None
    levels = [2] if third is None else [1, 2, 3]
    parts: list[str] = []
    for panel, level in enumerate(levels):
        left = LEFT + panel * (SIDE + GAP)
        point = model.ranges[2].copy()
        if third is not None:
            point[third] = model.ranges[level, third]
            parts.append(label(left, TOP - 8, f"{axes[2]} = {number_text(float(point[third]))}", "name"))
        parts += _cells(model, point, across, up, left)
        parts += _frame(across, up, left, first=panel == 0)
    words = [f"{name} ({unit})" if unit else name for name, unit in zip(axes, units)]
    parts.append(label(LEFT, TOP - 28, f"across: {words[0]}; up: {words[1]}", "name"))
    bottom = TOP + SIDE + 40
    for place, config in enumerate(model.configs):
        x, y = LEFT + 190 * (place % 4), bottom + 20 * (place // 4)
        parts.append(element("rect", x=x, y=y - 10, width=11, height=11, rx=2, fill=_colour(place)))
        parts.append(label(x + 17, y, config_name(config), "name", limit=26))
    width = max(LEFT + len(levels) * (SIDE + GAP), LEFT + 190 * min(4, len(model.configs)))
    height = bottom + 20 * ((len(model.configs) + 3) // 4)
    return picture(width, height, "".join(parts), f"What is chosen, by {' and '.join(axes[:2])}")


def _axis(model: TreeModel, name: str) -> _Axis:
    place = model.fields.index(name)
    low, high = float(model.ranges[0, place]), float(model.ranges[4, place])
    high = high if high > low else low + 1.0
    log = low > 0 and high / low > WIDE
    return _Axis(name, place, (np.geomspace if log else np.linspace)(low, high, CELLS + 1), log)


def _cells(model: TreeModel, point: np.ndarray, across: _Axis, up: _Axis, left: float) -> list[str]:
    """Draw what is chosen in each square, neighbours in a row together."""

    def middles(axis: _Axis) -> np.ndarray:
        lower, upper = axis.values[:-1], axis.values[1:]
        return np.asarray(np.sqrt(lower * upper) if axis.log else (lower + upper) / 2)

    rows = np.tile(point, (CELLS * CELLS, 1))
    rows[:, across.place] = np.tile(middles(across), CELLS)
    rows[:, up.place] = np.repeat(middles(up), CELLS)
    chosen = model.choose(rows).reshape(CELLS, CELLS)
    size = SIDE / CELLS
    parts = []
    for row, line in enumerate(chosen):
        starts = np.flatnonzero(np.diff(line, prepend=-1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), CELLS]):
            box = {"x": left + start * size, "y": TOP + SIDE - (row + 1) * size}
            tip = element("title", escape(config_name(model.configs[line[start]])))
            parts.append(
                element(
                    "rect", tip, **box, width=(end - start) * size + 0.3, height=size + 0.3,
                    fill=_colour(int(line[start])),
                )
            )  # fmt: skip
    return parts


def _frame(across: _Axis, up: _Axis, left: float, first: bool) -> list[str]:
    parts = [element("rect", class_="frame", x=left, y=TOP, width=SIDE, height=SIDE)]
    for tick in _few((right := across.scale(left, left + SIDE)).ticks(4)):
        parts.append(label(right(tick), TOP + SIDE + 15, _short(tick), anchor="middle"))
    if first:
        for tick in _few((high := up.scale(TOP + SIDE, TOP)).ticks(4)):
            parts.append(label(left - 6, high(tick) + 4, _short(tick), anchor="end"))
    return parts


def _few(ticks: Sequence[float]) -> Sequence[float]:
    """Return at most five of them, evenly."""
    return ticks[:: -(-len(ticks) // MOST_TICKS)] if ticks else ticks


def _short(value: float) -> str:
    """Return a number that has room beside others.

    >>> _short(20_000), _short(1e6)
    ('20,000', '1e6')
    """
    return f"{value:.0e}".replace("e+0", "e").replace("e+", "e") if value >= 1e5 else number_text(value)


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]
