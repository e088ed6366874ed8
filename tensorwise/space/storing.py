"""The Params of CPU spaces for the storage format of the sparse operand, and for the order of the loops that walk it.

WACO's SuperSchedule (Table 4.1) has split sizes, loop order, level order and level kinds. We add SELL, diagonals,
coordinate lists, reordered rows, 16-bit coordinates and bit masks.
"""

from typing import Final

from tensorwise.program.einsum import Assignment
from tensorwise.program.schedule import CONSTANT_SPLIT
from tensorwise.program.workload import Workload
from tensorwise.runtime.work import worth_sharing
from tensorwise.space.config import Value
from tensorwise.space.domain import Orders, orders
from tensorwise.space.param import Earlier, Narrow, Param, Prefer, powers
from tensorwise.space.params import Choice, Flag, Permutation, PowerOfTwo
from tensorwise.space.readings import levels, loops_of, operand, present, split, strings
from tensorwise.tensor.levels import LEVELS, proposed_levels
from tensorwise.toolchain.threads import available_threads

"""Kinds of levels that hold coordinates; lists and slots have kinds of their own."""
LEAST_SHARE_BYTES: Final = 64
"""A thread that has less of each row than a cache line would share that with others."""
LARGEST_SPLIT: Final = 32768
"""Largest inner part of an index of the operand."""


def storing(assignment: Assignment, sparse: str) -> list[Param]:
    """Return the Params in the order in which they are chosen."""
    stored = assignment.access(sparse).indices
    matrix = len(stored) == 2
    layouts = ("coordinates", "slots", "diagonals", "list") if matrix else ("coordinates", "list")
    if matrix and assignment.selector is not None:
        layouts = ("numbers", *layouts)
    row_orders = (
        "own",
        "length256",
        "length4096",
        "length",
        "degree",
        *(("rcm", "cluster") if matrix else ()),
    )
    loops, own = loops_of(assignment.indices), loops_of(stored)
    nested = (*_inside(assignment.indices), *_reductions_inside(assignment))
    return [
        Choice(
            "layout", layouts, binds="pack", prefer="numbers" if "numbers" in layouts else "coordinates",
            doc="How a row knows its entries: by coordinates in levels; in slots as long as the longest row of a slice "
            "(SELL-C-sigma); by pieces of diagonals (DIA); or as a list of all coordinates (COO); where only one counts, "
            "by its number, so that the others are not looked at",
            narrow=lambda earlier, w: layouts if w.assignment.monoid.single else ("coordinates",),
        ),
        *(
            PowerOfTwo(
                f"split_{index}", 1, LARGEST_SPLIT if index in stored else 256,
                binds="pack" if index in stored else "call", prefer=_default_split(index), extent=index,
                doc=f"Extent of the inner part of index {index}, shared by loops and storage; WACO splits each index "
                "once, up to 32768, since further splits gained little (section 4.1.2)",
                narrow=_split_domain(index, stored),
            )
            for index in assignment.indices
        ),
        Permutation(
            "order", loops, binds="compile", before=nested, beside=_map_inner_to_outer(assignment.indices),
            doc="Loops from outermost to innermost; an inner part outside its outer one only permutes addresses, "
            "as the published generators also assume; a mean or argmax has no partial result to keep in memory",
            narrow=lambda earlier, w: orders(
                present(loops, earlier), (*nested, (own[0], own[2])) if earlier["layout"] == "numbers" else nested
            ),
            prefer=_default_order,
        ),
        Choice(
            "rows", row_orders, binds="pack", prefer="own",
            doc="Order in which rows are stored: by length so that neighbours need little padding and even work, by "
            "degree, reverse Cuthill-McKee or similarity so that neighbours gather the same operands",
            narrow=lambda earlier, w: ("own",) if earlier["layout"] in ("diagonals", "numbers") else row_orders,
        ),
        Flag(
            "levels_follow_loops", binds="pack", prefer=True,
            narrow=lambda earlier, w: (True,) if earlier["layout"] in ("list", "numbers") else (True, False),
            doc="Store the operand's levels in the order of the loops, so that no coordinate is searched for",
        ),
        Permutation(
            "levels", own, binds="pack", before=_inside(stored), beside=_map_inner_to_outer(stored),
            doc="Order of the stored levels where it differs from the loops' (coordinates are then searched for)",
            narrow=_levels_domain,
        ),
        *(
            Choice(
                f"kind_{loop}", proposed_levels(), binds="pack",
                doc=f"How level {loop} is kept: U every coordinate, C those that occur (Table 4.1), C16 with short "
                "coordinates, B as bits",
                narrow=_kind_domain(loop), prefer=_default_kind(loop, stored),
            )
            for loop in own
        ),
        Flag(
            "short", binds="pack", prefer=True,
            doc="Keep the coordinates of slots and lists in 16 bits",
            narrow=_short_domain,
        ),
    ]  # fmt: skip


# -- what stands inside what ---------------------------------------------------------------------------


