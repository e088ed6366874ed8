"""The Params that say how the nest runs on a CPU: threads, vector registers, copies of the body, prefetches.

From WACO's SuperSchedule (Table 4.1): the parallel loop and its chunk. Ours: register tile, unrolling, prefetch,
balanced parts and serial runs.
"""

import math
from itertools import islice
from typing import Final

from tensorwise.lower.nest import MAX_COPIES
from tensorwise.program.einsum import Assignment
from tensorwise.program.schedule import CONSTANT_SPLIT
from tensorwise.program.workload import Workload
from tensorwise.space.config import Value
from tensorwise.space.param import Earlier, Param, powers
from tensorwise.space.params import Choice, Flag, PowerOfTwo
from tensorwise.space.readings import (
    block_copies,
    compressed,
    gathers,
    innermost_stored,
    longest,
    loops_of,
    nest,
    operand,
    prefetched,
    separate_sum,
    split,
    stored_loops,
    strips,
    tile_extent,
)
from tensorwise.space.scheduling import allows
from tensorwise.toolchain.processor import WIDTHS, vector_bytes
from tensorwise.toolchain.threads import available_threads

VECTOR_BYTES: Final = WIDTHS
"""Widths of vectors."""
VECTORS: Final = (1, 2, 4, 8, 12, 16)
"""Vectors of a tile."""
POLICIES: Final = ("dynamic", "balanced", "merge-path")
"""How a CPU's threads are handed iterations."""
UNROLLED: Final = (1, 2, 4, 8)
"""Copies of the innermost stored loop."""
MOST_UNROLLED: Final = 64
"""Copies of the innermost body, beyond which a kernel overflows registers and instruction cache."""
PREFETCHES: Final = (0, 2, 4, 8, 16, 32)
"""Entries between asking for a row and reaching it; 0 does not ask."""
PREFETCHED_BYTES: Final = 4 * 2**20
"""Operands above this many bytes miss the second-level cache often enough to be asked for ahead."""
PREFETCHED_ROW_BYTES: Final = 512
"""Minimum length of a row, summed as a whole, that is prefetched from anywhere: its sum hides the latency."""
LONGEST_BOUND: Final = 512
"""Extents up to this are worth compiling in; for longer ones a loop over strips costs nothing."""
SHORT_SUM_BYTES: Final = 256
"""Sums over dense indices up to this size keep one accumulator, and copies of the loop around them pay."""
MOST_PRIVATE_BYTES: Final = 2**28
"""Outputs up to this size are copied for each thread that adds to them."""


def running(assignment: Assignment) -> list[Param]:
    """Return the Params in the order in which they are chosen."""
    loops = loops_of(assignment.indices)
    return [
        Choice(
            "parallel", ("none", *loops), binds="compile",
            doc="Loop whose iterations are handed to threads; inner loops are entered too often to share",
            narrow=lambda earlier, w: ("none", *_shareable(earlier, w)),
            prefer=_default_parallel,
        ),
        Choice(
            "policy", POLICIES, binds="compile", prefer="balanced",
            doc="Chunks handed out as threads get free, or parts with equal numbers of entries; parts can be "
            "computed for the operand's outermost level only, and cut its rows where one is as long as half of what a "
            "thread gets",
            narrow=_policy_domain,
        ),
        PowerOfTwo(
            "chunk", 1, 256, binds="call",
            prefer=lambda earlier, w: 1 if earlier["layout"] == "numbers" else 32,
            doc="Iterations that a thread takes at a time; past 256 threads run out of chunks (Table 4.1)",
            narrow=lambda earlier, w: powers(1, 256) if earlier["policy"] == "dynamic" else None,
        ),
        PowerOfTwo(
            "parts", 1, 16, binds="call", prefer=4,
            doc="Balanced parts a thread; more even out other load, fewer keep neighbours together",
            narrow=lambda earlier, w: None if earlier["policy"] in ("dynamic", None) else powers(1, 16),
        ),
        Choice(
            "reduction", ("atomic", "private"), binds="compile", prefer="private",
            doc="How threads share outputs when they split a reduced index; a private copy a thread must fit",
            narrow=_reduction_domain,
        ),
        Choice(
            "tile", ("none", *loops), binds="compile",
            doc="Dense loop that runs in vector registers; lanes cannot be searched for, so every level of the "
            "operand that they reach must be uncompressed",
            narrow=_tile_domain, prefer=_default_tile,
        ),
        Choice(
            "vectors", VECTORS, binds="compile",
            doc="Vectors of a tile; machines have 16 to 32 vector registers, and one is needed for operands",
            narrow=_vectors_domain, prefer=_default_vectors,
        ),
        Choice(
            "vector_bytes", VECTOR_BYTES, binds="compile",
            doc="Bytes of a vector: SSE and NEON, AVX2, AVX-512; not wider than the machine's registers",
            narrow=_vector_bytes_domain,
            prefer=lambda earlier, w: 4 * w.dtype.itemsize if gathers(earlier) else vector_bytes(),
        ),
        Flag(
            "bound", binds="compile",
            doc="Compile the extent of the tiled dense index in: no loops over strips, no rest; worth a kernel of its "
            "own where strips are entered for each entry, as in SDDMM",
            narrow=_bound_domain,
            prefer=lambda earlier, w: _tiled(earlier) in w.assignment.reduced,
        ),
        Flag(
            "factor", binds="compile",
            doc="Sum the factors that change in the innermost reduced index's loops, and multiply the sum by the others: "
            "SDDMM's values once an entry, a factor of MTTKRP once a fibre, which pays for fibres of some length",
            narrow=_factor_domain,
            prefer=lambda earlier, w: separate_sum(earlier, w) not in stored_loops(earlier),
        ),
        Flag(
            "unroll_blocks", binds="compile", prefer=True,
            doc=f"Unroll dense inner loops of splits up to {CONSTANT_SPLIT} completely, at most {MOST_UNROLLED} copies",
            narrow=_blocks_domain,
        ),
        Choice(
            "unroll", UNROLLED, binds="compile",
            doc="Copies of the innermost stored loop with accumulators of their own, to overlap latencies",
            narrow=_unroll_domain, prefer=_default_unroll,
        ),
        Choice(
            "prefetch", PREFETCHES, binds="compile",
            doc="Entries ahead of which rows of a dense operand are asked for; a row must be worth a cache line",
            narrow=_prefetch_domain, prefer=_default_prefetch,
        ),
    ]  # fmt: skip


