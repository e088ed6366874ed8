"""Random programs: einsum x format x schedule x shape x values, some of them hybrids of two formats."""

import math
from dataclasses import dataclass, replace

import numpy as np

from tensorwise.errors import FormatError, ScheduleError, TensorwiseError
from tensorwise.lower.c import print_c
from tensorwise.lower.lower import lower
from tensorwise.lower.program import Program, Remainder, program_for
from tensorwise.program.einsum import Einsum
from tensorwise.program.schedule import (
    CONSTANT_SPLIT,
    Bound,
    Directive,
    Factor,
    Locate,
    Parallel,
    Prefetch,
    Reorder,
    Schedule,
    Split,
    Tile,
    Unroll,
)
from tensorwise.program.workload import Workload
from tensorwise.space.cpu import cpu_space_of
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.elements import value_dtype
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.format import Format
from tensorwise.tensor.levels import LEVELS, Level, Repeated, ShortSingle, Single, Slots
from tensorwise.tensor.partition import Partition
from tensorwise.tensor.remap import Axis
from tests.oracle.einsums import draw_einsum

EINSUMS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("spmv", "C[i] += A[i,k] * B[k]", ("A",)),
    ("spmm", "C[i,j] += A[i,k] * B[k,j]", ("A",)),
    ("spmm-t", "C[j,i] += A[i,k] * B[k,j]", ("A",)),
    ("spmv-t", "C[k] += A[i,k] * B[i]", ("A",)),
    ("sddmm", "C[i,j] += A[i,j] * B[i,k] * D[k,j]", ("A",)),
    ("sddmm-max", "C[i,j] max= A[i,j] * B[i,k] * D[k,j]", ("A",)),
    ("sddmm-square", "C[i,j] += A[i,j] * B[i,k] * B[k,j]", ("A",)),
    ("mttkrp3", "C[i,r] += A[i,k,l] * B[k,r] * D[l,r]", ("A",)),
    ("mttkrp3-1", "C[k,r] += A[i,k,l] * B[i,r] * D[l,r]", ("A",)),
    ("mttkrp4", "C[i,r] += A[i,k,l,m] * B[k,r] * D[l,r] * E[m,r]", ("A",)),
    ("mttkrp5", "C[m,r] += A[i,k,l,m,n] * B[i,r] * D[k,r] * E[l,r] * F[n,r]", ("A",)),
    ("ttv", "C[i,j] += A[i,j,k] * B[k]", ("A",)),
    ("ttm", "C[i,j,r] += A[i,j,k] * B[k,r]", ("A",)),
    ("max-mul", "C[i,j] max= A[i,k] * B[k,j]", ("A",)),
    ("min-add", "C[i,j] min= A[i,k] + B[k,j]", ("A",)),
    ("prod-sub", "C[i] prod= B[k] - A[i,k]", ("A",)),
    ("mean-mul", "C[i,j] mean= A[i,k] * B[k,j]", ("A",)),
    ("argmax", "C[i,j] argmax= A[i,k] * B[k,j]", ("A",)),
    ("argmin", "C[i] argmin= A[i,k] + B[k]", ("A",)),
    ("sum-sub", "C[i,j] += A[i,k] - B[k,j]", ("A",)),
    ("sum-div", "C[i] += A[i,k] / B[k]", ("A",)),
    ("sum-abs-max", "C[i] += max(abs(A[i,k]), B[k]) + 2", ("A",)),
    ("scale", "C[i,j] = A[i,j] * B[i] * -D[j]", ("A",)),
    ("outer", "C[i,j,r] = A[i,j] * B[r]", ("A",)),
    ("both-sides", "C[i,j] = B[i] * A[i,j] * B[j]", ("A",)),
    ("plain", "C[i,k] += A[i,j,k]", ("A",)),
    ("hadamard", "C[i,j] = A[i,j] * S[i,j]", ("A", "S")),
    ("masked-product", "C[i,j] += A[i,j] * S[j,k] * B[k,i]", ("A", "S")),
    ("inner-sparse", "C[i] += A[i,k] * S[i,k]", ("A", "S")),
    ("sparse-sparse", "C[i,j] += A[i,k] * S[k,j]", ("A", "S")),
    ("columns", "C[j] += A[i,k] * B[k,j]", ("A",)),
    ("copy-max", "C[i,j] max= B[k,j] for A[i,k]", ("A",)),
    ("copy-mean", "C[i,j] mean= B[k,j] for A[i,k]", ("A",)),
    ("degrees", "C[i] += 1 for A[i,k]", ("A",)),
    ("copy-argmax", "P[i,j] argmax= B[k,j] for A[i,k]", ("A",)),
    ("edges-argmin", "P[i,j] argmin= B[k,j] - E[A,j] for A[i,k]", ("A",)),
    ("heads", "C[i,h,j] += E[A,h] * B[k,h,j] for A[i,k]", ("A",)),
    ("edges-prod", "C[k,j] prod= D[i] / E[A,j] for A[i,k]", ("A",)),
    ("dot-heads", "C[A,h] += Q[i,h,d] * K[k,h,d] for A[i,k]", ("A",)),
    ("to-edges", "C[A,j] = Q[i,j] - K[k,j] for A[i,k]", ("A",)),
    ("numbered-values", "C[k] += A[i,k] * E[A]", ("A",)),
    ("chosen", "G[k,j] += D[i,j] if P[i,j] == A else 0 for A[i,k]", ("A",)),
    ("chosen-edges", "G[A,j] = D[i,j] * B[k,j] if P[i,j] == k else 0 for A[i,k]", ("A",)),
    ("attention", "C[i,h,j] += exp(min(U[i,h] + V[k,h], 3)) / Z[i,h] * X[k,h,j] for A[i,k]", ("A",)),
    ("leaky", "C[A,h] = U[i,h] if V[k,h] < 0 else 0.2 * U[i,h] for A[i,k]", ("A",)),
    ("tensor-edges", "C[i,r] max= E[A,r] * B[l,r] for A[i,k,l]", ("A",)),
    ("sparse-numbered", "C[i] += A[i,k] * S[i,k] * E[S]", ("A", "S")),
)
"""Name, einsum and sparse operands."""
EDGES: tuple[str, ...] = (
    "C[i] += L[k] * (1 if P[i] == A else 0) for A[i,k]",
    "C[i,j] += L[k,j] * (1 if P[k,j] == A else 0) for A[i,k]",
    "C[i,j] max= L[k,j] if P[i,j] == A else E[A,j] for A[i,k]",
    "C[k] += L[i] if P[i] == k else 0 for A[i,k]",
    "C[k,i] += E[A] * (L[k] if P[A] == k else 2) for A[i,k]",
    "C[A,j] = L[k,j] if P[i] == j else D[i] for A[i,k]",
    "C[A] += D[i,f] * (L[k,f] + E[A]) for A[i,k]",
    "C[i] argmax= L[k] if P[A] == A else E[A] for A[i,k]",
    "C[i] += A[i,k] * (E[A] if P[k] == A else B[k])",
    "C[i,r] += E[A,r] * (B[l,r] if P[l] == A else 1) for A[i,k,l]",
)
"""Numbers of entries and coordinates that are compared with, and computed beside: their cases are called ``edges``."""


