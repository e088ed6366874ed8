"""A replacement for a matrix: SciPy's ``LinearOperator`` on tuned kernels, with NumPy's rules for dtypes and shapes.

Kernels compute in one dtype. The rules here decide in which one a product is computed, so that nothing is narrowed:
the result has ``numpy.result_type`` of the matrix and the operand, as with a SciPy matrix.
"""

import abc
import math
from typing import Any, Final

import numpy as np
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator

from tensorwise.errors import InputError
from tensorwise.foreign import for_all_libraries
from tensorwise.tensor.elements import is_float, is_half

REAL_DTYPES: Final[dict[str, np.dtype]] = {
    "complex64": np.dtype(np.float32),
    "complex128": np.dtype(np.float64),
}
"""Complex dtype -> dtype of its real and imaginary part."""


class Matrix(LinearOperator):
    """Products with a real matrix, for operands of any dtype.

    ====================================  ==========================================================
    ``numpy.result_type``                 computed
    ====================================  ==========================================================
    the tuned dtype                       by the tuned kernel
    float32, float64                      by an untuned kernel on a copy of the matrix in that dtype
    complex64, complex128                 as twice as many real columns
    bool, integers, longdouble            by SciPy, as are sparse operands
    ====================================  ==========================================================

    Of an operand of PyTorch, or of a library of the array API standard, the result is an array of that library.

    The copy is made at the first such product; it is kept, and counted in ``bytes_held``. Halves (float16, bfloat16)
    are results only where matrix and operand are of the same one.
    """

    is_long = False
    """Whether the matrix is of longdouble, in which no kernel computes."""
    args = ()  # of composed operators it is what they are composed of
    ndim = 2
    # SciPy 1.18 keeps the array namespace here when it makes an operator, and asks every operator for it.
    _xp = getattr(LinearOperator((1, 1), abs, dtype=np.float64), "_xp", None)

    # -- what a leaf knows -------------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def operand_dtype(self) -> np.dtype:
        """dtype of the operands of the tuned kernel."""

    @abc.abstractmethod
    def transpose(self, copy: bool | None = None) -> "Matrix":  # type: ignore[override]
        """Return the transposed operator."""

    @abc.abstractmethod
    def _tuned(self, x: np.ndarray) -> np.ndarray:
        """Return the product with x, (k,) or (k, n) with n > 0, of ``operand_dtype``."""

    @abc.abstractmethod
    def _in(self, dtype: np.dtype) -> "Matrix":
        """Return the operator whose ``operand_dtype`` is ``dtype``."""

    @abc.abstractmethod
    def _by_scipy(self, x: Any) -> Any:
        """Return the product with an array or a sparse matrix that SciPy computes in the matrix's own dtype."""

    @abc.abstractmethod
    def _quick(self, x: Any) -> np.ndarray | None:
        """Return the product with an array that the kernel takes as it is, None for any other object."""

    # -- products ----------------------------------------------------------------------------------------

    def __matmul__(self, other: Any) -> Any:
        """Return ``A @ other`` for a vector or matrix, or the composed operator."""
        quick = self._quick(other)
        if quick is not None:
            return quick
        if np.isscalar(other):
            raise InputError("scalar operands are not allowed for @; use * instead")
        return self.dot(other)

    @for_all_libraries
    def __rmatmul__(self, other: Any) -> Any:
        """Return ``other @ A`` for a vector or matrix, or the composed operator."""
        return super().__rmatmul__(other)

    @for_all_libraries
    def dot(self, x: Any) -> Any:
        """Return A x for a vector or matrix, and the composed operator for another operator or a number."""
        if isinstance(x, LinearOperator) or np.isscalar(x):
            return super().dot(x)  # type: ignore[arg-type]
        if issparse(x):
            return self.matmat(x)
        array = np.asarray(_dense(x))
        if array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1):
            return self.matvec(array)
        return self.matmat(array)

    @for_all_libraries
    def matvec(self, x: Any) -> Any:
        """Return A x for x of shape (k,) or (k, 1)."""
        x = _dense(x)
        k = self.shape[1]
        if x.shape not in ((k,), (k, 1)):
            raise InputError(f"matvec takes an array of shape ({k},) or ({k}, 1), got {x.shape}")
        made = self._multiply(np.asarray(x).reshape(k))
        return _like(made if x.ndim == 1 else made.reshape(-1, 1), x)

    @for_all_libraries
    def matmat(self, X: Any) -> Any:
        """Return A X for X of shape (k, n); of a sparse X it is sparse, and SciPy computes it.

        An operator tuned for one vector uses the default kernel for n columns, and stores the matrix in that kernel's
        format, once for all n, unless it is stored so already.
        """
        X = X if issparse(X) else _dense(X)
        if X.ndim != 2 or X.shape[0] != self.shape[1]:
            raise InputError(f"matmat takes an array of shape ({self.shape[1]}, n), got {X.shape}")
        return self._by_scipy(X) if issparse(X) else _like(self._multiply(np.asarray(X)), X)

    def rmatvec(self, x: Any) -> Any:
        """Return A^T x; the first call makes ``T``."""
        return self.transpose().matvec(x)

    def rmatmat(self, X: Any) -> Any:
        """Return A^T X; the first call makes ``T``."""
        return self.transpose().matmat(X)

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return self._multiply(np.asarray(x))

    def _rmatvec(self, x: np.ndarray) -> np.ndarray:
        return self.transpose()._multiply(np.asarray(x))

    def _adjoint(self) -> LinearOperator:
        return self.transpose()  # the matrix is real

    _matmat, _rmatmat, _transpose = matmat, rmatmat, _adjoint

    @property
    def T(self) -> Any:  # noqa: N802 - as NumPy and SciPy call it
        """The transposed operator, see ``transpose``."""
        return self.transpose()

    # -- dtypes ------------------------------------------------------------------------------------------

    def _multiply(self, x: np.ndarray) -> np.ndarray:
        """Return the product with x (k,) or (k, n), in the dtype that NumPy gives it."""
        if x.dtype == self.operand_dtype and not self.is_long and 0 not in x.shape[1:]:
            return self._tuned(x)
        dtype = self.result_dtype(x.dtype)
        if 0 in x.shape[1:]:
            return np.empty((self.shape[0], *x.shape[1:]), dtype)
        if dtype.name in REAL_DTYPES:
            part = REAL_DTYPES[dtype.name]
            columns = np.ascontiguousarray(x, dtype).reshape(len(x), math.prod(x.shape[1:])).view(part)
            made = np.ascontiguousarray(self._in(part)._tuned(columns))
            return made.view(dtype).reshape(self.shape[0], *x.shape[1:])
        if is_float(dtype):
            return self._in(dtype)._tuned(x.astype(dtype))
        return np.asarray(self._by_scipy(x))

    def result_dtype(self, operand: Any) -> np.dtype:
        """Return the dtype of the product with an operand of a dtype.

        Raises:
            InputError: it is no dtype of numbers.
        """
        given = np.dtype(operand)
        if given == self.operand_dtype and not self.is_long:
            return self.dtype if is_float(self.dtype) else given
        if given.kind not in "biufc" and not is_half(given):
            raise InputError(f"operands must be numbers, got an array of dtype {given}")
        own, other = (np.dtype(np.float32) if is_half(one) else one for one in (self.dtype, given))
        found: np.dtype = np.result_type(own, other)
        return found


def _dense(x: Any) -> np.ndarray:
    """Return x as an array, a ``numpy.matrix`` as it is."""
    if hasattr(x, "toarray"):
        raise InputError(f"operands must be dense, got a sparse {type(x).__name__}; use .toarray()")
    if isinstance(x, np.ma.MaskedArray):
        raise InputError("masked arrays are not supported, their mask would be lost; use .filled() first")
    try:
        return np.asanyarray(x)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"operands must be arrays, got {type(x).__name__} ({error})") from error


def _like(made: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the product as a ``numpy.matrix`` where the operand is one."""
    return np.asmatrix(made) if isinstance(x, np.matrix) else made
