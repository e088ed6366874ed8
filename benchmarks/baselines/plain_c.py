"""What a C programmer writes: ``gcc -O3 -march=native -fopenmp`` loops over rows, dynamic chunks of 32."""

import ctypes
import functools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.errors import CompilerError
from tensorwise.program.kernel import BoundKernel
from tensorwise.program.workload import Workload

from .rows import Rows, kind_of, rows_of

_HEAD = """
#include <stdint.h>
void run(int64_t rows, int64_t width, int threads, const int64_t *pointers, const REAL *values,
         const INDEX *const *columns, const REAL *const *dense, REAL *out)
{
#pragma omp parallel for schedule(dynamic, 32) num_threads(threads)
    for (int64_t i = 0; i < rows; i++) {
"""
_TAIL = """
    }
}
"""
_BODY = {
    "spmv": """
        REAL sum = 0;
        for (int64_t p = pointers[i]; p < pointers[i + 1]; p++)
            sum += values[p] * dense[0][columns[0][p]];
        out[i] = sum;
""",
    "spmm": """
        REAL *row = out + i * width;
        for (int64_t j = 0; j < width; j++)
            row[j] = 0;
        for (int64_t p = pointers[i]; p < pointers[i + 1]; p++) {
            const REAL value = values[p], *b = dense[0] + columns[0][p] * width;
            for (int64_t j = 0; j < width; j++)
                row[j] += value * b[j];
        }
""",
    "sddmm": """
        const REAL *left = dense[0] + i * width;
        for (int64_t p = pointers[i]; p < pointers[i + 1]; p++) {
            const REAL *right = dense[1] + columns[0][p] * width;
            REAL sum = 0;
            for (int64_t k = 0; k < width; k++)
                sum += left[k] * right[k];
            out[p] = values[p] * sum;
        }
""",
}


def _mttkrp(factors: int) -> str:
    pointers = "\n".join(
        f"            const REAL *f{n} = dense[{n}] + columns[{n}][p] * width;" for n in range(factors)
    )
    product = " * ".join(["values[p]", *(f"f{n}[r]" for n in range(factors))])
    return f"""
        REAL *row = out + i * width;
        for (int64_t r = 0; r < width; r++)
            row[r] = 0;
        for (int64_t p = pointers[i]; p < pointers[i + 1]; p++) {{
{pointers}
            for (int64_t r = 0; r < width; r++)
                row[r] += {product};
        }}
"""


class PlainCKernel(LibraryKernel):
    """Plain C loops for SpMV, SpMM, SDDMM and MTTKRP."""

    name = "plain_c"
    package = "gcc"

    @classmethod
    def installed(cls) -> bool:
        """Whether gcc is found."""
        return shutil.which("gcc") is not None

    def why_not(self, workload: Workload) -> str | None:
        """SpMV, SpMM, SDDMM and MTTKRP."""
        return None if kind_of(workload) else "there is no plain C loop for it"

    def bind(self, workload: Workload, threads: int) -> BoundKernel:
        """Compile apart, so that ``conversion_s`` is conversion only."""
        start = time.perf_counter()
        if self.installed() and self.why_not(workload) is None:
            _compiled(workload)
        compile_s = time.perf_counter() - start
        bound = super().bind(workload, threads)
        assert isinstance(bound, _Bound)
        bound.compile_s = compile_s
        return bound

    def convert(self, workload: Workload, threads: int) -> BoundKernel:
        """Sort the entries by output row."""
        return _Bound(_compiled(workload), rows_of(workload), threads)


class _Bound(BoundKernel):
    compile_s = 0.0

    def __init__(self, function: Any, rows: Rows, threads: int) -> None:
        self._function, self._rows, self._threads = function, rows, threads
        self.bytes_held = rows.held_bytes
        self._columns = (ctypes.c_void_p * len(rows.columns))(*(c.ctypes.data for c in rows.columns))

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Call the loop."""
        rows = self._rows
        matrices = rows.matrices(operands)
        dense = (ctypes.c_void_p * len(matrices))(*(m.ctypes.data for m in matrices))
        self._function(
            len(rows.pointers) - 1,
            rows.width,
            self._threads,
            rows.pointers.ctypes.data,
            rows.values.ctypes.data,
            self._columns,
            dense,
            out.ctypes.data,
        )


def _compiled(workload: Workload) -> Any:
    rows = rows_of(workload)
    kind = "spmv" if rows.kind == "spmm" and rows.width == 1 else rows.kind
    body = _mttkrp(len(rows.factors)) if kind == "mttkrp" else _BODY[kind]
    real = {"float32": "float", "float64": "double"}[workload.dtype.name]
    index = {4: "int32_t", 8: "int64_t"}[rows.columns[0].itemsize]
    return _library(_HEAD + body + _TAIL, real, index)


@functools.cache
def _library(text: str, real: str, index: str) -> Any:
    with tempfile.TemporaryDirectory(prefix="plain-c-") as folder:
        source, library = Path(folder) / "loop.c", Path(folder) / "loop.so"
        source.write_text(text)
        flags = ["-O3", "-march=native", "-fopenmp", "-fPIC", "-shared", f"-DREAL={real}", f"-DINDEX={index}"]
        command = ["gcc", *flags, str(source), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise CompilerError(f"gcc refused the plain C baseline: {done.stderr[:500]}")
        function = ctypes.CDLL(str(library)).run
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [integer, integer, ctypes.c_int, *[pointer] * 5]
    function.restype = None
    return function
