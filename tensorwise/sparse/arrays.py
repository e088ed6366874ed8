"""Sparse arrays and matrices that are SciPy's, with fast products."""

from functools import wraps
from typing import Any, Self, TypeVar

import numpy as np
import scipy.sparse as sp

from tensorwise.errors import InputError
from tensorwise.foreign import for_all_libraries
from tensorwise.sparse.gpu_arrays import as_gpu_array
from tensorwise.sparse.methods import quick_methods
from tensorwise.sparse.products import multiply_into, products_of
from tensorwise.sparse.summary import Tuning

Class = TypeVar("Class", bound=type)


def _quick(cls: Class) -> Class:
    """Give a subclass of one of SciPy's compressed classes quick methods, which take arrays of other libraries as well."""
    base = next(base for base in cls.__mro__ if base.__module__.startswith("scipy."))
    for name, method in quick_methods(base, for_all_libraries, at_once=True).items():
        setattr(cls, name, method)
    return cls


def _takes_all_libraries(cls: Class) -> Class:
    """Let the products of a class, which are SciPy's, take arrays of other libraries as well."""
    names = ("__matmul__", "__rmatmul__", *(("__mul__", "__rmul__") if issubclass(cls, sp.spmatrix) else ()))
    for name in names:
        setattr(cls, name, for_all_libraries(getattr(cls, name)))
    return cls


def _is_frozen(array: Any) -> bool:
    """Whether ``array`` still has one of the arrays that `freeze` gave it."""
    known = array.__dict__.get("_tensorwise")
    frozen: Any = array.__dict__.get("_frozen") or (known is not None and known.table.frozen) or None
    arrays = array.data, array.indices, array.indptr
    return frozen is not None and any(mine is its for mine, its in zip(arrays, frozen.arrays))


def _refusing(name: str) -> Any:
    """Return SciPy's method ``name``, which changes an array in place: where it fails on a frozen array, the error says why.

    Methods that find nothing to do, or replace whole arrays, work on frozen arrays, too.
    """

    def change(self: Any, *args: Any, **options: Any) -> Any:
        try:
            # SciPy's resize would cut some of the arrays, and then fail at the next
            if name == "resize" and not self.indptr.flags.writeable:
                raise ValueError("indptr is read-only; resize a copy, A.copy()")
            return getattr(super(_Tuned, self), name)(*args, **options)
        except ValueError as error:
            if not _is_frozen(self):
                raise
            raise ValueError(
                f"{name} would write to a frozen array: A.update(values) replaces its values, and A.copy() returns an array "
                "that may be written to"
            ) from error

    return wraps(getattr(sp.csr_array, name))(change)


class _Family:
    """Conversions give classes of this module, where it has one of that format."""

    _csr_container = property(lambda self: csr_array)
    _csc_container = property(lambda self: csc_array)
    _coo_container = property(lambda self: coo_array)
    _bsr_container = property(lambda self: bsr_array)


class _MatrixFamily:
    """The same for matrices."""

    _csr_container = property(lambda self: csr_matrix)
    _csc_container = property(lambda self: csc_matrix)
    _coo_container = property(lambda self: coo_matrix)
    _bsr_container = property(lambda self: bsr_matrix)