@dataclass(frozen=True)
class Case:
    """A program with a workload and operands to run it on."""

    name: str
    seed: int
    program: Program
    workload: Workload
    operands: tuple[np.ndarray, ...]
    features: frozenset[str]
    wide: bool = False
    """Whether indices take 64 bits."""

    def __str__(self) -> str:
        shapes = {name: entries.shape for name, entries in self.workload.sparse.items()}
        return f"seed {self.seed} {self.name} {shapes} sizes {dict(self.workload.sizes)}\n{self.program.name}"


@dataclass(frozen=True)
class Focus:
    """What a directed draw has where that is possible; rare combinations come up in time only when asked for.

    Attributes:
        stored: how matrices are stored: ``list``, ``slots``, ``diagonal`` or ``levels``.
        tiled: the part of an index that runs in lanes: ``whole``, ``outer`` or ``inner``.
        kept: whether that index is the output's; None: either.
        parallel: policy of the parallel loop.
        unrolled: whether loops are unrolled wherever they can be.
    """

    stored: str = ""
    tiled: str = ""
    kept: bool | None = None
    parallel: str = ""
    unrolled: bool = False

    @property
    def splits(self) -> float:
        """Share of indices that are split."""
        return {"outer": 0.9, "inner": 0.9, "whole": 0.2}.get(self.tiled, 0.35)

    def met(self, program: Program) -> bool:
        """Whether a program is stored and tiled like that; the rest comes up by itself."""
        tile = program.schedule.tile
        tiled = Axis.from_name(tile.loop).part if tile else ""
        return tiled == self.tiled and self.stored in {stored_as(f) for f in program.formats.values()}


