"""Reads what a `SparseLinear` is made of: pruned layers, masks, sparse matrices and 2:4 tensors."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from tensorwise.errors import InputError
from tensorwise.nn.csr import FLOAT_DTYPES, CsrTensors, dense_to_csr


@final
@dataclass(frozen=True, eq=False)
class SparseWeight:
    """A weight as it was given.

    Attributes:
        csr: its entries, row by row.
        bias: that of the ``nn.Linear``, or None.
        has_values: False where only a mask was given.
        is_trained: whether the values have gradients.
    """

    csr: CsrTensors
    bias: Tensor | None = None
    has_values: bool = True
    is_trained: bool = True


def read_weight(weight: Any, mask: Any = None) -> SparseWeight:
    """Read a weight (outputs, inputs); arguments and errors are those of `SparseLinear`."""
    if isinstance(weight, nn.Linear):
        return _read_linear(weight, mask)
    if isinstance(weight, np.ndarray):
        weight = _dense_tensor(weight)
    if isinstance(weight, torch.sparse.SparseSemiStructuredTensor):
        weight = weight.to_dense()
    if sp.issparse(weight) or (isinstance(weight, Tensor) and weight.layout is not torch.strided):
        if mask is not None:
            raise InputError("SparseLinear: a mask goes with a dense weight; a sparse weight has its pattern")
        return SparseWeight(CsrTensors.of(_summed(weight), "the weight of SparseLinear"))
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        got = f"shape {tuple(weight.shape)}" if isinstance(weight, Tensor) else type(weight).__name__
        raise InputError(
            "SparseLinear: expected an nn.Linear, a tensor or array of two dimensions, or a sparse matrix of torch or "
            f"SciPy as the weight; got {got}"
        )
    if weight.dtype is torch.bool:
        if mask is not None:
            raise InputError(
                "SparseLinear: the weight is a mask already; give values as the weight, or no mask="
            )
        empty = torch.zeros((), dtype=torch.get_default_dtype(), device=weight.device).expand(weight.shape)
        return SparseWeight(dense_to_csr(empty, weight), has_values=False)
    if weight.dtype not in FLOAT_DTYPES:
        raise InputError(
            f"SparseLinear: expected a weight of float32, float64, bfloat16, float16 or bool, got {weight.dtype}"
        )
    dense = weight.detach()
    is_trained = weight.requires_grad or not isinstance(weight, nn.Parameter)
    return SparseWeight(dense_to_csr(dense, _read_mask(dense, mask)), is_trained=is_trained)


def _read_linear(linear: nn.Linear, mask: Any) -> SparseWeight:
    """A dense layer; ``torch.nn.utils.prune`` keeps what it prunes by as the buffer ``weight_mask``."""
    pruned = getattr(linear, "weight_mask", None)
    source = linear.weight if pruned is None else linear.weight_orig
    read = read_weight(source.detach(), pruned if mask is None else mask)
    return SparseWeight(read.csr, linear.bias, is_trained=source.requires_grad)


def _read_mask(weight: Tensor, mask: Any) -> Tensor:
    if mask is None:
        return weight != 0
    if isinstance(mask, np.ndarray):
        mask = _dense_tensor(mask)
    if not isinstance(mask, Tensor) or mask.layout is not torch.strided or mask.shape != weight.shape:
        got = (
            f"{mask.layout} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        )
        raise InputError(f"SparseLinear: expected a dense mask of shape {tuple(weight.shape)}, got {got}")
    return (mask != 0).to(weight.device)


def _summed(matrix: Any) -> Any:
    """The same matrix with one value a position; torch has no such method for CSR, and duplicates are left to kernels."""
    if isinstance(matrix, Tensor):
        return matrix
    csr = matrix.tocsr(copy=True)
    csr.sum_duplicates()
    return csr


def _dense_tensor(array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "biuf" or array.dtype.name == "longdouble":
        raise InputError(
            f"SparseLinear: expected an array of float32, float64, float16 or bool, got {array.dtype}"
        )
    return torch.from_numpy(np.array(array, order="C"))