class _Tuned:
    """What arrays with products of ours have besides what SciPy's have."""

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle or a copy gets: of a frozen array arrays that may be written to.

        Arrays that replaced those of a frozen array are shared, as SciPy's copies share them.
        """
        state = dict(self.__dict__)
        known = state.pop("_tensorwise", None)
        if state.pop("_frozen", None) is not None or (known is not None and known.table.frozen is not None):
            arrays = {name: state[name] for name in ("data", "indices", "indptr")}
            state.update({name: one.copy() for name, one in arrays.items() if not one.flags.writeable})
        return state

    def matmul(
        self: Any, x: Any, out: np.ndarray | None = None, alpha: float = 1.0, beta: float = 0.0
    ) -> Any:
        """Return ``alpha * (self @ x) + beta * out``, written into ``out`` where one is given.

        Args:
            x: (k,) or (k, n), whatever ``self @ x`` takes.
            out: (m,) or (m, n) of the dtype of the result. With ``beta`` zero what it holds is not read, NaN included.
            alpha: factor of the product.
            beta: factor of what ``out`` holds.

        Raises:
            InputError: ``beta`` without ``out``, or an ``out`` of another shape or dtype, or one that may not be written to.
        """
        if out is None:
            if beta != 0:
                raise InputError(f"beta is {beta}, but there is no out to multiply by it; pass out=")
            return self @ x if alpha == 1 else alpha * (self @ x)
        if alpha == 1 and beta == 0 and multiply_into(self, x, out):
            return out
        made = self @ x
        if not isinstance(out, np.ndarray) or out.shape != made.shape or out.dtype != made.dtype:
            given = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
            raise InputError(f"out must be an array of {made.dtype} and shape {made.shape}, got {given}")
        if not out.flags.writeable:
            raise InputError("out is read-only; pass an array that may be written to")
        if alpha != 1:
            np.multiply(made, made.dtype.type(alpha), out=made)
        if beta == 0:
            out[...] = made
        else:
            np.multiply(out, made.dtype.type(beta), out=out)
            np.add(out, made, out=out)
        return out

    def freeze(self) -> Self:
        """Return a copy that cannot be written to but by `update`, so that its entries may be kept in packed forms as well.

        When products of it have taken one to two seconds, a child process of lowest priority looks for faster formats and
        schedules. What it finds is packed, tried on calls, and used where it is faster (decision 0118); BSR arrays have no
        packed forms. Methods that write to its arrays raise ValueError. A pickle or a copy of it is an
        ordinary array. In a packed form, entries at one place are one, their sum: where SciPy adds ``Inf`` and ``-Inf``,
        products of two such entries, and gets NaN, the packed product is infinite.

        Raises:
            InputError: the array has one dimension.
        """
        from tensorwise.sparse.frozen import freeze  # few programs need it

        return freeze(self)  # type: ignore[no-any-return]

    resize, setdiag, __setitem__ = map(_refusing, ("resize", "setdiag", "__setitem__"))
    __imul__, __itruediv__ = map(_refusing, ("__imul__", "__itruediv__"))
    sort_indices, sum_duplicates, eliminate_zeros = map(
        _refusing, ("sort_indices", "sum_duplicates", "eliminate_zeros")
    )

    def update(self, values: Any) -> None:
        """Replace all values; the pattern stays. Packed forms are refilled by a stored permutation.

        Not to be called while another thread multiplies.

        Args:
            values: of the shape of ``data``, in its order, of a type that NumPy casts to data's within its kind.

        Raises:
            InputError: another shape or kind of type, or ``data`` is read-only and not frozen by `freeze`.
            TypeError: a sparse array; pass its ``data``.
        """
        from tensorwise.sparse.frozen import update

        update(self, values)

    @property
    def tuning(self) -> Tuning:
        """What is known of this array's products, and what was spent to learn it; it prints as a table."""
        return Tuning.of(products_of(self), self)

    @property
    def nbytes_held(self) -> int:
        """Bytes that products hold besides ``data``, ``indices`` and ``indptr``: bounds of parts, outputs of threads."""
        known = products_of(self)
        return 0 if known is None else known.table.nbytes_held


@_quick
class csr_array(_Tuned, _Family, sp.csr_array):  # noqa: N801
    """``scipy.sparse.csr_array`` whose products with dense vectors and matrices are fast.

    Products are computed where the arrays lie: changes of ``data``, ``indices`` and ``indptr`` are seen by the next one.

    >>> import numpy as np
    >>> from tensorwise.sparse import csr_array
    >>> A = csr_array(np.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> A @ np.array([1.0, 1.0])
    array([1., 5.])
    >>> A.T.format
    'csc'
    """


@_quick
class csc_array(_Tuned, _Family, sp.csc_array):  # noqa: N801
    """``scipy.sparse.csc_array`` whose products with dense vectors and matrices are fast; see `csr_array`.

    ``x @ A`` and ``A.T @ x`` run on threads as a CSR array's ``A @ x`` does. ``A @ x`` adds to outputs of each thread, which
    are summed, or runs on one thread.
    """


