"""Functions that read a config of the CPU's space: splits, loops, formats. Most accept a config that is not complete yet.

Loops are named i1 and i0 throughout: i0 runs inside the parts of index i, i1 over them. An index split by 1 has
the loop i1 only.
"""

import math
from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from tensorwise.lower.strips import MAX_STRIPS
from tensorwise.program.einsum import Access
from tensorwise.program.schedule import CONSTANT_SPLIT
from tensorwise.program.workload import Workload
from tensorwise.space.config import Value
from tensorwise.space.param import Earlier
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.format import Format
from tensorwise.tensor.levels import LEVELS, Compressed, Dense, Level, Repeated, ShortSingle, Single, Slots
from tensorwise.tensor.remap import Axis

_LONGEST: Final[WeakKeyDictionary[Entries, dict[str, int]]] = WeakKeyDictionary()


def strings(value: Value) -> tuple[str, ...]:
    """Return a value that is known to be an order."""
    assert isinstance(value, tuple)
    return value


def number(value: Value) -> int:
    """Return a value that is known to be a number."""
    assert isinstance(value, int)
    return value


# -- the operand and its loops -------------------------------------------------------------------------


def operand(workload: Workload) -> Access:
    """Return the access of the sparse operand."""
    (name,) = workload.sparse
    return workload.assignment.access(name)


def longest(workload: Workload, index: str) -> int:
    """Return how many entries the fullest coordinate of one of the operand's indices has."""
    entries = workload.entries
    known = _LONGEST.setdefault(entries, {})  # asked for every config, counted once
    if index not in known:
        mode = operand(workload).indices.index(index)
        coordinates = entries.coordinates[mode]
        if mode == 0 and entries.pointers is not None:
            counts = np.diff(entries.pointers)
        elif workload.sizes[index] > 8 * entries.nnz:  # hyper-sparse
            counts = np.unique(coordinates, return_counts=True)[1]
        else:
            counts = np.bincount(coordinates)
        known[index] = int(counts.max(initial=0))
    return known[index]


def made_choices(config: Earlier, names: Iterable[str]) -> dict[str, Value]:
    """Return the choices of these names that apply, but those to leave something out."""
    return {name: value for name in names if (value := config[name]) not in (None, "none", False)}


