"""The numbers of tensors, against sets of coordinates."""

import numpy as np
import pytest

from tensorwise.analysis.tensor import PAIR_BLOCK_SIZES, TensorPattern
from tensorwise.errors import InputError
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tests.unit.analysis.cases import drawn


def named(entries: Entries) -> dict[str, float]:
    pattern = TensorPattern()
    return dict(
        zip((field.name for field in pattern.fields), pattern.features(entries).tolist(), strict=True)
    )


@pytest.mark.parametrize("shape", [(20, 30, 40), (9, 8, 100, 7), (5, 4, 3, 6, 50)])
@pytest.mark.parametrize("kind", ["uniform", "skewed"])
def test_numbers_are_those_of_the_coordinates(shape: tuple[int, ...], kind: str) -> None:
    entries = drawn(shape, 2000, kind=kind)
    numbers, nnz = named(entries), entries.nnz
    coordinates = np.stack(entries.coordinates, axis=1).astype(int)
    expected: dict[str, float] = {"size.order": len(shape), "size.entries": np.log2(1 + nnz)}
    for depth in range(1, len(shape)):
        expected[f"tree.depth{depth}"] = np.log2(len(np.unique(coordinates[:, :depth], axis=0)) / nnz)
    for mode, size in enumerate(shape):
        here = coordinates[:, mode]
        lengths = np.bincount(here, minlength=size)
        expected[f"mode{mode}.present"] = 1
        expected[f"mode{mode}.size"] = np.log2(1 + size)
        expected[f"mode{mode}.mean"] = np.log2(1 + nnz / size)
        expected[f"mode{mode}.longest"] = np.log2(1 + lengths.max())
        expected[f"mode{mode}.empty"] = (lengths == 0).mean()
        expected[f"mode{mode}.repeat"] = (np.diff(here) == 0).sum() / nnz
        windows = {(entry // 64, coordinate) for entry, coordinate in enumerate(here)}
        expected[f"mode{mode}.gathers64"] = np.log2(len(windows) / nnz)
        expected[f"mode{mode}.gathers16384"] = np.log2(len(np.unique(here)) / nnz)
        for other in range(mode + 1, len(shape)):
            for block in PAIR_BLOCK_SIZES:
                met = len(np.unique(coordinates[:, [mode, other]] // block, axis=0))
                expected[f"modes{mode}{other}.blocks{block}"] = np.log2(met / nnz)
    assert {name: numbers[name] for name in expected} == pytest.approx(expected, rel=1e-5, abs=1e-6)
    absent = {name: number for name, number in numbers.items() if name.startswith(f"mode{len(shape)}")}
    assert set(absent.values()) <= {0}


def test_turning_a_tensor_turns_its_slices() -> None:
    entries = drawn((20, 30, 40), 2000, kind="skewed")
    turned = entries_from(((40, 20, 30), [entries.coordinates[mode] for mode in (2, 0, 1)], None))
    before, after = named(entries), named(turned)
    for mode, old in enumerate((2, 0, 1)):
        for name in ("size", "mean", "variation", "longest", "p90", "empty", "gini"):
            assert after[f"mode{mode}.{name}"] == pytest.approx(before[f"mode{old}.{name}"], rel=1e-6)
    for new, old in (("01", "02"), ("02", "12"), ("12", "01")):
        assert after[f"modes{new}.blocks8"] == before[f"modes{old}.blocks8"]


@pytest.mark.parametrize(
    "entries",
    [
        entries_from(((5, 6, 7), ([], [], []), None)),
        entries_from(((0, 0, 0), ([], [], []), None)),
        entries_from(((1, 1, 1), ([0], [0], [0]), None)),
        entries_from(((2**31 - 1,) * 5, ([0, 2**31 - 2],) * 5, None)),
        entries_from(((2**62,) * 3, ([0, 2**62 - 1],) * 3, None)),
        drawn((2**40, 2**50, 9), 3000),
    ],
    ids=repr,
)
def test_numbers_are_finite_at_the_ends(entries: Entries) -> None:
    assert np.isfinite(TensorPattern().features(entries)).all()


@pytest.mark.parametrize(("order", "advice"), [(2, "; use matrix-pattern"), (6, "")])
def test_other_orders_are_refused(order: int, advice: str) -> None:
    with pytest.raises(InputError, match=f"got order {order}{advice}$"):
        TensorPattern().features(drawn((3,) * order, 5))