def stored_as(format: Format) -> str:
    """Return how entries are stored, in the words of ``Focus.stored``."""
    parts = {axis.part for axis in format.axes}
    if parts & {"slot", "diagonal"}:
        return "slots" if "slot" in parts else "diagonal"
    return "list" if isinstance(format.levels[0], Repeated) else "levels"


ANY = Focus()
DIRECTED = 10**12
"""Seeds from here on draw one of ``FOCI`` after the other; those below draw once, whatever comes."""
ATTEMPTS = 16
"""Of a directed draw, until it has what its focus asks for: einsums, extents and dtypes may leave no room for it."""
FOCI = tuple(
    Focus(stored, tiled, kept, parallel, unrolled)
    for unrolled in (False, True)
    for parallel in ("", "dynamic", "balanced", "merge-path")
    for kept in (True, False)
    for tiled in ("outer", "inner", "whole")
    for stored in ("diagonal", "levels", "slots", "list")
)
SPLITS = (1, 2, 3, 4, 8, 16, 17, 32)
LONGEST_TEXT = 10_000
MOST_COPIES = 64
"""Of the innermost statement, in a directed draw."""
MOST_POINTS = 12_000
"""Extents shrink until their product is below this: the interpreter takes microseconds a point."""


def draw(seed: int) -> Case:
    """Draw a case; raises FormatError or ScheduleError when the program drawn is refused.

    A directed draw is repeated until it has what its focus asks for, or the first that is not refused is taken.
    """
    if seed < DIRECTED:
        return _draw(seed, np.random.default_rng(seed), _other(seed), ANY)
    focus, found, refusal = FOCI[seed % len(FOCI)], list[Case](), list[TensorwiseError]()
    for attempt in range(ATTEMPTS):
        rng, other = (np.random.default_rng([seed, stream, attempt]) for stream in (0, 1))
        try:
            found.append(_draw(seed, rng, other, focus))
        except (FormatError, ScheduleError) as error:
            refusal.append(error)
            continue
        if focus.met(found[-1].program):
            return found[-1]
    if not found:
        raise refusal[0]
    return found[0]


