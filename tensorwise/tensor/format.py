"""A storage format: which axes of a tensor are kept, from the root down, and how each is kept."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self, final

from tensorwise.errors import FormatError
from tensorwise.tensor.levels import LEVELS, Compressed, Dense, Level
from tensorwise.tensor.remap import Axis

MAX_SPLIT = 2**31 - 1
"""Inner extents stay within 32-bit coordinates."""
_MODE_NAMES = "iklmnopqrstuvw"
_TOKEN = re.compile(r"\s*(->|[A-Za-z]+[0-9]*|[0-9]+|\S)")


@final
@dataclass(frozen=True)
class Format:
    """Modes of a tensor and the ordered levels that store them.

    Any order of levels is allowed, also an inner part above its outer one. A mode is stored
    whole, or split once: ``i1 = i // s`` and ``i0 = i % s``, where ``splits["i"] = s``.

    >>> blocks = Format.parse("(i,k) -> U(i1) C(k1) U(i0:4) U(k0:2)")
    >>> blocks.extents((10, 7))
    (3, 4, 4, 2)
    >>> print(blocks.renamed(("a", "b")))
    (a,b) -> U(a1) C(b1) U(a0:4) U(b0:2)
    >>> blocks.padded, csr().padded
    (True, False)
    """

    modes: tuple[str, ...]
    levels: tuple[Level, ...]
    splits: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Raise FormatError unless every mode is stored exactly once, whole or in both parts."""
        object.__setattr__(self, "splits", MappingProxyType(dict(self.splits)))
        _check(self)

    @classmethod
    def parse(cls, text: str, name: str = "") -> Self:
        """Return the format that ``text`` describes; ``name`` is the operand's, for messages.

        Without a header such as ``(i,k) ->``, the modes are the letters in alphabetical order.
        Raises FormatError, which names the place and what was expected there.

        >>> Format.parse("U(k) C(i)") == Format.parse("(i,k) -> U(k) C(i)") == csc()
        True
        >>> Format.parse("(i,k) -> U(i) C(k")
        Traceback (most recent call last):
        tensorwise.errors.FormatError: format '(i,k) -> U(i) C(k': expected ')' at the end, after 'C(k'
        """
        try:
            return cls(*_Parser(text).parse())
        except FormatError as error:
            raise FormatError(f"format{f' of {name}' if name else ''} {text!r}: {error}") from None

    def __str__(self) -> str:
        return self._text(sizes=True)

    @property
    def structure(self) -> str:
        """The text without split sizes: what a kernel that takes sizes at run time depends on.

        >>> bcsr(4, 8).structure
        '(i,k) -> U(i1) C(k1) U(i0) U(k0)'
        """
        return self._text(sizes=False)

    def _text(self, sizes: bool) -> str:
        def shown(level: Level) -> str:
            size = f":{self.splits[level.axis.mode]}" if sizes and level.axis.part == "inner" else ""
            return f"{level.letter}({level.axis.name}{size})"

        return f"({','.join(self.modes)}) -> {' '.join(map(shown, self.levels))}"

    @property
    def order(self) -> int:
        """How many modes the tensor has."""
        return len(self.modes)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The storage axes from the root down, one a level."""
        return tuple(level.axis for level in self.levels)

    @property
    def padded(self) -> bool:
        """Whether the values may hold positions that are no stored entry (zero by convention)."""
        return self.levels[-1].full

    @property
    def order_kept(self) -> bool:
        """Whether packed values stand in the row-major order of the entries, without padding."""
        split = {axis.mode for axis in self.axes if axis.part != "whole"}
        return not self.padded and self.axes == row_major(self.modes, split)

    def renamed(self, modes: Sequence[str]) -> Self:
        """Return the same format with the modes called ``modes``, in the same order."""
        if len(modes) != len(self.modes):
            raise FormatError(f"{self} has {self.order} modes, got {len(modes)} names: {', '.join(modes)}")
        names = dict(zip(self.modes, modes))
        levels = tuple(type(level)(Axis(names[level.axis.mode], level.axis.part)) for level in self.levels)
        return type(self)(tuple(modes), levels, {names[mode]: size for mode, size in self.splits.items()})

    def extents(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return how many coordinates each level's axis has, for a tensor of ``shape``."""
        if len(shape) != self.order:
            raise FormatError(f"{self} stores a tensor of order {self.order}, got the shape {tuple(shape)}")
        sizes = dict(zip(self.modes, shape))
        return tuple(axis.extent(sizes[axis.mode], self.splits.get(axis.mode, 1)) for axis in self.axes)


def row_major(modes: Sequence[str], split: set[str]) -> tuple[Axis, ...]:
    """Return the axes in the order in which row-major entries are sorted."""
    return tuple(
        axis
        for mode in modes
        for axis in ((Axis(mode, "outer"), Axis(mode, "inner")) if mode in split else (Axis(mode),))
    )


def csr() -> Format:
    """Compressed sparse rows."""
    return Format.parse("(i,k) -> U(i) C(k)")


def csc() -> Format:
    """Compressed sparse columns."""
    return Format.parse("(i,k) -> U(k) C(i)")


