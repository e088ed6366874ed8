"""Quick methods in place of those of SciPy's compressed classes: for our subclasses, and for SciPy's own under a patch."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
import scipy.sparse as sp

from tensorwise.sparse.products import multiply, products_of

Method = Callable[..., Any]
_ndarray, _empty = np.ndarray, np.empty
COMPRESSED: Final = (
    *(sp.csr_array, sp.csc_array, sp.csr_matrix, sp.csc_matrix),
    *(sp.bsr_array, sp.bsr_matrix),
)
"""SciPy's classes whose arrays our kernels read."""
_STATE: Final = {"_shape", "maxprint", "data", "indices", "indptr"}
"""What a new object of these classes holds, as far as we know: others are transposed by SciPy's own method."""


@cache
def _is_simple(cls: type) -> bool:
    """Whether an object of this class can be made of its arrays alone, without the class's own checks of them."""
    return (
        cls.__module__.startswith(("scipy.sparse.", "tensorwise.sparse."))
        and set(vars(cls((1, 1)))) == _STATE
    )


def quick_methods(
    cls: Any, around: Callable[[Method], Method] = lambda method: method, at_once: bool = False
) -> dict[str, Method]:
    """Return the methods that replace those of ``cls``, one of `COMPRESSED`, by name.

    Each does what the class's own method does. The quick way is taken for a C-contiguous ndarray of the matrix's type on
    which the same product was computed before; all else goes through SciPy's method, which calls ``_matmul_vector`` or
    ``_matmul_multivector`` when it has understood the operand.

    Args:
        cls: the class.
        around: put around SciPy's methods that multiply.
        at_once: see `tensorwise.sparse.products.multiply`.
    """
    vector, multivector = cls._matmul_vector, cls._matmul_multivector

    def _matmul_vector(self: Any, other: np.ndarray) -> Any:
        return multiply(self, other, vector, at_once=at_once)

    def _matmul_multivector(self: Any, other: np.ndarray) -> Any:
        return multiply(self, other, multivector, at_once=at_once)

    methods: dict[str, Method] = {
        "__matmul__": _quick_product(around(cls.__matmul__)),
        "__rmatmul__": _quick_product(around(cls.__rmatmul__), from_left=True),
        "_matmul_vector": _matmul_vector,
        "_matmul_multivector": _matmul_multivector,
    }
    if "bsr" in cls.__name__:  # whose transpose is a copy
        methods["_rmatmul_dispatch"] = _rmatmul_dispatch(cls._rmatmul_dispatch, at_once)
    else:
        turned = "_csc_container" if "csr" in cls.__name__ else "_csr_container"
        methods["transpose"] = _quick_transpose(cls.transpose, turned)
    if issubclass(cls, sp.spmatrix):
        methods["__mul__"] = _quick_product(around(cls.__mul__))
        methods["__rmul__"] = around(cls.__rmul__)
    for name, method in methods.items():
        method.__name__, method.__qualname__ = name, f"{cls.__name__}.{name}"
        method.__doc__ = getattr(cls, name).__doc__
    return methods


def _quick_product(by_scipy: Method, from_left: bool = False) -> Method:
    """``A @ x``, or ``x @ A`` of a vector ``from_left``: the product of the transpose.

    It is computed here, without a call in between: small products take as long as a few of Python's.
    """

    def multiply_quickly(self: Any, other: Any) -> Any:
        if type(other) is _ndarray:
            known = self.__dict__.get("_tensorwise")
            if known is not None:
                product = known.turned.last if from_left else known.last
                if (
                    other.shape == product.x_shape
                    and other.dtype is product.dtype
                    and self.data is product.data
                    and self.indices is product.indices
                    and self.indptr is product.indptr
                    and self._shape is known.shape
                    and other.flags.c_contiguous
                    and (not from_left or other.ndim == 1)
                ):
                    out = _empty(product.out_shape, product.dtype)
                    took = product.multiply(product.address, id(other), id(out))
                    if took >= 0:
                        product.left_ns -= took
                        if product.left_ns < 0:
                            product.review()
                        return out
            if not from_left and len(self._shape) == 2 and other.ndim and other.shape[0] == self._shape[1]:
                # what SciPy's method finds out after more questions
                if other.ndim == 1:
                    return self._matmul_vector(other)
                if other.ndim == 2 and other.shape[1] != 1:
                    return self._matmul_multivector(other)
        return by_scipy(self, other)

    return multiply_quickly


def _rmatmul_dispatch(by_scipy: Method, at_once: bool) -> Method:
    """``x @ A`` of a vector and a BSR array, which are not transposed first."""

    def rmatmul(self: Any, other: Any) -> Any:
        if type(other) is _ndarray and other.ndim == 1 and other.shape[0] == self._shape[0]:
            return multiply(self, other, by_scipy, turned=True, at_once=at_once)
        return by_scipy(self, other)

    return rmatmul


def _is_whole(matrix: Any) -> bool:
    """Whether the arrays are as long as ``indptr`` says: those of others SciPy cuts in the transpose, or refuses."""
    stored = len(matrix.indices)
    return len(matrix.data) == stored and len(matrix.indptr) > 0 and matrix.indptr[-1] == stored


def _quick_transpose(by_scipy: Method, container: str) -> Method:
    """``A.T`` over the same arrays: it shares what is known of the products."""

    def transpose(self: Any, axes: Any = None, copy: bool = False) -> Any:
        known = None if copy or axes is not None or not _is_whole(self) else products_of(self)
        cls = getattr(self, container) if known is not None else None
        if known is None or cls is None or not _is_simple(cls):
            return by_scipy(self, axes=axes, copy=copy)
        made = object.__new__(cls)
        turned = known.turned
        made.__dict__.update(
            _shape=turned.shape,
            maxprint=self.maxprint,
            data=self.data,
            indices=self.indices,
            indptr=self.indptr,
            _tensorwise=turned,
        )
        return made

    return transpose
