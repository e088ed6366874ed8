"""The kinds of levels. A new kind is one file beside these and one row in ``LEVELS``."""

from collections.abc import Mapping
from types import MappingProxyType

from tensorwise.tensor.levels.bitmask import Bitmask
from tensorwise.tensor.levels.compressed import Compressed, ShortCompressed
from tensorwise.tensor.levels.dense import Dense
from tensorwise.tensor.levels.level import Level
from tensorwise.tensor.levels.repeated import Repeated
from tensorwise.tensor.levels.single import ShortSingle, Single
from tensorwise.tensor.levels.slots import Slots

LEVELS: Mapping[str, type[Level]] = MappingProxyType(
    {
        kind.letter: kind
        for kind in (Dense, Compressed, ShortCompressed, Bitmask, Repeated, Slots, Single, ShortSingle)
    }
)
"""Letter in a format's text -> kind of level."""

__all__ = [
    "LEVELS", "Bitmask", "Compressed", "Dense", "Level", "Repeated", "ShortCompressed", "ShortSingle", "Single",
    "Slots",
]  # fmt: skip
