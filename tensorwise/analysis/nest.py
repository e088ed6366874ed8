"""A program's loop nest on one workload as numbers: iterations of loops, positions of levels, tasks of threads.

How long a padded, blocked or discordant nest runs is a product of extents, splits and orders, which a network would have to
learn from examples. Here it is counted, as upper bounds or from a sample of the entries.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, Self, final

import numpy as np

from tensorwise.analysis.featurizer import Featurizer, Field
from tensorwise.lower.program import Program
from tensorwise.program.schedule import Parallel
from tensorwise.program.workload import Workload
from tensorwise.runtime.loads import Loads, even
from tensorwise.runtime.work import Bounded, Bounds
from tensorwise.tensor.orders import Places

INSIDE: Final = 3
"""Innermost loops that are described, of those that run more than once."""

_A_TERM: Final = "log2(x / terms)"
_LOOP: Final = (
    ("steps", _A_TERM, "the iterations of {}, in all."),
    ("starts", _A_TERM, "how often {} starts."),
    ("trips", "log2(iterations)", "the iterations of {}, each time."),
    ("stored", "0 or 1", "whether {} runs over what a compressed level stores."),
    ("kept", "0 or 1", "whether {} runs over an index of the output, which is not summed."),
    ("sparse", "0 or 1", "whether {} runs over an index of the sparse operand."),
    ("touched", "log2(1 + bytes)", "bytes of the dense operands that {} and the loops inside it touch."),
)
_PLACES: Final = ("the innermost loop", "the loop around the innermost", "the loop around these two")

_NEST_FIELDS: Final = (
    Field("nest.terms", "log2(1 + terms)", "the number of terms that are summed."),
    Field("nest.loops", "loops", "how many loops run more than once."),
    Field("nest.steps", _A_TERM, "the iterations of all loops."),
    Field("nest.searches", "log2((1 + x) / terms)", "how often a compressed level is searched."),
    Field("nest.stored", "log2(x / entries)", "the number of values that the sparse operand stores."),
    Field(
        "nest.hybrid",
        "0 or 1",
        "whether the format is a hybrid; the other fields describe its main part, as if it had all entries.",
    ),
    *(
        Field(f"{group}.{name}", unit, doc.format(place))
        for group, place in zip(("inner", "middle", "outer"), _PLACES, strict=True)
        for name, unit, doc in _LOOP
    ),
    Field("output.passes", "log2(x / values)", "how often a value of the output is reached."),
    Field("output.reached", _A_TERM, "how often any value of the output is reached."),
    Field("input.passes", "log2(x / values)", "how often a value of the largest dense operand is reached."),
    Field("input.reached", _A_TERM, "how often any value of the largest dense operand is reached."),
    Field("inner.along", "tensors", "the number of dense tensors that the innermost loop runs along."),
    Field("inner.across", "tensors", "the number of dense tensors that it jumps through."),
    Field("tile.values", "log2(values)", "what a register tile holds; one value without."),
    Field("tile.trips", "log2(tiles)", "the tiles that the tiled loop is cut into."),
    Field("tile.inner", "0 or 1", "whether the innermost loop is tiled."),
    Field("tile.steps", _A_TERM, "the vectors, or single values, that the innermost loop computes."),
    Field("parallel.extent", "log2(iterations)", "the iterations of the parallel loop; 0 without."),
    Field("parallel.starts", _A_TERM, "how often a parallel region starts; once without."),
    Field("parallel.tasks", _A_TERM, "the number of tasks that threads take; one without."),
    Field(
        "parallel.share",
        "log2(x / half)",
        "the work of the busier of two threads, counted in entries and rows; all work without a parallel loop.",
    ),
    Field(
        "parallel.atomic",
        _A_TERM,
        "atomic additions to values of the output; one without.",
    ),
    Field(
        "parallel.private", _A_TERM, "the values of the output that each thread has a copy of; one without."
    ),
)


class WorkloadNest(NamedTuple):
    """A program on a workload, with bounds of its loops and counts of the pattern; of a hybrid, those of its main part."""

    program: Program
    workload: Workload
    bounds: Bounds
    loads: Loads

    @classmethod
    def of(cls, program: Program, workload: Workload) -> Self:
        """Bound what its loops do."""
        loads = Loads(workload.entries, Places(workload.entries))
        return cls(program, workload, Bounds.of(program.parts[0], workload), loads)


@final
class ProgramNest(Featurizer[WorkloadNest]):
    """What the loops of a program do on a workload with one sparse operand, about or at most.

    A parallel loop with parts counts as many tasks as it would have with two threads.
    """

    name: ClassVar[str] = "program-nest"
    version: ClassVar[int] = 3

    @property
    def fields(self) -> tuple[Field, ...]:
        return _NEST_FIELDS

    def features(self, described: WorkloadNest) -> np.ndarray:
        program, workload, bounds, loads = described
        rest = program.parts[0]
        loops = bounds.loops
        (name,) = rest.formats
        summed = workload.terms
        terms = _log2(summed)
        real = [place for place, loop in enumerate(loops) if loop.extent > 1] or [len(loops) - 1]
        inner = loops[real[-1]]
        dense = _Dense(workload, name)
        numbers: list[float] = [
            math.log2(1 + summed),
            len(real),
            _log2(sum(loop.steps for loop in loops)) - terms,
            math.log2(1 + sum(loop.steps * loop.searches for loop in loops)) - terms,
            _log2(bounds.values[name]) - _log2(workload.sparse[name].nnz),
            program.remainder is not None,
        ]
        for back in range(1, INSIDE + 1):
            numbers += dense.loop(loops, real[-back], terms) if back <= len(real) else [0.0] * len(_LOOP)
        output, largest = dense.tensors[0], max(dense.tensors[1:] or dense.tensors, key=dense.values)
        reached = [dense.reached(loops, indices) for indices in (output, largest)]
        for indices, times in zip((output, largest), reached, strict=True):
            numbers += [times - dense.values(indices), times - terms]
        mode = inner.axis.mode
        numbers.append(sum(indices[-1:] == (mode,) for indices in dense.tensors))
        numbers.append(sum(mode in indices[:-1] for indices in dense.tensors))
        numbers += _tiled(rest, loops, inner, terms)
        numbers += _parallel(rest, loops, terms, reached[0], dense.values(output), loads)
        return np.array(numbers, np.float32)


class _Dense:
    """The dense tensors of a workload: the output first, then the operands, by the indices that decide what is reached."""

    def __init__(self, workload: Workload, sparse: str) -> None:
        assignment = workload.assignment
        self.sizes, self.item = workload.sizes, workload.dtype.itemsize
        self.stored = frozenset(assignment.access(sparse).indices)
        self.kept = frozenset(assignment.free_indices)
        self.entries = math.log2(max(1, workload.sparse[sparse].nnz))
        others = [access for access in assignment.accesses if access.tensor != sparse]
        self.tensors = [assignment.spread(access) for access in (assignment.output, *others)]

    def values(self, indices: Sequence[str]) -> float:
        """log2 of the values of a tensor; one with all indices of the sparse operand has one for each entry, at most."""
        every = sum(_log2(self.sizes[index]) for index in indices)
        if self.stored <= set(indices):
            every += min(0.0, self.entries - sum(_log2(self.sizes[index]) for index in self.stored))
        return every

    def loop(self, loops: Sequence[Bounded], place: int, terms: float) -> list[float]:
        """The numbers of one loop."""
        loop = loops[place]
        spans: dict[str, int] = {}
        for one in loops[place:]:
            spans[one.axis.mode] = spans.get(one.axis.mode, 1) * one.extent
        touched = sum(
            math.prod(min(spans.get(index, 1), self.sizes[index]) for index in indices)
            for indices in self.tensors
        )
        return [
            _log2(loop.steps) - terms,
            _log2(loop.starts) - terms,
            _log2(loop.steps) - _log2(loop.starts),
            loop.stored,
            loop.axis.mode in self.kept,
            loop.axis.mode in self.stored,
            math.log2(1 + self.item * touched),
        ]

    def reached(self, loops: Sequence[Bounded], indices: Sequence[str]) -> float:
        """log2 of how often a value of a tensor is reached: once in the innermost loop that decides which."""
        place = max((place for place, loop in enumerate(loops) if loop.axis.mode in indices), default=0)
        return _log2(loops[place].reached)


def _tiled(program: Program, loops: Sequence[Bounded], inner: Bounded, terms: float) -> list[float]:
    tile = program.schedule.tile
    tiled = next((loop for loop in loops if tile is not None and loop.axis.name == tile.loop), None)
    if tile is None or tiled is None:
        return [0.0, 0.0, 0.0, _log2(inner.steps) - terms]
    values = math.log2(tile.vectors * tile.lanes)
    vectors = math.log2(tile.lanes) if tiled is inner else 0.0
    return [
        values,
        max(0.0, _log2(tiled.extent) - values),
        tiled is inner,
        _log2(inner.steps) - vectors - terms,
    ]


def _parallel(
    program: Program, loops: Sequence[Bounded], terms: float, reached: float, values: float, loads: Loads
) -> list[float]:
    parallel = program.schedule.parallel
    loop = next((loop for loop in loops if parallel is not None and loop.axis.name == parallel.loop), None)
    if parallel is None or loop is None:
        return [0.0, -terms, -terms, 1.0, -terms, -terms]
    summed = loop.axis.mode not in program.assignment.free_indices
    tasks = 2 * parallel.chunk if parallel.policy != "dynamic" else max(1, -(-loop.extent // parallel.chunk))
    return [
        _log2(loop.extent),
        _log2(loop.starts) - terms,
        _log2(loop.starts * tasks) - terms,
        math.log2(_share(program, parallel, loop, loop is loops[0], tasks, loads)),
        (reached if summed and parallel.reduction == "atomic" else 0.0) - terms,
        (_log2(loop.starts) + values if summed and parallel.reduction == "private" else 0.0) - terms,
    ]


def _share(
    program: Program, parallel: Parallel, loop: Bounded, outermost: bool, tasks: int, loads: Loads
) -> float:
    """What the busier of two threads takes over half; of loops inside others as if all iterations took the same."""
    if parallel.policy == "merge-path":
        return 1.0
    (format,) = program.formats.values()
    axis = loop.axis
    if not outermost or axis.mode not in format.modes or axis.part not in ("whole", "outer"):
        return even(tasks)
    coordinates = program.schedule.splits[axis.mode] if axis.part == "outer" else 1
    dynamic = parallel.policy == "dynamic"
    return loads.share(
        format.modes.index(axis.mode),
        format.orders.get(axis.mode, ""),
        coordinates * parallel.chunk if dynamic else coordinates,
        0 if dynamic else tasks,
    )


def _log2(number: float) -> float:
    return math.log2(max(number, 1))
