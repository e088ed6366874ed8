"""The comparison of kernels: one run from end to end, the targets, the page."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from benchmarks.baselines.fixed_csr import FixedCsr
from benchmarks.baselines.plain_c import PlainCKernel
from benchmarks.kernels.measure import Settings, measure
from benchmarks.kernels.page import page
from benchmarks.kernels.targets import BEST_BASELINE, reached, speedups
from tensorwise.device.cpu import CpuDevice


def run(name: str, op: str, ratios: dict[str, float], n: int | None = None) -> dict[str, Any]:
    speedup = {other: [ratio, ratio, ratio] for other, ratio in ratios.items()}
    return {"name": name, "op": op, "n": n, "threads": 2, "speedup": speedup, "default": {}, "failed": {}}


def test_the_best_baseline_is_that_of_each_matrix() -> None:
    runs = [run("a", "spmv", {"mkl": 2.0, "scipy": 4.0}), run("b", "spmv", {"mkl": 8.0, "scipy": 0.5})]
    best = speedups(runs, BEST_BASELINE)
    assert dict(best.ratios) == {"a": 2.0, "b": 0.5}
    assert best.mean == pytest.approx(1.0)
    assert best.worst == ("b", 0.5)
    assert best.slower == 0.5
    assert speedups(runs, "mkl").mean == pytest.approx(4.0)


def test_a_target_needs_its_mean_and_its_share() -> None:
    fast = [run(f"m{number}", "spmv", {"mkl": 1.6}) for number in range(99)]
    (enough,) = reached([*fast, run("slow", "spmv", {"mkl": 0.9})])
    assert enough.met
    (too_many,) = reached([*fast[:24], run("slow", "spmv", {"mkl": 0.9})])
    assert too_many.speedups.mean > 1.5
    assert not too_many.met
    (too_slow,) = reached([run("m", "spmv", {"mkl": 1.4})])
    assert not too_slow.met


def test_pruned_networks_have_a_target_of_their_own() -> None:
    rows = reached([run("dlmc_x", "spmm", {"mkl": 2.1}, 32), run("other", "spmm", {"mkl": 4.0}, 32)])
    assert [(row.target.part, row.met) for row in rows] == [("", True), ("dlmc", False)]


def test_a_failed_run_counts_for_nothing() -> None:
    died = {
        "name": "a",
        "op": "spmv",
        "n": None,
        "threads": 2,
        "failed": {"all": "the measuring process died"},
    }
    (row,) = reached([died])
    assert not row.speedups.ratios
    assert not row.met


@pytest.mark.parametrize(("op", "n"), [("spmv", None), ("sddmm", 8)])
def test_from_a_file_to_the_page(op: str, n: int | None, tmp_path: Path) -> None:
    matrix = sp.random_array((300, 200), density=0.05, rng=np.random.default_rng(0))
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix)
    settings = Settings(trials=3, budget_s=30, rounds=3, rounds_s=0.2)
    with CpuDevice(1) as device:
        found = measure(tmp_path / "a.mtx", op, n, device, settings)
    assert found["failed"] == {}
    assert found["search"]["tried"] == 3
    assert found["speedup"].keys() >= {"scipy"} | {
        cls.name for cls in (PlainCKernel, FixedCsr) if cls.installed()
    }
    assert all(low <= median <= high for median, low, high in found["speedup"].values())
    assert found["roof"]["flop"] == 2 * 3000 * (n or 1)
    kept = {"name": "<a>", "family": "made", "op": op, "n": n, "threads": 1, **found}
    held = {"runs": {"a": kept}, "machine": {"processor": "AMD"}, "settings": {"trials": 3}}
    text = page(json.loads(json.dumps(held)))
    assert "generic code path" in text
    assert "&lt;a&gt;" in text
    assert text.count("<svg") == 2
