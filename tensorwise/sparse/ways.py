"""A way to compute a product: a kernel with its arguments laid out for C."""

import ctypes
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from tensorwise.sparse.library import HEADER, KernelLayout, Library
from tensorwise.sparse.trials import TriedWay

MOST_BUFFERS: Final = 16
NOT_BUSY: Final = 0
NO_CALLS: Final = 0
CALLS_FIELD: Final = 19
"""Place of ``calls`` among the fields of ``way`` in ``in_place.c``."""
PARTS_PER_THREAD: Final = 4
"""Parts that a thread gets of the lines: more would be handed out more evenly, and cost more."""
SETTLE_NS: Final = 100_000
"""Nanoseconds until threads that slept take part in calls, the matrix in their caches (measured: the fourth of 7 us)."""
CHANGED: Final = -1
"""What `Library.multiply` returns where arrays of the matrix are no longer what they were; see ``in_place.c``."""


@final
class ProductWay(TriedWay):
    """A kernel, its arguments, and what calls of it took.

    Attributes:
        name: what users see, as in ``in place, 2 threads``.
        same_bits: whether results are equal to the last bit to those of other ways that say so.
        address: of what ``Library.multiply`` is handed.
        took_ns: nanoseconds of the calls of the best turn of the last trial.
        threads: how many it runs on.
        packed: the ``PackedProduct`` behind it; None where it runs in place.
        is_verified: whether its result was compared with that of the way in use; what runs in place need not be.
        is_stale: whether what it has packed is of older values than the matrix's.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        same_bits: bool,
        nbytes: int = 0,
        packed: Any = None,
    ) -> None:
        self.name, self.threads, self.same_bits, self._own_nbytes = name, threads, same_bits, nbytes
        self.took_ns: list[int] = []
        self._keep: Sequence[Any] = ()
        self.packed = packed
        self.is_verified = packed is None
        self.is_stale = False
        self.address = 0

    @property
    def nbytes(self) -> int:
        """Bytes that it holds besides the matrix's arrays: more once values were updated, which needs maps."""
        return self._own_nbytes + (0 if self.packed is None else self.packed.nbytes)

    @property
    def calls(self) -> int:
        """How many calls of it have succeeded; C counts them."""
        return int(self._keep[0][CALLS_FIELD]) if self._keep else 0

    @property
    def is_packed(self) -> bool:
        """Whether it reads a copy of the matrix's entries."""
        return self.packed is not None

    @property
    def settle_ns(self) -> int:
        """Several threads wake first, and what is packed comes into the caches."""
        return SETTLE_NS if self.threads > 1 or self.is_packed else 0

    def refresh(self, values: np.ndarray) -> None:
        """Pack the matrix's values anew."""
        if self.packed is not None:
            self.packed.update(values)
            self.is_stale = False

    def lay_out(self, fields: Sequence[int], buffers: Sequence[int], keep: Sequence[Any]) -> "ProductWay":
        """Write fields of ``way`` in ``in_place.c`` and the buffers' addresses down for C, and keep what they point to."""
        written = array("q", (*fields, *buffers, *(0,) * (MOST_BUFFERS - len(buffers))))
        self._keep = (written, *keep)
        self.address = _address(written)
        return self


def _address(numbers: "array[int]") -> int:
    """Where the numbers lie: for the few of a way an ``array`` is made in a third of the time of ctypes' structures."""
    return numbers.buffer_info()[0]


def part_bounds(library: Library, pointers: np.ndarray, lines: int, threads: int) -> "array[int]":
    """Return bounds that cut lines into parts of about the same cost, some for each thread.

    Args:
        library: whose C cuts.
        pointers: (lines + 1 and more,) int32 or int64, where the entries of each line begin.
        lines: how many there are.
        threads: that share the parts.
    """
    parts = threads * PARTS_PER_THREAD
    bounds = array("q", bytes(8 * (parts + 1)))
    library.bounds(pointers.ctypes.data, int(pointers.dtype.itemsize == 8), lines, parts, _address(bounds))
    return bounds


def way_in_place(
    library: Library,
    layout: KernelLayout,
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray],
    extents: Mapping[str, int],
    *,
    gather: bool,
    threads: int,
    lines: int,
) -> ProductWay:
    """Return the way that runs a kernel of the library over ``data``, ``indices`` and ``indptr`` where they lie.

    Args:
        library: where the kernel is from.
        layout: the kernel.
        arrays: data, indices and indptr of the matrix.
        extents: of the kernel's indices, as in ``{"N_i": 4}``.
        gather: whether it is a gather: results do not depend on the number of threads then.
        threads: how many to use.
        lines: of the matrix; of a BSR matrix rows of blocks.

    Raises:
        MemoryError: the outputs of the threads do not fit into memory.
    """
    data, indices, indptr = arrays
    wide, parallel = int(indptr.dtype.itemsize == 8), threads > 1
    parts = threads * PARTS_PER_THREAD if parallel else 0
    sizes = array(
        "q", [threads, 1, parts, *(threads if name == "threads" else extents[name] for name in layout.sizes)]
    )
    keep: list[Any] = [data, indices, indptr, sizes]
    places = layout.places
    buffers = [0] * (2 + len(places))
    buffers[0] = library.driver
    nbytes = exclusive = 0
    if parallel:
        bounds = part_bounds(library, indptr, lines, threads)
        buffers[1] = _address(bounds)
        keep.append(bounds)
        nbytes = 8 * len(bounds)
    if "work" in places:
        work = np.empty(threads * extents["N_k"] * extents["N_j"], data.dtype)
        buffers[places["work"]], exclusive = work.ctypes.data, 1
        keep.append(work)
        nbytes += work.nbytes
    same_bits = gather or not parallel
    block = data.shape[1] if data.ndim == 3 else 0
    fields = (
        *(layout.address, _address(sizes), HEADER, id(indptr), id(indices), id(data)),
        *(lines, wide, data.dtype.itemsize - 1),
        *(places["A1_pos"], places["A1_crd"], places["A_values"], places["B_values"], places["out"]),
        *(threads, int(same_bits), exclusive, NOT_BUSY, block, NO_CALLS),
    )
    name = f"in place, {threads} thread{'s' if threads > 1 else ''}"
    return ProductWay(name, threads, same_bits, nbytes).lay_out(fields, buffers, keep)


def way_packed(library: Library, packed: Any, alignment: int) -> ProductWay | None:
    """Return the way that runs a packed product's kernel; None where a call takes more than one kernel.

    Args:
        library: of the in-place kernels, whose driver and C call it.
        packed: a ``PackedProduct``.
        alignment: bytes to which operands are aligned.
    """
    call = packed.single_call
    if call is None or len(call.pointers) > MOST_BUFFERS or len(call.places) != 2:
        return None
    in_place = (0,) * 5  # no arrays of the matrix, lines, or width of indices
    fields = (
        *(call.address, ctypes.addressof(call.sizes), HEADER, *in_place, alignment - 1, *(0,) * 3),
        *(*call.places, packed.threads, 0, int(call.exclusive), NOT_BUSY, 0, NO_CALLS),
    )
    made = ProductWay(packed.name, packed.threads, False, packed=packed)
    return made.lay_out(fields, [pointer or 0 for pointer in call.pointers], (packed, call))
