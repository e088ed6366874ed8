"""The kernels of products over compressed arrays as SciPy keeps them: which programs there are, and which serve a product.

Most are programs of the format ``U(i) C(k)``: a CSR array is stored so, and a CSC array is the transpose of one. A BSR
array of 4 by 4 blocks is stored as ``U(i1) C(k1) U(i0:4) U(k0:4)``. A *gather* computes an output for each compressed line
(CSR and BSR ``A @ x``, CSC ``x @ A``), a *scatter* adds each line to the outputs (CSC ``A @ x``, CSR and BSR ``x @ A``).
Both need neither sorted indices nor unique coordinates. Others read a packed copy, of slices of some rows.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, final

from tensorwise.toolchain.processor import vector_bytes

ELEMENTS: Final = ("f64", "f32")
INDICES: Final = ("i32", "i64")
WIDEST_LANES: Final = {"f64": 8, "f32": 16}
"""Elements of the widest vector registers. Vectors are never wider than a register: gcc keeps such in memory."""
SHORT_LINE: Final = 6.0
"""Mean entries a line below which vectors along a line do not pay (measured: 1.2 to 1.6 times as slow)."""
SLICES: Final = {
    "own": ("(i,k) -> U(i1) P(k#) U(i0:8)", 8),
    "ordered": ("(i:length512,k) -> U(i1) P(k#) U(i0:4)", 4),
}
"""Order of the rows in slices -> the format but for the level of columns, and rows of a slice (measured on an Intel Xeon, 29
matrices). In windows of 4,096 rows threads wrote into the same cache lines of the result, and took 1.7 times as long."""
BOUND: Final = (2, 3, 4, 8, 16)
"""Numbers of columns that have a gather of their own, in which the number is compiled in."""
WIDE: Final = 32
"""Columns from which the widest register tile is used."""
BLOCK_LANES: Final = {2: 2, 3: 2, 4: 4, 6: 2, 8: 8}
"""Heights of square blocks that have kernels -> elements in a vector along a block's row, at most (measured on a Zen 4)."""
MOST_LANES: Final = {"f64": 4, "f32": 8}
"""The same limit for all blocks: 32 bytes. Wider vectors were not faster."""


@final
class KernelShape(NamedTuple):
    """A kernel of the library: a tuple, since a first product makes and looks up one in a tenth of a dataclass's time.

    Attributes:
        gather: whether it is a gather or a scatter.
        columns: ``vector``, ``short`` (a vector, without vectors along lines), ``narrow``, ``wide`` or a number compiled in.
        parallel: of a scatter, whether threads have private outputs, which are summed.
        block: height and width of the blocks of a BSR array; 0: there are none, or they are single values.
        slices: order of the rows and level of the columns of a packed copy in slices, as in ``own-S16``; empty: it reads an
            array as it lies.
    """

    gather: bool
    columns: str
    parallel: bool = True
    block: int = 0
    slices: str = ""

    @property
    def name(self) -> str:
        """Name in the table of compiled kernels."""
        stored = f"-{self.block}x{self.block}" if self.block else self.slices and f"-{self.slices}"
        return f"{'gather' if self.gather else 'scatter'}-{self.columns}{'' if self.parallel else '-serial'}{stored}"

    @property
    def format(self) -> str:
        """The format as text."""
        size = self.block
        if self.slices:
            order, level = self.slices.split("-")
            return f"{SLICES[order][0]} {level}(k)"
        return f"(i,k) -> U(i1) C(k1) U(i0:{size}) U(k0:{size})" if size else "(i,k) -> U(i) C(k)"


SHAPES: Final = (
    *(KernelShape(True, columns) for columns in ("vector", "short", "narrow", "wide", *map(str, BOUND))),
    *(
        KernelShape(False, columns, parallel)
        for columns in ("vector", "narrow", "wide")
        for parallel in (False, True)
    ),
)
BLOCK_SHAPES: Final = tuple(
    KernelShape(gather, columns, parallel, block)
    for block in BLOCK_LANES
    for gather, columns, parallel in (
        (True, "vector", True),
        (True, "wide", True),
        (False, "vector", False),
        (False, "vector", True),
    )
)


@final
@dataclass(frozen=True, eq=False)
class KernelFamily:
    """Kernels that are compiled together, when an array first needs one of them.

    Attributes:
        name: of its table.
        shapes: its kernels.
        indices: types of indices that they are compiled for.
    """

    name: str
    shapes: tuple[KernelShape, ...]
    indices: tuple[str, ...]


