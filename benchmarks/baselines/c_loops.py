"""C loops compiled with gcc and OpenMP, called by ctypes with arguments laid out before.

Small kernels run in the time that a careless call takes: these calls cost about what ours cost, so that a
ratio compares loops.
"""

import abc
import ctypes
import functools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.errors import CompilerError
from tensorwise.program.workload import Workload
from tensorwise.runtime.kernel import BoundKernel, address

from .rows import Rows, kind_of, rows_of

_REAL = {"float32": "float", "float64": "double"}


class CLoops(LibraryKernel):
    """A kernel in C: ``void NAME(const int64_t *sizes, void *const *arrays)``.

    ``arrays`` holds out, then the dense operands, then what ``layout`` returns.
    """

    package = "gcc"

    @classmethod
    def installed(cls) -> bool:
        """Whether gcc is found."""
        return shutil.which("gcc") is not None

    def why_not(self, workload: Workload) -> str | None:
        """SpMV, SpMM, SDDMM and MTTKRP, in float32 and float64."""
        if workload.halves:
            return "the C loops take float32 and float64"
        return None if kind_of(workload) else "there is no C loop for it"

    @abc.abstractmethod
    def function(self, rows: Rows, dtype: str) -> Any:
        """Compile, or find in memory, the function for ``rows`` of a dtype."""

    @abc.abstractmethod
    def layout(self, rows: Rows, threads: int) -> tuple[Sequence[int], Sequence[np.ndarray]]:
        """Return the sizes, and the arrays behind the dense operands."""

    def bind(self, workload: Workload, threads: int) -> BoundKernel:
        """Tell compilation apart, so that ``conversion_s`` is conversion only."""
        bound = super().bind(workload, threads)
        assert isinstance(bound, _Bound)
        bound.conversion_s -= bound.compile_s
        return bound

    def convert(self, workload: Workload, threads: int) -> BoundKernel:
        """Sort the entries by output row and lay out the arguments."""
        rows = rows_of(workload)
        start = time.perf_counter()
        function = self.function(rows, workload.dtype.name)
        compile_s = time.perf_counter() - start
        return _Bound(function, rows, *self.layout(rows, threads), compile_s)


class _Bound(BoundKernel):
    def __init__(
        self, function: Any, rows: Rows, sizes: Sequence[int], arrays: Sequence[np.ndarray], compile_s: float
    ) -> None:
        self._function, self._rows, self._arrays = function, rows, tuple(arrays)
        self.compile_s = compile_s
        self.bytes_held = sum(array.nbytes for array in arrays)
        self._sizes = (ctypes.c_int64 * len(sizes))(*sizes)
        dense = [0] * (1 + len(rows.factors))
        self._pointers = (ctypes.c_void_p * (len(dense) + len(arrays)))(
            *dense, *(array.ctypes.data for array in arrays)
        )

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Call the loops."""
        matrices = self._rows.matrices(operands)
        self._pointers[0] = address(out)
        for place, matrix in enumerate(matrices, 1):
            self._pointers[place] = address(matrix)
        self._function(self._sizes, self._pointers)

    def ready(self, operands: Sequence[np.ndarray], out: np.ndarray) -> Callable[[], object]:
        """Return ``run`` with its pointers in place."""
        matrices = self._rows.matrices(operands)
        if not self._rows.shares(operands, matrices):
            return lambda: self.run(operands, out)
        pointers = type(self._pointers)(*self._pointers)
        for place, array in enumerate((out, *matrices)):
            pointers[place] = address(array)
        function, sizes = self._function, self._sizes
        return lambda: function(sizes, pointers)


@functools.cache
def compiled(text: str, name: str, dtype: str, flags: tuple[str, ...]) -> Any:
    """Compile ``text`` with gcc, REAL being the C type of ``dtype``, and return its function ``name``.

    Raises:
        CompilerError: gcc refuses the text.
    """
    with tempfile.TemporaryDirectory(prefix="c-loops-") as folder:
        source, code, library = (Path(folder) / f"loops.{kind}" for kind in ("c", "o", "so"))
        source.write_text(text)
        # Linked without -ffast-math: with it, gcc's start-up code makes the whole process flush subnormals to zero.
        linking = [flag for flag in flags if flag != "-ffast-math"]
        for command in (
            ["gcc", *flags, f"-DREAL={_REAL[dtype]}", "-fPIC", "-c", str(source), "-o", str(code)],
            ["gcc", *linking, "-shared", str(code), "-o", str(library)],
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            if done.returncode:
                raise CompilerError(f"gcc refused the loops of a baseline: {done.stderr[:500]}")
        function = getattr(ctypes.CDLL(str(library)), name)
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    function.restype = None
    return function
