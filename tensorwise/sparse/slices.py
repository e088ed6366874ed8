"""Slices: the packed form that products of a frozen matrix with a vector try before any search.

Some rows of about the same length lie beside each other, entry by entry (SELL-C-sigma: Kreutzer et al., SIAM J. Sci. Comput.
36(5), 2014). A kernel then computes them at once, and has no loop for each row whose end the processor cannot foresee.
Packing needs neither a child process nor a compiler, and takes about as long as ten products.
"""

import copy
import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np
import scipy.sparse as sp

from tensorwise.sparse.kernels import SLICED_KERNELS, SLICES, KernelShape, schedule_of
from tensorwise.sparse.library import KernelLayout, Library, library
from tensorwise.sparse.limits import allowed_threads
from tensorwise.sparse.product import ELEMENTS
from tensorwise.sparse.table import IN_PLACE
from tensorwise.sparse.ways import PARTS_PER_THREAD, ProductWay, part_bounds, way_packed

PACK_NS, PACK_ENTRY_NS = 100_000, {True: 4, False: 11}
"""Expected nanoseconds to pack a matrix, and each of its entries: in its lines (True), or across them, which takes sorting
(measured on an Intel Xeon)."""
SLICES_SHARE: Final = 0.1
"""Share of the time of a product's calls that packing may take."""
MOST_PADDED: Final = 2.0
"""Slots at most, as a multiple of the entries."""
MOST_OWN: Final = 1.2
"""Rows keep their order where that takes at most so many slots, as a multiple of those in order of their lengths."""
WORTH_THREADS: Final = 30_000
"""Values that one thread writes before another would have woken."""
LARGEST: Final = 2**31 - 1
"""Entries, rows and columns at most."""


def slices_ns(entries: int, gather: bool) -> float:
    """Return how many nanoseconds the calls of a product must have taken for slices to be packed."""
    return (PACK_NS + PACK_ENTRY_NS[gather] * entries) / SLICES_SHARE


class SlicedCall(NamedTuple):
    """The kernel and its arguments, as `way_packed` reads those of a ``PackedProduct``."""

    address: int
    pointers: Sequence[int]
    sizes: "ctypes.Array[ctypes.c_int64]"
    places: tuple[int, int]
    exclusive: bool = False


