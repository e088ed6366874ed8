"""Counting in compiled code: ``pattern.c`` behind typed functions.

For at least one entry and fewer than 2**31, in coordinates of 32 bits.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np

from tensorwise.analysis.counts import (
    BANDS,
    GRIDS,
    HEIGHTS,
    NARROW,
    OFFSETS,
    PIECES,
    SLICES,
    STRIPS,
    WINDOWS,
    MatrixCounts,
    ModeCounts,
    fold_bits,
)
from tensorwise.analysis.spectrum import Spectrum
from tensorwise.tensor.entries import Entries
from tensorwise.toolchain.routines import POINTER, SIZE, Routines

_SHORT: Final = 1024
_MEETINGS: Final = (len(HEIGHTS) + len(BANDS),)
_ARRAYS: Final[dict[str, tuple[int, ...]]] = {
    "own_slots": (len(SLICES),),
    "sorted_slots": (len(SLICES),),
    "crossings": (1 + len(STRIPS),),
    "offsets": (len(OFFSETS),),
    "column_meetings": _MEETINGS,
    "line_meetings": _MEETINGS,
    "block_meetings": (len(NARROW), len(HEIGHTS)),
    "diagonal_meetings": (len(PIECES),),
    "scalars": (7,),
    "filled": (len(GRIDS),),
    "bands": (2, GRIDS[0]),
    "rows": (_SHORT + 1,),
    "columns": (_SHORT + 1,),
}
"""``counts`` of pattern.c: arrays of int64, one after the other."""
_SCALARS: Final = ("sampled", "dense", "span", "runs", "below", "above", "distance")
_ENDS: Final = np.cumsum([0, *(int(np.prod(shape)) for shape in _ARRAYS.values())]).tolist()
COUNTING: Final = Routines(
    "count in a pattern",
    "tw_pattern_",
    {
        "matrix": (SIZE, (SIZE, *(POINTER,) * 3, *(SIZE,) * 5, *(POINTER,) * 2)),
        "mode": (SIZE, (SIZE, POINTER, *(SIZE,) * 2, *(POINTER,) * 3)),
        "pairs": (SIZE, (SIZE, *(POINTER,) * 2, *(SIZE,) * 5)),
    },
    Path(__file__).with_name("pattern.c"),
    Path(__file__).with_name("pattern_slices.c"),
)


def matrix(entries: Entries, skip: int) -> MatrixCounts:
    """Count in a matrix; blocks and diagonals in one of ``skip`` panels or strips. Raises MemoryError."""
    rows, columns = entries.shape
    row, column = (_narrow(array) for array in entries.coordinates)
    # where most rows are empty, entries are walked faster than pointers
    pointers = _narrow(entries.pointers) if entries.pointers is not None and rows <= entries.nnz else None
    out, lengthy = np.zeros(_ENDS[-1], np.int64), _lengthy(entries, 2)
    COUNTING(
        "matrix", entries.nnz, row.ctypes.data, column.ctypes.data, None if pointers is None else pointers.ctypes.data,
        rows, columns, fold_bits(entries.nnz), skip, fold_bits(entries.nnz // skip), lengthy.ctypes.data, out.ctypes.data,
    )  # fmt: skip
    found: dict[str, Any] = {
        name: out[start:end].reshape(shape)
        for (name, shape), start, end in zip(_ARRAYS.items(), _ENDS, _ENDS[1:], strict=False)
    }
    return MatrixCounts(
        shape=(rows, columns),
        rows=_spectrum(found.pop("rows"), lengthy[0], rows),
        columns=_spectrum(found.pop("columns"), lengthy[1], columns),
        **dict(zip(_SCALARS, found.pop("scalars").tolist(), strict=True)),
        **found,
    )


def mode(entries: Entries, mode: int) -> ModeCounts:
    """Count in one mode of a tensor. Raises MemoryError."""
    size, coordinate, lengthy = entries.shape[mode], _narrow(entries.coordinates[mode]), _lengthy(entries, 1)
    meetings, lengths = np.zeros(len(WINDOWS), np.int64), np.zeros(_SHORT + 1, np.int64)
    repeats = COUNTING(
        "mode", entries.nnz, coordinate.ctypes.data, size, fold_bits(entries.nnz), meetings.ctypes.data,
        lengths.ctypes.data, lengthy.ctypes.data,
    )  # fmt: skip
    return ModeCounts(_spectrum(lengths, lengthy[0], size), repeats, meetings)


def pairs(entries: Entries, first: int, second: int, shift: int, bits: int, hashed: bool) -> int:
    """Count the slots that pairs of coordinates fall into, 2**bits where they are hashed. Raises MemoryError."""
    a, b = (_narrow(entries.coordinates[mode]) for mode in (first, second))
    sizes = entries.shape[first], entries.shape[second]
    return COUNTING("pairs", entries.nnz, a.ctypes.data, b.ctypes.data, *sizes, shift, bits, hashed)


def _lengthy(entries: Entries, spectra: int) -> np.ndarray:
    """Room for the lengths of lines of ``_SHORT`` entries and more."""
    return np.empty((spectra, entries.nnz // _SHORT + 1), np.int64)


def _spectrum(counted: np.ndarray, lengthy: np.ndarray, size: int) -> Spectrum:
    """Return what was counted of ``size`` lines: lengths below ``_SHORT`` in place, the others listed."""
    brief, listed = counted[:-1], int(counted[-1])
    lengths = np.flatnonzero(brief)
    if not listed:
        return Spectrum.of_lengths(lengths, brief[lengths], size)
    longer, lines = np.unique(lengthy[:listed], return_counts=True)
    return Spectrum.of_lengths(np.append(lengths, longer), np.append(brief[lengths], lines), size)


def _narrow(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, np.int32)
