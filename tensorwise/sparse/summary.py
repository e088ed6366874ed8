"""What is known of a matrix's products, for people to read."""

import html
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, final

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
    """

    product: str
    way: str
    spent_s: float
    tried_s: dict[str, float | None]


@final
@dataclass(frozen=True)
class Tuning:
    """What is known of a matrix's products. It prints as a table, and notebooks show one.

    Attributes:
        products: each of them.
        scipy_s: seconds that SciPy took before kernels of ours did.
        nbytes_held: bytes held besides the matrix's arrays.
        table: the products and the matrix's arrays, which it keeps alive; None where no kernel reads them.
        forward_gathers: whether the matrix is stored by rows.
    """

    products: tuple[ProductTuning, ...]
    scipy_s: float
    nbytes_held: int
    table: ProductTable | None = field(default=None, repr=False, compare=False)
    forward_gathers: bool = True

    @classmethod
    def of(cls, known: Products | None) -> "Tuning":
        """Return what is known; nothing where no kernel reads the matrix's arrays."""
        if known is None:
            return cls((), 0.0, 0)
        table, found = known.table, []
        for (gather, columns), product in list(table.products.items()):
            forward = gather is known.forward_gathers
            what = "A @ " if forward else "A.T @ "
            what += "x" if columns is None else f"X, {columns} columns"
            tried = {way.name: way.median_ns / 1e9 if way.took_ns else None for way in product.ways}
            found.append(ProductTuning(what, product.current.name, product.seconds, tried))
        scipy_s = sum(table.scipy_ns.values()) / 1e9
        return cls(tuple(found), scipy_s, table.nbytes_held, table, known.forward_gathers)

    def report(self) -> "Report":
        """Return a report: it prints as this does, notebooks show its page, and ``save(path)`` writes it.

        The page is one HTML file with the pattern of the array, and for each product the ways that were tried on calls,
        their seconds, and what was spent. It is made of what is known already: calls cost nothing more, and none is made.

        >>> import numpy as np
        >>> from tensorwise.sparse import csr_array
        >>> report = csr_array(np.eye(3)).tuning.report()
        >>> print(report)
        no products by kernels of this package yet; SciPy took 0 s
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
        last = html.escape(str(self).splitlines()[-1])
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><p>{last}</p>"

    def __str__(self) -> str:
        if not self.products:
            return f"no products by kernels of this package yet; SciPy took {self.scipy_s:.3g} s"
        lines = []
        for one in self.products:
            tried = ", ".join(f"{name} {s * 1e6:.3g} us" for name, s in one.tried_s.items() if s is not None)
            lines.append(
                f"{one.product}: {one.way}; {one.spent_s:.3g} s in calls{'; tried: ' + tried if tried else ''}"
            )
        lines.append(f"SciPy took {self.scipy_s:.3g} s before; {self.nbytes_held:,} bytes are held")
        return "\n".join(lines)
