"""Arrays between guards: the same contents, and no memory behind them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tensorwise.device import guards
from tensorwise.device.guards import guarded
from tensorwise.device.worker import Bench, save_workload
from tensorwise.lower.program import program_for
from tensorwise.program.workload import workload
from tensorwise.runtime.generated import BoundProgram, GeneratedKernel
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.elements import value_dtype


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_copies_are_what_they_copy(dtype: str) -> None:
    kind = value_dtype(dtype)
    rng = np.random.default_rng(0)
    plain = [rng.standard_normal(shape).astype(kind) for shape in ((5,), (3, 7), (0, 4), (1024, 3))]
    given = [*plain, np.asfortranarray(plain[1]), np.arange(4, dtype=np.int32)]
    for array, copy in zip(given, guarded(given), strict=True):
        assert copy is not array
        assert (copy.dtype, copy.shape) == (array.dtype, array.shape)
        assert np.array_equal(copy, array)
        assert (copy.flags.c_contiguous, copy.flags.f_contiguous) == (
            array.flags.c_contiguous, array.flags.f_contiguous,
        )  # fmt: skip
        assert copy.flags.writeable
        assert (copy.ctypes.data + copy.nbytes) % 4096 == 0 or not copy.nbytes
        assert copy.ctypes.data % copy.itemsize == 0


def test_arrays_that_are_too_large_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "available_bytes", lambda: 2**15)
    array = np.zeros(3)
    assert guarded([array])[0] is array


def test_first_runs_of_generated_code_are_guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = entries_from(np.eye(5, dtype=np.float32))
    save_workload(workload("spmm", entries, n=3), tmp_path)
    bench = Bench.load({"load": str(tmp_path), "seed": 0})
    bound = GeneratedKernel(program_for(bench.workload, "(i,k) -> U(i) C(k)", "")).bind(bench.workload, 1)
    assert bench.verify(bound, lambda _: None, 1.0)[0] is None
    ends: list[int] = []

    def run(_: BoundProgram, operands: list[np.ndarray], out: np.ndarray) -> None:
        ends.extend(array.ctypes.data + array.nbytes for array in (*operands, out))

    monkeypatch.setattr(BoundProgram, "run", run)
    assert bench.verify(bound, lambda _: None, 1.0)[0] is not None, "nothing was computed"
    assert len(ends) == 2
    assert all(end % 4096 == 0 for end in ends)


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect of Linux")
@pytest.mark.parametrize("place", [12, -4096])
def test_memory_beyond_ends_the_process(place: int) -> None:
    text = (
        "import ctypes, sys, numpy as np; from tensorwise.device.guards import guarded\n"
        "(a,) = guarded([np.zeros(3, np.float32)]); ctypes.c_float.from_address(a.ctypes.data + 8).value = 1\n"
        "print('inside', flush=True); ctypes.c_float.from_address(a.ctypes.data + int(sys.argv[1])).value\n"
        "print('outside')"
    )
    found = subprocess.run(
        [sys.executable, "-c", text, str(place)],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=False,
    )
    assert found.returncode == -signal.SIGSEGV
    assert found.stdout == "inside\n"
