"""What a background search may spend: CPU seconds, in proportion to the time that products have taken."""

from typing import Final

SPENT_SHARE: Final = 0.5
"""Largest share of the time of a product's calls so far that a search spends, in CPU seconds."""
LATER_SHARE: Final = 0.05
"""Share that a search spends at most where that is more than `MAX_NEEDED` times what it needs."""
MAX_NEEDED: Final = 4.0
"""Most that a short search spends, as a multiple of what it needs."""
SMALL_SEARCH_S: Final = 0.5
"""CPU seconds of a small search: inference of the cost model, compiling and timing a few candidates (Zen 4)."""
PER_ENTRY_S: Final = 0.2e-6
"""CPU seconds for each entry of the matrix: its features, the sizes of formats, packing, verification (Zen 4)."""
NUM_CALLS: Final = 24
"""Calls in a search: two candidates and the product in place, each verified twice and timed in three rounds."""


def needed_s(entries: int, call_s: float, threads: int) -> float:
    """Return the CPU seconds that a search needs at least.

    Args:
        entries: of the matrix.
        call_s: seconds that a call of its product takes.
        threads: of a call.
    """
    return SMALL_SEARCH_S + PER_ENTRY_S * entries + NUM_CALLS * call_s * threads


def budget_s(spent_s: float, needed: float) -> float:
    """Return the CPU seconds that a search may spend when a product's calls have taken ``spent_s`` seconds.

    Starting the process takes 0.6 seconds besides. With less than ``needed`` (see `needed_s`) nothing is measured.

    >>> budget_s(1.0, 0.5), budget_s(10.0, 0.5), budget_s(100.0, 0.5)
    (0.5, 2.0, 5.0)
    """
    return min(SPENT_SHARE * spent_s, max(MAX_NEEDED * needed, LATER_SHARE * spent_s))