def loops_of(indices: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of all loops over ``indices``.

    >>> loops_of(("i", "k"))
    ('i1', 'i0', 'k1', 'k0')
    """
    return tuple(f"{index}{part}" for index in indices for part in "10")


def split(config: Earlier, index: str) -> int:
    """Return the extent of the inner part of ``index``."""
    return number(config[f"split_{index}"])


def splits(config: Earlier) -> dict[str, int]:
    """Return the extent of the inner part of each index that is split.

    >>> splits({"split_i": 4, "split_k": 1, "chunk": 32})
    {'i': 4}
    """
    sizes = {name.removeprefix("split_"): size for name, size in config.items() if name.startswith("split_")}
    return {index: number(size) for index, size in sizes.items() if number(size) > 1}


def present(loops: tuple[str, ...], config: Earlier) -> tuple[str, ...]:
    """Return those of ``loops`` that the splits leave."""
    return tuple(loop for loop in loops if loop[-1] == "1" or split(config, loop[:-1]) > 1)


def nest(config: Earlier) -> tuple[str, ...]:
    """Return the loops of the nest in their order.

    A coordinate list, or entries found by number, have one loop, named after the outermost index; other indices have none.
    """
    order = strings(config["order"])
    if config["layout"] not in ("list", "numbers"):
        return order
    stored = [loop for loop in order if f"kind_{loop}" in config]
    return tuple(loop for loop in order if loop not in stored[1:])


def constant(config: Earlier, loop: str) -> bool:
    """Whether a loop is the inner part of a split so small that it is compiled in."""
    return loop[-1] == "0" and 1 < split(config, loop[:-1]) <= CONSTANT_SPLIT


def block_loops(config: Earlier) -> list[str]:
    """Return the loops over dense blocks, which can be unrolled: neither shared by threads nor run in lanes."""
    taken = (config["tile"], config["parallel"])
    return [
        loop
        for loop in strings(config["order"])
        if loop not in taken and constant(config, loop) and dense(config, loop)
    ]


# -- levels --------------------------------------------------------------------------------------------


def levels(config: Earlier) -> tuple[str, ...]:
    """Return the operand's loops in the order of its levels, perhaps with dense loops between them."""
    return strings(config["order"] if config["levels_follow_loops"] else config["levels"])


def stored_loops(config: Earlier) -> list[str]:
    """Return the operand's loops in the order of its levels; all kinds of levels must be chosen."""
    return [loop for loop in levels(config) if f"kind_{loop}" in config]


def innermost_stored(config: Earlier) -> str:
    """Return the innermost loop of the nest that runs over a level of the operand."""
    return [loop for loop in nest(config) if f"kind_{loop}" in config][-1]


def compressed(config: Earlier, loop: str) -> bool:
    """Whether a loop runs over the coordinates that occur."""
    kind = config.get(f"kind_{loop}")
    return kind is not None and LEVELS[str(kind)].listed


def dense(config: Earlier, loop: str) -> bool:
    """Whether a loop runs over all coordinates: it has no level of the operand, or one that is full."""
    kind = config.get(f"kind_{loop}", "U")
    return kind is not None and LEVELS[str(kind)].full


def loop_axes(config: Earlier, modes: tuple[str, ...]) -> dict[str, Axis]:
    """Return the axis that each loop runs over: where rows have slots or diagonals, the last index stands for them."""
    axes = {loop: _axis(loop, config) for loop in strings(config["order"])}
    last = f"{modes[-1]}1"
    if config["layout"] == "slots":
        axes[last] = Axis(modes[-1], "slot")
    if config["layout"] == "diagonals":
        axes[last] = Axis(modes[-1], "diagonal", modes[0])
    return axes


def _axis(loop: str, config: Earlier) -> Axis:
    mode = loop[:-1]
    if split(config, mode) == 1:
        return Axis(mode)
    return Axis(mode, "outer" if loop[-1] == "1" else "inner")


def stored_format(config: Earlier, modes: tuple[str, ...]) -> Format:
    """Return the format of the operand, whose indices are ``modes``."""
    sizes = {mode: size for mode in modes if (size := split(config, mode)) > 1}
    row_order = {} if config["rows"] == "own" else {modes[0]: str(config["rows"])}
    return Format(modes, _stored_levels(config, modes), sizes, row_order)


def _stored_levels(config: Earlier, modes: tuple[str, ...]) -> tuple[Level, ...]:
    """Return the levels of the operand, from the root down."""
    axes, stored = loop_axes(config, modes), stored_loops(config)
    single = ShortSingle if config["short"] else Single
    if config["layout"] == "list":
        first, *others = stored
        return (Repeated(axes[first]), *(single(axes[loop]) for loop in others))
    if config["layout"] == "numbers":
        return (Dense(axes[stored[0]]), Compressed(axes[stored[1]]))
    found: list[Level] = [
        Slots(axes[loop]) if axes[loop].part == "slot" else LEVELS[str(config[f"kind_{loop}"])](axes[loop])
        for loop in stored
    ]
    if config["layout"] == "slots":
        found.append(single(Axis(modes[-1])))
    return tuple(found)


def separate_sum(config: Earlier, workload: Workload) -> str | None:
    """Return the loop from which on only the last reduced index of the nest has loops; None where nothing is summed.

    What else the term holds may not change from there on.
    """
    order, reduced = nest(config), workload.assignment.reduced
    summed = [place for place, loop in enumerate(order) if loop[:-1] in reduced]
    if not summed:
        return None
    index, first = order[summed[-1]][:-1], summed[-1]
    for place in reversed(summed):
        if order[place][:-1] != index:
            break
        first = place
    return order[first]


# -- the tile and the size of the code -----------------------------------------------------------------


def gathers(config: Earlier) -> bool:
    """Whether the tile runs along a compressed level."""
    return compressed(config, str(config["tile"]))


def tile_extent(config: Earlier, workload: Workload) -> int:
    """Return the number of iterations of the tiled loop."""
    index = str(config["tile"])[:-1]
    size, inner = workload.sizes[index], split(config, index)
    return size if inner == 1 else min(inner, size)


def block_copies(config: Earlier) -> int:
    """Return how many copies of the innermost body unrolled blocks make."""
    return math.prod(split(config, loop[:-1]) for loop in block_loops(config))


def strips(config: Earlier) -> int:
    """Return how many copies a tile makes: full strips, their halves, an overlapping one, narrower ones."""
    if config["tile"] == "none":
        return 1
    vectors = number(config["vectors"])
    if config["bound"]:
        return MAX_STRIPS * vectors + 4
    copies = 0
    while vectors:
        vectors, copies = vectors // 2, copies + vectors
    return copies + 4


def prefetched(config: Earlier, workload: Workload) -> str | None:
    """Return the dense operand whose rows the innermost stored loop reaches out of order, None where there is none.

    Rows for each entry, as of E[A,h], come in order.
    """
    index, sparse = innermost_stored(config)[:-1], operand(workload).tensor
    return next(
        (
            access.tensor
            for access in workload.assignment.accesses
            if sparse not in (access.tensor, access.indices[0]) and index in access.indices
        ),
        None,
    )
