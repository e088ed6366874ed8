"""One product of a matrix: which kernel and how many threads, learned from the calls.

Every call is timed in C. Once in a while other ways are tried on the user's calls, whose results are returned; decision 0117
bounds what that costs.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, final

import numpy as np

from tensorwise.sparse.agreement import agree
from tensorwise.sparse.kernels import shape_for
from tensorwise.sparse.library import Library
from tensorwise.sparse.limits import allowed_threads, autotune, is_reproducible, solver_call
from tensorwise.sparse.trials import CLEARLY_SLOWER, FIRST_CALLS, FIRST_NS, GROWTH, WayTrial
from tensorwise.sparse.ways import CHANGED, ProductWay, way_in_place
from tensorwise.toolchain.forks import lock

if TYPE_CHECKING:
    from tensorwise.sparse.products import ProductTable

_log = logging.getLogger(__name__)
ELEMENTS: Final = {np.dtype(np.float64): "f64", np.dtype(np.float32): "f32"}
INDICES: Final = {np.dtype(np.int32): "i32", np.dtype(np.int64): "i64"}
THREADS_NS: Final = 30_000
"""Expected time of a call on one thread from which threads are used from the first call on."""
ENTRY_NS, LINE_NS = 0.7, 1.0
"""Expected nanoseconds an entry and column, and a line, on one thread; only for the first choice."""
SOON_NS: Final = 20_000_000
"""Time spent in calls between two looks whether a search has found packed forms."""


class Forms(Protocol):
    """What finds packed forms of a matrix that cannot be written to; see `tensorwise.sparse.frozen`."""

    @property
    def search_s(self) -> float:
        """CPU seconds that searches took in child processes."""

    def write(self, values: np.ndarray, product: "Product | None" = None) -> None:
        """Replace the values."""

    def look(self, product: "Product", table: "ProductTable") -> "list[ProductWay] | None":
        """Return ways that were found since the last look; None: ask again soon."""

    def note_trial(self, trial: WayTrial[ProductWay]) -> None:
        """Remember what packed ways took."""

    def search_text(self, product: "Product") -> str:
        """Return what the search of forms for a product does now, in words."""


@final
class Product:
    """One operation of one matrix.

    Attributes:
        x_shape: of operands that the quick way takes; None while ways are tried.
        address: of the way in use.
        left_ns: nanoseconds of calls until the next `review`.
        refused: names of packed ways that gave another product.
        ways: those that are known; the first runs on one thread and serves where no other may.
    """

    __slots__ = (
        "_asks_soon",
        "_is_retired",
        "_next_trial_ns",
        "_slice_ns",
        "_table",
        "_trial",
        "address",
        "columns",
        "current",
        "data",
        "dtype",
        "gather",
        "indices",
        "indptr",
        "left_ns",
        "library",
        "multiply",
        "out_shape",
        "refused",
        "shape_given",
        "spent_ns",
        "ways",
        "x_shape",
    )

    _lock: Final = lock()
    """Shared by all products. A call that finds it taken skips the review."""

    def __init__(
        self,
        found: Library | None,
        table: "ProductTable | None",
        gather: bool,
        columns: int | None,
        same_bits: bool = False,
    ) -> None:
        self.x_shape: tuple[int, ...] | None = None
        if found is None or table is None:
            return
        self.data, self.indices, self.indptr = table.data, table.indices, table.indptr
        self.gather, self.columns, self.dtype = gather, columns, table.data.dtype
        self.multiply: Callable[[int, int, int], int] = found.multiply
        width = () if columns is None else (columns,)
        lines, minor = table.extents
        long, short = (minor, *width), (lines, *width)
        self.shape_given, self.out_shape = (long, short) if gather else (short, long)
        self._trial: WayTrial[ProductWay] | None = None
        self._asks_soon = self._is_retired = False
        self.library, self._table = found, table
        one_ns = self.data.size * (columns or 1) * ENTRY_NS + (lines + minor) * LINE_NS
        tries = autotune() != "off"
        self.ways = [self._in_place(1)]
        if one_ns > THREADS_NS and (gather or not same_bits):
            self._use_threads()
        self.current = self.ways[-1]
        self.spent_ns = 0
        self.refused: frozenset[str] = frozenset()
        self._next_trial_ns = max(FIRST_NS, int(FIRST_CALLS * one_ns)) if tries else 1 << 62
        self._go_on()

    def _in_place(self, threads: int) -> ProductWay:
        """The way over the matrix's own arrays on so many threads. Raises MemoryError: there is none for their outputs."""
        table = self._table
        mean = len(self.indices) / max(1, table.lines)
        block = table.block if table.block > 1 else 0
        shape = shape_for(self.gather, self.columns, mean, threads > 1, block)
        layout = self.library.layout(shape, ELEMENTS[self.dtype], INDICES[self.indices.dtype])
        extents = dict(zip(("N_i", "N_k"), table.extents)) | {"N_j": self.columns or 1}
        arrays = self.data, self.indices, self.indptr
        return way_in_place(
            self.library, layout, arrays, extents, gather=self.gather, threads=threads, lines=table.lines
        )

    def _use_threads(self) -> None:
        """Add the way that uses all threads which are allowed, where there are several."""
        threads = allowed_threads()
        if threads > 1 and all(way.threads != threads for way in self.ways):
            with contextlib.suppress(MemoryError):  # one thread needs no outputs of its own
                self.ways.append(self._in_place(threads))

    def run(self, x: np.ndarray, out: np.ndarray) -> bool:
        """Multiply ``x`` of ``shape_given`` into ``out``, both C-contiguous and of ``dtype``.

        Returns:
            False where the matrix's arrays changed in place and this product no longer fits them.
        """
        trial, way = self._trial, None
        if trial is not None:
            way = trial.next_way(None if trial.same_bits else solver_call())
            if way is None:
                self._end_trial(trial)
                trial = None
        if way is None:
            way = self.current
        took = self.multiply(way.address, id(x), id(out))
        if took < 0:
            return took != CHANGED and self._by_one_thread(way, x, out)
        if trial is not None:
            if way.is_verified:
                trial.note(way, took)
                return True
            return self._verified(way, x, out)
        self.left_ns -= took
        if self.left_ns < 0:
            self.review()
        return True

    def _by_one_thread(self, way: ProductWay, x: np.ndarray, out: np.ndarray) -> bool:
        """Compute again where ``way`` may not run now, or got a NaN that padding may have caused."""
        if (trial := self._trial) is not None:
            trial.drop(way)
        return self.multiply(self.ways[0].address, id(x), id(out)) >= 0

    def _verified(self, way: ProductWay, x: np.ndarray, out: np.ndarray) -> bool:
        """Compare the first result of ``way``, which is in ``out``, with the one in place; keep it where they agree."""
        made = out.copy()
        if self.multiply(self.ways[0].address, id(x), id(out)) < 0:
            return False
        arrays, extents = (self.data, self.indices, self.indptr), self._table.extents
        try:
            told = agree(arrays, extents, self.gather, x, made, out)
        except (MemoryError, ValueError):
            told = None
        if told:
            way.is_verified = True
            np.copyto(out, made)  # a solver's call keeps its way
            return True
        if told is False:
            _log.warning("%s gave another product than the matrix in place, and is not used", way.name)
            with self._lock:
                self.refused |= {way.name}
                self.ways = [one for one in self.ways if one is not way]
        if (trial := self._trial) is not None:
            trial.drop(way)
        return True

    def verify(self, way: ProductWay) -> bool:
        """Whether ``way`` agrees with the product in place on a random operand; it is not used where it differs."""
        given = np.random.default_rng(0).standard_normal(self.shape_given).astype(self.dtype)
        out = np.empty(self.out_shape, self.dtype)
        took = self.multiply(way.address, id(given), id(out))
        return took >= 0 and self._verified(way, given, out) and way.is_verified

    def time_call(self, way: ProductWay) -> float:
        """Seconds that a call takes now: the shortest of two or more, until the way has settled; below 0: it may not run."""
        given, out = np.zeros(self.shape_given, self.dtype), np.empty(self.out_shape, self.dtype)
        shortest, spent, calls = 1 << 62, 0, 0
        while calls < 2 or spent < way.settle_ns:
            took = self.multiply(way.address, id(given), id(out))
            if took < 0:
                return took / 1e9
            shortest, spent, calls = min(shortest, took), spent + max(took, 1), calls + 1
        return shortest / 1e9

    @property
    def in_place(self) -> ProductWay:
        """The way over the matrix's own arrays with the most threads."""
        return max((way for way in self.ways if not way.is_packed), key=lambda way: way.threads)

    @property
    def seconds(self) -> float:
        """Seconds that calls took so far."""
        return (self.spent_ns + self._slice_ns - self.left_ns) / 1e9

    def review(self) -> None:
        """Begin a trial where it is time for one; called when ``left_ns`` is used up."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self.spent_ns += self._slice_ns - self.left_ns
            others = self._packed()
            if others or (self.spent_ns >= self._next_trial_ns and not self._asks_soon):
                self._next_trial_ns = GROWTH * self.spent_ns
                self._use_threads()
                others = [way for way in self.ways if way is not self.current]
            if is_reproducible():
                others = []
            for way in others:
                if way.is_stale:
                    way.refresh(self.data)
            solver = solver_call() if others else None
            if solver is not None and not all(way.same_bits for way in (self.current, *others)):
                others = self._short(others)
            if others:
                self.x_shape = None  # calls come through `run`, which knows the trial
                self._trial = WayTrial(self.current, others, solver)
            else:
                self._go_on()
        finally:
            self._lock.release()

    def _short(self, others: list[ProductWay]) -> list[ProductWay]:
        """The ways whose calls are not clearly slower: a solver's call that begins with another one also ends with it."""
        most_s = CLEARLY_SLOWER * self.time_call(self.current)
        return [way for way in others if 0 <= self.time_call(way) < most_s]

    def _packed(self) -> list[ProductWay]:
        """Ways over packed forms that were found since the last review."""
        frozen = self._table.frozen
        found = [] if frozen is None else frozen.look(self, self._table)
        self._asks_soon = found is None
        self.ways += found or ()
        return found or []

    def set_packed_aside(self) -> ProductWay | None:
        """Compute in place from now on, since values change; return the packed way that was in use, None without one."""
        with self._lock:
            for way in self.ways:
                way.is_stale = way.is_packed
            self._trial = None
            before = self.current
            if before.is_packed:
                self.current = self.in_place
            self._go_on()
            return before if before.is_packed else None

    def go_on_with(self, way: ProductWay) -> None:
        """Use ``way`` from the next call on."""
        with self._lock:
            self.current = way
            self._go_on()

    def retire(self) -> None:
        """Take no more calls: the matrix forgets this product, and does not give it new values."""
        with self._lock:
            self._is_retired, self.x_shape, self._trial = True, None, None

    def _end_trial(self, trial: WayTrial[ProductWay]) -> None:
        with self._lock:
            if self._trial is trial:
                self._trial = None
                self.current = trial.fastest()
                self.spent_ns += trial.spent_ns
                self._go_on()
        if self._table.frozen is not None:
            self._table.frozen.note_trial(trial)

    def _go_on(self) -> None:
        """Let calls take the quick way, until a share of what was spent is spent again."""
        until_trial_ns = min(self._next_trial_ns - self.spent_ns, self.spent_ns)
        self._slice_ns = self.left_ns = SOON_NS if self._asks_soon else max(FIRST_NS, until_trial_ns)
        self.address = self.current.address
        self.x_shape = None if self._is_retired else self.shape_given


NO_PRODUCT: Final = Product(None, None, True, None)
"""Stands where there is none: it fits no operand."""
