"""Links as they are: latency and bandwidth of what moves data, by timing it."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tensorwise.device.rounds import median_of
from tensorwise.device.timing import measuring_slot, time_calls
from tensorwise.plan.graph import Call, Link

SIZES_BYTES: Final = tuple(4**power for power in range(6, 14))
"""4 KiB to 64 MiB."""


def measured_link(source: str, target: str, move: Call, make: Callable[[int], Any]) -> Link:
    """Return a link with the latency and the bandwidth that ``move`` shows.

    A line is fitted to the times of ``SIZES_BYTES`` with least relative errors.

    Args:
        source: name of a device.
        target: name of another.
        move: (value) -> the value on the target; it returns when the value is there.
        make: (bytes) -> a value of that size on the source.
    """
    with measuring_slot():
        took_s = np.array([_seconds(move, make(size)) for size in SIZES_BYTES])
    rows = np.column_stack([np.ones(len(took_s)), SIZES_BYTES]) / took_s[:, None]
    latency_s, byte_s = np.linalg.lstsq(rows, np.ones(len(took_s)), rcond=None)[0]
    least = took_s[-1] / SIZES_BYTES[-1] / 10  # of noise a line may fall
    return Link(source, target, max(0.0, float(latency_s)), 1 / max(float(byte_s), least), move)


def _seconds(move: Call, value: Any) -> float:
    return median_of(time_calls(lambda: move(value), min_s=2e-3, min_calls=5, max_s=0.2))
