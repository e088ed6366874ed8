"""The regret curve: which matrices are chosen, how seconds are read and extrapolated, what is judged, and a whole run."""

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.corpus import ROOT, Item, bytes_digest
from benchmarks.everyday import bars, gpu, judging
from benchmarks.everyday.draw import curves, picture_of
from benchmarks.everyday.homes import Homes, variables
from benchmarks.everyday.judging import CALLS, MARKS, READINGS, call_seconds, ratio, seconds_at, summarize
from benchmarks.everyday.matrices import choose, load, save
from benchmarks.everyday.mkl_csr import products
from benchmarks.everyday.products import largest_error, operand, time_calls
from benchmarks.everyday.regret import cases_of, measure, runner
from tensorwise.device.libraries.mkl import MklKernel

NAMES = ("cupy", "ours, cupy", "torch", "ours, torch")
RESULTS = ROOT / "benchmarks" / "everyday" / "results"


def item(name: str, family: str, nonzeros: int) -> Item:
    return Item(name, Path(name), 2, nonzeros, True, family)


@pytest.fixture
def matrix() -> sp.csr_array:
    return sp.random_array(
        (30, 20), density=0.2, rng=np.random.default_rng(0), format="csr", dtype=np.float64
    )


# -- what is chosen ------------------------------------------------------------------------------------------


def test_families_get_places_in_turns_and_sizes_are_spread() -> None:
    known = [item(f"a{size}", "a", size) for size in (50, 10, 40, 20, 30)]
    known += [item("b1", "b", 5), item("b2", "b", 60), item("c1", "c", 25)]
    assert [one.name for one in choose(3, known)] == ["c1", "a30", "b2"]
    assert Counter(one.family for one in choose(5, known)) == {"a": 2, "b": 2, "c": 1}
    assert [one.name for one in choose(5, known) if one.family == "a"] == ["a20", "a40"]
    assert choose(100, known) == sorted(known, key=lambda one: one.nonzeros)
    assert [one.name for one in choose(1, known)] == ["a30"]


def test_a_matrix_is_kept_as_it_is(matrix: sp.csr_array, tmp_path: Path) -> None:
    again = load(save(matrix, tmp_path / "a.npz"))
    assert again.indices.dtype == again.indptr.dtype == np.int32
    assert (again != matrix).nnz == 0
    assert again.shape == matrix.shape


# -- what a process does -------------------------------------------------------------------------------------


def test_calls_stop_where_the_next_reading_would_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("benchmarks.everyday.products.time.perf_counter", lambda: now[0])

    def call() -> float:
        now[0] += 1.0
        return now[0]

    reached, last = time_calls(call, MARKS, 25.0, -0.5)
    assert reached == {1: 1.5, 2: 2.5, 5: 5.5, 10: 10.5, 20: 20.5}
    assert last == 20
    assert time_calls(call, MARKS, 0.0, now[0])[0].keys() == {1, 2}, "an extrapolation needs two readings"


def test_wrong_products_are_noticed(matrix: sp.csr_array) -> None:
    x = operand(3, 20, matrix.dtype)
    right = matrix @ x
    assert largest_error(right, matrix, x) < 1
    for wrong in (right * (1 + 1e-12), right[:-1], right.astype(np.float32), np.where(right, np.nan, right)):
        assert largest_error(wrong, matrix, x) > 1


@pytest.mark.skipif(not MklKernel.installed(), reason="needs MKL")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [0, 5])
@pytest.mark.parametrize("hint", [None, 1000])
def test_mkl_multiplies_a_csr_of_scipy(
    matrix: sp.csr_array, dtype: str, columns: int, hint: int | None
) -> None:
    typed = matrix.astype(dtype)
    x = operand(columns, 20, typed.dtype)
    assert largest_error(products(typed, columns, hint)(x), typed, x) < 1


def test_a_home_is_a_copy_that_changes_nothing(tmp_path: Path) -> None:
    homes = Homes(tmp_path)
    (homes.warm / "kernels").mkdir()
    (homes.warm / "kernels" / "one").write_text("compiled")
    with homes.home() as home:
        cache = Path(home["TENSORWISE_CACHE_DIR"])
        assert (cache / "kernels" / "one").read_text() == "compiled"
        (cache / "kernels" / "two").write_text("compiled for one matrix")
        assert not Path(home["TENSORWISE_STORE"]).exists()
    assert not cache.exists()
    assert [path.name for path in (homes.warm / "kernels").iterdir()] == ["one"]


def test_processes_have_limits_and_no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORWISE_AUTOTUNE", "full")
    found = variables(2, 1)
    assert "TENSORWISE_AUTOTUNE" not in found
    assert (found["OMP_NUM_THREADS"], found["OPENBLAS_NUM_THREADS"]) == ("2", "1")


