"""The pattern of a matrix as numbers: what the cost of SpMV, SpMM and SDDMM in the formats of this machine depends on."""

from collections.abc import Callable, Iterable
from typing import ClassVar, Final, TypeAlias, final

import numpy as np

from tensorwise.analysis.counting import count_matrix
from tensorwise.analysis.counts import (
    BANDS,
    GRIDS,
    GROUP,
    HEIGHTS,
    LINE,
    NARROW,
    OFFSETS,
    PIECES,
    SLICES,
    SPARSE_MEETINGS,
    STRIPS,
    WINDOW,
    MatrixCounts,
)
from tensorwise.analysis.featurizer import Featurizer, Field
from tensorwise.analysis.spectrum import line_fields, line_numbers
from tensorwise.errors import InputError
from tensorwise.tensor.entries import Entries

Numbers: TypeAlias = Callable[[MatrixCounts], Iterable[float]]


@final
class MatrixPattern(Featurizer[Entries]):
    """Statistics of the pattern of a matrix, counted in one pass over its entries.

    Values do not enter. Of matrices of more than 2**16 entries, blocks, pieces of diagonals and dense columns are counted
    in one panel of 64 rows in eight, of panels of more than 8192 entries in one strip of 1024 columns in eight; beyond 2**21
    entries in fewer. All else is exact, up to hash collisions in matrices of far more columns than entries.
    """

    name: ClassVar[str] = "matrix-pattern"
    version: ClassVar[int] = 1

    @property
    def fields(self) -> tuple[Field, ...]:
        return _MATRIX_FIELDS

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
        return numbers(count_matrix(described))


def numbers(counts: MatrixCounts) -> np.ndarray:
    """Return the numbers that were counted: float32, shape (fields,)."""
    return np.array([number for _, group in _GROUPS for number in group(counts)], np.float32)


# -- the fields, a group at a time: what they are, and the function that gives the numbers ---------------------


def _size(counts: MatrixCounts) -> Iterable[float]:
    rows, columns, nnz = (float(count) for count in (*counts.shape, counts.rows.entries))
    yield from np.log2([1 + rows, 1 + columns, 1 + nnz])
    yield np.log2(max(nnz, 1)) - np.log2(max(rows, 1)) - np.log2(max(columns, 1))


_SIZE: Final = (
    Field("size.rows", "log2(1 + rows)", "the number of rows"),
    Field("size.columns", "log2(1 + columns)", "the number of columns"),
    Field("size.entries", "log2(1 + entries)", "the number of entries"),
    Field("size.density", "log2(share)", "the share of all places that hold an entry"),
)


