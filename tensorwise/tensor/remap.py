"""From the coordinates of a tensor to the coordinates that a format stores, and back.

A mode is stored whole, or split once into an outer and an inner axis, or as the number of an entry
within its row (a slot), or as its distance from another mode (a diagonal). The arithmetic is written
with plain operators, so that it serves Python integers, NumPy arrays and symbolic expressions.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal, Self

Part = Literal["whole", "outer", "inner", "slot", "diagonal", "permuted"]
_SUFFIX: dict[Part, str] = {"whole": "", "outer": "1", "inner": "0", "slot": "#"}
_PARTS: dict[str, Part] = {suffix: part for part, suffix in _SUFFIX.items()}
_AXIS_NAME = re.compile(r"([A-Za-z]+)([01#]?|-[A-Za-z]+)")


@dataclass(frozen=True)
class Axis:
    """A storage axis: a mode whole, a part of a split one, the slots of its entries, or its diagonals.

    Slots number the entries that share all other coordinates, 0, 1, 2, ...; what is to be known
    of the coordinate itself, another level has to store. Diagonals tell a mode by its distance
    from the mode ``along``, shifted so that the lowest is 0.

    >>> [axis.name for axis in (Axis("i"), Axis("i", "outer"), Axis("i", "inner"))]
    ['i', 'i1', 'i0']
    >>> Axis("k", "slot").name, Axis("k", "diagonal", "i").name
    ('k#', 'k-i')
    """

    mode: str
    part: Part = "whole"
    along: str = ""

    @property
    def name(self) -> str:
        """The mode with the suffix 1 for an outer, 0 for an inner part, # for slots; k-i for diagonals."""
        return f"{self.mode}-{self.along}" if self.part == "diagonal" else self.mode + _SUFFIX[self.part]

    @classmethod
    def from_name(cls, name: str) -> Self | None:
        """Return the axis that ``name`` stands for, or None where it is no axis name."""
        match = _AXIS_NAME.fullmatch(name)
        if match is None:
            return None
        mode, suffix = match.groups()
        return cls(mode, "diagonal", suffix[1:]) if suffix[:1] == "-" else cls(mode, _PARTS[suffix])

    def renamed(self, names: dict[str, str]) -> Self:
        """Return the same axis of modes called otherwise."""
        return type(self)(names[self.mode], self.part, names.get(self.along, ""))

    def extent(self, size: Any, split: Any, along: Any = 1) -> Any:
        """Return how many coordinates this axis has, at most.

        Args:
            size: of the mode.
            split: extent of the inner part.
            along: size of the mode that diagonals run along.

        >>> Axis("i", "outer").extent(10, 4), Axis("i", "inner").extent(10, 4)
        (3, 4)
        >>> Axis("k", "diagonal", "i").extent(3, 1, 4)
        6
        """
        if self.part == "inner":
            return split
        if self.part == "outer":
            return (size + split - 1) // split
        return size + along - 1 if self.part == "diagonal" else size


def join(outer: Any, inner: Any, split: Any) -> Any:
    """Return the tensor's coordinate from both parts of a split mode; the inverse of ``//`` and ``%``.

    >>> join(9 // 4, 9 % 4, 4)
    9
    """
    return outer * split + inner


def diagonal(coordinate: Any, along: Any, size: Any) -> Any:
    """Return the diagonal of ``coordinate`` at ``along``, a coordinate of a mode of ``size``; 0 is the lowest.

    >>> diagonal(0, 4, 5), diagonal(3, 4, 5), diagonal(3, 0, 5)
    (0, 3, 7)
    """
    return coordinate - along + (size - 1)


def off_diagonal(number: Any, along: Any, size: Any) -> Any:
    """Return the coordinate on diagonal ``number`` at ``along``; the inverse of ``diagonal``."""
    return number + along - (size - 1)
