"""A CSR of SciPy as a matrix of MKL's inspector-executor: what a user of MKL writes, without our entries in between."""

import ctypes
import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import scipy.sparse as sp

from tensorwise.device.libraries.mkl import load
from tensorwise.errors import MeasurementError

_LETTER: Final = {"float32": ("s", ctypes.c_float), "float64": ("d", ctypes.c_double)}
_PLAIN: Final = 10
_ROW_MAJOR: Final = 101
_NOT_SUPPORTED: Final = 6


class _Description(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("mode", ctypes.c_int), ("diagonal", ctypes.c_int)]


_GENERAL: Final = _Description(20, 40, 50)


def products(matrix: sp.csr_array, columns: int, hint: int | None) -> Callable[[np.ndarray], np.ndarray]:
    """Hand ``matrix`` to MKL and return the function that multiplies; it allocates its result, as SciPy's ``@`` does.

    Args:
        matrix: with 32-bit indices; its arrays are read where they lie.
        columns: of what it will be multiplied by; 0: a vector.
        hint: number of calls announced to the inspector, which then runs; None: it does not run.

    Raises:
        MissingExtraError: MKL is not installed.
        MeasurementError: MKL refuses.
    """
    library, handle = load(), ctypes.c_void_p()
    letter, real = _LETTER[matrix.dtype.name]
    pointers, indices, data = matrix.indptr, matrix.indices, matrix.data
    rows, inner = matrix.shape
    begin = pointers.ctypes.data
    create = _routine(library, f"mkl_sparse_{letter}_create_csr", "pIIIpppp")
    status = create(
        ctypes.byref(handle), 0, rows, inner, begin, begin + 4, indices.ctypes.data, data.ctypes.data
    )
    _check(status, "create_csr")
    if hint is not None:
        if columns:
            announce = _routine(library, "mkl_sparse_set_mm_hint", "pIdIII")
            status = announce(handle, _PLAIN, _GENERAL, _ROW_MAJOR, columns, hint)
        else:
            status = _routine(library, "mkl_sparse_set_mv_hint", "pIdI")(handle, _PLAIN, _GENERAL, hint)
        _check(0 if status == _NOT_SUPPORTED else status, "set_hint")
        _check(_routine(library, "mkl_sparse_optimize", "p")(handle), "optimize")
    shape = (rows, columns) if columns else (rows,)
    one, zero = real(1), real(0)
    name = f"mkl_sparse_{letter}_{'mm' if columns else 'mv'}"
    signature = "IRpdIpIIRpI" if columns else "IRpdpRp"
    product = _routine(library, name, signature.replace("R", "s" if letter == "s" else "f"))
    middle: tuple[Any, ...] = (columns, columns, zero) if columns else (zero,)
    head: tuple[Any, ...] = (_PLAIN, one, handle, _GENERAL, *((_ROW_MAJOR,) if columns else ()))
    tail: tuple[Any, ...] = (columns,) if columns else ()

    def multiply(operand: np.ndarray, _kept: object = (matrix, pointers, indices, data)) -> np.ndarray:
        out = np.empty(shape, data.dtype)
        status = product(*head, operand.ctypes.data, *middle, out.ctypes.data, *tail)
        if status:
            _check(status, "product")
        return out

    return multiply


def _check(status: int, step: str) -> None:
    if status:
        raise MeasurementError(f"MKL's {step} returned status {status}")


@functools.cache
def _routine(library: ctypes.CDLL, name: str, signature: str) -> Any:
    """Look a routine up; letters of its signature: p a pointer, I an int, f a double, s a float, d a description."""
    kinds = {"p": ctypes.c_void_p, "I": ctypes.c_int, "f": ctypes.c_double, "s": ctypes.c_float}
    routine = getattr(library, name)
    routine.argtypes = [_Description if letter == "d" else kinds[letter] for letter in signature]
    return routine
