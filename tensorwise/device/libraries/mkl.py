"""Intel MKL's inspector-executor sparse routines (SpMV, SpMM) through ctypes.

The 32-bit (LP64) interface is used. The library is loaded at the first use, with the GNU threading
layer where libgomp is found, so that one OpenMP runtime serves MKL, torch and compiled baselines
alike; an ``MKL_THREADING_LAYER`` set by the user wins.
"""

import ctypes
import functools
import os
import re
import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.device.libraries.contraction import contraction
from tensorwise.errors import InputError, MeasurementError, MissingExtraError
from tensorwise.program.workload import Workload
from tensorwise.runtime.kernel import BoundKernel, address

EXPECTED_CALLS: Final = 1000
"""Calls announced to the inspector: as many as make its analysis worth while."""

_LETTER: Final = {"float32": ("s", ctypes.c_float), "float64": ("d", ctypes.c_double)}
_STATUS: Final = {
    1: "not initialised",
    2: "out of memory",
    3: "invalid value",
    4: "execution failed",
    5: "internal error",
    6: "not supported",
}
_ZERO_BASED: Final = 0
_PLAIN: Final = 10  # no transposition
_ROW_MAJOR: Final = 101
_GNU_LAYER: Final = 3
_LP64: Final = 0


class _Description(ctypes.Structure):
    """``struct matrix_descr``, passed by value."""

    _fields_ = [("type", ctypes.c_int), ("mode", ctypes.c_int), ("diagonal", ctypes.c_int)]


_GENERAL: Final = _Description(20, 40, 50)


class MklKernel(LibraryKernel):
    """MKL inspector-executor with hints.

    Attributes:
        inspects: whether the inspector gets hints of the computation, and runs before the first call.
    """

    name = "mkl"
    package = "mkl"
    extra = "mkl"
    opaque = True
    inspects: ClassVar[bool] = True

    @classmethod
    def installed(cls) -> bool:
        """Whether ``libmkl_rt`` is found (it is not loaded)."""
        return _path() is not None

    @classmethod
    def preload(cls) -> None:
        """Load ``libmkl_rt``; it comes before torch, which brings parts of MKL of its own."""
        load()

    def why_not(self, workload: Workload) -> str | None:
        """SpMV and SpMM in float32 and float64, with everything below 2**31."""
        shape = contraction(workload)
        if isinstance(shape, str):
            return shape
        factor = shape.product
        if factor is None:
            return "MKL has routines for a sparse matrix times a vector or a matrix only"
        if workload.dtype.name not in _LETTER:
            return f"dtype must be float32 or float64, got {workload.dtype}"
        width = int(np.prod([workload.sizes[index] for index in shape.columns], dtype=object))
        if max(*workload.entries.shape, workload.entries.nnz, width) >= 2**31:
            return "its 32-bit interface needs dimensions and nonzeros below 2**31"
        return None

    def convert(self, workload: Workload, threads: int) -> BoundKernel:
        """Create the handle, announce the product with hints and let the inspector work."""
        return _Bound(workload, threads, self.inspects)

    def plainer(self) -> LibraryKernel | None:
        """Return MKL without its inspector, which pads vectors of rows with zeros that meet other columns."""
        return _PlainMkl() if self.inspects else None


class _PlainMkl(MklKernel):
    """MKL on the matrix in CSR."""

    inspects = False


