"""Whether two ways to compute a product agree, before the second is used."""

from typing import Any, Final

import numpy as np
import scipy.sparse as sp

ROUNDINGS: Final = 2.0
"""Half units of rounding by which each result may differ from the exact one, beside one for each addition."""


def agree(
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray],
    extents: tuple[int, int],
    gather: bool,
    x: np.ndarray,
    made: np.ndarray,
    expected: np.ndarray,
) -> bool | None:
    """Return whether two results of a product differ by no more than the order of additions explains.

    For an element of ``n`` terms the bound is ``(n + 2) eps (|A| |x|)`` (Higham, Accuracy and Stability of Numerical
    Algorithms, 2nd ed., section 3.1: half of it for each result), and the smallest normal number for each term, which may
    underflow. An element whose bound is not finite is not compared.

    Args:
        arrays: data, indices and indptr of the matrix.
        extents: lines and number of columns of a CSR matrix; columns and rows of a CSC matrix.
        gather: whether an element is of a line; else of an index.
        x: (k,) or (k, n), C-contiguous.
        made: one result.
        expected: the other one.

    Returns:
        None where no element could be compared: all are zero, or no bound is finite.

    Raises:
        MemoryError: there is none for the bounds.
    """
    data, indices, indptr = arrays
    used = slice(int(indptr[-1]))
    terms = np.diff(indptr) if gather else np.bincount(indices[used], minlength=extents[1])
    terms = terms.reshape(-1, *(1,) * (x.ndim - 1))
    unit, least = (float(getattr(np.finfo(data.dtype), name)) for name in ("eps", "tiny"))
    with np.errstate(all="ignore"):
        gap = np.abs(made - expected)
        # |A x| is at most |A| |x|: where nothing cancels, no bound need be computed
        told = (gap <= terms * (unit * np.abs(expected))) & np.isfinite(expected)
        if told.all() and expected.any():
            return True
        sizes: Any = np.abs(data[used])
        kind, shape = (sp.csr_array, extents) if gather else (sp.csc_array, extents[::-1])
        magnitudes = kind((sizes, indices[used], indptr), shape=shape) @ np.abs(x)
        bound = (terms + ROUNDINGS) * unit * magnitudes + terms * least
        known = np.isfinite(bound)
        equal = (made == expected) | (np.isnan(made) & np.isnan(expected))
        if not (equal | ~known | (gap <= bound)).all():
            return False
    return True if (known & (magnitudes > 0)).any() else None
