"""Quantities as text for people: one wording in tables, reports and pictures."""

import math
from typing import Final

SHORTEST_S: Final = 1e-12
"""Times count as at least so many seconds, so that their logarithm and ratios exist."""


def time_text(value_s: float) -> str:
    """Return a duration in the unit that suits it.

    >>> [time_text(s) for s in (0.0004567, 12.0, 0, 4.2e-6, 600)]
    ['457 µs', '12.0 s', '0 s', '4.20 µs', '10.0 min']
    """
    if not math.isfinite(value_s):
        return "–"
    for size, unit in ((60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
        if abs(value_s) >= size * (2 if unit == "min" else 0.9995):
            scaled = value_s / size
            return f"{scaled:.{0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2}f} {unit}"
    return "0 s"
