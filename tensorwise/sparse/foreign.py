"""Operands of PyTorch and of libraries of the array API standard. A result is an array of the operand's library."""

import sys
from typing import Any

import numpy as np
import scipy.sparse as sp

from tensorwise.errors import InputError


def namespace_of(operand: Any) -> Any | None:
    """Return the library that a dense array is of; None for NumPy's arrays, sparse ones, and whatever is no array."""
    if isinstance(operand, np.ndarray | np.generic | list | tuple | int | float | complex) or sp.issparse(
        operand
    ):
        return None
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(operand, torch.Tensor):
        return torch
    dask = hasattr(operand, "dask")  # lazy: SciPy computes it
    if dask or not hasattr(operand, "__array_namespace__") or not hasattr(operand, "__dlpack__"):
        return None
    return operand.__array_namespace__()


def as_numpy(operand: Any, namespace: Any) -> np.ndarray:
    """Return the operand as a NumPy array over the same memory.

    Raises:
        InputError: its memory is not the CPU's, or it is part of a graph of gradients.
    """
    if getattr(operand, "requires_grad", False):
        raise InputError(
            "the operand requires gradients, which products of sparse arrays do not record; "
            "use tensorwise.nn.spmm, or detach()"
        )
    if namespace.__name__.startswith(
        "jax"
    ):  # its arrays are read-only, which DLPack cannot say to older NumPys
        return np.asarray(operand)
    try:
        return np.from_dlpack(operand)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"the operand, {type(operand).__module__}.{type(operand).__name__}, cannot be read as an array of the CPU: "
            f"{error}; copy it to the CPU"
        ) from error


def as_foreign(result: Any, namespace: Any) -> Any:
    """Return a NumPy array as one of another library, over the same memory where the library can."""
    if isinstance(result, np.ndarray) and hasattr(namespace, "from_dlpack"):
        return namespace.from_dlpack(result)
    return namespace.asarray(result)


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
