"""Kernels that ours are measured against: the package's libraries, and baselines that are no part of it."""

from typing import Final

from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.device.library import LIBRARY

from .fixed_csr import FixedCsr
from .numba_kernels import NumbaKernel
from .plain_c import PlainCKernel
from .pydata_sparse import PydataSparseKernel

BASELINES: Final[dict[str, type[LibraryKernel]]] = {
    **LIBRARY,
    "fixed_csr": FixedCsr,
    "plain_c": PlainCKernel,
    "numba": NumbaKernel,
    "pydata_sparse": PydataSparseKernel,
}
"""Kernel name -> class, in the order in which pages list them."""
