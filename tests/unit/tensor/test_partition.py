"""Partitions: every entry is in exactly one part, by counting lines as the rule says."""

from collections import Counter

import numpy as np
import pytest

from tensorwise.errors import FormatError
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.partition import Partition


def drawn(shape: tuple[int, ...], nnz: int) -> Entries:
    rng = np.random.default_rng(nnz)
    places = [np.minimum(rng.geometric(4 / extent, nnz), extent) - 1 for extent in shape]
    return entries_from((shape, places, rng.standard_normal(nnz)))


@pytest.mark.parametrize(
    "text", ["rows>0", "rows>7", "columns>3", "columns>2/8", "rows>2/5", "columns>1/1000"]
)
@pytest.mark.parametrize(
    ("shape", "nnz"),
    [
        ((60, 50), 700),
        ((20, 3_000_000), 300),
        ((2**50, 2**50), 500),
        ((9, 30, 20), 400),
        ((5, 6), 0),
        ((0, 4), 0),
    ],
)
def test_lines_are_counted_as_the_rule_says(text: str, shape: tuple[int, ...], nnz: int) -> None:
    entries, rule = drawn(shape, nnz) if nnz else entries_from((shape, ([], []), [])), Partition.parse(text)
    line, across = (0, -1) if rule.lines == "rows" else (-1, 0)
    keys = [
        (here, there // (rule.panel or max(1, shape[across])))
        for here, there in zip(
            entries.coordinates[line].tolist(), entries.coordinates[across].tolist(), strict=True
        )
    ]
    counts = Counter(keys)
    assert rule.select_remainder(entries).tolist() == [counts[key] > rule.most for key in keys]


def test_parts_keep_order_and_place() -> None:
    entries = drawn((60, 50), 700)
    rest, apart = Partition.parse("columns>2/8").divide(entries)
    assert 0 < apart.entries.nnz < entries.nnz
    assert sorted([*rest.places, *apart.places]) == list(range(entries.nnz))
    for part in (rest, apart):
        assert (np.diff(part.places) > 0).all()
        np.testing.assert_array_equal(part.entries.values, entries.values[part.places])
        again = entries_from((entries.shape, part.entries.coordinates, part.entries.values))
        assert again.pattern_id == part.entries.pattern_id
        np.testing.assert_array_equal(again.row_pointers(), part.entries.row_pointers())


@pytest.mark.parametrize("text", ["rows>64", "columns>4/8", "columns>0", "rows>3/1"])
def test_rules_print_as_they_are_written(text: str) -> None:
    assert str(Partition.parse(f"  {text.replace('>', ' > ')} ")) == text


@pytest.mark.parametrize(
    "text", ["", "rows", "rows>", "rows>-1", "rows<3", "rows>2/0", "lines>3", "rows>1e3", "rows>9999999999"]
)
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(FormatError, match="is no rule of a hybrid; write rows>64, columns>64 or columns>4/8"):
        Partition.parse(text)