def _draw(seed: int, rng: np.random.Generator, other: np.random.Generator, focus: Focus) -> Case:
    name, text, sparse = _einsum(rng, other)
    einsum = Einsum.parse(text)
    sizes = _sizes(rng, einsum)
    special = bool(rng.random() < 0.25)
    dtypes = _dtypes(rng, einsum.operands)
    mixed = len(set(dtypes.values())) > 1
    features = {f"mixed {dtype}" if mixed else dtype.name for dtype in dtypes.values()}
    features |= {f"extent {extent}" for extent in sizes.values() if extent < 2}
    operands = {}
    for operand in sparse:
        shape = tuple(sizes[i] for i in einsum.single.access(operand).indices)
        operands[operand] = entries_from(draw_entries(rng, shape, dtypes[operand], special, features))
    others = {operand: dtype for operand, dtype in dtypes.items() if operand not in sparse}
    for operand in einsum.single.counted:
        if rng.random() < 0.5:
            entries = operands[operand]
            operands[operand] = replace(entries, numbers=rng.permutation(entries.nnz).astype(np.int32))
            features.add("entries with numbers of their own")
    workload = Workload(name, einsum, operands, sizes, others)
    chosen = dict(zip(workload.dense, workload.operands(rng), strict=True))
    dense = tuple(
        chosen[operand]
        if operand in einsum.single.chosen
        else draw_dense(rng, workload.shape(operand), dtypes[operand], special, features)
        for operand in workload.dense
    )
    program = _program(rng, workload, focus)
    if focus == ANY and len(sparse) == 1 and other.random() < 0.15:
        space, by_default = cpu_space_of(workload), other.random() < 0.5
        config = space.default(workload) if by_default else space.sample(workload, other)
        features.add("default program" if by_default else "program of the space")
        program = space.program(workload, config)
    wide = bool(other.random() < 0.25)
    features |= {name for name in ("edges", "random")} & {name}
    features |= {"64-bit indices"} if wide else set()
    rounds = einsum.single.output.tensor in workload.halves  # parts of a hybrid add to one output
    whole = program.remainder is None and program.schedule.located is None
    summed = len(sparse) == 1 and einsum.single.monoid.name == "sum" and whole
    if summed and not rounds and rng.random() < 0.3:
        second = _walking(rng, workload, focus)
        rule = _rule(rng, workload.entries)
        program = replace(program, remainder=Remainder(rule, second.formats[sparse[0]], second.schedule))
        sides = {bool(side) for side in rule.select_remainder(workload.entries)}
        features.add("hybrid" if len(sides) == 2 else "hybrid with an empty part")
    return Case(name, seed, program, workload, dense, frozenset(features), wide)


def name_of(seed: int) -> str:
    """Return the name of the einsum that ``draw`` draws, undirected, thousands of times faster."""
    return _einsum(np.random.default_rng(seed), _other(seed))[0]


def _other(seed: int) -> np.random.Generator:
    """Draws what was not drawn from the beginning, so that most seeds keep their cases."""
    return np.random.default_rng([seed, 1])


def _einsum(rng: np.random.Generator, other: np.random.Generator) -> tuple[str, str, tuple[str, ...]]:
    known, kind = EINSUMS[int(rng.integers(len(EINSUMS)))], other.random()
    if kind < 0.08:
        return "edges", str(other.choice(EDGES)), ("A",)
    if kind < 0.2:
        return "random", *draw_einsum(other, several=bool(other.random() < 0.25))
    return known


def _program(rng: np.random.Generator, workload: Workload, focus: Focus) -> Program:
    """Formats and schedule; where only one entry counts, it is often found by its number."""
    if workload.assignment.selector is None or rng.random() < 0.5:
        return _walking(rng, workload, focus)
    (operand,) = workload.sparse
    *_, last = indices = workload.assignment.access(operand).indices
    formats = {operand: Format.parse("(i,k) -> U(i) C(k)").renamed(indices)}
    splits = {i: int(rng.choice(SPLITS)) for i in workload.sizes if i not in indices and rng.random() < 0.35}
    drawn = _schedule(rng, workload, formats, splits).directives
    fit = (d for d in drawn if not isinstance(d, Tile) and getattr(d, "loop", None) != last)
    return program_for(workload, formats, Schedule((*fit, Locate(operand))))


def _walking(rng: np.random.Generator, workload: Workload, focus: Focus) -> Program:
    """Formats and schedule, simple enough for a text that compiles quickly."""
    sizes = dict(workload.sizes)
    splits = {index: int(rng.choice(SPLITS)) for index in sizes if rng.random() < focus.splits}
    formats = {
        operand: _format(rng, workload.assignment.access(operand).indices, sizes, splits, focus)
        for operand in workload.sparse
    }
    _agree(formats, splits)
    program = program_for(workload, formats, _schedule(rng, workload, formats, splits, focus))
    while not _short(program, workload, focus):
        program = replace(program, schedule=_simpler(program.schedule))
    return program


