"""Whether others on this machine use the caches and the memory that virtual machines share.

A neighbour takes no processor of ours, so that nothing shows its work but our own times: programs that go through the last
cache or memory take 1.2 to 2.5 times as long, for some tenths of a second up to many seconds, while arithmetic takes what
it always does. So a pass over an array that only the last cache holds is timed beside them: its time says which it is.
"""

import mmap
import time
from typing import Final, final

import numpy as np

ELEMENTS: Final = 2**20
"""Of the array: 4 MB, more than the caches of a core and less than that of several."""
KEPT: Final = 2000
"""Readings that are remembered; with those of the children, that share them."""
LEVEL: Final = 0.05
"""Share of the remembered readings that are faster than what counts as quiet: the machine may seldom be."""
SLOWER: Final = 1.12
"""Factor over that up to which it still is. The two states are 1.4 apart where this was measured."""
PAUSE_S: Final = 0.01
"""Between two readings while waiting."""
FIRST: Final = 100
"""Readings with which it begins; they take a tenth of a second."""


@final
class Neighbours:
    """Tells when the memory is undisturbed. Make one, before forking: readings of all children count.

    Nothing here is exact, nor needs to be: processes that write at the same time may lose a reading.
    """

    def __init__(self) -> None:
        self._array = np.frombuffer(mmap.mmap(-1, 4 * ELEMENTS), np.float32)
        """Shared, too: a copy made in a child would lie elsewhere in the caches."""
        self._shared = np.frombuffer(mmap.mmap(-1, 8 * (KEPT + 1)), np.float64)
        """A count, and the readings in a ring."""
        for _ in range(FIRST):
            self._read()
            time.sleep(PAUSE_S / 10)

    def quiet(self) -> bool:
        """Read once; return whether it is as fast as the machine can be."""
        now = self._read()
        readings = self._shared[1 : 1 + min(int(self._shared[0]), KEPT)]
        return bool(now <= SLOWER * np.quantile(readings, LEVEL))

    def wait(self, limit_s: float) -> bool:
        """Return as soon as it is quiet, and whether that was within ``limit_s``."""
        end = time.monotonic() + limit_s
        while not self.quiet():
            if time.monotonic() >= end:
                return False
            time.sleep(PAUSE_S)
        return True

    def _read(self) -> float:
        """Seconds of the second of two passes: the first brings the array into the cache."""
        np.add(self._array, 1, out=self._array)
        start = time.perf_counter()
        np.add(self._array, 1, out=self._array)
        seconds = time.perf_counter() - start
        count = int(self._shared[0])
        self._shared[1 + count % KEPT] = seconds
        self._shared[0] = count + 1
        return seconds
