"""What a Python programmer writes: Numba loops, parallel over rows. Needs the extra ``numba``."""

import functools
import importlib.util
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.errors import InputError
from tensorwise.program.workload import Workload
from tensorwise.runtime.kernel import BoundKernel

from .rows import Rows, kind_of, rows_of


class NumbaKernel(LibraryKernel):
    """Row-parallel Numba loops for SpMV, SpMM, SDDMM and MTTKRP."""

    name = "numba"
    package = "numba"
    extra = "numba"

    @classmethod
    def installed(cls) -> bool:
        """Whether numba is found (it is not imported)."""
        return importlib.util.find_spec("numba") is not None

    def why_not(self, workload: Workload) -> str | None:
        """SpMV, SpMM, SDDMM and MTTKRP, in float32 and float64."""
        if workload.halves:
            return "Numba compiles no loops over halves"
        return None if kind_of(workload) else "there is no Numba loop for it"

    def bind(self, workload: Workload, threads: int) -> BoundKernel:
        """Compile apart, so that ``conversion_s`` is conversion only."""
        bound = super().bind(workload, threads)
        assert isinstance(bound, _Bound)
        start = time.perf_counter()
        operands = [np.zeros(workload.shape(name), workload.dtype) for name in workload.dense]
        bound.run(operands, np.empty(workload.output_shape, workload.output_dtype))
        bound.compile_s = time.perf_counter() - start
        return bound

    def convert(self, workload: Workload, threads: int) -> BoundKernel:
        """Sort the entries by output row."""
        import numba

        if threads > numba.config.NUMBA_NUM_THREADS:
            raise InputError(f"numba has {numba.config.NUMBA_NUM_THREADS} threads, asked for {threads}")
        rows = rows_of(workload)
        return _Bound(_loops()[_loop_name(rows)], rows, threads)


class _Bound(BoundKernel):
    compile_s = 0.0

    def __init__(self, loop: Callable[..., None], rows: Rows, threads: int) -> None:
        self._loop, self._rows, self._threads = loop, rows, threads
        self.bytes_held = rows.held_bytes

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Call the loop."""
        import numba

        numba.set_num_threads(self._threads)
        self._loop(*self._arguments(self._rows.matrices(operands), out))

    def ready(self, operands: Sequence[np.ndarray], out: np.ndarray) -> Callable[[], object]:
        """Return ``run`` with its arguments in place."""
        import numba

        matrices = self._rows.matrices(operands)
        if not self._rows.shares(operands, matrices):
            return lambda: self.run(operands, out)
        numba.set_num_threads(self._threads)
        return functools.partial(self._loop, *self._arguments(matrices, out))

    def _arguments(self, matrices: Sequence[np.ndarray], out: np.ndarray) -> tuple[np.ndarray, ...]:
        rows = self._rows
        if rows.kind == "spmm" and rows.width == 1:
            return rows.pointers, rows.columns[0], rows.values, matrices[0].reshape(-1), out.reshape(-1)
        target = out if rows.kind == "sddmm" else out.reshape(len(rows.pointers) - 1, rows.width)
        return rows.pointers, *rows.columns, rows.values, *matrices, target


def _loop_name(rows: Rows) -> str:
    if rows.kind == "spmm" and rows.width == 1:
        return "spmv"
    return f"mttkrp{len(rows.factors)}" if rows.kind == "mttkrp" else rows.kind


@functools.cache
def _loops() -> dict[str, Callable[..., None]]:
    """The loops by name; reassociation is allowed, NaN and infinities mean what they say."""
    import numba

    jit: Any = numba.njit(parallel=True, fastmath={"reassoc", "contract"})
    prange = numba.prange

    @jit
    def spmv(pointers, columns, values, b, out):  # type: ignore[no-untyped-def]
        for i in prange(pointers.size - 1):
            total = values.dtype.type(0)
            for p in range(pointers[i], pointers[i + 1]):
                total += values[p] * b[columns[p]]
            out[i] = total

    @jit
    def spmm(pointers, columns, values, b, out):  # type: ignore[no-untyped-def]
        for i in prange(pointers.size - 1):
            out[i, :] = 0
            for p in range(pointers[i], pointers[i + 1]):
                value, k = values[p], columns[p]
                for j in range(out.shape[1]):
                    out[i, j] += value * b[k, j]

    @jit
    def sddmm(pointers, columns, values, left, right, out):  # type: ignore[no-untyped-def]
        for i in prange(pointers.size - 1):
            for p in range(pointers[i], pointers[i + 1]):
                j = columns[p]
                total = values.dtype.type(0)
                for k in range(left.shape[1]):
                    total += left[i, k] * right[j, k]
                out[p] = values[p] * total

    @jit
    def mttkrp2(pointers, k, l, values, b, d, out):  # type: ignore[no-untyped-def]  # noqa: E741
        for i in prange(pointers.size - 1):
            out[i, :] = 0
            for p in range(pointers[i], pointers[i + 1]):
                value, at_k, at_l = values[p], k[p], l[p]
                for r in range(out.shape[1]):
                    out[i, r] += value * b[at_k, r] * d[at_l, r]

    @jit
    def mttkrp3(pointers, k, l, m, values, b, d, e, out):  # type: ignore[no-untyped-def]  # noqa: E741
        for i in prange(pointers.size - 1):
            out[i, :] = 0
            for p in range(pointers[i], pointers[i + 1]):
                value, at_k, at_l, at_m = values[p], k[p], l[p], m[p]
                for r in range(out.shape[1]):
                    out[i, r] += value * b[at_k, r] * d[at_l, r] * e[at_m, r]

    @jit
    def mttkrp4(pointers, k, l, m, n, values, b, d, e, f, out):  # type: ignore[no-untyped-def]  # noqa: E741
        for i in prange(pointers.size - 1):
            out[i, :] = 0
            for p in range(pointers[i], pointers[i + 1]):
                value, at_k, at_l, at_m, at_n = values[p], k[p], l[p], m[p], n[p]
                for r in range(out.shape[1]):
                    out[i, r] += value * b[at_k, r] * d[at_l, r] * e[at_m, r] * f[at_n, r]

    return {
        "spmv": spmv,
        "spmm": spmm,
        "sddmm": sddmm,
        "mttkrp2": mttkrp2,
        "mttkrp3": mttkrp3,
        "mttkrp4": mttkrp4,
    }