def _rule(rng: np.random.Generator, entries: Entries) -> Partition:
    """Lines above a number that mostly some reach and others do not."""
    for _ in range(4):
        lines = ("rows", "columns")[int(rng.integers(2))]
        panel = int(rng.choice([2, 8, 100])) if rng.random() < 0.5 else None
        rule = Partition(lines, int(rng.integers(1, 8)), panel)
        if len(set(rule.select_remainder(entries).tolist())) == 2:
            break
    return rule


def _dtypes(rng: np.random.Generator, names: tuple[str, ...]) -> dict[str, np.dtype]:
    """The same for all operands, or any mix without float64."""
    kinds = [value_dtype(name) for name in ("float32", "float16", "bfloat16", "float64")]
    if rng.random() < 0.25:
        return {name: kinds[int(rng.integers(3))] for name in names}
    return dict.fromkeys(names, kinds[int(rng.choice(4, p=(0.3, 0.2, 0.2, 0.3)))])


def _short(program: Program, workload: Workload, focus: Focus) -> bool:
    """Whether the C text compiles in a fraction of a second, or cannot be made simpler."""
    if not program.schedule.unrolls and (program.schedule.tile or Tile("", 1, 1)).lanes < 8:
        return True
    if focus != ANY and _copies(program.schedule) > MOST_COPIES:
        return False
    try:
        plan = program.plan(workload.elem, sizes=workload.sizes, halves=workload.halves)
        return len(print_c(lower(plan))) < LONGEST_TEXT
    except ScheduleError as error:
        if "copies of the innermost statement" in str(error):
            return False
        raise


def _copies(schedule: Schedule) -> int:
    """About how often the innermost statement is repeated."""
    tile = schedule.tile
    strips = [tile.vectors + 3] if tile else []
    return math.prod([*strips, *(factor + 1 for factor in schedule.unrolls.values() if factor)]) * math.prod(
        schedule.splits[loop[:-1]] for loop, factor in schedule.unrolls.items() if not factor
    )


def _simpler(schedule: Schedule) -> Schedule:
    """Without the last unroll, or else with a smaller tile."""
    *others, last = sorted(schedule.directives, key=lambda d: isinstance(d, Unroll))
    if not isinstance(last, Unroll):
        others = [replace(d, vectors=1, lanes=4) if isinstance(d, Tile) else d for d in schedule.directives]
    return Schedule(tuple(others))


