"""Tables of numbers in text files: read in blocks, parsed by NumPy, every line checked; and written.

Two parsers give the same numbers. The fast one works on whole blocks and accepts only what it is certain
of (plain digits, decimal numbers, the same number of tokens on every line that has any); whatever else a
block holds (``nan``, ``1.0D+03``, mistakes) goes to the slow one, line by line, which also names the line
that is wrong. Nothing is ever allocated from a number that a file claims, and a compressed file is read
only as far as files of numbers expand.
"""

import gzip
import itertools
import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, NoReturn, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.memory import available_bytes

BLOCK_BYTES = 4 * 2**20
#: A longer line is no table of numbers; the bound keeps a file without line ends from being read whole.
LONGEST_LINE_BYTES = 2**20
#: A compressed file may expand to so many bytes whatever its size, and beyond them to ``MOST_EXPANSION`` times
#: its size. Files of numbers expand 3 to 20 times; what expands 1000 times (deflate's limit is 1032) repeats
#: one line, and is made to exhaust memory and time.
FREE_BYTES = 16 * 2**20
MOST_EXPANSION = 100
#: So many lines are written at a time.
_WRITTEN_LINES = 2**16
#: Whole numbers of up to this many digits fit into int64.
_SAFE_DIGITS = 18
_FORTRAN = re.compile(rb"[+-]?(?:\d+(?:\.\d*)?|\.\d+)[dD][+-]?\d+")
_DECIMAL_BYTES = np.zeros(256, np.bool_)
_DECIMAL_BYTES[list(b"0123456789+-.eE")] = True


EXPANDED = (
    f"the most that a compressed file of its size may ({FREE_BYTES >> 20} MiB, or {MOST_EXPANSION} times its size); "
    "if you trust it, decompress it first (gunzip)"
)


