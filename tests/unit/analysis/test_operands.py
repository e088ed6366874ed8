"""Shares of zeros by sampling."""

import numpy as np
import pytest

from tensorwise.analysis.operands import SAMPLED_ELEMENTS, share_of_zeros


@pytest.mark.parametrize("share", [0.0, 0.3, 0.95, 1.0])
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_shares_are_right_within_their_error(share: float, order: str) -> None:
    rng = np.random.default_rng(0)
    array = (rng.random((400, 300)) >= share).astype(np.float32)
    array = np.repeat(array, 2, axis=1)[:, ::2] if order == "strided" else np.asarray(array, order=order)
    assert abs(share_of_zeros(array) - share) <= 4 * np.sqrt(share * (1 - share) / SAMPLED_ELEMENTS)


def test_small_arrays_are_counted() -> None:
    assert share_of_zeros(np.zeros((0, 3))) == 0
    assert share_of_zeros(np.array([0, 1, 0])) == pytest.approx(2 / 3)
    assert share_of_zeros(np.eye(4), samples=16) == 0.75
