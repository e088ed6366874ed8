"""The kinds of files that hold matrices and tensors, a row each: Matrix Market, FROSTT and SciPy's .npz.

A row names its functions as entry points do, ``module:function``. They are imported when a file of the kind is read or
written.
"""

import os
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import IO, Final, cast, final

from tensorwise.errors import InputError
from tensorwise.tensor.canonical import MAX_ORDER
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.raw import Part, RawEntries


@final
@dataclass(frozen=True)
class FileFormat:
    """A kind of file.

    Attributes:
        suffix: the ending of the file's name, in lower case, with the dot.
        title: what messages call it.
        reader: of a function that returns the raw entries of the file of a name; where there are complex values, it takes
            the part of them as well, or None.
        writer: of a function that writes entries, whose values are float32 or float64, to a binary stream.
        has_complex: values may be complex.
        max_order: modes of the tensors that it holds, at most.
        is_text: a text, which may be compressed: its name then ends in ``.gz``.
    """

    suffix: str
    title: str
    reader: str
    writer: str
    has_complex: bool = False
    max_order: int = MAX_ORDER
    is_text: bool = True

    def read(self, name: str, part: Part | None) -> RawEntries:
        """Return the raw entries of a file."""
        parts = (part,) if self.has_complex else ()
        return cast(RawEntries, resolve_name(self.reader)(name, *parts))

    def write(self, stream: IO[bytes], entries: Entries) -> None:
        """Write entries to a stream."""
        resolve_name(self.writer)(stream, entries)


FILE_FORMATS: Final = {
    one.suffix: one
    for one in (
        FileFormat(
            ".mtx",
            "Matrix Market",
            "tensorwise.tensor.matrix_market:read_matrix_market",
            "tensorwise.tensor.matrix_market:write_matrix_market",
            has_complex=True,
            max_order=2,
        ),
        FileFormat(
            ".tns", "FROSTT", "tensorwise.tensor.frostt:read_frostt", "tensorwise.tensor.frostt:write_frostt"
        ),
        FileFormat(
            ".npz",
            "SciPy's .npz",
            "tensorwise.tensor.npz:read_npz",
            "tensorwise.tensor.npz:write_npz",
            is_text=False,
        ),
    )
}
"""Ending of a name -> what is in such a file. A new kind of file is a new row."""


def file_format_of(path: str | os.PathLike[str]) -> tuple[str, FileFormat]:
    """Return a path as text, and the format that the ending of its name stands for.

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
    found = FILE_FORMATS.get(os.path.splitext(plain)[1])
    if found is None or (plain != name.lower() and not found.is_text):
        *some, last = (
            suffix
            for one in FILE_FORMATS.values()
            for suffix in (one.suffix, *[f"{one.suffix}.gz"] * one.is_text)
        )
        raise InputError(f"{name}: unknown kind of file; expected {', '.join(some)} or {last}")
    return name, found


def read_raw(path: str | os.PathLike[str], part: Part | None = None) -> RawEntries:
    """Return the raw entries of a file; see `tensorwise.tensor.files.read`."""
    name, kind = file_format_of(path)
    if not os.path.isfile(name):
        what = "is no regular file" if os.path.exists(name) else "does not exist"
        raise InputError(f"{name}: {what}; expected a file to read")
    if part not in (None, "real", "imaginary"):
        raise InputError(f"part must be 'real', 'imaginary' or None, got {part!r}")
    if part == "imaginary" and not kind.has_complex:
        raise InputError(f"{name}: a {kind.suffix} file has no imaginary part")
    return kind.read(name, part)
