"""The kinds of files that hold matrices and tensors: Matrix Market, FROSTT, .npz, binsparse, those of other packages.

A kind's module is imported when such a file is first read or written.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Final, final

from tensorwise.errors import InputError
from tensorwise.registry import Registry, needs_instance
from tensorwise.tensor.checks import MAX_ORDER
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.raw import Part, RawEntries


@final
@dataclass(frozen=True)
class FileFormat:
    """A kind of file.

    Attributes:
        title: what messages call it.
        read: returns the raw entries of the file of a name.
        write: writes entries, whose values are float32 or float64, to a binary stream.
        read_part: reads one part of complex values; None: the format has no complex values.
        max_order: modes of the tensors that it holds, at most.
        is_text: a text, which may be compressed: its name then ends in ``.gz``.
        array_writer: returns what writes a given SciPy array in its own format and dtype, or None: it is written as entries.
    """

    title: str
    read: Callable[[str], RawEntries]
    write: Callable[[IO[bytes], Entries], None]
    read_part: Callable[[str, Part], RawEntries] | None = None
    max_order: int = MAX_ORDER
    is_text: bool = True
    array_writer: Callable[[Any], Callable[[IO[bytes]], None] | None] = lambda _: None


FILE_FORMATS: Final[Registry[FileFormat]] = Registry(
    "kind of file",
    "file_formats",
    {
        "mtx": "tensorwise.tensor.matrix_market:MATRIX_MARKET",
        "tns": "tensorwise.tensor.frostt:FROSTT",
        "npz": "tensorwise.tensor.npz:NPZ",
        "h5": "tensorwise.tensor.binsparse:BINSPARSE",
    },
    needs_instance(FileFormat),
)
"""Ending of a name, without the dot -> what is in such a file. A new kind of file is a new row."""


def file_format_of(path: str | os.PathLike[str]) -> tuple[str, str, FileFormat]:
    """Return a path as text, the ending of its name, such as ``.mtx``, and the format that it stands for.

    Raises:
        InputError: ``path`` is no path, or the ending is unknown.
    """
    try:
        name = os.fsdecode(path)
    except TypeError as error:
        raise InputError(f"{path!r} is no path; expected a string or os.PathLike") from error
    if "\0" in name:
        raise InputError(f"{name!r}: a path cannot hold a zero byte")
    plain = name.lower().removesuffix(".gz")
    suffix = os.path.splitext(plain)[1]
    known = suffix[1:] in FILE_FORMATS
    if not known or (plain != name.lower() and not FILE_FORMATS[suffix[1:]].is_text):
        rows = FILE_FORMATS.sound().items()
        *some, last = (f".{row}{end}" for row, kind in rows for end in ("", ".gz")[: 1 + kind.is_text])
        raise InputError(f"{name}: unknown kind of file; expected {', '.join(some)} or {last}")
    return name, suffix, FILE_FORMATS[suffix[1:]]


def read_raw(path: str | os.PathLike[str], part: Part | None = None) -> RawEntries:
    """Return the raw entries of a file; see `tensorwise.tensor.files.read`."""
    name, suffix, kind = file_format_of(path)
    if not os.path.isfile(name):
        what = "is no regular file" if os.path.exists(name) else "does not exist"
        raise InputError(f"{name}: {what}; expected a file to read")
    if part not in (None, "real", "imaginary"):
        raise InputError(f"part must be 'real', 'imaginary' or None, got {part!r}")
    if part is not None and kind.read_part is not None:
        return kind.read_part(name, part)
    if part == "imaginary":
        raise InputError(f"{name}: a {suffix} file has no imaginary part")
    return kind.read(name)