def _outliers(counts: MatrixCounts) -> Iterable[float]:
    mean = -(-counts.rows.entries // max(counts.rows.size, 1))
    for times in (8, 64):
        yield counts.rows.share_above(max(64, times * mean))
    yield counts.dense / max(counts.sampled, 1)


_OUTLIERS: Final = (
    *(
        Field(
            f"outliers.rows{times}",
            "share of entries",
            f"entries of rows longer than {times} times the mean (and than 64): the outlier part of a hybrid",
        )
        for times in (8, 64)
    ),
    Field(
        "outliers.columns",
        "share of entries",
        f"entries of columns with more than {SPARSE_MEETINGS} entries in {GROUP} aligned rows: the outlier part of a "
        "hybrid",
    ),
)


def _slices(counts: MatrixCounts) -> Iterable[float]:
    slots = (counts.own_slots, counts.sorted_slots, counts.rows.slots(SLICES))
    return _per_entry(np.concatenate(slots), counts.rows.entries)


_SLICES: Final = tuple(
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
    nnz, tall, heights = counts.rows.entries, len(HEIGHTS), np.array(HEIGHTS)
    narrow = counts.block_meetings * (np.array(NARROW)[:, None] * heights)
    yield from _per_entry(counts.column_meetings[1:tall] * heights[1:], nnz)
    yield from _per_entry(narrow.ravel(), counts.sampled)
    yield from _per_entry(counts.line_meetings[:tall] * heights * LINE, nnz)


_BLOCKS: Final = tuple(
    Field(
        f"blocks.{height}x{width}",
        "log2(places / entries)",
        f"the places an entry takes in dense blocks of {height} by {width} (rows by columns)",
    )
    for width in (1, *NARROW, LINE)
    for height in HEIGHTS
    if height * width > 1  # blocks of one entry are full
)


def _strips(counts: MatrixCounts) -> Iterable[float]:
    rows = counts.rows
    return _per_entry(rows.size - rows.empty + counts.crossings[1:], rows.entries)


_STRIPS: Final = tuple(
    Field(
        f"strips.{width}",
        "log2(pieces / entries)",
        f"into how many pieces strips of {width} columns cut the rows: what walking the strips costs beside the entries",
    )
    for width in STRIPS
)


def _gathers(counts: MatrixCounts) -> Iterable[float]:
    tall = len(HEIGHTS)
    met = np.concatenate([counts.column_meetings[tall:], counts.line_meetings[tall:]])
    return _per_entry(met, counts.rows.entries)


_GATHERS: Final = tuple(
    Field(
        f"gathers.{name}{band}",
        f"log2({name} / entries)",
        f"how many distinct {what} each {band} rows meet: what they read anew where a cache holds as much",
    )
    for name, what in (("columns", "columns"), ("lines", f"cache lines of {LINE} columns"))
    for band in BANDS
)


def _diagonals(counts: MatrixCounts) -> Iterable[float]:
    pairs = max(counts.rows.entries, 1)
    yield from _per_entry(counts.diagonal_meetings * PIECES, counts.sampled)
    yield from np.log2(1.0 + np.maximum([counts.below, counts.above, counts.distance / pairs], 0))
    yield from (counts.rows.entries - counts.offsets) / pairs


_DIAGONALS: Final = (
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
    *(
        Field(
            f"diagonals.within{far}",
            "share of entries",
            f"what lies fewer than {far} columns off the main diagonal"
            if far > 1
            else "what the main diagonal holds",
        )
        for far in OFFSETS
    ),
)


def _neighbours(counts: MatrixCounts) -> Iterable[float]:
    rows, nnz = counts.rows, max(counts.rows.entries, 1)
    pairs = rows.entries - (rows.size - rows.empty)
    yield counts.runs / nnz
    yield (pairs - int(counts.crossings[0])) / nnz
    yield float(np.log2(1 + counts.span / max(pairs, 1)))


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
    Field("neighbours.gap", "log2(1 + columns)", "the mean distance of neighbours in a row"),
)


def _bands(counts: MatrixCounts) -> Iterable[float]:
    eighths = counts.bands.reshape(2, 8, -1).sum(axis=2)
    fullest = np.stack([counts.bands.max(axis=1), eighths.max(axis=1)], axis=1)
    lines = np.array([[min(many, size) for many in (GRIDS[0], 8)] for size in counts.shape])
    return _per_entry((fullest * lines).ravel(), counts.rows.entries)


_BANDS: Final = tuple(
    Field(
        f"bands.{lines}{many}",
        "log2(ratio)",
        f"the entries of the fullest of {many} equal bands of {lines} over the mean: how uneven equal shares are",
    )
    for lines in ("rows", "columns")
    for many in (GRIDS[0], 8)
)


def _grids(counts: MatrixCounts) -> Iterable[float]:
    rows, columns = counts.shape
    return counts.filled / [max(min(side, rows) * min(side, columns), 1) for side in GRIDS]


_GRIDS: Final = tuple(
    Field(
        f"grid.filled{side}",
        "share of cells",
        f"how many cells of a grid of {side} by {side} over the matrix have entries",
    )
    for side in GRIDS
)


def _per_entry(numbers: np.ndarray, entries: int) -> np.ndarray:
    """Return log2(numbers / entries), zeros without entries."""
    return np.log2(numbers / entries) if entries else np.zeros(len(numbers))


_GROUPS: Final[tuple[tuple[tuple[Field, ...], Numbers], ...]] = (
    (_SIZE, _size),
    (line_fields("rows", "row", "rows"), lambda counts: line_numbers(counts.rows)),
    (line_fields("columns", "column", "columns"), lambda counts: line_numbers(counts.columns)),
    (_OUTLIERS, _outliers),
    (_SLICES, _slices),
    (_BLOCKS, _blocks),
    (_STRIPS, _strips),
    (_GATHERS, _gathers),
    (_DIAGONALS, _diagonals),
    (_NEIGHBOURS, _neighbours),
    (_BANDS, _bands),
    (_GRIDS, _grids),
)
_MATRIX_FIELDS: Final = tuple(field for fields, _ in _GROUPS for field in fields)
