"""Find libraries that multiply by elements to which no stored entry refers: NaN and infinity there spoil other results.

MKL's inspector, for example, pads rows with zeros, which are multiplied by elements of unrelated columns, and 0 * NaN is
NaN. Our own code never does so (decision 0103). A library is tested when it is bound, with NaN in some of the operands.
"""

from collections.abc import Iterator

import numpy as np

from tensorwise.device.libraries.contraction import Contraction, contraction
from tensorwise.program.workload import Workload
from tensorwise.runtime.kernel import BoundKernel
from tensorwise.tensor.elements import is_float


def find_stray(bound: BoundKernel, workload: Workload) -> str | None:
    """Return what is wrong with a bound product of one sparse matrix and one dense operand; None: nothing was found.

    A result must be NaN exactly where an entry of its row meets NaN (or where the entry itself is not finite), also
    if the output held NaN before. It takes seven calls and as many passes over the pattern; other operations are not tried.
    """
    shape = contraction(workload)
    if not isinstance(shape, Contraction) or len(shape.factors) != 1 or len(shape.sparse) != 2:
        return None
    (factor,) = shape.factors
    if shape.keeps_pattern or shape.summed or len(factor.bound) != 1 or len(shape.rows) != 1:
        return None
    entries, name = workload.entries, workload.dense[factor.operand]
    read = entries.coordinates[shape.sparse.index(factor.bound[0])]
    rows = entries.coordinates[shape.sparse.index(shape.rows[0])]
    extent, count = workload.sizes[factor.bound[0]], workload.sizes[shape.rows[0]]
    if 0 in workload.output_shape or not extent or not is_float(workload.output_dtype):
        return None
    infinite = rows[~np.isfinite(entries.values)]
    axis = factor.axes[0]
    along = [slice(None)] * len(factor.axes)
    out = np.empty(workload.output_shape, workload.output_dtype)
    for what, places in _places(extent, read):
        operand = np.zeros(workload.shape(name), workload.dtype_of(name))
        along[axis] = places  # type: ignore[call-overload]
        operand[tuple(along)] = np.nan
        poisoned = np.zeros(extent, bool)
        poisoned[places] = True
        reached = np.zeros(count, bool)
        reached[rows[poisoned[read]]] = True
        reached[infinite] = True
        out.fill(np.nan)
        with np.errstate(invalid="ignore"):
            bound.run([operand], out)
        found = np.isnan(out.reshape(count, -1))
        stray, lost = found.any(axis=1) & ~reached, ~found.all(axis=1) & reached
        if stray.any():
            return f"with NaN in {what} of the operand it gives NaN in row {int(np.argmax(stray))}, which reads none"
        if lost.any():
            return f"with NaN in {what} of the operand it gives a number in row {int(np.argmax(lost))}, which reads it"
    return None


def _places(extent: int, read: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield rows of the operand that are NaN: what padding has been seen to read."""
    every = np.arange(extent)
    yield "all places", every
    yield "place 0", every[:1]
    yield f"place {extent - 1}", every[-1:]
    yield "even places", every[::2]
    yield "odd places", every[1::2]
    yield "some places", np.flatnonzero(np.random.default_rng(0).random(extent) < 1 / 16)
    unread = np.ones(extent, bool)
    unread[read] = False
    yield "places that no entry names", np.flatnonzero(unread)
