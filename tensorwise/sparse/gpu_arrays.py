"""CSR matrices in a GPU's memory, given by CuPy or PyTorch."""

import sys
from typing import Any

from tensorwise.errors import InputError


def as_gpu_array(matrix: Any) -> Any | None:
    """Return a CSR matrix of CuPy or PyTorch on a GPU as one whose products are tuned by being used; None for others.

    Raises:
        InputError: it is a sparse tensor of another layout, or not on a GPU.
        MissingExtraError: tensors on a GPU need CuPy, too.
    """
    if type(matrix).__module__.startswith("cupyx.scipy.sparse"):
        from tensorwise.sparse.on_cupy import csr_matrix_of

        return csr_matrix_of(matrix)
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(matrix, torch.Tensor) or matrix.layout is torch.strided:
        return None
    if matrix.layout is not torch.sparse_csr or matrix.ndim != 2 or matrix.device.type != "cuda":
        raise InputError(
            f"expected a tensor of layout sparse_csr and two dimensions on a GPU, got {matrix.layout} of shape "
            f"{tuple(matrix.shape)} on {matrix.device}; tensorwise.nn.spmm multiplies tensors on the CPU"
        )
    from tensorwise.sparse.on_torch import TorchCsr

    return TorchCsr(matrix)