def dcsr() -> Format:
    """Doubly compressed sparse rows: empty rows cost nothing."""
    return Format.parse("(i,k) -> C(i) C(k)")


def bcsr(rows: int, columns: int) -> Format:
    """Compressed rows of dense blocks of ``rows`` x ``columns``."""
    return Format.parse(f"(i,k) -> U(i1) C(k1) U(i0:{rows}) U(k0:{columns})")


def csf(order: int) -> Format:
    """Compressed sparse fibers: every mode compressed, in mode order.

    >>> print(csf(3))
    (i,k,l) -> C(i) C(k) C(l)
    """
    if not 1 <= order <= len(_MODE_NAMES):
        raise FormatError(f"csf: the order must lie between 1 and {len(_MODE_NAMES)}, got {order}")
    modes = tuple(_MODE_NAMES[:order])
    return Format(modes, tuple(Compressed(Axis(mode)) for mode in modes))


def dense(order: int) -> Format:
    """Every mode uncompressed, in mode order."""
    modes = csf(order).modes
    return Format(modes, tuple(Dense(Axis(mode)) for mode in modes))


def _check(format: Format) -> None:
    axes, names = format.axes, ", ".join(axis.name for axis in format.axes)
    if not format.modes:
        raise FormatError("a format needs at least one mode")
    for mode in format.modes:
        if Axis.named(mode) != Axis(mode):
            raise FormatError(f"mode {mode!r} is no name of letters only")
        if format.modes.count(mode) > 1:
            raise FormatError(f"mode {mode!r} is listed twice in ({','.join(format.modes)})")
    for axis in axes:
        if axis.mode not in format.modes:
            raise FormatError(f"{axis.name!r} belongs to no mode of ({','.join(format.modes)})")
        if axes.count(axis) > 1:
            raise FormatError(f"{axis.name!r} is stored twice; list each axis once (got {names})")
    for mode in format.modes:
        parts = {axis.part for axis in axes if axis.mode == mode}
        if not parts:
            raise FormatError(f"mode {mode!r} is not stored; add a level for it (got {names})")
        if "whole" in parts and len(parts) > 1:
            raise FormatError(f"mode {mode!r} is stored both whole and split; keep one (got {names})")
        if parts in ({"outer"}, {"inner"}):
            there, missing = f"{mode}1", f"{mode}0"
            if parts == {"inner"}:
                there, missing = missing, there
            raise FormatError(f"{there!r} is stored without {missing!r}; list both (got {names})")
        if "inner" in parts and mode not in format.splits:
            raise FormatError(f"'{mode}0' has no size; write it as in {mode}0:4")
    for mode, size in format.splits.items():
        if Axis(mode, "inner") not in axes:
            raise FormatError(
                f"a split of {size} is given for mode {mode!r}, which is not split (got {names})"
            )
        if not 1 <= size <= MAX_SPLIT:
            raise FormatError(f"'{mode}0' has the size {size}; sizes lie between 1 and {MAX_SPLIT}")


class _Parser:
    """One pass over the text: ``[(mode, ...) ->] LETTER(axis[:size]) ...``."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def parse(self) -> tuple[tuple[str, ...], tuple[Level, ...], dict[str, int]]:
        modes: list[str] = []
        levels: list[Level] = []
        splits: dict[str, int] = {}
        if self.peek() == "(":
            while not modes or self.peek() == ",":
                self.take("," if modes else "(")
                modes.append(self.mode())
            self.take(")")
            self.take("->")
        while not levels or self.peek():
            levels.append(self.level(splits))
        return tuple(modes) or tuple(sorted({level.axis.mode for level in levels})), tuple(levels), splits

    def level(self, splits: dict[str, int]) -> Level:
        if self.peek() not in LEVELS:
            known = " or ".join(f"{letter} ({kind.__name__.lower()})" for letter, kind in LEVELS.items())
            raise self.error(f"a level {known}")
        kind = LEVELS[self.take()]
        self.take("(")
        axis = Axis.named(self.peek())
        if axis is None:
            raise self.error("an axis such as i, i1 or i0:4")
        self.take()
        if self.peek() == ":" and axis.part == "inner":
            self.take(":")
            if not self.peek().isdecimal():
                raise self.error("a size such as 4")
            splits[axis.mode] = int(self.take()[:20])  # Python refuses to read thousands of digits
        self.take(")")
        return kind(axis)

    def mode(self) -> str:
        if Axis.named(self.peek()) != Axis(self.peek()):
            raise self.error("a mode, letters only")
        return self.take()

    def peek(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        return match[1] if match else ""

    def take(self, expected: str = "") -> str:
        if expected and self.peek() != expected:
            raise self.error(repr(expected))
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise self.error("more")
        self.at = match.end()
        return match[1]

    def error(self, expected: str) -> FormatError:
        got = self.peek()
        column = len(self.text) - len(self.text[self.at :].lstrip()) + 1
        place = f"in column {column}, got {got!r}" if got else "at the end"
        before = self.text[: self.at].split()
        return FormatError(f"expected {expected} {place}" + (f", after {before[-1]!r}" if before else ""))
