"""A picture of a plan: a lane for each device and link, a box for each step and transfer."""

from collections.abc import Sequence
from typing import Final

from tensorwise.front.svg import COLOURS, Scale, element, escape, label, picture
from tensorwise.plan import Event, lasts
from tensorwise.units import time_text

PAGE_WIDTH: Final = 960.0
LEFT: Final = 130.0
LANE: Final = 34.0
LETTER: Final = 6.6
"""Width of a character, for names that have to fit their boxes."""


def draw_timeline(events: Sequence[Event], devices: Sequence[str]) -> str:
    """Return an SVG file of when what happens where.

    Args:
        events: of a plan, predicted or as they were.
        devices: the lanes that come first; links follow.
    """
    lanes = list(dict.fromkeys([*devices, *(event.where for event in events)]))
    end_s = lasts(events) or 1.0
    right = Scale(0.0, end_s, LEFT, PAGE_WIDTH - 20)
    floor = 12 + LANE * len(lanes)
    parts = []
    for tick in right.ticks(8):
        parts.append(element("path", class_="grid", d=f"M{right(tick):.1f} 6V{floor:.1f}"))
        parts.append(label(right(tick), floor + 15, time_text(tick), anchor="middle"))
    for lane, where in enumerate(lanes):
        parts.append(label(LEFT - 10, 12 + LANE * lane + 18, where, "name", "end", limit=18))
    for event in events:
        lane = lanes.index(event.where)
        start, width = right(event.start_s), max(right(event.seconds) - LEFT, 1.0)
        tip = element("title", escape(f"{event.name}: {time_text(event.seconds)} on {event.where}"))
        colour = COLOURS[lane % len(COLOURS)] if lane < len(devices) else "#9a9a94"
        parts.append(
            element("rect", tip, x=start, y=12 + LANE * lane, width=width, height=LANE - 8, rx=2, fill=colour)
        )
        letters = int((width - 8) / LETTER)
        if letters >= 3:
            parts.append(label(start + 4, 12 + LANE * lane + 17, event.name, "inside", limit=letters))
    return picture(
        PAGE_WIDTH, floor + 26, "".join(parts), f"A plan of {len(events)} events in {time_text(end_s)}"
    )
