"""How much choosing matters on a simulated accelerator."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from sweeps.gains import measured, summary

from tensorwise.collect.augment import Augmentation
from tensorwise.device.spade import SPADES, SpadeDevice
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write

HERE = Path(__file__).parents[3] / "experiments" / "spade-space"
VALUES = tomllib.loads((HERE / "values.toml").read_text())


def test_all_configs_of_a_matrix(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "a.mtx"
    write(path, entries_from(rng.random((40, 60)) < 0.1))
    found = measured(SpadeDevice("spade-small"), path, "1x1-300x400-0", {"op": "spmm", "n": 64})
    assert found["shape"] == [300, 400]
    assert found["optimum_s"] <= found["default_s"] <= found["worst_s"]
    assert 32 < found["distinct"] <= 160


def test_gains_are_a_geometric_mean_where_enough_configs_differ() -> None:
    optimum = {"split": 32}
    runs = {
        name: {"default_s": default, "optimum_s": 1.0, "distinct": distinct, "optimum": optimum}
        for name, default, distinct in (("a", 1.0, 128), ("b", 4.0, 224), ("c", 100.0, 127))
    }
    found = summary(runs, {"distinct": 128, "optimum_over_default": 1.55})
    assert (found["matrices"], found["at_least_128_distinct"]) == (3, 2)
    assert found["optimum_over_default"] == pytest.approx(2.0)
    assert found["optimum_has"] == {"split": {"32": 2}}
    assert (
        summary({"c": runs["c"]}, {"distinct": 128, "optimum_over_default": 1.55})["at_least_128_distinct"]
        == 0
    )


@pytest.mark.parametrize("name", SPADES)
def test_the_list_of_matrices_is_sound(name: str) -> None:
    listed = VALUES[name]["matrices"]
    assert len(set(listed)) == len(listed)
    for change in (text.partition("~")[2] for text in listed if "~" in text):
        assert str(Augmentation.parse(change)) == change


@pytest.mark.parametrize("folder", ["spade-space", "spade-calibration"])
def test_results_are_of_the_frozen_machines(folder: str) -> None:
    results = json.loads((HERE.parent / folder / "results.json").read_text())
    for name in SPADES:
        kept = results["machines"][name] if folder == "spade-calibration" else results[name]["machine_id"]
        assert kept == SpadeDevice(name).id
