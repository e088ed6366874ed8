"""``tensorwise cache warm``: the texts that tunings of common problems will ask for, compiled beforehand.

Kernels take sizes at run time. A text depends on them only where a constant split does or does not divide
an extent, where a dense extent fills fewer vector registers than there are, and where an operand that
outgrows a core's own cache is prefetched. So a few made-up operands stand for all.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from tensorwise.errors import TensorwiseError
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.space.cpu import cpu_space
from tensorwise.space.portfolio import portfolio
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.toolchain.cache import default_cache

EXTENTS: Final = ((1 << 15) + 1, 1 << 12)
"""Of the made-up operands: no small split divides the first, whose dense operands are prefetched; all divide the second."""
RUN: Final = 8
"""Neighbours in a row of the made-up operands, so that blocks are not refused for their fill."""
OPS: Final = ("spmv", "spmm", "sddmm", "mttkrp")
DTYPES: Final = ("float32", "float64")
COMMON: Final[Mapping[str, Sequence[int | None]]] = {
    "spmv": (None,), "spmm": (64,), "sddmm": (64,), "mttkrp": (16,),
}  # fmt: skip
"""Extents of the dense-only index that most tunings have; all above 64 share its texts."""
EVERY: Final[Mapping[str, Sequence[int | None]]] = {
    "spmv": (None,), "spmm": (8, 16, 32, 64), "sddmm": (8, 16, 64), "mttkrp": (16, 32),
}  # fmt: skip
KERNELS_PER_BATCH: Final = 64


def texts(
    ops: Sequence[str] = OPS, dtypes: Sequence[str] = DTYPES[:1], every: bool = False
) -> dict[str, None]:
    """Return the C texts of the portfolio on common problems, each once."""
    found: dict[str, None] = {}
    for work in problems(ops, dtypes, every):
        space = cpu_space(work.assignment, "A")
        for config in portfolio(space, work):
            try:
                found |= dict.fromkeys(GeneratedKernel(space.program(work, config)).texts(work))
            except TensorwiseError:
                continue  # it does not fit this problem; a tuning would skip it as well
    return found


def problems(ops: Sequence[str], dtypes: Sequence[str], every: bool) -> Iterator[Workload]:
    """Yield the made-up workloads: matrices, and tensors of order 3 whose first mode is the output's.

    With ``every`` also the other modes, and orders 4 and 5 (there the first mode alone: each has some hundred kernels).
    """
    for op, dtype, extent in itertools.product(ops, dtypes, EXTENTS):
        tensors = ((3, 0), (3, 1), (3, 2), (4, 0), (5, 0)) if every else ((3, 0),)
        for order, mode in tensors if op == "mttkrp" else ((2, 0),):
            a = _operand(extent, order, dtype)
            for n in (EVERY if every else COMMON)[op]:
                yield workload(op, a, n=n, mode=mode)


def _operand(extent: int, order: int, dtype: str) -> Entries:
    rows = np.repeat(np.arange(0, extent - RUN, 4), RUN)
    columns = rows // RUN * RUN + np.arange(len(rows)) % RUN
    coordinates = (*[rows] * (order - 1), columns)
    return entries_from(((extent,) * order, coordinates, np.ones(len(rows), dtype)), dtype)


def warm(
    ops: Sequence[str] = OPS,
    dtypes: Sequence[str] = DTYPES[:1],
    every: bool = False,
    progress: Callable[[str, float], None] | None = None,
) -> tuple[int, int]:
    """Compile what is missing; return how many kernels there are, and how many failed to compile.

    Raises:
        CompilerError: no C compiler works here.
    """
    cache = default_cache()
    _ = cache.compiler
    wanted = list(texts(ops, dtypes, every))
    failed = 0
    for start in range(0, len(wanted), KERNELS_PER_BATCH):
        if progress is not None:
            progress(f"{start} of {len(wanted)} kernels", start / len(wanted))
        failed += sum(
            kernel is None for kernel in cache.get(wanted[start : start + KERNELS_PER_BATCH], on_error="none")
        )
    return len(wanted), failed
