"""What two checkouts are compared by: one checkout with itself, and the judgement."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.releases import LIMIT, Checkout, measure, ratio_of, summarize
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("op", ["spmv", "spmm"])
def test_a_checkout_answers(op: str, tmp_path: Path) -> None:
    write(tmp_path / "a.mtx", entries_from(np.eye(5, 7)))
    (tmp_path / "cache").mkdir()
    one = Checkout(ROOT, 1, str(tmp_path / "cache"))
    one.start()
    expected = np.random.default_rng(0).random((7,) if op == "spmv" else (7, 64), np.float32)[:5].sum()
    assert one.ask("load", op, str(tmp_path / "a.mtx")) == pytest.approx(expected, rel=1e-5)
    other = Checkout(ROOT, 1, str(tmp_path / "cache"))
    for found in measure(one, other, op, tmp_path / "a.mtx", 4).values():
        assert 0 < found["interval"][0] <= found["ratio"] <= found["interval"][1]
    one.close()
    other.close()


def test_pairs_of_processes_are_drawn_and_not_rounds() -> None:
    """Three processes of seven are slow as long as they live: 21 rounds are no 21 measurements."""
    older, slow = np.ones((7, 3)), np.array([1, 1, 1, 1, 2, 2, 2.0])
    found = ratio_of(older, np.repeat(slow[:, None], 3, axis=1), np.random.default_rng(0))
    assert (found["ratio"], found["interval"]) == (1, [1, 2])


def test_what_is_slower_is_named() -> None:
    def run(ratio: float, low: float) -> dict[str, dict[str, object]]:
        return {"call": {"ratio": ratio, "interval": [low, ratio + 0.01]}}

    assert summarize({"spmv a": run(1.0, 0.99), "spmv b": run(1.05, 1.0)})[1]
    lines, holds = summarize({"spmv a": run(0.9, 0.9), "spmv b": run(LIMIT + 0.05, LIMIT + 0.01)})
    assert not holds
    assert "slower beyond the interval: spmv b" in lines[0]
    assert not summarize({"spmv a": run(LIMIT + 0.05, 1.0)})[1]
