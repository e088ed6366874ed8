"""The pattern of a matrix as numbers: what the cost of SpMV, SpMM and SDDMM in the formats of this machine depends on."""

from collections.abc import Callable, Iterable
from typing import ClassVar, Final, TypeAlias, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.features.counting import count_matrix
from tensorwise.features.counts import (
    GRIDS,
    GROUP,
    KEPT,
    LEVELS,
    LINE,
    MIRRORED,
    MOST,
    NARROW,
    SLICES,
    WINDOW,
    MatrixCounts,
)
from tensorwise.features.featurizer import Featurizer, Field
from tensorwise.features.spectrum import line_fields, line_values, log
from tensorwise.tensor.entries import Entries

Numbers: TypeAlias = Callable[[MatrixCounts], Iterable[float]]

HEIGHTS: Final = (1, 2, 4, 8, 16)
"""Rows of blocks: those whose kernels keep a row each in a register."""
STRIPS: Final = tuple(2**bits for bits in range(6, 14))
"""Columns of strips."""
BANDS: Final = (64, 256, 1024, 4096, 16384)
"""Rows in whose reach operands are gathered again."""
PIECES: Final = (16, 32, 64)
"""Rows of pieces of diagonals."""


@final
class MatrixPattern(Featurizer[Entries]):
    """Statistics of the pattern of a matrix, counted in one pass over its entries.

    Values do not enter. Of matrices of more than 2**16 entries, blocks and pieces of diagonals are counted in one panel
    of 64 rows in four, and the symmetry of 1024 entries; all else is exact, up to hash collisions in matrices of far more
    rows or columns than entries.
    """

    name: ClassVar[str] = "matrix-pattern"
    version: ClassVar[int] = 1

    @property
    def fields(self) -> tuple[Field, ...]:
        return _FIELDS

    def features(self, described: Entries) -> np.ndarray:
        """Return the numbers of a matrix: float32, shape (len(fields),), all finite.

        Raises:
            InputError: the entries are those of a tensor.
            MemoryError: there is none for tables of a few words a column and diagonal (or a few dozen an entry).
        """
        if described.order != 2:
            raise InputError(
                f"{self.name} describes matrices, got a tensor of order {described.order}; use tensor-pattern"
            )
        counts = count_matrix(described)
        return np.array([number for _, group in _GROUPS for number in group(counts)], np.float32)


# -- the fields, a group at a time: what they are, and the function that gives the numbers ---------------------


def _size(counts: MatrixCounts) -> Iterable[float]:
    rows, columns = counts.shape
    nnz = counts.rows.entries
    density = np.log2(max(nnz, 1)) - np.log2(float(max(rows, 1))) - np.log2(float(max(columns, 1)))
    return log(rows), log(columns), log(nnz), density


_SIZE: Final = (
    Field("size.rows", "log2(1 + rows)", "the number of rows"),
    Field("size.columns", "log2(1 + columns)", "the number of columns"),
    Field("size.entries", "log2(1 + entries)", "the number of entries"),
    Field("size.density", "log2(share)", "the share of all places that hold an entry"),
)


