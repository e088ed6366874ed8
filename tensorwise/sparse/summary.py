"""What is known of a matrix's products, for people to read."""

import html
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, final

from tensorwise.sparse.kernels import BLOCK_LANES
from tensorwise.sparse.library import level_in_use, loaded_libraries
from tensorwise.sparse.limits import autotune
from tensorwise.sparse.product import ELEMENTS, INDICES
from tensorwise.sparse.products import Products, ProductTable
from tensorwise.units import time_text

if TYPE_CHECKING:
    from tensorwise.front.page import Report


@final
@dataclass(frozen=True)
class ProductTuning:
    """What is known of one product.

    Attributes:
        product: as in ``A @ X, 8 columns``.
        way: what computes it now.
        spent_s: seconds that calls of it took.
        tried_s: name of each way -> seconds a call took in the last trial, None before one.
        search: what the search of other formats does now, in words; empty where there is none.
    """

    product: str
    way: str
    spent_s: float
    tried_s: dict[str, float | None]
    search: str = ""

    def __str__(self) -> str:
        tried = ", ".join(f"{name} {time_text(s)}" for name, s in self.tried_s.items() if s is not None)
        parts = [f"{self.product}: {self.way}", f"{time_text(self.spent_s)} in calls"]
        parts += [f"tried: {tried}"] if tried else []
        return "; ".join([*parts, self.search] if self.search else parts)


@final
@dataclass(frozen=True)
class Tuning:
    """What is known of a matrix's products. It prints as a table, and notebooks show one.

    Attributes:
        products: each of them.
        scipy_s: seconds that SciPy took before kernels of ours did.
        nbytes_held: bytes held besides the matrix's arrays.
        notes: what else a reader should know: why SciPy computes, or why no format is searched.
        table: the products and the matrix's arrays, which it keeps alive; None where no kernel reads them.
        forward_gathers: whether the matrix is stored by rows.
    """

    products: tuple[ProductTuning, ...]
    scipy_s: float
    nbytes_held: int
    notes: tuple[str, ...] = ()
    table: ProductTable | None = field(default=None, repr=False, compare=False)
    forward_gathers: bool = True

    @classmethod
    def of(cls, known: Products | None, matrix: Any = None) -> "Tuning":
        """Return what is known; ``matrix`` tells why where no kernel reads its arrays."""
        if known is None:
            return cls((), 0.0, 0, () if matrix is None else (_why_unread(matrix),))
        table, found = known.table, []
        for (gather, columns), product in list(table.products.items()):
            forward = gather is known.forward_gathers
            what = "A @ " if forward else "A.T @ "
            what += "x" if columns is None else f"X, {columns} columns"
            tried = {way.name: way.median_ns / 1e9 if way.took_ns else None for way in product.ways}
            search = "" if table.frozen is None else table.frozen.search_text(product)
            found.append(ProductTuning(what, product.current.name, product.seconds, tried, search))
        scipy_s = sum(table.scipy_ns.values()) / 1e9
        return cls(
            tuple(found),
            scipy_s,
            table.nbytes_held,
            tuple(_notes(table, bool(found))),
            table,
            known.forward_gathers,
        )

    def report(self) -> "Report":
        """Return a report: it prints as this does, notebooks show its page, and ``save(path)`` writes it.

        The page is one HTML file with the pattern of the array, and for each product the ways that were tried on calls,
        their seconds, and what was spent. It is made of what is known already: calls cost nothing more, and none is made.

        >>> import numpy as np
        >>> from tensorwise.sparse import csr_array
        >>> report = csr_array(np.eye(3)).tuning.report()
        >>> report.splitlines()[0]
        'no product by kernels of Tensorwise so far'
        """
        # The front stands above this room, and few programs need it.
        made: Report = import_module("tensorwise.front.array_report").report_of(self)
        return made

    def _repr_html_(self) -> str:
        """Return a small table for notebooks."""
        head = "".join(
            f"<th>{name}</th>" for name in ("product", "computed by", "seconds in calls", "a call")
        )
        rows = ""
        for one in self.products:
            tried = "; ".join(f"{name}: {time_text(s)}" for name, s in one.tried_s.items() if s is not None)
            cells = one.product, one.way, f"{one.spent_s:.3g}", tried
            rows += "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
        more = "".join(f"<p>{html.escape(line)}</p>" for line in str(self).splitlines()[len(self.products) :])
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"

    def __str__(self) -> str:
        lines = [str(one) for one in self.products] or ["no product by kernels of Tensorwise so far"]
        if self.scipy_s:
            lines.append(f"SciPy took {time_text(self.scipy_s)}{' before' if self.products else ''}")
        if self.products:
            lines.append(f"{self.nbytes_held:,} bytes are held")
        return "\n".join([*lines, *self.notes])


def _notes(table: ProductTable, begun: bool) -> list[str]:
    notes = []
    if begun and (level := level_in_use(table.family)):
        notes.append(
            f"prebuilt kernels of level {level}; where a C compiler works, later processes use the machine's own"
        )
    if table.unfit is not None:
        own = table.data.dtype
        cure = "kernels of Tensorwise give float32 and float64"
        if table.unfit.kind in "biuf" and table.unfit.itemsize <= 8:
            cure = f"convert the operand, x.astype(np.{own}), or the array, A.astype(np.float64), for our kernels"
        notes.append(f"SciPy multiplied operands of {table.unfit} by these values of {own}: {cure}")
    if not begun:
        if not loaded_libraries():
            notes.append(
                "the kernels are not compiled: `python -m tensorwise.sparse.prepare` does so, once for each machine"
            )
        elif table.scipy_ns:
            notes.append("the calls were too few and too short to begin with a kernel")
    elif table.block > 0:
        notes.append("no search of formats: BSR arrays have no packed forms")
    elif table.frozen is None:
        notes.append(
            "no search of formats: its arrays may be written to; A.freeze() returns a copy that is searched"
        )
    return notes


def _why_unread(matrix: Any) -> str:
    """Return why SciPy computes all products of a matrix, and how Tensorwise would."""
    data, indices, indptr = matrix.data, matrix.indices, matrix.indptr
    why = "its arrays are not contiguous and aligned ndarrays; A.copy() makes them so"
    if len(matrix.shape) != 2:
        why = f"it has {len(matrix.shape)} dimension{'s'[: len(matrix.shape) != 1]}; kernels of Tensorwise take two"
    elif data.dtype not in ELEMENTS:
        why = f"its values are {data.dtype}; kernels of Tensorwise read float64 and float32, as of A.astype(np.float64)"
    elif indices.dtype not in INDICES or indices.dtype != indptr.dtype:
        why = (
            f"its indices are {indices.dtype} and its indptr {indptr.dtype}; kernels of Tensorwise read int32 or int64, the "
            "same of both"
        )
    elif matrix.format == "bsr":
        height, width = data.shape[1:]
        sizes = ", ".join(map(str, sorted({1, *BLOCK_LANES})))
        why = (
            f"it has blocks of {height} x {width} and {indices.dtype} indices; kernels of Tensorwise read square blocks of "
            f"{sizes} and int32 indices. A.tocsr() has no blocks"
        )
    return f"SciPy computes all products: {why}"


def waiting_text(spent_s: float, needed_s: float) -> str:
    """Return what a search waits for that has not begun, in words."""
    if autotune() == "off":
        return "no search of formats: TENSORWISE_AUTOTUNE is off"
    if spent_s < needed_s:
        return (
            f"no search of formats yet: it begins when calls have taken {time_text(needed_s)}, "
            f"{time_text(needed_s - spent_s)} more"
        )
    return ""
