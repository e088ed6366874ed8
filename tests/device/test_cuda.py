"""The GPU as a device, its worker and tuning for it: this machine's, or a CuPy that runs kernels on the CPU.

The latter is ``tests/simt/fake``.
"""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tensorwise.device.cuda import CudaDevice
from tensorwise.device.libraries.cusparse_calls import ALGORITHMS, find_cusparse
from tensorwise.errors import CompilerError, InputError, MeasurementError, MissingExtraError
from tensorwise.front.cli import app
from tensorwise.lower.program import program_for
from tensorwise.program.workload import workload
from tensorwise.tensor.convert import entries_from
from tensorwise.toolchain.gpu import compiled, find_gpu
from tensorwise.tuning.gpu import tune_gpu
from tensorwise.tuning.tune import tune
from tests.simt.gpu import COMPILER

FAKE = Path(__file__).parents[1] / "simt" / "fake"
RNG = np.random.default_rng(4)
MATRIX = entries_from(((RNG.random((9, 7)) < 0.4) * RNG.standard_normal((9, 7))).astype("f4"))
SPMM = workload("spmm", MATRIX, n=6)
GOOD = "reorder(i,j,k) bind(i,block,8) tile(j,1x4) bind(j,thread,4)"
CSR = "(i,k) -> U(i) C(k)"
runner = CliRunner()


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("cupy", "cupyx")]:
        del sys.modules[name]
    find_gpu.cache_clear()
    find_cusparse.cache_clear()


def _has_gpu() -> bool:
    try:
        import cupy

        return bool(cupy.__version__ != "fake" and cupy.cuda.runtime.getDeviceCount())
    except Exception:  # no CuPy, or whatever one without a driver raises
        return False


