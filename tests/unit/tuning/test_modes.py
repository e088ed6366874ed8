"""MTTKRP in every mode: right numbers on shared and separate tensors, limits kept, nothing lost when things go wrong."""

import contextlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorwise as tw
from tensorwise.device.cpu import CpuDevice, Rounds
from tensorwise.device.library import LIBRARY
from tensorwise.errors import InputError, MeasurementError
from tensorwise.program.workload import workload
from tensorwise.store.store import Store
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.format import Format
from tensorwise.tensor.pack import pack
from tensorwise.tuning.result import Trial
from tensorwise.tuning.sweep import Sweep
from tests.unit.device.cases import tensor
from tests.unit.tuning.test_tune import _compiler as _compiler
from tests.unit.tuning.test_tune import interrupt_at

pytestmark = pytest.mark.usefixtures("_compiler")

SHAPES = {3: (20, 15, 12), 4: (9, 8, 7, 6), 5: (5, 6, 4, 3, 4)}


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets are small here so that little is tried; a busy machine must not cut even that short (see test_budget.py)."""
    monkeypatch.setattr("tensorwise.tuning.modes.within", lambda seconds: contextlib.nullcontext())


def quick(a: Any, n: int = 5, **options: Any) -> Sweep:
    return tw.tune_modes(a, n=n, **({"trials": 4, "budget_s": 2.0, "threads": 2, "store": False} | options))


def sharing(a: Any, **options: Any) -> Sweep:
    """The smallest arrangement instead of the fastest: one tensor serves all modes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tensorwise.tuning.modes.choose", lambda found, memory_bytes, calls: found[0])
        return quick(a, **options)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture
def cube(rng: np.random.Generator) -> Entries:
    return tensor(SHAPES[3], 400, rng)


def is_right(sweep: Sweep, a: Entries, rng: np.random.Generator, n: int = 5) -> None:
    """Compare every mode with the reference, within the bound that holds for every order of summation."""
    factors = [rng.random((extent, n)).astype(a.dtype) for extent in a.shape]
    assert len(sweep) == len(a.shape)
    for mode, operator in enumerate(sweep):
        others = [factor for place, factor in enumerate(factors) if place != mode]
        found = operator(*others)
        assert found.dtype == a.dtype
        assert workload("mttkrp", a, n=n, mode=mode).reference(others).mismatch(found) is None


def is_sane(sweep: Sweep) -> None:
    result = sweep.result
    best = result.best
    assert result.verified
    assert 0 < best.seconds < math.inf
    assert sweep.bytes_held == best.bytes_held
    assert any(one is best for one in result.alternatives)
    sizes = [one.bytes_held for one in result.alternatives]
    assert sizes == sorted(sizes)
    assert result.unshared.bytes_unshared >= result.unshared.bytes_held
    assert len(sweep.tensors) == len([one for one in best.stored if "mode" not in one.name])
    told = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert told["best"]["bytes_held"] == sweep.bytes_held
    assert [one["format"] for one in told["best"]["modes"]] == [operator.format for operator in sweep]
    assert [one["schedule"] for one in told["best"]["modes"]] == [operator.schedule for operator in sweep]
    assert all(operator.format in sweep.report() for operator in sweep)
    assert "chosen: " in sweep.report()


@pytest.mark.parametrize(("order", "dtype"), [(3, "float32"), (4, "float64"), (5, "float32")])
def test_one_tensor_serves_all_modes(order: int, dtype: str, rng: np.random.Generator) -> None:
    a = tensor(SHAPES[order], 200, rng, dtype)
    sweep = sharing(a)
    is_right(sweep, a, rng)
    is_sane(sweep)
    (stored,) = sweep.tensors
    assert all(operator.tensors["A"] is stored for operator in sweep)
    for level, arrays in enumerate(stored.arrays):
        for name, array in arrays.items():
            assert all(np.shares_memory(array, o.tensors["A"].arrays[level][name]) for o in sweep)
    assert sweep.bytes_held < sweep.result.best.bytes_unshared
    assert sum(operator.conversion_s > 0 for operator in sweep) == 1


