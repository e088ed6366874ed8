"""cuSPARSE: what a user with a GPU has without us, the fastest of its algorithms. For products with a matrix or a vector."""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np

from tensorwise.device.libraries.cusparse_calls import ALGORITHMS, Call, find_cusparse
from tensorwise.errors import InputError, MeasurementError, MissingExtraError
from tensorwise.program.ops import NAMED
from tensorwise.program.workload import Workload
from tensorwise.runtime.kernel import BoundKernel, Kernel
from tensorwise.toolchain.gpu import Gpu, Held

OPERATIONS = tuple(NAMED[op] for op in ("spmv", "spmm"))
TRIES: Final = 5
"""Calls of each algorithm before one is chosen."""


@final
class CusparseKernel(Kernel):
    """SpMV and SpMM of cuSPARSE, on a CSR matrix."""

    name = "cusparse"

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    @staticmethod
    def why_not(workload: Workload) -> str | None:
        """Return None when this routine can run ``workload``, else the reason in a few words."""
        if str(workload.assignment) not in OPERATIONS:
            return f"it computes {' or '.join(OPERATIONS)}"
        if max(*workload.entries.shape, workload.entries.nnz) >= 2**31:
            return "it is asked for indices of 32 bits only"
        return None if not workload.halves else "it is asked for float32 and float64 only"

    def bind(self, workload: Workload, threads: int = 1) -> "BoundCusparse":
        """Bring the matrix to the GPU.

        Raises InputError for other operations, MissingExtraError without CuPy.
        """
        if reason := self.why_not(workload):
            raise InputError(f"cusparse cannot run {workload.einsum}: {reason}; choose another kernel")
        return BoundCusparse(workload, self.gpu)


@final
class BoundCusparse(BoundKernel):
    """cuSPARSE with the matrix in the GPU's memory.

    Attributes:
        result: of the last call, in the GPU's memory.
    """

    def __init__(self, workload: Workload, gpu: Gpu) -> None:
        try:
            import cupy
            import cupyx.scipy.sparse as sparse
        except ImportError:
            raise MissingExtraError("CuPy", "cuda", "the library kernel 'cusparse'") from None
        start = time.perf_counter()
        entries = workload.entries
        parts = (
            entries.row_pointers().astype(np.int32),
            entries.coordinates[1].astype(np.int32),
            entries.values,
        )
        self._parts, self._shape = tuple(map(cupy.asarray, parts)), (entries.shape[0], entries.shape[1])
        pointers, columns, values = self._parts
        self._matrix: Any = sparse.csr_matrix((values, columns, pointers), shape=entries.shape)
        self.conversion_s = time.perf_counter() - start
        self.bytes_held = sum(part.nbytes for part in parts)
        self._cupy, self._gpu = cupy, gpu
        self.result: Held = None
        self._vector = len(workload.output_shape) == 1

    def ready(self, operands: Sequence[np.ndarray], out: np.ndarray) -> Callable[[], object]:
        """Return a call that computes from ``operands``, which are brought to the GPU once; see ``fetch``.

        Of the algorithms and layouts that cuSPARSE has for products of matrices it is the fastest one.
        """
        made = self._cupy_call(operands[0])
        if not self._vector and self._parts[2].size:
            tried = [*self._by_hand(self._cupy.asarray(operands[0])), made]
            made = min(tried, key=lambda call: min(self._gpu.seconds(call, TRIES)))

        def call() -> None:
            self.result = made()

        return call

    def _cupy_call(self, operand: np.ndarray) -> Call:
        # CuPy hands matrices to cuSPARSE by columns; a copy in each call would be our doing, not its.
        held: Held = self._cupy.asarray(operand, order="C" if self._vector else "F")
        return lambda: self._matrix @ held

    def _by_hand(self, dense: Held) -> list[Call]:
        """Calls of each algorithm on operands that lie by rows, and of the usual one on such by columns."""
        cusparse, calls = find_cusparse(), list[Call]()
        if cusparse is None:
            return calls
        for algorithm, by_rows in (
            *((one, True) for one in ALGORITHMS.values()),
            (ALGORITHMS["default"], False),
        ):
            with contextlib.suppress(MeasurementError):  # an algorithm that this version has not got
                calls.append(cusparse.spmm(self._parts, self._shape, dense, algorithm, by_rows))
        return calls

    def fetch(self, out: np.ndarray) -> None:
        """Wait for the last call and copy its result into ``out``."""
        self._gpu.synchronize()
        out[:] = self.result.get()

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Compute into ``out``; operands and result are copied. See :class:`BoundKernel`."""
        self.ready(operands, out)()
        self.fetch(out)
