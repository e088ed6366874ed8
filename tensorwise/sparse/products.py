"""Products of one matrix over its arrays where they lie: found again from call to call, or SciPy's.

A `Product` is one operation of one matrix, as ``A @ X`` for operands of 8 columns.
"""

import contextlib
import copyreg
import itertools
import time
from collections.abc import Callable
from typing import Any, Final, final

import numpy as np

from tensorwise.sparse.kernels import BLOCK_KERNELS, BLOCK_LANES, COMPRESSED_KERNELS, KernelFamily
from tensorwise.sparse.library import Library, library, preload
from tensorwise.sparse.limits import is_reproducible, solver_call, tell_limits
from tensorwise.sparse.pools import register_pool
from tensorwise.sparse.product import ELEMENTS, ENTRY_NS, INDICES, NO_PRODUCT, Forms, Product
from tensorwise.toolchain.forks import lock

MAKING_NS: Final = 20_000
"""Nanoseconds that making a product costs, measured. Under a patch SciPy computes until it has taken as long."""
MOST_PRODUCTS: Final = 64
"""Products with several columns that are kept for a matrix: operations times numbers of columns."""
MOST_SCATTERS: Final = 16
"""As many of them scatter: they may hold outputs for each thread."""
ARRAYS: Final = (np.ndarray, np.memmap)
"""Classes of arrays that kernels read; joblib hands large ones to its processes as files mapped into memory."""

Multiply = Callable[[Any, np.ndarray], np.ndarray]
"""SciPy's own method: of a matrix and an operand."""