@pytest.mark.parametrize(("order", "dtype"), [(3, "float64"), (4, "float32"), (5, "float64")])
def test_the_fastest_is_right_in_all_modes(order: int, dtype: str, rng: np.random.Generator) -> None:
    a = tensor(SHAPES[order], 200, rng, dtype)
    sweep = quick(a)
    is_right(sweep, a, rng)
    is_sane(sweep)
    timed = [one.sweep_s for one in sweep.result.alternatives if one.sweep_s is not None]
    if sweep.result.best.sweep_s is not None:
        assert sweep.result.best.sweep_s <= 1.03 * min(timed)


def test_another_rank_reads_the_same_tensors(cube: Entries, rng: np.random.Generator) -> None:
    sweep = sharing(cube)
    is_right(sweep, cube, rng, n=9)
    assert len(sweep.tensors) == 1


def test_memory_is_respected(cube: Entries, rng: np.random.Generator) -> None:
    """Twice the format that is sure to be tried: three tensors would not fit."""
    limit = 2 * pack(cube, Format.parse("(i,k,l) -> U(i) C16(l) C16(k)")).nbytes
    sweep = quick(cube, memory_bytes=limit, budget_s=5.0)
    is_right(sweep, cube, rng)
    is_sane(sweep)
    assert sweep.bytes_held <= limit
    assert len(sweep.tensors) < 3
    assert f"within {limit / 1e6:.4g} MB" in sweep.result.why


def test_empty_slices(rng: np.random.Generator) -> None:
    """Rows that no entry reaches are zero, in every mode."""
    a = tensor(SHAPES[3], 400, rng)
    i, k, l = a.coordinates  # noqa: E741
    kept = (i != 3) & (k != 0) & (l != 11)
    some = entries_from((a.shape, (i[kept], k[kept], l[kept]), a.values[kept]))
    sweep = sharing(some)
    is_right(sweep, some, rng)
    factors = [rng.random((extent, 5), dtype=np.float32) for extent in a.shape]
    for mode, empty in enumerate((3, 0, 11)):
        made = sweep[mode](*(factor for place, factor in enumerate(factors) if place != mode))
        assert not made[empty].any()


@pytest.mark.parametrize("shape", [(6, 5, 4), (0, 5, 4), (4, 3, 0, 2)])
def test_no_entries(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    sweep = quick(np.zeros(shape, np.float32), trials=1)
    factors = [rng.random((extent, 5), dtype=np.float32) for extent in shape]
    for mode, operator in enumerate(sweep):
        made = operator(*(factor for place, factor in enumerate(factors) if place != mode))
        assert made.shape == (shape[mode], 5)
        assert not made.any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"A": np.ones((3, 4))}, r"mttkrp needs a tensor of order 3 to 5, got order 2 with shape \(3, 4\)"),
        ({"A": np.ones((2,) * 6)}, "order 3 to 5, got order 6"),
        ({"A": "no such file.tns"}, "no such file"),
        ({"memory_bytes": -5}, "memory_bytes must be a positive number of bytes, or None, got -5"),
        ({"memory_bytes": 0}, "memory_bytes must be"),
        ({"memory_bytes": 1e6}, "memory_bytes must be"),
        ({"memory_bytes": True}, "memory_bytes must be"),
        ({"memory_bytes": 1000}, "memory_bytes=1000 is less than .* 1600 bytes that the values alone take; give more"),
        ({"n": 0}, "n must be a positive integer"),
        ({"budget_s": 0}, "budget_s"),
        ({"trials": -1}, "trials"),
        ({"expected_calls": 0}, "expected_calls"),
        ({"threads": 0}, "threads"),
        ({"strategy": "magic"}, "magic"),
        ({"dtype": "int8"}, "int8"),
    ],
)  # fmt: skip
def test_wrong_arguments(cube: Entries, options: dict[str, Any], words: str) -> None:
    given = {"A": cube, "store": False, "trials": 1} | options
    with pytest.raises(InputError, match=words):
        tw.tune_modes(given.pop("A"), **given)


def test_a_limit_below_one_tensor_is_an_error(cube: Entries) -> None:
    """The values alone would fit, the coordinates do not."""
    with pytest.raises(
        InputError, match=r"memory_bytes=1700 is less than .* all modes with \d+ bytes; give at"
    ):
        quick(cube, memory_bytes=1700)


def test_no_trials_compare_libraries(cube: Entries, rng: np.random.Generator) -> None:
    sweep = quick(cube, trials=0)
    is_right(sweep, cube, rng)
    assert {operator.kernel for operator in sweep} == {"scipy"}
    assert sweep.tensors == ()
    assert sweep.result.best.stored[1].name == "scipy, mode 1"
    assert sweep.bytes_held == sweep.result.best.bytes_held


