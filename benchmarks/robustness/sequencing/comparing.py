"""What two results must have in common."""

from typing import Any

import numpy as np
import scipy.sparse as sp

OURS = "tensorwise.sparse."


def difference(right: Any, ours: Any, bound: Any = None) -> str | None:
    """Return how ``ours`` differs from ``right``, or None.

    Args:
        right: SciPy's result.
        bound: how far numbers may lie apart, in units of the machine epsilon of ``right``; None: they must be equal.
    """
    if isinstance(right, list | tuple):
        if type(right) is not type(ours) or len(right) != len(ours):
            return f"{ours!r}, expected {right!r}"
        found = (difference(one, other, bound) for one, other in zip(right, ours, strict=True))
        return next(filter(None, found), None)
    if type(right).__name__ != type(ours).__name__:
        return f"type {type(ours).__name__}, expected {type(right).__name__}"
    if sp.issparse(right):
        return _of_sparse(right, ours, bound)
    if isinstance(right, np.ndarray | np.generic):
        return _of_arrays(right, ours, bound)
    return None if right == ours or right != right else f"{ours!r}, expected {right!r}"


def result_difference(right: Any, ours: Any, bound: Any = None) -> str | None:
    """Return how a result differs, or None; sparse ones may store their entries in another order.

    Python asks the subclass first in ``B != A``, so that SciPy gets the operands in the other order.
    """
    found = difference(right, ours, bound)
    if found and bound is None and sp.issparse(right) and right.format == getattr(ours, "format", ""):
        return difference(right, ours, 0.0)
    return found


def _of_sparse(right: Any, ours: Any, bound: Any) -> str | None:
    for what in ("format", "shape", "dtype"):
        if getattr(right, what) != getattr(ours, what):
            return f"{what} {getattr(ours, what)}, expected {getattr(right, what)}"
    if bound is not None:  # products of sparse matrices need not store entries in one order
        if right.nnz > 20_000:
            return None
        try:
            return _of_arrays(right.toarray(), ours.toarray(), bound)
        except ValueError:  # of float16, which SciPy holds but does not add
            return None
    for what in ("data", "indices", "indptr", "coords", "blocksize", "offsets"):
        if hasattr(right, what) and not callable(getattr(right, what)):
            found = difference(
                getattr(right, what), _as_indices(getattr(ours, what), getattr(right, what), what)
            )
            if found:
                return f"{what}: {found}"
    if right.format in ("lil", "dok"):
        return _of_arrays(right.toarray(), ours.toarray(), None)
    return None


def _as_indices(ours: Any, right: Any, what: str) -> Any:
    """Return indices in the type of ``right``.

    Which of int32 and int64 SciPy takes depends on memory that it has not written to yet (``_binopt`` of SciPy 1.17), and
    its matrices narrow indices when they are transposed, where ours share them.
    """
    if what not in ("indices", "indptr") or {right.dtype, ours.dtype} != {
        np.dtype(np.int32),
        np.dtype(np.int64),
    }:
        return ours
    return ours.astype(right.dtype)


def _of_arrays(right: Any, ours: Any, bound: Any) -> str | None:
    if right.shape != ours.shape:
        return f"shape {ours.shape}, expected {right.shape}"
    if right.dtype != ours.dtype:
        return f"dtype {ours.dtype}, expected {right.dtype}"
    if (
        isinstance(right, np.ndarray)
        and right.size > 1
        and right.flags.c_contiguous != ours.flags.c_contiguous
    ):
        return f"C-contiguous {ours.flags.c_contiguous}, expected {right.flags.c_contiguous}"
    if right.dtype.kind == "O":
        found = (difference(one, other, bound) for one, other in zip(right.flat, ours.flat, strict=True))
        return next(filter(None, found), None)
    if right.dtype.kind not in "fc":
        return None if np.array_equal(right, ours) else f"{ours!r}, expected {right!r}"
    right, ours = np.asarray(right), np.asarray(ours)
    parts = (np.real, np.imag) if right.dtype.kind == "c" else (np.asarray,)
    found = (_of_reals(part(right), part(ours), right.dtype, bound) for part in parts)
    return next(filter(None, found), None)


def _of_reals(right: np.ndarray, ours: np.ndarray, dtype: np.dtype, bound: Any) -> str | None:
    finite = np.isfinite(right)
    if (
        not np.array_equal(right[~finite], ours[~finite], equal_nan=True)
        or not np.isfinite(ours[finite]).all()
    ):
        return f"NaN or infinity: {ours!r}, expected {right!r}"
    if bound is None:
        return None if np.array_equal(right[finite], ours[finite]) else f"{ours!r}, expected {right!r}"
    info = np.finfo(dtype)
    allowed = np.asarray(bound)
    if allowed.shape != right.shape:
        try:
            allowed = np.broadcast_to(allowed, right.shape)
        except ValueError:
            allowed = np.asarray(allowed.max(initial=0.0))  # of another operation than a product
    allowed = np.broadcast_to(allowed, right.shape)[finite]
    apart = np.abs(right[finite].astype(np.longdouble) - ours[finite])
    over = apart > allowed * info.eps + 1000 * info.smallest_subnormal
    over &= ~np.isnan(allowed)
    if over.any():
        far = f"{apart[over].max():.3g} apart where {allowed[over].max() * info.eps:.3g} is allowed"
        return f"{far}: {ours!r}, expected {right!r}"
    return None
