"""The sparse array of a tuned operator: everything that an array is, and its products by the operator's kernel."""

from typing import Any, Final

import numpy as np

from tensorwise.errors import InputError, TensorwiseError
from tensorwise.sparse.arrays import csr_array
from tensorwise.sparse.given import GivenArrays
from tensorwise.sparse.library import library
from tensorwise.sparse.packed import ROUTINES, masked_texts, pack_product
from tensorwise.sparse.product import ELEMENTS
from tensorwise.sparse.ways import way_packed
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.routines import load_all

_UNMEASURED_S: Final = 0.0


def array_of(operator: Any) -> Any:
    """Return the matrix of a `MatrixOperator` as a frozen array; see ``MatrixOperator.array``."""
    work = operator.workload
    if operator.operand_dtype not in ELEMENTS:
        raise InputError(
            f"{operator!r} keeps values of {operator.operand_dtype}; an array needs float32 or float64: tune with dtype="
        )
    matrix = work.entries.to_scipy()
    matrix.data = matrix.data.astype(operator.operand_dtype)
    made = csr_array(matrix).freeze()
    if operator.is_transposed:
        return made.T
    _use_kernel(made, operator)
    return made


def _use_kernel(array: csr_array, operator: Any) -> None:
    """Have products of the operator's width computed by its kernel, over a packed form of the array's own."""
    work, program = operator.workload, operator.program
    found = library()
    if found is None or program is None or not len(array.data) or program.remainder is not None:
        return
    columns = operator.width
    given = GivenArrays.of(array, "spmv" if columns is None else "spmm", columns)
    if given.workload.einsum != work.einsum:  # its indices have other names, and so have the program's
        return
    try:
        load_all(*ROUTINES)
        default_cache().get(masked_texts(program, given.workload))
        packed = pack_product(
            program, given.workload, given.stored, operator.threads, _UNMEASURED_S, facts={}
        )
    except (TensorwiseError, MemoryError):
        return  # the array computes in place; a search may find other forms
    way = None if packed is None else way_packed(found, packed, np.dtype(work.dtype).itemsize)
    if way is not None:
        product = array.__dict__["_tensorwise"].table.product(found, True, columns)
        product.ways.append(way)
        if product.verify(way):
            product.go_on_with(way)