def test_measurements_are_remembered(cube: Entries, tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    sweep = quick(cube, store=store, budget_s=1.0)
    for operator in sweep:
        records = store.query(workload_id=operator.workload.id)
        assert any(record.ok for record in records)


def test_progress_tells_what_goes_on(cube: Entries) -> None:
    said: list[tuple[str, float]] = []
    seen: list[Trial] = []
    sweep = quick(cube, progress=lambda what, share: said.append((what, share)), observe=seen.append)
    assert len(seen) == sweep.result.candidates
    assert said[0][0] == "mode 0: preparing"
    assert {what for what, _ in said} >= {f"mode {mode}: rounds" for mode in range(3)}
    assert all(0 <= share <= 1 for _, share in said)


@pytest.mark.parametrize("word", ["mode 0: libraries", "mode 1: 1 ", "mode 0: rounds"])
def test_an_interrupt_returns_the_best_so_far(cube: Entries, rng: np.random.Generator, word: str) -> None:
    sweep = quick(cube, progress=interrupt_at(word))
    is_right(sweep, cube, rng)
    assert any("interrupted" in note for note in sweep.result.notes)
    assert sweep.result.verified == (word == "mode 0: rounds")
    json.dumps(sweep.result.to_json(), allow_nan=False)
    assert "interrupted" in sweep.report()


def test_an_interrupt_does_not_break_the_limit(cube: Entries) -> None:
    with pytest.raises(InputError, match="memory_bytes=2000 is less than"):
        quick(cube, progress=interrupt_at("mode 0: libraries"), memory_bytes=2000)


def test_a_lost_worker_still_gives_operators(
    cube: Entries, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any, **__: Any) -> Any:
        raise MeasurementError("the measuring worker is gone")
        yield

    monkeypatch.setattr(CpuDevice, "measure", lost)
    sweep = quick(cube)
    is_right(sweep, cube, rng)
    assert any("worker is gone" in note for note in sweep.result.notes)


def test_a_kernel_that_fails_in_the_last_rounds_is_not_the_answer(
    cube: Entries, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = CpuDevice.rounds
    dropped: list[str] = []

    def rounds(self: CpuDevice, work: Any, kernels: Any, **options: Any) -> Rounds:
        found = original(self, work, kernels, **options)
        if options["max_rounds"] != 25 or dropped or found.table is None:
            return found
        dropped.append(next(name for name in kernels if name not in LIBRARY))
        return Rounds(found.table, found.facts, {**found.failed, dropped[0]: "wrong after timing"})

    monkeypatch.setattr(CpuDevice, "rounds", rounds)
    sweep = sharing(cube)
    is_right(sweep, cube, rng)
    assert dropped
    assert sweep.result.best.ways[0].name not in dropped
    assert any("dropped out of the rounds: wrong after timing" in note for note in sweep.result.notes)


def test_without_a_compiler_libraries_are_the_answer() -> None:
    script = (
        "import json, numpy as np, tensorwise as tw\n"
        "A = np.zeros((5, 4, 3)); A[1, 2, 0] = A[4, 0, 2] = 2\n"
        "sweep = tw.tune_modes(A, n=2, budget_s=1.0, store=False)\n"
        "made = sweep[1](np.ones((5, 2)), np.ones((3, 2)))\n"
        "print(json.dumps([[op.kernel for op in sweep], made[:, 0].tolist(), sweep.result.notes]))\n"
    )
    environment = {**os.environ, "TENSORWISE_CC": "/nonexistent/cc"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kernels, made, notes = json.loads(done.stdout.splitlines()[-1])
    assert "tensorwise" not in kernels
    assert made == [2, 0, 2, 0]
    assert any("/nonexistent/cc" in note for note in notes)


def test_operators_are_saved_one_by_one(cube: Entries, rng: np.random.Generator, tmp_path: Path) -> None:
    sweep = sharing(cube)
    factors = [rng.random((extent, 5), dtype=np.float32) for extent in cube.shape]
    for mode, operator in enumerate(sweep):
        operator.save(tmp_path / f"{mode}.tw")
        others = [factor for place, factor in enumerate(factors) if place != mode]
        again = tw.load(tmp_path / f"{mode}.tw")
        assert operator.workload.reference(others).mismatch(again(*others)) is None
