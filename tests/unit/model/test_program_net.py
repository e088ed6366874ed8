"""Numbers beside a program as networks read them: standardised, and with their bins."""

import numpy as np
import pytest

from tensorwise.model.program_net import encode_rows, scales_of, standardised

DEVICES = np.stack(
    [np.arange(17.0), np.repeat([3.0, 5.0, 5.0, 9.0, 9.0], [4, 4, 4, 4, 1]), np.full(17, 2.0)], 1
)


def places(devices: np.ndarray, bins: int) -> np.ndarray:
    """(n, bins, fields): where in each bin of DEVICES numbers lie."""
    scales = scales_of(DEVICES, DEVICES, bins, bins)
    found = encode_rows(np.asarray(devices, float), scales, "device")
    plain = standardised(np.asarray(devices, float), scales, "device")
    assert np.array_equal(found[:, :3], plain)
    assert np.array_equal(encode_rows(np.asarray(devices, float)[None], scales, "leaf")[0], found)
    return found[:, 3:].reshape(len(devices), bins, 3)


def test_a_number_fills_the_bins_below_it() -> None:
    found = places(np.array([[-5.0, 0, 0], [0, 0, 0], [6, 0, 0], [16, 0, 0], [99, 0, 0]]), 4)[:, :, 0]
    assert found.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [1, 0.5, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]


def test_bins_hold_equally_many_and_empty_ones_tell_nothing() -> None:
    found = places(np.array([[0.0, 3, 1], [0, 4, 2], [0, 7, 3], [0, 9, 2]]), 4)
    # A quarter of all are 3, half are 5: from 3 to 5 is one bin, from 5 to 5 none, and the last quarter is all 9.
    assert found[:, :, 1].tolist() == [[0, 0, 0, 0], [0.5, 0, 0, 0], [1, 0, 0.5, 0], [1, 0, 1, 0]]
    assert not found[:, :, 2].any()


@pytest.mark.parametrize("devices", [DEVICES, DEVICES[:0]])
def test_there_may_be_no_bins(devices: np.ndarray) -> None:
    assert places(devices, 0).shape == (len(devices), 0, 3)
