"""A budget is wall time: whatever a tuning waits for, it answers when the budget is spent, and rightly.

Limits in these tests are stops, far from what is needed: machines may be busy.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.device import timing
from tensorwise.device.cpu import CpuDevice
from tensorwise.device.library import LIBRARY
from tensorwise.store.store import Store
from tensorwise.tuning.modes import tune_modes
from tensorwise.tuning.operator import Operator
from tensorwise.tuning.tune import tune

HANG = 1000.0
STOP_S = 40.0
"""What is waited for here takes HANG seconds; a tuning that waits for it takes longer than this."""


@pytest.fixture
def matrix() -> sp.csr_array:
    return sp.random_array(
        (300, 200), density=0.05, format="csr", rng=np.random.default_rng(0), dtype=np.float32
    )


def bounded(matrix: sp.csr_array, op: str = "spmv", **options: Any) -> Operator:
    begin = time.monotonic()
    operator = tune(matrix, op, **({"budget_s": 1.0, "threads": 1, "store": False} | options))
    assert time.monotonic() - begin < STOP_S
    operand = np.ones(200 if op == "spmv" else (200, 3), np.float32)
    np.testing.assert_allclose(operator(operand), matrix @ operand, rtol=1e-4, atol=1e-4)
    assert operator.result is not None
    json.dumps(operator.result.to_json())
    return operator


@pytest.fixture
def another_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another process holds the right to time."""
    monkeypatch.setattr(timing, "cache_dir", lambda: tmp_path)
    script = (
        "import sys, time; from pathlib import Path; from tensorwise.device import timing\n"
        "timing.cache_dir = lambda: Path(sys.argv[1])\n"
        "with timing.measuring_slot(): print('held', flush=True); time.sleep(1000)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    yield
    other.kill()
    other.wait()
    other.stdout.close()


def test_another_process_keeps_timing(another_times: None, matrix: sp.csr_array) -> None:
    operator = bounded(matrix, budget_s=6.0)
    result = operator.result
    assert result is not None
    assert result.waited_s > 0
    assert f"waiting {result.waited_s:.1f} s" in operator.report()
    assert result.to_json()["waited_s"] == result.waited_s
    assert any("budget was spent" in note for note in result.notes)
    assert not result.verified


def test_all_modes_have_one_budget(another_times: None) -> None:
    rng = np.random.default_rng(0)
    a = (rng.random((9, 8, 7)) < 0.2) * rng.random((9, 8, 7), dtype=np.float32)
    begin = time.monotonic()
    sweep = tune_modes(a, n=3, budget_s=3.0, threads=1, store=False)
    assert time.monotonic() - begin < STOP_S
    factors = [rng.random((extent, 3), dtype=np.float32) for extent in a.shape]
    made = sweep[1](factors[0], factors[2])
    np.testing.assert_allclose(made, np.einsum("ikl,ir,lr->kr", a, factors[0], factors[2]), rtol=1e-4)


def test_another_thread_keeps_timing(matrix: sp.csr_array) -> None:
    import threading

    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with timing.measuring_slot():
            held.set()
            done.wait(HANG)

    other = threading.Thread(target=hold)
    other.start()
    try:
        assert held.wait(STOP_S)
        bounded(matrix)
    finally:
        done.set()
        other.join()


def test_the_measuring_process_does_not_start(matrix: sp.csr_array, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = subprocess.Popen
    monkeypatch.setattr(
        "tensorwise.device.cpu.subprocess.Popen",
        lambda command, **options: begin([sys.executable, "-c", "import time; time.sleep(1000)"], **options),
    )
    operator = bounded(matrix)
    assert operator.result is not None
    assert operator.result.waited_s > 0


def test_peaks_take_long(matrix: sp.csr_array, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tensorwise.device import roofline

    monkeypatch.setattr(roofline, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(roofline, "_PROBE_S", 0.05)
    monkeypatch.setattr(roofline, "_REPEATS", 10_000)
    roofline._roofline_at.cache_clear()
    try:
        bounded(matrix, budget_s=2.0)
    finally:
        roofline._roofline_at.cache_clear()


def test_another_process_keeps_writing_to_the_store(matrix: sp.csr_array, tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "store.sqlite"
    with Store(path) as store:
        with sqlite3.connect(path, isolation_level=None) as other:
            other.execute("BEGIN EXCLUSIVE")
            bounded(matrix, store=store, budget_s=4.0)
            other.execute("ROLLBACK")
        other.close()


def test_a_candidate_that_takes_long(matrix: sp.csr_array, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the worker does is cut short."""
    asked = CpuDevice._ask

    def slowly(self: CpuDevice, work: Any, request: Any) -> Any:
        worker = self._ready(work)
        worker.process.send_signal(19)  # SIGSTOP
        return asked(self, work, request)

    monkeypatch.setattr(CpuDevice, "_ask", slowly)
    bounded(matrix, budget_s=6.0)


def test_what_nothing_else_computes_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TENSORWISE_CACHE_DIR", str(tmp_path / "cache"))  # nothing is compiled
    monkeypatch.setattr(LIBRARY["scipy"], "why_not", lambda self, work: "not asked")
    a = sp.random_array((60, 50), density=0.2, format="csr", rng=np.random.default_rng(0), dtype=np.float32)
    operator = tune(a, "spmv", budget_s=1e-3, threads=1, store=False)
    np.testing.assert_allclose(operator(np.ones(50, np.float32)), a @ np.ones(50, np.float32), rtol=1e-4)


COMPILERS = {
    "fails": "echo boom >&2; exit 1",
    "writes rubbish": 'while [ $# -gt 0 ]; do [ "$1" = -o ] && head -c 5000 /dev/urandom > "$2"; shift; done; exit 0',
    "writes nothing": "exit 0",
    "fails later": 'case "$*" in *probe*) exec gcc "$@";; esac\necho nope >&2; exit 1',
    "writes rubbish later": 'case "$*" in *probe*) exec gcc "$@";; esac\n'
    'while [ $# -gt 0 ]; do [ "$1" = -o ] && echo rubbish > "$2"; shift; done; exit 0',
    "hangs at once": "sleep 1000",
    "hangs later": 'case "$*" in *probe*) exec gcc "$@";; esac\nsleep 1000',
    "crashes": "kill -SEGV $$",
    "floods": "yes flood >&2",
}
TUNED = ("hangs at once", "hangs later", "fails later")
SCRIPT = """
import json, sys, numpy as np, scipy.sparse as sp, tensorwise as tw
from tensorwise.errors import TensorwiseError
from tensorwise.toolchain import cache, compiler
compiler.PROOF_S, compiler.VERSION_S = 3.0, 3.0
A = sp.random_array((300, 200), density=.05, format="csr", rng=np.random.default_rng(0), dtype=np.float32)
B = np.ones(200, np.float32)
if sys.argv[1] == "tune":
    op = tw.tune(A, "spmv", trials=3, budget_s=2, threads=2, store=False)
    assert np.allclose(op(B), A @ B, rtol=1e-4, atol=1e-4)
cache._COMPILE_TIMEOUT_S, compiler.PROOF_S, compiler.VERSION_S = 1.0, 1.0, 1.0
try:
    op = tw.compile("C[i] += A[i,k] * B[k]", A=A, format="(i,k) -> U(i) C(k)")
    print("compiled")
except TensorwiseError as error:
    print(type(error).__name__, "TENSORWISE_CC" in str(error) or "nope" in str(error) or "boom" in str(error))
"""


@pytest.mark.parametrize("says_its_version", [True, False])
@pytest.mark.parametrize("how", COMPILERS)
def test_compilers_that_do_not_do_what_they_should(how: str, says_its_version: bool, tmp_path: Path) -> None:
    """A tuning answers rightly within its budget, and ``compile`` says what is wrong."""
    if not says_its_version and how not in ("hangs at once", "crashes", "floods"):
        pytest.skip("the same")
    cc = tmp_path / "cc"
    version = 'case "$*" in *--version*) echo "gcc odd 9"; exit 0;; esac\n' if says_its_version else ""
    cc.write_text(f"#!/bin/sh\n{version}{COMPILERS[how]}\n")
    cc.chmod(0o755)
    environment = {
        **os.environ, "TENSORWISE_CC": str(cc), "TENSORWISE_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path]),
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, "tune" if how in TUNED else "compile"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    said = ran.stdout.split()
    assert said[0] in ("CompilerError", "CompilerTimeoutError"), ran.stdout
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout
    assert str(cc) not in left
