"""The kinds of levels. A new kind is one file beside these and one row in ``LEVELS``."""

from typing import Final

from tensorwise.registry import Registry
from tensorwise.tensor.levels.bitmask import Bitmask
from tensorwise.tensor.levels.compressed import Compressed, ShortCompressed
from tensorwise.tensor.levels.dense import Dense
from tensorwise.tensor.levels.level import Level
from tensorwise.tensor.levels.repeated import Repeated
from tensorwise.tensor.levels.single import ShortSingle, Single
from tensorwise.tensor.levels.slots import Slots

LEVELS: Final[Registry[type[Level]]] = Registry(
    "level",
    "levels",
    {
        kind.letter: kind
        for kind in (Dense, Compressed, ShortCompressed, Bitmask, Repeated, Slots, Single, ShortSingle)
    },
    lambda value: isinstance(value, type) and issubclass(value, Level),
)
"""Letter in a format's text -> kind of level."""


def proposed_levels() -> tuple[str, ...]:
    """Return the letters of the levels that the spaces of CPUs propose."""
    return tuple(letter for letter, kind in LEVELS.sound().items() if kind.proposed)


__all__ = [
    "LEVELS", "Bitmask", "Compressed", "Dense", "Level", "Repeated", "ShortCompressed", "ShortSingle", "Single",
    "Slots", "proposed_levels",
]  # fmt: skip
