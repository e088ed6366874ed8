"""Matrix Market files: coordinate and array, all symmetries; of a complex one its real or imaginary part.

The format: https://math.nist.gov/MatrixMarket/formats.html. A banner, comments, a line of sizes, one entry
a line.
"""

from dataclasses import dataclass
from typing import IO, Final, NoReturn

import numpy as np

from tensorwise.tensor.checks import checked_shape, coordinate_dtype
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.file_formats import FileFormat
from tensorwise.tensor.raw import Part, RawCoordinates
from tensorwise.tensor.text import Layout, TextFile, quoted, read_table, text_lines

_VALUE_FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
_EXAMPLE = "%%MatrixMarket matrix coordinate real general"


@dataclass(frozen=True)
class _Banner:
    dense: bool
    pattern: bool
    symmetry: str
    parts: int  # numbers a value: 2 where it is complex
    part: int
    integer: str  # dtype of an integer field, else empty

    @property
    def sign(self) -> float:
        """What an entry is multiplied by to become the one across the diagonal."""
        minus = self.symmetry == "skew-symmetric" or (self.symmetry == "hermitian" and self.part == 1)
        return -1.0 if minus else 1.0


def read_matrix_market(path: str, part: Part | None = None) -> RawCoordinates:
    """Read the entries of a Matrix Market file; a symmetric one is expanded, as ``scipy.io.mmread`` does.

    Args:
        part: the part of complex values that is read, ``real`` or ``imaginary``; None: complex files are refused.
    """
    with TextFile(path) as text:
        banner = _read_banner(text, part)
        sizes = _read_sizes(text, 2 if banner.dense else 3)
        shape = checked_shape(sizes[:2], path)
        if banner.symmetry != "general" and shape[0] != shape[1]:
            text.refuse(f"is {banner.symmetry} but {shape[0]}x{shape[1]}; expected a square matrix")
        read = _read_dense if banner.dense else _read_coordinates
        rows, columns, values = read(text, banner, shape, sizes[-1])
    if banner.integer == "u8" and values.size and (least := values.min()) < 0:
        text.refuse(f"has the value {least:.17g}; unsigned integers are not negative")
    if banner.integer == "u8" and banner.sign < 0:
        text.refuse("is unsigned and skew-symmetric; what is mirrored would be negative")
    if banner.symmetry != "general":
        mirrored = rows != columns
        rows, columns = np.concatenate((rows, columns[mirrored])), np.concatenate((columns, rows[mirrored]))
        values = np.concatenate((values, banner.sign * values[mirrored]))
    index = coordinate_dtype(shape)
    coordinates = rows.astype(index, copy=False), columns.astype(index, copy=False)
    if banner.integer and bool((values == np.trunc(values)).all()):
        if values.size and np.abs(values).max() >= 2**53:
            at = int(np.argmax(np.abs(values)))
            text.refuse(
                f"has an integer of about {values[at]:.17g}; integers from 2**53 on are not read exactly"
            )
        values = values.astype(banner.integer)
    return RawCoordinates(shape, coordinates, values, path, is_trusted=True)


def write_matrix_market(stream: IO[bytes], entries: Entries) -> None:
    """Write a general matrix of real numbers, a line for each entry."""
    stream.write(f"{_EXAMPLE}\n".encode())
    stream.write(f"{entries.shape[0]} {entries.shape[1]} {entries.nnz}\n".encode())
    stream.writelines(text_lines(entries))


