"""Sparse layers and products for PyTorch: `SparseLinear`, `spmm` and `sddmm`.

All of them compute from the values and the CSR pattern as they lie in memory. An optimizer changes the values at each step,
so nothing is packed and no copy can be out of date.
"""

from tensorwise.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError("torch", "torch", "tensorwise.nn") from error

from tensorwise.nn.linear import SparseLinear as SparseLinear
from tensorwise.nn.products import sddmm as sddmm
from tensorwise.nn.products import spmm as spmm

__all__ = ["SparseLinear", "sddmm", "spmm"]
