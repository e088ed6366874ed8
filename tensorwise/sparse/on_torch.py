"""CSR tensors of PyTorch on a GPU whose products are tuned by being used."""

from typing import Any, Final, final

from tensorwise.errors import MissingExtraError
from tensorwise.sparse.gpu import GpuCsr, GpuLibrary, GpuProducts
from tensorwise.sparse.summary import Tuning
from tensorwise.toolchain.gpu import Gpu, Held, check_cupy, find_gpu

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise MissingExtraError("torch", "torch", "sparse tensors on a GPU") from error


@final
class TorchTimer:
    """Two events on PyTorch's current stream."""

    def __init__(self) -> None:
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def start(self) -> None:
        """Queue the first event."""
        self._begin.record()

    def stop(self) -> None:
        """Queue the second one."""
        self._end.record()

    def nanoseconds(self) -> int | None:
        """What lay between them, or None while the GPU is not done."""
        return int(1e6 * self._begin.elapsed_time(self._end)) if self._end.query() else None


@final
class Torch(GpuLibrary):
    """PyTorch's tensors."""

    name = "cuSPARSE by PyTorch"

    def gpu(self) -> Gpu:
        return find_gpu(torch.cuda.current_device())

    def empty(self, shape: tuple[int, ...], like: Held) -> Held:
        return torch.empty(shape, dtype=like.dtype, device=like.device)

    def address(self, array: Held) -> int:
        here = array.device.type == "cuda" and array.device.index == torch.cuda.current_device()
        return int(array.data_ptr()) if here and array.is_contiguous() else 0

    def stream(self) -> int:
        return int(torch.cuda.current_stream().cuda_stream)

    def timer(self) -> TorchTimer:
        return TorchTimer()

    def is_close(self, made: Held, expected: Held, share: float) -> bool:
        largest = float(torch.where(expected.isfinite(), expected.abs(), 0).max())
        return bool(torch.allclose(made, expected, rtol=share, atol=share * largest, equal_nan=True))


PYTORCH: Final = Torch()


@final
class TorchCsr:
    """A CSR tensor on a GPU: ``A @ X`` takes and returns tensors.

    Its component tensors are read where they lie at each call. Where gradients are wanted PyTorch computes.

    Args:
        tensor: of layout ``sparse_csr`` and two dimensions, on a GPU.

    Attributes:
        tensor: the same tensor.

    Raises:
        MissingExtraError: CuPy is not installed, which compiles and launches programs.
    """

    def __init__(self, tensor: Tensor) -> None:
        check_cupy("products of tensors on a GPU")
        self.tensor = tensor
        self._products = GpuProducts(PYTORCH)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.tensor.shape
        return rows, columns

    def __matmul__(self, other: Any) -> Any:
        if not isinstance(other, Tensor):
            return NotImplemented
        tensor = self.tensor
        wants = torch.is_grad_enabled() and (tensor.requires_grad or other.requires_grad)
        if wants or other.layout != torch.strided:
            return tensor @ other
        indices, indptr, data = tensor.col_indices(), tensor.crow_indices(), tensor.values()
        index = _name(indices) if indices.dtype == indptr.dtype else ""
        read = GpuCsr(data, indices, indptr, self.shape, _name(data), index, tensor.__matmul__)
        return self._products.multiply(read, other, _name(other))

    @property
    def tuning(self) -> Tuning:
        """What is known of this matrix's products; it prints as a table."""
        return self._products.tuning

    def __repr__(self) -> str:
        return f"TorchCsr({self.tensor!r})"


def _name(tensor: Tensor) -> str:
    """A tensor's dtype as NumPy calls it."""
    return str(tensor.dtype).removeprefix("torch.")