COMPRESSED_KERNELS: Final = KernelFamily("compressed", SHAPES, INDICES)
BLOCK_KERNELS: Final = KernelFamily("blocks", BLOCK_SHAPES, INDICES[:1])
SLICED_KERNELS: Final = KernelFamily(
    "slices",
    tuple(
        KernelShape(True, "vector", slices=f"{order}-{level}") for order in SLICES for level in ("S16", "S")
    ),
    INDICES[:1],
)
FAMILIES: Final = {family.name: family for family in (COMPRESSED_KERNELS, BLOCK_KERNELS, SLICED_KERNELS)}


def shape_for(
    gather: bool, columns: int | None, mean_entries: float, parallel: bool, block: int = 0
) -> KernelShape:
    """Return the kernel for a product.

    Args:
        gather: whether it is a gather or a scatter.
        columns: of the dense operand; None: it is a vector.
        mean_entries: mean entries of a line.
        parallel: whether it runs on several threads.
        block: height of the blocks; 0: there are none.
    """
    if block:
        return KernelShape(gather, "vector" if columns is None else "wide", gather or parallel, block)
    return gather_for(columns, mean_entries) if gather else scatter_for(columns, parallel)


def gather_for(columns: int | None, mean_entries: float) -> KernelShape:
    """Return the gather for an operand of ``columns`` columns (None: a vector); lines have ``mean_entries`` entries."""
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


def schedule_of(
    shape: KernelShape, element: str, register_bytes: int | None = None
) -> tuple[str, int | None, str]:
    """Return the operation of a kernel, the columns of an example of it, and its schedule as text.

    Args:
        shape: of the kernel.
        element: type of the elements.
        register_bytes: bytes of a vector register of the processor that the kernel is for; None: of this one.
    """
    register_bytes = register_bytes or vector_bytes()
    if shape.block:
        return _blocked_schedule(shape, element, register_bytes)
    lanes = min(WIDEST_LANES[element], WIDEST_LANES[element] * register_bytes // 64)
    if shape.slices:
        height = SLICES[shape.slices.split("-")[0]][1]
        few = min(lanes, height)
        nest = f"split(i,{height}) reorder(i1,i0,k#) parallel(i1,balanced,4)"
        return "spmv", None, f"{nest} tile(i0,{height // few}x{few})"
    few = min(lanes, WIDEST_LANES[element] // 2)  # for lines and operands that fill no wide register
    if shape.gather:
        if shape.columns in ("vector", "short"):
            tile = f" tile(k,1x{few})" if shape.columns == "vector" else ""
            return "spmv", None, f"reorder(i,k) parallel(i,balanced,4){tile}"
        if shape.columns.isdecimal():
            n = int(shape.columns)
            width = min(lanes, n)
            tile = f" tile(j,{n // width}x{width}) unroll(k,2)" if n in (4, 8, 16) else ""
            return "spmm", n, f"reorder(i,j,k) parallel(i,balanced,4){tile} bound(j,{n})"
        tile = f"8x{lanes}" if shape.columns == "wide" else f"2x{few}"
        return "spmm", 61, f"reorder(i,j,k) parallel(i,balanced,4) tile(j,{tile})"
    threads = " parallel(i,balanced,4,private)" if shape.parallel else ""
    if shape.columns == "vector":
        return "spmv_t", None, f"reorder(i,k){threads}"
    tile = f"4x{lanes}" if shape.columns == "wide" else f"1x{few}"
    return "spmm_t", 61, f"reorder(i,k,j){threads} tile(j,{tile})"


def _blocked_schedule(shape: KernelShape, element: str, register_bytes: int) -> tuple[str, int | None, str]:
    """The same for a kernel over blocks: each row of a block has accumulators of its own."""
    size = shape.block
    splits = f"split(i,{size}) split(k,{size})"
    lanes = min(WIDEST_LANES[element], WIDEST_LANES[element] * register_bytes // 64)
    if shape.columns == "vector":
        row = f"unroll(i0) tile(k0,1x{min(BLOCK_LANES[size], MOST_LANES[element], lanes)})"
        if shape.gather:
            return "spmv", None, f"{splits} reorder(i1,k1,i0,k0) parallel(i1,balanced,4) {row}"
        threads = "parallel(i1,balanced,4,private) " if shape.parallel else ""
        return "spmv_t", None, f"{splits} reorder(i1,k1,k0,i0) {threads}{row}"
    registers = 32 if register_bytes >= 64 else 16
    vectors = next(count for count in (4, 2, 1) if size * count <= 3 * registers // 4)
    nest = f"reorder(i1,j,k1,k0,i0) parallel(i1,balanced,4) unroll(i0) unroll(k0) tile(j,{vectors}x{lanes})"
    return "spmm", 61, f"{splits} {nest}"
