"""What is counted: by hand, and the same by compiled code and by NumPy."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from tensorwise.errors import CompilerError
from tensorwise.features import compiled, counting, plain
from tensorwise.features.counts import LEVELS, MatrixCounts, ModeCounts
from tensorwise.features.spectrum import Spectrum
from tensorwise.tensor.entries import Entries
from tests.unit.features.cases import ODD, SMALL, drawn, matrix

WAYS = {"compiled": compiled, "plain": plain}


def assert_same(ours: MatrixCounts | ModeCounts, theirs: MatrixCounts | ModeCounts) -> None:
    for field in dataclasses.fields(ours):
        one, other = getattr(ours, field.name), getattr(theirs, field.name)
        if isinstance(one, Spectrum):
            np.testing.assert_array_equal(one.lengths, other.lengths, field.name)
            np.testing.assert_array_equal(one.lines, other.lines, field.name)
            one, other = one.size, other.size
        np.testing.assert_array_equal(one, other, field.name)


def levels(*counts: int) -> list[int]:
    """The first counts by level; the last one stays as it is."""
    return [*counts, *[counts[-1]] * (LEVELS - len(counts))]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_small_matrix_by_hand(way) -> None:
    counts = way.matrix(SMALL, 1)
    assert counts.shape == (4, 6)
    for lines, lengths, many, size in (
        (counts.rows, [1, 3], [1, 2], 4),
        (counts.columns, [1, 2, 3], [2, 1, 1], 6),
        (counts.diagonals, [1, 2], [5, 1], 9),
    ):
        assert (lines.lengths.tolist(), lines.lines.tolist(), lines.size) == (lengths, many, size)
    assert counts.own_slots.tolist() == counts.sorted_slots.tolist() == [12, 24, 48, 96, 192]
    assert counts.crossings.tolist() == levels(4, 2, 2, 0)
    assert counts.offsets.tolist() == levels(5, 4, 1, 0)
    assert counts.column_meetings.tolist() == levels(7, 6, 4)
    assert counts.line_meetings.tolist() == levels(3, 2, 1)
    assert counts.block_meetings.tolist() == [levels(5, 4, 2), levels(5, 4, 2), levels(3, 2, 1)]
    assert counts.diagonal_meetings.tolist() == levels(7, 6, 6)
    assert (counts.sampled, counts.dense, counts.span, counts.runs) == (7, 0, 9, 2)
    assert (counts.below, counts.above, counts.distance) == (3, 4, 12)
    assert (counts.adjacent, counts.mirrored) == (1, 2)
    assert counts.filled.tolist() == [7] * 6
    assert (counts.grid.sum(), counts.grid[56, 5], counts.grid[56, 58]) == (7, 1, 1)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_dense_columns_and_slices_by_hand(way) -> None:
    # rows 8 to 15: column 3 five times, column 4 four times; row 16: column 3 once more; row 5000 has three entries
    places = [(8 + i, 3) for i in range(5)] + [(12 + i, 4) for i in range(4)] + [(16, 3)]
    counts = way.matrix(matrix(5001, 9, [*places, (5000, 0), (5000, 1), (5000, 8)]), 1)
    assert (counts.sampled, counts.dense) == (13, 5)
    # row 12 has two entries; slices of 4 begin at rows 8, 12, 16 and 5000
    assert counts.own_slots.tolist() == [4 * 7, 8 * 6, 16 * 6, 32 * 5, 64 * 5]
    # the first 4096 rows, sorted: 2 1 1 1 1 1 1 1 1
    assert counts.sorted_slots.tolist() == [4 * (2 + 1 + 1 + 3), 8 * (2 + 1 + 3), 16 * 5, 32 * 5, 64 * 5]


@pytest.mark.parametrize("skip", [1, 3])
@pytest.mark.parametrize("kind", ["uniform", "banded", "skewed"])
@pytest.mark.parametrize(
    ("shape", "nnz"),
    [
        ((1, 1), 1),
        ((40, 30), 300),
        ((9000, 50), 1023),
        ((50, 9000), 1024),
        ((700, 800), 1025),
        ((30_000, 20_000), 50_000),
        ((2_000_000, 3_000_000), 5000),  # more columns than slots: hashed
    ],
)
def test_compiled_and_plain_count_the_same(shape: tuple[int, int], nnz: int, kind: str, skip: int) -> None:
    entries = drawn(shape, nnz, kind=kind)
    assert_same(compiled.matrix(entries, skip), plain.matrix(entries, skip))


@pytest.mark.parametrize("name", [name for name in ODD if ODD[name].nnz and max(ODD[name].shape) < 2**31])
def test_compiled_and_plain_agree_at_the_ends(name: str) -> None:
    assert_same(compiled.matrix(ODD[name], 1), plain.matrix(ODD[name], 1))


@pytest.mark.parametrize("kind", ["uniform", "banded", "skewed"])
@pytest.mark.parametrize("shape", [(30, 40, 50), (10, 400_000, 7, 30), (5, 6, 7, 8, 2**31 - 1)])
def test_compiled_and_plain_count_the_same_in_tensors(shape: tuple[int, ...], kind: str) -> None:
    entries = drawn(shape, 3000, kind=kind)
    for mode in range(entries.order):
        assert_same(compiled.mode(entries, mode), plain.mode(entries, mode))
    for first, second in ((0, 1), (1, entries.order - 1)):
        for shift, hashed in ((0, True), (3, True), (12, False)):
            if hashed or shape[first] * shape[second] >> 2 * shift < 2**20:
                given = (entries, first, second, shift, 20, hashed)
                assert compiled.pairs(*given) == plain.pairs(*given)


def test_rows_are_found_without_pointers() -> None:
    entries = drawn((500, 400), 900)
    without = Entries(entries.shape, entries.coordinates, entries.values, None)
    assert_same(compiled.matrix(without, 2), compiled.matrix(entries, 2))


def test_meetings_are_pairs_of_a_column_and_a_band_of_rows() -> None:
    entries = drawn((300, 200), 2000, kind="skewed")
    rows, columns = (array.astype(int) for array in entries.coordinates)
    counts = counting.count_matrix(entries)
    for level in range(LEVELS):
        for met, width in (
            (counts.column_meetings, 1),
            (counts.block_meetings[0], 2),
            (counts.block_meetings[2], 8),
            (counts.line_meetings, 16),
        ):
            assert met[level] == len(set(zip(rows >> level, columns // width, strict=True)))


def test_mirror_images_are_found() -> None:
    entries = drawn((90, 80), 1000)
    places = set(zip(*(array.tolist() for array in entries.coordinates), strict=True))
    assert counting.count_matrix(entries).mirrored == sum((k, i) in places for i, k in places)


@pytest.mark.parametrize("shape", [(40, 30, 20), (3000, 2500, 9), (2**40, 2**61, 7)])
def test_pairs_of_coordinates(shape: tuple[int, ...]) -> None:
    entries = drawn(shape, 5000)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        a, b = (entries.coordinates[mode].astype(int) >> 3 for mode in (first, second))
        assert counting.count_pairs(entries, first, second, 3) == pytest.approx(
            len(set(zip(a, b, strict=True))), rel=0.01
        )


@pytest.fixture
def asked_again() -> Iterator[None]:
    counting._has_compiler.cache_clear()
    yield
    counting._has_compiler.cache_clear()


@pytest.mark.usefixtures("asked_again")
def test_numpy_counts_where_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise CompilerError("no C compiler works here")

    entries = drawn((300, 200), 2000)
    before = counting.count_matrix(entries)
    counting._has_compiler.cache_clear()
    monkeypatch.setattr(counting, "load_runtime", refuse)
    monkeypatch.setattr(compiled, "load_runtime", refuse)
    compiled._function.cache_clear()
    assert_same(counting.count_matrix(entries), before)
