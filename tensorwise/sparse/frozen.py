"""Arrays that nobody but `update` writes to: only their entries may be kept in packed forms as well.

A packed form is a copy. For arrays that a program may change in place a copy could not be trusted.
"""

from typing import Any, Final, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.sparse.products import Product, Products, ProductTable
from tensorwise.sparse.ways import ProductWay

MOST_HELD: Final = 4.0
"""Bytes of all packed forms of a matrix, at most, as a multiple of its own."""


@final
class FrozenArrays:
    """Data, indices and indptr that can only be read, and the memory behind the data.

    NumPy refuses to make the arrays writeable again: they are views of read-only buffers.
    """

    def __init__(self, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray) -> None:
        self._memory = np.array(data, order="C")
        self.arrays = (
            _read_only(self._memory),
            _read_only(np.array(indices, order="C")),
            _read_only(np.array(indptr, order="C")),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a pickle or a copy of the matrix is an ordinary one

    def look(self, product: Product, table: ProductTable) -> list[ProductWay] | None:
        """Return packed ways that were found since the last look."""
        return []

    def write(self, values: np.ndarray) -> None:
        """Replace the values."""
        np.copyto(self._memory, values, casting="same_kind")


def _read_only(memory: np.ndarray) -> np.ndarray:
    """Return a view that cannot be made writeable."""
    if not memory.size:  # no buffer to speak of, and nothing to write to
        view = memory.view()
        view.setflags(write=False)
        return view
    whole: Any = memory.view(np.uint8)
    return np.frombuffer(memoryview(whole).toreadonly(), memory.dtype)


def freeze(matrix: Any) -> Any:
    """Return a copy of a CSR or CSC array of this package whose arrays cannot be written to.

    Raises:
        InputError: it has one dimension.
    """
    if len(matrix.shape) != 2:
        raise InputError(f"freeze needs a matrix of two dimensions, got shape {matrix.shape}")
    frozen = FrozenArrays(matrix.data, matrix.indices, matrix.indptr)
    made = object.__new__(type(matrix))
    made.__dict__.update((name, value) for name, value in vars(matrix).items() if name != "_tensorwise")
    made.data, made.indices, made.indptr = frozen.arrays
    gathers = matrix.format == "csr"
    table = ProductTable.of(made, made._shape[1 if gathers else 0])
    if table is not None:
        table.frozen = frozen
        made.__dict__["_tensorwise"] = Products(table, gathers, made._shape)
    else:  # no kernel of ours reads these types; `update` works all the same
        made.__dict__["_frozen"] = frozen
    return made


def update(matrix: Any, values: Any) -> None:
    """Give a CSR or CSC array new values for the same pattern; see ``csr_array.update``."""
    given = np.asarray(values)
    if given.shape != matrix.data.shape:
        raise InputError(f"values must have the shape of data, {matrix.data.shape}; got {given.shape}")
    if not np.can_cast(given.dtype, matrix.data.dtype, "same_kind"):
        raise InputError(
            f"values of {given.dtype} do not fit into data of {matrix.data.dtype}; convert them, or make a new array"
        )
    known = matrix.__dict__.get("_tensorwise")
    table = None if known is None or not known.table.is_of(matrix) else known.table
    frozen = matrix.__dict__.get("_frozen") if table is None else table.frozen
    if table is not None and frozen is not None:
        with table.lock:
            packed = [(one, one.set_packed_aside()) for one in list(table.products.values())]
            frozen.write(given)  # whatever interrupts us, products are right: what is packed is set aside
            for product, way in packed:
                if way is not None:
                    way.refresh(matrix.data)
                    product.go_on_with(way)
    elif frozen is not None and frozen.arrays[0] is matrix.data:
        frozen.write(given)
    elif not matrix.data.flags.writeable:
        raise InputError("data is read-only and was not frozen by freeze(); copy the array first")
    else:
        np.copyto(matrix.data, given, casting="same_kind")
