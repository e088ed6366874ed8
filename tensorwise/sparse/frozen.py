"""Arrays that nobody but `update` writes to: only their entries may be kept in packed forms as well.

A packed form is a copy. For arrays that a program may change in place a copy could not be trusted.
"""

import contextlib
import copyreg
import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import scipy.sparse as sp

from tensorwise.errors import InputError, TensorwiseError
from tensorwise.sparse.budget import SPENT_SHARE, needed_s
from tensorwise.sparse.children import machine_is_busy
from tensorwise.sparse.kernels import SLICED_KERNELS
from tensorwise.sparse.library import library
from tensorwise.sparse.limits import allowed_threads, autotune, is_reproducible
from tensorwise.sparse.product import Product
from tensorwise.sparse.products import Products, ProductTable
from tensorwise.sparse.search import FormatSearch, background_work
from tensorwise.sparse.slices import WORTH_THREADS, sliced_ways, slices_ns, write_values
from tensorwise.sparse.summary import waiting_text
from tensorwise.sparse.trials import WayTrial
from tensorwise.sparse.ways import ProductWay, way_packed
from tensorwise.units import time_text

if TYPE_CHECKING:
    from tensorwise.sparse.packed import PackedProduct

_log = logging.getLogger(__name__)
SEARCH_NS: Final = 500_000_000
"""Nanoseconds that calls of a product have taken when a search of packed forms may pay; it begins when its budget
suffices."""
SEARCH_GROWTH: Final = 4
"""Another search follows when calls have taken this many times as long."""
MOST_HELD: Final = 4.0
"""Bytes of all packed forms of a matrix, at most, as a multiple of its own."""


@final
class _Search:
    """The searches of one product: the one that runs, and what they took."""

    def __init__(self) -> None:
        self.running: FormatSearch | None = None
        self.writes = 0
        """How often values had been replaced when it began: what it packs may be of older ones, or of both."""
        self.next_ns = SEARCH_NS
        self.is_priced = self.is_sliced = False
        self.cpu_s = 0.0
        self.outcome = ""
        """What the last one found, in words; empty before its end."""


