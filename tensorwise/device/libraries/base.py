"""What all library routines share."""

import abc
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, final

import numpy as np

from tensorwise.device.libraries.strays import find_stray
from tensorwise.errors import InputError, MissingExtraError
from tensorwise.program.workload import Workload
from tensorwise.runtime.kernel import BoundKernel, Kernel


class LibraryKernel(Kernel):
    """A routine of an installed library.

    Attributes:
        package: distribution that brings it.
        extra: the extra of Tensorwise that installs it; empty when it is always there.
        opaque: whether it may store the matrix in a way that we cannot see, and is tried when it is bound.
    """

    package: str
    extra: str = ""
    opaque: ClassVar[bool] = False

    @classmethod
    @abc.abstractmethod
    def installed(cls) -> bool:
        """Whether the library can be found, without importing it."""

    @classmethod
    def preload(cls) -> None:
        """Import what the first ``bind`` would import, so that processes forked from this one have it."""

    @abc.abstractmethod
    def why_not(self, workload: Workload) -> str | None:
        """Return None when this routine can run ``workload``, else the reason in a few words."""

    @abc.abstractmethod
    def convert(self, workload: Workload, threads: int) -> BoundKernel:
        """Build the bound kernel; ``bind`` has checked that it is possible."""

    def plainer(self) -> "LibraryKernel | None":
        """Return what is used where this routine reads what no entry names; None: nothing, the library is refused."""
        return None

    def bind(self, workload: Workload, threads: int) -> BoundKernel:
        """Convert the sparse operand into the library's own structure.

        Raises:
            MissingExtraError: the library is not installed.
            InputError: the library has no routine for the workload, or reads what no entry names (decision 0103).
        """
        if not self.installed():
            raise MissingExtraError(self.package, self.extra, f"the library kernel {self.name!r}")
        reason = self.why_not(workload)
        if reason is not None:
            raise InputError(f"{self.name} cannot run {workload.einsum}: {reason}; choose another kernel")
        if threads < 1:
            raise InputError(f"threads must be at least 1, got {threads}")
        start = time.perf_counter()
        bound = _Widened(self, workload, threads) if workload.halves else self.convert(workload, threads)
        bound.conversion_s = time.perf_counter() - start
        stray = find_stray(bound, workload) if self.opaque else None
        if stray is None:
            return bound
        bound.close()
        other = self.plainer()
        if other is None:
            raise InputError(f"{self.name} is wrong for this matrix: {stray}; choose another kernel")
        bound = other.bind(workload, threads)
        bound.note = f"it is timed without its own optimisation, which may be faster: optimised, {stray}"
        return bound


@final
class _Widened(BoundKernel):
    """A routine in float32 on operands or results in float16 or bfloat16, which libraries do not take.

    It is what somebody with such operands does without us: the sparse operand is widened once, the dense ones
    at every call, and the result is narrowed.
    """

    def __init__(self, kernel: LibraryKernel, workload: Workload, threads: int) -> None:
        sparse = {name: entries.astype(workload.dtype) for name, entries in workload.sparse.items()}
        self._dtype = workload.dtype
        self._bound = kernel.convert(replace(workload, sparse=sparse, dtypes={}), threads)
        self.bytes_held = self._bound.bytes_held

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Convert, compute in float32, convert."""
        wide = [operand.astype(self._dtype, copy=False) for operand in operands]
        if out.dtype == self._dtype:
            self._bound.run(wide, out)
            return
        result = np.empty(out.shape, self._dtype)
        self._bound.run(wide, result)
        with np.errstate(over="ignore"):
            np.copyto(out, result, casting="same_kind")

    def close(self) -> None:
        """Release what the routine holds."""
        self._bound.close()
