"""Client programs: each runs patched and unpatched with equal results; profiles, differences, and what is judged."""

import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise.sparse as ts
from benchmarks.everyday import overhead
from benchmarks.everyday.clients import FLOOR, PROGRAMS, WAYS, differences, speedup, summarize
from benchmarks.everyday.profiling import Clock

EVERYDAY = Path(__file__).parents[3] / "benchmarks" / "everyday"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clients") / "matrix.npz"
    matrix = sp.random_array(
        (200, 200), density=0.08, rng=np.random.default_rng(0), format="csr", dtype=np.float64
    )
    sp.save_npz(path, matrix)
    return path


@pytest.fixture
def patched() -> Iterator[None]:
    ts.patch_scipy()
    yield
    ts.unpatch_scipy()


def run(name: str, data: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = EVERYDAY / "programs" / f"{name}.py"
    given = "2" if PROGRAMS[name].matrix.isdigit() else str(data)
    monkeypatch.setattr(sys, "argv", [str(script), given, str(out)])
    runpy.run_path(str(script), run_name="__main__")
    return out


def test_every_program_is_listed() -> None:
    assert {path.stem for path in (EVERYDAY / "programs").glob("*.py")} == set(PROGRAMS)
    assert len(PROGRAMS) == 10


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_programs_compute_the_same_when_scipy_is_patched(
    name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip(PROGRAMS[name].package)
    expected = run(name, data, tmp_path / "expected.npz", monkeypatch)
    request.getfixturevalue("patched")
    assert (
        differences(run(name, data, tmp_path / "found.npz", monkeypatch), expected)
        <= PROGRAMS[name].tolerance
    )


def test_differences_are_relative_and_of_the_same_arrays(tmp_path: Path) -> None:
    def kept(name: str, **arrays: Any) -> Path:
        np.savez(tmp_path / name, **arrays)
        return tmp_path / f"{name}.npz"

    one = kept("one", a=[1.0, 100.0], b=[0.0])
    assert differences(one, one) == 0
    assert differences(kept("two", a=[2.0, 100.0], b=[0.0]), one) == pytest.approx(0.01)
    for name, other in (("shape", {"a": [1.0], "b": [0.0]}), ("names", {"a": [1.0, 100.0]})):
        assert differences(kept(name, **other), one) == np.inf
    assert differences(kept("nan", a=[np.nan, 100.0], b=[0.0]), one) == np.inf


def test_products_are_counted_once(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nimport numpy as np\nimport scipy.sparse as sp\n"
        "assert sys.argv[1:] == ['given'] and __name__ == '__main__'\n"
        "for cls in (sp.csr_array, sp.csc_matrix, sp.coo_array, sp.bsr_array, sp.dia_array):\n"
        "    A = cls(np.eye(4))\n    A @ np.ones(4), A @ np.ones((4, 2)), np.ones(4) @ A, A @ A, A.sum\n"
    )
    out = tmp_path / "out.json"
    subprocess.run([sys.executable, EVERYDAY / "profiling.py", out, program, "given"], check=True)
    found = json.loads(out.read_text())
    assert found["calls"] == 15
    assert 0 < found["products_s"] < 5


def test_a_product_within_another_is_not_counted_again() -> None:
    clock = Clock()
    inner = clock.wrap(lambda: 1)
    assert clock.wrap(lambda: inner() + inner())() == 2
    assert clock.calls == 1
    with pytest.raises(ZeroDivisionError):
        clock.wrap(lambda: 1 / 0)()
    assert (inner(), clock.calls) == (1, 3)


def one(share: float, ratio: float, difference: float = 0.0) -> dict[str, Any]:
    return {
        "does": "something",
        "products_share": share,
        "products": 10,
        "tolerance": 1e-6,
        "difference": dict.fromkeys(WAYS, difference),
        "seconds": {"unpatched": [1.0]},
        "speedup": {way: [ratio, ratio, ratio] for way in WAYS if way != "unpatched"},
    }


def test_the_mean_is_of_programs_with_many_products_and_the_worst_of_all() -> None:
    lines, holds = summarize({"a": one(0.8, 2.0), "b": one(0.1, 1.0)})
    assert holds
    assert lines[0].startswith("patched: 2.00x in geometric mean of 1 programs")
    assert "1.41x of all 2; worst b 1.00x, below 0.97x: none" in lines[0]
    assert not summarize({"a": one(0.8, 2.0), "b": one(0.1, FLOOR - 0.01)})[1]
    assert not summarize({"a": one(0.8, 1.4), "b": one(0.1, 3.0)})[1]
    lines, holds = summarize({"a": one(0.8, 2.0, difference=1e-3)})
    assert not holds
    assert any("a (patched: 1.0e-03, tolerance 1e-06)" in line for line in lines)
    assert not summarize({"a": one(0.8, 2.0, difference=np.nan)})[1]
    lines, holds = summarize({"a": one(0.8, 2.0)}, ["b"])
    assert not holds
    assert "not run, their packages are missing: b" in lines
    assert not summarize({})[1]


def test_a_speedup_is_of_rounds() -> None:
    ratio, low, high = speedup([1.0, 10.0, 2.0], [2.0, 20.0, 4.0])
    assert (ratio, low, high) == (2, 2, 2)


# -- overhead ------------------------------------------------------------------------------------------------


def test_the_largest_overhead_of_ours_is_judged_and_not_scipys() -> None:
    def case(**over_us: float) -> dict[str, Any]:
        return {"over_bare_s": {name: 1e-6 * value for name, value in over_us.items()}}

    good = {
        "vector float64": case(ours=1.0, patched=3.9, scipy=9.0),
        overhead.IMPORT: {"seconds": {"beyond": 0.1}},
    }
    lines, holds = overhead.summarize(good)
    assert holds
    assert all(line.startswith("met ") for line in lines)
    lines, holds = overhead.summarize({**good, "late": case(ours=1.0, patched=4.1, scipy=1.0)})
    assert not holds
    assert lines[0].startswith("MISSED late")
    assert not overhead.summarize({overhead.IMPORT: {"seconds": {"beyond": 0.2}}})[1]
    assert not overhead.summarize({})[1]


@pytest.mark.parametrize("case", ["vector float64", "8 columns, F order float32"])
def test_overheads_are_measured(case: str) -> None:
    found = overhead.measure(case, rounds=1, rows=16, threads=1, patched=False)
    assert {"ours", "ours, frozen", "scipy"} <= found["over_bare_s"].keys()
    assert all(seconds > 0 for seconds in found["seconds"].values())