@final
class Products:
    """What one matrix object knows of its products. Matrices of the same arrays share the table, as a transpose does.

    Attributes:
        shape: of the matrix, the very tuple that SciPy keeps: a matrix that is resized in place gets another one.
        last: the product of the last ``A @ x``, tried first by the next one.
    """

    __slots__ = ("_turned", "forward_gathers", "last", "shape", "table")

    def __init__(self, table: "ProductTable", forward_gathers: bool, shape: tuple[int, int]) -> None:
        self.table, self.forward_gathers, self.shape = table, forward_gathers, shape
        self.last: Product = NO_PRODUCT
        self._turned: Products | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle or a copy of the matrix begins anew, and needs nothing of this package: the call makes None."""
        return copyreg.constructor, (len,)

    @property
    def turned(self) -> "Products":
        """What all transposes of the matrix know of their products."""
        if self._turned is None:
            self._turned = Products(self.table, not self.forward_gathers, self.shape[::-1])
            self._turned._turned = self
        return self._turned


@final
class ProductTable:
    """The products over three arrays.

    Args:
        data: (entries,) float32 or float64; of a BSR matrix (blocks, height, height).
        indices: (entries,) or (blocks,) int32 or int64.
        indptr: (lines + 1,) of the same type.
        minor: how many columns a CSR matrix has, or rows a CSC matrix, or columns of blocks a BSR matrix.
    """

    lock: Final = lock()
    """Of all tables: one for each matrix would take longer to make than the rest of the table."""

    def __init__(self, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, minor: int) -> None:
        self.data, self.indices, self.indptr, self.minor = data, indices, indptr, minor
        self.lines = len(indptr) - 1
        self.block = data.shape[1] if data.ndim == 3 else 0
        self.products: dict[tuple[bool, int | None], Product] = {}
        self.scipy_ns: dict[tuple[bool, int | None], int] = {}
        self.frozen: Forms | None = None
        self.unfit: np.dtype | None = None  # of the last operand for which SciPy computed
        self.solver: Any = None  # the call of a solver in which SciPy computed, for want of the library

    @staticmethod
    def of(matrix: Any, minor: int) -> "ProductTable | None":
        """Return an empty table for a matrix, or None where no kernel reads its arrays.

        Args:
            minor: columns of a CSR or BSR matrix, or rows of a CSC matrix.
        """
        data, indices, indptr = matrix.data, matrix.indices, matrix.indptr
        in_blocks = matrix.format == "bsr"
        for array in (data, indices, indptr):
            if type(array) not in ARRAYS or not (array.flags.c_contiguous and array.flags.aligned):
                return None
        if data.ndim != (3 if in_blocks else 1) or not (indices.ndim == indptr.ndim == 1):
            return None
        known = data.dtype in ELEMENTS and indices.dtype in INDICES and indices.dtype == indptr.dtype
        if in_blocks:
            height, width = data.shape[1:]
            kept = height == 1 or (
                height in BLOCK_LANES and INDICES.get(indices.dtype) in BLOCK_KERNELS.indices
            )
            if not known or height != width or not kept or minor % width:
                return None
            minor //= width
        return ProductTable(data, indices, indptr, minor) if known else None

    @property
    def family(self) -> KernelFamily:
        """Where kernels for these arrays are."""
        return BLOCK_KERNELS if self.block > 1 else COMPRESSED_KERNELS

    @property
    def extents(self) -> tuple[int, int]:
        """Outputs and inputs of a gather: rows and columns of a CSR matrix."""
        height = self.block or 1
        return self.lines * height, self.minor * height

    def is_of(self, matrix: Any) -> bool:
        """Whether these are the arrays of ``matrix`` still."""
        return self.data is matrix.data and self.indices is matrix.indices and self.indptr is matrix.indptr

    def product(
        self, found: Library, gather: bool, columns: int | None, same_bits: bool = False
    ) -> "Product":
        """Return a product, made when it is first asked for; ``same_bits``: results must be equal to the last bit."""
        key = gather, columns
        known = self.products.get(key)
        if known is None:
            register_pool(found.file_name)
            tell_limits(found, same_bits)  # the environment may say what nobody has told the library
            with self.lock:
                known = self.products.get(key)
                if known is None:
                    known = Product(found, self, gather, columns, same_bits)
                    if columns is not None:
                        self._make_room(gather)
                    self.products[key] = known
        return known

    def _make_room(self, gather: bool) -> None:
        """Forget products with several columns that were made long ago, those without packed forms first."""
        most = MOST_PRODUCTS if gather else MOST_SCATTERS
        wide = {
            key: one
            for key, one in self.products.items()
            if key[1] is not None and (gather or not one.gather)
        }
        while len(wide) >= most:
            key = min(wide, key=lambda key: any(way.is_packed for way in wide[key].ways))
            self.products.pop(key).retire()
            del wide[key]

    @property
    def nbytes_held(self) -> int:
        """Bytes that the products hold besides the matrix's arrays."""
        return sum(way.nbytes for product in list(self.products.values()) for way in product.ways)


def products_of(matrix: Any) -> Products | None:
    """Return what a CSR, CSC or BSR matrix knows of its products; None where no kernel reads its arrays."""
    shape = matrix._shape
    if len(shape) != 2:
        return None
    known: Products | None = matrix.__dict__.get("_tensorwise")
    if known is not None and known.shape is shape and known.table.is_of(matrix):
        return known
    gathers = matrix.format != "csc"
    table = ProductTable.of(matrix, shape[1] if gathers else shape[0])
    if table is None or table.extents != (shape if gathers else shape[::-1]):
        matrix.__dict__.pop("_tensorwise", None)
        return None
    made = matrix.__dict__["_tensorwise"] = Products(table, gathers, shape)
    return made


