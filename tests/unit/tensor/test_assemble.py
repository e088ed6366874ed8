"""Assembling a tensor entry by entry gives the arrays that packing makes of the same entries."""

import numpy as np
import pytest

from tensorwise.errors import FormatError
from tensorwise.tensor.assemble import Assembly
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.fibertree import Tensor
from tensorwise.tensor.format import Format
from tensorwise.tensor.levels import LEVELS
from tensorwise.tensor.levels.cursor import FiberCursor
from tensorwise.tensor.pack import pack

MATRICES = [
    f"({modes}) -> {above}({first}) {below}({second})"
    for modes in ("i,k",)
    for first, second in ("ik", "ki")
    for above in ("U", "C", "C16", "B")
    for below in ("U", "C", "C16", "B")
]
LISTS = [
    "(i,k) -> N(i) S(k)",
    "(i,k) -> N(k) S16(i)",
    "(i,k,l) -> N(l) S(k) S(i)",
    "(i,k,l) -> N(k) S(i) S(l)",
]
CUBES = [
    "(i,k,l) -> C(i) C(k) C(l)", "(i,k,l) -> U(i) C(l) B(k)", "(i,k,l) -> C(k) U(i) C16(l)", "(i,k,l) -> B(l) B(i) U(k)",
    "(i,k,l) -> U(k) U(l) C(i)",
]  # fmt: skip
TEXTS = [*MATRICES, *LISTS, *CUBES]


def random_entries(order: int, seed: int, density: float = 0.2) -> Entries:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(3, 9, size=order).tolist())
    full = np.where(rng.random(shape) < density, rng.standard_normal(shape), 0.0)
    full[rng.integers(shape[0])] = 0  # an empty slice
    return entries_from(full)


def assemble(entries: Entries, format: Format) -> Tensor:
    """Append the entries in the order in which ``pack`` places them."""
    places = [format.modes.index(level.axis.mode) for level in format.levels]
    kept = next((d for d, level in enumerate(format.levels) if level.single), len(places))
    keys = [*places[:kept], *range(len(places))]
    order = np.lexsort([entries.coordinates[place] for place in reversed(keys)])
    assembly = Assembly(format, entries.shape, entries.dtype)
    for number in order.tolist():
        assembly.append([int(entries.coordinates[p][number]) for p in places], entries.values[number])
    return assembly.finish()


def assert_same(actual: Tensor, expected: Tensor) -> None:
    assert actual.counts == expected.counts
    np.testing.assert_array_equal(actual.values, expected.values)
    assert actual.values.dtype == expected.values.dtype
    for level, mine, packed in zip(expected.format.levels, actual.arrays, expected.arrays):
        assert tuple(mine) == tuple(packed)
        for name, array in packed.items():
            np.testing.assert_array_equal(mine[name], array, err_msg=f"{level} {name}")
            assert mine[name].dtype == array.dtype, (level, name)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("density", [0.0, 0.2, 1.0])
def test_arrays_are_those_of_packing(text: str, density: float) -> None:
    format = Format.parse(text)
    for seed in range(3):
        entries = random_entries(format.order, seed, density)
        assert_same(assemble(entries, format), pack(entries, format))


def test_levels_say_whether_they_append_or_insert() -> None:
    own = {letter: LEVELS[letter] for letter in ("U", "C", "C16", "B", "N", "P", "S", "S16")}
    assert [letter for letter, kind in own.items() if kind.inserts] == ["U"]
    assert [letter for letter, kind in own.items() if kind.appends] == ["C", "C16", "B", "N", "S", "S16"]
    assert all(kind.full for kind in own.values() if kind.inserts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(i,k) -> P(k#) U(i) S(k)", "a level P neither appends nor inserts"),
        ("(i,k) -> U(i1) C(k) U(i0:2)", "axes are whole modes, got i1"),
        ("(i:degree,k) -> U(i) C(k)", "the order of i depends on all entries"),
    ],
)
def test_formats_that_cannot_be_assembled_are_refused(text: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        Assembly(Format.parse(text), (4, 4), np.dtype(np.float64))


@pytest.mark.parametrize(
    ("text", "entries", "said"),
    [
        ("(i,k) -> U(i) C(k)", [(0, 1), (0, 0)], "comes after 1 below 0; append entries in ascending order"),
        ("(i,k) -> C(i) U(k)", [(1, 0), (0, 0)], "comes after 1 below 0"),
        ("(i,k) -> C(i) C(k)", [(0, 1), (0, 1)], "is appended twice"),
        ("(i,k) -> U(i) U(k)", [(0, 1), (1, 0), (0, 1)], "is appended twice"),
        ("(i,k) -> U(i) C(k)", [(0, 4)], r"lies outside 0\.\.3"),
    ],
)
def test_entries_out_of_order_are_refused(text: str, entries: list[tuple[int, int]], said: str) -> None:
    assembly = Assembly(Format.parse(text), (4, 4), np.dtype(np.float64))
    *before, last = entries
    for entry in before:
        assembly.append(entry, 1.0)
    with pytest.raises(FormatError, match=said):
        assembly.append(last, 1.0)


def test_full_levels_take_entries_in_any_order() -> None:
    assembly = Assembly(Format.parse("(i,k) -> U(i) U(k)"), (2, 2), np.dtype(np.float64))
    assembly.append((1, 0), 1.0)
    assembly.append((0, 1), 2.0)
    assert assembly.finish().values.tolist() == [0.0, 2.0, 1.0, 0.0]


def test_formats_that_explode_are_refused() -> None:
    assembly = Assembly(Format.parse("(i,k) -> U(i) U(k)"), (100_000, 100_000), np.dtype(np.float64))
    assembly.append((5, 7), 1.0)
    with pytest.raises(FormatError, match="positions for 1 entries"):
        assembly.finish()


@pytest.mark.parametrize("letter", ["U", "C", "C16", "B"])
def test_fibers_are_walked(letter: str) -> None:
    entries = random_entries(2, 4, 0.4)
    tensor = pack(entries, Format.parse(f"(i,k) -> U(i) {letter}(k)"))
    level, arrays, extent = tensor.format.levels[1], tensor.arrays[1], entries.shape[1]
    full = np.zeros(entries.shape)
    full[entries.coordinates] = entries.values
    for row in range(entries.shape[0]):
        cursor = FiberCursor(level, arrays, [row], extent)
        walked = []
        while not cursor.ended:
            (position,) = cursor.positions
            assert tensor.values[position] == full[row, cursor.coordinate]
            walked.append(cursor.coordinate)
            cursor.advance()
        stored = list(range(extent)) if level.full else np.flatnonzero(full[row]).tolist()
        assert walked == stored


def test_positions_of_one_coordinate_are_walked_together() -> None:
    entries = entries_from(((3, 4), ([0, 0, 2], [1, 3, 0]), [1.0, 2.0, 3.0]))
    tensor = pack(entries, Format.parse("(i,k) -> N(i) S(k)"))
    rows = FiberCursor(tensor.format.levels[0], tensor.arrays[0], [0], 3)
    assert (rows.coordinate, rows.positions) == (0, (0, 1))
    columns = FiberCursor(tensor.format.levels[1], tensor.arrays[1], rows.positions, 4)
    assert (columns.coordinate, columns.positions) == (1, (0,))
    rows.advance()
    assert (rows.coordinate, rows.positions) == (2, (2,))
