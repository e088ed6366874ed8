"""Footprints: what strips touch of a pattern, against counting it slowly."""

from collections import Counter, OrderedDict

import numpy as np
import pytest

from tensorwise.analysis.footprint import FIELDS, Footprints
from tensorwise.device.spade import Machine
from tensorwise.errors import InputError
from tensorwise.program.workload import Workload, workload
from tensorwise.space.config import Config
from tensorwise.space.strips import SPADE, Processors, Strips
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries

PLACES = {field.name: place for place, field in enumerate(FIELDS)}
THREE = Processors(3, ((2**10, 1), (2**13, 1), (2**16, 3)))
ORDER = ("k2", "k3", "i2", "j2", "i1", "j1", "k1")
COLUMNS_FIRST = ("k2", "k3", "j2", "i2", "i1", "j1", "k1")


def scattered(rows: int = 60, columns: int = 90, count: int = 500, seed: int = 0) -> Entries:
    places = np.random.default_rng(seed).integers(0, (rows, columns), (count, 2)).T
    return entries_from(((rows, columns), places, np.ones(count, np.float32)))


def distinct(*arrays: np.ndarray) -> int:
    return len(set(zip(*(array.tolist() for array in arrays), strict=True)))


def fetched(rows: list[int], held: int) -> int:
    """How often an LRU cache fetches a row."""
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
    return misses


def counted(entries: Entries, strips: Strips, dense: int, processors: Processors = THREE) -> dict[str, float]:
    numbers = Footprints(entries, processors).of(strips, dense)
    return dict(zip(PLACES, numbers.tolist(), strict=True))


def slowly(entries: Entries, i: int, j: int, lanes: int, columns_first: bool) -> tuple[int, int, int]:
    """Entries, rows of the output and tiles of the processor that has most, part by part where all wait."""
    sums: Counter[tuple[str, int, int]] = Counter()
    seen: set[tuple[object, ...]] = set()
    for row, column in zip(*(c.tolist() for c in entries.coordinates), strict=True):
        part = column // j if columns_first else 0
        lane = row // i % lanes
        sums["work", part, lane] += 1
        for what, key in (("begun", (row, column // j)), ("tiles", ("tile", row // i, column // j))):
            if key not in seen:
                seen.add(key)
                sums[what, part, lane] += 1
    parts = {part for _, part, _ in sums}
    work, begun, tiles = (
        sum(max(sums[what, part, lane] for lane in range(lanes)) for part in parts)
        for what in ("work", "begun", "tiles")
    )
    return work, begun, tiles


@pytest.mark.parametrize("columns_first", [False, True])
def test_counts_are_those_of_the_processor_that_has_most(columns_first: bool) -> None:
    entries, (i, j, k) = scattered(), (8, 16, 32)
    found = counted(entries, Strips((i, j, k), COLUMNS_FIRST if columns_first else ORDER), 256)
    work, begun, tiles = slowly(entries, i, j, 3, columns_first)
    known = {
        "entries": entries.nnz * 8, "work": work * 256, "begun": begun * 256, "tiles": tiles * 8, "rows": 60 * 256,
        "columns": 90 * 256, "waits": 6 * 8 * columns_first,
    }  # fmt: skip
    for name, value in known.items():
        assert found[name] == pytest.approx(value), name


def test_a_processor_may_have_all_entries() -> None:
    """All entries in the first panel of two."""
    entries = entries_from(((8, 4), ([0, 1, 2, 3], [0, 1, 2, 3]), np.ones(4, np.float32)))
    assert counted(entries, Strips((4, 4, 16), ORDER), 16)["work"] == 4 * 16
    spread = counted(entries, Strips((2, 4, 16), ORDER), 16)
    assert (spread["work"], spread["begun"], spread["tiles"]) == (2 * 16, 2 * 16, 1)


def test_fetched_values_are_about_those_of_lru_caches() -> None:
    """One processor, tile by tile; of each row of a tile the output's comes before the gathered ones."""
    entries, strips = scattered(400, 900, 6000), Strips((16, 300, 16), ORDER)
    alone = Processors(1, ((64 * 40, 1), (64 * 120, 1), (64 * 400, 1)))
    found = counted(entries, strips, 16, alone)
    row, column = entries.coordinates
    order = np.lexsort((row, column // 300, row // 16))
    row, column = row[order], column[order]
    begins = np.diff(row * 3 + column // 300, prepend=-1) != 0
    both = [
        one for r, c, new in zip(row, column, begins, strict=True) for one in ([-r - 1] if new else []) + [c]
    ]
    for level, held in enumerate((40, 120, 400), 1):
        assert found[f"gathered.alone.{level}"] == pytest.approx(16 * fetched(column.tolist(), held), rel=0.1)
        whole = found[f"gathered.{level}"] + found[f"output.{level}"]
        assert whole == pytest.approx(16 * fetched(both, held), rel=0.1)


def test_larger_caches_fetch_no_more_and_every_row_once() -> None:
    everything = Processors(4, ((2**9, 1), (2**12, 2), (2**22, 4)))
    found = counted(scattered(), Strips((8, 16, 32), COLUMNS_FIRST), 32, everything)
    for who, rows in (("gathered.alone", 1), ("gathered", 1), ("output", 0)):
        levels = [found[f"{who}.{level}"] for level in (1, 2, 3)]
        assert levels == sorted(levels, reverse=True)
        assert levels[-1] == 32 * distinct(scattered().coordinates[rows])


def test_moved_rows_and_columns_are_counted_where_they_lie() -> None:
    """A diagonal that was shuffled: reordered, its panels need few columns again."""
    shuffled = np.random.default_rng(0).permutation(256)
    entries = entries_from(((256, 256), (np.arange(256), shuffled), np.ones(256, np.float32)))
    own, moved = (
        counted(entries, Strips((16, 16, 32), ORDER, way), 32) for way in (("own", "own"), ("rcm", "rcm"))
    )
    assert moved["tiles"] < own["tiles"]


@pytest.mark.parametrize("shape", [(0, 5), (3, 3)])
def test_patterns_without_entries_have_zeros(shape: tuple[int, int]) -> None:
    entries = entries_from((shape, ([], []), np.zeros(0, np.float32)))
    assert not Footprints(entries, THREE).of(Strips((1, 1, 1), ORDER), 16).any()


def test_without_dense_columns_there_is_nothing_to_do() -> None:
    assert not Footprints(scattered(), THREE).of(Strips((8, 16, 0), ORDER), 0).any()


def test_every_config_of_the_accelerator_has_finite_numbers() -> None:
    work: Workload = workload("sddmm", scattered(), n=48)
    space = Machine.load("spade-small").space
    footprints = Footprints(work.entries, space.mapper(work).processors)
    configs: list[Config] = list(space.enumerate(work))
    numbers = np.array([footprints.of(SPADE.strips(work, config), 48) for config in configs])
    assert numbers.shape == (len(configs), len(FIELDS))
    assert np.isfinite(numbers).all()
    assert (numbers >= 0).all()


@pytest.mark.parametrize(
    ("lanes", "caches"), [(0, ((1, 1),) * 3), (1, ((1, 1),) * 2), (1, ((1, 1), (1, 1), (0, 1)))]
)
def test_processors_that_cannot_be_are_refused(lanes: int, caches: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InputError, match="3 levels of caches"):
        Processors(lanes, caches)