def test_a_whole_run(matrix: sp.csr_array, tmp_path: Path) -> None:
    """SciPy against itself, in processes of their own."""
    options = argparse.Namespace(rounds=2, most_s=0.1, steady_s=0.1, most_calls=10_000, search_s=0)
    task = {"matrix": str(save(matrix, tmp_path / "a.npz")), "columns": 0}
    found = measure(runner(Homes(tmp_path), 1), task, ["scipy"], options, 0)
    assert found["wrong"] == []
    held = found["contestants"]["scipy"]
    assert [len(held[name]) for name in ("import_s", "load_s", "seconds", "error")] == [2] * 4
    totals = [float(word) for word in held["seconds"][0].split()]
    assert totals == sorted(totals)
    assert json.loads(json.dumps(found)) == found


def test_a_part_of_the_cases_has_all_sizes() -> None:
    names = [str(size) for size in range(60)]
    cases = cases_of(names, ["float64", "float32"], ["0", "64"])
    assert len(set(cases)) == len(cases) == 240
    assert [int(case.split(" ")[0]) for case in cases[:9]] == [0, 7, 14, 21, 28, 35, 42, 49, 56]
    assert cases[60] == "0 64 float64"


# -- what is judged ------------------------------------------------------------------------------------------


def line(call_s: float, calls: int = MARKS[-1], before_s: float = 0.0) -> str:
    return " ".join(f"{before_s + call_s * mark:.8g}" for mark in READINGS if mark <= calls)


def run(wrong: tuple[str, ...] = (), **lines: str) -> dict[str, Any]:
    held = {
        name.replace("_", " "): {"import_s": [0.1], "load_s": [0.2], "seconds": [text], "error": [0.1]}
        for name, text in lines.items()
    }
    return {"wrong": list(wrong), "contestants": held}


def test_seconds_are_read_or_extrapolated() -> None:
    assert seconds_at(line(2.0), 1000) == (2000.0, False)
    assert seconds_at(line(2.0, 50), 1000) == (2000.0, True)
    late = "10 11 14 16"  # after 1, 2, 5, 10 calls
    assert call_seconds(late) == pytest.approx(0.4)
    assert seconds_at(late, 20) == (pytest.approx(20.0), True)
    assert call_seconds("3") == 3


def test_the_faster_of_mkls_two_ways_is_the_peer_at_each_number_of_calls() -> None:
    one = run(ours=line(1.0), mkl=line(1.0, before_s=50), **{"mkl,_no_hints": line(2.0)})
    assert [ratio(one, "ours", "mkl", calls) for calls in (10, 100)] == [0.5, 100 / 150]
    assert ratio(one, "ours", "scipy", 10) is None


def test_missed_targets_come_first_and_are_of_ours() -> None:
    fast = run(ours=line(0.1), scipy=line(1.0), never_tuned=line(0.1))
    lines, holds = summarize({"a 0 float64": fast, "b 64 float64": fast})
    assert holds
    assert not [text for text in lines if text.startswith("MISSED")]
    slow = run(ours=line(1.2), scipy=line(1.0), never_tuned=line(1.2))
    lines, holds = summarize({"a 0 float64": fast, "b 0 float64": slow})
    assert not holds
    found = [text for text in lines if text.startswith("MISSED")]
    assert [re.search(r"([\d,]+) calls", text)[1] for text in found] == ["10", "100", "1,000", "10,000"]  # type: ignore[index]
    assert (
        "0.35 in geometric mean of 2 (target 0.95), worst 1.20 b (target 1.05), 50 % below 0.95x" in found[0]
    )
    assert lines.index(found[0]) == 2
    near = run(ours=line(1.04), scipy=line(1.0))
    assert "worst 1.04 a (target 1.05), 0 % below 0.95x" in "".join(summarize({"a 0 float64": near})[0])
    frozen = run(scipy=line(1.0), ours=line(0.1), **{"ours,_frozen": line(2.0)})
    lines, holds = summarize({"a 0 float64": frozen})
    assert holds
    assert any(text.startswith("MISSED SpMV, float64, 10 calls, ours, frozen/scipy") for text in lines)
    assert not summarize({"a 0 float64": run(wrong=("ours",), ours=line(0.1), scipy=line(1.0))})[1]
    assert not summarize({})[1]
    assert not summarize({"a 0 float64": run(scipy=line(1.0))})[1], "nothing of ours was measured"


def test_tuning_may_cost_a_tenth_and_a_millisecond() -> None:
    held = run(ours=line(1e-3, before_s=9e-4), never_tuned=line(1e-3))
    assert judging.never({"a": held}, "ours")[1]
    costly = run(ours=line(1e-3, before_s=2e-3), never_tuned=line(1e-3))
    text, holds = judging.never({"a": held, "b": costly}, "ours")
    assert not holds
    assert "on 1 of 2 (target 0)" in text
    assert "b after 1 calls" in text


