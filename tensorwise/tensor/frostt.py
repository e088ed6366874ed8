"""FROSTT text tensors (.tns): one entry a line, 1-based indices and a value; ``#`` starts a comment.

The format: https://frostt.io/tensors/file-formats.html. The order follows from the first entry. A comment
before it of the form ``# dims: 30 40 50`` gives the sizes; else each is the largest index of its mode.
Three related formats are recognised by their first lines:

- extended FROSTT, as MLIR writes it: a line of two numbers, order and entries, then a line of sizes;
- the Tensor Toolbox's sptensor: the word, then lines with the order, the sizes and the number of entries;
- entries whose numbers are separated by commas.
"""

import re
from typing import IO, Final

from tensorwise.tensor.checks import MAX_ORDER, checked_shape, coordinate_dtype
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.file_formats import FileFormat
from tensorwise.tensor.raw import RawCoordinates
from tensorwise.tensor.text import Layout, TextFile, quoted, read_table, text_lines

_DIMS = re.compile(rb"\bdim(?:s|ensions)?\s*[:=]\s*(\d{1,18}(?:(?:\s+|\s*[x,]\s*)\d{1,18})*)", re.IGNORECASE)


def read_frostt(path: str) -> RawCoordinates:
    """Read the entries of a FROSTT file."""
    with TextFile(path) as text:
        sizes, count = _header(text)
        tokens = _tokens(text)
        order = len(tokens) - 1 if tokens else 0
        if not order:
            if tokens or sizes is None:
                text.refuse("no entries and no comment '# dims: ...'; expected indices and a value a line")
            order = len(sizes)
        if not 2 <= order <= MAX_ORDER:
            text.refuse(f"{order} indices and a value; expected 2 to {MAX_ORDER} indices", text.line)
        if sizes is not None and len(sizes) != order:
            where = "a comment" if count is None else "the header"
            text.refuse(f"{order} indices, but {where} gives {len(sizes)} dims", text.line)
        indices, values = read_table(text, Layout(order, True, b"#", sizes, count))
    assert values is not None
    if sizes is None:
        sizes = tuple(int(column.max()) + 1 for column in indices)
    shape = checked_shape(sizes, path)
    index = coordinate_dtype(shape)
    coordinates = [column.astype(index, copy=False) for column in indices]
    return RawCoordinates(shape, coordinates, values, path, is_trusted=True)


def write_frostt(stream: IO[bytes], entries: Entries) -> None:
    """Write the sizes in a comment, then a line for each entry."""
    stream.write(f"# dims: {' '.join(map(str, entries.shape))}\n".encode())
    stream.writelines(text_lines(entries))


def _header(text: TextFile) -> tuple[tuple[int, ...] | None, int | None]:
    """Read what stands before the entries: their sizes and their number, each None where the file does not say it."""
    sizes = _comments(text)
    first = _tokens(text)
    if not first:
        return sizes, None
    if len(first) == 1 and first[0].lower() == b"sptensor":
        text.skip()
        (order,) = _numbers(text, 1, "the order")
        sizes = _numbers(text, order, "the sizes")
        return sizes, _numbers(text, 1, "the number of entries")[0]
    if len(first) == 1 and first[0].lower() in (b"tensor", b"matrix", b"ktensor", b"ttensor"):
        text.refuse(
            f"is a {first[0].decode().lower()} of the Tensor Toolbox; expected its sptensor, or entries",
            text.line,
        )
    whole = all(token.isdigit() and len(token) <= 18 for token in first)
    if len(first) == 2 and whole and int(first[0]) > 1:  # an entry has two indices at least
        order, count = _numbers(text, 2, "order and number of entries")
        return _numbers(text, order, "the sizes (two numbers in the first line begin extended FROSTT)"), count
    if b"," in first[0]:
        parts = [part.split() for part in b" ".join(first).split(b",")]
        if any(len(part) != 1 for part in parts):
            text.refuse(
                f"{quoted(b' '.join(first))} has commas and blanks; expected numbers separated by one of them, and a point "
                "in decimals",
                text.line,
            )
        text.separated_by(b",")
    return sizes, None


def _comments(text: TextFile) -> tuple[int, ...] | None:
    """Skip comments and blank lines; return the sizes that one of them gives."""
    sizes = None
    while (line := text.peek()) is not None:
        data, _, comment = line.partition(b"#")
        if data.strip():
            break
        if match := _DIMS.search(comment):
            sizes = tuple(int(number) for number in re.findall(rb"\d+", match[1]))
        text.skip()
    return sizes


def _tokens(text: TextFile) -> list[bytes]:
    """The tokens of the next line that has any, which is not consumed; none at the end of the file."""
    _comments(text)
    return (text.peek() or b"").partition(b"#")[0].split()


def _numbers(text: TextFile, count: int, what: str) -> tuple[int, ...]:
    """Consume a line of ``count`` whole numbers."""
    if not 1 <= count <= MAX_ORDER:
        text.refuse(f"order {count}; expected 2 to {MAX_ORDER}", text.line)
    tokens = _tokens(text)
    if len(tokens) != count or not all(token.isdigit() and len(token) <= 18 for token in tokens):
        text.refuse(
            f"{quoted(b' '.join(tokens))} in the header; expected {count} whole numbers, {what}", text.line
        )
    text.skip()
    return tuple(map(int, tokens))


FROSTT: Final = FileFormat("FROSTT", read_frostt, write_frostt)
"""The row of `FILE_FORMATS`."""
