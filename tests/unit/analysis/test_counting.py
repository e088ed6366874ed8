"""What is counted: against sets of places, and the same by compiled code and by NumPy."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorwise.analysis import compiled, counting, plain
from tensorwise.analysis.counts import MatrixCounts, ModeCounts
from tensorwise.analysis.spectrum import Spectrum
from tensorwise.errors import CompilerError
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tests.unit.analysis import brute
from tests.unit.analysis.cases import ODD, SMALL, drawn, matrix

WAYS = {"compiled": compiled, "plain": plain}
KINDS = ("uniform", "banded", "skewed")


def assert_same(
    ours: MatrixCounts | ModeCounts | Spectrum, theirs: MatrixCounts | ModeCounts | Spectrum
) -> None:
    for field in dataclasses.fields(ours):
        one, other = getattr(ours, field.name), getattr(theirs, field.name)
        if isinstance(one, Spectrum):
            assert_same(one, other)
            continue
        np.testing.assert_array_equal(one, other, field.name)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_small_matrix_by_hand(way) -> None:
    counts = way.matrix(SMALL, 1)
    assert (counts.rows.lengths.tolist(), counts.rows.lines.tolist()) == ([0, 1, 3], [1, 1, 2])
    assert (counts.columns.lengths.tolist(), counts.columns.lines.tolist()) == ([0, 1, 2, 3], [2, 2, 1, 1])
    assert counts.own_slots.tolist() == counts.sorted_slots.tolist() == [12, 24, 48, 96, 192]
    assert counts.crossings.tolist() == [0] * 9
    assert counts.offsets.tolist() == [5, 0, 0, 0]
    assert counts.column_meetings.tolist() == [7, 6, 4, 4, 4, 4, 4, 4, 4, 4]
    assert counts.line_meetings.tolist() == [3, 2, 1, 1, 1, 1, 1, 1, 1, 1]
    assert counts.block_meetings.tolist() == [[5, 4, 2, 2, 2], [5, 4, 2, 2, 2], [3, 2, 1, 1, 1]]
    assert counts.diagonal_meetings.tolist() == [6, 6, 6]
    assert (counts.sampled, counts.dense, counts.span, counts.runs) == (7, 0, 9, 2)
    assert (counts.below, counts.above, counts.distance) == (3, 4, 12)
    assert counts.filled.tolist() == [7] * 4
    assert np.flatnonzero(counts.bands[0]).tolist() == [0, 16, 48]
    assert counts.bands[1][[0, 10, 42, 53]].tolist() == [2, 3, 1, 1]


@st.composite
def matrices(draw: st.DrawFn) -> Entries:
    """Matrices of one row or column, of many, and of those that end just behind a block, slice or window."""
    size = st.integers(1, 70) | st.sampled_from([127, 128, 129, 1000, 4096, 4097, 9000])
    shape, nnz = (draw(size), draw(size)), draw(st.integers(0, 40) | st.sampled_from([300, 1023, 1024, 1025]))
    entries = drawn(shape, nnz, draw(st.integers(0, 2**32)), draw(st.sampled_from(KINDS)))
    return entries if draw(st.booleans()) else dataclasses.replace(entries, pointers=None)


@given(matrices())
def test_counts_are_those_of_sets_of_places(entries: Entries) -> None:
    expected = brute.matrix(entries)
    assert_same(plain.matrix(entries, 1), expected)
    assert_same(counting.count_matrix(entries), expected)
    if entries.nnz:
        assert_same(compiled.matrix(entries, 1), expected)


@given(st.lists(st.integers(1, 300), min_size=3, max_size=5), st.integers(1, 1200), st.sampled_from(KINDS))
def test_counts_of_modes_are_those_of_sets_of_coordinates(shape: list[int], nnz: int, kind: str) -> None:
    entries = drawn(tuple(shape), nnz, kind=kind)
    for mode in range(entries.order):
        expected = brute.mode(entries, mode)
        assert_same(compiled.mode(entries, mode), expected)
        assert_same(plain.mode(entries, mode), expected)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_long_lines_are_counted_like_others(way) -> None:
    lengths = [1023, 0, 1024, 3000, 1024]
    entries = matrix(
        5, 3000, [(row, column) for row, length in enumerate(lengths) for column in range(length)]
    )
    counts = way.matrix(entries, 1)
    assert (counts.rows.lengths.tolist(), counts.rows.lines.tolist()) == ([0, 1023, 1024, 3000], [1, 1, 2, 1])
    turned = entries_from(((3000, 5), entries.coordinates[::-1], None))
    assert_same(way.matrix(turned, 1).columns, counts.rows)


@pytest.mark.parametrize("skip", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "nnz"),
    [
        ((1, 1), 1),
        ((40, 30), 300),
        ((9000, 50), 1023),
        ((50, 9000), 1024),
        ((700, 800), 1025),
        ((90, 30_000), 60_000),  # heavy panels
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(30, 40, 50), (10, 400_000, 7, 30), (5, 6, 7, 8, 2**31 - 1)])
def test_compiled_and_plain_count_the_same_in_tensors(shape: tuple[int, ...], kind: str) -> None:
    entries = drawn(shape, 3000, kind=kind)
    for mode in range(entries.order):
        assert_same(compiled.mode(entries, mode), plain.mode(entries, mode))
    for first, second in ((0, 1), (1, entries.order - 1)):
        for shift, hashed in ((0, True), (3, True), (12, False)):
            if hashed or shape[first] * shape[second] >> 2 * shift < 2**20:
                asked = (entries, first, second, shift, 20, hashed)
                assert compiled.pairs(*asked) == plain.pairs(*asked)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_some_panels_are_sampled_or_strips(way) -> None:
    tall = matrix(10**6, 1, [(64 * 7 * panel + row, 0) for panel in range(100) for row in range(64)])
    wide = matrix(3, 1024 * 100, [(2, column) for column in range(1024 * 100)])
    for skip in (1, 4, 10):
        assert way.matrix(tall, skip).sampled == 6400 // skip
        assert way.matrix(wide, skip).sampled == 1024 * 100 // skip
    assert way.matrix(matrix(9, 9, [(8, 8)]), 7).sampled == 1


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
    compiled.COUNTING.__dict__.pop("works", None)
    yield
    compiled.COUNTING.__dict__.pop("works", None)


@pytest.mark.usefixtures("asked_again")
def test_numpy_counts_where_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise CompilerError("no C compiler works here")

    entries = drawn((300, 200), 2000)
    before = counting.count_matrix(entries)
    compiled.COUNTING.__dict__.pop("works", None)
    monkeypatch.setattr(compiled.COUNTING, "load", refuse)
    assert_same(counting.count_matrix(entries), before)
