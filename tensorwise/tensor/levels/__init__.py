"""The kinds of levels. A new kind is one file beside these and one row in ``LEVELS``."""

from collections.abc import Mapping
from types import MappingProxyType

from tensorwise.tensor.levels.compressed import Compressed
from tensorwise.tensor.levels.dense import Dense
from tensorwise.tensor.levels.level import Level

LEVELS: Mapping[str, type[Level]] = MappingProxyType({kind.letter: kind for kind in (Dense, Compressed)})
"""Letter in a format's text -> kind of level."""

__all__ = ["LEVELS", "Compressed", "Dense", "Level"]
