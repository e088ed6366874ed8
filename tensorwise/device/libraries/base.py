"""What all library routines share."""

import abc
import time

from tensorwise.errors import InputError, MissingExtraError
from tensorwise.program.kernel import BoundKernel, Kernel
from tensorwise.program.workload import Workload


class LibraryKernel(Kernel):
    """A routine of an installed library.

    Attributes:
        package: distribution that brings it.
        extra: the extra of Tensorwise that installs it; empty when it is always there.
    """

    package: str
    extra: str = ""

    @classmethod
    @abc.abstractmethod
    def installed(cls) -> bool:
        """Whether the library can be found, without importing it."""

    @abc.abstractmethod
    def why_not(self, workload: Workload) -> str | None:
        """Return None when this routine can run ``workload``, else the reason in a few words."""

    @abc.abstractmethod
    def convert(self, workload: Workload, threads: int) -> BoundKernel:
        """Build the bound kernel; ``bind`` has checked that it is possible."""

    def bind(self, workload: Workload, threads: int) -> BoundKernel:
        """Convert the sparse operand into the library's own structure.

        Raises:
            MissingExtraError: the library is not installed.
            InputError: the library has no routine for the workload.
        """
        if not self.installed():
            raise MissingExtraError(self.package, self.extra, f"the library kernel {self.name!r}")
        reason = self.why_not(workload)
        if reason is not None:
            raise InputError(f"{self.name} cannot run {workload.einsum}: {reason}; choose another kernel")
        if threads < 1:
            raise InputError(f"threads must be at least 1, got {threads}")
        start = time.perf_counter()
        bound = self.convert(workload, threads)
        bound.conversion_s = time.perf_counter() - start
        return bound
