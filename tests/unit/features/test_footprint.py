"""Footprints: what strips touch of a pattern, against counting it slowly."""

from collections import OrderedDict

import numpy as np
import pytest

from tensorwise.device.spade import Machine
from tensorwise.features.footprint import CACHES, FIELDS, Footprints
from tensorwise.program.workload import Workload, workload
from tensorwise.space.config import Config
from tensorwise.space.strips import SPADE, Strips
from tensorwise.tensor.entries import Entries, entries_from

PLACES = {field.name: place for place, field in enumerate(FIELDS)}
ORDER = ("k2", "k3", "i2", "j2", "i1", "j1", "k1")
COLUMNS_FIRST = ("k2", "k3", "j2", "i2", "i1", "j1", "k1")


def scattered(rows: int = 60, columns: int = 90, count: int = 500, seed: int = 0) -> Entries:
    places = np.random.default_rng(seed).integers(0, (rows, columns), (count, 2)).T
    return entries_from(((rows, columns), places, np.ones(count, np.float32)))


def distinct(*arrays: np.ndarray) -> int:
    return len(set(zip(*(array.tolist() for array in arrays), strict=True)))


def missed(rows: list[int], held: int) -> float:
    """Share of accesses that an LRU cache misses."""
    cache: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for row in rows:
        if row in cache:
            cache.move_to_end(row)
            continue
        misses += 1
        cache[row] = None
        if len(cache) > held:
            cache.popitem(last=False)
    return misses / len(rows)


def test_counts_are_those_of_tiles_rows_and_columns() -> None:
    entries, (i, j, k) = scattered(), (8, 16, 32)
    numbers = Footprints(entries).of(Strips((i, j, k), ORDER), 256)
    row, column = entries.coordinates
    known = {
        "tile.entries": entries.nnz / distinct(row // i, column // j),
        "row.entries": entries.nnz / distinct(row, column // j),
        "column.entries": entries.nnz / distinct(row // i, column),
        "panels.rows": 8,
        "panels.columns": 6,
        "tile.share": distinct(row // i, column // j) / 48,
        "passes": 8,
        "operand.columns": 90 * 32,
    }
    for name, value in known.items():
        assert 2 ** numbers[PLACES[name]] == pytest.approx(value, rel=1e-5), name
    assert numbers[PLACES["row.again"]] == pytest.approx(1 - 1 / known["row.entries"], abs=1e-6)


def test_processors_that_take_panels_in_turn() -> None:
    """All entries in the first panel of two: one processor has them all."""
    entries = entries_from(((8, 4), ([0, 1, 2, 3], [0, 1, 2, 3]), np.ones(4, np.float32)))
    numbers = Footprints(entries).of(Strips((4, 4, 16), ORDER), 16)
    assert [2 ** numbers[PLACES[f"lanes.{count}"]] for count in (2, 8)] == [2, 8]
    assert 2 ** numbers[PLACES["panels.heaviest"]] == 2


def test_missed_rows_are_about_those_of_an_lru_cache() -> None:
    entries, strips = scattered(400, 900, 6000), Strips((16, 900, 16), ORDER)
    numbers = Footprints(entries).of(strips, 16)
    gathered = entries.coordinates[1].tolist()
    for size in CACHES[:3]:
        share = 2 ** float(numbers[PLACES[f"missed.own.{size}"]])
        assert share == pytest.approx(missed(gathered, size // 64), rel=0.1)


def test_larger_caches_miss_no_more_and_every_row_is_met_once() -> None:
    numbers = Footprints(scattered()).of(Strips((8, 16, 32), COLUMNS_FIRST), 32)
    for who in ("own", "shared"):
        shares = [float(numbers[PLACES[f"missed.{who}.{size}"]]) for size in CACHES]
        assert shares == sorted(shares, reverse=True)
        assert 2 ** shares[-1] == pytest.approx(distinct(scattered().coordinates[1]) / scattered().nnz)


def test_moved_rows_and_columns_are_counted_where_they_lie() -> None:
    """A diagonal that was shuffled: reordered, its panels need few columns again."""
    shuffled = np.random.default_rng(0).permutation(256)
    entries = entries_from(((256, 256), (np.arange(256), shuffled), np.ones(256, np.float32)))
    counted = Footprints(entries)
    own, moved = (
        counted.of(Strips((16, 16, 32), ORDER, way), 32) for way in (("own", "own"), ("rcm", "rcm"))
    )
    assert moved[PLACES["tile.entries"]] > own[PLACES["tile.entries"]]


@pytest.mark.parametrize("shape", [(0, 5), (3, 3)])
def test_patterns_without_entries_have_zeros(shape: tuple[int, int]) -> None:
    entries = entries_from((shape, ([], []), np.zeros(0, np.float32)))
    assert not Footprints(entries).of(Strips((1, 1, 1), ORDER), 16).any()


def test_every_config_of_the_accelerator_has_finite_numbers() -> None:
    work: Workload = workload("sddmm", scattered(), n=48)
    counted, space = Footprints(work.entries), Machine.load("spade-small").space
    configs: list[Config] = list(space.enumerate(work))
    numbers = np.array([counted.of(SPADE.strips(work, config), 48) for config in configs])
    assert numbers.shape == (len(configs), len(FIELDS))
    assert np.isfinite(numbers).all()
