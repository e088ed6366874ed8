"""What is known of a matrix's products, for people to read."""

from dataclasses import dataclass
from typing import final

from tensorwise.sparse.products import Products


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
    """What is known of a matrix's products. It prints as a table.

    Attributes:
        products: each of them.
        scipy_s: seconds that SciPy took before kernels of ours did.
        nbytes_held: bytes held besides the matrix's arrays.
    """

    products: tuple[ProductTuning, ...]
    scipy_s: float
    nbytes_held: int

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
        return cls(tuple(found), sum(table.scipy_ns.values()) / 1e9, table.nbytes_held)

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
