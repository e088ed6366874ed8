"""COGNATE's configuration mapper: what configs of different spaces have in common, read as strip-mined loops (section 3.2).

A matrix product D[i,k] = A[i,j] B[j,k], or a sampled one, is seven loops: i, j and k in an outer part (``i2``) and an inner
one (``i1``), k in a third one (``k3``), which some devices have. Where a space chooses tiles, panels and barriers instead
of loops, a table says which loops they come to (phi); a loop that a space lacks has one iteration and stands behind the
outer part (pi).
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from tensorwise.errors import FormatError, InputError
from tensorwise.program.workload import Workload
from tensorwise.space.config import Value
from tensorwise.space.readings import operand
from tensorwise.tensor.orders import split_name

LOOPS: Final = ("i1", "i2", "j1", "j2", "k1", "k2", "k3")
"""The loops, numbered from 1 in COGNATE's data."""
OWN: Final = "own"
"""Rows, or columns, lie in their own order."""
LEVELS: Final = 3
"""Of caches."""
_BEHIND: Final = {"i1": "i2", "j1": "j2", "k1": "k2", "k3": "k2"}
"""Loop -> the one that it stands behind where a space does not have it."""


@final
@dataclass(frozen=True)
class Strips:
    """A config as loops.

    Attributes:
        splits: extents of the inner parts of i, j and k.
        order: LOOPS, the outermost first.
        moved: orders in which rows and columns lie (``tensor/orders.py``); OWN: as they are.
    """

    splits: tuple[int, int, int]
    order: tuple[str, ...]
    moved: tuple[str, str] = (OWN, OWN)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The ten numbers of a row of COGNATE's data: splits, then which loop stands where, from 1."""
        return (*self.splits, *(LOOPS.index(loop) + 1 for loop in self.order))


@final
@dataclass(frozen=True)
class Processors:
    """The processors of a device, as far as counting their work and memory traffic needs.

    Attributes:
        lanes: processors that take panels of rows in turn.
        caches: LEVELS of them, the nearest first: bytes, and how many processors share it. A device with fewer levels
            repeats its last one.

    Raises:
        InputError: another number of levels, or something that is not positive.
    """

    lanes: int
    caches: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if len(self.caches) != LEVELS or min(self.lanes, *(min(cache) for cache in self.caches)) < 1:
            raise InputError(
                f"expected some lanes and {LEVELS} levels of caches with bytes and sharers, got {self}"
            )


USUAL: Final = Processors(2, ((2**15, 1), (2**19, 1), (2**24, 2)))
"""Two cores of a CPU. Not this machine's: records of several machines are read alike."""


