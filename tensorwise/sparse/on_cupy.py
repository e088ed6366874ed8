"""CSR matrices of CuPy whose products are tuned by being used."""

from functools import cache
from typing import Any, Final, final

from tensorwise.errors import MissingExtraError
from tensorwise.sparse.gpu import GpuCsr, GpuLibrary, GpuProducts
from tensorwise.sparse.summary import Tuning
from tensorwise.toolchain.gpu import Gpu, Held, find_gpu

try:
    import cupy
    import cupyx.scipy.sparse as cupy_sparse
except ImportError as error:
    raise MissingExtraError("CuPy", "cuda", "sparse matrices on a GPU") from error


@final
class CupyTimer:
    """Two events on CuPy's current stream."""

    def __init__(self) -> None:
        self._begin, self._end = cupy.cuda.Event(), cupy.cuda.Event()

    def start(self) -> None:
        """Queue the first event."""
        self._begin.record()

    def stop(self) -> None:
        """Queue the second one."""
        self._end.record()

    def nanoseconds(self) -> int | None:
        """What lay between them, or None while the GPU is not done."""
        if not self._end.done:
            return None
        return int(1e6 * cupy.cuda.get_elapsed_time(self._begin, self._end))


@final
class Cupy(GpuLibrary):
    """CuPy's arrays."""

    name = "cuSPARSE by CuPy"

    def gpu(self) -> Gpu:
        return find_gpu(cupy.cuda.runtime.getDevice())

    def empty(self, shape: tuple[int, ...], like: Held) -> Held:
        return cupy.empty(shape, like.dtype)

    def address(self, array: Held) -> int:
        here = array.device.id == cupy.cuda.runtime.getDevice()
        return int(array.data.ptr) if here and array.flags.c_contiguous else 0

    def stream(self) -> int:
        return int(cupy.cuda.get_current_stream().ptr)

    def timer(self) -> CupyTimer:
        return CupyTimer()

    def is_close(self, made: Held, expected: Held, share: float) -> bool:
        finite = cupy.where(cupy.isfinite(expected), cupy.abs(expected), 0)
        return bool(
            cupy.allclose(made, expected, rtol=share, atol=share * float(finite.max()), equal_nan=True)
        )


CUPY: Final = Cupy()


@cache
def csr_class() -> Any:
    """Return the class, a subclass of CuPy's."""

    class CupyCsr(cupy_sparse.csr_matrix):  # type: ignore[misc]
        """``cupyx.scipy.sparse.csr_matrix`` whose products with dense vectors and matrices are tuned by being used.

        Results of two dimensions lie by rows where a program of this package computed them, by columns where CuPy did.
        """

        def __mul__(self, other: Any) -> Any:
            if not isinstance(other, cupy.ndarray):
                return super().__mul__(other)
            known = self.__dict__.get("_tensorwise")
            if known is None:
                known = self.__dict__["_tensorwise"] = GpuProducts(CUPY)
            index = self.indices.dtype.name if self.indices.dtype == self.indptr.dtype else ""
            by_cupy = super().__mul__
            read = GpuCsr(
                self.data, self.indices, self.indptr, self.shape, self.data.dtype.name, index, by_cupy
            )
            return known.multiply(read, other, other.dtype.name)

        @property
        def tuning(self) -> Tuning:
            """What is known of this matrix's products; it prints as a table."""
            known = self.__dict__.get("_tensorwise")
            return Tuning((), 0.0, 0) if known is None else known.tuning

    return CupyCsr


def csr_matrix_of(matrix: Any) -> Any:
    """Return a sparse matrix of CuPy as the class here, sharing its arrays; another format than CSR is converted."""
    if isinstance(matrix, csr_class()):
        return matrix
    given = matrix if matrix.format == "csr" else matrix.tocsr()
    return csr_class()((given.data, given.indices, given.indptr), shape=given.shape)
