"""Fixed CSR (CSF for MTTKRP): the frozen kernels of ``fixed_csr.c``, as TACO generates them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensorwise.program.workload import Workload
from tensorwise.toolchain.processor import narrowing

from .c_loops import CLoops, compiled
from .rows import Rows, width_of

FLAGS = ("-O3", "-ffast-math", "-march=native", "-mtune=native", "-fopenmp")
_SOURCE = Path(__file__).with_name("fixed_csr.c")


class FixedCsr(CLoops):
    """What TACO generates for SpMV, SpMM, SDDMM and MTTKRP; operands must be finite (``-ffast-math``)."""

    name = "fixed_csr"

    def why_not(self, workload: Workload) -> str | None:
        """What plain loops can run, in 32-bit positions."""
        reason = super().why_not(workload)
        if reason is None:
            extents = [*workload.entries.shape, int(np.prod(workload.output_shape, dtype=object))]
            if max(*extents, max(workload.entries.shape) * width_of(workload)) >= 2**31:
                return "its 32-bit positions need dense operands below 2**31 elements"
        return reason

    def function(self, rows: Rows, dtype: str) -> Any:
        """Compile for the dtype and the extent of the dense index."""
        name = {"spmm": "spmm", "sddmm": "sddmm", "mttkrp": f"mttkrp{1 + len(rows.factors)}"}[rows.kind]
        if rows.kind == "spmm" and rows.width == 1:
            name = "spmv"
        flags = (*FLAGS, *narrowing(), f"-DWIDTH={rows.width}")
        return compiled(_SOURCE.read_text(), name, dtype, flags)

    def layout(self, rows: Rows, threads: int) -> tuple[Sequence[int], Sequence[np.ndarray]]:
        """CSR for matrices, CSF with compressed levels only for tensors."""
        count = len(rows.pointers) - 1
        if rows.kind == "mttkrp":
            leading = np.repeat(np.arange(count), np.diff(rows.pointers))
            levels = compressed_levels((leading, *rows.columns))
        else:
            levels = [rows.pointers, *rows.columns]
        levels = [np.ascontiguousarray(level, np.int32) for level in levels]
        return (count, threads), [rows.values, *levels]


def compressed_levels(coordinates: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return pos and crd of each level of a fibertree whose levels are all compressed.

    Args:
        coordinates: one array (nnz,) a level, sorted lexicographically, without duplicates.
    """
    nnz = len(coordinates[0])
    changed = np.zeros(nnz, bool)
    changed[:1] = True
    above = np.zeros(1, np.int64)  # the first entry below each node of the level above
    levels = []
    for coordinate in coordinates:
        changed[1:] |= coordinate[1:] != coordinate[:-1]
        nodes = np.flatnonzero(changed)
        levels += [np.append(np.searchsorted(nodes, above), len(nodes)), coordinate[nodes]]
        above = nodes
    return levels
