"""``tensorwise cache warm``: the texts that tunings of common problems will ask for, compiled beforehand.

A kernel's text depends on sizes only where a constant split does or does not divide an extent, and on the
dense extent where vector registers are counted. So a few made-up operands stand for all.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from tensorwise.errors import TensorwiseError
from tensorwise.program.generated import GeneratedKernel
from tensorwise.program.workload import Workload, workload
from tensorwise.space.cpu import cpu_space, portfolio
from tensorwise.tensor.entries import entries_from
from tensorwise.toolchain.cache import default_cache

EVEN, ODD = 1 << 15, (1 << 15) + 1
"""Extents that every small split divides, or none."""
RUN: Final = 8
"""Neighbours in a row of the made-up operands, so that blocks are not refused for their fill."""
WIDTHS: Final = (8, 16, 32, 64, 128)
"""Extents of the dense-only index; all above share the text of the largest."""
RANKS: Final = (16, 32)
"""The same for MTTKRP."""
OPS: Final = ("spmv", "spmm", "sddmm", "mttkrp")
DTYPES: Final = ("float32", "float64")
BATCH: Final = 64


def texts(ops: Sequence[str] = OPS, dtypes: Sequence[str] = DTYPES) -> dict[str, None]:
    """Return the C texts of the portfolio on common problems, each once."""
    found: dict[str, None] = {}
    for work in problems(ops, dtypes):
        space = cpu_space(work.assignment, "A")
        for config in portfolio(space, work):
            try:
                found[GeneratedKernel(space.program(work, config)).text(work)] = None
            except TensorwiseError:
                continue  # it does not fit this problem; a tuning would skip it as well
    return found


def problems(ops: Sequence[str] = OPS, dtypes: Sequence[str] = DTYPES) -> Iterator[Workload]:
    """Yield the made-up workloads."""
    for op, dtype in itertools.product(ops, dtypes):
        widths: Sequence[int | None] = {"spmv": (None,), "mttkrp": RANKS}.get(op, WIDTHS)
        for order in (3, 4, 5) if op == "mttkrp" else (2,):
            # Only the first and the last mode are ever split in the portfolio. Of the rarer orders
            # above 3 the first output mode has to do: every (order, mode) has some hundred kernels.
            modes = range(order) if order == 3 else (0,)
            for first, last in itertools.product((EVEN, ODD), repeat=2):
                if order > 3 and first != last:
                    continue
                shape = (first, *[EVEN] * (order - 2), last)
                rows = np.repeat(np.arange(0, EVEN - RUN, 4), RUN)
                columns = rows // RUN * RUN + np.arange(len(rows)) % RUN
                coordinates = (rows, *[rows] * (order - 2), columns)
                a = entries_from((shape, coordinates, np.ones(len(rows), dtype)), dtype)
                for n, mode in itertools.product(widths, modes):
                    yield workload(op, a, n=n, mode=mode)


def warm(
    ops: Sequence[str] = OPS,
    dtypes: Sequence[str] = DTYPES,
    progress: Callable[[str, float], None] | None = None,
) -> tuple[int, int]:
    """Compile what is missing; return how many kernels there are, and how many failed to compile.

    Raises:
        CompilerError: no C compiler works here.
    """
    cache = default_cache()
    _ = cache.compiler
    every = list(texts(ops, dtypes))
    failed = 0
    for start in range(0, len(every), BATCH):
        if progress is not None:
            progress(f"{start} of {len(every)} kernels", start / len(every))
        failed += sum(kernel is None for kernel in cache.get(every[start : start + BATCH], on_error="none"))
    return len(every), failed
