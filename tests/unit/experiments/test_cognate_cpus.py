"""The experiment on other processors: what is read and kept, one small run of each step, claims, and the page."""

import importlib.util
import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processors.data import Machines, machine_groups
from processors.judging import FIGURES, judge, machines, mean, rows, ways
from processors.page import page
from processors.steps import Steps

from tensorwise.collect.corpus import patterns
from tensorwise.collect.job import plan
from tensorwise.collect.measuring import measured
from tensorwise.errors import InputError
from tensorwise.store.parquet import write_records
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write

HERE = Path(__file__).parents[3] / "experiments" / "cognate-cpus"
EXPECTED = json.loads((HERE / "expected.json").read_text())
VALUES = tomllib.loads((HERE / "values.toml").read_text())
SMALL: dict[str, Any] = VALUES | {
    "few": 2, "draws": 2, "networks": VALUES["networks"] | {"epochs": {"spmv": 2}, "few": 2, "heads": 2},
}  # fmt: skip
pytest.importorskip("pyarrow")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    rng = np.random.default_rng(0)
    for family in ("fem", "qp", "web", "road"):
        (folder / family).mkdir()
        for place in range(2):
            write(folder / family / f"{family}{place}.mtx", entries_from(rng.random((30, 20 + place)) < 0.2))
    return folder


@pytest.fixture(scope="module")
def files(corpus: Path) -> dict[str, tuple[Path, int]]:
    found = {}
    for seed, name in enumerate(("A", "B")):
        jobs = plan(
            patterns([corpus / family for family in ("fem", "qp", "web", "road")]),
            ["spmv"], threads=[2], device="null", samples=12, seed=seed,
        )  # fmt: skip
        found[name] = corpus / f"{name}.parquet", 2
        write_records(found[name][0], [record for job in jobs for record in measured(job)])
    return found


def read(corpus: Path, files: dict[str, tuple[Path, int]], cache: Path) -> Machines:
    known = [patterns([corpus / family]) for family in ("fem", "qp", "web", "road")]
    return machine_groups(files, "spmv", [one for some in known for one in some], cache)


def test_what_is_counted_is_kept(
    corpus: Path, files: dict[str, tuple[Path, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read(corpus, files, tmp_path)
    assert {name: len(some) for name, some in first.groups.items()} == {"A": 8, "B": 8}
    assert {group.family for group in first.groups["A"]} == {"fem", "qp", "web", "road"}
    assert len(list(tmp_path.glob("*.npy"))) == 16

    def refused(*_: object) -> np.ndarray:
        raise AssertionError

    monkeypatch.setattr("tensorwise.model.ranking.counted", refused)
    again = read(corpus, files, tmp_path)
    assert [group.id for group in again.groups["B"]] == [group.id for group in first.groups["B"]]
    known = patterns([corpus / "fem"])
    with pytest.raises(InputError, match="only nothing has records of spmm"):
        machine_groups(files, "spmm", known, tmp_path)
    single = files | {"B": (files["B"][0], 1)}
    with pytest.raises(InputError, match="only A has records of spmv"):
        machine_groups(single, "spmv", known, tmp_path)


@needs_torch
@pytest.mark.usefixtures("one_torch_thread")
def test_steps(corpus: Path, files: dict[str, tuple[Path, int]], tmp_path: Path) -> None:
    steps = Steps("spmv", read(corpus, files, tmp_path), SMALL)
    assert {*steps.part_of.values()} == {"learn", "test"}
    planned = steps.planned()
    assert len(planned) == 3 * 2 + 1
    runs = json.loads(json.dumps({key: step() for key, step in planned.items()}))
    found = ways(runs, "spmv")
    assert {way for on, way in found if on == "A"} == {
        "A alone", "B alone", "all", "all others", "all others, calibrated", "all others, going on", "from scratch",
    }  # fmt: skip
    assert all(np.isfinite(list(one.values())).all() for one in found.values())
    assert len(runs["spmv few of A"]["ways"][0]["draws"]) == 2
    # What is learned from a machine is no family that is tested, and going on changes what was learned.
    tested = {group.family for group in steps.groups("A", "test")}
    assert not tested & {group.family for group in [*steps.drawn("A", 0), *steps.groups("B", "learn")]}
    assert found["A", "all others"] != found["A", "all others, going on"]
    text = page({"runs": runs, "machine": {}}, EXPECTED)
    assert "all others, calibrated" in text
    assert "Nothing." in text


def run(op: str, **tops: float) -> dict[str, Any]:
    names = {"plain": "all others", "tuned": "all others, calibrated", "scratch": "from scratch"}
    return {
        "op": op,
        "ways": [
            {"on": "A", "way": names[name], "draws": [[[0.9, 0.8, None, top, 0.99]]]}
            for name, top in tops.items()
        ],
    }


def test_claims() -> None:
    assert judge({}, EXPECTED) == ([], None)
    lines, holds = judge({"a": run("spmv", plain=0.9, tuned=0.93, scratch=0.8)}, EXPECTED)
    assert holds is True
    assert len(lines) == 4
    for changed in ({"plain": 0.8}, {"tuned": 0.85}, {"scratch": 0.95}):
        _, holds = judge(
            {"a": run("spmv", **({"plain": 0.9, "tuned": 0.93, "scratch": 0.8} | changed))}, EXPECTED
        )
        assert holds is False
    assert machines({"a": run("spmv", plain=0.9)}, "spmv") == ["A"]
    assert judge({"a": {"error": "OSError: none"}}, EXPECTED) == ([], None)


def test_figures_are_of_jobs_with_times_enough(
    corpus: Path, files: dict[str, tuple[Path, int]], tmp_path: Path
) -> None:
    group = read(corpus, files, tmp_path).groups["A"][0]
    (right,) = rows([group], lambda one: one.seconds)
    assert right[:2] == [1.0, 1.0]
    assert right[3:] == [1.0, 1.0]
    few = replace(group, exact=np.arange(len(group)) < 5)
    assert rows([few], lambda one: one.seconds) == []
    assert mean([[0.5, 0.5, None, 1.0, 1.0], [1.0, 0.5, 0.25, 0.5, 1.0]])["fastest"] == 0.25
    assert len(right) == len(FIGURES)
