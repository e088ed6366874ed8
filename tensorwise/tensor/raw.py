"""Entries as a file or another library gives them: plain arrays that nothing has checked yet.

Readers and adapters make these; `tensorwise.tensor.entries.canonical_entries` checks them and makes `Entries`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.tensor.checks import as_array, checked_indices, checked_integers, checked_pointers
from tensorwise.tensor.pointers import rows_of


@final
@dataclass(frozen=True, eq=False)
class RawCoordinates:
    """Coordinate arrays, in any order, with duplicates.

    Attributes:
        shape: what `checked_shape` returned.
        coordinates: one array (nnz,) a mode.
        values: (nnz,); None for ones.
        source: where the arrays came from: the first words of every message about them.
        is_trusted: the reader has checked the coordinates, which have the dtype that `coordinate_dtype` returns, and
            nobody else holds its arrays.
    """

    shape: tuple[int, ...]
    coordinates: Sequence[Any]
    values: Any
    source: str
    is_trusted: bool = False


@final
@dataclass(frozen=True, eq=False)
class RawCompressed:
    """Row pointers and column indices of a matrix (CSR), or column pointers and row indices (CSC).

    Attributes:
        shape: what `checked_shape` returned; order 2.
        pointers: (rows + 1,), or (columns + 1,) with ``by_column``.
        indices: (nnz,).
        values: (nnz,).
        source: where the arrays came from: the first words of every message about them.
        by_column: the matrix is compressed by columns (CSC).
    """

    shape: tuple[int, ...]
    pointers: Any
    indices: Any
    values: Any
    source: str
    by_column: bool = False


RawEntries = RawCoordinates | RawCompressed
Part = Literal["real", "imaginary"]
"""Of complex values, which are read one part at a time."""


def expand_blocks(raw: RawCompressed) -> RawCoordinates:
    """Return the elements of a matrix of blocks (BSR, or BSC with ``by_column``), zeros inside blocks too.

    Args:
        raw: pointers and indices count blocks; values have the shape (blocks, height, width).

    Raises:
        InputError: blocks that do not divide the shape, or pointers or indices outside it.
    """
    shape, source = raw.shape, raw.source
    data = as_array(raw.values, f"{source}: values")
    if data.ndim != 3 or 0 in data.shape[1:]:
        raise InputError(f"{source}: blocks have shape {data.shape}; expected (count, height, width)")
    if raw.by_column:  # the rows of blocks of the transpose
        shape, data = shape[::-1], data.transpose(0, 2, 1)
    count, height, width = data.shape
    if shape[0] % height or shape[1] % width:
        raise InputError(f"{source}: blocks of {height}x{width} do not divide shape {shape[0]}x{shape[1]}")
    across = checked_integers(raw.indices, f"{source}: block column indices")
    if len(across) != count:
        raise InputError(f"{source}: {len(across)} block column indices for {count} blocks")
    starts = checked_pointers(raw.pointers, shape[0] // height, count, source, "block row")
    # Checked before they are multiplied, so that nothing wraps.
    across, outside = checked_indices(across, shape[1] // width, np.dtype(np.int64), source, "block column")
    if outside is not None:
        raise InputError(
            f"{source}: block {outside} has block column {across[outside]}; "
            f"expected 0 to {shape[1] // width - 1}"
        )
    down = rows_of(starts, np.dtype(np.int64))
    rows = (down * height)[:, None, None] + np.arange(height)[None, :, None]
    columns = (across * width)[:, None, None] + np.arange(width)[None, None, :]
    coordinates = [np.broadcast_to(part, data.shape).ravel() for part in (rows, columns)]
    if raw.by_column:
        coordinates = coordinates[::-1]
    return RawCoordinates(raw.shape, coordinates, data.ravel(), source)


def expand_diagonals(shape: tuple[int, ...], offsets: Any, data: Any, source: str) -> RawCoordinates:
    """Return the values other than 0 of a matrix of diagonals (DIA): of zeros nobody can tell padding from entries.

    Args:
        shape: what `checked_shape` returned; order 2.
        offsets: (diagonals,) column of the first row, negative below the main diagonal.
        data: (diagonals, columns or fewer): values by column.
        source: the first words of every message.

    Raises:
        InputError: the arrays do not fit each other.
    """
    shifts = checked_integers(offsets, f"{source}: offsets").astype(np.int64)
    values = as_array(data, f"{source}: values")
    if values.ndim != 2 or len(values) != len(shifts):
        raise InputError(
            f"{source}: values of shape {values.shape} for {len(shifts)} diagonals; "
            "expected one row a diagonal"
        )
    diagonal, columns = np.nonzero(values[:, : shape[1]])
    with np.errstate(over="ignore"):
        rows = columns - shifts[diagonal]
    # What a diagonal holds beyond the matrix is padding, whatever its value.
    inside = (rows >= 0) & (rows < shape[0]) & (-shape[0] < shifts[diagonal]) & (shifts[diagonal] < shape[1])
    diagonal, columns, rows = diagonal[inside], columns[inside], rows[inside]
    return RawCoordinates(shape, (rows, columns), values[diagonal, columns], source)
