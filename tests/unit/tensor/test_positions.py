"""Counting positions before packing: against what packing makes of the same formats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.errors import TensorwiseError
from tensorwise.program.workload import workload
from tensorwise.space.cpu import cpu_space_of
from tensorwise.tensor import positions as module
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.format import Format
from tensorwise.tensor.orders import Places
from tensorwise.tensor.pack import pack
from tensorwise.tensor.positions import Positions


def stored(entries: Entries, format: Format, positions: Positions) -> int:
    """What a format stores of the entries, by the positions of its last level that is not full."""
    levels = [place for place, level in enumerate(format.levels) if not (level.full or level.single)]
    if not levels:
        return int(np.prod(format.extents(entries.shape)))
    below = zip(format.levels[levels[-1] + 1 :], format.extents(entries.shape)[levels[-1] + 1 :], strict=True)
    wide = int(np.prod([extent for level, extent in below if level.full]))
    return positions.of(format, levels[-1] + 1) * wide


@given(st.integers(0, 2**32 - 1), st.sampled_from([(40, 30), (7, 90), (12, 9, 11)]))
@settings(max_examples=60, deadline=None)
def test_a_small_pattern_is_counted_exactly(seed: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    entries = entries_from((rng.random(shape) < rng.choice([0.02, 0.1, 0.4])).astype(np.float32))
    work = workload("spmv" if len(shape) == 2 else "ttv", entries)
    space, positions = cpu_space_of(work), Positions(entries, Places(entries))
    for _ in range(6):
        config = space.sample(work, rng)
        (format,) = space.program(work, config).parts[0].formats.values()
        try:
            held = len(pack(entries, format).values)
        except TensorwiseError:
            continue
        if entries.nnz:
            assert stored(entries, format, positions) == held, str(format)


@pytest.mark.parametrize(
    "text",
    [
        "(i,k) -> U(i1) C(k1) U(i0:4) U(k0:2)",
        "(i,k) -> U(i1) C(k) U(i0:8)",
        "(i,k) -> U(i) C(k1) U(k0:8)",
        "(i,k) -> U(k1) C(i) U(k0:4)",
        "(i,k) -> U(i1) P(k#) U(i0:8) S(k)",
        "(i:length4096,k) -> U(i1) P(k#) U(i0:8) S(k)",
        "(i,k) -> P(k#) U(i) S(k)",
    ],
)
def test_a_large_one_is_sampled(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(20000), rng.geometric(0.1, 20000))
    columns = (rows + rng.normal(0, 20, len(rows)).astype(int)).clip(0, 19999) // 2 * 2 + rng.integers(
        0, 2, len(rows)
    )
    entries = entries_from(((20000, 20000), (rows, columns), None))
    format = Format.parse(text)
    held = len(pack(entries, format).values)
    for most, sample in ((2**40, 2**40), (2**40, 2**12), (2**15, 2**12)):
        monkeypatch.setattr(module, "SAMPLED_ENTRIES", most)
        monkeypatch.setattr(module, "SAMPLE", sample)
        found = stored(entries, format, Positions(entries, Places(entries)))
        exact = sample > entries.nnz
        assert found == held if exact else 0.85 * held < found < 1.18 * held, (most, sample)


def test_what_holds_each_entry_once_holds_all_of_them() -> None:
    entries = entries_from(np.eye(5, dtype=np.float32))
    assert Positions(entries, Places(entries)).of(Format.parse("(i,k) -> U(i) C(k)"), 2) == 5
    empty = entries_from(np.zeros((3, 3), np.float32))
    assert Positions(empty, Places(empty)).of(Format.parse("(i,k) -> U(i) C(k)"), 2) == 0
    assert Positions(empty, Places(empty)).of(Format.parse("(i,k) -> P(k#) U(i) S(k)"), 1) == 0