@_quick
class csr_matrix(_Tuned, _MatrixFamily, sp.csr_matrix):  # noqa: N801
    """``scipy.sparse.csr_matrix`` whose products with dense vectors and matrices are fast; see `csr_array`."""


@_quick
class csc_matrix(_Tuned, _MatrixFamily, sp.csc_matrix):  # noqa: N801
    """``scipy.sparse.csc_matrix`` whose products with dense vectors and matrices are fast; see `csc_array`."""


def _in_family(made: Any) -> Any:
    """Return what a method made, in our class where SciPy's method names its own."""
    return asarray(made) if sp.issparse(made) else made


@_takes_all_libraries
class coo_array(_Family, sp.coo_array):  # noqa: N801
    """``scipy.sparse.coo_array``, which converts to the classes here; its products are SciPy's (decision 0117)."""

    if hasattr(sp.coo_array, "__getitem__"):  # since SciPy 1.16

        def __getitem__(self, key: Any) -> Any:
            return _in_family(super().__getitem__(key))

    def tensordot(self, other: Any, axes: Any = 2) -> Any:
        return _in_family(super().tensordot(other, axes))


@_quick
class bsr_array(_Tuned, _Family, sp.bsr_array):  # noqa: N801
    """``scipy.sparse.bsr_array``, whose products are fast for square blocks of 1, 2, 3, 4, 6 and 8 and int32 indices.

    ``A @ x``, ``A @ X`` and ``x @ A`` of a vector are computed where the blocks lie. ``A.T`` copies the blocks, as SciPy's
    does. Other products, blocks and indices are SciPy's.

    >>> import numpy as np
    >>> from tensorwise.sparse import bsr_array
    >>> A = bsr_array(np.arange(16.0).reshape(4, 4), blocksize=(2, 2))
    >>> A @ np.ones(4)
    array([ 6., 22., 38., 54.])
    """


@_takes_all_libraries
class coo_matrix(_MatrixFamily, sp.coo_matrix):  # noqa: N801
    """``scipy.sparse.coo_matrix``, which converts to the classes here; its products are SciPy's."""


@_quick
class bsr_matrix(_Tuned, _MatrixFamily, sp.bsr_matrix):  # noqa: N801
    """``scipy.sparse.bsr_matrix``, whose products are fast; see `bsr_array`."""


_CLASSES = {
    base: cls
    for cls in (csr_array, csc_array, csr_matrix, csc_matrix, coo_array, bsr_array, coo_matrix, bsr_matrix)
    for base in cls.__mro__
    if base.__module__.startswith("scipy.") and base.__name__ == cls.__name__
}


def asarray(matrix: Any) -> Any:
    """Return ``matrix`` as the class of this package for its format, without copying: the arrays are shared.

    Args:
        matrix: a SciPy sparse array or matrix. One of another format than CSR, CSC, COO and BSR becomes CSR, by a copy.
            One of this package is returned as it is. Or a CSR matrix in a GPU's memory: of CuPy, or a tensor of PyTorch of
            layout ``sparse_csr``. Its products are tuned by being used, too (`tensorwise.sparse.gpu`).

    Raises:
        InputError: it is none of these.
        MissingExtraError: a tensor on a GPU needs CuPy besides (extra ``cuda``).
    """
    known = _CLASSES.get(type(matrix))
    if known is None:
        if isinstance(matrix, (_Family, _MatrixFamily)):
            return matrix
        if not sp.issparse(matrix):
            if (made := as_gpu_array(matrix)) is not None:
                return made
            raise InputError(f"expected a sparse array or matrix of SciPy, got {type(matrix).__name__}")
        given: Any = matrix
        known = next((_CLASSES[base] for base in type(matrix).__mro__ if base in _CLASSES), None)
        if known is None:
            return asarray(given.tocsr())
    made = object.__new__(known)
    made.__dict__.update(matrix.__dict__)
    made.__dict__.pop("_tensorwise", None)
    return made
