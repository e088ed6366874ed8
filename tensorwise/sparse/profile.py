"""Which sparse arrays spend most time in products: a table for programs that hold no array of ours, as under the patch.

Products count and time their calls anyway. A profile reads these numbers at its end, or when a product is deleted. So it
keeps no array alive, and calls take no longer.
"""

import gc
import heapq
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, final

from tensorwise.sparse.product import Product
from tensorwise.units import time_text

MOST_ROWS: Final = 1000
"""Products kept of those that are gone: the ones with most time."""
SHOWN_ROWS: Final = 20
"""Products that are printed: the ones with most time."""


@final
@dataclass(frozen=True)
class ProductProfile:
    """One product of one array.

    Attributes:
        shape: of the matrix that multiplies: of ``A.T`` in ``A.T @ x``.
        nnz: stored entries.
        dtype: of the values.
        columns: of the operand; None: it is a vector.
        kernel: what computes the product now.
        calls: how many there were.
        seconds: what they took in all.
    """

    shape: tuple[int, int]
    nnz: int
    dtype: str
    columns: int | None
    kernel: str
    calls: int
    seconds: float

    def __str__(self) -> str:
        array = f"{self.shape[0]} x {self.shape[1]}, {self.nnz:,} entries, {self.dtype}"
        operand = "vector" if self.columns is None else f"{self.columns} columns"
        return f"{time_text(self.seconds):>9} {self.calls:>9,}  {array:<46} {operand:<12} {self.kernel}"


@final
class ProductsProfile:
    """The products of a block of code; see `profile_products`. It prints as a table."""

    def __init__(self) -> None:
        self._before = {id(product): _totals(product) for product in _products()}
        self._gone: list[tuple[float, int, ProductProfile]] = []
        self._numbers = itertools.count()
        self._last: tuple[ProductProfile, ...] | None = None

    @property
    def rows(self) -> tuple[ProductProfile, ...]:
        """The products, most time first, so far or of the whole block once it is over."""
        if self._last is not None:
            return self._last
        live = (self._row(product, self._before.get(id(product))) for product in _products())
        found = [row for row in live if row is not None] + [row for _, _, row in self._gone]
        return tuple(sorted(found, key=lambda row: -row.seconds))

    def end(self) -> None:
        """Take no more products in."""
        self._last = self.rows

    def note_end(self, product: Product) -> None:
        """Keep what is known of a product that goes."""
        row = self._row(product, self._before.pop(id(product), None))  # another object may get its identity
        if row is not None and self._last is None:
            heapq.heappush(self._gone, (row.seconds, next(self._numbers), row))
            if len(self._gone) > MOST_ROWS:
                heapq.heappop(self._gone)

    def __str__(self) -> str:
        rows = self.rows
        if not rows:
            return "no products by kernels of Tensorwise"
        lines = [
            f"{'time':>9} {'calls':>9}  {'array':<46} {'operand':<12} kernel",
            *map(str, rows[:SHOWN_ROWS]),
        ]
        if rest := rows[SHOWN_ROWS:]:
            seconds, calls = sum(row.seconds for row in rest), sum(row.calls for row in rest)
            lines.append(f"{time_text(seconds):>9} {calls:>9,}  {len(rest)} other products")
        return "\n".join(lines)

    @staticmethod
    def _row(product: Product, before: tuple[int, float] | None) -> ProductProfile | None:
        """Return what a product did since ``before``, its calls and seconds then; None: nothing."""
        calls, seconds = _totals(product)
        if before is not None:
            calls, seconds = calls - before[0], seconds - before[1]
        if calls <= 0:
            return None
        shape = product.out_shape[0], product.shape_given[0]
        nnz, dtype = product.data.size, product.dtype.name
        return ProductProfile(shape, nnz, dtype, product.columns, product.current.name, calls, seconds)


_profiles: Final[list[ProductsProfile]] = []


def start_profile() -> ProductsProfile:
    """Begin to take products in; `profile_products` does so for a block of code."""
    if not _profiles:
        Product.__del__ = _note_end  # type: ignore[attr-defined]
    _profiles.append(profile := ProductsProfile())
    return profile


def end_profile(profile: ProductsProfile) -> None:
    """End what `start_profile` began."""
    profile.end()
    _profiles.remove(profile)
    if not _profiles:
        del Product.__del__  # type: ignore[attr-defined]


@contextmanager
def profile_products() -> Iterator[ProductsProfile]:
    """Profile the products of sparse arrays in a block: of this package's classes, and of SciPy's under the patch.

    Products that SciPy computes are not listed, nor those on a GPU or of other processes.

    >>> import scipy.sparse as sp
    >>> import tensorwise as tw
    >>> from tensorwise.sparse import profile_products
    >>> A = tw.asarray(sp.eye_array(500, format="csr"))
    >>> with profile_products() as profile:
    ...     for _ in range(3):
    ...         y = A @ A.data
    >>> print(profile)  # doctest: +SKIP
         time     calls  array                                          operand      kernel
      1.32 µs         3  500 x 500, 500 entries, float64                vector       in place, 1 thread
    """
    profile = start_profile()
    try:
        yield profile
    finally:
        end_profile(profile)


def _note_end(product: Product) -> None:
    for profile in _profiles:
        profile.note_end(product)


def _products() -> list[Product]:
    return [one for one in gc.get_objects() if type(one) is Product]


def _totals(product: Product) -> tuple[int, float]:
    """Return the calls and seconds of a product so far; none of one that is not made wholly."""
    try:
        return sum(way.calls for way in product.ways), product.seconds
    except AttributeError:
        return 0, 0.0