def multiply(
    matrix: Any, x: np.ndarray, by_scipy: Multiply, turned: bool = False, at_once: bool = False
) -> np.ndarray:
    """Return the product of a CSR, CSC or BSR matrix with a vector or several, as SciPy's ``by_scipy`` does.

    Args:
        matrix: of SciPy's classes or ours.
        x: (k,) or (k, n) ndarray that fits the matrix; any strides and dtype.
        by_scipy: what computes where no kernel of ours can, or where looking at the matrix would not pay yet.
        turned: multiply by the transpose; of a BSR matrix only a vector.
        at_once: make the product at its first call: who takes a class of ours multiplies more than once.
    """
    known = None if x.size == 0 else products_of(matrix)
    if known is None:
        return by_scipy(matrix, x)
    known, table = known.turned if turned else known, known.table
    dtype = table.data.dtype
    if x.dtype != dtype and (x.dtype.kind not in "biuf" or np.result_type(x.dtype, dtype) != dtype):
        table.unfit = x.dtype
        return by_scipy(matrix, x)
    gather = known.forward_gathers
    columns = None if x.ndim == 1 else x.shape[1]
    if columns == 1:
        columns = None
    product = table.products.get((gather, columns))
    if product is None:
        same_bits = is_reproducible()
        found = library(same_bits, table.family)
        if found is None:
            table.solver = solver_call()
        elif table.solver is not None and table.solver is solver_call():
            return by_scipy(matrix, x)  # a solver that began with SciPy's products ends with them
        spent = table.scipy_ns.get((gather, columns), 0)
        if found is None or not (at_once or same_bits or spent >= MAKING_NS or _pays_at_once(table, columns)):
            start = time.perf_counter_ns()
            result = by_scipy(matrix, x)
            table.scipy_ns[gather, columns] = spent + time.perf_counter_ns() - start
            return result
        try:
            product = table.product(found, gather, columns, same_bits)
        except KeyError:  # the cache lost the kernel
            return by_scipy(matrix, x)
    given = x if columns is not None else x.reshape(-1)
    if given.dtype != dtype or not (given.flags.c_contiguous and given.flags.aligned):
        given = np.array(given, dtype, order="C")
    out = np.empty(product.out_shape, dtype)
    if not product.run(given, out):
        matrix.__dict__.pop("_tensorwise", None)
        return by_scipy(matrix, x)
    if x.ndim == 2 and columns is None:
        return out.reshape(-1, 1)
    known.last = product
    return out


def multiply_into(matrix: Any, x: Any, out: Any) -> bool:
    """Write ``matrix @ x`` into ``out`` where the product is known already; return whether it was.

    ``x`` is copied where it is not C-contiguous, ``out`` never.
    """
    known = products_of(matrix)
    if known is None or type(x) is not np.ndarray or type(out) is not np.ndarray:
        return False
    product = known.last
    if x.shape != product.x_shape or x.dtype != product.dtype:
        return False
    if out.shape != product.out_shape or out.dtype != product.dtype or not out.flags.carray:
        return False
    flags = x.flags
    if not (flags.c_contiguous and flags.aligned):
        x = x.copy()
    for array in (x, product.data, product.indices, product.indptr):
        # arrays that own their memory share it with their views only
        own = out.base is None and array.base is None and array is not out
        if not own and np.may_share_memory(out, array):
            return False
    return product.run(x, out)


def warm_up() -> None:
    """Load the library where it was made before, and go once through what a first product goes through.

    A process that does so as it imports this package does not do it in the user's first product, where it takes as long as
    a hundred small products.
    """
    found = preload()
    if found is None:
        return
    for dtype in (np.float64, np.float32):
        table = ProductTable(np.ones(4, dtype), np.zeros(4, np.int32), np.arange(5, dtype=np.int32), 1)
        with contextlib.suppress(KeyError):  # the cache lost a kernel
            for gather, columns in itertools.product((True, False), (None, 4)):
                product = table.product(found, gather, columns)
                given = np.ones(product.shape_given, dtype)
                for _ in range(2):
                    product.run(given, np.empty(product.out_shape, dtype))


def _pays_at_once(table: ProductTable, columns: int | None) -> bool:
    """Whether the first product is expected to save what making it costs, or SciPy may not compute."""
    return table.data.size * (columns or 1) * ENTRY_NS > 2 * MAKING_NS or solver_call() is not None
