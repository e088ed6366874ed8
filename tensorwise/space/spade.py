"""The space of a SPADE-like accelerator: how a sparse matrix is cut into tiles, and how those are scheduled.

COGNATE (section 4.1) tunes four row panels, four column panels, two split factors, barriers, cache bypassing and matrix
reordering: 256 configs, whatever the matrix. Where a panel is larger than the matrix several configs are the same program.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, final

from tensorwise.errors import InputError
from tensorwise.program.workload import Workload
from tensorwise.space.config import Value
from tensorwise.space.params import Choice, Flag, PowerOfTwo
from tensorwise.space.readings import number
from tensorwise.space.space import Space
from tensorwise.space.strips import SPADE, USUAL, Mapper, Processors

ALL: Final = "all"
"""The column panel that has all columns."""
PRIMITIVES: Final = ("spmm", "sddmm")
"""What the accelerator computes."""
LANES: Final = 16
"""float32 values in a line of memory and in a vector register."""


@final
@dataclass(frozen=True)
class TileProgram:
    """The tiling, order and barriers that a SPADE applies to a matrix. Configs with equal effects are equal programs.

    Attributes:
        primitive: one of PRIMITIVES.
        width: dense columns in all (the extent of the index that the sparse operand lacks).
        row_panel: rows of a tile; all of them where the matrix has fewer.
        column_panel: columns of a tile, likewise.
        split: dense columns that a pass over the tiles covers; the last pass takes what is left.
        barrier: all processing elements finish a column panel before any begins the next.
        bypass: the operand that is indexed by rows goes past the caches, through a buffer of each processing element.
        reorder: rows and columns are permuted first.

    >>> TileProgram("spmm", 300, 4, 8, 256, False, False, False).strips
    ((256, 1), (44, 1))
    """

    primitive: str
    width: int
    row_panel: int
    column_panel: int
    split: int
    barrier: bool
    bypass: bool
    reorder: bool

    @property
    def strips(self) -> tuple[tuple[int, int], ...]:
        """The passes: (dense columns, how many passes of so many)."""
        whole, rest = divmod(self.width, self.split)
        return tuple((width, times) for width, times in ((self.split, whole), (rest, 1)) if width and times)


@final
@dataclass(frozen=True)
class SpadeSpace(Space[TileProgram]):
    """The choices; made by :func:`spade_space`.

    Attributes:
        processors: of the machine.
    """

    processors: Processors = USUAL

    def program(self, workload: Workload, config: Mapping[str, Value]) -> TileProgram:
        """Return the program of the accelerator.

        Raises:
            InputError: the workload is neither SpMM nor SDDMM in float32, or too large.
        """
        width = _width(workload)
        rows, columns = workload.entries.shape
        wanted = config["column_panel"]
        column_panel = max(min(columns, columns if wanted == ALL else number(wanted)), 1)
        return TileProgram(
            workload.op,
            width,
            max(min(number(config["row_panel"]), rows), 1),
            column_panel,
            min(number(config["split"]), width),
            bool(config["barrier"]) and column_panel < columns,
            bool(config["bypass"]),
            bool(config["reorder"]),
        )

    def mapper(self, workload: Workload) -> Mapper:
        """Return COGNATE's phi: tiles and barriers as strip-mined loops."""
        return replace(SPADE, processors=self.processors)


def spade_space(
    name: str,
    row_panels: tuple[int, ...],
    column_panels: tuple[int, ...],
    splits: tuple[int, ...],
    row_panel: int,
    processors: Processors = USUAL,
) -> SpadeSpace:
    """Return the space of a machine.

    Args:
        name: of the space; records carry it.
        row_panels: rows of a tile, powers of two, ascending.
        column_panels: columns of a tile; all columns are a choice besides.
        splits: dense columns of a pass, powers of two, ascending; the default is the largest.
        row_panel: the default; SPADE's (ISCA'23) has 256 rows, all columns, and neither barriers nor bypassing.
        processors: its processing elements and their caches.
    """
    params = (
        PowerOfTwo(
            "row_panel", row_panels[0], row_panels[-1], binds="pack",
            doc="Rows of a tile. Small panels balance processing elements, large ones reuse the other operand's rows.",
            narrow=lambda earlier, workload: row_panels, prefer=row_panel,
        ),
        Choice(
            "column_panel", (*column_panels, ALL), binds="pack",
            doc="Columns of a tile, so that the rows of the other operand that it reads stay in a cache.", prefer=ALL,
        ),
        Flag("reorder", binds="pack", doc="Permute rows and columns first, so that entries lie near the diagonal."),
        PowerOfTwo(
            "split", splits[0], splits[-1], binds="call",
            doc="Dense columns of a pass over the tiles; narrow passes reuse more, but read the matrix again.",
            narrow=lambda earlier, workload: splits, prefer=splits[-1],
        ),
        Flag("barrier", binds="call", doc="All wait for each other behind a column panel, so that caches share it."),
        Flag("bypass", binds="call", doc="Rows of the output (SDDMM: of its left operand) go past the caches."),
    )  # fmt: skip
    return SpadeSpace(name, params, processors=processors)


def _width(workload: Workload) -> int:
    """Dense columns of a workload that the accelerator can compute."""
    if workload.op not in PRIMITIVES or workload.dtype_text != "float32":
        cure = "; pass dtype='float32' (--dtype float32)" if workload.op in PRIMITIVES else ""
        raise InputError(
            f"the accelerator computes {' and '.join(PRIMITIVES)} in float32, got {workload.op} in "
            f"{workload.dtype_text}{cure}"
        )
    if sum(workload.entries.shape) >= 2**31 - 2 or workload.entries.nnz >= 2**31:
        raise InputError(
            f"the accelerator numbers rows, columns and entries with 31 bits, got {workload.entries!r}"
        )
    stored = workload.assignment.indices_of(workload.sparse)
    return next(workload.sizes[index] for index in workload.assignment.indices if index not in stored)
