"""The kernels of products over compressed arrays as SciPy keeps them: which programs there are, and which serve a product.

All are programs of the format ``U(i) C(k)``: a CSR array is one as it lies, a CSC array is one of its transpose. A *gather*
computes an output for each compressed line (CSR ``A @ x``, CSC ``x @ A``), a *scatter* adds each line to the outputs
(CSC ``A @ x``, CSR ``x @ A``). They neither need sorted indices nor a coordinate to occur once.

A BSR array of square blocks is a program of ``U(i1) C(k1) U(i0:R) U(k0:R)`` as it lies; only its gathers are here.
"""

from dataclasses import dataclass
from typing import Final, final

ELEMENTS: Final = ("f64", "f32")
INDICES: Final = ("i32", "i64")
WIDEST_LANES: Final = {"f64": 8, "f32": 16}
"""Elements of the widest vector registers; narrower processors get two registers for one."""
SHORT_LINE: Final = 6.0
"""Mean entries a line below which vectors along a line do not pay (measured: 1.2 to 1.6 times as slow)."""
BOUND: Final = (2, 3, 4, 8, 16)
"""Numbers of columns that have a gather of their own, in which the number is compiled in."""
WIDE: Final = 32
"""Columns from which the widest register tile is used."""
BLOCK_VECTORS: Final = {2: 4, 3: 2, 4: 2, 6: 1, 8: 1}
"""Heights of square blocks that have kernels -> vectors of the widest register tile, which AVX2 holds in 16 registers."""
BLOCK_INDEX: Final = "i32"
"""Indices of blocks that have kernels."""


@final
@dataclass(frozen=True)
class KernelShape:
    """A kernel of the library.

    Attributes:
        gather: whether it is a gather or a scatter.
        columns: ``vector``, ``short`` (a vector, without vectors along lines), ``narrow``, ``wide`` or a number compiled in.
        parallel: of a scatter, whether threads have private outputs, which are summed.
        block: height and width of the blocks of a BSR array; 0: there are none.
    """

    gather: bool
    columns: str
    parallel: bool = True
    block: int = 0

    @property
    def name(self) -> str:
        """Name in the table of compiled kernels."""
        blocks = f"-{self.block}x{self.block}" if self.block else ""
        return f"{'gather' if self.gather else 'scatter'}-{self.columns}{'' if self.parallel else '-serial'}{blocks}"

    @property
    def format(self) -> str:
        """The format as text."""
        size = self.block
        return f"(i,k) -> U(i1) C(k1) U(i0:{size}) U(k0:{size})" if size else "(i,k) -> U(i) C(k)"

    def reads(self, index: str) -> bool:
        """Whether there is a kernel of this shape for indices of a type."""
        return not self.block or index == BLOCK_INDEX


SHAPES: Final = (
    *(KernelShape(True, columns) for columns in ("vector", "short", "narrow", "wide", *map(str, BOUND))),
    *(
        KernelShape(False, columns, parallel)
        for columns in ("vector", "narrow", "wide")
        for parallel in (False, True)
    ),
    *(
        KernelShape(True, columns, block=block)
        for block in BLOCK_VECTORS
        for columns in ("vector", "narrow", "wide")
    ),
)


def gather_for(columns: int | None, mean_entries: float, block: int = 0) -> KernelShape:
    """Return the gather for an operand of ``columns`` columns (None: a vector); lines have ``mean_entries`` entries."""
    if block:
        kind = "vector" if columns in (None, 1) else "narrow" if columns < WIDE else "wide"
        return KernelShape(True, kind, block=block)
    if columns is None or columns == 1:
        return KernelShape(True, "short" if mean_entries < SHORT_LINE else "vector")
    if columns in BOUND:
        return KernelShape(True, str(columns))
    return KernelShape(True, "wide" if columns >= WIDE else "narrow")


def scatter_for(columns: int | None, parallel: bool) -> KernelShape:
    """Return the scatter for an operand of ``columns`` columns (None: a vector)."""
    if columns is None or columns == 1:
        return KernelShape(False, "vector", parallel)
    return KernelShape(False, "wide" if columns >= WIDE else "narrow", parallel)


def schedule_of(shape: KernelShape, element: str) -> tuple[str, int | None, str]:
    """Return the operation of a kernel, the columns of an example of it, and its schedule as text."""
    lanes = WIDEST_LANES[element]
    if shape.block:
        split, unroll = f"split(i,{shape.block}) split(k,{shape.block})", "unroll(i0) unroll(k0)"
        if shape.columns == "vector":
            return "spmv", None, f"{split} reorder(i1,k1,k0,i0) parallel(i1,balanced,4) {unroll}"
        tile = f"{BLOCK_VECTORS[shape.block]}x{lanes}" if shape.columns == "wide" else f"1x{lanes // 2}"
        return "spmm", 61, f"{split} reorder(i1,j,k1,k0,i0) parallel(i1,balanced,4) tile(j,{tile}) {unroll}"
    if shape.gather:
        if shape.columns in ("vector", "short"):
            tile = f" tile(k,1x{lanes // 2})" if shape.columns == "vector" else ""
            return "spmv", None, f"reorder(i,k) parallel(i,balanced,4){tile}"
        if shape.columns.isdecimal():
            n = int(shape.columns)
            width = min(lanes, n)
            tile = f" tile(j,{n // width}x{width}) unroll(k,2)" if n in (4, 8, 16) else ""
            return "spmm", n, f"reorder(i,j,k) parallel(i,balanced,4){tile} bound(j,{n})"
        tile = f"8x{lanes}" if shape.columns == "wide" else f"2x{lanes // 2}"
        return "spmm", 61, f"reorder(i,j,k) parallel(i,balanced,4) tile(j,{tile})"
    threads = " parallel(i,balanced,4,private)" if shape.parallel else ""
    if shape.columns == "vector":
        return "spmv_t", None, f"reorder(i,k){threads}"
    tile = f"4x{lanes}" if shape.columns == "wide" else f"1x{lanes // 2}"
    return "spmm_t", 61, f"reorder(i,k,j){threads} tile(j,{tile})"