def _sizes(rng: np.random.Generator, einsum: Einsum) -> dict[str, int]:
    indices = einsum.single.indices
    sizes = {index: _extent(rng, 6 if len(indices) > 4 else 24) for index in indices}
    if rng.random() < 0.1:
        sizes[indices[0]] = int(rng.integers(50, 300))  # enough for many chunks
    for access in einsum.single.accesses:  # the same tensor, read in two ways
        first = einsum.single.access(access.tensor)
        for a, b in zip(first.indices, access.indices, strict=True):
            if b in sizes:
                sizes[b] = sizes[a]
    while np.prod(list(sizes.values())) > MOST_POINTS:
        largest = max(sizes.values())
        sizes = {index: extent // 2 if extent == largest else extent for index, extent in sizes.items()}
    return sizes


def _extent(rng: np.random.Generator, most: int) -> int:
    kind = rng.random()
    if kind < 0.1:
        return int(kind >= 0.02)
    return int(rng.integers(2, most))


def draw_entries(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, special: bool, features: set[str]
) -> tuple[tuple[int, ...], list[np.ndarray], np.ndarray]:
    """Coordinates in any order, perhaps repeated, and values."""
    total = int(np.prod(shape))
    density = float(rng.choice([0.0, 0.02, 0.1, 0.3, 1.0], p=[0.05, 0.2, 0.4, 0.3, 0.05]))
    count = min(int(rng.binomial(total, density)), 160) if total else 0
    flat = rng.integers(0, total, size=count) if total else np.zeros(0, np.int64)
    if count and rng.random() < 0.2:
        row, width = int(rng.integers(shape[0])), total // shape[0]
        flat = np.concatenate([flat, row * width + np.arange(min(width, 40))])
        features.add("dense row")
    if not len(flat):
        features.add("no entries")
    elif len(np.unique(flat // (total // shape[0]))) < shape[0]:
        features.add("empty rows")
    if len(np.unique(flat)) < len(flat):
        features.add("duplicates")
    halves = rng.integers(-4, 5, size=len(flat)) / 2  # exact sums, ties, explicit zeros
    values = (halves if rng.random() < 0.5 else rng.standard_normal(len(flat))).astype(dtype)
    if special and len(values):
        values[rng.integers(len(values))] = spoil = rng.choice([np.nan, np.inf, -np.inf, -0.0])
        features.add(f"{abs(spoil)} stored")
    return shape, list(np.unravel_index(flat, shape)) if total else [flat] * len(shape), values


def draw_dense(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, special: bool, features: set[str]
) -> np.ndarray:
    array = rng.standard_normal(shape).astype(dtype)
    if special and array.size:
        for place in rng.integers(array.size, size=1 + array.size // 20):
            array.flat[place] = spoil = rng.choice([np.nan, np.inf, -np.inf])
            features.add(f"{abs(spoil)} in a dense operand")
    layout = rng.random()
    if layout < 0.2:
        features.add("column-major operand")
        return np.asfortranarray(array)
    if layout < 0.35:
        features.add("strided operand")
        wide = np.zeros(tuple(2 * extent for extent in shape), dtype)
        view = wide[tuple(slice(None, None, 2) for _ in shape)]
        view[...] = array
        return view
    return array


def _format(
    rng: np.random.Generator,
    modes: tuple[str, ...],
    sizes: dict[str, int],
    splits: dict[str, int],
    focus: Focus = ANY,
) -> Format:
    kind = rng.random()
    if focus.stored:
        kind = {"list": 0.05, "slots": 0.2, "diagonal": 0.3, "levels": 0.9}[focus.stored]
    split = {mode: size for mode, size in splits.items() if mode in modes and rng.random() < 0.6}
    order = {}
    if rng.random() < 0.3:
        names = ("length", "length4", "degree", "rcm", "cluster")
        order = {str(rng.choice(modes)): names[int(rng.integers(len(names) if len(modes) == 2 else 3))]}
    if kind < (0.1 if len(modes) == 2 else 0.25):
        first, *others = (str(mode) for mode in rng.permutation(modes))
        return Format(modes, (Repeated(Axis(first)), *(_single(rng, mode) for mode in others)), {}, order)
    if kind < 0.4 and len(modes) == 2:
        rows, columns = (str(mode) for mode in rng.permutation(modes))
        split.pop(columns, None)
        levels = [_level(rng, axis, sizes, split) for axis in _parts(rows, split)]
        place = int(rng.integers(len(levels) + 1))
        if kind < 0.25:
            levels.insert(place, Slots(Axis(columns, "slot")))
            return Format(modes, (*levels, _single(rng, columns)), split, order)
        letter = str(rng.choice(["C", "C", "C16", "U"]))
        levels.insert(place, LEVELS[letter](Axis(columns, "diagonal", rows)))
        return Format(modes, tuple(levels), split)
    axes = [a for mode in modes for a in _parts(mode, split)]
    if rng.random() < 0.6:
        axes = [axes[int(place)] for place in rng.permutation(len(axes))]
    return Format(modes, tuple(_level(rng, axis, sizes, split) for axis in axes), split, order)


EXTRA_LEVELS: list[str] = []
"""Letters of levels of other packages, which are drawn besides those of this one."""


def _level(rng: np.random.Generator, axis: Axis, sizes: dict[str, int], splits: dict[str, int]) -> Level:
    extent = axis.extent(sizes[axis.mode], splits.get(axis.mode, 1))
    kinds = [LEVELS[letter] for letter in ("U", "U", "C", "C", "C16", "B", *EXTRA_LEVELS)]
    able = [kind for kind in kinds if kind.largest_extent is None or extent <= kind.largest_extent]
    return able[int(rng.integers(len(able)))](axis)


def _single(rng: np.random.Generator, mode: str) -> Level:
    return (Single, ShortSingle)[int(rng.integers(2))](Axis(mode))


def _agree(formats: dict[str, Format], splits: dict[str, int]) -> None:
    """Change what formats and schedule could not share: permuted indices, and splits of slots and diagonals."""
    for name, format in formats.items():
        shared = any(
            mode in other.modes for n, other in formats.items() if n != name for mode in format.orders
        )
        if shared:
            formats[name] = replace(format, orders={})
        for level in format.levels:
            axis = level.axis
            if level.single or axis.part in ("slot", "diagonal"):
                splits.pop(axis.mode, None)
                for other, stored in formats.items():
                    if axis.mode in stored.splits:
                        formats[other] = Format.parse("(i,k) -> U(i) C(k)").renamed(stored.modes)


def _parts(index: str, splits: dict[str, int], stands: dict[str, Axis] | None = None) -> tuple[Axis, ...]:
    if index in splits:
        return (Axis(index, "outer"), Axis(index, "inner"))
    return ((stands or {}).get(index, Axis(index)),)


def _stands(formats: dict[str, Format]) -> dict[str, Axis]:
    """Slots and diagonals, by the index that they stand for as loops."""
    return {a.mode: a for format in formats.values() for a in format.axes if a.part in ("slot", "diagonal")}


def _schedule(
    rng: np.random.Generator,
    workload: Workload,
    formats: dict[str, Format],
    splits: dict[str, int],
    focus: Focus = ANY,
) -> Schedule:
    loops = _order(rng, workload, formats, splits)
    directives: list[Directive] = [Split(index, size) for index, size in splits.items()]
    directives.append(Reorder(tuple(axis.name for axis in loops)))
    whole = workload.assignment.monoid.single  # else reductions stay inside an iteration
    taken = {axis for format in formats.values() for axis in format.followed}
    shared = [axis for axis in loops if whole or axis.mode in workload.assignment.free_indices]
    masks = {level.axis for format in formats.values() for level in format.levels if level.sequential}
    shared = [axis for axis in shared if axis not in taken | masks]
    if shared and rng.random() < 0.7:
        axis = shared[0] if rng.random() < 0.7 else shared[int(rng.integers(len(shared)))]
        first = next(iter(formats.values())).axes[0]
        leads = [f.levels[0] for f in formats.values() if f.axes[0] == axis]
        able = axis == first == loops[0] and (not leads[0].full or all(level.full for level in leads))
        below = next(iter(formats.values())).levels[1:2]
        cuts = whole and bool(below) and below[0].listed
        policy = "dynamic"
        if able and focus.parallel:
            policy = focus.parallel if cuts or focus.parallel != "merge-path" else "balanced"
        elif able and rng.random() < 0.6:
            policy = "merge-path" if cuts and rng.random() < 0.6 else "balanced"
        reduction = str(rng.choice(["atomic", "private"]))
        directives.append(Parallel(axis.name, policy, int(rng.choice([1, 2, 7, 64])), reduction))
        taken.add(axis)
    tiled = [axis for axis in _tileable(workload, formats, splits, loops) if axis not in taken]
    tiled = _focused(tiled, focus, workload)
    if tiled and rng.random() < (0.95 if focus.tiled else 0.7):
        axis = tiled[int(rng.integers(len(tiled)))]
        scalar = workload.assignment.argument and axis.mode in workload.assignment.reduced
        vectors, lanes = (
            (1, 1) if scalar else (int(rng.choice([1, 2, 3, 4])), int(rng.choice([1, 2, 4, 8, 16])))
        )
        directives.append(Tile(axis.name, vectors, lanes))
        taken.add(axis)
    compressed = {level.axis for format in formats.values() for level in format.levels if not level.full}
    for axis in loops:
        if axis in taken or rng.random() > (0.9 if focus.unrolled else 0.3):
            continue
        constant = axis.part == "inner" and splits[axis.mode] <= CONSTANT_SPLIT
        if constant and axis not in compressed:
            directives.append(Unroll(axis.name))
        elif not constant:
            directives.append(Unroll(axis.name, int(rng.choice([2, 3, 4]))))
    if workload.dense and rng.random() < 0.3:
        directives.append(Prefetch(str(rng.choice(workload.dense)), int(rng.choice([1, 4, 16]))))
    followed = {axis.mode for axis in taken if axis.part == "whole"}
    whole_indices = [i for i in workload.assignment.indices if i not in splits and i not in followed]
    if whole_indices and rng.random() < 0.25:
        index = whole_indices[int(rng.integers(len(whole_indices)))]
        if workload.sizes[index] > 0:
            directives.append(Bound(index, workload.sizes[index]))
    summed = [axis for axis in loops if axis.mode in workload.assignment.reduced]
    product = workload.assignment.reduction == "sum" and len(workload.assignment.factors) > 2
    if summed and product and rng.random() < 0.4:
        directives.append(Factor(summed[-1 if rng.random() < 0.7 else 0].name))
    return Schedule(tuple(directives))


def _focused(axes: list[Axis], focus: Focus, workload: Workload) -> list[Axis]:
    """Return those of some axes that a focus asks for; all, where there are none."""
    kept = workload.assignment.free_indices
    parts = [axis for axis in axes if axis.part == focus.tiled]
    both = [axis for axis in parts if focus.kept is None or (axis.mode in kept) == focus.kept]
    return both or parts or axes


def _order(
    rng: np.random.Generator, workload: Workload, formats: dict[str, Format], splits: dict[str, int]
) -> list[Axis]:
    """Loops mostly along the first operand's levels, with the others put anywhere between; else in any order."""
    stands = _stands(formats)
    loops = [axis for index in workload.assignment.indices for axis in _parts(index, splits, stands)]
    kinds = {type(level) for format in formats.values() for level in format.levels}
    if rng.random() < 0.6 or kinds & {Repeated, Slots}:  # these cannot be searched
        stored = [axis for format in formats.values() for axis in format.axes]
        own = [axis for axis in dict.fromkeys(stored) if axis in loops]
        for axis in [axis for axis in loops if axis not in own]:
            own.insert(int(rng.integers(len(own) + 1)), axis)
        loops = own
    else:
        loops = [loops[int(place)] for place in rng.permutation(len(loops))]
    if not workload.assignment.monoid.single:  # partial results cannot wait in memory
        loops.sort(key=lambda axis: axis.mode in workload.assignment.reduced)
    return loops


def _tileable(
    workload: Workload, formats: dict[str, Format], splits: dict[str, int], loops: list[Axis]
) -> list[Axis]:
    """Loops that can run in lanes: dense below all that is compressed, or the innermost compressed one."""
    program = program_for(workload, formats, Schedule(tuple(Split(i, s) for i, s in splits.items())))
    masked = program.plan().masked
    able = []
    for place, axis in enumerate(loops):
        touched = [f for f in formats.values() if axis.mode in f.modes]
        if axis.part in ("slot", "diagonal"):
            continue
        other = Axis(axis.mode, "inner" if axis.part == "outer" else "outer")
        if touched and masked:
            continue
        last = axis == loops[-1] and axis.mode in workload.assignment.reduced and axis.part != "outer"
        gathers = [f for f in touched if last and f.levels[-1].axis == axis and f.levels[-1].listed]
        dense = [f for f in touched if f not in gathers]
        if len(gathers) > 1 or not all(_full_from(f, axis) for f in dense):
            continue
        if gathers or axis.part == "whole" or other in loops[:place]:
            able.append(axis)
    return able


def _full_from(format: Format, axis: Axis) -> bool:
    """Whether no level is compressed from the first one on that depends on ``axis``."""
    first = next(
        (
            place
            for place, a in enumerate(format.axes)
            if a.mode == axis.mode and a in (axis, Axis(axis.mode))
        ),
        None,
    )
    return first is not None and all(level.full or level.single for level in format.levels[first:])
