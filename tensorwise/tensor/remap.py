"""From the coordinates of a tensor to the coordinates that a format stores, and back.

A mode is stored whole, or split once into an outer and an inner axis. The arithmetic is written
with plain operators, so that it serves Python integers, NumPy arrays and symbolic expressions.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal, Self

Part = Literal["whole", "outer", "inner"]
_SUFFIX: dict[Part, str] = {"whole": "", "outer": "1", "inner": "0"}
_PARTS: dict[str, Part] = {suffix: part for part, suffix in _SUFFIX.items()}
_NAME = re.compile(r"([A-Za-z]+)([01]?)")


@dataclass(frozen=True)
class Axis:
    """A storage axis: a mode stored whole, or the outer or inner part of a split one.

    >>> Axis("i", "whole").name, Axis("i", "outer").name, Axis("i", "inner").name
    ('i', 'i1', 'i0')
    """

    mode: str
    part: Part = "whole"

    @property
    def name(self) -> str:
        """The mode with the suffix 1 for an outer and 0 for an inner part."""
        return self.mode + _SUFFIX[self.part]

    @classmethod
    def named(cls, name: str) -> Self | None:
        """Return the axis that ``name`` stands for, or None where it is no axis name."""
        match = _NAME.fullmatch(name)
        return cls(match[1], _PARTS[match[2]]) if match else None

    def extent(self, size: Any, split: Any) -> Any:
        """Return how many coordinates this axis has in a mode of ``size``, split by ``split``.

        >>> Axis("i", "outer").extent(10, 4), Axis("i", "inner").extent(10, 4)
        (3, 4)
        """
        if self.part == "whole":
            return size
        return split if self.part == "inner" else (size + split - 1) // split

    def coordinate(self, coordinate: Any, split: Any) -> Any:
        """Return the storage coordinate of the tensor's ``coordinate``: i, i // s or i % s.

        >>> Axis("i", "outer").coordinate(9, 4), Axis("i", "inner").coordinate(9, 4)
        (2, 1)
        """
        if self.part == "whole":
            return coordinate
        return coordinate % split if self.part == "inner" else coordinate // split


def join(outer: Any, inner: Any, split: Any) -> Any:
    """Return the tensor's coordinate from both parts of a split mode; the inverse of a split."""
    return outer * split + inner