HAS_GPU = _has_gpu()
only_imagined = pytest.mark.skipif(HAS_GPU, reason="no real GPU does that when it is asked to")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A CuPy without GPUs, for this process and its workers; where there is a real GPU, that one."""
    if HAS_GPU:
        monkeypatch.setenv("TENSORWISE_CACHE_DIR", str(tmp_path))
        yield
        return
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    _forget()
    monkeypatch.syspath_prepend(str(FAKE))
    monkeypatch.setenv("TENSORWISE_CACHE_DIR", str(tmp_path))
    yield
    _forget()


def test_measurements_are_verified(fake: None) -> None:
    refused = program_for(SPMM, CSR, "reorder(i,k,j) parallel(i)")
    with CudaDevice() as device:
        assert HAS_GPU or device.gpu.name == "H100"
        (library,) = device.measure(SPMM, ["cusparse"])
        first, third = device.measure(SPMM, [program_for(SPMM, CSR, GOOD), refused])
        assert (library.status, first.status, third.status) == ("ok", "ok", "refused")
        assert "bind(i,block,8)" in third.note
        assert first.conversion_s > 0
        assert device.compile_s > 0
        assert HAS_GPU or device.provenance["host"] == "NVIDIA H100 (imagined)"


@only_imagined
def test_a_spoiled_gpu_is_left_with_its_process(fake: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SPOILS", "1")
    wide = program_for(SPMM, CSR, "reorder(i,j,k) bind(i,block,2) tile(j,1x64) bind(j,thread,64) stage(k,4)")
    good = program_for(SPMM, CSR, GOOD)
    with CudaDevice() as device:
        before, crashed, after = device.measure(SPMM, [good, wide, good])
    assert (before.status, crashed.status, after.status) == ("ok", "crash", "ok")


def test_what_cannot_be_captured_is_called(fake: None) -> None:
    gpu, calls = find_gpu(), list[int]()

    def fails() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    assert gpu.captured(fails) is None
    replay = gpu.captured(lambda: calls.append(1))
    assert replay is not None
    assert calls == [1]


@pytest.mark.skipif(not HAS_GPU, reason="cuSPARSE takes a GPU")
def test_cusparse_by_hand_computes_the_same(fake: None) -> None:
    import cupy

    library, dense = find_cusparse(), RNG.standard_normal((7, 6)).astype("f4")
    assert library is not None
    parts = MATRIX.row_pointers().astype("i4"), MATRIX.coordinates[1].astype("i4"), MATRIX.values
    held, given = tuple(map(cupy.asarray, parts)), cupy.asarray(dense)
    for algorithm in ALGORITHMS.values():
        found = library.spmm(held, (9, 7), given, algorithm, True)()
        np.testing.assert_allclose(found.get(), MATRIX.to_scipy() @ dense, rtol=1e-5, atol=1e-6)
    left = RNG.standard_normal((9, 6)).astype("f4")
    found = library.sddmm((*held[:2], cupy.empty_like(held[2])), (9, 7), cupy.asarray(left), given)()
    row, column = MATRIX.coordinates
    np.testing.assert_allclose(found.get(), (left @ dense.T)[row, column], rtol=1e-5, atol=1e-6)


def test_without_cusparse_itself_cupy_is_asked(fake: None) -> None:
    if not HAS_GPU:
        assert find_cusparse() is None


def test_rounds_time_kernels_against_each_other(fake: None) -> None:
    with CudaDevice() as device:
        table = device.rounds(
            SPMM, {"mine": program_for(SPMM, CSR, GOOD), "cusparse": "cusparse"}, max_rounds=4
        ).table
    assert table is not None
    assert table.names == ("mine", "cusparse")
    assert len(table.seconds) == 4


def test_tuning_finds_a_program_that_is_right(fake: None) -> None:
    operator = tune(MATRIX, "spmm", n=6, trials=5, store=False, device="cuda")
    result = operator.result
    assert result is not None
    assert result.best_generated is not None
    assert result.best_generated.program.schedule.grid_bind is not None
    assert len(result.trials) == 5
    assert result.ratio > 0
    assert "cusparse" in result.baselines
    assert result.best.rounds
    assert "on cuda (NVIDIA H100 (imagined))" in result.text() or HAS_GPU
    json.dumps(result.to_json())
    given = RNG.standard_normal((7, 6)).astype("f4")
    np.testing.assert_allclose(operator(given), MATRIX.to_scipy() @ given, rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="only operators that run on a CPU"):
        operator.save("nowhere.tw")


def test_the_old_name_of_the_tuner_warns(fake: None) -> None:
    with pytest.warns(DeprecationWarning, match="device='cuda'"):
        result = tune_gpu(SPMM, trials=1, store=False)
    assert len(result.trials) == 1


def test_the_command_line_tunes_for_a_gpu(fake: None, tmp_path: Path) -> None:
    path = tmp_path / "a.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1.5\n3 2 2.5\n")
    asked = [
        "tune",
        str(path),
        "--op",
        "spmm",
        "--n",
        "4",
        "--device",
        "cuda",
        "--trials",
        "2",
        "--no-store",
        "--json",
    ]
    answer = runner.invoke(app, asked)
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout.splitlines()[-1])["device"] == "cuda"


@only_imagined
def test_what_is_missing_is_said(fake: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GPUS", "0")
    with pytest.raises(MeasurementError, match="no CUDA-capable device"):
        CudaDevice()
    with pytest.raises(MeasurementError, match="no CUDA-capable device"):
        find_gpu()
    with pytest.raises(CompilerError, match="NVRTC refused"):
        compiled("nonsense", "sm_90")


@only_imagined
def test_without_cupy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "cupy" else find(name, *a)
    )
    monkeypatch.setitem(sys.modules, "cupy", None)
    find_gpu.cache_clear()
    path = tmp_path / "a.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1.5\n3 2 2.5\n")
    answer = runner.invoke(app, ["tune", str(path), "--op", "spmm", "--device", "cuda"])
    assert answer.exit_code == 1
    assert "pip install 'tensorwise[cuda]'" in answer.output
    with pytest.raises(MissingExtraError, match=r"tensorwise\[cuda\]"):
        find_gpu()
