"""The CPU's space: WACO's SuperSchedule (Table 4.1) for any einsum with one sparse operand, and our own Params.

From the paper: split sizes, loop order, level order and level kinds of the sparse operand, the
parallel loop and its chunk. Ours: register tile, unrolling, prefetch, balanced parts, serial runs, rows in
an order of their own, slots (SELL), diagonals, coordinate lists, short coordinates, bit masks, and hybrids that
set long rows or dense groups of columns apart.
Loops are named i1 and i0 throughout; an index split by 1 has the loop i1 only. Where the operand is kept by
slots or diagonals, the loop over its last index stands for them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, final
from weakref import WeakKeyDictionary

from tensorwise.program.accumulate import MAX_COPIES
from tensorwise.program.einsum import Assignment
from tensorwise.program.program import Apart, Program
from tensorwise.program.schedule import (
    CONSTANT_SPLIT,
    Bound,
    Directive,
    Parallel,
    Prefetch,
    Reorder,
    Schedule,
    Split,
    Tile,
    Unroll,
)
from tensorwise.program.work import work_bound
from tensorwise.program.workload import Workload
from tensorwise.space.apart import APART, GROUP, long_rows, rule, worth
from tensorwise.space.config import Value
from tensorwise.space.domain import Domain, orders
from tensorwise.space.param import Earlier, Param, powers
from tensorwise.space.params import Choice, Flag, Permutation, PowerOfTwo
from tensorwise.space.readings import (
    block_copies,
    block_loops,
    compressed,
    constant,
    gathers,
    innermost_stored,
    levels,
    loop_axes,
    nest,
    number,
    operand,
    prefetched,
    present,
    split,
    splits,
    stored_format,
    stored_loops,
    strings,
    strips,
    tile_extent,
)
from tensorwise.space.space import Rule, Space
from tensorwise.tensor.levels import LEVELS
from tensorwise.toolchain.processor import vector_bytes

VECTOR_BYTES: Final = (16, 32, 64)
"""Vector widths of SSE and NEON, AVX2, AVX-512."""
MOST_UNROLLED: Final = 64
"""Copies of the innermost body, beyond which a kernel overflows registers and instruction cache."""
PREFETCHED_BYTES: Final = 4 * 2**20
"""Operands above this many bytes miss the second-level cache often enough to be asked for ahead."""
KINDS: Final = ("U", "C", "C16", "B")
"""Kinds of levels that hold coordinates; lists and slots have kinds of their own."""
LONGEST_BOUND: Final = 512
"""Extents up to this are worth compiling in; for longer ones a loop over strips costs nothing."""
MOST_PRIVATE_BYTES: Final = 2**28
"""Outputs up to this size are copied for each thread that adds to them."""
MOST_STEPS_A_TERM: Final = 16
"""Iterations of discordant search that are tried for each term; more have never paid."""


@final
@dataclass(frozen=True)
class CpuSpace(Space):
    """Choices for one assignment; made by :func:`cpu_space`."""

    assignment: Assignment | None = None

    def program(self, workload: Workload, config: Mapping[str, Value]) -> Program:
        """Return the program that ``config`` stands for."""
        name, modes = operand(workload).tensor, operand(workload).indices
        axes = loop_axes(config, modes)
        directives: list[Directive] = [Split(mode, size) for mode, size in splits(config).items()]
        directives.append(Reorder(tuple(axis.name for axis in axes.values())))
        if config["parallel"] != "none":
            reduction = str(config["reduction"] or "atomic")
            chunk = number(config["chunk"] if config["policy"] == "dynamic" else config["parts"])
            directives.append(
                Parallel(axes[str(config["parallel"])].name, str(config["policy"]), chunk, reduction)
            )
        tile = str(config["tile"])
        if tile != "none":
            lanes = number(config["vector_bytes"]) // workload.dtype.itemsize
            directives.append(Tile(axes[tile].name, number(config["vectors"]), lanes))
        if config["bound"]:
            directives.append(Bound(tile[:-1], workload.sizes[tile[:-1]]))
        if config["unroll_blocks"]:
            directives.extend(Unroll(axes[loop].name) for loop in block_loops(config))
        factor = config["unroll"]
        if factor is not None and factor != 1:
            directives.append(Unroll(axes[innermost_stored(config)].name, number(factor)))
        if config["prefetch"]:
            directives.append(Prefetch(prefetched(config, workload), number(config["prefetch"])))
        formats = {name: stored_format(config, modes)}
        program = Program(workload.assignment, formats, Schedule(tuple(directives)))
        apart = str(config["apart"] or "none")
        return program if apart == "none" else replace(program, apart=self._apart(workload, apart))

    @cached_property
    def _parts(self) -> "WeakKeyDictionary[Workload, dict[str, Apart]]":
        """What hybrids set apart: the work rule asks for every config, and each answer walks the whole table."""
        return WeakKeyDictionary()

    def _apart(self, workload: Workload, kind: str) -> Apart:
        """The part that a hybrid sets apart, stored and run in one way that suits it: a config of this space."""
        known = self._parts.setdefault(workload, {})
        if kind not in known:
            known[kind] = self._set_apart(workload, kind)
        return known[kind]

    def _set_apart(self, workload: Workload, kind: str) -> Apart:
        ((name, entries),) = workload.sparse.items()
        rows, *_, columns = workload.assignment.access(name).indices
        if kind == "columns":
            wide = {"vectors": max(1, vector_bytes() // VECTOR_BYTES[1])}  # eight accumulators of each vector
            partial = {**wide, **blocks(self, workload, rows, columns, GROUP, 1)[-1], f"kind_{rows}1": "C"}
        else:
            partial = long_rows(workload.assignment, rows, columns)
        program = self.program(workload, self.complete({**partial, "apart": "none"}, workload))
        return Apart(rule(kind, entries), program.formats[name], program.schedule)


@lru_cache(maxsize=64)
def cpu_space(assignment: Assignment, sparse: str = "A") -> CpuSpace:
    """Return the space of ``assignment`` whose only sparse operand is ``sparse``."""
    stored = assignment.access(sparse).indices
    loops = tuple(f"{index}{part}" for index in assignment.indices for part in "10")
    own = tuple(f"{index}{part}" for index in stored for part in "10")
    nested = tuple((f"{index}1", f"{index}0") for index in assignment.indices) + _reductions_inside(
        assignment
    )
    own_nested = tuple((f"{index}1", f"{index}0") for index in stored)
    matrix = len(stored) == 2
    beside = {f"{index}0": f"{index}1" for index in assignment.indices}
    dense_only = [index for index in assignment.indices if index not in stored]
    layouts = ("coordinates", "slots", "diagonals", "list") if matrix else ("coordinates", "list")
    params: list[Param] = [
        Choice(
            "layout", layouts, binds="pack", prefer="coordinates",
            doc="How a row knows its entries: by coordinates in levels; in slots as long as the longest row of a slice "
            "(SELL-C-sigma); by pieces of diagonals (DIA); or as a list of all coordinates (COO)",
            narrow=lambda earlier, w: layouts if w.assignment.monoid.single else ("coordinates",),
        )
    ]  # fmt: skip
    params.extend(
        PowerOfTwo(
            f"split_{index}", 1, 32768 if index in stored else 256, binds="pack" if index in stored else "call",
            doc=f"Extent of the inner part of index {index}, shared by loops and storage; WACO splits each index "
            "once, up to 32768, since further splits gained little (section 4.1.2)",
            narrow=_split_domain(index, stored), prefer=1, extent=index,
        )
        for index in assignment.indices
    )  # fmt: skip
    params.append(
        Permutation(
            "order", loops, binds="compile", before=nested, beside=beside,
            doc="Loops from outermost to innermost; an inner part outside its outer one only permutes addresses, "
            "as the published generators also assume; a mean or argmax has no partial result to keep in memory",
            narrow=lambda earlier, w: orders(present(loops, earlier), nested), prefer=_default_order(assignment, stored),
        )
    )  # fmt: skip
    row_orders = (
        "own",
        "length256",
        "length4096",
        "length",
        "degree",
        *(("rcm", "cluster") if matrix else ()),
    )
    params.append(
        Choice(
            "rows", row_orders, binds="pack", prefer="own",
            doc="Order in which rows are stored: by length so that neighbours need little padding and even work, by "
            "degree, reverse Cuthill-McKee or similarity so that neighbours gather the same operands",
            narrow=lambda earlier, w: ("own",) if earlier["layout"] == "diagonals" else row_orders,
        )
    )  # fmt: skip
    params.append(
        Flag(
            "levels_follow_loops", binds="pack", prefer=True,
            narrow=lambda earlier, w: (True,) if earlier["layout"] == "list" else (True, False),
            doc="Store the operand's levels in the order of the loops, so that no coordinate is searched for",
        )
    )  # fmt: skip
    params.append(
        Permutation(
            "levels", own, binds="pack", before=own_nested, beside={f"{index}0": f"{index}1" for index in stored},
            doc="Order of the stored levels where it differs from the loops' (coordinates are then searched for)",
            narrow=_levels_domain(own, own_nested, stored),
        )
    )  # fmt: skip
    params.extend(
        Choice(
            f"kind_{loop}", KINDS, binds="pack",
            doc=f"How level {loop} is kept: U every coordinate, C those that occur (Table 4.1), C16 with short "
            "coordinates, B as bits",
            narrow=_kind_domain(loop, stored), prefer=_default_kind(loop, stored),
        )
        for loop in own
    )  # fmt: skip
    params.append(
        Flag(
            "short", binds="pack", prefer=True,
            doc="Keep the coordinates of slots and lists in 16 bits",
            narrow=_short_domain(stored),
        )
    )  # fmt: skip
    params.extend(_execution(assignment, sparse, loops, dense_only))
    params.append(
        Choice(
            "apart", APART, binds="pack", prefer="none",
            doc="Entries kept in a second format, whose results are added: rows above 8 or 64 times the mean length, cut "
            "into blocks of columns, so that they neither pad nor hold up the others; or columns that most of 8 rows "
            "share, as dense pieces (ASpT)",
            narrow=lambda earlier, w: worth(w) if matrix else None,
        )
    )  # fmt: skip
    work = Rule(
        "work",
        f"it takes more than {MOST_STEPS_A_TERM} loop iterations a term, so that searching dominates",
        _affordable,
    )
    return CpuSpace("cpu", tuple(params), (work,), assignment)


def _execution(
    assignment: Assignment, sparse: str, loops: tuple[str, ...], dense_only: list[str]
) -> list[Param]:
    """Params that say how the nest runs."""
    stored = assignment.access(sparse).indices
    return [
        Choice(
            "parallel", ("none", *loops), binds="compile",
            doc="Loop whose iterations are handed to threads; inner loops are entered too often to share",
            narrow=lambda earlier, w: ("none", *_shareable(earlier, assignment)),
            prefer=lambda earlier, w: _shareable(earlier, assignment)[0],
        ),
        Choice(
            "policy", ("dynamic", "balanced"), binds="compile",
            doc="Chunks handed out as threads get free, or parts with equal numbers of entries; parts can be "
            "computed for the operand's outermost level only",
            narrow=lambda earlier, w: None if earlier["parallel"] == "none" else
            (("dynamic", "balanced") if _balanceable(earlier) else ("dynamic",)),
            prefer="balanced",
        ),
        PowerOfTwo(
            "chunk", 1, 256, binds="call", prefer=32,
            doc="Iterations that a thread takes at a time; past 256 threads run out of chunks (Table 4.1)",
            narrow=lambda earlier, w: powers(1, 256) if earlier["policy"] == "dynamic" else None,
        ),
        PowerOfTwo(
            "parts", 1, 16, binds="call", prefer=4,
            doc="Balanced parts a thread; more even out other load, fewer keep neighbours together",
            narrow=lambda earlier, w: powers(1, 16) if earlier["policy"] == "balanced" else None,
        ),
        Choice(
            "reduction", ("atomic", "private"), binds="compile", prefer="private",
            doc="How threads share outputs when they split a reduced index; a private copy a thread must fit",
            narrow=_reduction_domain(assignment, stored),
        ),
        Choice(
            "tile", ("none", *loops), binds="compile",
            doc="Dense loop that runs in vector registers; lanes cannot be searched for, so every level of the "
            "operand that they reach must be uncompressed",
            narrow=_tile_domain(assignment, sparse),
            prefer=lambda earlier, w: _default_tile(earlier, dense_only, w),
        ),
        Choice(
            "vectors", (1, 2, 4, 8, 12, 16), binds="compile", prefer=_default_vectors,
            doc="Vectors of a tile; machines have 16 to 32 vector registers, and one is needed for operands",
            narrow=lambda earlier, w: None if earlier["tile"] == "none" else _vector_counts(earlier, w),
        ),
        Choice(
            "vector_bytes", VECTOR_BYTES, binds="compile",
            prefer=lambda earlier, w: 4 * w.dtype.itemsize if gathers(earlier) else vector_bytes(),
            doc="Bytes of a vector: SSE and NEON, AVX2, AVX-512; not wider than the machine's registers",
            narrow=lambda earlier, w: None if earlier["tile"] == "none" else _vector_widths(earlier, w),
        ),
        Flag(
            "bound", binds="compile", prefer=lambda earlier, w: str(earlier["tile"])[:-1] in assignment.reduced,
            doc="Compile the extent of the tiled dense index in: no loops over strips, no rest; worth a kernel of its "
            "own where strips are entered for each entry, as in SDDMM",
            narrow=lambda earlier, w: (True, False) if _boundable(earlier, dense_only, w) else None,
        ),
        Flag(
            "unroll_blocks", binds="compile", prefer=True,
            doc=f"Unroll dense inner loops of splits up to {CONSTANT_SPLIT} completely, at most {MOST_UNROLLED} copies",
            narrow=_blocks_domain,
        ),
        Choice(
            "unroll", (1, 2, 4, 8), binds="compile", prefer=lambda earlier, w: 1 if earlier["tile"] != "none" else 4,
            doc="Copies of the innermost stored loop with accumulators of their own, to overlap latencies",
            narrow=_unroll_domain,
        ),
        Choice(
            "prefetch", (0, 4, 8, 16, 32), binds="compile", prefer=_default_prefetch(sparse),
            doc="Entries ahead of which rows of a dense operand are asked for; a row must be worth a cache line",
            narrow=_prefetch_domain(sparse),
        ),
    ]  # fmt: skip


# -- domains ------------------------------------------------------------------------------------------


def _split_domain(index: str, stored: tuple[str, ...]) -> Callable[[Earlier, Workload], tuple[Value, ...]]:
    """Slots and diagonals stand for an index that is not split, lists for all."""
    whole = {"coordinates": (), "slots": stored[-1:], "diagonals": stored[-1:], "list": stored}

    def narrow(earlier: Earlier, w: Workload) -> tuple[Value, ...]:
        most = 1 if index in whole[str(earlier["layout"])] else min(32768, w.sizes[index] // 2)
        return powers(1, max(1, most))

    return narrow


def _reductions_inside(assignment: Assignment) -> tuple[tuple[str, str], ...]:
    """Pairs (loop of the output, reduced loop) where partial results cannot wait in memory."""
    if assignment.monoid.single:
        return ()
    return tuple(
        (f"{kept}{part}", f"{reduced}{other}")
        for kept in assignment.output.indices
        for reduced in assignment.reduced
        for part in "10"
        for other in "10"
    )


def _shareable(earlier: Earlier, assignment: Assignment) -> tuple[str, ...]:
    """The outer two loops, without reduced ones where partial results cannot be shared."""
    outer = [loop for loop in nest(earlier) if earlier.get(f"kind_{loop}") != "B"][:2]
    single = assignment.monoid.single
    return tuple(loop for loop in outer if single or loop[:-1] not in assignment.reduced) or ("none",)


def _default_order(assignment: Assignment, stored: tuple[str, ...]) -> Callable[[Earlier, Workload], Value]:
    """Stored loops as they are stored; dense output loops just outside the reduced ones, reduced dense ones last."""
    output = assignment.output.indices

    def prefer(earlier: Earlier, w: Workload) -> Value:
        kept = [i for i in stored if i in output]
        reduced = [i for i in stored if i not in output]
        free = [i for i in assignment.indices if i not in stored]
        order = [*kept, *(i for i in free if i in output), *reduced, *(i for i in free if i not in output)]
        outer = [f"{i}1" for i in order]
        inner = [f"{i}0" for i in (*stored, *free)]
        return tuple(loop for loop in (*outer, *inner) if loop in present((*outer, *inner), earlier))

    return prefer


def _levels_domain(
    own: tuple[str, ...], nested: tuple[tuple[str, str], ...], stored: tuple[str, ...]
) -> Callable[[Earlier, Workload], Domain | None]:
    """Slots cannot be searched: what is stored above them has its loop outside theirs."""

    def narrow(earlier: Earlier, w: Workload) -> Domain | None:
        if earlier["levels_follow_loops"]:
            return None
        own_present = present(own, earlier)
        if earlier["layout"] != "slots":
            return orders(own_present, nested)
        last = f"{stored[-1]}1"
        order = [loop for loop in strings(earlier["order"]) if loop in own_present]
        inside = [(last, loop) for loop in order[order.index(last) + 1 :]]
        return orders(own_present, (*nested, *inside))

    return narrow


def _kind_domain(
    loop: str, stored: tuple[str, ...]
) -> Callable[[Earlier, Workload], tuple[Value, ...] | None]:
    def narrow(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
        if loop not in strings(earlier["order"]) or earlier["layout"] == "list":
            return None
        last = loop == f"{stored[-1]}1"
        if last and earlier["layout"] == "slots":
            return None
        size, inner = w.sizes[loop[:-1]], split(earlier, loop[:-1])
        extent = inner if loop[-1] == "0" else -(-size // inner)
        if last and earlier["layout"] == "diagonals":
            extent = size + w.sizes[stored[0]] - 1
        able = [kind for kind in KINDS if extent <= (LEVELS[kind].largest_extent or extent)]
        if loop[-1] == "1":
            able = [kind for kind in able if kind != "B"]
        return tuple(able)

    return narrow


def _short_domain(stored: tuple[str, ...]) -> Callable[[Earlier, Workload], tuple[Value, ...] | None]:
    def narrow(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
        if earlier["layout"] not in ("slots", "list"):
            return None
        follow = stored[-1:] if earlier["layout"] == "slots" else stored
        return (True, False) if all(w.sizes[index] <= 2**16 for index in follow) else (False,)

    return narrow


def _default_kind(loop: str, stored: tuple[str, ...]) -> Callable[[Earlier, Workload], Value]:
    """Outermost level and blocks uncompressed, the others compressed: CSR, BCSR, CSF below a dense root."""

    def prefer(earlier: Earlier, w: Workload) -> Value:
        order = [o for o in levels(earlier) if o[:-1] in stored]
        small = loop[-1] == "0" and split(earlier, loop[:-1]) <= CONSTANT_SPLIT
        return "U" if (order and loop == order[0]) or small else "C"

    return prefer


def _balanceable(earlier: Earlier) -> bool:
    """Whether the parallel loop is the outermost one and the operand's outermost level."""
    order = nest(earlier)
    return earlier["parallel"] == order[0] == stored_loops(earlier)[0]


