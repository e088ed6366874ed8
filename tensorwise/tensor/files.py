"""Sparse matrices and tensors in files: Matrix Market, FROSTT and SciPy's .npz, told by the name's ending."""

import gzip
import itertools
import os
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np

from tensorwise.errors import InputError
from tensorwise.tensor.canonical import checked_dtype
from tensorwise.tensor.elements import is_half
from tensorwise.tensor.entries import Entries, entries_from
from tensorwise.tensor.frostt import read_frostt
from tensorwise.tensor.matrix_market import Part, read_matrix_market
from tensorwise.tensor.npz import read_npz, write_npz
from tensorwise.writing import replacing

_LINES_AT_ONCE = 2**16


def read(path: str | os.PathLike[str], dtype: Any = None, part: Part | None = None) -> Entries:
    """Read the entries of ``path``.

    Args:
        path: ``.mtx``, ``.tns`` (either also with ``.gz``) or ``.npz``. Matrix Market: coordinate and array;
            general, symmetric, skew-symmetric and (real) hermitian, expanded; fields real, integer, and
            pattern, whose values are ones. FROSTT: 1-based, sizes from a comment ``# dims: ...`` or else
            the largest indices. Duplicates are summed, explicit zeros kept (an array file stores its
            nonzeros and NaN).
        dtype: float32, float64, float16 or bfloat16. By default text gives float64, and .npz what `entries_from`
            makes of its values.
        part: ``real`` or ``imaginary``: the part that is read of a Matrix Market file with complex values, which
            is refused without it. Entries whose part is zero are kept.

    Raises:
        InputError: for anything wrong with the file, naming it and, where one is to blame, the line or
            entry. What a header declares is compared with the file's size and the memory available
            before it is believed.
    """
    name, kind = _name_and_kind(path)
    target = checked_dtype(dtype)
    if not os.path.isfile(name):
        what = "is no regular file" if os.path.exists(name) else "does not exist"
        raise InputError(f"{name}: {what}; expected a file to read")
    if part not in (None, "real", "imaginary"):
        raise InputError(f"part must be 'real', 'imaginary' or None, got {part!r}")
    if part is not None and kind == ".mtx":
        return read_matrix_market(name, target, part)
    if part == "imaginary":
        raise InputError(f"{name}: a {kind} file has no imaginary part")
    return _READERS[kind](name, target)


def write(path: str | os.PathLike[str], entries: Any) -> None:
    """Write ``entries`` to ``path`` (``.mtx``, ``.tns``, either also with ``.gz``, or ``.npz``).

    Values are written so that they read back exactly (17 significant digits for float64, 9 for float32,
    when read as that dtype; float16 and bfloat16 as float32, which holds them). The file appears whole or not
    at all: it is written beside ``path`` and then renamed.

    Args:
        entries: Entries, or what `entries_from` takes.

    Raises:
        InputError: an unknown ending, a tensor of order other than 2 for ``.mtx``, or the file cannot be
            written.
    """
    name, kind = _name_and_kind(path)
    entries = entries_from(entries)
    if kind == ".mtx" and entries.order != 2:
        raise InputError(
            f"{name}: Matrix Market holds matrices; this tensor has order {entries.order}, use .tns"
        )
    if is_half(entries.dtype):
        entries = entries.astype(np.float32)
    try:
        with replacing(name) as stream:
            if name.lower().endswith(".gz"):  # no name, no time: the same entries give the same bytes
                with gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed:
                    _WRITERS[kind](packed, entries)  # type: ignore[arg-type]
            else:
                _WRITERS[kind](stream, entries)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{name}: cannot be written ({reason})") from error


def _name_and_kind(path: str | os.PathLike[str]) -> tuple[str, str]:
    try:
        name = os.fsdecode(path)
    except TypeError as error:
        raise InputError(f"{path!r} is no path; expected a string or os.PathLike") from error
    if "\0" in name:
        raise InputError(f"{name!r}: a path cannot hold a zero byte")
    plain = name.lower().removesuffix(".gz")
    kind = os.path.splitext(plain)[1]
    if kind not in _READERS or (kind == ".npz" and plain != name.lower()):
        raise InputError(f"{name}: unknown kind of file; expected .mtx, .mtx.gz, .tns, .tns.gz or .npz")
    return name, kind


def _write_matrix_market(stream: IO[bytes], entries: Entries) -> None:
    stream.write(b"%%MatrixMarket matrix coordinate real general\n")
    stream.write(f"{entries.shape[0]} {entries.shape[1]} {entries.nnz}\n".encode())
    stream.writelines(_lines(entries))


def _write_frostt(stream: IO[bytes], entries: Entries) -> None:
    stream.write(f"# dims: {' '.join(map(str, entries.shape))}\n".encode())
    stream.writelines(_lines(entries))


def _lines(entries: Entries) -> Iterator[bytes]:
    """The entries as text, 1-based, many lines a piece."""
    line = "%d " * entries.order + ("%.17g\n" if entries.dtype == np.float64 else "%.9g\n")
    for start in range(0, entries.nnz, _LINES_AT_ONCE):
        part = slice(start, start + _LINES_AT_ONCE)
        columns = [(array[part].astype(np.int64) + 1).tolist() for array in entries.coordinates]
        columns.append(entries.values[part].tolist())
        numbers = tuple(itertools.chain.from_iterable(zip(*columns)))
        yield (line * len(columns[0]) % numbers).encode()


_READERS: dict[str, Callable[[str, np.dtype | None], Entries]] = {
    ".mtx": read_matrix_market,
    ".tns": read_frostt,
    ".npz": read_npz,
}
_WRITERS: dict[str, Callable[[IO[bytes], Entries], None]] = {
    ".mtx": _write_matrix_market,
    ".tns": _write_frostt,
    ".npz": write_npz,
}
