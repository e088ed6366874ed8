"""``tensorwise.interpret``: sums, products and sparse results of several sparse operands, by the slow interpreter."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorwise.errors import InputError
from tensorwise.front.api import merge_operands
from tensorwise.lower.coiterate import StoredOperand, check_merged, coiterate
from tensorwise.program.einsum import Assignment, Einsum
from tensorwise.program.workload import add_extents
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.elements import is_float
from tensorwise.tensor.fibertree import Tensor
from tensorwise.tensor.format import Format, csf, csr


def interpret(
    einsum: str,
    /,
    *,
    output: Format | str | None = None,
    formats: Mapping[str, Format | str] | None = None,
    sizes: Mapping[str, int] | None = None,
    operands: Mapping[str, Any] | None = None,
    **named: Any,
) -> Tensor | np.ndarray:
    """Compute an einsum of one or more sparse operands once, in Python: the reference of what is not compiled yet.

    A result has an entry where a term has one: of a product where all factors are stored, of a sum, a difference, ``max`` or
    ``min`` where any argument is. A missing entry annihilates what multiplies it, NaN and infinities too; an explicit zero
    is a number like any other. Sums are computed in float64, and rounded once to float32 unless an operand is float64.

    Args:
        einsum: one assignment that sums or reduces nothing, such as ``C[i,j] = A[i,j] + B[i,j]``.
        output: format in which the result is assembled, such as ``(i,j) -> U(i) C(j)``; left out, it is a dense array.
        formats: storage of the sparse operands by name; default CSR, or CSF from order 3. Axes are whole modes.
        sizes: extents of indices that no operand tells.
        operands: the same as ``named``, for operands that are called like an argument.
        named: all operands by name: sparse ones as `compile` takes them, dense ones as NumPy arrays.

    Returns:
        A packed tensor (``tensorwise.tensor.pack.unpack`` gives its entries), or a dense array.

    Raises:
        InputError: operands are missing or do not fit, reductions other than sums, terms where no operand has an entry.
        FormatError: formats do not parse, contradict each other's order, or cannot be assembled.

    >>> import scipy.sparse as sp
    >>> A, B = sp.csr_array(np.diag([1.0, 2.0])), sp.csr_array(np.array([[5.0, 3.0], [0.0, 0.0]]))
    >>> print(interpret("C[i,j] = A[i,j] + B[i,j]", A=A, B=B, output="(i,j) -> C(i) C(j)"))
    (i,j) -> C(i) C(j)  2 x 2, 3 values of float64, 64 bytes
    |-- i=0
    |   `-- j: 0=6.0 1=3.0
    `-- i=1
        `-- j: 1=2.0
    """
    if not isinstance(einsum, str):
        raise InputError(
            f"interpret takes an einsum first, such as 'C[i,j] = A[i,j] + B[i,j]', got {type(einsum).__name__}"
        )
    assignment = Einsum.parse(einsum).single
    given, formats = merge_operands(named, operands), dict(formats or {})
    for name in (*given, *formats):
        if name not in assignment.operands:
            raise InputError(
                f"'{assignment}' has no operand {name!r}; it has {', '.join(assignment.operands)}"
            )
    missing = [name for name in assignment.operands if name not in given]
    if missing:
        raise InputError(f"'{assignment}' needs the operand {missing[0]}; give it by name: {missing[0]}=...")
    dense = {
        name: array for name, array in given.items() if isinstance(array, np.ndarray) and name not in formats
    }
    entries = {name: entries_from(given[name]) for name in assignment.operands if name not in dense}
    if not entries:
        raise InputError(f"'{assignment}' was given no sparse operand (a NumPy array also needs its format)")
    for name, array in dense.items():
        if not is_float(array.dtype) or isinstance(array, np.ma.MaskedArray):
            raise InputError(
                f"operand {name} must be a NumPy array of floats, got {type(array).__name__} of {array.dtype}"
            )
    check_merged(assignment, tuple(entries))
    shapes = {name: one.shape for name, one in entries.items()} | {name: a.shape for name, a in dense.items()}
    extents = _extents(assignment, shapes, dict(sizes or {}))
    stored = {
        name: StoredOperand.of(
            one,
            _named_format(formats.get(name, csr() if one.order == 2 else csf(one.order)), assignment, name),
        )
        for name, one in entries.items()
    }
    result_format = None if output is None else _named_format(output, assignment, assignment.output.tensor)
    return coiterate(assignment, stored, dense, extents, result_format)


def _named_format(format: Format | str, assignment: Assignment, name: str) -> Format:
    """Return a format with the indices of a tensor as modes."""
    parsed = Format.parse(format, name) if isinstance(format, str) else format
    if not isinstance(parsed, Format):
        raise InputError(
            f"the format of {name} is a Format or its text, such as '(i,k) -> U(i) C(k)', got {format!r}"
        )
    return parsed.renamed(assignment.access(name).indices)


def _extents(
    assignment: Assignment, shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int]
) -> dict[str, int]:
    """Return the extent of each index; raise InputError where shapes and sizes contradict each other or tell too little."""
    extents: dict[str, int] = {}
    for index, extent in sizes.items():
        if index not in assignment.indices:
            raise InputError(f"'{assignment}' has no index {index!r}; it has {', '.join(assignment.indices)}")
        if isinstance(extent, bool) or not isinstance(extent, int | np.integer) or extent < 1:
            raise InputError(f"the size of index {index!r} must be a positive integer, got {extent!r}")
        extents[index] = int(extent)
    for name, shape in shapes.items():
        add_extents(extents, assignment.access(name), shape)
    unknown = [index for index in assignment.indices if index not in extents]
    if unknown:
        raise InputError(f"the size of index {unknown[0]!r} is not known; give sizes={{{unknown[0]!r}: ...}}")
    return extents