@final
@dataclass(frozen=True)
class Mapper:
    """How a space's choices are read as strips.

    Attributes:
        splits: names of the Params that give the inner extents of i, j and k. ``a*b`` is the product of two Params, of which
            one that does not apply is left out. A value that is no number means the whole extent; an empty name means
            that no Param splits the index.
        order: the Param on which the order of loops depends.
        orders: its values -> the loops. Empty where the Param's value is itself an order of the space's own loops,
        loops: which this maps to ours.
        move: the Param on which the order of rows and columns depends.
        moves: its values -> orders of rows and of columns. A text that is not listed is taken as the order of rows.
        processors: of the device.
    """

    splits: tuple[str, str, str]
    order: str
    orders: Mapping[Value, tuple[str, ...]]
    loops: Mapping[str, str]
    move: str = ""
    moves: Mapping[Value, tuple[str, str]] = field(default_factory=dict)
    processors: Processors = USUAL

    def strips(self, workload: Workload, config: Mapping[str, Value]) -> Strips:
        """Return ``config`` as loops over ``workload``.

        If ``config`` lacks a Param of the mapper, nothing is split or moved by it, and loops are in the order of its first
        known value. Unknown loops and unknown orders of rows are left out.
        """
        extents = [workload.sizes[index] for index in modes(workload)]
        i, j, k = (
            min(_product([config.get(name) for name in names.split("*") if name], extent), extent)
            for names, extent in zip(self.splits, extents, strict=True)
        )
        order = self._loops_of(config.get(self.order))
        order += [loop for loop in LOOPS if loop not in order and loop not in _BEHIND]
        for loop in (loop for loop in LOOPS if loop not in order):
            order.insert(order.index(_BEHIND[loop]) + 1, loop)
        way = config.get(self.move, OWN) if self.move else OWN
        moved = self.moves.get(way) or (_rows_order(way), OWN)
        return Strips((i, j, k), tuple(order), moved)

    def _loops_of(self, value: Value) -> list[str]:
        """Return the loops that a value of ``order`` names, the outer ones first."""
        if value in self.orders:
            return list(self.orders[value])
        named = [self.loops[loop] for loop in value if loop in self.loops] if isinstance(value, tuple) else []
        return named or list(next(iter(self.orders.values()), ()))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able object, so that a model needs no space to read configs."""
        orders, moves = ([[value, list(to)] for value, to in of.items()] for of in (self.orders, self.moves))
        return {
            "splits": list(self.splits), "order": self.order, "orders": orders, "loops": dict(self.loops),
            "move": self.move, "moves": moves, "processors": dataclasses.asdict(self.processors),
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Mapper":
        """Read back what ``to_json`` returned; KeyError, TypeError and ValueError if it is malformed."""
        i, j, k = data["splits"]
        orders = {value: tuple(to) for value, to in data["orders"]}
        moves = {value: (str(rows), str(columns)) for value, (rows, columns) in data["moves"]}
        lanes, caches = (data["processors"][name] for name in ("lanes", "caches"))
        processors = Processors(int(lanes), tuple((int(size), int(sharers)) for size, sharers in caches))
        return cls(
            (i, j, k), str(data["order"]), orders, dict(data["loops"]), str(data["move"]), moves, processors
        )


def _product(values: list[Value], extent: int) -> int:
    """The product of what applies; ``extent`` where nothing does, or something is no number."""
    known = [value for value in values if value is not None]
    numbers = [value for value in known if isinstance(value, int)]
    return math.prod(numbers) if numbers and len(numbers) == len(known) else extent


def _rows_order(way: Value) -> str:
    """Return the order of rows that a value names, OWN where it names none that is known."""
    if not isinstance(way, str) or way == OWN:
        return OWN
    try:
        split_name(way)
    except FormatError:
        return OWN
    return way


SPADE: Final = Mapper(
    splits=(
        "row_panel",
        "column_panel",
        "split",
    ),  # as in COGNATE's example; its formula exchanges rows and columns
    order="barrier",
    orders={
        True: ("k2", "j2", "i2", "i1", "j1", "k1"),  # column panels are outside: all wait behind each
        False: ("k2", "i2", "j2", "i1", "j1", "k1"),
    },
    loops={},
    move="reorder",
    moves={True: ("rcm", "rcm")},
)
"""phi: tiles and barriers as strip-mined loops."""


def modes(workload: Workload) -> tuple[str, str, str]:
    """Return the workload's names of COGNATE's i (rows), j (columns) and k (dense columns)."""
    rows, columns = operand(workload).indices
    (dense,) = (index for index in workload.assignment.indices if index not in (rows, columns))
    return rows, columns, dense


def cpu(workload: Workload) -> Mapper:
    """pi: the loops of the CPU's space, whose outer parts end in 1 and inner ones in 0."""
    own = dict(zip(modes(workload), "ijk", strict=True))
    i, j, k = (f"split_{index}" for index in own)
    loops = {f"{index}{part}": f"{ours}{2 if part else 1}" for index, ours in own.items() for part in (0, 1)}
    return Mapper((i, j, k), "order", {}, loops, "rows")


_STRIP_BY_STRIP: Final = ("i2", "i1", "k2", "j2", "j1", "k1")
"""A team takes the strips of its row one after the other."""
CUDA: Final = Mapper(
    # rows of a block; what a team holds of a row of the output
    splits=("teams", "", "registers*vector*threads"),
    order="strips",
    orders={
        True: ("k2", "i2", "i1", "j2", "j1", "k1"),  # strips of rows are dealt to blocks
        False: _STRIP_BY_STRIP,
        None: _STRIP_BY_STRIP,
    },
    loops={},
)
"""pi: the loops of G-Sparse's programs. Where a team has an entry, not a row, blocks have fewer rows than this says."""
