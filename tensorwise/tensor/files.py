"""Sparse matrices and tensors in files: Matrix Market, FROSTT, SciPy's .npz and binsparse, told by the name's ending."""

import gzip
import os
from typing import Any

import numpy as np

from tensorwise.errors import InputError
from tensorwise.tensor.canonical import canonical_entries
from tensorwise.tensor.checks import checked_dtype
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.elements import is_half
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.file_formats import file_format_of, read_raw
from tensorwise.tensor.raw import Part
from tensorwise.writing import replacing


def read(path: str | os.PathLike[str], dtype: Any = None, part: Part | None = None) -> Entries:
    """Read the entries of ``path``.

    Args:
        path: ``.mtx``, ``.tns`` (either also with ``.gz``), ``.npz``, or ``.h5``, as in ``.bsp.h5``: a binsparse file
            (extra ``binsparse``). Matrix Market: coordinate and array;
            general, symmetric, skew-symmetric and (real) hermitian, expanded; fields real, integer, and
            pattern, whose values are ones. FROSTT: 1-based, sizes from a comment ``# dims: ...`` or else
            the largest indices. Duplicates are summed, explicit zeros kept (an array file stores its
            nonzeros and NaN). Binsparse: CSR, CSC, COO, DCSR, DCSC, dense matrices, and vectors as matrices of
            one row; all structures, expanded.
        dtype: float32, float64, float16 or bfloat16. By default text gives float64, and .npz and .h5 what
            `entries_from` makes of their values.
        part: ``real`` or ``imaginary``: the part that is read of a Matrix Market or binsparse file with complex
            values, which is refused without it. Entries whose part is zero are kept.

    Raises:
        InputError: for anything wrong with the file, naming it and, where one is to blame, the line or
            entry. What a header declares is compared with the file's size and the memory available
            before it is believed.
        MissingExtraError: a binsparse file, and h5py is not installed.
    """
    target = checked_dtype(dtype)
    return canonical_entries(read_raw(path, part), target)


def write(path: str | os.PathLike[str], entries: Any) -> None:
    """Write ``entries`` to ``path`` (``.mtx``, ``.tns``, either also with ``.gz``, ``.npz`` or ``.h5``).

    Values are written so that they read back exactly (17 significant digits for float64, 9 for float32,
    when read as that dtype; float16 and bfloat16 as float32, which holds them). The file appears whole or not
    at all: it is written beside ``path`` and then renamed. A binsparse file (``.h5``) holds SciPy's CSR, CSC and COO
    arrays in their format and dtype, complex numbers included.

    Args:
        entries: Entries, or what `entries_from` takes.

    Raises:
        InputError: an unknown ending, a tensor of order other than 2 for ``.mtx`` or ``.h5``, or the file cannot be
            written.
        MissingExtraError: a binsparse file, and h5py is not installed.
    """
    name, _, kind = file_format_of(path)
    write_whole = kind.array_writer(entries)
    if write_whole is None:
        entries = entries_from(entries)
        if entries.order > kind.max_order:
            raise InputError(
                f"{name}: {kind.title} holds matrices; this tensor has order {entries.order}, use .tns"
            )
        if is_half(entries.dtype):
            entries = entries.astype(np.float32)
    try:
        with replacing(name) as stream:
            if write_whole is not None:
                write_whole(stream)
            elif name.lower().endswith(".gz"):  # no name, no time: the same entries give the same bytes
                with gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed:
                    kind.write(packed, entries)  # type: ignore[arg-type]
            else:
                kind.write(stream, entries)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{name}: cannot be written ({reason})") from error
