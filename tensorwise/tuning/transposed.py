"""The transposed product beside a tuned one: over what that one has stored, or over a copy stored for it.

A stored matrix can also be used for the product with its transpose: each entry adds to the output element at the place
from which it reads the operand in the product itself. That takes no memory and no conversion, but writes are scattered, and
each thread needs its own output. It may be faster or slower than a transposed copy. If a copy would be large enough to
matter, both are timed once.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from tensorwise.device.timing import interleave
from tensorwise.errors import InputError, TensorwiseError
from tensorwise.lower.program import Program
from tensorwise.program.schedule import Factor, Parallel, Prefetch, Schedule, Tile
from tensorwise.program.workload import Workload
from tensorwise.runtime.generated import BoundProgram, GeneratedKernel
from tensorwise.runtime.kernel import BoundKernel, Kernel
from tensorwise.runtime.work import check_work
from tensorwise.space.running import MOST_PRIVATE_BYTES

SMALL_BYTES: Final = 2**20
"""Matrices of fewer bytes are always copied: both copies fit the cache, and a test takes longer than converting."""
ROUNDS: Final = 9
ROUNDS_S: Final = 0.1
"""Rounds in which the two are compared, and seconds after which no further one starts, once there were three."""

Bound = tuple[Kernel, BoundKernel]


def over(bound: BoundKernel, kernel: Kernel, work: Workload) -> BoundProgram | None:
    """Return ``kernel`` over the operands that ``bound`` has packed, None where it wants them stored in another way."""
    if not isinstance(bound, BoundProgram) or not isinstance(kernel, GeneratedKernel):
        return None
    alike = kernel.program.format_texts == bound.program.format_texts
    return bound.sharing(kernel.program, work) if alike else None


def transposed(bound: BoundKernel, usual: Kernel, work: Workload, threads: int, copy: bool | None) -> Bound:
    """Return the kernel of ``work``, the product with the matrix of ``bound`` transposed.

    Args:
        usual: the kernel that would be used if nothing were stored yet.
        copy: whether to store a copy in the format of ``usual``. None: store one if the existing storage cannot be used, if
            the copy is small, or if timed rounds show it to be faster.

    Raises:
        InputError: no copy is wanted, but what is stored cannot be walked.
    """
    shared = over(bound, usual, work)
    if shared is not None:
        return usual, shared
    walked = None
    if copy is False or (copy is None and bound.bytes_held >= SMALL_BYTES):
        walked = _walked(bound, work, threads)
    if copy is False:
        if walked is None:
            raise InputError("what is stored cannot serve the transposed product; leave copy=False out")
        return walked
    copied = usual, usual.bind(work, threads)
    return walked if walked is not None and _as_fast(walked[1], copied[1], work) else copied


def _as_fast(walked: BoundKernel, copied: BoundKernel, work: Workload) -> bool:
    """Whether a few rounds do not show that the copy is faster."""
    rng = np.random.default_rng(0)
    operands, out = work.operands(rng), np.empty(work.output_shape, work.output_dtype)
    calls = {"walked": walked.ready(operands, out), "copied": copied.ready(operands, out)}
    table = interleave(calls, ROUNDS, ROUNDS_S, rng, min_s=0.001)
    return table.ratio("walked", "copied").low <= 1


def _walked(bound: BoundKernel, work: Workload, threads: int) -> Bound | None:
    """Return a kernel of ``work`` over the operands that ``bound`` has packed, None where none fits."""
    out_bytes = math.prod(work.output_shape) * work.dtype.itemsize
    if not isinstance(bound, BoundProgram) or (threads > 1 and out_bytes > MOST_PRIVATE_BYTES):
        return None
    for program in _walks(bound.program, work, threads):
        try:
            check_work(program, work)
            return GeneratedKernel(program), bound.sharing(program, work)
        except TensorwiseError:  # such as lanes that would be scattered
            continue
    return None


def _walks(program: Program, work: Workload, threads: int) -> Iterator[Program]:
    """Yield the loops of ``program`` for ``work``: with its vectors and, where these do not fit, without."""
    for vectors in (True, False):
        outlier = program.remainder
        if outlier is not None:
            outlier = replace(outlier, schedule=_walk(outlier.schedule, threads, vectors))
        schedule = _walk(program.schedule, threads, vectors)
        yield replace(program, assignment=work.assignment, schedule=schedule, remainder=outlier).fitting(work)


def _walk(schedule: Schedule, threads: int, vectors: bool) -> Schedule:
    """The loops, threads and copies of ``schedule``, without what depends on the operand that is gathered."""
    gone: tuple[type, ...] = (Prefetch, Factor)
    if not vectors:
        gone = (*gone, Tile)
    if threads == 1:
        gone = (*gone, Parallel)
    kept = (directive for directive in schedule.directives if not isinstance(directive, gone))
    return Schedule(tuple(replace(d, reduction="private") if isinstance(d, Parallel) else d for d in kept))