def _inside(indices: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Pairs (outer part, inner part) of each index."""
    return tuple((f"{index}1", f"{index}0") for index in indices)


def _map_inner_to_outer(indices: tuple[str, ...]) -> dict[str, str]:
    """Inner part -> outer part: where an inner part that was absent is put."""
    return {inner: outer for outer, inner in _inside(indices)}


def _reductions_inside(assignment: Assignment) -> tuple[tuple[str, str], ...]:
    """Pairs (loop of the output, reduced loop) where partial results cannot wait in memory."""
    if assignment.monoid.single:
        return ()
    kept, reduced = loops_of(assignment.free_indices), loops_of(assignment.reduced)
    return tuple((outer, inner) for outer in kept for inner in reduced)


# -- domains and defaults ------------------------------------------------------------------------------


def _split_domain(index: str, stored: tuple[str, ...]) -> Narrow:
    """Slots and diagonals stand for an index that is not split, lists and numbers for all."""
    whole = {
        "coordinates": (), "slots": stored[-1:], "diagonals": stored[-1:], "list": stored, "numbers": stored,
    }  # fmt: skip

    def narrow(earlier: Earlier, w: Workload) -> tuple[Value, ...]:
        most = 1 if index in whole[str(earlier["layout"])] else min(LARGEST_SPLIT, w.sizes[index] // 2)
        return powers(1, max(1, most))

    return narrow


def _default_split(index: str) -> Prefer:
    """None, but where entries are found by number and scattered: then threads share a dense index of the output."""

    def prefer(earlier: Earlier, w: Workload) -> Value:
        stored, output = operand(w).indices, w.assignment.free_indices
        scattered = earlier["layout"] == "numbers" and stored[0] not in output
        if not scattered or index in stored or index not in output or not worth_sharing(w):
            return 1
        before = [name for name in earlier if name.startswith("split_") and earlier[name] != 1]
        share = w.sizes[index] // available_threads()
        return 1 if before or share * w.dtype.itemsize < LEAST_SHARE_BYTES else 1 << (share.bit_length() - 1)

    return prefer


def _default_order(earlier: Earlier, w: Workload) -> Value:
    """Stored loops as they are stored; dense output loops just outside the reduced ones, reduced dense ones last.

    Where entries are found by number, rows outside all else but what threads share.
    """
    stored, output = operand(w).indices, w.assignment.free_indices
    free = [index for index in w.assignment.indices if index not in stored]
    if earlier["layout"] == "numbers":
        shared = [f"{index}1" for index in free if split(earlier, index) > 1]
        rest = [f"{index}{part}" for index in free for part in "10"]
        return present(tuple(dict.fromkeys([*shared, *(f"{index}1" for index in stored), *rest])), earlier)
    order = (
        *(index for index in stored if index in output),
        *(index for index in free if index in output),
        *(index for index in stored if index not in output),
        *(index for index in free if index not in output),
    )
    outer = tuple(f"{index}1" for index in order)
    inner = tuple(f"{index}0" for index in (*stored, *free))
    return present((*outer, *inner), earlier)


def _levels_domain(earlier: Earlier, w: Workload) -> Orders | None:
    """Slots cannot be searched: what is stored above them has its loop outside theirs."""
    if earlier["levels_follow_loops"]:
        return None
    stored = operand(w).indices
    own = present(loops_of(stored), earlier)
    if earlier["layout"] != "slots":
        return orders(own, _inside(stored))
    slots = f"{stored[-1]}1"
    order = [loop for loop in strings(earlier["order"]) if loop in own]
    below = [(slots, loop) for loop in order[order.index(slots) + 1 :]]
    return orders(own, (*_inside(stored), *below))


def _kind_domain(loop: str) -> Narrow:
    """Kinds that can hold all coordinates of the level; what lists and slots keep has no such kind."""
    index = loop[:-1]

    def narrow(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
        stored, layout = operand(w).indices, earlier["layout"]
        last = loop == f"{stored[-1]}1"
        listed = layout in ("list", "numbers") or (layout == "slots" and last)
        if not present((loop,), earlier) or listed:
            return None
        size, inner = w.sizes[index], split(earlier, index)
        extent = inner if loop[-1] == "0" else -(-size // inner)
        if layout == "diagonals" and last:
            extent = size + w.sizes[stored[0]] - 1
        # Bits hold the insides of blocks.
        kinds = {kind: LEVELS[kind] for kind in proposed_levels()}
        return tuple(
            kind
            for kind, level in kinds.items()
            if extent <= (level.largest_extent or extent) and (loop[-1] == "0" or level.bit_array is None)
        )

    return narrow


def _default_kind(loop: str, stored: tuple[str, ...]) -> Prefer:
    """Outermost level and blocks uncompressed, the others compressed: CSR, BCSR, CSF below a dense root."""

    def prefer(earlier: Earlier, w: Workload) -> Value:
        outermost = next(one for one in levels(earlier) if one[:-1] in stored)
        small = loop[-1] == "0" and split(earlier, loop[:-1]) <= CONSTANT_SPLIT
        return "U" if loop == outermost or small else "C"

    return prefer


def _short_domain(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
    """Only what stands below a list's or the slots' first level is kept on its own."""
    if earlier["layout"] not in ("slots", "list"):
        return None
    stored = operand(w).indices
    follow = stored[-1:] if earlier["layout"] == "slots" else stored
    return (True, False) if all(w.sizes[index] <= 2**16 for index in follow) else (False,)