def _read_banner(text: TextFile, part: Part | None) -> _Banner:
    first = text.peek()
    if first is None:
        text.refuse(f"is empty; expected a Matrix Market file, first line {_EXAMPLE!r}")
    words = [word.decode("ascii", "backslashreplace") for word in first.lower().split()]
    if not words or words[0].removeprefix("\\xef\\xbb\\xbf") != "%%matrixmarket":
        text.refuse(f"begins with {quoted(first)}; expected a line like {_EXAMPLE!r}", 1)
    if len(words) != 5:
        text.refuse(f"{len(words)} words in the banner; expected 5, as in {_EXAMPLE!r}", 1)
    text.skip()
    if words[1] != "matrix":
        _refuse_word(text, "object", words[1], ("matrix",))
    if words[2] not in ("coordinate", "array"):
        _refuse_word(text, "format", words[2], ("coordinate", "array"))
    if words[3] == "complex" and part is None:
        text.refuse("complex values are not supported; read one part with part='real' or part='imaginary'", 1)
    if words[3] != "complex" and words[3] not in _VALUE_FIELDS:
        _refuse_word(text, "field", words[3], _VALUE_FIELDS)
    if words[3] != "complex" and part == "imaginary":
        text.refuse(f"has the field {words[3]}, so it has no imaginary part", 1)
    if words[4] not in _SYMMETRIES:
        _refuse_word(text, "symmetry", words[4], _SYMMETRIES)
    parts = 2 if words[3] == "complex" else 1
    banner = _Banner(
        words[2] == "array",
        words[3] == "pattern",
        words[4],
        parts,
        int(part == "imaginary"),
        {"integer": "i8", "unsigned-integer": "u8"}.get(words[3], ""),
    )
    if banner.pattern and (banner.dense or banner.symmetry in ("skew-symmetric", "hermitian")):
        text.refuse(f"a pattern cannot be {words[2] if banner.dense else words[4]}; it has no values", 1)
    return banner


def _refuse_word(text: TextFile, part: str, word: str, known: tuple[str, ...]) -> NoReturn:
    text.refuse(f"{part} {quoted(word.encode())} in the banner is unknown; expected {' or '.join(known)}", 1)


def _read_sizes(text: TextFile, count: int) -> list[int]:
    while (line := text.peek()) is not None:
        number = text.line
        text.skip()
        tokens = line.partition(b"%")[0].split()
        if not tokens:
            continue
        if len(tokens) != count or not all(token.isdigit() and len(token) <= 18 for token in tokens):
            names = "rows, columns, entries" if count == 3 else "rows, columns"
            text.refuse(
                f"{quoted(line)} is no line of sizes; expected {count} whole numbers ({names})", number
            )
        return [int(token) for token in tokens]
    text.refuse("ends before the line of sizes; the file is cut off")


def _read_coordinates(
    text: TextFile, banner: _Banner, shape: tuple[int, ...], count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    copies = 1 if banner.symmetry == "general" else 2
    layout = Layout(2, not banner.pattern, b"%", shape, count, copies, banner.parts, banner.part)
    (rows, columns), values = read_table(text, layout)
    if values is None:
        values = np.ones(len(rows))
    if banner.symmetry == "skew-symmetric":
        wrong = np.flatnonzero((rows == columns) & (values != 0))
        if wrong.size:
            at = int(wrong[0])
            text.refuse(
                f"entry {at + 1} (row {rows[at] + 1}, column {columns[at] + 1}, value {values[at]}) is on "
                "the diagonal; a skew-symmetric matrix has zeros there"
            )
    return rows, columns, values


def _read_dense(
    text: TextFile, banner: _Banner, shape: tuple[int, ...], _: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Column by column; of a symmetric matrix only the lower triangle. Stored: nonzeros and NaN."""
    height, width = shape
    below = int(banner.symmetry == "skew-symmetric")  # first row of a column, counted from the diagonal
    general = banner.symmetry == "general"
    count = height * width if general else (height - below) * (height - below + 1) // 2
    values = read_table(text, Layout(0, True, b"%", None, count, 6, banner.parts, banner.part))[1]
    assert values is not None
    stored = np.flatnonzero(values)
    if general or not count:
        columns, rows = np.divmod(stored, max(height, 1))
    else:
        lengths = np.arange(height - below, 0, -1)  # of the columns
        first = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        columns = np.searchsorted(first, stored, side="right") - 1
        rows = stored - first[columns] + columns + below
    return rows, columns, values[stored]


MATRIX_MARKET: Final = FileFormat(
    "Matrix Market", read_matrix_market, write_matrix_market, read_matrix_market, max_order=2
)
"""The row of `FILE_FORMATS`."""
