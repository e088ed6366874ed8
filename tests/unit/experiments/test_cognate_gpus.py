"""Recorded spaces are read, and what is known of one GPU helps on another."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from recorded.moved import Moved, lengths
from recorded.page import judge, page, pairs
from recorded.spaces import recorded
from recorded.ways import alone, at_random, models_of, transferred, zero_shot

from tensorwise.errors import InputError

EXPECTED = {"within": 0.03}


def write(path: Path, seconds: dict[tuple[int, int], float]) -> None:
    results = [
        {
            "configuration": {"block_size_x": x, "tile_size_y": y, "constant": 15},
            "times": {"runtimes": [1e3 * s, 1e3 * s]},
            "invalidity": "correct" if np.isfinite(s) else "runtime",
        }
        for (x, y), s in seconds.items()
    ]
    with gzip.open(path, "wt") as file:
        json.dump({"results": results}, file)


def test_spaces_are_read_as_far_as_all_gpus_have_their_configs(tmp_path: Path) -> None:
    one = {(x, y): x / y for x in (16, 32, 64) for y in (1, 2)}
    write(tmp_path / "kernel_A.json.gz", one)
    write(
        tmp_path / "kernel_B.json.gz",
        {**{key: 2 * s for key, s in one.items() if key != (16, 1)}, (32, 1): np.inf},
    )
    space = recorded(tmp_path, "kernel")
    assert space.params == ("block_size_x", "tile_size_y")
    assert space.values.tolist() == [[16, 2], [32, 1], [32, 2], [64, 1], [64, 2]]
    assert space.seconds["A"].tolist() == [8, 32, 16, 64, 32]
    assert space.seconds["B"].tolist() == [16, np.inf, 32, 128, 64]
    numbers = space.numbers()
    assert len(numbers) == 5
    assert np.allclose(numbers.mean(axis=0), 0)
    assert np.allclose(numbers.std(axis=0), 1)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="where the data is from"):
        recorded(tmp_path, "kernel")
    (tmp_path / "kernel_A.json.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match="kernel_A"):
        recorded(tmp_path, "kernel")
    with gzip.open(tmp_path / "kernel_A.json.gz", "wt") as file:
        json.dump({"results": [{}]}, file)
    with pytest.raises(InputError, match="kernel_A"):
        recorded(tmp_path, "kernel")


def landscape(count: int = 600) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Configs whose times on the target are those of the source, and something besides that few of them show."""
    rng = np.random.default_rng(1)
    numbers = rng.standard_normal((count, 4))
    source = np.square(numbers[:, 0] - 1) + np.abs(numbers[:, 1])
    target = 0.8 * source + np.square(numbers[:, 2] + 0.5)
    return numbers, np.exp(source), np.exp(target)


def test_what_was_measured_is_predicted_and_what_is_far_is_not_sure() -> None:
    numbers, source, target = landscape()
    model, known = Moved(numbers, np.log(source)[None]), np.arange(40)
    mean, deviation = model.predict(known, np.log(target[known]))
    assert np.abs(mean[known] - np.log(target[known])).max() < 0.2
    assert deviation[known].max() < deviation[40:].mean()
    off = np.abs(mean[40:] - np.log(target[40:]))
    assert off.mean() < np.abs(np.log(target[40:]) - np.log(target[40:]).mean()).mean() / 2


def test_a_source_helps() -> None:
    pytest.importorskip("sklearn")
    numbers, source, target = landscape()
    best = target.min()

    def mean(way: object, *given: object) -> float:
        return float(np.mean([way(*given, 30, np.random.default_rng(seed)) for seed in range(3)])) / best  # type: ignore[operator]

    moved = mean(transferred, models_of(numbers, source), target)
    assert moved < 1.25
    assert moved < mean(at_random, target)
    assert moved < zero_shot(source, target) / best
    assert mean(alone, numbers, target) < mean(at_random, target) * 1.2
    other = np.exp(np.square(numbers[:, 2] + 0.5))  # knows of what the first source does not show
    assert mean(transferred, models_of(numbers, source, other), target) < moved


def test_failures_are_slow_not_fast() -> None:
    pytest.importorskip("sklearn")
    numbers, source, target = landscape(200)
    target[np.argsort(source)[:20]] = np.inf  # the source's fastest fail
    found = transferred(models_of(numbers, source), target, 30, np.random.default_rng(0))
    assert np.isfinite(found)
    scale = lengths(numbers, np.log(source), np.random.default_rng(0))
    assert scale[3] > scale[0]  # the last field does not matter


def test_the_page_tells_what_holds() -> None:
    assert judge({}, EXPECTED) == ([], None)
    runs = {
        "k: random, B": [1.5, 1.7],
        "k: alone, B": [1.2],
        "k: zero-shot, A to B": [2.0],
        "k: transferred, A to B": [1.01, 1.03],
    }
    (told,) = pairs(runs)
    assert told[:3] == ("k", "A", "B")
    lines, holds = judge(runs, EXPECTED)
    assert holds
    assert "one GPU known: 1.020 times the optimum" in lines[0]
    assert "All hold" in page(runs, EXPECTED)
    assert "<svg" in page(runs, EXPECTED)
    assert judge({**runs, "k: transferred, A to B": [1.3]}, EXPECTED)[1] is False
    more = {**runs, "k: transferred, others to B": [1.0, 1.02]}
    lines, holds = judge(more, EXPECTED)
    assert holds
    assert "all other GPUs known: 1.010 times" in lines[0]
    assert len(pairs(more)) == 1
    assert "All other GPUs known" in page(more, EXPECTED)
    assert judge({**more, "k: transferred, others to B": [1.2]}, EXPECTED)[1] is False
