"""The door: whatever a user gives as a matrix or tensor becomes `Entries` here, and nowhere else.

One way: read a file or adapt an object -> raw arrays -> check -> canonical entries.
"""

import os
from typing import Any

from tensorwise.errors import InputError
from tensorwise.reading import reason
from tensorwise.tensor.adapters import adapt
from tensorwise.tensor.canonical import canonical_entries
from tensorwise.tensor.checks import checked_dtype
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.file_formats import read_raw


def entries_from(obj: Any, dtype: Any = None) -> Entries:
    """Return the validated `Entries` of ``obj``; arrays are copied, later changes do not reach them.

    Args:
        obj: one of

            - a scipy.sparse array or matrix of any kind. What SciPy counts as stored is stored: explicit
              zeros too, the zeros inside BSR blocks too; of DIA (where they cannot be told from padding)
              only values other than 0;
            - a dense NumPy array of two or more dimensions; its nonzero and NaN elements are stored;
            - a torch tensor: sparse COO, CSR, CSC, or dense;
            - a tuple ``(shape, coordinates, values)``: one integer array (nnz,) a mode (or an integer
              array (order, nnz)), and values (nnz,), or None for ones;
            - `Entries`;
            - a path (str or os.PathLike) of a file that `tensorwise.tensor.files.read` reads.
        dtype: float32, float64, float16 or bfloat16 for the values (bfloat16 needs ml_dtypes, the extra
            ``bfloat16``). By default float32, float16 and bfloat16 stay; bool and integers of up to 16 bits
            become float32, all others (float64, int32, int64, longdouble, ...) become float64, exactly. True becomes 1.
            `Entries.given` keeps the dtype of booleans, integers and longdouble. With ``dtype`` numbers are rounded;
            integers never are.

    Entries may come in any order. Duplicates are summed: in the order given, in float64, rounded to
    the dtype of the result (boolean duplicates are combined by "or"). NaN and Inf are kept.

    Raises:
        InputError: complex or non-numeric values, integers that are not representable (beyond 2**53 in float64), finite
            values that ``dtype`` makes infinite, longdouble that float64 would round, without ``dtype``, indices outside
            the shape (the message names the entry), pointers that fall or do not end at the number of indices,
            wrong lengths or dimensions, unreadable files.
        MissingExtraError: bfloat16 was asked for, and ml_dtypes is not installed.
    """
    target = checked_dtype(dtype)
    if isinstance(obj, Entries):
        obj.check()
        return obj if target is None else obj.astype(target)
    if isinstance(obj, str | os.PathLike):
        raw_file = read_raw(obj)
        try:
            return canonical_entries(raw_file, target)
        except (MemoryError, OverflowError) as error:  # sizes of a file that nobody has seen yet
            raise InputError(
                f"{os.fsdecode(obj)}: what it claims to hold does not fit into memory ({reason(error)})"
            ) from error
    raw = adapt(obj, target)
    if raw is None:
        raise InputError(
            f"cannot take entries from {type(obj).__name__}; expected a scipy.sparse array or matrix, "
            "a NumPy array, a torch tensor, a tuple (shape, coordinates, values), Entries or the path of a file"
        )
    return canonical_entries(raw, target)
