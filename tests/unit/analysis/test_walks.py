"""Walks: compiled code against NumPy, and what a machine without a compiler does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorwise.analysis import walks
from tensorwise.analysis.walks import TileWalk, plain, walk
from tensorwise.errors import CompilerError
from tensorwise.space.strips import Processors


def places(rows: int, columns: int, count: int, seed: int) -> walks.Places:
    drawn = np.random.default_rng(seed).integers(0, (rows, columns), (count, 2))
    row, column = np.unique(drawn, axis=0).T
    return row, column


def numbers(found: TileWalk) -> list[object]:
    held = (1.0, 2.5, 7.0, 40.0, 1e9)
    curves = [curve.fetched(size) for level in found.curves for curve in level for size in held]
    return [found.work, found.begun, found.tiles, *curves]


@given(
    extents=st.tuples(st.integers(1, 70), st.integers(1, 70)),
    count=st.integers(1, 400),
    tile=st.tuples(st.integers(1, 80), st.integers(1, 80)),
    columns_first=st.booleans(),
    lanes=st.integers(1, 9),
    sharers=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 9)),
    seed=st.integers(0, 99),
)
def test_compiled_code_counts_what_numpy_does(
    extents: tuple[int, int],
    count: int,
    tile: tuple[int, int],
    columns_first: bool,
    lanes: int,
    sharers: tuple[int, int, int],
    seed: int,
) -> None:
    processors = Processors(lanes, tuple((1024, some) for some in sharers))
    given = places(*extents, count, seed), extents, tile, columns_first, processors
    assert numbers(walks._compiled(*given)) == numbers(plain(*given))


@pytest.mark.parametrize("distance", [1, 2, 3, 5, 6, 11, 12, 45, 46, 1448, 1449])
def test_gaps_fall_into_the_classes_of_the_windows(distance: int) -> None:
    """One row after the other gathers as many columns as lie between two accesses to the first."""
    column = np.tile(np.arange(distance), 3)
    row = np.repeat(np.arange(3), distance)
    usual = Processors(1, ((1024, 1),) * 3)
    given = (row, column), (3, distance), (3, distance), False, usual
    assert numbers(walks._compiled(*given)) == numbers(plain(*given))


def test_without_a_compiler_numpy_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise CompilerError("no compiler")

    given = places(20, 30, 90, 0), (20, 30), (4, 8), True, Processors(2, ((64, 1), (256, 1), (1024, 2)))
    expected = numbers(walk(*given))
    walks.WALKING.__dict__.pop("works", None)
    monkeypatch.setattr(walks.WALKING, "load", missing)
    try:
        assert numbers(walk(*given)) == expected
    finally:
        walks.WALKING.__dict__.pop("works", None)
