"""One line that says how far a measurement is."""

import time
from types import TracebackType
from typing import Final, Self, final

EVERY_S: Final = 1.0


@final
class Progress:
    """Prints what is going on and how long it will take, over the same line again and again.

    Args:
        name: what is measured.
    """

    def __init__(self, name: str) -> None:
        self.name, self._start_s, self._first, self._next_s = name, 0.0, -1.0, 0.0

    def __call__(self, now: str, share: float) -> None:
        """Say that ``share`` of the work is done; what was done before the first call took none of the time."""
        if self._first < 0:
            self._start_s, self._first = time.monotonic(), share
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + EVERY_S
        done, spent_s = share - self._first, time.monotonic() - self._start_s
        left = f"about {spent_s * (1 - share) / done / 60:.1f} min left" if done > 0.001 else ""
        print(f"\r{self.name}: {now}, {100 * share:.0f} % {left:<24}", end="", flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        print(flush=True)