@final
class FrozenArrays:
    """Data, indices and indptr that can only be read, and the memory behind the data.

    NumPy refuses to make the arrays writeable again: they are views of read-only buffers.
    """

    def __init__(self, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray) -> None:
        self._states: dict[tuple[bool, int | None], _Search] = {}
        self._writes = 0
        self._memory = np.array(data, order="C")
        self.arrays = (
            _read_only(self._memory),
            _read_only(np.array(indices, order="C")),
            _read_only(np.array(indptr, order="C")),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle or a copy of the matrix is an ordinary one: the call makes None."""
        return copyreg.constructor, (len,)

    def look(self, product: Product, table: ProductTable) -> list[ProductWay] | None:
        """Return packed ways that were found since the last look; None: a search is running, look again soon.

        A search begins when its budget, a share of the time that calls have taken, suffices to measure anything; and again
        when they have taken ``SEARCH_GROWTH`` times as long.
        There is none for a BSR array. Long before, products with a vector try slices.
        """
        if self._memory.ndim > 1:
            return []
        key = product.gather, product.columns
        state = self._states.setdefault(key, _Search())
        if state.running is None:
            if autotune() == "off" or is_reproducible():
                return []
            if sliced := self._sliced(product, table, state):
                return sliced
            if product.spent_ns < state.next_ns:
                return []
            if not state.is_priced:
                state.is_priced = True
                in_place = product.in_place
                needed = needed_s(self._memory.size, product.time_call(in_place), in_place.threads)
                state.next_ns = max(state.next_ns, int(1e9 * needed / SPENT_SHARE))
                if product.spent_ns < state.next_ns:
                    return []
            if background_work() or (autotune() != "full" and machine_is_busy()):
                return []
            state.next_ns = SEARCH_GROWTH * product.spent_ns
            state.writes = self._writes
            state.running = self._begin(product, table)
            return None
        found = state.running.poll()
        if found is None:
            return None
        state.cpu_s += state.running.cpu_s
        note = state.running.note
        state.running = None
        ways = self._ways(found, product, table)
        names = ", ".join(way.name for way in ways)
        state.outcome = f"found {names}" if names else f"found nothing better{f' ({note})' if note else ''}"
        for way in ways:
            way.is_stale = state.writes != self._writes
        return ways

    def _sliced(self, product: Product, table: ProductTable, state: _Search) -> list[ProductWay]:
        """The ways over slices, once, when calls have taken long enough."""
        if product.columns is not None or state.is_sliced or is_reproducible():
            return []
        if product.spent_ns < slices_ns(self._memory.size, product.gather):
            return []
        if library(False, SLICED_KERNELS) is None:  # a later call looks again
            return []
        state.is_sliced = True
        threads, alone = allowed_threads(), product.current.threads == 1
        ways = sliced_ways(self.arrays, table.minor, product.gather, threads, alone)
        return ways if ways and self._has_room(ways[0], table) else []

    def _begin(self, product: Product, table: ProductTable) -> FormatSearch:
        kind = sp.csr_array if product.gather else sp.csc_array
        lines, minor = table.lines, table.minor
        shape = (lines, minor) if product.gather else (minor, lines)
        matrix = kind(shape, dtype=table.data.dtype)
        matrix.data, matrix.indices, matrix.indptr = self.arrays
        in_place, operation = product.in_place, "spmv" if product.columns is None else "spmm"
        call_s, spent_s = product.time_call(in_place), product.spent_ns / 1e9
        return FormatSearch(matrix, operation, product.columns, in_place.threads, call_s, spent_s)

    def _ways(
        self, found: "Sequence[PackedProduct]", product: Product, table: ProductTable
    ) -> list[ProductWay]:
        """The packed products as ways: those that may be faster than the way in use, as many as there is memory for."""
        ways: list[ProductWay] = []
        known = product.refused.union(way.name for way in product.ways)
        call_s = product.time_call(product.current)
        for packed in found:
            if 0 < call_s < packed.expected_s:  # slices are faster; negative: the way in use may not run now
                continue
            way = way_packed(product.library, packed, table.data.dtype.itemsize)
            if way is not None and way.name not in known and self._has_room(way, table, ways):
                ways.append(way)
        return ways

    def _has_room(self, way: ProductWay, table: ProductTable, others: Sequence[ProductWay] = ()) -> bool:
        """Whether another packed form may be held besides those of the table, and others that are not there yet."""
        held = [one for product in list(table.products.values()) for one in product.ways if one.is_packed]
        room = MOST_HELD * sum(array.nbytes for array in self.arrays)
        return sum(one.nbytes for one in (*held, *others, way)) <= room

    def note_trial(self, trial: WayTrial[ProductWay]) -> None:
        """Remember what packed ways took beside the ways in place, for the next process with this matrix."""
        ways = [way for way in (trial.current, *trial.others) if way.took_ns]
        in_place_ns = min((way.median_ns for way in ways if not way.is_packed), default=0.0)
        packed = [way for way in ways if way.is_packed and way.packed.facts]
        if not packed or not in_place_ns:
            return
        with contextlib.suppress(RuntimeError):  # the interpreter ends, or there are no more threads
            threading.Thread(target=_record, args=(packed, in_place_ns), name="tensorwise-record").start()

    def search_text(self, product: Product) -> str:
        """Return what the search of packed forms for a product does now, in words."""
        if self._memory.ndim > 1:
            return ""
        state = self._states.get((product.gather, product.columns)) or _Search()
        if state.running is not None:
            found = state.running.poll()
            done = "has ended; the next calls try what it found" if found is not None else "is running"
            return f"a search of formats {done} ({time_text(state.cpu_s + state.running.cpu_s)} of CPU time so far)"
        if state.outcome:
            return f"a search of formats took {time_text(state.cpu_s)} of CPU time and {state.outcome}"
        if is_reproducible():
            return "no search of formats: equal bits are asked for"
        if waits := waiting_text(product.seconds, state.next_ns / 1e9):
            return waits
        busy = background_work() or machine_is_busy()
        return f"no search of formats yet: {busy or 'it begins at one of the next calls'}"

    @property
    def search_s(self) -> float:
        """CPU seconds that searches took in child processes."""
        return sum(state.cpu_s for state in self._states.values())

    def write(self, values: np.ndarray, product: Product | None = None) -> None:
        """Replace the values; where there is a product of them, on the threads that it may use."""
        self._writes += 1
        memory, is_large = self._memory, values.size > WORTH_THREADS
        is_plain = values.flags.c_contiguous and values.dtype == memory.dtype
        if product is not None and is_large and is_plain and not np.may_share_memory(values, memory):
            write_values(product.library.driver, values, memory)
        else:
            np.copyto(memory, values, casting="same_kind")


def _record(packed: Sequence[ProductWay], in_place_ns: float) -> None:
    """In a thread: append the outcomes to the store."""
    from tensorwise.sparse.outcomes import record_outcome

    for way in packed:
        times = np.array(way.took_ns) / 1e9
        spread_s = float(np.subtract(*np.percentile(times, [75, 25])))
        try:
            record_outcome(
                way.packed, float(np.median(times)), in_place_ns / 1e9, calls=len(times), spread_s=spread_s
            )
        except (TensorwiseError, OSError) as error:  # the choice stands; the next process begins anew
            _log.info("what a trial found cannot be kept: %s", error)
            return


def _read_only(memory: np.ndarray) -> np.ndarray:
    """Return a view that cannot be made writeable."""
    if not memory.size:  # no buffer to speak of, and nothing to write to
        view = memory.view()
        view.setflags(write=False)
        return view
    whole: Any = memory.view(np.uint8)
    return np.frombuffer(memoryview(whole).toreadonly(), memory.dtype).reshape(memory.shape)


def freeze(matrix: Any) -> Any:
    """Return a copy of a CSR, CSC or BSR array of this package whose arrays cannot be written to.

    Raises:
        InputError: it has one dimension.
    """
    if len(matrix.shape) != 2:
        raise InputError(f"freeze needs a matrix of two dimensions, got shape {matrix.shape}")
    frozen = FrozenArrays(matrix.data, matrix.indices, matrix.indptr)
    made = object.__new__(type(matrix))
    made.__dict__.update((name, value) for name, value in vars(matrix).items() if name != "_tensorwise")
    made.data, made.indices, made.indptr = frozen.arrays
    gathers = matrix.format != "csc"
    table = ProductTable.of(made, made._shape[1 if gathers else 0])
    if table is not None:
        table.frozen = frozen
        made.__dict__["_tensorwise"] = Products(table, gathers, made._shape)
    else:  # no kernel of ours reads these types; `update` works all the same
        made.__dict__["_frozen"] = frozen
    return made


def update(matrix: Any, values: Any) -> None:
    """Give a CSR, CSC or BSR array new values for the same pattern; see ``csr_array.update``."""
    if sp.issparse(values):
        raise TypeError(
            f"update takes the new values as an array of shape {matrix.data.shape}, got {type(values).__name__}; pass its "
            "values, A.update(B.data), if B has the pattern of A, in the same order"
        )
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
            # whatever interrupts us, products are right: what is packed is set aside
            frozen.write(given, packed[0][0] if packed else None)
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
