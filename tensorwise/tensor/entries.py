"""Stored entries of a sparse matrix or tensor."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.moved import forward_names
from tensorwise.tensor.checks import checked_dtype, checked_values, exact_dtype
from tensorwise.tensor.elements import is_half
from tensorwise.tensor.pointers import pointers_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: More rows than this cost gigabytes of row pointers; a hyper-sparse matrix does without them.
_MOST_POINTER_ROWS = 2**28


@final
@dataclass(frozen=True, eq=False, repr=False)
class Entries:
    """Stored entries: sorted row-major, without duplicates, every index inside ``shape``; arrays read-only.

    Made by `entries_from`, which validates; the constructor trusts its caller and marks the arrays read-only.

    Attributes:
        shape: size of each mode, at least two.
        coordinates: one array (nnz,) a mode; int32 if every dimension is below 2**31, else int64.
        values: (nnz,) float16, bfloat16, float32 or float64, C-contiguous; explicit zeros, NaN and Inf are entries too.
        pointers: row pointers (rows + 1,) of a matrix, int32 if nnz < 2**31 else int64. None for other
            orders, and for matrices of far more rows than entries (rows > 32 nnz + 2**20); `row_pointers`
            makes them on demand.
        numbers: (nnz,) of `coordinate_dtype`: where a tensor with a row an entry has that of each entry; None: they are
            numbered as they stand. Neither values nor costs depend on it.
        given: dtype of a matrix of booleans, integers or longdouble, whose values are kept exactly in another dtype; None:
            that of ``values``.
    """

    shape: tuple[int, ...]
    coordinates: tuple[np.ndarray, ...]
    values: np.ndarray
    pointers: np.ndarray | None = None
    numbers: np.ndarray | None = None
    given: np.dtype | None = None

    def __post_init__(self) -> None:
        for array in (*self.coordinates, self.values, self.pointers, self.numbers):
            if array is not None:
                array.setflags(write=False)

    @classmethod
    def of_checked(
        cls,
        shape: tuple[int, ...],
        coordinates: tuple[np.ndarray, ...],
        values: np.ndarray,
        pointers: np.ndarray | None,
        given: np.dtype | None,
    ) -> Self:
        """Return the entries of arrays that are known to be right: ``check`` does not compare them again."""
        entries = cls(shape, coordinates, values, pointers, given=given)
        entries.__dict__["_is_checked"] = True
        return entries

    @property
    def order(self) -> int:
        """Number of modes."""
        return len(self.shape)

    @property
    def nnz(self) -> int:
        """Number of stored entries, explicit zeros included."""
        return len(self.values)

    @property
    def dtype(self) -> np.dtype:
        """float16, bfloat16, float32 or float64."""
        return self.values.dtype

    @cached_property
    def pattern_id(self) -> str:
        """Content id of shape and coordinates; the values do not enter."""
        return content_id([repr(self.shape), *self.coordinates])

    @cached_property
    def longest(self) -> int:
        """Entries of the longest slice of the first mode: of the longest row of a matrix; 0 where there are none."""
        ends = np.flatnonzero(np.diff(self.coordinates[0], append=-1))
        return int(np.diff(ends, prepend=-1).max(initial=0))

    def check(self) -> None:
        """Raise InputError unless the arrays are what the class says: generated code trusts what is packed from them.

        Entries made by hand are compared once; arrays are read-only from then on.
        """
        if "_is_checked" in self.__dict__:
            return
        problem = _problem(self)
        if problem:
            raise InputError(
                f"these Entries of shape {self.shape} were made by hand and {problem}; use entries_from"
            )
        self.__dict__["_is_checked"] = True

    def row_pointers(self) -> np.ndarray:
        """Row pointers (rows + 1,) of a matrix, made on demand when `pointers` is None.

        Raises:
            InputError: the order is not 2, or there are more than 2**28 rows and no pointers.
        """
        return self.pointers if self.pointers is not None else self._made_pointers

    @cached_property
    def _made_pointers(self) -> np.ndarray:
        if self.order != 2:
            raise InputError(f"row pointers exist for matrices only; this tensor has order {self.order}")
        if self.shape[0] > _MOST_POINTER_ROWS:
            raise InputError(
                f"row pointers of {self.shape[0]} rows would take {8 * self.shape[0] / 2**30:.0f} GiB "
                f"for {self.nnz} entries; use coordinates, or compressed rows: (i,k) -> C(i) C(k)"
            )
        made = pointers_of(self.coordinates[0], self.shape[0])
        made.setflags(write=False)
        return made

    def with_values(self, values: Any) -> "Entries":
        """The same pattern with other values (nnz,), copied; dtype as in `entries_from`."""
        fresh = checked_values(values, None, "with_values")
        if fresh.shape != (self.nnz,):
            raise InputError(f"with_values: values have shape {fresh.shape}; expected ({self.nnz},)")
        return self._sharing_pattern(fresh, exact_dtype(values))

    def astype(self, dtype: Any) -> "Entries":
        """The same entries with values of another dtype (as in `entries_from`); itself when nothing changes."""
        target = checked_dtype(dtype)
        if target is None or (target == self.dtype and self.given is None):
            return self
        # integers are not rounded
        return self._sharing_pattern(checked_values(self._integers(), target, "astype"))

    def as_given(self) -> np.ndarray:
        """Return the values (nnz,) in the dtype in which they were given."""
        if self.given is None:
            return self.values
        if self.given.kind == "b":
            return np.asarray(self.values != 0)
        return self._integers().astype(self.given)  # sums of duplicates wrap around, as SciPy's do

    def sums_in(self, dtype: Any) -> np.ndarray:
        """Return the values (nnz,) in a dtype that holds what was given: sums of duplicates are of that dtype, too.

        So does SciPy multiply: duplicates of int8 wrap around where the product is of int8, and nowhere else.
        """
        whole = self.given is not None and self.given.kind == "b"
        return (self.values.astype(np.int64) if whole else self._integers()).astype(dtype)

    def _integers(self) -> np.ndarray:
        """The values, as integers where integers were given."""
        if self.given is None or self.given.kind not in "iu":
            return self.values
        return self.values.astype(np.uint64 if self.given.kind == "u" else np.int64)

    def _sharing_pattern(self, values: np.ndarray, given: np.dtype | None = None) -> "Entries":
        other = replace(self, values=values, given=given)
        for name in ("pattern_id", "_made_pointers", "_is_checked"):
            # cached, and they do not depend on the values
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    def to_scipy(self) -> "csr_array":
        """A ``csr_array`` that shares these (read-only) arrays wherever one index dtype serves all of them.

        SciPy has no float16 or bfloat16: such values become float32, which holds them exactly.

        Raises:
            InputError: the order is not 2, or the rows are too many for pointers.
        """
        from scipy.sparse import csr_array

        if self.order != 2:
            raise InputError(f"SciPy's csr_array holds matrices; this tensor has order {self.order}")
        pointers, columns = self.row_pointers(), self.coordinates[1]
        values = self.values.astype(np.float32) if is_half(self.dtype) else self.values
        index = np.result_type(pointers.dtype, columns.dtype)
        result = csr_array(
            (values, columns.astype(index, copy=False), pointers.astype(index, copy=False)),
            shape=(self.shape[0], self.shape[1]),
        )
        result.has_canonical_format = True  # known here; saves SciPy a pass over the indices
        return result

    def __repr__(self) -> str:
        return f"Entries({'x'.join(map(str, self.shape))}, {self.nnz} stored, {self.dtype})"


def _problem(entries: Entries) -> str:
    """Return what is wrong with entries, or nothing."""
    shape, coordinates, nnz = entries.shape, entries.coordinates, len(entries.values)
    if len(shape) != len(coordinates) or len(shape) < 2:
        return f"have {len(coordinates)} arrays of coordinates"
    order = np.zeros(max(nnz - 1, 0), dtype=bool)  # whether an entry is known to come behind the one before
    tied = np.ones(max(nnz - 1, 0), dtype=bool)
    for mode, (size, array) in enumerate(zip(shape, coordinates, strict=True)):
        if array.dtype not in (np.int32, np.int64) or array.shape != (nnz,):
            return f"have coordinates of {array.dtype} {array.shape} in mode {mode} for {nnz} values"
        if nnz and (int(array.min()) < 0 or int(array.max()) >= size):
            return f"have coordinates from {array.min()} to {array.max()} in mode {mode}"
        order |= tied & (array[1:] > array[:-1])
        tied &= array[1:] == array[:-1]
    if not order.all():
        return f"are not in order, or repeated, at entry {int(np.argmin(order)) + 1}"
    if entries.pointers is not None:
        right = len(shape) == 2 and np.array_equal(entries.pointers, pointers_of(coordinates[0], shape[0]))
        if not right:
            return "have row pointers that do not go with their rows"
    if entries.numbers is not None and not np.array_equal(np.sort(entries.numbers), np.arange(nnz)):
        return "have numbers that do not number them"
    return ""


__getattr__ = forward_names(__name__, {"entries_from": "tensorwise.tensor.convert"})