def test_the_last_calls_are_compared_with_a_long_searchs_kernel() -> None:
    text, holds = judging.searched({"a": run(ours=line(1.0, before_s=500), searched=line(1.0))}, "ours")
    assert holds
    assert "takes 1.00 of that of a long search's kernel" in text
    assert not judging.searched({"a": run(ours=line(1.06), searched=line(1.0))}, "ours")[1]
    later = run(ours=line(1.0, 500_000), searched=line(1.0, 1_000_000))
    text, holds = judging.searched({"a": later, "b": run(ours=line(1.0), searched=line(1.0))}, "ours")
    assert holds
    assert text.startswith("a call in the end, after 10,000 to 500,000 calls, takes 1.00")


# -- what is drawn -------------------------------------------------------------------------------------------


def test_a_picture_has_a_line_for_each_operation_and_says_of_which_results(tmp_path: Path) -> None:
    fast, slow = (run(ours=line(call_s), scipy=line(1.0), mkl=line(1.0)) for call_s in (0.5, 2.0))
    runs = {"a 0 float64": fast, "b 0 float64": slow, "a 8 float64": fast}
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"runs": runs, "settings": {"threads": 2}, "machine": {"processor": "one"}}))
    text = picture_of(path)
    root = ElementTree.fromstring(text)
    colours = [node.get("stroke") for node in root if (node.get("stroke") or "")[:1] == "#"]
    assert len(colours) == 2 * 2 + 2, "two panels and the legend"
    assert "2 matrices, 2 threads, one; dots: the worst matrix, dashes: frozen" in text
    assert f"drawn of results.json {bytes_digest(path.read_bytes())}" in text
    found = curves(runs, "ours", "scipy")
    assert found["SpMV, float64"][-1] == (10_000, pytest.approx(1.0), pytest.approx(2.0))
    assert found["SpMM 8, float64"][0] == (1, pytest.approx(0.5), pytest.approx(0.5))


@pytest.mark.parametrize("name", ["regret", "regret-intel"])
def test_the_committed_picture_is_of_the_committed_results_and_on_the_page(name: str) -> None:
    results, picture = RESULTS / f"{name}.json", ROOT / "docs" / "assets" / f"{name}.svg"
    page = (ROOT / "docs" / "array-speed.md").read_text(encoding="utf-8")
    assert results.exists() == picture.exists() == (f"(assets/{name}.svg)" in page), "run draw.py; show it"
    assert not results.exists() or picture.read_text(encoding="utf-8") == picture_of(results)


def test_every_target_is_of_a_number_of_calls_that_is_read() -> None:
    assert set(CALLS) <= set(MARKS)
    assert all(tuple(targets) == CALLS for targets in judging.TARGETS.values())


def test_tables_mark_what_misses_its_target() -> None:
    fast, slow = (run(ours=line(call_s), scipy=line(1.0)) for call_s in (0.3, 1.2))
    assert bars.cell({"a 0 float64": fast}, "SpMV, float64", "ours", "scipy", 100) == "0.30 (0.30; 0 %)"
    both = {"a 0 float64": fast, "b 0 float64": slow}
    assert bars.cell(both, "SpMV, float64", "ours", "scipy", 10) == "0.60 (1.20 ✗; 50 %)"
    assert bars.cell(both, "SpMV, float64", "ours", "scipy", 1000) == "0.60 ✗ (1.20 ✗; 50 %)"
    assert bars.target("spmv", "scipy", 1000) == "0.42 (0.90)"
    assert bars.target("spmm", "mkl", 1000) == "0.45"
    costly = run(ours=line(1e-3, before_s=2e-3), never_tuned=line(1e-3), **{"ours,_frozen": line(1e-3)})
    (row, frozen) = bars.tuning_cost({"a 0 float64": costly})[-2:]
    assert "1 of 1 ✗" in row
    assert frozen.startswith("| frozen | 0 of 1 (")


# -- on a GPU ------------------------------------------------------------------------------------------------


def test_a_gpus_curve_is_judged_by_calls_that_were_made() -> None:
    def run(mine: float, wrong: tuple[str, ...] = ()) -> dict[str, Any]:
        peer, own = [1.0, 2.0, 4.0], [2.0, 2.0 * mine, 4.0 * mine]
        told = {
            name: {"seconds": [own if name.startswith("ours") else peer] * 3, "error": 0.1} for name in NAMES
        }
        return {"wrong": list(wrong), "contestants": told}

    lines, holds = gpu.summarize({"a 0 float32": run(1.0), "b 0 float32": run(0.9)})
    assert holds
    assert "10,000 calls" not in " ".join(lines)
    assert any(
        "100 calls, ours, cupy/cupy: 0.95 in geometric mean of 2 (target 1.05), worst 1.00 a" in one
        for one in lines
    )
    assert not gpu.summarize({"a 0 float32": run(1.2)})[1]
    assert not gpu.summarize({"a 0 float32": run(0.5, ("cupy",))})[1]
