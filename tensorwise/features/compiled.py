"""Counting in compiled code: ``toolchain/pattern.c`` behind typed functions.

For at least one entry and fewer than 2**31, in coordinates of 32 bits.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np

from tensorwise.features.counts import (
    GRIDS,
    KEPT,
    LEVELS,
    NARROW,
    SLICES,
    MatrixCounts,
    ModeCounts,
    fold_bits,
)
from tensorwise.features.spectrum import Spectrum
from tensorwise.tensor.entries import Entries
from tensorwise.toolchain.runtime import load_runtime

_SHORT: Final = 1024
_SCALARS: Final = ["sampled", "dense", "span", "runs", "below", "above", "distance", "adjacent", "mirrored"]


def matrix(entries: Entries, skip: int) -> MatrixCounts:
    """Count in a matrix; blocks and diagonals in one of ``skip`` panels. Raises MemoryError."""
    rows, columns = entries.shape
    row, column = (_narrow(array) for array in entries.coordinates)
    pointers = None if entries.pointers is None else _narrow(entries.pointers)
    out = _Counts()
    lengths = [_Lengths(entries, one) for one in (out.row_lengths, out.column_lengths, out.diagonal_lengths)]
    _call(
        "matrix", entries.nnz, row.ctypes.data, column.ctypes.data, None if pointers is None else pointers.ctypes.data,
        rows, columns, fold_bits(entries.nnz), skip, ctypes.byref(out),
    )  # fmt: skip
    return MatrixCounts(
        shape=(rows, columns),
        rows=lengths[0].spectrum(rows),
        columns=lengths[1].spectrum(columns),
        diagonals=lengths[2].spectrum(rows + columns - 1),
        own_slots=np.array(out.own),
        sorted_slots=np.array(out.sorted),
        crossings=np.array(out.crossings),
        offsets=np.array(out.offsets),
        column_meetings=np.array(out.columns),
        line_meetings=np.array(out.lines),
        block_meetings=np.array(out.blocks).reshape(len(NARROW), LEVELS),
        diagonal_meetings=np.array(out.pieces),
        filled=np.array(out.filled),
        grid=np.array(out.grid).reshape(KEPT, KEPT),
        **{name: getattr(out, name) for name in _SCALARS},
    )


def mode(entries: Entries, mode: int) -> ModeCounts:
    """Count in one mode of a tensor. Raises MemoryError."""
    size, coordinate, out = entries.shape[mode], _narrow(entries.coordinates[mode]), _Spectrum()
    lengths = _Lengths(entries, out)
    jumps, meetings = (np.zeros(LEVELS, np.int64) for _ in range(2))
    _call(
        "mode", entries.nnz, coordinate.ctypes.data, size, fold_bits(entries.nnz), jumps.ctypes.data,
        meetings.ctypes.data, ctypes.byref(out),
    )  # fmt: skip
    return ModeCounts(lengths.spectrum(size), jumps, meetings)


def pairs(entries: Entries, first: int, second: int, shift: int, bits: int, hashed: bool) -> int:
    """Count the slots that pairs of coordinates fall into, 2**bits where they are hashed. Raises MemoryError."""
    a, b = (_narrow(entries.coordinates[mode]) for mode in (first, second))
    sizes = entries.shape[first], entries.shape[second]
    return _call("pairs", entries.nnz, a.ctypes.data, b.ctypes.data, *sizes, shift, bits, hashed)


class _Spectrum(ctypes.Structure):
    """``tw_pattern_spectrum`` of pattern.c."""

    _fields_ = (
        ("brief", ctypes.c_int64 * _SHORT),
        ("listed", ctypes.c_int64),
        ("lengthy", ctypes.c_void_p),
    )


class _Counts(ctypes.Structure):
    """``tw_pattern_counts`` of pattern.c."""

    _fields_ = (
        *((name, ctypes.c_int64 * len(SLICES)) for name in ("own", "sorted")),
        *((name, ctypes.c_int64 * LEVELS) for name in ("crossings", "offsets", "columns", "lines")),
        ("blocks", ctypes.c_int64 * (len(NARROW) * LEVELS)),
        ("pieces", ctypes.c_int64 * LEVELS),
        *((name, ctypes.c_int64) for name in _SCALARS),
        *((name, _Spectrum) for name in ("row_lengths", "column_lengths", "diagonal_lengths")),
        ("filled", ctypes.c_int64 * len(GRIDS)),
        ("grid", ctypes.c_int64 * KEPT**2),
    )


class _Lengths:
    """Room for a spectrum: C counts lengths below ``_SHORT`` in place and lists the others, which are few."""

    def __init__(self, entries: Entries, out: _Spectrum) -> None:
        self._out, self._lengthy = out, np.empty(entries.nnz // _SHORT + 1, np.int64)
        out.lengthy = self._lengthy.ctypes.data

    def spectrum(self, size: int) -> Spectrum:
        """Return what was counted of ``size`` lines."""
        brief = np.array(self._out.brief)
        lengths, longer = np.flatnonzero(brief), Spectrum.of(self._lengthy[: self._out.listed])
        return Spectrum(
            np.concatenate([lengths, longer.lengths]), np.concatenate([brief[lengths], longer.lines]), size
        )


def _narrow(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, np.int32)


_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_int64
_ARGUMENTS: Final = {
    "matrix": (_SIZE, *(_POINTER,) * 3, *(_SIZE,) * 4, _POINTER),
    "mode": (_SIZE, _POINTER, *(_SIZE,) * 2, *(_POINTER,) * 3),
    "pairs": (_SIZE, *(_POINTER,) * 2, *(_SIZE,) * 5),
}


def _call(name: str, *arguments: object) -> int:
    result = _function(name)(*arguments)
    if result < 0:
        raise MemoryError(f"no memory to count in a pattern ({name})")
    return result


@cache
def _function(name: str) -> Callable[..., int]:
    function = load_runtime()[f"tw_pattern_{name}"]
    function.restype, function.argtypes = _SIZE, _ARGUMENTS[name]
    checked: Callable[..., int] = function
    return checked
