"""Compact ASTs (CDMPP, section 4): the leaves of a loop tree as rows of numbers, and where in the tree they are.

A row says what its leaf computes, which loops are around it and how it goes through memory. That is what Ansor asks of a
program (Zheng et al., Ansor, OSDI 2020, appendix B), with what a CPU's times depend on besides: the innermost loops one by
one, with the steps that they take through each buffer; what is loaded into register tiles and into caches of several sizes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, final

import numpy as np

from tensorwise.analysis.code import CODE, UNCOMPILED, Compiled
from tensorwise.analysis.featurizer import Featurizer, Field
from tensorwise.analysis.loop_tree import LINE_BYTES, OPERATIONS, PAGE_BYTES, Leaf, Loop, LoopTree
from tensorwise.analysis.machine_code import MachineCode
from tensorwise.analysis.place import VECTOR_LANES, Place

INNER: Final = 7
"""Innermost loops that have fields of their own: a register tile and what feeds it."""
BUFFERS: Final = 5
"""Buffers of a leaf with fields of their own; a convolution with bias and ReLU reads four."""
STEPPED: Final = 4
"""Buffers of a leaf for which the stride in each of the innermost loops is a field."""
LOADED: Final = 3
"""Buffers of a leaf for which the bytes loaded into each tile are fields."""
CURVE: Final = 10
"""Samples of the curve of operations a byte."""
CACHES: Final = {"32k": 2**15, "256k": 2**18, "1m": 2**20, "4m": 2**22, "32m": 2**25}
"""Bytes of caches for which traffic is estimated; no device need have one of just that size."""
TILES: Final = (16, 64, 256, 1024, 4096)
"""Bytes that are written, and kept in registers: from one vector to more than there are registers of."""
SETS: Final = {"l1": 64, "l2": 1024}
"""Sets of caches: of nearly all first ones, and of second ones."""
ALIGNED: Final = 64
"""Powers of two beyond this are all alike."""
STILL, ABSENT = -1.0, -2.0
"""The steps of a loop that does not move a buffer, and those where there is no such loop or buffer."""
NOTHING: Final = np.zeros(0, np.float32)
"""Operands of which nothing else is known."""
END: Final = -1
"""Ends the subtree of a node in the serialised tree."""

_LOOP_KINDS: Final = ("vectorized", "unrolled", "parallel")
_GPU: Final = ("block", "thread", "virtual")


@final
class LeafFeatures(Featurizer[Place]):
    """What a leaf of a program computes, in which loops, and how it goes through memory: a row of a compact AST.

    Counts are of the whole run of the program, of the leaf's executions alone. Buffers that are written come first, then
    those with more lines.
    """

    name: ClassVar[str] = "leaf"
    version: ClassVar[int] = 3

    @property
    def fields(self) -> tuple[Field, ...]:
        return _AST_FIELDS

    def features(self, described: Place) -> np.ndarray:
        """Return the numbers of a leaf: float32, shape (len(fields),), all finite."""
        touched = _Touched.of(described)
        numbers = [
            *_work(described),
            *_loops(described),
            *_inner(described, touched),
            *_lanes(described, touched),
            *_memory(described, touched),
        ]
        return np.array(numbers, np.float32)


@final
@dataclass(frozen=True, eq=False)
class CompactAst:
    """A program as its leaves; loops that run once are no part of it.

    Attributes:
        leaves: (leaves, fields) float32, see `LeafFeatures`.
        order: (leaves,) int32: the place of each leaf in the serialised tree, end markers counted.
        operands: (numbers,) float32: what else is known of what the program is applied to, such as statistics of a sparsity
            pattern; dense programs have none.
        code: (fields,) float32, see `CodeFeatures`: what a compiler made of the program; zeros where none was asked.
    """

    leaves: np.ndarray
    order: np.ndarray
    operands: np.ndarray = field(default_factory=lambda: NOTHING)
    code: np.ndarray = field(default_factory=lambda: UNCOMPILED)

    @classmethod
    def of(
        cls, tree: LoopTree, operands: np.ndarray = NOTHING, compiled: MachineCode | None = None
    ) -> "CompactAst":
        """Return the compact AST of a program; one without a leaf has a single row of zeros."""
        code = UNCOMPILED if compiled is None else CODE.features(Compiled(tree, compiled))
        tree = tree.repeating()
        rows = [LEAVES.features(Place(loops, leaf)) for loops, leaf in tree.leaves()]
        if not rows:
            return cls(np.zeros((1, len(LEAVES.fields)), np.float32), np.zeros(1, np.int32), operands, code)
        _, order = serialised(tree)
        return cls(np.array(rows), np.array(order, np.int32), operands, code)

    @property
    def compiled(self) -> bool:
        """Whether it is known what a compiler made of the program."""
        return bool(self.code.any())

    def uncompiled(self) -> "CompactAst":
        """Return the program as one that no compiler has seen."""
        return replace(self, code=UNCOMPILED)


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
    yield _log(math.prod(loop.extent for loop, stays in zip(place.loops, place.still) if stays))
    yield math.prod(loop.extent for loop in place.loops if loop.kind == "condition")
    for kind in _LOOP_KINDS:
        where = [k for k, loop in enumerate(loops) if loop.kind == kind]
        yield _log(len(where))
        yield _log(math.prod(loops[k].extent for k in where)) if where else 0.0
        yield _log(loops[where[-1]].extent) if where else 0.0
        yield _log(math.prod(loop.extent for loop in loops[where[-1] + 1 :])) if where else 0.0
    for kind in _GPU:
        extents = [loop.extent for loop in loops if loop.kind == kind]
        yield _log(math.prod(extents)) if extents else 0.0


def _inner(place: Place, touched: "_Touched") -> Iterator[float]:
    loops = [k for k, loop in enumerate(place.loops) if loop.kind != "condition"][::-1]
    for distance in range(INNER):
        if distance >= len(loops):
            yield from (0.0 for _ in range(7))
            yield from (ABSENT for _ in range(STEPPED))
            continue
        k = loops[distance]
        loop = place.loops[k]
        yield _log(loop.extent)
        yield _twos(loop.extent)
        yield float(place.still[k])
        yield float(loop.kind == "vectorized")
        yield float(loop.kind == "unrolled")
        yield _log(touched.working[k])
        yield _log(touched.inside[k])
        yield from _steps(place, touched, k)


def _steps(place: Place, touched: "_Touched", k: int) -> Iterator[float]:
    """The steps of a loop in the first buffers."""
    for rank in range(STEPPED):
        if rank < len(touched.ranked):
            access = place.leaf.accesses[touched.ranked[rank]]
            yield _log(access.strides[k]) if access.moves[k] > 0 else STILL
        else:
            yield ABSENT


def _lanes(place: Place, touched: "_Touched") -> Iterator[float]:
    """How a C compiler can compute several executions at a time, and what each waits for."""
    (straight, lane), extents = place.vectors, place.extents
    yield float(lane is not None and place.loops[lane].kind == "vectorized")
    yield float(lane is not None and lane not in straight)
    extent = extents[lane] if lane is not None else 1.0
    yield _log(extent)
    yield _twos(extent)
    for width in VECTOR_LANES:
        yield extent / width / max(math.ceil(extent / width), 1)
        yield _log(extent // width + (int(extent) % width).bit_count())
    if lane is None:
        yield from (ABSENT for _ in range(STEPPED))
        steps = []
    else:
        yield from _steps(place, touched, lane)
        steps = [a.strides[lane] if a.moves[lane] > 0 else 0.0 for a in place.leaf.accesses]
    yield float(sum(step == 1 for step in steps))
    yield float(sum(step > 1 for step in steps))
    yield float(sum(step == 0 for step in steps))
    yield _log(math.prod(extents[k] for k in straight))
    reductions = [k for k, stays in enumerate(place.still) if stays and extents[k] > 1]
    yield _log(math.prod(extents[reductions[-1] + 1 :])) if reductions else 0.0
    parallel = math.prod(loop.extent for loop in place.loops if loop.kind == "parallel")
    yield 1 - parallel / 2 / max(math.ceil(parallel / 2), 1)


def _twos(value: float) -> float:
    """log2 of the greatest power of two, up to ALIGNED, that divides a number; of 0 all do."""
    return math.log2(math.gcd(round(value), ALIGNED))


@final
@dataclass(frozen=True)
class _Touched:
    """What the loops around a leaf touch from each depth inwards: the last number of each row is of one execution.

    Attributes:
        held: bytes of each access, each element once; lines, pages: of each access.
        working: bytes of all accesses; inside: executions.
        ranked: places of accesses, those first that are written, then those with more lines.
    """

    held: list[list[float]]
    lines: list[list[float]]
    pages: list[list[float]]
    working: list[float]
    inside: list[float]
    ranked: list[int]

    @classmethod
    def of(cls, place: Place) -> "_Touched":
        extents, accesses = place.extents, place.leaf.accesses
        depths = range(len(extents) + 1)
        boxes = [[one.touched(extents, depth) for depth in depths] for one in accesses]
        held = [[box[0] * one.item_bytes for box in row] for one, row in zip(accesses, boxes, strict=True)]
        lines, pages = (
            [[one.lines(*box, length) for box in row] for one, row in zip(accesses, boxes, strict=True)]
            for length in (LINE_BYTES, PAGE_BYTES)
        )

        def order(k: int) -> tuple[bool, float, float, str]:
            return accesses[k].mode == "read", -lines[k][0], -held[k][0], accesses[k].buffer

        return cls(
            held,
            lines,
            pages,
            working=[sum(row[depth] for row in held) for depth in depths],
            inside=[math.prod(extents[depth:]) for depth in depths],
            ranked=sorted(range(len(accesses)), key=order),
        )

    def tile(self, held: Sequence[float], most: float) -> tuple[int, float]:
        """The outermost depth where ``held`` is at most ``most``, else the last, and how often what is inside of it runs."""
        depth = next((depth for depth, size in enumerate(held) if size <= most), len(held) - 1)
        return depth, self.inside[0] / self.inside[depth] if self.inside[depth] else 0.0


def _memory(place: Place, touched: _Touched) -> Iterator[float]:
    accesses, working, ranked = place.leaf.accesses, touched.working, touched.ranked
    written = [k for k, access in enumerate(accesses) if access.mode != "read"]
    fitting = {name: touched.tile(working, size) for name, size in CACHES.items()}
    small, large = fitting["32k"][0], fitting["1m"][0]
    for rank in range(BUFFERS):
        if rank < len(ranked):
            yield from _buffer(place, touched, ranked[rank], small, large)
        else:
            yield from (0.0 for _ in _BUFFER)
    yield from _curve(place.leaf, working, touched.inside)
    kept = [sum(touched.held[k][depth] for k in written) for depth in range(len(working))]
    for size in TILES:
        depth, runs = touched.tile(kept, size)
        yield _log(runs)
        for rank in range(LOADED):
            yield _log(runs * touched.held[ranked[rank]][depth]) if rank < len(ranked) else 0.0
    for depth, runs in fitting.values():
        yield _log(LINE_BYTES * runs * sum(row[depth] for row in touched.lines))
    yield _log(sum(accesses[k].size * accesses[k].item_bytes for k in written))
    yield _log(working[0])


def _buffer(place: Place, touched: _Touched, which: int, small: int, large: int) -> Iterator[float]:
    """Of one access; loops from ``small`` inwards fit a first cache, those from ``large`` inwards a second one."""
    access, held, lines = place.leaf.accesses[which], touched.held[which], touched.lines[which]
    working, inside = touched.working, touched.inside
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
    extents, pages, lane = place.extents, touched.pages[which], place.vectors[1]
    again = inner + 1 if inner is not None else len(extents)
    outer = back[-2] + 1 if len(back) > 1 else None

    def ways(depth: int, cache: str) -> float:
        return math.log2(max(lines[depth] / access.sets(extents, depth, SETS[cache]), 1.0))

    yield ways(again, "l1")
    yield _log(pages[again])
    yield _log(working[outer]) if outer is not None else 0.0
    yield ways(outer, "l1") if outer is not None else 0.0
    yield ways(small, "l1")
    yield ways(large, "l2")
    yield _log(pages[large])
    yield _twos(math.gcd(*(round(access.strides[k] * access.item_bytes) for k in stepping if k != lane)))


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
    Field("bytes", "log2(1 + bytes)", "bytes that all executions read and write"),
    Field("unique_bytes", "log2(1 + bytes)", "bytes that all executions touch, each element once"),
    Field("lines", f"log2(1 + lines of {LINE_BYTES} bytes)", "cache lines that all executions touch"),
    Field(
        "unique_lines",
        f"log2(1 + lines of {LINE_BYTES} bytes)",
        "cache lines that all executions touch, each once",
    ),
    Field("reused", "0 or 1", "whether a loop reuses elements"),
    Field(
        "reuse_iterations",
        "log2(1 + executions)",
        "executions between two uses of an element by the innermost such loop",
    ),
    Field(
        "reuse_bytes",
        "log2(1 + bytes)",
        "bytes that the leaf touches in all buffers between two such uses (reuse distance)",
    ),
    Field("reuse_count", "log2(1 + times)", "how often an element is touched on average"),
    Field("stride", "log2(1 + elements)", "the stride of the innermost loop that indexes it"),
    Field(
        "vector_stride", "log2(1 + elements)", "the stride from lane to lane of the innermost vectorized loop"
    ),
    Field(
        "inner_moves",
        "share of steps",
        "the share of iterations in which the innermost loop moves to another element",
    ),
    Field(
        "reuse_ways",
        "log2(lines)",
        "cache lines that map to one set of a first-level cache between two such uses",
    ),
    Field(
        "reuse_pages", f"log2(1 + pages of {PAGE_BYTES} bytes)", "pages that it touches between two such uses"
    ),
    Field(
        "second_bytes",
        "log2(1 + bytes)",
        "reuse_bytes of the next loop outward that reuses elements; 0: there is none",
    ),
    Field("second_ways", "log2(lines)", "reuse_ways of the next loop outward that reuses elements"),
    Field(
        "ways.32k",
        "log2(lines)",
        "cache lines that map to one set of a first-level cache in the outermost loops that touch at most 32 KB",
    ),
    Field(
        "ways.1m",
        "log2(lines)",
        "cache lines that map to one set of a second-level cache in the outermost loops that touch at most 1 MB",
    ),
    Field(
        "pages.1m",
        f"log2(1 + pages of {PAGE_BYTES} bytes)",
        "pages that the outermost loops touch that touch at most 1 MB",
    ),
    Field(
        "aligned",
        "log2(bytes)",
        "the largest power of two, up to 64, that divides the strides of all loops but the one over lanes",
    ),
)


def _fields() -> Iterator[Field]:
    for name in OPERATIONS:
        yield Field(
            f"operations.{name}", "log2(1 + operations)", f"the number of {name} operations in all executions"
        )
    yield Field("loops.count", "log2(1 + loops)", "the number of loops around the leaf")
    yield Field("loops.executions", "log2(1 + executions)", "how often the leaf runs")
    yield Field(
        "loops.reduction",
        "log2(1 + iterations)",
        "the product of the extents of the loops that do not index what is written",
    )
    yield Field("loops.condition", "share of iterations", "how often the conditions around the leaf hold")
    for kind in _LOOP_KINDS:
        yield Field(f"{kind}.count", "log2(1 + loops)", f"the number of {kind} loops")
        yield Field(
            f"{kind}.product",
            "log2(1 + iterations)",
            f"the product of the extents of {kind} loops; 0: there are none",
        )
        yield Field(
            f"{kind}.extent",
            "log2(1 + iterations)",
            f"the iterations of the innermost {kind} loop; 0: there is none",
        )
        yield Field(
            f"{kind}.inside",
            "log2(1 + executions)",
            f"executions of the leaf in one iteration of the innermost {kind} loop",
        )
    for kind in _GPU:
        what = {"block": "blocks of a GPU", "thread": "threads of a block", "virtual": "virtual threads"}[
            kind
        ]
        yield Field(f"gpu.{kind}", "log2(1 + number)", f"the number of {what}; 0 on CPUs")
    for distance in range(1, INNER + 1):
        what = f"the loop that is number {distance} from the inside"
        inner = f"inner{distance}"
        yield Field(f"{inner}.extent", "log2(1 + iterations)", f"the iterations of {what}; 0: there is none")
        yield Field(
            f"{inner}.twos",
            "log2(iterations)",
            f"the largest power of two, up to {ALIGNED}, that divides its iterations",
        )
        yield Field(f"{inner}.reduction", "0 or 1", f"whether {what} does not index what is written")
        yield Field(f"{inner}.vectorized", "0 or 1", f"whether {what} is vectorized")
        yield Field(f"{inner}.unrolled", "0 or 1", f"whether {what} is unrolled")
        yield Field(f"{inner}.bytes", "log2(1 + bytes)", f"bytes that all iterations of {what} touch")
        yield Field(
            f"{inner}.executions",
            "log2(1 + executions)",
            f"executions of the leaf in all iterations of {what}",
        )
        for rank in range(1, STEPPED + 1):
            yield Field(
                f"{inner}.stride{rank}", "log2(1 + elements)",
                f"the step that {what} takes in buffer {rank}; {STILL:g}: it does not move it, {ABSENT:g}: there is none",
            )  # fmt: skip
    what = "the loop whose iterations can be lanes of vectors"
    yield Field("lanes.explicit", "0 or 1", f"whether {what} is vectorized in the program")
    yield Field("lanes.loop", "0 or 1", f"whether {what} stays a loop, which a compiler can vectorize")
    yield Field("lanes.extent", "log2(1 + iterations)", f"the iterations of {what}; 1: there is none")
    yield Field(
        "lanes.twos",
        "log2(iterations)",
        f"the largest power of two, up to {ALIGNED}, that divides its iterations",
    )
    for width in VECTOR_LANES:
        yield Field(f"lanes.full{width}", "share of lanes", f"lanes in use, of vectors of {width}")
        yield Field(
            f"lanes.vectors{width}",
            "log2(1 + vectors)",
            f"the number of vectors of {width}, the remainder in powers of two",
        )
    for rank in range(1, STEPPED + 1):
        yield Field(
            f"lanes.stride{rank}", "log2(1 + elements)",
            f"the step from lane to lane in buffer {rank}; {STILL:g}: there is none, {ABSENT:g}: no lanes or no buffer",
        )  # fmt: skip
    yield Field(
        "lanes.neighbours", "accesses", "the number of accesses whose lanes read or write adjacent elements"
    )
    yield Field(
        "lanes.gathered",
        "accesses",
        "the number of accesses whose lanes are not adjacent: gathers and scatters",
    )
    yield Field("lanes.same", "accesses", "the number of accesses of one element for all lanes: broadcasts")
    yield Field(
        "lanes.straight",
        "log2(1 + executions)",
        "executions in the innermost loops that a compiler unrolls completely",
    )
    yield Field(
        "lanes.reduction_distance",
        "log2(1 + executions)",
        "executions between two additions to one element; 0: no reduction",
    )
    yield Field(
        "lanes.idle", "share of threads", "threads without work, of two, in the last round of a parallel loop"
    )
    for rank in range(1, BUFFERS + 1):
        which = f"of buffer {rank}:"
        for one in _BUFFER:
            yield Field(f"buffer{rank}.{one.name}", one.unit, f"{which} {one.doc}")
    for sample in range(CURVE):
        yield Field(
            f"intensity.{sample}", "log2(1 + operations a byte)",
            f"float operations by bytes touched, {sample} of {CURVE - 1} of the way from the innermost loop to all",
        )  # fmt: skip
    for tile in TILES:
        what = f"the outermost loops that write at most {tile} bytes"
        yield Field(f"tile{tile}.runs", "log2(1 + runs)", f"how often {what} run")
        for rank in range(1, LOADED + 1):
            yield Field(
                f"tile{tile}.bytes{rank}", "log2(1 + bytes)", f"what all runs of {what} touch of buffer {rank}",
            )  # fmt: skip
    for name, size in CACHES.items():
        yield Field(
            f"traffic.{name}", "log2(1 + bytes)",
            f"what comes into a cache of {size} bytes if it keeps what the outermost loops that fit it touch",
        )  # fmt: skip
    yield Field("memory.written", "log2(1 + bytes)", "the size of the buffers that are written")
    yield Field("memory.touched", "log2(1 + bytes)", "what all executions touch, each element once")


_AST_FIELDS: Final = tuple(_fields())
LEAVES: Final = LeafFeatures()
