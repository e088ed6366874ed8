"""A storage format: which axes of a tensor are kept, from the root down, and how each is kept."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self, final

from tensorwise.errors import FormatError
from tensorwise.tensor.levels import LEVELS, Compressed, Dense, Level, Repeated, Single, Slots
from tensorwise.tensor.orders import split_name
from tensorwise.tensor.remap import Axis, Part

MAX_SPLIT = 2**31 - 1
"""Inner extents stay within 32-bit coordinates."""
_MODE_NAMES = "iklmnopqrstuvw"
_TOKEN = re.compile(r"\s*(->|[A-Za-z]+(?:#|-[A-Za-z]+|[0-9]*)|[0-9]+|\S)")


@final
@dataclass(frozen=True)
class Format:
    """Modes of a tensor and the ordered levels that store them.

    Any order of levels is allowed, also an inner part above its outer one. A mode is stored
    whole, or split once: ``i1 = i // s`` and ``i0 = i % s``, where ``splits["i"] = s``. In a matrix a mode
    may be stored by slots (``k#``) that number the entries of a row, with the coordinate itself in a
    level S below, or by diagonals (``k-i``). ``orders["i"]`` names a permutation of the mode that is
    computed from the entries (see ``orders.py``).

    >>> blocks = Format.parse("(i,k) -> U(i1) C(k1) U(i0:4) U(k0:2)")
    >>> blocks.extents((10, 7))
    (3, 4, 4, 2)
    >>> print(blocks.renamed(("a", "b")))
    (a,b) -> U(a1) C(b1) U(a0:4) U(b0:2)
    >>> blocks.padded, csr().padded
    (True, False)
    >>> Format.parse("(i:length4096,k) -> U(i1) P(k#) U(i0:8) S16(k)").structure
    '(i:order,k) -> U(i1) P(k#) U(i0) S16(k)'
    """

    modes: tuple[str, ...]
    levels: tuple[Level, ...]
    splits: Mapping[str, int] = field(default_factory=dict, hash=False)
    orders: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Raise FormatError unless every mode is stored exactly once, and what levels need is above them."""
        object.__setattr__(self, "splits", MappingProxyType(dict(self.splits)))
        object.__setattr__(self, "orders", MappingProxyType(dict(self.orders)))
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
        """The text without split sizes. A kernel that takes sizes at run time depends on nothing else of the format.

        >>> bcsr(4, 8).structure
        '(i,k) -> U(i1) C(k1) U(i0) U(k0)'
        """
        return self._text(sizes=False)

    def _text(self, sizes: bool) -> str:
        def shown(level: Level) -> str:
            size = f":{self.splits[level.axis.mode]}" if sizes and level.axis.part == "inner" else ""
            return f"{level.letter}({level.axis.name}{size})"

        def header(mode: str) -> str:
            return f"{mode}:{self.orders[mode] if sizes else 'order'}" if mode in self.orders else mode

        return f"({','.join(map(header, self.modes))}) -> {' '.join(map(shown, self.levels))}"

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
        *_, last = (level for level in self.levels if not level.single)
        return last.pads

    @property
    def order_kept(self) -> bool:
        """Whether packed values stand in the row-major order of the entries, without padding."""
        split = {axis.mode for axis in self.axes if axis.part in ("outer", "inner")}
        return not self.padded and not self.orders and self.axes == row_major(self.modes, split)

    @property
    def loops(self) -> tuple[Axis, ...]:
        """The axes that a program runs over: all but those that are followed."""
        return tuple(level.axis for level in self.levels if not level.single)

    @property
    def followed(self) -> tuple[Axis, ...]:
        """The axes without a loop: a single level's coordinate follows from the position above.

        >>> [axis.name for axis in Format.parse("U(i1) P(k#) U(i0:8) S(k)").followed]
        ['k']
        """
        return tuple(level.axis for level in self.levels if level.single)

    def renamed(self, modes: Sequence[str]) -> Self:
        """Return the same format with the modes called ``modes``, in the same order."""
        if len(modes) != len(self.modes):
            raise FormatError(f"{self} has {self.order} modes, got {len(modes)} names: {', '.join(modes)}")
        names = dict(zip(self.modes, modes))
        levels = tuple(type(level)(level.axis.renamed(names)) for level in self.levels)
        splits = {names[mode]: size for mode, size in self.splits.items()}
        orders = {names[mode]: order for mode, order in self.orders.items()}
        return type(self)(tuple(modes), levels, splits, orders)

    def extents(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return how many coordinates each level's axis has, for a tensor of ``shape``."""
        if len(shape) != self.order:
            raise FormatError(f"{self} stores a tensor of order {self.order}, got the shape {tuple(shape)}")
        sizes = dict(zip(self.modes, shape))
        return tuple(
            axis.extent(sizes[axis.mode], self.splits.get(axis.mode, 1), sizes.get(axis.along, 1))
            for axis in self.axes
        )


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


def coo(order: int = 2) -> Format:
    """Coordinate lists: one position an entry, every coordinate of it.

    >>> print(coo())
    (i,k) -> N(i) S(k)
    """
    first, *others = csf(order).modes
    return Format((first, *others), (Repeated(Axis(first)), *(Single(Axis(mode)) for mode in others)))


def sell(height: int, window: int = 0) -> Format:
    """Slices of ``height`` rows, sorted by length within ``window`` rows (0: all): SELL-C-sigma.

    >>> print(sell(8, 4096))
    (i:length4096,k) -> U(i1) P(k#) U(i0:8) S(k)
    """
    return Format.parse(f"(i:length{window or ''},k) -> U(i1) P(k#) U(i0:{height}) S(k)")


def dia(height: int) -> Format:
    """Pieces of diagonals: each block of ``height`` rows keeps the diagonals that have an entry there, zeros included.

    >>> print(dia(64))
    (i,k) -> U(i1) C(k-i) U(i0:64)
    """
    return Format.parse(f"(i,k) -> U(i1) C(k-i) U(i0:{height})")


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
        if Axis.from_name(mode) != Axis(mode):
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
        if parts & {"slot", "diagonal"}:
            _check_matrix_axes(format, mode, parts)
            continue
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
    for mode, order in format.orders.items():
        if mode not in format.modes:
            raise FormatError(
                f"an order is given for {mode!r}, which is no mode of ({','.join(format.modes)})"
            )
        split_name(order)
    if len(format.orders) > 1:
        raise FormatError(f"one mode may be stored in an order of its own, got {', '.join(format.orders)}")
    if format.levels[0].single:
        raise FormatError(f"{format.levels[0]} needs a level above it that lists positions, as in N(i) S(k)")
    for depth, level in enumerate(format.levels):
        if isinstance(level, Slots) != (level.axis.part == "slot"):
            raise FormatError(
                f"{level}: a level P keeps slots and nothing else does, as in P({level.axis.mode}#)"
            )
        if not level.unique and any(not below.single for below in format.levels[depth + 1 :]):
            raise FormatError(f"{level} keeps one position an entry; only levels S follow it")
        if level.single and not _determined(format, depth):
            raise FormatError(
                f"{level} holds one coordinate a position; above it a level N, or slots {level.axis.mode}# and "
                "all other modes, have to identify the entries"
            )


def _determined(format: Format, depth: int) -> bool:
    """Whether the levels above ``depth`` give each entry a position of its own."""
    above = format.levels[:depth]
    if any(not level.unique for level in above):
        return True
    mode = format.levels[depth].axis.mode
    stored = {level.axis for level in above}
    others = {axis for axis in format.axes if axis.mode != mode}
    return Axis(mode, "slot") in stored and others <= stored


def _check_matrix_axes(format: Format, mode: str, parts: set[Part]) -> None:
    """Raise FormatError unless slots and diagonals of ``mode`` are stored as they can be."""
    name = next(axis.name for axis in format.axes if axis.mode == mode and axis.part in ("slot", "diagonal"))
    if len(format.modes) != 2:
        raise FormatError(f"{name!r}: slots and diagonals are for matrices, got {len(format.modes)} modes")
    (other,) = (m for m in format.modes if m != mode)
    if parts == {"diagonal"}:
        along = next(axis.along for axis in format.axes if axis.part == "diagonal")
        whole = {axis.part for axis in format.axes if axis.mode == along} <= {"whole", "outer", "inner"}
        if along != other or not whole:
            raise FormatError(
                f"{name!r}: diagonals run along the other mode {other!r}, stored whole or split"
            )
        if format.orders:
            raise FormatError(f"{name!r}: diagonals need both modes in their own order")
    elif parts == {"slot", "whole"}:
        if not any(level.single and level.axis == Axis(mode) for level in format.levels):
            raise FormatError(f"{mode!r} is stored by slots; keep its coordinates in a level S({mode})")
    else:
        raise FormatError(
            f"{mode!r} is stored as {', '.join(sorted(parts))}; slots need S({mode}) below, diagonals nothing"
        )


class _Parser:
    """One pass over the text: ``[(mode[:order], ...) ->] LETTER(axis[:size]) ...``."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def parse(self) -> tuple[tuple[str, ...], tuple[Level, ...], dict[str, int], dict[str, str]]:
        modes: list[str] = []
        levels: list[Level] = []
        splits: dict[str, int] = {}
        orders: dict[str, str] = {}
        if self.peek() == "(":
            while not modes or self.peek() == ",":
                self.take("," if modes else "(")
                modes.append(self.mode())
                if self.peek() == ":":
                    self.take(":")
                    orders[modes[-1]] = self.take()
            self.take(")")
            self.take("->")
        while not levels or self.peek():
            levels.append(self.level(splits))
        listed = tuple(modes) or tuple(sorted({level.axis.mode for level in levels}))
        return listed, tuple(levels), splits, orders

    def level(self, splits: dict[str, int]) -> Level:
        if self.peek() not in LEVELS:
            raise self.error(f"a level {', '.join(LEVELS)}")
        kind = LEVELS[self.take()]
        self.take("(")
        axis = Axis.from_name(self.peek())
        if axis is None:
            raise self.error("an axis such as i, i1, i0:4, k# or k-i")
        self.take()
        if self.peek() == ":" and axis.part == "inner":
            self.take(":")
            if not self.peek().isdecimal():
                raise self.error("a size such as 4")
            splits[axis.mode] = int(self.take()[:20])  # Python refuses to read thousands of digits
        self.take(")")
        return kind(axis)

    def mode(self) -> str:
        if Axis.from_name(self.peek()) != Axis(self.peek()):
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