@final
class TextFile:
    """A text file, gzipped or not (told by its first bytes), handed out by line or by block.

    Use it as a context manager. Whatever goes wrong with the file is raised as InputError with its name.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        self.line = 1  # number of the next line
        self._buffer, self._at, self._ended, self._taken = b"", 0, False, 0
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode):
                kind = "a directory" if stat.S_ISDIR(status.st_mode) else "no regular file"
                raise InputError(f"{path}: is {kind}; expected a file")
            self._raw = open(path, "rb")  # noqa: SIM115 (closed by __exit__)
        except (OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path}: cannot be opened ({_reason(error)})") from error
        self._stream: IO[bytes] | gzip.GzipFile = self._raw
        self.compressed = self._raw.read(2) == b"\x1f\x8b"
        self.most_bytes = status.st_size  # upper bound of the text's length
        if self.compressed:
            self._stream = gzip.GzipFile(fileobj=self._raw, mode="rb")
            self.most_bytes = max(FREE_BYTES, MOST_EXPANSION * status.st_size)
        self._raw.seek(0)
        self._limit = available_bytes()
        self.separator = b""  # another one than blanks: a byte that is read as a blank

    def __enter__(self) -> "TextFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()

    def refuse(self, what: str, line: int | None = None) -> NoReturn:
        """Raise the InputError that names the file, and the line if given."""
        where = "" if line is None else f", line {line}"
        raise InputError(f"{self.name}{where}: {what}")

    def peek(self) -> bytes | None:
        """The next line without its end, not consumed; None at the end of the file."""
        end = self._buffer.find(b"\n", self._at)
        while end < 0 and not self._ended:
            self._fill()
            end = self._buffer.find(b"\n", self._at)
        if end < 0:
            end = len(self._buffer)
            if end == self._at:
                return None
        if end - self._at > LONGEST_LINE_BYTES:
            self._refuse_long_line()
        return self._buffer[self._at : end]

    def skip(self) -> None:
        """Consume the line that `peek` returned."""
        end = self._buffer.find(b"\n", self._at)
        self._at = len(self._buffer) if end < 0 else end + 1
        self.line += 1

    def block(self) -> bytes:
        """The next whole lines, a few MiB of them, every one with its end; empty at the end of the file."""
        end = self._buffer.rfind(b"\n", self._at)
        while end < 0 and not self._ended:
            self._fill()
            end = self._buffer.rfind(b"\n", self._at)
        if end < 0:
            rest, self._buffer, self._at = self._buffer[self._at :], b"", 0
            return rest + b"\n" if rest else rest
        result, self._at = self._buffer[self._at : end + 1], end + 1
        return result

    def _fill(self) -> None:
        rest = self._buffer[self._at :]
        if len(rest) > LONGEST_LINE_BYTES:
            self._refuse_long_line()
        try:
            more = self._stream.read(BLOCK_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            self.refuse(f"cannot be read on; the file is damaged or cut off ({_reason(error)})", self.line)
        self._ended = not more
        self._taken += len(more)
        if self.compressed and self._taken > self.most_bytes:
            self.refuse(f"expands to more than {self.most_bytes} bytes, {EXPANDED}")
        if self._taken > self._limit:
            self.refuse(f"holds more text than this machine has memory available ({_gib(self._limit)})")
        if self.separator:
            more = more.replace(self.separator, b" ")
        self._buffer, self._at = rest + more, 0

    def separated_by(self, separator: bytes) -> None:
        """Read a byte, such as a comma, as a blank from here on."""
        self.separator = separator
        self._buffer = self._buffer[: self._at] + self._buffer[self._at :].replace(separator, b" ")

    def _refuse_long_line(self) -> NoReturn:
        self.refuse(f"longer than {LONGEST_LINE_BYTES} bytes; expected a few numbers a line", self.line)


@final
@dataclass(frozen=True)
class Layout:
    """What a line holds: ``indices`` whole numbers, then a value if ``valued``.

    ``sizes`` are the dimensions that the (1-based) indices must respect, None when the file does not say
    them; ``comment`` starts a comment; ``count`` is the number of lines to expect, None when unknown.
    """

    indices: int
    valued: bool
    comment: bytes
    sizes: tuple[int, ...] | None = None
    count: int | None = None
    copies: int = 1  # entries that a line becomes (2 for a symmetric matrix)
    parts: int = 1  # numbers that a value consists of (2 for a complex one)
    part: int = 0  # the one of them that is kept

    @property
    def columns(self) -> int:
        """Tokens a line."""
        return self.indices + self.parts * self.valued

    @property
    def entry_bytes(self) -> int:
        """Memory that one line costs at the most while it becomes an entry: text, sorting, two copies."""
        return self.copies * 4 * (4 * self.indices + 8)


def read_table(text: TextFile, layout: Layout) -> tuple[list[np.ndarray], np.ndarray | None]:
    """Read all remaining lines: 0-based indices, one array (n,) a column, and values (n,) float64 or None.

    Raises:
        InputError: naming the line: a wrong token or number of tokens, an index outside the sizes, too few
            or too many lines; or more lines than memory allows.
    """
    _refuse_impossible_count(text, layout)
    limit = available_bytes()
    indices: list[list[np.ndarray]] = [[] for _ in range(layout.indices)]
    values: list[np.ndarray] = []
    total = 0
    while block := text.block():
        rows = _parse_fast(block, layout, text.line) or _parse_slowly(block, layout, text)
        text.line += block.count(b"\n")
        if layout.count is not None and total + len(rows.lines) > layout.count:
            text.refuse(f"more entries than the {layout.count} declared", rows.lines[layout.count - total])
        total += len(rows.lines)
        if total * layout.entry_bytes > limit:
            text.refuse(f"{total} entries and more do not fit into the {_gib(limit)} of memory available")
        _check_range(text, layout, rows)
        if not len(rows.lines):
            continue
        for mode, found in enumerate(indices):
            column = rows.indices[:, mode] - 1
            found.append(column.astype(np.int32) if column.max() < 2**31 - 1 else column)
        if rows.values is not None:
            values.append(rows.values)
    if layout.count is not None and total < layout.count:
        text.refuse(f"ends after {total} of the {layout.count} entries declared; the file is cut off")
    joined = [np.concatenate(found) if found else np.empty(0, np.int32) for found in indices]
    return joined, (np.concatenate([np.empty(0), *values]) if layout.valued else None)


@final
@dataclass(frozen=True, eq=False)
class _Rows:
    indices: np.ndarray  # (n, indices) int64, 1-based
    values: np.ndarray | None  # (n,) float64
    lines: Sequence[int] | np.ndarray  # number of each row's line


def _refuse_impossible_count(text: TextFile, layout: Layout) -> None:
    """Compare the declared count with what the file can hold: a token and its separator take two bytes."""
    if layout.count is None:
        return
    if layout.count * 2 * layout.columns > text.most_bytes + 1:
        most = text.most_bytes // (2 * layout.columns)
        why = f": it would expand to more than {text.most_bytes} bytes, {EXPANDED}" if text.compressed else ""
        text.refuse(f"declares {layout.count} entries, but its size allows at most {most}{why}")
    if layout.count * layout.entry_bytes > (limit := available_bytes()):
        text.refuse(f"declares {layout.count} entries, too many for the {_gib(limit)} of memory available")


def _check_range(text: TextFile, layout: Layout, rows: _Rows) -> None:
    if not len(rows.lines):
        return
    for mode in range(layout.indices):
        column = rows.indices[:, mode]
        size = layout.sizes[mode] if layout.sizes is not None else 2**63 - 1
        if column.min() < 1 or column.max() > size:
            at = int(np.argmax((column < 1) | (column > size)))
            name = ("row", "column")[mode] if layout.indices == 2 else f"mode {mode}"
            where = f"{name} index {column[at]}"
            if column[at] < 1:
                text.refuse(
                    f"{where}; indices start at 1 in this format, add 1 to all of them", rows.lines[at]
                )
            text.refuse(f"{where} is larger than the declared size {size}", rows.lines[at])


def _without_comments(block: bytes, comment: bytes) -> bytes:
    """The block with blanks in place of comments; every byte stays where it is."""
    if comment not in block:
        return block
    data = np.frombuffer(block, np.uint8)
    places = np.arange(len(data), dtype=np.int32)
    begin, end = (
        np.maximum.accumulate(np.where(data == byte, places, np.int32(-1))) for byte in (comment[0], 10)
    )
    return np.where(begin > end, np.uint8(32), data).tobytes()


def _parse_fast(block: bytes, layout: Layout, first_line: int) -> _Rows | None:
    """Rows of a block without any peculiarity but blank lines and comments; None when there is one."""
    block = _without_comments(block, layout.comment)
    data = np.frombuffer(block, np.uint8)
    ink = (data != 32) & ((data - 9) >= 5)  # unsigned: no blank, tab or line end
    edges = np.flatnonzero(ink[1:] != ink[:-1]) + 1
    if ink[0]:
        edges = np.concatenate(([0], edges))
    line_ends = np.flatnonzero(data == 10)  # the block's last byte is one, so the edges come in pairs
    count, rest = divmod(len(edges), 2 * layout.columns)
    if rest:
        return None
    starts = edges[0::2].reshape(count, layout.columns)
    ends = edges[1::2].reshape(count, layout.columns)
    lines: Sequence[int] | np.ndarray = range(first_line, first_line + count)
    if count != len(line_ends):  # some are blank
        inked = np.searchsorted(line_ends, starts[:, 0])
        lines, line_ends = first_line + inked, line_ends[inked]
    if count == 0:
        values = np.empty(0) if layout.valued else None
        return _Rows(np.empty((0, layout.indices), np.int64), values, lines)
    if (starts[1:, 0] < line_ends[:-1]).any() or (ends[:, -1] > line_ends).any():
        return None
    digit = (data - 48) < 10
    if np.count_nonzero(digit) == np.count_nonzero(ink):
        if int((ends - starts).max()) > _SAFE_DIGITS:
            return None
        table = np.fromstring(block, np.int64, sep=" ").reshape(count, layout.columns)
        values = table[:, layout.indices + layout.part].astype(np.float64) if layout.valued else None
        return _Rows(table[:, : layout.indices], values, lines)
    if not layout.valued:
        return None
    border = np.zeros(len(data) + 1, np.int8)
    border[starts[:, layout.indices :]] = 1
    border[ends[:, layout.indices :]] = -1
    in_value = np.cumsum(border[:-1], dtype=np.int8).view(np.bool_)
    if not _DECIMAL_BYTES[data[in_value & ~digit]].all() or (ink & ~in_value & ~digit).any():
        return None
    indices = np.empty((count, 0), np.int64)
    if layout.indices:
        if int((ends - starts)[:, : layout.indices].max()) > _SAFE_DIGITS:
            return None
        plain = np.where(in_value, np.uint8(32), data).tobytes()
        indices = np.fromstring(plain, np.int64, sep=" ").reshape(count, layout.indices)
    # NumPy stops at the first thing it cannot read, and takes "1-2" for two numbers. No byte of a value can
    # spell the NaN put last: if it comes out last and the count is right, every token was one whole number.
    plain = np.where(in_value, data, np.uint8(32)).tobytes()
    try:
        found = np.fromstring(plain + b" nan", np.float64, sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    if len(found) != count * layout.parts + 1 or not np.isnan(found[-1]):
        return None
    return _Rows(indices, found[:-1].reshape(count, layout.parts)[:, layout.part], lines)


def _parse_slowly(block: bytes, layout: Layout, text: TextFile) -> _Rows:
    """Rows of any block, line by line; an InputError names the first line that is wrong."""
    indices: list[list[int]] = []
    values: list[float] = []
    lines: list[int] = []
    for number, line in enumerate(block.split(b"\n"), text.line):
        tokens = line.partition(layout.comment)[0].split()
        if not tokens:
            continue
        if len(tokens) != layout.columns:
            value = " and a value" if layout.parts == 1 else f" and {layout.parts} numbers of a value"
            what = f"{layout.indices} indices" + value * layout.valued
            text.refuse(f"{len(tokens)} numbers; expected {layout.columns} ({what})", number)
        row = []
        for token in tokens[: layout.indices]:
            if not token.isdigit() or len(token) > _SAFE_DIGITS:
                hint = "; numbers are separated by blanks, not by commas" if b"," in token else ""
                text.refuse(f"{quoted(token)} is no index; expected a whole number from 1{hint}", number)
            row.append(int(token))
        indices.append(row)
        if layout.valued:
            values.append([_number(token, text, number) for token in tokens[layout.indices :]][layout.part])
        lines.append(number)
    table = np.array(indices, dtype=np.int64).reshape(len(lines), layout.indices)
    return _Rows(table, np.array(values, dtype=np.float64) if layout.valued else None, lines)


def _number(token: bytes, text: TextFile, line: int) -> float:
    try:
        if b"_" in token:  # Python's own spelling, nobody else's
            raise ValueError
        if _FORTRAN.fullmatch(token):
            token = token.lower().replace(b"d", b"e")
        return float(token)
    except ValueError:
        hint = "; numbers are separated by blanks, and a decimal point is a point" if b"," in token else ""
        text.refuse(f"{quoted(token)} is no number{hint}", line)


def quoted(token: bytes) -> str:
    """A token for a message: printable, and not endless."""
    shown = token[:40].decode("ascii", "backslashreplace")
    return repr(shown) + ("..." if len(token) > 40 else "")


def _reason(error: Any) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


def text_lines(entries: Entries) -> Iterator[bytes]:
    """Yield the entries as text, 1-based, a line for each, many lines a piece.

    Numbers read back exactly: 17 significant digits for float64, 9 for float32.
    """
    line = "%d " * entries.order + ("%.17g\n" if entries.dtype == np.float64 else "%.9g\n")
    for start in range(0, entries.nnz, _WRITTEN_LINES):
        part = slice(start, start + _WRITTEN_LINES)
        columns = [(array[part].astype(np.int64) + 1).tolist() for array in entries.coordinates]
        columns.append(entries.values[part].tolist())
        numbers = tuple(itertools.chain.from_iterable(zip(*columns)))
        yield (line * len(columns[0]) % numbers).encode()