class _Bound(BoundKernel):
    def __init__(self, workload: Workload, threads: int, inspects: bool) -> None:
        library = load()
        shape = contraction(workload)
        assert not isinstance(shape, str)
        assert shape.product is not None
        entries = workload.entries
        self._factor = shape.product
        self._plain = self._factor.axes == tuple(range(len(self._factor.axes)))
        self._threads = threads
        self._width = int(np.prod([workload.sizes[index] for index in shape.columns], dtype=np.int64))
        self._handle = ctypes.c_void_p()
        self._set_threads = library.MKL_Set_Num_Threads_Local
        # a process-wide default that is already right spares two calls a run
        self._default_threads = library.MKL_Get_Max_Threads() == threads
        letter, real = _LETTER[workload.dtype.name]
        # the handle keeps addresses only: these arrays live as long as it does
        self._arrays = (
            np.ascontiguousarray(entries.row_pointers(), np.int32),
            np.ascontiguousarray(entries.coordinates[1], np.int32),
            np.ascontiguousarray(entries.values),
        )
        self.bytes_held = sum(array.nbytes for array in self._arrays)
        self._closer: Callable[[], object] = lambda: None
        self._product: Any = None
        self._between: tuple[Any, ...] = ()
        self._after: tuple[Any, ...] = ()
        if 0 in (*entries.shape, entries.nnz, self._width):
            return
        pointers, columns, values = (array.ctypes.data for array in self._arrays)
        create = _routine(library, f"mkl_sparse_{letter}_create_csr")
        rows, inner = entries.shape
        handle = ctypes.byref(self._handle)
        status = create(handle, _ZERO_BASED, rows, inner, pointers, pointers + 4, columns, values)
        _check(status, "create_csr")
        self._closer = weakref.finalize(self, library.mkl_sparse_destroy, self._handle)
        if inspects:
            self._inspect(library)
        one, zero, plain, width = real(1.0), real(0.0), ctypes.c_int(_PLAIN), ctypes.c_int(self._width)
        self._before: tuple[Any, ...] = (plain, one, self._handle, _GENERAL)
        if self._width == 1:
            self._product = _routine(library, f"mkl_sparse_{letter}_mv")
            self._between = (zero,)
        else:
            self._product = _routine(library, f"mkl_sparse_{letter}_mm")
            self._before = (*self._before, ctypes.c_int(_ROW_MAJOR))
            self._between, self._after = (width, width, zero), (width,)

    def _arguments(self, operand: np.ndarray, out: np.ndarray) -> tuple[Any, ...]:
        return (
            *self._before,
            ctypes.c_void_p(address(operand)),
            *self._between,
            ctypes.c_void_p(address(out)),
            *self._after,
        )

    def _inspect(self, library: ctypes.CDLL) -> None:
        previous = self._set_threads(self._threads)
        try:
            if self._width == 1:
                hint = _routine(library, "mkl_sparse_set_mv_hint")
                status = hint(self._handle, _PLAIN, _GENERAL, EXPECTED_CALLS)
            else:
                hint = _routine(library, "mkl_sparse_set_mm_hint")
                status = hint(self._handle, _PLAIN, _GENERAL, _ROW_MAJOR, self._width, EXPECTED_CALLS)
            if status != 6:  # an unsupported hint is no error: the routine runs without
                _check(status, "set_hint")
            _check(_routine(library, "mkl_sparse_optimize")(self._handle), "optimize")
        finally:
            self._set_threads(previous)

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Multiply; MeasurementError carries MKL's status when it refuses."""
        if self._product is None:
            out.fill(0)
            return
        if not self._handle:
            raise InputError("this MKL kernel was closed; bind it again")
        operand = operands[self._factor.operand]
        if operand.dtype != self._arrays[2].dtype or out.dtype != operand.dtype:
            raise InputError(
                f"this MKL kernel computes in {self._arrays[2].dtype}, got {operand.dtype} and {out.dtype}"
            )
        if not (self._plain and operand.flags.c_contiguous):
            operand = self._factor.matrix(operand)
        if self._default_threads:
            status = self._product(*self._arguments(operand, out))
        else:
            previous = self._set_threads(self._threads)
            status = self._product(*self._arguments(operand, out))
            self._set_threads(previous)
        if status:
            _check(status, "product")

    def ready(self, operands: Sequence[np.ndarray], out: np.ndarray) -> Callable[[], object]:
        """Return ``run`` with its pointers in place."""
        operand = operands[self._factor.operand]
        ready = self._plain and operand.flags.c_contiguous and self._default_threads
        if self._product is None or not ready:
            return lambda: self.run(operands, out)
        product = functools.partial(self._product, *self._arguments(operand, out))

        def again(_kept: object = self) -> None:  # the handle lives as long as the call
            status = product()
            if status:
                _check(status, "product")

        return again

    def close(self) -> None:
        """Destroy the handle; further runs are refused."""
        if self._handle:
            self._closer()
            self._handle = ctypes.c_void_p()


def _check(status: int, step: str) -> None:
    if status:
        raise MeasurementError(f"MKL's {step} returned status {status} ({_STATUS.get(status, 'unknown')})")


def _routine(library: ctypes.CDLL, name: str) -> Any:
    """Look ``name`` up and declare its arguments."""
    i, p, d = ctypes.c_int, ctypes.c_void_p, _Description
    r: Any = ctypes.c_float if "_s_" in name else ctypes.c_double
    arguments: dict[str, list[Any]] = {
        "create_csr": [ctypes.POINTER(p), i, i, i, p, p, p, p],
        "mv": [i, r, p, d, p, r, p],
        "mm": [i, r, p, d, i, p, i, i, r, p, i],
        "set_mv_hint": [p, i, d, i],
        "set_mm_hint": [p, i, d, i, i, i],
        "optimize": [p],
    }
    routine = getattr(library, name)
    routine.argtypes = arguments[re.sub("mkl_sparse_([sd]_)?", "", name)]
    return routine


_FILE: Final = re.compile(r"libmkl_rt\.so[.\d]*|libmkl_rt[.\d]*\.dylib|mkl_rt[.\d]*\.dll")
"""The library's name on Linux, macOS and Windows."""


@functools.cache
def _path() -> Path | None:
    """Find the library: among the files of the ``mkl`` distribution, then beside the interpreter."""
    import importlib.metadata

    try:
        files = importlib.metadata.distribution("mkl").files or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = [Path(str(file.locate())).resolve() for file in files]
    found += [
        path
        for folder in ("lib", "Library/bin")
        for path in sorted((Path(sys.prefix) / folder).glob("*mkl_rt.*"))
    ]
    return next((path for path in found if _FILE.fullmatch(path.name) and path.is_file()), None)


@functools.cache
def load() -> ctypes.CDLL:
    """Return the library, loaded once a process.

    Raises:
        MissingExtraError: MKL is not installed.
        InputError: it cannot be loaded.
    """
    path = _path()
    if path is None:
        raise MissingExtraError("mkl", "mkl", "the library kernel 'mkl'")
    try:
        # the layers that MKL loads later look for symbols of this one
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        advice = "reinstall it with: pip install --force-reinstall mkl"
        raise InputError(f"cannot load {path.name}: {error}; {advice}") from error
    library.mkl_sparse_destroy.argtypes = [ctypes.c_void_p]
    if "MKL_INTERFACE_LAYER" not in os.environ:
        library.MKL_Set_Interface_Layer(_LP64)
    # without libgomp the GNU layer would end the process; MKL then keeps its own
    if "MKL_THREADING_LAYER" not in os.environ and _has_libgomp():
        library.MKL_Set_Threading_Layer(_GNU_LAYER)
    return library


def _has_libgomp() -> bool:
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        return False
    return True
