"""A way to compute a product: a kernel with its arguments laid out for C."""

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import addressof
from typing import Any, Final, final

import numpy as np

from tensorwise.sparse.library import HEADER, KernelLayout, Library

MOST_BUFFERS: Final = 16
PARTS_PER_THREAD: Final = 4
"""Parts that a thread gets of the lines: more would be handed out more evenly, and cost more."""
CHANGED: Final = -1
"""What `Library.multiply` returns where arrays of the matrix are no longer what they were; see ``in_place.c``."""


class _WayFields(ctypes.Structure):
    """``way`` of ``in_place.c``."""

    _fields_ = [
        ("kernel", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
        *(
            (name, ctypes.c_int64)
            for name in (
                *("header", "indptr", "indices", "data", "lines", "wide", "alignment"),
                *("place_indptr", "place_indices", "place_data", "place_x", "place_out", "threads"),
                *("same_bits", "exclusive", "busy", "block"),
            )
        ),
        ("buffers", ctypes.c_void_p * MOST_BUFFERS),
    ]


@final
class ProductWay:
    """A kernel, its arguments, and what calls of it took.

    Attributes:
        name: what users see, as in ``in place, 2 threads``.
        same_bits: whether results are equal to the last bit to those of other ways that say so.
        address: of what ``Library.multiply`` is handed.
        took_ns: nanoseconds of the last trials.
        nbytes: bytes that it holds besides the matrix's arrays.
        threads: how many it runs on.
        packed: the ``PackedProduct`` behind it; None where it runs in place.
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
        self.name, self.threads, self.same_bits, self.nbytes = name, threads, same_bits, nbytes
        self.took_ns: list[int] = []
        self._keep: Sequence[Any] = ()
        self.packed = packed
        self.is_stale = False
        self.address = 0

    @property
    def is_packed(self) -> bool:
        """Whether it reads a copy of the matrix's entries."""
        return self.packed is not None

    def refresh(self, values: np.ndarray) -> None:
        """Pack the matrix's values anew."""
        if self.packed is not None:
            self.packed.update(values)
            self.is_stale = False

    @property
    def median_ns(self) -> float:
        """Median of the last trials, infinite before the first."""
        return float(np.median(self.took_ns)) if self.took_ns else float("inf")

    def lay_out(self, struct: _WayFields, keep: Sequence[Any]) -> "ProductWay":
        """Take ``struct`` and what it points to."""
        self._keep = (struct, *keep)
        self.address = addressof(struct)
        return self


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
    given = [threads, 1, parts, *(threads if name == "threads" else extents[name] for name in layout.sizes)]
    sizes = (ctypes.c_int64 * len(given))(*given)
    bounds = (ctypes.c_int64 * (parts + 1))()
    struct = _WayFields(
        layout.address, addressof(sizes), HEADER, id(indptr), id(indices), id(data), lines, wide
    )
    struct.threads, struct.same_bits = threads, int(gather or not parallel)
    struct.alignment = data.dtype.itemsize - 1
    struct.block = data.shape[1] if data.ndim == 3 else 0
    buffers, places = struct.buffers, layout.places
    buffers[0] = library.driver
    if parallel:
        library.bounds(indptr.ctypes.data, wide, lines, parts, addressof(bounds))
        buffers[1] = addressof(bounds)
    struct.place_indptr, struct.place_indices = places["A1_pos"], places["A1_crd"]
    struct.place_data, struct.place_x, struct.place_out = (
        places["A_values"],
        places["B_values"],
        places["out"],
    )
    keep: list[Any] = [data, indices, indptr, bounds, sizes]
    nbytes = ctypes.sizeof(bounds)
    if "work" in places:
        work = np.empty(threads * extents["N_k"] * extents["N_j"], data.dtype)
        buffers[places["work"]], struct.exclusive = work.ctypes.data, 1
        keep.append(work)
        nbytes += work.nbytes
    name = f"in place, {threads} thread{'s' if threads > 1 else ''}"
    return ProductWay(name, threads, gather or not parallel, nbytes).lay_out(struct, keep)


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
    struct = _WayFields(call.address, addressof(call.sizes), HEADER)
    for place, pointer in enumerate(call.pointers):
        struct.buffers[place] = pointer
    struct.place_x, struct.place_out = call.places
    struct.threads, struct.alignment, struct.exclusive = packed.threads, alignment - 1, int(call.exclusive)
    made = ProductWay(packed.name, packed.threads, False, packed.nbytes, packed)
    return made.lay_out(struct, (packed, call))
