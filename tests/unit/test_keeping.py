"""Tests of how folders keep arrays; what is refused, the tests of models and graphs show."""

import os
from pathlib import Path

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.ids import file_id
from tensorwise.keeping import Keeping, round_to_float16

THING = Keeping("thing")


def kept(folder: Path, array: np.ndarray) -> np.ndarray:
    """What comes back of an array."""
    THING.save(folder, {"kind": "one", "version": 1}, {"array": array})
    return THING.load(folder, "one", 1, lambda _, arrays: arrays["array"])


@pytest.mark.parametrize(
    "array",
    [
        np.random.default_rng(0).normal(size=1000).astype(np.float32),
        round_to_float16(np.random.default_rng(0).normal(size=1000).astype(np.float32)),
        np.array([1e-30, 70_000, 0.5], np.float32),
        np.array([1.0, 2.0], np.float64),
        np.arange(5, dtype=np.int32),
        np.empty((0, 3), np.float32),
    ],
    ids=["any", "halved", "large", "double", "whole", "empty"],
)
def test_what_was_kept_comes_back_as_it_was(tmp_path: Path, array: np.ndarray) -> None:
    back = kept(tmp_path, array)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)


def test_halved_weights_are_near_and_take_half_the_space(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
    np.testing.assert_allclose(round_to_float16(weights), weights, rtol=2**-11, atol=2**-25)
    sizes = []
    for array in (weights, round_to_float16(weights)):
        kept(tmp_path, array)
        sizes.append((tmp_path / "thing.safetensors").stat().st_size)
    assert sizes[1] < 0.51 * sizes[0]


def test_what_no_half_holds_stays() -> None:
    large = np.array([1 / 3, 1e5], np.float32)
    np.testing.assert_array_equal(round_to_float16(large), large)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("which", [0, 1], ids=["description", "arrays"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, which: int) -> None:
    kept(tmp_path, np.zeros(3))
    path = tmp_path / THING.files[which]
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match="it is a pipe; expected a regular file"):
        THING.load(tmp_path, "one", 1, lambda _, arrays: arrays)
    with pytest.raises(InputError, match="it is a pipe; expected a regular file"):
        file_id(path)