@final
class SlicedProduct:
    """A product of a matrix in slices with a vector: what `ProductWay` needs of a packed form.

    Attributes:
        name: format and schedule, as of a ``PackedProduct``.
        threads: that it runs on.
        facts: none: what trials of it find is not recorded, since every process packs it by itself.
        single_call: of the kernel.
    """

    facts: Final[Mapping[str, Any]] = {}

    def __init__(
        self,
        found: Library,
        threads: int,
        lines: tuple[np.ndarray, np.ndarray, np.ndarray | None],
        extent: int,
        values: np.ndarray,
    ) -> None:
        """Pack.

        Args:
            found: the library of kernels.
            threads: that pack, and run the kernel.
            lines: indptr, indices, and which of the values belongs to each entry; None: they are in this order.
            extent: all indices are below it.
            values: of the matrix.

        Raises:
            KeyError: the library lost the kernel.
            ValueError: slices would be mostly padding.
            MemoryError: they do not fit into memory.
        """
        indptr, indices, numbers = lines
        self._driver, self.threads, self._lines = found.driver, threads, (indptr, numbers)
        self._rows, self._wide = len(indptr) - 1, int(indptr.dtype.itemsize == 8)
        own, ordered = self._cut("own"), self._cut("ordered")
        order, slots = ("own", own[2]) if 0 < own[2] <= MOST_OWN * ordered[2] else ("ordered", ordered[2])
        self._order, self._positions, _ = own if order == "own" else ordered
        if not 0 < slots <= MOST_PADDED * int(indptr[-1]):
            raise ValueError(f"{slots} slots")
        narrow, element = extent <= 2**16, ELEMENTS[values.dtype]
        shape = KernelShape(True, "vector", slices=f"{order}-{'S16' if narrow else 'S'}")
        layout = found.layout(shape, element, SLICED_KERNELS.indices[0])
        program = f"{shape.format}; {schedule_of(shape, element)[2]}"
        self.name = program if threads > 1 else f"{program}, 1 thread"
        self._columns = np.empty(slots, np.uint16 if narrow else np.int32)
        self._values = np.empty(slots, values.dtype)
        self._height = SLICES[order][1]
        IN_PLACE.function("slice_columns")(
            self._driver, threads, indptr.ctypes.data, indices.ctypes.data, self._wide, self._rows, self._height,
            *self._cuts, self._columns.itemsize, self._columns.ctypes.data,
        )  # fmt: skip
        IN_PLACE.function("slice_values")(
            *self._filling, values.ctypes.data, values.itemsize, self._values.ctypes.data
        )
        self._numbers: list[np.ndarray] = []
        """Of each slot the number of its value, from 1; 0 is padding. Made at the first update, shared by copies."""
        self._is_owner = True
        self.single_call = self._call(found, layout, extent)

    def on_one_thread(self) -> "SlicedProduct":
        """Return the same product on one thread: it reads what this one has packed."""
        made, call = copy.copy(self), self.single_call
        made.threads, made.name, made._is_owner = 1, f"{self.name}, 1 thread", False
        pointers, sizes = list(call.pointers), type(call.sizes)(1, 1, 0, *call.sizes[3:])
        pointers[1] = 0  # no bounds of parts
        made.single_call = call._replace(pointers=pointers, sizes=sizes)
        return made

    def _cut(self, order: str) -> tuple[np.ndarray | None, np.ndarray, int]:
        """Return the order of the rows, where slices begin, and the number of slots; negative: too many."""
        indptr, height = self._lines[0], SLICES[order][1]
        rows = None if order == "own" else np.empty(self._rows, np.int32)
        positions = np.empty(-(-self._rows // height) + 1, np.int32)
        slots = IN_PLACE.function("slice_rows")(
            indptr.ctypes.data, self._wide, self._rows, height, _address(rows), positions.ctypes.data
        )
        return rows, positions, height * slots

    @property
    def _cuts(self) -> tuple[int | None, int]:
        """Addresses of the order and of where slices begin."""
        return _address(self._order), self._positions.ctypes.data

    def _call(self, found: Library, layout: KernelLayout, extent: int) -> SlicedCall:
        """Lay out the arguments of the kernel."""
        parts = self.threads * PARTS_PER_THREAD if self.threads > 1 else 0
        self._bounds = np.array(part_bounds(found, self._positions, len(self._positions) - 1, self.threads))
        held = {"A1_pos": self._positions, "A3_crd": self._columns, "A_values": self._values}
        if self._order is not None:
            held["A_i_order"] = self._order
        places = layout.places
        pointers = [0] * (2 + len(places))
        pointers[:2] = self._driver, self._bounds.ctypes.data if parts else 0
        for name, array in held.items():
            pointers[places[name]] = array.ctypes.data
        extents = {"N_i": self._rows, "N_k": extent}
        sizes = (ctypes.c_int64 * (3 + len(layout.sizes)))(
            self.threads, 1, parts, *(extents[name] for name in layout.sizes)
        )
        return SlicedCall(layout.address, pointers, sizes, (places["B_values"], places["out"]))

    @property
    def _filling(self) -> tuple[Any, ...]:
        """First arguments of routines that fill slots with what belongs to an entry's value."""
        indptr, numbers = self._lines
        rows = indptr.ctypes.data, self._wide, self._rows, self._height
        return (self._driver, self.threads, *rows, *self._cuts, _address(numbers))

    def update(self, values: np.ndarray) -> None:
        """Take new values, in the order of the matrix's own. The first time it numbers the slots."""
        if not self._numbers:
            numbers = np.empty(len(self._values), np.int32)
            IN_PLACE.function("slice_numbers")(*self._filling, numbers.ctypes.data)
            self._numbers.append(numbers)
        write_values(self._driver, values, self._values, self._numbers[0])

    @property
    def nbytes(self) -> int:
        """Bytes held besides the matrix's own arrays; what products share counts once."""
        if not self._is_owner:
            return 0
        indptr, numbers = self._lines
        held = [self._positions, self._columns, self._values, self._bounds]
        held += [] if self._order is None else [self._order]
        held += self._numbers + ([] if numbers is None else [indptr, numbers])
        return sum(array.nbytes for array in held)


def write_values(
    driver: int,
    values: np.ndarray,
    out: np.ndarray,
    numbers: np.ndarray | None = None,
    threads: int | None = None,
) -> None:
    """Write values into ``out``, to each place the one of its number, from 1, or 0.

    Args:
        driver: address of the parallel driver.
        values: C-contiguous, of the type of ``out``.
        out: C-contiguous.
        numbers: int32 or int64, as many as ``out`` has places; None: values are written as they are given.
        threads: that many values are written on; None: all that are allowed.
    """
    if out.size <= WORTH_THREADS:
        threads = 1
    elif threads is None:
        threads = allowed_threads()
    wide = int(numbers is not None and numbers.itemsize == 8)
    IN_PLACE.function("update")(
        *(driver, threads, out.size, _address(numbers), wide),
        *(values.ctypes.data, values.itemsize, out.ctypes.data),
    )


def _address(array: np.ndarray | None) -> int | None:
    return None if array is None else array.ctypes.data


def sliced_ways(
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray], minor: int, gather: bool, threads: int, alone: bool
) -> list[ProductWay]:
    """Return the ways over slices of a matrix; none where there are no kernels yet, or slices are no form for it.

    Args:
        arrays: data, indices and indptr of the matrix; nobody writes to them.
        minor: columns of a CSR matrix, rows of a CSC matrix.
        gather: whether an output is computed for each of its lines; else for each of its indices.
        threads: of the kernel.
        alone: whether one on one thread is wanted, too.
    """
    found = library(False, SLICED_KERNELS)
    if found is None or not _fits(arrays, minor):
        return []
    data, indices, indptr = arrays
    lines: tuple[np.ndarray, np.ndarray, np.ndarray | None] = indptr, indices, None
    try:
        if not gather:
            lines, minor = _turned(indices, indptr, minor), len(indptr) - 1
        packed = SlicedProduct(found, threads, lines, minor, data)
    except (KeyError, ValueError, MemoryError):
        return []
    products = [packed, packed.on_one_thread()] if alone and threads > 1 else [packed]
    ways = (way_packed(found, product, data.dtype.itemsize) for product in products)
    return [way for way in ways if way is not None]


def _fits(arrays: tuple[np.ndarray, np.ndarray, np.ndarray], minor: int) -> bool:
    """Whether the numbers of a matrix fit into slices, and its indices and pointers are within bounds."""
    data, indices, indptr = arrays
    lengths = np.diff(indptr)
    entries = int(indptr[-1])
    if not 0 < entries <= min(len(data), len(indices), LARGEST) or max(len(indptr), minor) > LARGEST:
        return False
    used = indices[:entries]
    return bool(indptr[0] == 0 and lengths.min() >= 0 and used.min() >= 0 and used.max() < minor)


def _turned(indices: np.ndarray, indptr: np.ndarray, minor: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indptr and indices of the lines across, and the number of each of their entries."""
    numbers = np.arange(indptr[-1], dtype=np.int32)
    shape = len(indptr) - 1, minor
    turned: Any = sp.csr_array((numbers, indices[: len(numbers)], indptr), shape=shape).tocsc()
    return turned.indptr, turned.indices, turned.data