def _reduction_domain(
    assignment: Assignment, stored: tuple[str, ...]
) -> Callable[[Earlier, Workload], tuple[Value, ...] | None]:
    def narrow(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
        parallel = str(earlier["parallel"])
        index = parallel[:-1]
        reduced = index not in assignment.output.indices
        # One iteration over slots, diagonals or a list meets many coordinates, also those that others meet.
        several = (earlier["layout"] in ("slots", "diagonals") and parallel == f"{stored[-1]}1") or (
            earlier["layout"] == "list" and index in stored
        )
        kept = stored == assignment.output.indices  # then every entry has a place of its own
        if parallel == "none" or not (reduced or (several and not kept)):
            return None
        fits = math.prod(w.output_shape) * w.dtype.itemsize <= MOST_PRIVATE_BYTES
        return ("private", "atomic") if fits else ("atomic",)

    return narrow


def _tile_domain(assignment: Assignment, sparse: str) -> Callable[[Earlier, Workload], tuple[Value, ...]]:
    stored = assignment.access(sparse).indices
    kept = stored == assignment.output.indices

    def narrow(earlier: Earlier, w: Workload) -> tuple[Value, ...]:
        allowed: list[Value] = ["none"]
        own = stored_loops(earlier)
        layout, last = earlier["layout"], f"{stored[-1]}1"
        for loop in nest(earlier):
            if loop == earlier["parallel"] or (layout != "coordinates" and loop == last):
                continue
            if layout == "list" and loop in own:
                continue
            if layout != "coordinates" and loop in own and stored[-1] in assignment.output.indices:
                continue  # lanes that are padding would have no place of their own in the output
            if loop[-1] == "1" and split(earlier, loop[:-1]) > 1:
                continue  # strided lanes
            if loop not in own:
                allowed.append(loop)
                continue
            dense_below = all(earlier[f"kind_{below}"] == "U" for below in own[own.index(loop) :])
            # Strips along a compressed level gather; it has to be the last one and the innermost loop.
            innermost = layout == "coordinates" and loop == own[-1] == strings(earlier["order"])[-1]
            gathers = compressed(earlier, loop) and innermost and loop[:-1] in assignment.reduced
            # A masked program cannot run in lanes.
            if gathers or (dense_below and not kept and assignment.annihilated_by(sparse)):
                allowed.append(loop)
        return tuple(allowed) if assignment.monoid.single else ("none",)

    return narrow


def _default_tile(earlier: Earlier, dense_only: list[str], w: Workload) -> Value:
    """The innermost loop over a dense-only index, else the innermost loop: gathered loads beat scalar ones."""
    order = nest(earlier)
    loops = [loop for loop in order if loop[:-1] in dense_only]
    if dense_only:
        return loops[-1]
    if earlier["layout"] in ("slots", "diagonals"):
        return next((loop for loop in order if loop[-1] == "0"), "none")
    return order[-1] if order[-1] != earlier["parallel"] else "none"


def _boundable(earlier: Earlier, dense_only: list[str], w: Workload) -> bool:
    """Whether the tile runs over a short dense index in one piece."""
    index = str(earlier["tile"])[:-1]
    return index in dense_only and split(earlier, index) == 1 and w.sizes[index] <= LONGEST_BOUND


def _vector_counts(earlier: Earlier, w: Workload) -> tuple[Value, ...]:
    elements = max(1, tile_extent(earlier, w) * w.dtype.itemsize // VECTOR_BYTES[0])
    return tuple(count for count in (1, 2, 4, 8, 12, 16) if count <= elements)


def _default_vectors(earlier: Earlier, w: Workload) -> Value:
    """As many registers as the output tile fills, up to half of those that AVX2 has; one where it gathers."""
    if gathers(earlier):
        return 1
    if str(earlier["tile"])[:-1] not in w.assignment.output.indices:
        return 2
    return max(1, min(8, tile_extent(earlier, w) * w.dtype.itemsize // 32))


def _vector_widths(earlier: Earlier, w: Workload) -> tuple[Value, ...]:
    extent = tile_extent(earlier, w) * w.dtype.itemsize
    widest = min(extent, vector_bytes())  # compilers keep wider types in memory
    return tuple(width for width in VECTOR_BYTES if width == VECTOR_BYTES[0] or width <= widest)


def _blocks_domain(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
    copies = block_copies(earlier)
    if copies == 1:
        return None
    return (True, False) if copies <= MOST_UNROLLED and copies * strips(earlier) <= MAX_COPIES else (False,)


def _unroll_domain(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
    loop = innermost_stored(earlier)
    if loop in (earlier["tile"], earlier["parallel"]) or constant(earlier, loop):
        return None
    body = strips(earlier) * (block_copies(earlier) if earlier["unroll_blocks"] else 1)
    return tuple(factor for factor in (1, 2, 4, 8) if factor == 1 or (factor + 1) * body <= MAX_COPIES)


def _prefetch_domain(sparse: str) -> Callable[[Earlier, Workload], tuple[Value, ...] | None]:
    def narrow(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
        loop = innermost_stored(earlier)
        whole = loop[-1] == "1" and split(earlier, loop[:-1]) == 1
        row = any(loop[:-1] in a.indices for a in w.assignment.accesses if a.tensor != sparse)
        able = earlier["layout"] == "coordinates" and compressed(earlier, loop)
        return (0, 4, 8, 16, 32) if whole and row and able else None

    return narrow


def _default_prefetch(sparse: str) -> Callable[[Earlier, Workload], Value]:
    """Prefetch rows of an operand that does not stay in a core's own cache; one that does only pays for it."""

    def prefer(earlier: Earlier, w: Workload) -> Value:
        in_registers = str(earlier["tile"])[:-1] in w.assignment.output.indices
        if not in_registers or _prefetch_domain(sparse)(earlier, w) is None:
            return 0
        access = w.assignment.access(prefetched(earlier, w))
        extent = math.prod(w.sizes[index] for index in access.indices)
        return 8 if extent * w.dtype_of(access.tensor).itemsize > PREFETCHED_BYTES else 0

    return prefer


def _affordable(config: Earlier, workload: Workload) -> bool:
    space = cpu_space(workload.assignment, next(iter(workload.sparse)))
    steps = work_bound(space.program(workload, config), workload)
    return steps <= MOST_STEPS_A_TERM * max(workload.terms, 1) + 2**20


def blocks(
    space: Space, workload: Workload, rows: str, columns: str, height: int, width: int
) -> list[dict[str, object]]:
    """Dense blocks below compressed block columns: unrolled, and column-major with a column in a vector."""
    sizes: dict[str, object] = {f"split_{rows}": height, f"split_{columns}": width}
    block = dict(space.complete(sizes, workload))
    if any(block[name] != size for name, size in sizes.items()):
        return []  # too much fill-in for this operand: a rule put something else in its place
    shape: dict[str, object] = {
        name: block[name] for name in ("order", *sizes, *(k for k in block if k.startswith("kind_")))
    }
    order = strings(block["order"])
    row = f"{rows}0"
    if str(block["tile"])[:-1] not in (rows, columns):
        return [shape]
    found: list[dict[str, object]] = [{**shape, "tile": "none"}]
    if row in order and height * workload.dtype.itemsize in VECTOR_BYTES:
        outside = [loop for loop in order if loop != row]
        outside.insert(outside.index(f"{rows}1") + 1, row)
        stored = (*(loop for loop in order if loop != row), row)
        vector: dict[str, object] = {
            "tile": row,
            "vectors": 1,
            "vector_bytes": height * workload.dtype.itemsize,
        }
        found.append(
            {**shape, "order": tuple(outside), "levels_follow_loops": False, "levels": stored, **vector}
        )
    return found
