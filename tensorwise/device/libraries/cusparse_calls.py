"""cuSPARSE's C interface, called by hand: CuPy gives dense operands by columns only, and one algorithm.

Its library is the one that CuPy has loaded. A call holds what it needs, converts nothing and returns before the GPU is done.
"""

import ctypes
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np

from tensorwise.errors import MeasurementError
from tensorwise.toolchain.gpu import Held

LIBRARY: Final = "libcusparse.so.12"
"""Of CUDA 12 and of CUDA 13."""
ALGORITHMS: Final = {"default": 0, "csr 1": 4, "csr 2": 6, "csr 3": 12}
"""Of products with a dense matrix, by CUSPARSE_SPMM_*."""
_INDEX_32, _BASE_0, _BY_COLUMNS, _BY_ROWS, _AS_IT_IS, _TRANSPOSED = 2, 0, 1, 2, 0, 1
_TYPES: Final = {"float32": (0, ctypes.c_float), "float64": (1, ctypes.c_double)}
"""CUDA's number of an element type, and C's scalar."""
Call: TypeAlias = Callable[[], Held]


class Cusparse:
    """The library with a handle of its own. Raises OSError where it is not found, ImportError without CuPy."""

    def __init__(self) -> None:
        import cupy
        from cupy_backends.cuda.libs import cusparse as loaded

        self._cupy, self._loaded, self._library = cupy, loaded, ctypes.CDLL(LIBRARY)
        self._handle = self._create("cusparseCreate")

    def spmm(
        self, matrix: Sequence[Held], shape: tuple[int, int], dense: Held, algorithm: int, by_rows: bool
    ) -> Call:
        """Return a call that multiplies a CSR matrix with a dense one.

        Args:
            matrix: row pointers, columns, both int32, and values, in the GPU's memory.
            shape: of the matrix.
            dense: (columns, features).
            algorithm: one of ALGORITHMS.
            by_rows: whether both dense matrices lie by rows.

        Raises MeasurementError where cuSPARSE refuses.
        """
        order = "C" if by_rows else "F"
        held = self._cupy.array(dense, order=order)
        out = self._cupy.zeros((shape[0], dense.shape[1]), dense.dtype, order=order)
        a, b, c = self._sparse(matrix, shape), self._dense(held, by_rows), self._dense(out, by_rows)
        return self._call("SpMM", (_AS_IT_IS, _AS_IT_IS), (a, b, c), algorithm, out, (*matrix, held))

    def sddmm(self, matrix: Sequence[Held], shape: tuple[int, int], left: Held, right: Held) -> Call:
        """Return a call that takes, for each entry (i, k) of a CSR pattern, row i of ``left`` times row k of ``right``.

        Args:
            matrix: as of ``spmm``; the values are the result.
            left, right: (rows, features) and (columns, features), by rows.

        Raises MeasurementError where cuSPARSE refuses.
        """
        a, x, y = self._sparse(matrix, shape), self._dense(left, True), self._dense(right, True)
        return self._call(
            "SDDMM", (_AS_IT_IS, _TRANSPOSED), (x, y, a), 0, matrix[2], (*matrix[:2], left, right)
        )

    def _call(
        self,
        name: str,
        how: tuple[int, int],
        operands: Sequence[Any],
        algorithm: int,
        result: Held,
        kept: Sequence[Held],
    ) -> Call:
        """Prepare a product, run it once, and return what runs it again."""
        kind, scalar = _TYPES[str(result.dtype)]
        one, zero, first, second, third = scalar(1), scalar(0), *operands
        given = (
            self._handle, *how, ctypes.byref(one), first, second, ctypes.byref(zero), third, kind, algorithm,
        )  # fmt: skip
        run = getattr(self._library, f"cusparse{name}")
        size = ctypes.c_size_t()
        self._use_stream()
        self._check(getattr(self._library, f"cusparse{name}_bufferSize")(*given, ctypes.byref(size)), name)
        buffer = self._cupy.empty(max(1, size.value), np.uint8)
        at = ctypes.c_void_p(buffer.data.ptr)
        # Not all algorithms have something to prepare; those that have are faster for it.
        getattr(self._library, f"cusparse{name}_preprocess")(*given, at)
        self._check(run(*given, at), name)
        held = (buffer, one, zero, kept)

        def call() -> Held:
            assert held
            self._use_stream()
            run(*given, at)
            return result

        return call

    def _sparse(self, matrix: Sequence[Held], shape: tuple[int, int]) -> ctypes.c_void_p:
        pointers, columns, values = matrix
        sizes = (ctypes.c_int64(size) for size in (*shape, len(columns)))
        arrays = (ctypes.c_void_p(array.data.ptr) for array in (pointers, columns, values))
        kind = _TYPES[str(values.dtype)][0]
        return self._create("cusparseCreateCsr", *sizes, *arrays, _INDEX_32, _INDEX_32, _BASE_0, kind)

    def _dense(self, array: Held, by_rows: bool) -> ctypes.c_void_p:
        rows, columns = array.shape
        sizes = (ctypes.c_int64(size) for size in (rows, columns, columns if by_rows else rows))
        order = _BY_ROWS if by_rows else _BY_COLUMNS
        kind = _TYPES[str(array.dtype)][0]
        return self._create("cusparseCreateDnMat", *sizes, ctypes.c_void_p(array.data.ptr), kind, order)

    def _create(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """Make a handle or a description; it is destroyed when nobody needs it any more."""
        made = ctypes.c_void_p()
        self._check(getattr(self._library, name)(ctypes.byref(made), *arguments), name)
        destroy = {"cusparseCreateCsr": "cusparseDestroySpMat", "cusparseCreateDnMat": "cusparseDestroyDnMat"}
        if name in destroy:
            weakref.finalize(
                made, getattr(self._library, destroy[name]), ctypes.c_void_p(made.value)
            ).atexit = False
        return made

    def _use_stream(self) -> None:
        self._library.cusparseSetStream(
            self._handle, ctypes.c_void_p(self._cupy.cuda.get_current_stream().ptr)
        )

    @staticmethod
    def _check(status: int, name: str) -> None:
        if status:
            raise MeasurementError(f"cuSPARSE refused {name} with status {status}")


@cache
def find_cusparse() -> Cusparse | None:
    """Return cuSPARSE, None where it cannot be called by hand."""
    try:
        return Cusparse()
    except (ImportError, OSError, AttributeError):
        return None
