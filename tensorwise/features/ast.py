"""Compact ASTs (CDMPP, section 4): the leaves of a loop tree as rows of numbers, and where in the tree they are.

A row says what its leaf computes, which loops are around it and how it goes through memory. That is what Ansor asks of a
program (Zheng et al., Ansor, OSDI 2020, appendix B), with two additions that a CPU's times depend on: the extents of the
innermost loops one by one, and the bytes that come into caches of several sizes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, final

import numpy as np

from tensorwise.codegen.loop_tree import LINE_BYTES, OPERATIONS, Access, Leaf, Loop, LoopTree
from tensorwise.features.featurizer import Featurizer, Field

INNER: Final = 6
"""Innermost loops that have fields of their own: a register tile and what feeds it."""
BUFFERS: Final = 5
"""Buffers of a leaf with fields of their own, those with most lines first; a convolution with bias and ReLU reads four."""
CURVE: Final = 10
"""Samples of the curve of operations a byte."""
CACHES: Final = {"32k": 2**15, "256k": 2**18, "1m": 2**20, "4m": 2**22, "32m": 2**25}
"""Bytes of caches for which traffic is estimated; no device need have one of just that size."""
NOTHING: Final = np.zeros(0, np.float32)
"""Operands of which nothing else is known."""
END: Final = -1
"""Ends the subtree of a node in the serialised tree."""

_DEALT: Final = ("vectorized", "unrolled", "parallel")
_GPU: Final = ("block", "thread", "virtual")


@final
@dataclass(frozen=True)
class Place:
    """A leaf and the loops around it, outermost first."""

    loops: tuple[Loop, ...]
    leaf: Leaf


@final
class LeafFeatures(Featurizer[Place]):
    """What a leaf of a program computes, in which loops, and how it goes through memory: a row of a compact AST.

    Counts are of the whole run of the program, of the leaf's executions alone.
    """

    name: ClassVar[str] = "leaf"
    version: ClassVar[int] = 1

    @property
    def fields(self) -> tuple[Field, ...]:
        return _FIELDS

    def features(self, described: Place) -> np.ndarray:
        """Return the numbers of a leaf: float32, shape (len(fields),), all finite."""
        numbers = [number for group in (_work, _loops, _inner, _memory) for number in group(described)]
        return np.array(numbers, np.float32)


@final
@dataclass(frozen=True, eq=False)
class CompactAst:
    """A program as its leaves.

    Attributes:
        leaves: (leaves, fields) float32, see `LeafFeatures`.
        order: (leaves,) int32: the place of each leaf in the serialised tree, end markers counted.
        operands: (numbers,) float32: what else is known of what the program is applied to, such as statistics of a sparsity
            pattern; dense programs have none.
    """

    leaves: np.ndarray
    order: np.ndarray
    operands: np.ndarray = field(default_factory=lambda: NOTHING)

    @classmethod
    def of(cls, tree: LoopTree, operands: np.ndarray = NOTHING) -> "CompactAst":
        """Return the compact AST of a program; one without a leaf has a single row of zeros."""
        rows = [LEAVES.features(Place(loops, leaf)) for loops, leaf in tree.leaves()]
        if not rows:
            return cls(np.zeros((1, len(LEAVES.fields)), np.float32), np.zeros(1, np.int32), operands)
        _, order = serialised(tree)
        return cls(np.array(rows), np.array(order, np.int32), operands)


def serialised(tree: LoopTree) -> tuple[list[int], list[int]]:
    """Return the tree in pre-order, and where in it its leaves are.

    Nodes are numbered as they are met, the root, which is no loop, being 0; ``END`` follows the last node below each, so
    that no two trees of different shape are the same list.

    >>> leaf = Leaf({}, ())
    >>> serialised(LoopTree((Loop("serial", 4, (leaf, Loop("serial", 2, (leaf,)))),)))
    ([0, 1, 2, -1, 3, 4, -1, -1, -1, -1], [2, 5])
    """
    numbers: list[int] = [0]
    leaves: list[int] = []
    count = 0

    def visit(nodes: Sequence[Loop | Leaf]) -> None:
        nonlocal count
        for node in nodes:
            count += 1
            if isinstance(node, Leaf):
                leaves.append(len(numbers))
            numbers.append(count)
            if isinstance(node, Loop):
                visit(node.body)
            numbers.append(END)

    visit(tree.nodes)
    return [*numbers, END], leaves


def positional_encoding(order: np.ndarray, width: int, theta: float = 10_000.0) -> np.ndarray:
    """Return sines and cosines of where leaves are: (..., width) float32 (CDMPP, section 4.2).

    Args:
        order: (...) places, as in `CompactAst`.
        width: numbers a leaf.
        theta: the slowest wave is about so many times longer than the fastest.
    """
    waves = np.arange(0, width, 2)
    angles = np.asarray(order, np.float64)[..., None] / theta ** (waves / width)
    found = np.empty((*np.shape(order), width), np.float32)
    found[..., 0::2] = np.sin(angles)
    found[..., 1::2] = np.cos(angles)[..., : width // 2]
    return found


def _log(value: float) -> float:
    return math.log2(1.0 + value)


def _work(place: Place) -> Iterator[float]:
    times = math.prod(loop.extent for loop in place.loops)
    for name in OPERATIONS:
        yield _log(times * place.leaf.operations.get(name, 0.0))


def _loops(place: Place) -> Iterator[float]:
    loops = [loop for loop in place.loops if loop.kind != "condition"]
    yield _log(len(loops))
    yield _log(math.prod(loop.extent for loop in place.loops))
    still = _still(place)
    yield _log(math.prod(loop.extent for loop, stays in zip(place.loops, still) if stays))
    yield math.prod(loop.extent for loop in place.loops if loop.kind == "condition")
    for kind in _DEALT:
        where = [k for k, loop in enumerate(loops) if loop.kind == kind]
        yield _log(len(where))
        yield _log(math.prod(loops[k].extent for k in where)) if where else 0.0
        yield _log(loops[where[-1]].extent) if where else 0.0
        yield _log(math.prod(loop.extent for loop in loops[where[-1] + 1 :])) if where else 0.0
    for kind in _GPU:
        extents = [loop.extent for loop in loops if loop.kind == kind]
        yield _log(math.prod(extents)) if extents else 0.0


def _inner(place: Place) -> Iterator[float]:
    rows = [
        (_log(loop.extent), float(stays), float(loop.kind == "vectorized"))
        for loop, stays in zip(place.loops, _still(place))
        if loop.kind != "condition"
    ]
    for distance in range(1, INNER + 1):
        yield from rows[-distance] if distance <= len(rows) else (0.0, 0.0, 0.0)


def _still(place: Place) -> list[bool]:
    """For each loop whether nothing that is written moves with it: it is a reduction."""
    written = [access for access in place.leaf.accesses if access.mode != "read"]
    loops = range(len(place.loops))
    return [bool(written) and not any(access.moves[k] > 0 for access in written) for k in loops]


def _memory(place: Place) -> Iterator[float]:
    extents = [loop.extent for loop in place.loops]
    times, depths = math.prod(extents), range(len(extents) + 1)
    accesses = place.leaf.accesses
    held = [
        [access.touched(extents, depth)[0] * access.item_bytes for depth in depths] for access in accesses
    ]
    lines = [[access.lines(extents, depth) for depth in depths] for access in accesses]
    working = [sum(row[depth] for row in held) for depth in depths]
    inside = [math.prod(extents[depth:]) for depth in depths]
    ranked = sorted(range(len(accesses)), key=lambda k: (-lines[k][0], -held[k][0], accesses[k].buffer))
    for rank in range(BUFFERS):
        if rank < len(ranked):
            k = ranked[rank]
            yield from _buffer(place, accesses[k], held[k], lines[k], working, inside)
        else:
            yield from (0.0 for _ in _BUFFER)
    yield from _curve(place.leaf, working, inside)
    for size in CACHES.values():
        depth = next((depth for depth, touched in enumerate(working) if touched <= size), depths[-1])
        runs = times / inside[depth] if inside[depth] else 0.0
        yield _log(LINE_BYTES * runs * sum(row[depth] for row in lines))
    yield _log(sum(access.size * access.item_bytes for access in accesses if access.mode != "read"))
    yield _log(working[0])


def _buffer(
    place: Place,
    access: Access,
    held: Sequence[float],
    lines: Sequence[float],
    working: Sequence[float],
    inside: Sequence[float],
) -> Iterator[float]:
    yield float(access.mode != "write")
    yield float(access.mode != "read")
    moved = access.count * access.item_bytes * inside[0]
    yield _log(moved)
    yield _log(held[0])
    yield _log(lines[-1] * inside[0])
    yield _log(lines[0])
    # The innermost loop that comes back to the same elements, and what is touched in between.
    back = [k for k, moves in enumerate(access.moves) if moves < 1 and place.loops[k].extent > 1]
    inner = back[-1] if back else None
    yield float(inner is not None)
    yield _log(inside[inner + 1]) if inner is not None else 0.0
    yield _log(working[inner + 1]) if inner is not None else 0.0
    yield _log(moved / held[0]) if held[0] else 0.0
    stepping = [k for k, moves in enumerate(access.moves) if moves > 0 and place.loops[k].extent > 1]
    yield _log(access.strides[stepping[-1]]) if stepping else 0.0
    vector = [k for k, loop in enumerate(place.loops) if loop.kind == "vectorized"]
    yield _log(access.strides[vector[-1]]) if vector else 0.0
    yield access.moves[-1] if access.moves else 0.0


def _curve(leaf: Leaf, working: Sequence[float], inside: Sequence[float]) -> Iterator[float]:
    """Operations a byte, of ever more loops from the innermost to all: interpolated over the logarithm of iterations."""
    operations = sum(count for name, count in leaf.operations.items() if name.startswith("float"))
    if not operations or not working[-1]:
        yield from (0.0 for _ in range(CURVE))
        return
    reached = [_log(runs) for runs in reversed(inside)]
    ratios = [_log(operations * runs / held) for runs, held in zip(reversed(inside), reversed(working))]
    yield from np.interp(np.linspace(0.0, reached[-1], CURVE), reached, ratios).tolist()


_BUFFER: Final = (
    Field("reads", "0 or 1", "whether it is read"),
    Field("writes", "0 or 1", "whether it is written"),
    Field("bytes", "log2(1 + bytes)", "what all executions move"),
    Field("unique_bytes", "log2(1 + bytes)", "what they touch, each element once"),
    Field("lines", f"log2(1 + lines of {LINE_BYTES} bytes)", "the lines that all executions touch"),
    Field("unique_lines", f"log2(1 + lines of {LINE_BYTES} bytes)", "the lines that they touch, each once"),
    Field("reused", "0 or 1", "whether some loop comes back to the same elements"),
    Field("reuse_iterations", "log2(1 + executions)", "executions until the innermost such loop is back"),
    Field("reuse_bytes", "log2(1 + bytes)", "what the leaf touches meanwhile, in all buffers"),
    Field("reuse_count", "log2(1 + times)", "how often an element is touched on average"),
    Field("stride", "log2(1 + elements)", "the step of the innermost loop that moves it"),
    Field(
        "vector_stride", "log2(1 + elements)", "the step from lane to lane of the innermost vectorized loop"
    ),
    Field("inner_moves", "share of steps", "how often the innermost loop moves it"),
)


def _fields() -> Iterator[Field]:
    for name in OPERATIONS:
        yield Field(f"operations.{name}", "log2(1 + operations)", f"how many of {name} all executions take")
    yield Field("loops.count", "log2(1 + loops)", "the number of loops around the leaf")
    yield Field("loops.executions", "log2(1 + executions)", "how often the leaf runs")
    yield Field(
        "loops.reduction",
        "log2(1 + iterations)",
        "those of loops with which nothing written moves, multiplied",
    )
    yield Field("loops.condition", "share of iterations", "how often the conditions around the leaf hold")
    for kind in _DEALT:
        yield Field(f"{kind}.count", "log2(1 + loops)", f"the number of {kind} loops")
        yield Field(
            f"{kind}.product", "log2(1 + iterations)", f"those of {kind} loops, multiplied; 0: there are none"
        )
        yield Field(
            f"{kind}.extent", "log2(1 + iterations)", f"those of the innermost {kind} loop; 0: there is none"
        )
        yield Field(
            f"{kind}.inside", "log2(1 + executions)", f"those of one iteration of the innermost {kind} loop"
        )
    for kind in _GPU:
        what = {"block": "blocks of a GPU", "thread": "threads of a block", "virtual": "virtual threads"}[
            kind
        ]
        yield Field(f"gpu.{kind}", "log2(1 + number)", f"the number of {what}; 0 on CPUs")
    for distance in range(1, INNER + 1):
        what = f"the loop that is number {distance} from the inside"
        yield Field(f"inner{distance}.extent", "log2(1 + iterations)", f"those of {what}; 0: there is none")
        yield Field(f"inner{distance}.reduction", "0 or 1", f"whether {what} moves nothing that is written")
        yield Field(f"inner{distance}.vectorized", "0 or 1", f"whether {what} is vectorized")
    for rank in range(1, BUFFERS + 1):
        which = f"of the buffer that is number {rank} by lines"
        for one in _BUFFER:
            yield Field(f"buffer{rank}.{one.name}", one.unit, f"{one.doc}, {which}")
    for sample in range(CURVE):
        yield Field(
            f"intensity.{sample}", "log2(1 + operations a byte)",
            f"float operations by bytes touched, {sample} of {CURVE - 1} of the way from the innermost loop to all",
        )  # fmt: skip
    for name, size in CACHES.items():
        yield Field(
            f"traffic.{name}", "log2(1 + bytes)",
            f"what comes into a cache of {size} bytes if it keeps what the outermost loops that fit it touch",
        )  # fmt: skip
    yield Field("memory.written", "log2(1 + bytes)", "the size of the buffers that are written")
    yield Field("memory.touched", "log2(1 + bytes)", "what all executions touch, each element once")


_FIELDS: Final = tuple(_fields())
LEAVES: Final = LeafFeatures()
