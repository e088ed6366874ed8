"""Families of patterns, divided into parts for training, validation and test: never pattern by pattern."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from tensorwise.errors import InputError

SPLIT_SHARES: Final = {"train": 0.8, "validation": 0.1, "test": 0.1}
"""Shares of the patterns; WACO holds 20 % back (section 4.1.3)."""


def split_families(
    families: Iterable[str], rng: np.random.Generator, parts: Mapping[str, float] = SPLIT_SHARES
) -> dict[str, str]:
    """Divide families: family -> part.

    In random order, each family goes to the part that is furthest below its share of the patterns. Every part gets at least
    one family if there are enough families.

    Args:
        families: the family of each pattern, repeated as often as there are patterns of it.
        rng: decides the order.
        parts: part -> share of the patterns; shares are positive and add up to 1.

    Raises:
        InputError: shares that are not positive or do not add up to 1.
    """
    if not parts or min(parts.values()) <= 0 or abs(sum(parts.values()) - 1) > 1e-9:
        raise InputError(f"shares must be positive and add up to 1, got {dict(parts)}")
    counts = Counter(families)
    total = counts.total()
    held = dict.fromkeys(parts, 0)
    part_of: dict[str, str] = {}
    names = sorted(counts)
    for place in rng.permutation(len(names)):
        name = names[int(place)]
        part_of[name] = min(parts, key=lambda part: (held[part] > 0, held[part] - parts[part] * total))
        held[part_of[name]] += counts[name]
    return part_of
