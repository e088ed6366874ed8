"""The kinds of levels. A new kind is one file beside these and one row in ``LEVELS``."""

import re
from typing import Final

from tensorwise.registry import Registry, needs_subclass
from tensorwise.tensor.levels.bitmask import Bitmask
from tensorwise.tensor.levels.compressed import Compressed, ShortCompressed
from tensorwise.tensor.levels.dense import Dense
from tensorwise.tensor.levels.level import Level
from tensorwise.tensor.levels.repeated import Repeated
from tensorwise.tensor.levels.single import ShortSingle, Single
from tensorwise.tensor.levels.slots import Slots


def _misfit(letter: str, kind: object) -> str | None:
    """Return what keeps a class from being the level of a letter."""
    if problem := needs_subclass(Level)(letter, kind):
        return problem
    missing = [name for name in ("letter", "arrays") if not hasattr(kind, name)]
    if missing:
        return f"does not define {', '.join(missing)}"
    if kind.letter != letter:  # type: ignore[attr-defined]
        return f"has the letter {kind.letter!r}"  # type: ignore[attr-defined]
    if not re.fullmatch("[A-Z][0-9]*", letter):
        return "needs a capital letter, or one with digits behind it, such as C16"
    return None


LEVELS: Final[Registry[type[Level]]] = Registry(
    "level",
    "levels",
    {
        kind.letter: kind
        for kind in (Dense, Compressed, ShortCompressed, Bitmask, Repeated, Slots, Single, ShortSingle)
    },
    _misfit,
    crosses=True,
)
"""Letter in a format's text -> kind of level."""


def proposed_levels() -> tuple[str, ...]:
    """Return the letters of the levels that the spaces of CPUs propose."""
    return tuple(letter for letter, kind in LEVELS.sound(crossing=True).items() if kind.proposed)


__all__ = [
    "LEVELS", "Bitmask", "Compressed", "Dense", "Level", "Repeated", "ShortCompressed", "ShortSingle", "Single",
    "Slots", "proposed_levels",
]  # fmt: skip
