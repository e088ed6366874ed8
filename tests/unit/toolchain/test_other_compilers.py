"""Generated kernels and the C files of the package compile with clang and zig as well, and give the same numbers."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

KERNELS: Final = """
import numpy as np
import scipy.sparse as sp
import tensorwise as tw
from tensorwise.sparse.table import IN_PLACE
from tensorwise.toolchain.compiler import find_compiler
from tensorwise.toolchain.runtime import DRIVER

rng = np.random.default_rng(3)
A = sp.random_array((60, 48), density=0.15, format="csr", rng=rng)
x, B, D, E = rng.random(48), rng.random((48, 24)), rng.random((60, 24)), rng.random((24, 48))
spmv, spmm = "C[i] += A[i,k] * B[k]", "C[i,j] += A[i,k] * B[k,j]"
blocks = "(i,k) -> U(i1) C(k1) U(i0:2) U(k0:2)"
cases = [
    (spmv, {}, (x,), A @ x),
    (spmv, {"schedule": "parallel(i) unroll(k,2)"}, (x,), A @ x),
    (spmv, {"format": "(i,k) -> U(k) C(i)", "schedule": "reorder(k,i) parallel(k,dynamic,64)"}, (x,), A @ x),
    (spmv, {"format": "(i,k) -> C(k) C(i)", "schedule": "reorder(k,i)"}, (x,), A @ x),
    (spmm, {"sizes": {"j": 24}, "schedule": "parallel(i,dynamic,16) tile(j,8x2)"}, (B,), A @ B),
    (spmm, {"sizes": {"j": 24}, "format": blocks,
        "schedule": "reorder(i1,j,k1,i0,k0) unroll(i0) unroll(k0) tile(j,2x4)"}, (B,), A @ B),
    ("C[i,k] += A[i,k] * B[i,j] * D[j,k]", {"sizes": {"j": 24}}, (D, E), A.toarray() * (D @ E)),
]
DRIVER.load()
IN_PLACE.load()
for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5), ("float16", 1e-2)):
    for einsum, more, operands, expected in cases:
        if dtype == "float16" and "parallel(k" in more.get("schedule", ""):
            continue
        kernel = tw.compile(einsum, A=A.astype("float32" if dtype == "float16" else dtype), dtype=dtype, **more)
        result = kernel(*(operand.astype(dtype) for operand in operands))
        result = result.toarray() if sp.issparse(result) else result
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance, err_msg=f"{einsum} {more}")
print(find_compiler().kind)
"""


def clang() -> str | None:
    return shutil.which("clang")


def zig() -> str | None:
    found = importlib.util.find_spec("ziglang")
    if not found or not found.submodule_search_locations:
        return None
    return f"{Path(found.submodule_search_locations[0]) / 'zig'} cc"


@pytest.mark.parametrize("find", [clang, zig])
def test_kernels_agree(find, tmp_path: Path) -> None:
    command = find()
    if command is None:
        pytest.skip(f"{find.__name__} is not there")
    about = {**os.environ, "TENSORWISE_CC": command, "TENSORWISE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", KERNELS], env=about, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == f"{find.__name__}\n"
