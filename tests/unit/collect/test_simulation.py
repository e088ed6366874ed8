"""A small run of ``benchmarks/collection``: fake nodes that fail in all ways, real drivers that are killed."""

import pytest

from benchmarks.collection.nodes import OUTCOMES
from benchmarks.collection.simulate import Setting, simulate

pytest.importorskip("pyarrow")


def test_nothing_is_lost_doubled_false_or_mixed() -> None:
    found = simulate(
        Setting(nodes=60, jobs=240, drivers=2, kills=3, speed=120.0, samples=4, patience_s=240.0)
    )
    assert {name: found[name] for name in ("lost", "doubled", "false", "mixed")} == {
        "lost": 0,
        "doubled": 0,
        "false": 0,
        "mixed": 0,
    }
    assert found["killed"] > 0
    assert len(found["outcomes"].keys() & OUTCOMES.keys()) >= 6, "most ways to fail were met"
    assert found["redone"] > 0
    assert found["parts"] < found["runs"] * 240, "several jobs to a part"
