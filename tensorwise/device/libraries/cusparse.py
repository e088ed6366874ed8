"""cuSPARSE through CuPy: what a user with a GPU has without us. For products with a matrix, or with a vector."""

import time
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from tensorwise.errors import InputError, MissingExtraError
from tensorwise.program.kernel import BoundKernel, Kernel
from tensorwise.program.ops import NAMED
from tensorwise.program.workload import Workload
from tensorwise.toolchain.gpu import Gpu, Held

OPERATIONS = tuple(NAMED[op] for op in ("spmv", "spmm"))


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
            entries.values,
            entries.coordinates[1].astype(np.int32),
            entries.row_pointers().astype(np.int32),
        )
        self._matrix: Any = sparse.csr_matrix(tuple(map(cupy.asarray, parts)), shape=entries.shape)
        self.conversion_s = time.perf_counter() - start
        self.bytes_held = sum(part.nbytes for part in parts)
        self._cupy, self._gpu = cupy, gpu
        self.result: Held = None
        self._vector = len(workload.output_shape) == 1

    def ready(self, operands: Sequence[np.ndarray], out: np.ndarray) -> Callable[[], object]:
        """Return a call that computes from ``operands``, which are brought to the GPU once; see ``fetch``."""
        # CuPy hands matrices to cuSPARSE by columns; a copy in each call would be our doing, not its.
        held: Held = self._cupy.asarray(operands[0], order="C" if self._vector else "F")

        def call() -> None:
            self.result = self._matrix @ held

        return call

    def fetch(self, out: np.ndarray) -> None:
        """Wait for the last call and copy its result into ``out``."""
        self._gpu.synchronize()
        out[:] = self.result.get()

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Compute into ``out``; operands and result are copied. See :class:`BoundKernel`."""
        self.ready(operands, out)()
        self.fetch(out)
