"""LoopTree: the loops of a program with their operations and memory accesses, the common input of the cost models.

::

    tree  = node*
    node  = Loop(kind, extent, node*) | Leaf(operations, access*)
    kind  = serial | parallel | vectorized | unrolled | block | thread | virtual | condition

A leaf is a run of statements without loops between them. Numbers that depend on data (the length of a row, where a gather
goes) are means, so that nothing of a tree is symbolic. A condition is a loop that runs ``extent`` times on average, at most
once.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, Final, Literal, TypeAlias, final, get_args

from tensorwise.errors import InputError
from tensorwise.reading import parse_json, reading, shown

Kind = Literal["serial", "parallel", "vectorized", "unrolled", "block", "thread", "virtual", "condition"]
Mode = Literal["read", "write", "update"]
LOOP_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
OPERATIONS: Final = (
    "float_add", "float_mul", "float_div", "float_compare", "float_math",
    "int_add", "int_mul", "int_div", "int_compare", "logic", "select",
)  # fmt: skip
"""What leaves count: subtraction is addition, minimum is comparison, ``math`` is exp, sqrt and the like."""
LINE_BYTES: Final = 64
"""Bytes of a cache line."""
PAGE_BYTES: Final = 4096
"""Bytes of a page of memory."""
MAX_LOOP_DEPTH: Final = 200
"""Loops in loops that are read back from a text."""


@final
@dataclass(frozen=True)
class BufferAccess:
    """Elements of a buffer that a leaf reads or writes each time it runs.

    Attributes:
        buffer: name, the same for all accesses to the buffer.
        mode: read, write, or update, which is both.
        item_bytes: bytes of an element; size: elements of the buffer.
        strides: for each loop around the leaf, outermost first: by how many elements a step moves the access, on average
            over the steps that move it; 0 where none does.
        moves: share of the steps of each loop that move it.
        count: elements that one execution touches, neighbours of each other.
    """

    buffer: str
    mode: Mode
    item_bytes: int
    size: float
    strides: tuple[float, ...]
    moves: tuple[float, ...]
    count: float = 1.0

    def touched(self, extents: Sequence[float], depth: int = 0) -> tuple[float, float]:
        """Return how many different elements the loops from ``depth`` inwards touch, and in runs of how many neighbours.

        Loops are taken by their strides, least first. One that steps no further than what is touched already reaches
        makes that longer, in steps as wide as the last that did not; any other multiplies it. Exact for boxes of dense
        arrays, and for windows that slide over them.
        """
        unit, length, run, distinct = 1.0, self.count, 0.0, 1.0
        loops = zip(self.strides[depth:], self.moves[depth:], extents[depth:], strict=True)
        for stride, moves, extent in sorted(loops):
            steps = moves * (extent - 1)
            if stride <= 0 or steps <= 0:
                continue
            if stride <= unit * length:
                length += stride / unit * steps
            else:
                run, distinct = run or length, distinct * length
                unit, length = stride, 1 + steps
        most = max(min(distinct * length, self.size), 1.0)
        return most, max(min(run or length, most), 1.0)

    def lines(self, distinct: float, run: float, length: int = LINE_BYTES) -> float:
        """Return how many cache lines, or pages of ``length`` bytes, what ``touched`` returned is in."""
        return distinct / run * max(1.0, run * self.item_bytes / length)

    def sets(self, extents: Sequence[float], depth: int, count: int) -> int:
        """Return how many of the ``count`` sets of a cache the loops from ``depth`` inwards touch.

        Lines at a distance of ``count`` lines map to the same set. Strides of large powers of two map to few sets. Where
        a set gets more lines than the cache has ways, they evict each other (conflict misses), however small the total is.
        """
        each = max(LINE_BYTES // max(self.item_bytes, 1), 1)  # elements of a line
        places = count * each
        everywhere = (1 << places) - 1
        touched = (1 << int(min(max(self.count, 1.0), places))) - 1  # a bit for each element of all sets
        loops = zip(self.strides[depth:], self.moves[depth:], extents[depth:], strict=True)
        for stride, moves, extent in loops:
            step, steps, done = round(stride) % places, 1 + round(moves * (extent - 1)), 1
            while step and done < steps and touched != everywhere:
                more = min(done, steps - done)
                by = more * step % places
                touched |= (touched << by | touched >> places - by) & everywhere
                done += more
        for shift in range(
            each.bit_length() - 1
        ):  # the first bit of each line says whether any of it is touched
            touched |= touched >> (1 << shift)
        return max((touched & everywhere // ((1 << each) - 1)).bit_count(), 1)


@final
@dataclass(frozen=True)
class Leaf:
    """What is computed and touched by a run of statements.

    Attributes:
        operations: of ``OPERATIONS``, how many one execution takes.
        accesses: each with a stride for every loop around the leaf.
    """

    operations: Mapping[str, float]
    accesses: tuple[BufferAccess, ...]


@final
@dataclass(frozen=True)
class Loop:
    """Something that is repeated ``extent`` times, on average."""

    kind: Kind
    extent: float
    body: "tuple[Node, ...]"


Node: TypeAlias = Loop | Leaf


@final
@dataclass(frozen=True)
class LoopTree:
    """A program as loops and leaves, in the order in which they run.

    Raises:
        InputError: an access has more or fewer strides than its leaf has loops, or a number is negative or infinite.

    >>> total = BufferAccess("x", "read", 4, 1000, (1.0,), (1.0,))
    >>> tree = LoopTree((Loop("serial", 1000, (Leaf({"float_add": 1}, (total,)),)),))
    >>> LoopTree.from_text(tree.text) == tree
    True
    """

    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        for loops, leaf in self.leaves():
            numbers = [*leaf.operations.values(), *(loop.extent for loop in loops)]
            for access in leaf.accesses:
                if not len(access.strides) == len(access.moves) == len(loops):
                    raise InputError(
                        f"an access to {access.buffer!r} has {len(access.strides)} strides and {len(access.moves)} "
                        f"shares of moves, but {len(loops)} loops are around it"
                    )
                numbers += [access.item_bytes, access.size, access.count, *access.strides, *access.moves]
            if not all(0 <= number < math.inf for number in numbers):
                raise InputError(f"numbers of a loop tree must be finite and not negative, got {numbers}")
            if unknown := set(leaf.operations).difference(OPERATIONS):
                raise InputError(f"unknown operations {sorted(unknown)}; known: {', '.join(OPERATIONS)}")

    def leaves(self) -> Iterator[tuple[tuple[Loop, ...], Leaf]]:
        """Yield each leaf with the loops around it, outermost first."""

        def walk(nodes: Sequence[Node], around: tuple[Loop, ...]) -> Iterator[tuple[tuple[Loop, ...], Leaf]]:
            for node in nodes:
                if isinstance(node, Loop):
                    yield from walk(node.body, (*around, node))
                else:
                    yield around, node

        yield from walk(self.nodes, ())

    def repeating(self) -> "LoopTree":
        """Return the same program without the loops that run once, of which schedules of TVM leave many."""

        def walk(nodes: Sequence[Node], kept: tuple[bool, ...]) -> Iterator[Node]:
            for node in nodes:
                if isinstance(node, Leaf):
                    yield Leaf(
                        node.operations, tuple(_without_loops(access, kept) for access in node.accesses)
                    )
                elif node.extent == 1 and node.kind != "condition":
                    yield from walk(node.body, (*kept, False))
                else:
                    yield Loop(node.kind, node.extent, tuple(walk(node.body, (*kept, True))))

        return LoopTree(tuple(walk(self.nodes, ())))

    @property
    def text(self) -> str:
        """One line of JSON, numbers to four digits."""
        return json.dumps([_plain(node) for node in self.nodes], separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_text(cls, text: str) -> "LoopTree":
        """Read back what ``text`` returned.

        Raises:
            InputError: it is something else.
        """
        what = f"malformed loop tree {shown(text)}"
        with reading(what):
            nodes = parse_json(text, what)
            if not isinstance(nodes, list):
                raise TypeError("no list of nodes")
            return cls(tuple(_node(data, 0) for data in nodes))


def _without_loops(access: BufferAccess, kept: Sequence[bool]) -> BufferAccess:
    """An access without the strides of the loops that are not kept."""
    strides, moves = (tuple(compress(numbers, kept)) for numbers in (access.strides, access.moves))
    return replace(access, strides=strides, moves=moves)


def _number(value: float) -> float | int:
    short = float(f"{value:.4g}")
    return int(short) if short == int(short) else short


def _plain(node: Node) -> list[Any]:
    if isinstance(node, Loop):
        return [node.kind, _number(node.extent), [_plain(child) for child in node.body]]
    counts = {name: _number(count) for name, count in node.operations.items()}
    rows = [
        [
            a.buffer, a.mode, a.item_bytes, _number(a.size), _number(a.count),
            [_number(x) for x in a.strides], [_number(x) for x in a.moves],
        ]
        for a in node.accesses
    ]  # fmt: skip
    return ["leaf", counts, rows]


def _node(data: Any, depth: int) -> Node:
    kind, amount, below = data
    if depth > MAX_LOOP_DEPTH:
        raise ValueError(f"more than {MAX_LOOP_DEPTH} loops in each other")
    if kind == "leaf":
        counts = {str(name): float(count) for name, count in amount.items()}
        return Leaf(counts, tuple(_access(*row) for row in below))
    if kind not in LOOP_KINDS:
        raise ValueError(f"unknown kind {kind!r}; known: {', '.join(LOOP_KINDS)}")
    return Loop(kind, float(amount), tuple(_node(child, depth + 1) for child in below))


def _access(
    buffer: str, mode: Mode, item: int, size: float, count: float, strides: Any, moves: Any
) -> BufferAccess:
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    return BufferAccess(
        str(buffer), mode, int(item), float(size),
        tuple(map(float, strides)), tuple(map(float, moves)), float(count),
    )  # fmt: skip


def merged(accesses: Sequence[BufferAccess]) -> tuple[BufferAccess, ...]:
    """Return accesses that differ in nothing but where they are as one that touches as many elements as all of them."""
    counts: dict[BufferAccess, float] = {}
    for access in accesses:
        key = BufferAccess(
            access.buffer, access.mode, access.item_bytes, access.size, access.strides, access.moves
        )
        counts[key] = counts.get(key, 0.0) + access.count
    return tuple(
        BufferAccess(a.buffer, a.mode, a.item_bytes, a.size, a.strides, a.moves, count)
        for a, count in counts.items()
    )


def movement(before: Any, after: Any, weights: Any) -> tuple[float, float]:
    """Return stride and share of moves from where an access is before and after a step of a loop.

    Args:
        before, after: (samples,) integers; weights: (samples,) how much each sample counts.
    """
    distance = abs(after - before)
    moved = distance > 0
    total, weight = float(weights.sum()), float(weights[moved].sum())
    if weight <= 0 or total <= 0:
        return 0.0, 0.0
    return float((distance * weights)[moved].sum()) / weight, weight / total