def _above(counts: MatrixCounts) -> Iterable[float]:
    mean = -(-counts.rows.entries // max(counts.rows.size, 1))
    long = (counts.rows.share_above(max(64, times * mean)) for times in (8, 64))
    return *long, counts.dense / max(counts.sampled, 1)


_ABOVE: Final = (
    *(
        Field(
            f"apart.rows{times}",
            "share of entries",
            f"what rows above {times} times the mean length (and above 64) hold: what a hybrid may set apart",
        )
        for times in (8, 64)
    ),
    Field(
        "apart.columns",
        "share of entries",
        f"what columns hold that have more than {MOST} entries in {GROUP} aligned rows: what a hybrid may set apart",
    ),
)


def _slots(counts: MatrixCounts) -> Iterable[float]:
    whole = np.array([counts.rows.slots(height) for height in SLICES])
    return _logs(np.concatenate([counts.own_slots, counts.sorted_slots, whole]), counts.rows.entries)


_SLOTS: Final = tuple(
    Field(
        f"slices.{name}{height}",
        "log2(slots / entries)",
        f"the slots an entry takes in slices of {height} rows {order}, each as wide as its longest row (SELL-C-sigma)",
    )
    for name, order in (
        ("own", "in their own order"),
        ("window", f"sorted by length in each {WINDOW}"),
        ("sorted", "sorted by length"),
    )
    for height in SLICES
)


def _blocks(counts: MatrixCounts) -> Iterable[float]:
    nnz = counts.rows.entries
    levels = [height.bit_length() - 1 for height in HEIGHTS]
    yield from _logs(counts.column_meetings[levels] * HEIGHTS, nnz)[1:]  # blocks of one entry are full
    for width, met in zip(NARROW, counts.block_meetings, strict=True):
        yield from _logs(met[levels] * HEIGHTS * width, counts.sampled)
    yield from _logs(counts.line_meetings[levels] * HEIGHTS * LINE, nnz)


_BLOCKS: Final = tuple(
    Field(
        f"blocks.{height}x{width}",
        "log2(places / entries)",
        f"the places an entry takes in dense blocks of {height} rows by {width} columns",
    )
    for width in (1, *NARROW, LINE)
    for height in HEIGHTS
    if height * width > 1
)


def _strips(counts: MatrixCounts) -> Iterable[float]:
    levels = [width.bit_length() - 1 for width in STRIPS]
    return _logs(counts.rows.filled + counts.crossings[levels], counts.rows.entries)


_STRIPS: Final = tuple(
    Field(
        f"strips.{width}",
        "log2(pieces / entries)",
        f"into how many pieces strips of {width} columns cut the rows: what walking the strips costs beside the entries",
    )
    for width in STRIPS
)


def _gathers(counts: MatrixCounts) -> Iterable[float]:
    levels = [band.bit_length() - 1 for band in BANDS]
    yield from _logs(counts.column_meetings[levels], counts.rows.entries)
    yield from _logs(counts.line_meetings[levels], counts.rows.entries)


_GATHERS: Final = tuple(
    Field(
        f"gathers.{name}{band}",
        f"log2({name} / entries)",
        f"how many distinct {name} each {band} rows meet: what they read anew where a cache holds as much",
    )
    for name in ("columns", "lines")
    for band in BANDS
)


def _diagonals(counts: MatrixCounts) -> Iterable[float]:
    diagonals, nnz = counts.diagonals, counts.rows.entries
    levels = [height.bit_length() - 1 for height in PIECES]
    pairs = max(nnz, 1)
    return (
        log(diagonals.filled),
        diagonals.filled / max(diagonals.size, 1),
        *(diagonals.share_of_longest(many) for many in (1, 8, 64)),
        *_logs(counts.diagonal_meetings[levels] * PIECES, counts.sampled),
        log(max(counts.below, 0)),
        log(max(counts.above, 0)),
        log(counts.distance / pairs),
        *(1 - counts.offsets[level] / pairs if nnz else 0.0 for level in (0, 4, 8, 12)),
    )


_DIAGONALS: Final = (
    Field("diagonals.filled", "log2(1 + diagonals)", "the number of diagonals with entries"),
    Field("diagonals.share", "share of diagonals", "how many diagonals have entries"),
    *(
        Field(
            f"diagonals.densest{many}", "share of entries", f"what the densest {many} of the diagonals hold"
        )
        for many in (1, 8, 64)
    ),
    *(
        Field(
            f"diagonals.pieces{height}",
            "log2(places / entries)",
            f"the places an entry takes in pieces of diagonals {height} rows high (DIA)",
        )
        for height in PIECES
    ),
    Field("diagonals.below", "log2(1 + rows)", "how far entries reach below the main diagonal"),
    Field("diagonals.above", "log2(1 + columns)", "how far entries reach above the main diagonal"),
    Field("diagonals.distance", "log2(1 + columns)", "the mean distance of an entry from the main diagonal"),
    Field("diagonals.main", "share of entries", "what the main diagonal holds"),
    *(
        Field(
            f"diagonals.within{far}",
            "share of entries",
            f"what lies fewer than {far} columns off the main diagonal",
        )
        for far in (16, 256, 4096)
    ),
)


def _neighbours(counts: MatrixCounts) -> Iterable[float]:
    nnz, rows = counts.rows.entries, counts.rows.filled
    pairs = nnz - rows
    after = max(pairs, 1)
    line = LINE.bit_length() - 1
    return (
        counts.runs / max(nnz, 1),
        (pairs - counts.crossings[line]) / max(nnz, 1),
        counts.adjacent / max(nnz, 1),
        log(counts.span / after),
        float(counts.crossings.sum()) / after,
        counts.span / max(rows, 1) / max(counts.shape[1], 1),
        counts.mirrored / max(min(nnz, MIRRORED), 1),
    )


_NEIGHBOURS: Final = (
    Field(
        "neighbours.run",
        "share of entries",
        "how many stand in the column after that of the entry before in the row",
    ),
    Field(
        "neighbours.line",
        "share of entries",
        f"how many share a cache line of {LINE} columns with the entry before in the row",
    ),
    Field("neighbours.above", "share of entries", "how many have an entry right above, in the row before"),
    Field("neighbours.gap", "log2(1 + columns)", "the mean distance of neighbours in a row"),
    Field(
        "neighbours.bits",
        f"bits, up to {LEVELS}",
        "the mean bit length of (column ^ column before it in the row): small where columns cluster",
    ),
    Field(
        "neighbours.span",
        "share of columns",
        "how much of the columns lies between the first and the last entry of a row, in the mean",
    ),
    Field(
        "neighbours.mirrored",
        "share of entries",
        f"how many (i, k) have (k, i) as an entry, too, of {MIRRORED} that are looked at",
    ),
)


def _grids(counts: MatrixCounts) -> Iterable[float]:
    nnz, (rows, columns), grid = counts.rows.entries, counts.shape, counts.grid
    for axis, lines in ((1, rows), (0, columns)):
        bands = grid.sum(axis=axis)
        for many in (KEPT, 8):
            fullest = bands.reshape(many, -1).sum(axis=1).max()
            yield float(np.log2(fullest * min(many, lines) / nnz)) if nnz else 0.0
    for side, filled in zip(GRIDS, counts.filled, strict=True):
        yield filled / max(min(side, rows) * min(side, columns), 1)
    while len(grid) >= 8:
        shares = grid[grid > 0] / max(nnz, 1)
        possible = min(len(grid), rows) * min(len(grid), columns)
        yield float(-(shares @ np.log2(shares)) / np.log2(possible)) if possible > 1 else 0.0
        grid = grid.reshape(len(grid) // 2, 2, -1, 2).sum(axis=(1, 3))


_GRIDS: Final = (
    *(
        Field(
            f"bands.{lines}{many}",
            "log2(ratio)",
            f"the entries of the fullest of {many} equal bands of {lines} over the mean: how uneven equal shares are",
        )
        for lines in ("rows", "columns")
        for many in (KEPT, 8)
    ),
    *(
        Field(
            f"grid.filled{side}",
            "share of cells",
            f"how many cells of a {side} by {side} grid over the matrix have entries",
        )
        for side in GRIDS
    ),
    *(
        Field(
            f"grid.entropy{side}",
            "0 to 1",
            f"the entropy of the entries over the cells of a {side} by {side} grid, over that of even ones",
        )
        for side in GRIDS
        if side <= KEPT
    ),
)


def _logs(numbers: np.ndarray, entries: int) -> np.ndarray:
    """Return log2(numbers / entries), zeros without entries."""
    return np.log2(numbers / entries) if entries else np.zeros(len(numbers))


_GROUPS: Final[tuple[tuple[tuple[Field, ...], Numbers], ...]] = (
    (_SIZE, _size),
    (line_fields("rows", "row"), lambda counts: line_values(counts.rows)),
    (line_fields("columns", "column"), lambda counts: line_values(counts.columns)),
    (_ABOVE, _above),
    (_SLOTS, _slots),
    (_BLOCKS, _blocks),
    (_STRIPS, _strips),
    (_GATHERS, _gathers),
    (_DIAGONALS, _diagonals),
    (_NEIGHBOURS, _neighbours),
    (_GRIDS, _grids),
)
_FIELDS: Final = tuple(field for fields, _ in _GROUPS for field in fields)
