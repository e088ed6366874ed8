"""The experiment on transfer: the two settings, the tables, and one small run in two processes up to the page."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from transfers import measure as measure_module
from transfers.measure import Setting, Settings, two_settings
from transfers.page import AS_IT_IS, MEASURED, cell, judge, page, settings_of
from transfers.steps import Steps

from benchmarks.baselines.fixed_csr import FixedCsr
from benchmarks.bench import Bench
from benchmarks.corpus import Item
from tensorwise.errors import InputError
from tensorwise.toolchain.processor import vector_bytes

HERE = Path(__file__).parents[3] / "experiments" / "waco-transfer"
EXPECTED = json.loads((HERE / "expected.json").read_text())
SETTINGS = Settings(
    columns=16, trials=4, seeds=[0], search_s=20.0, top=2, choosing_rounds=3, choosing_s=0.2,
    reporting_rounds=3, reporting_s=0.2,
)  # fmt: skip
NARROW, WIDE = Setting(16, 1), Setting(32, 2)


def test_settings_are_the_two_widest_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NARROW.name == "128-bit code, 1 thread"
    assert WIDE.name == "AVX2, 2 threads"
    for widest, expected in ((32, (NARROW, WIDE)), (64, (Setting(32, 1), Setting(64, 2)))):
        monkeypatch.setattr(measure_module, "vector_bytes", lambda widest=widest: widest)
        assert two_settings() == expected
    monkeypatch.setattr(measure_module, "vector_bytes", lambda: 16)
    with pytest.raises(InputError, match="no second setting"):
        two_settings()


def run(matrix: str, here: Setting, own: float, foreign: float, unmeasured: float = 1.1) -> dict[str, Any]:
    there = WIDE if here == NARROW else NARROW
    speedup = {
        "default": 1.2, "again": 1.01, f"{here.name}: {AS_IT_IS}": own,
        f"{there.name}: {AS_IT_IS}": unmeasured, f"{there.name}: {MEASURED}": foreign,
    }  # fmt: skip
    return {
        "op": "spmm", "matrix": matrix, "family": "f", "setting": here.name,
        "speedup": {name: [ratio, ratio, ratio] for name, ratio in speedup.items()},
        "failed": {}, "note": "",
    }  # fmt: skip


def test_a_cell_is_run_here_and_chosen_there() -> None:
    some = [run("a", NARROW, 2.0, 1.5), run("a", WIDE, 3.0, 2.5), run("b", NARROW, 4.0, 3.5)]
    assert settings_of(some) == [NARROW.name, WIDE.name]
    assert cell(some, NARROW.name, NARROW.name, MEASURED) == [2.0, 4.0]
    assert cell(some, NARROW.name, WIDE.name, MEASURED) == [1.5, 3.5]
    assert cell(some, NARROW.name, WIDE.name, AS_IT_IS) == [1.1, 1.1]
    assert cell(some, WIDE.name, NARROW.name, MEASURED) == [2.5]


@pytest.mark.parametrize(
    ("own", "foreign", "holds"), [(2.0, 1.5, True), (1.5, 2.0, False), (1.5, 1.52, True), (1.5, 0.9, False)]
)
def test_claims_are_judged(own: float, foreign: float, holds: bool) -> None:
    runs = {"compare a": run("a", NARROW, own, foreign), "compare b": run("a", WIDE, 3.0, 2.5)}
    lines, found = judge(runs, EXPECTED)
    assert found is holds
    assert any("Fixed CSR twice differs by 1.0%" in line for line in lines)
    assert judge({}, EXPECTED)[1] is None


@pytest.mark.skipif(not FixedCsr.installed(), reason="Fixed CSR is compiled with gcc")
@pytest.mark.skipif(vector_bytes() == 16, reason="needs vectors of two widths")
def test_from_the_searches_to_the_page(tmp_path: Path) -> None:
    matrix = sp.random_array((200, 150), density=0.05, rng=np.random.default_rng(1), dtype=np.float32)
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix)
    item = Item("<a>", tmp_path / "a.mtx", 2, matrix.nnz, False, "made")
    narrow, wide = two_settings()
    runs: dict[str, Any] = {}
    with Bench(narrow.threads, narrow.variables) as one, Bench(wide.threads, wide.variables) as other:
        steps = Steps({narrow: one, wide: other}, SETTINGS).planned([item], ["spmm"], runs)
        for key, step in steps.items():
            runs[key] = json.loads(json.dumps(step()))
    chosen = runs[f"search spmm <a> {wide.name}"]
    assert chosen["tried"] == 4
    assert len(chosen["named"]) == 2
    here = runs[f"compare spmm <a> {narrow.name}"]
    assert here["failed"] == {}
    assert here["speedup"].keys() == {
        "default", "again", f"{narrow.name}: {AS_IT_IS}", f"{wide.name}: {AS_IT_IS}", f"{wide.name}: {MEASURED}",
    }  # fmt: skip
    lanes = f"x{wide.vector_bytes // 4})"
    assert not any(lanes in program for program in here["programs"].values())  # code for the narrower vectors
    runs["search x"] = {"error": "<gone>"}
    text = page({"runs": runs, "machine": {}, "settings": {}}, EXPECTED)
    assert "&lt;a&gt;" in text
    assert "<a>" not in text
    assert "search x: &lt;gone&gt;" in text
    assert "1.12x" in text