# -- threads -------------------------------------------------------------------------------------------


def _shareable(earlier: Earlier, w: Workload) -> tuple[str, ...]:
    """The outer two of those that threads may share."""
    able = (loop for loop in nest(earlier) if allows(earlier, w, "parallel", loop))
    return tuple(islice(able, 2)) or ("none",)


def _default_parallel(earlier: Earlier, w: Workload) -> Value:
    """The outermost one; none where entries are found by number and threads would meet: each takes little time."""
    loop = _shareable(earlier, w)[0]
    return "none" if earlier["layout"] == "numbers" and loop[:-1] in w.assignment.reduced else loop


def _policy_domain(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
    """What the directive allows; rows are cut where it is worth it."""
    if earlier["parallel"] == "none":
        return None
    legal = [policy for policy in POLICIES if allows(earlier, w, "policy", policy)]
    return tuple(policy for policy in legal if policy != "merge-path" or _worth_cutting(earlier, w))


def _worth_cutting(earlier: Earlier, w: Workload) -> bool:
    """Taste: whether a row of the outermost level may hold up the other threads."""
    if earlier["layout"] != "coordinates":
        return False
    threads, first = available_threads(), stored_loops(earlier)[0]
    return threads > 1 and longest(w, first[:-1]) * 2 * threads > w.entries.nnz


def _reduction_domain(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
    """It applies where two threads can meet in one element of the output."""
    parallel, layout, stored = str(earlier["parallel"]), earlier["layout"], operand(w).indices
    if parallel == "none":
        return None
    reduced = parallel[:-1] not in w.assignment.free_indices
    # Different iterations over slots, diagonals or a list meet the same coordinates.
    repeated = (layout in ("slots", "diagonals") and parallel == f"{stored[-1]}1") or (
        layout == "list" and parallel[:-1] in stored
    )
    if not reduced and (not repeated or w.keeps_pattern):
        return None
    fits = math.prod(w.output_shape) * w.dtype.itemsize <= MOST_PRIVATE_BYTES
    return ("private", "atomic") if fits else ("atomic",)


# -- vector registers ----------------------------------------------------------------------------------


def _tiled(earlier: Earlier) -> str:
    """The index whose loop runs in vector registers."""
    return str(earlier["tile"])[:-1]


def _dense_indices(w: Workload) -> list[str]:
    """Indices that only dense operands and the output have."""
    return [index for index in w.assignment.indices if index not in operand(w).indices]


def _tile_domain(earlier: Earlier, w: Workload) -> tuple[Value, ...]:
    able = [
        loop for loop in nest(earlier) if _worth_lanes(loop, earlier, w) and allows(earlier, w, "tile", loop)
    ]
    if not w.assignment.monoid.single:  # a state has several registers, which are separate for each output
        kept = [index for index in _dense_indices(w) if index in w.assignment.free_indices]
        able = [loop for loop in able if loop[:-1] in kept]
    return ("none", *able)


def _worth_lanes(loop: str, earlier: Earlier, w: Workload) -> bool:
    """Taste: whether neighbouring iterations of a loop are worth the lanes of vectors."""
    stored, own = operand(w).indices, f"kind_{loop}" in earlier
    if loop[-1] == "1" and split(earlier, loop[:-1]) > 1:
        return False  # lanes of an outer part are strided
    if earlier["layout"] == "coordinates" or not own:
        return True
    return loop != f"{stored[-1]}1" and stored[-1] not in w.assignment.free_indices  # else lanes scatter


def _default_tile(earlier: Earlier, w: Workload) -> Value:
    """The innermost loop over a dense-only index, else the innermost loop: gathered loads beat scalar ones."""
    order, dense = nest(earlier), _dense_indices(w)
    if not w.assignment.monoid.single:
        return _tile_domain(earlier, w)[-1]
    if dense:
        return [loop for loop in order if loop[:-1] in dense][-1]
    if earlier["layout"] in ("slots", "diagonals"):
        return next((loop for loop in order if loop[-1] == "0"), "none")
    return order[-1] if order[-1] != earlier["parallel"] else "none"


def _vectors_domain(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
    if earlier["tile"] == "none":
        return None
    row = tile_extent(earlier, w) * w.dtype.itemsize
    most = max(1, -(-row // VECTOR_BYTES[0]))  # the last two may overlap
    return tuple(count for count in VECTORS if count <= most)


def _default_vectors(earlier: Earlier, w: Workload) -> Value:
    """As many as a row of the output fills, in up to half of the registers that AVX2 has; one where it gathers."""
    if gathers(earlier):
        return 1
    if _tiled(earlier) not in w.assignment.free_indices:
        return 1 if _sums_little(earlier, w) else 4 if _tiled(earlier) in _dense_indices(w) else 2
    most, row = 8 // len(w.assignment.monoid.components), tile_extent(earlier, w) * w.dtype.itemsize
    if row < 2 * VECTOR_BYTES[1]:  # one vector of the widest that fit, or two that overlap
        return 2 if row > VECTOR_BYTES[0] and row not in VECTOR_BYTES else 1
    return max(count for count in VECTORS if count <= max(1, min(most, row // VECTOR_BYTES[1])))


def _sums_little(earlier: Earlier, w: Workload) -> bool:
    """Whether the tile sums so few vectors of dense operands that folding them costs as much."""
    index = _tiled(earlier)
    dense = index in w.assignment.reduced and index in _dense_indices(w)
    return dense and tile_extent(earlier, w) * w.dtype.itemsize <= SHORT_SUM_BYTES


def _vector_bytes_domain(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
    if earlier["tile"] == "none":
        return None
    # compilers keep wider types in memory
    widest = min(tile_extent(earlier, w) * w.dtype.itemsize, vector_bytes())
    return tuple(width for width in VECTOR_BYTES if width == VECTOR_BYTES[0] or width <= widest)


def _bound_domain(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
    """It applies where the tile runs over a short dense index in one piece."""
    index = _tiled(earlier)
    short = index in _dense_indices(w) and w.sizes[index] <= LONGEST_BOUND
    return (True, False) if short and allows(earlier, w, "bound", True) else None


def _factor_domain(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
    loop = separate_sum(earlier, w)
    return (True, False) if loop is not None and allows(earlier, w, "factor", True) else None


# -- copies of the body, and prefetches ----------------------------------------------------------------


def _blocks_domain(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
    copies = block_copies(earlier)
    if copies == 1:
        return None
    return (True, False) if copies <= MOST_UNROLLED and copies * strips(earlier) <= MAX_COPIES else (False,)


def _unroll_domain(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
    if earlier["layout"] == "numbers" or not allows(earlier, w, "unroll", UNROLLED[1]):
        return None
    body = strips(earlier) * (block_copies(earlier) if earlier["unroll_blocks"] else 1)
    return tuple(factor for factor in UNROLLED if factor == 1 or (factor + 1) * body <= MAX_COPIES)


def _default_unroll(earlier: Earlier, w: Workload) -> Value:
    """Copies overlap latencies where nothing else does, and fold short sums together."""
    return 4 if earlier["tile"] == "none" or (earlier["bound"] and _sums_little(earlier, w)) else 1


def _prefetch_domain(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
    """It applies where the innermost stored loop jumps about in a dense operand."""
    loop = innermost_stored(earlier)
    whole = loop[-1] == "1" and split(earlier, loop[:-1]) == 1
    jumps = earlier["layout"] == "coordinates" and compressed(earlier, loop)
    return PREFETCHES if whole and jumps and prefetched(earlier, w) else None


def _default_prefetch(earlier: Earlier, w: Workload) -> Value:
    """Prefetch rows of an operand that does not stay in a core's own cache; one that does only pays for it."""
    in_registers = _tiled(earlier) in w.assignment.free_indices
    if _prefetch_domain(earlier, w) is None:
        return 0
    if not in_registers:
        summed = earlier["bound"] and _tiled(earlier) in w.assignment.reduced
        long = summed and tile_extent(earlier, w) * w.dtype.itemsize >= PREFETCHED_ROW_BYTES
        return 4 if long else 0
    access = w.assignment.access(str(prefetched(earlier, w)))
    extent = math.prod(w.shape(access.tensor))
    return 8 if extent * w.dtype_of(access.tensor).itemsize > PREFETCHED_BYTES else 0
