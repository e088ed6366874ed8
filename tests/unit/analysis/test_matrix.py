"""The numbers of a matrix: by hand, at the ends, and what becomes of them when a matrix is turned or shuffled."""

import numpy as np
import pytest

from tensorwise.analysis.counts import EXACT
from tensorwise.analysis.matrix import MatrixPattern
from tensorwise.errors import InputError
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.format import Format, bcsr, dia, sell
from tensorwise.tensor.pack import MOST_FILL, pack
from tests.unit.analysis.cases import ODD, SMALL, drawn

parse = Format.parse


def named(entries: Entries) -> dict[str, float]:
    """Return the numbers by name."""
    pattern = MatrixPattern()
    return dict(
        zip((field.name for field in pattern.fields), pattern.features(entries).tolist(), strict=True)
    )


def group(numbers: dict[str, float], *names: str) -> dict[str, float]:
    """Return the numbers of some groups, or with some beginnings."""
    return {name: number for name, number in numbers.items() if name.startswith(names)}


def test_a_small_matrix_by_hand() -> None:
    expected = {
        "size.rows": np.log2(5),
        "size.columns": np.log2(7),
        "size.entries": 3,
        "size.density": np.log2(7 / 24),
        "rows.mean": np.log2(1 + 7 / 4),
        "rows.longest": 2,
        "rows.p50": 1,
        "rows.p90": 2,
        "rows.empty": 1 / 4,
        "rows.longest_1pct": 3 / 7,
        "columns.p50": 1,
        "columns.empty": 2 / 6,
        "outliers.rows8": 0,
        "outliers.columns": 0,
        "slices.own4": np.log2(12 / 7),
        "slices.window8": np.log2(24 / 7),
        "slices.sorted64": np.log2(192 / 7),
        "blocks.2x1": np.log2(12 / 7),
        "blocks.1x2": np.log2(10 / 7),
        "blocks.2x2": np.log2(16 / 7),
        "blocks.4x4": np.log2(32 / 7),
        "blocks.8x8": np.log2(64 / 7),
        "blocks.1x16": np.log2(48 / 7),
        "strips.64": np.log2(3 / 7),
        "strips.8192": np.log2(3 / 7),
        "gathers.columns64": np.log2(4 / 7),
        "gathers.lines64": np.log2(1 / 7),
        "diagonals.pieces16": np.log2(6 * 16 / 7),
        "diagonals.below": 2,
        "diagonals.above": np.log2(5),
        "diagonals.distance": np.log2(1 + 12 / 7),
        "diagonals.within1": 2 / 7,
        "diagonals.within16": 1,
        "neighbours.run": 2 / 7,
        "neighbours.line": 4 / 7,
        "neighbours.gap": np.log2(1 + 9 / 4),
        "bands.rows8": np.log2(3 * 4 / 7),
        "bands.columns8": np.log2(3 * 6 / 7),
        "grid.filled64": 7 / 24,
        "grid.filled8": 7 / 24,
    }
    numbers = named(SMALL)
    assert {name: numbers[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_long_rows_and_dense_columns_are_what_hybrids_set_apart() -> None:
    from tensorwise.space.hybrids import rule

    entries = drawn((3000, 3000), 30_000, kind="skewed")
    numbers = named(entries)
    for kind, name in (
        ("rows8", "outliers.rows8"),
        ("rows64", "outliers.rows64"),
        ("columns", "outliers.columns"),
    ):
        assert numbers[name] == pytest.approx(rule(kind, entries).select_remainder(entries).mean(), rel=1e-6)
    assert 0 < numbers["outliers.columns"] < 1
    assert 0 < numbers["outliers.rows8"] < 1


@pytest.mark.parametrize("name", ODD)
def test_numbers_are_finite_and_shares_are_shares(name: str) -> None:
    pattern = MatrixPattern()
    numbers = pattern.features(ODD[name])
    assert numbers.dtype == np.float32
    assert np.isfinite(numbers).all()
    for field, number in zip(pattern.fields, numbers, strict=True):
        if field.unit.startswith("share") or field.unit == "0 to 1":
            assert -1e-6 <= number <= 1 + 1e-6, field.name


def test_full_blocks_slices_and_diagonals_hold_no_padding() -> None:
    entries = entries_from(np.kron(np.eye(32), np.ones((16, 16))))
    assert set(group(named(entries), "blocks.", "slices.").values()) == {0}
    band = entries_from(np.eye(512) + np.eye(512, k=64))
    numbers = named(band)
    assert numbers["diagonals.pieces64"] == 0


@pytest.mark.parametrize("kind", ["uniform", "banded", "skewed"])
@pytest.mark.parametrize("shape", [(300, 450), (5000, 64), (7, 2000)])
def test_numbers_are_what_formats_store(shape: tuple[int, int], kind: str) -> None:
    entries = drawn(shape, 3000, kind=kind)
    numbers = named(entries)
    stored = {
        **{f"blocks.{height}x{width}": bcsr(height, width) for height in (2, 8) for width in (1, 2, 4, 16)},
        **{f"slices.own{height}": parse(f"(i,k) -> U(i1) P(k#) U(i0:{height}) S(k)") for height in (4, 32)},
        **{f"slices.window{height}": sell(height, 4096) for height in (4, 32)},
        **{f"slices.sorted{height}": sell(height) for height in (4, 32)},
        **{f"diagonals.pieces{height}": dia(height) for height in (16, 64)},
    }
    for name, format in stored.items():
        if numbers[name] < np.log2(MOST_FILL):
            positions = len(pack(entries, format).values)
            assert numbers[name] == pytest.approx(np.log2(positions / entries.nnz), abs=1e-5), name
    for width in (64, 512):
        pieces = pack(entries, parse(f"(i,k) -> C(k1) C(i) C(k0:{width})")).counts[1]
        assert numbers[f"strips.{width}"] == pytest.approx(np.log2(pieces / entries.nnz), abs=1e-5)
    for height in (8, 16):
        masks = pack(entries, parse(f"(i,k) -> U(i1) C(k) B(i0:{height})")).counts[1]
        assert numbers[f"blocks.{height}x1"] == pytest.approx(np.log2(height * masks / entries.nnz), abs=1e-5)


def test_turning_a_matrix_swaps_rows_and_columns() -> None:
    entries = drawn((300, 450), 1000, kind="skewed")
    turned = entries_from((entries.shape[::-1], entries.coordinates[::-1], None))
    before, after = named(entries), named(turned)
    for one, other in (("rows.", "columns."), ("columns.", "rows."), ("bands.rows", "bands.columns")):
        swapped = {name.replace(one, other): number for name, number in group(before, one).items()}
        assert group(after, other) == pytest.approx(swapped, rel=1e-6)
    same = (
        "grid.",
        "diagonals.within",
        "size.density",
    )
    assert group(after, *same) == pytest.approx(group(before, *same), rel=1e-5)
    assert (after["diagonals.below"], after["diagonals.above"]) == (
        before["diagonals.above"],
        before["diagonals.below"],
    )


def test_shuffling_rows_keeps_what_does_not_see_their_order() -> None:
    entries = drawn((300, 450), 4000, kind="skewed")
    order = np.random.default_rng(1).permutation(300)
    shuffled = entries_from((entries.shape, (order[entries.coordinates[0]], entries.coordinates[1]), None))
    before, after = named(entries), named(shuffled)
    same = (
        "size.",
        "rows.",
        "columns.",
        "strips.",
        "slices.sorted",
        "outliers.rows",
        "blocks.1x",
        "bands.columns",
    )
    assert group(after, *same) == pytest.approx(group(before, *same), rel=1e-6)
    assert after["slices.own4"] != before["slices.own4"]


def test_sampled_panels_stand_for_all() -> None:
    entries = drawn((20_000, 20_000), 400_000, kind="banded")
    assert entries.nnz > EXACT
    pattern, numbers = MatrixPattern(), named(entries)
    rows, columns = (array.astype(int) for array in entries.coordinates)
    for height, width in ((2, 2), (4, 4), (8, 8), (16, 8)):
        blocks = len(set(zip(rows // height, columns // width, strict=True)))
        exact = np.log2(blocks * height * width / entries.nnz)
        assert numbers[f"blocks.{height}x{width}"] == pytest.approx(exact, abs=0.01)
    np.testing.assert_array_equal(pattern.features(entries), pattern.features(entries))


def test_values_do_not_enter() -> None:
    other = SMALL.with_values(np.zeros(SMALL.nnz)).astype("float16")
    np.testing.assert_array_equal(MatrixPattern().features(SMALL), MatrixPattern().features(other))


def test_tensors_are_refused() -> None:
    with pytest.raises(InputError, match="got a tensor of order 3; use tensor-pattern"):
        MatrixPattern().features(drawn((3, 3, 3), 5))
