"""Augmentation: real patterns resized and made dense in blocks, the same everywhere."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.collect.augment import FACTOR, MOST_EXTENT, Augmentation
from tensorwise.errors import InputError
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries


def pattern(shape: tuple[int, ...], nnz: int, seed: int = 0) -> Entries:
    rng = np.random.default_rng(seed)
    return entries_from((shape, tuple(rng.integers(0, n, nnz) for n in shape), np.ones(nnz)))


@given(order=st.integers(2, 5), nnz=st.integers(0, 60), seed=st.integers(0, 2**32 - 1), fibres=st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_is_drawn_can_be_rebuilt_from_its_name(order: int, nnz: int, seed: int, fibres: bool) -> None:
    rng = np.random.default_rng(seed)
    original = pattern(tuple(int(n) for n in rng.integers(1, 40, order)), nnz, seed)
    drawn = Augmentation.draw(original.shape, original.nnz, rng, most_entries=100_000, fibres=fibres)
    assert (drawn.order, len(drawn.shape), drawn.fibre > 0) == (order, order + fibres, fibres)
    once = drawn.apply(original)
    again = Augmentation.parse(str(drawn)).apply(original)
    assert once.pattern_id == again.pattern_id
    assert once.shape == drawn.shape
    assert once.nnz <= max(original.nnz * math.prod(drawn.block) * max(drawn.fibre, 1), 1)
    assert (once.nnz > 0) == (original.nnz > 0)
    assert set(once.values) <= {1.0}


def test_the_pattern_is_the_same_on_every_machine() -> None:
    original = entries_from(((20, 30), (np.arange(40) * 7 % 20, np.arange(40) * 11 % 30), np.ones(40)))
    made = Augmentation((2, 1), (40, 90), 7).apply(original)
    assert made.nnz == 80
    assert made.pattern_id == "af30aab04d420cd9d8b2209659788641"


def test_every_block_that_is_met_is_full() -> None:
    made = Augmentation((4, 8), (64, 64), 1).apply(pattern((16, 16), 20))
    blocks = made.to_scipy().toarray().reshape(16, 4, 8, 8).sum(axis=(1, 3))
    assert set(np.unique(blocks)) == {0, 32}


def test_a_block_at_the_border_is_cut() -> None:
    assert Augmentation((4, 4), (6, 6)).apply(pattern((1, 1), 1)).shape == (6, 6)
    full = entries_from(np.ones((2, 2)))
    assert Augmentation((4, 4), (6, 6)).apply(full).nnz == 36


def test_resizing_keeps_the_outline() -> None:
    diagonal = entries_from(np.eye(50))
    for extent in (10, 200):
        made = Augmentation((1, 1), (extent, extent), 3).apply(diagonal)
        rows, columns = (array.astype(int) for array in made.coordinates)
        assert np.abs(rows - columns).max() <= extent // 50
        assert made.nnz == min(extent, 50)


def test_growing_moves_entries_within_their_cells_only() -> None:
    grown = Augmentation((1, 1), (40, 40), 9).apply(entries_from(np.ones((4, 4))))
    assert {(i // 10, k // 10) for i, k in zip(*grown.coordinates, strict=True)} == {
        (i, k) for i in range(4) for k in range(4)
    }
    other = Augmentation((1, 1), (40, 40), 10).apply(entries_from(np.ones((4, 4))))
    assert grown.pattern_id != other.pattern_id


def test_what_is_drawn_keeps_its_limits() -> None:
    rng = np.random.default_rng(0)
    drawn = [Augmentation.draw((1000, 1000, 2**30), 5000, rng, most_entries=40_000) for _ in range(200)]
    assert max(math.prod(one.block) for one in drawn) == 8
    assert all(250 <= one.shape[0] <= 1000 * FACTOR and one.shape[2] == MOST_EXTENT for one in drawn)
    assert 50 < sum(one.shape[0] == one.shape[1] for one in drawn) < 150


def test_a_matrix_becomes_a_tensor() -> None:
    """As SpTFS makes them: each entry of the matrix has a fibre, at random places of a further mode."""
    original = entries_from(((20, 30), (np.arange(40) * 7 % 20, np.arange(40) * 11 % 30), np.ones(40)))
    made = Augmentation((1, 1, 1), (20, 30, 1000), 7, 5).apply(original)
    rows, columns, places = (array.astype(int) for array in made.coordinates)
    fibres = Counter(zip(rows.tolist(), columns.tolist(), strict=True))
    assert fibres.keys() == set(zip(*(array.tolist() for array in original.coordinates), strict=True))
    assert max(fibres.values()) == 5
    assert made.nnz > 190  # two of five rarely meet among a thousand
    assert 350 < places.mean() < 650
    assert len(set(places.tolist())) > 150  # each fibre has places of its own
    assert made.pattern_id == "ddce8fdd7038981d070bbcc2167d63b0"
    blocks = Augmentation((4, 2, 2), (40, 60, 100), 7, 5).apply(original)
    assert blocks.nnz % 16 == 0
    assert blocks.nnz > made.nnz


def test_fibres_are_as_long_as_rows_and_keep_the_limit() -> None:
    rng = np.random.default_rng(0)
    drawn = [Augmentation.draw((1000, 500), 8000, rng, 200_000, fibres=True) for _ in range(200)]
    assert {one.fibre for one in drawn} >= {2, 8, 25}
    assert all(2 <= one.fibre <= 25 and 125 <= one.shape[2] <= 2000 for one in drawn)
    assert all(8000 * one.fibre * math.prod(one.block) <= 200_000 for one in drawn)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2x2",
        "2-4-0",
        "2x2-4x4",
        "2x2-4x4-x",
        "0x2-4x4-0",
        "2x2x2-4x4-0",
        "2x2-4x4-9999999999",
        "2x2-4x4-0-3",
    ],
)
def test_what_is_no_augmentation_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        Augmentation.parse(text)


def test_wrong_order_and_too_many_entries_are_refused() -> None:
    with pytest.raises(InputError, match="order 3"):
        Augmentation((1, 1, 1), (4, 4, 4)).apply(pattern((4, 4), 3))
    with pytest.raises(InputError, match="smaller block"):
        Augmentation((4000, 4000), (4000, 4000)).apply(pattern((4, 4), 3))
    for nnz in (0, 3):
        with pytest.raises(InputError, match="shorter fibres"):
            Augmentation((1, 1, 1), (4, 4, 4), fibre=10**9).apply(pattern((4, 4), nnz))
    with pytest.raises(InputError, match="order 2"):
        Augmentation((1, 1, 1), (4, 4, 4), fibre=2).apply(pattern((4, 4, 4), 3))
