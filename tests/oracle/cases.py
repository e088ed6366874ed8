"""Random programs: einsum x format x schedule x shape x values, with what they cover."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from tensorwise.program.einsum import Einsum
from tensorwise.program.program import Program, program_for
from tensorwise.program.schedule import (
    CONSTANT_SPLIT,
    Directive,
    Parallel,
    Prefetch,
    Reorder,
    Schedule,
    Split,
    Tile,
    Unroll,
)
from tensorwise.program.workload import Workload
from tensorwise.tensor.entries import entries_from
from tensorwise.tensor.format import Format
from tensorwise.tensor.levels import LEVELS
from tensorwise.tensor.remap import Axis

EINSUMS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("spmv", "C[i] += A[i,k] * B[k]", ("A",)),
    ("spmm", "C[i,j] += A[i,k] * B[k,j]", ("A",)),
    ("spmm-t", "C[j,i] += A[i,k] * B[k,j]", ("A",)),
    ("spmv-t", "C[k] += A[i,k] * B[i]", ("A",)),
    ("sddmm", "C[i,j] += A[i,j] * B[i,k] * D[k,j]", ("A",)),
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
    ("inner-sparse", "C[i] += A[i,k] * S[i,k]", ("A", "S")),
    ("sparse-sparse", "C[i,j] += A[i,k] * S[k,j]", ("A", "S")),
    ("columns", "C[j] += A[i,k] * B[k,j]", ("A",)),
)
"""Name, einsum and sparse operands."""


@dataclass
class Coverage:
    """What the drawn cases touched: (level, directive, einsum) combinations and refusals."""

    seen: Counter[tuple[str, ...]] = field(default_factory=Counter)
    drawn: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, case: "Case") -> None:
        """Count a case."""
        levels = sorted({level.letter for f in case.program.formats.values() for level in f.levels})
        directives = sorted({type(d).__name__.lower() for d in case.program.schedule.directives}) or ["none"]
        for level in levels:
            for directive in directives:
                self.seen[(case.name, level, directive)] += 1

    def table(self) -> str:
        """Return the counts as a table: a row an einsum, a column a level x directive."""
        columns = sorted({key[1:] for key in self.seen})
        width = max((len(key[0]) for key in self.seen), default=4)
        head = " " * width + " " + " ".join(f"{level}.{directive[:6]:>6}" for level, directive in columns)
        rows = [
            f"{name:<{width}} " + " ".join(f"{self.seen[(name, *column)]:>8}" for column in columns)
            for name, _, _ in EINSUMS
        ]
        refused = sum(self.refused.values())
        reasons = ", ".join(f"{reason}: {number}" for reason, number in self.refused.most_common(8))
        rate = f"{refused} of {self.drawn} drawn programs refused ({refused / max(1, self.drawn):.1%}); {reasons}"
        return "\n".join([head, *rows, rate])


@dataclass(frozen=True)
class Case:
    """A program with a workload and operands to run it on."""

    name: str
    seed: int
    program: Program
    workload: Workload
    operands: tuple[np.ndarray, ...]

    def __str__(self) -> str:
        shapes = {name: entries.shape for name, entries in self.workload.sparse.items()}
        return f"seed {self.seed} {self.name} {shapes} sizes {dict(self.workload.sizes)}\n{self.program.name}"


def draw(seed: int) -> Case:
    """Draw a case; raises FormatError or ScheduleError when the program drawn is refused."""
    rng = np.random.default_rng(seed)
    name, text, sparse = EINSUMS[int(rng.integers(len(EINSUMS)))]
    einsum = Einsum.parse(text)
    small = len(einsum.single.indices) > 4
    sizes = {index: _extent(rng, small) for index in einsum.single.indices}
    dtype = np.dtype(rng.choice([np.float32, np.float64]))
    special = bool(rng.random() < 0.15)
    operands = {}
    for operand in sparse:
        shape = tuple(sizes[i] for i in einsum.single.access(operand).indices)
        operands[operand] = entries_from(_entries(rng, shape, dtype, special))
    workload = Workload(name, einsum, operands, sizes)
    splits = {
        index: int(rng.choice([1, 2, 3, 4, 8, 16, 17, 32])) for index in sizes if rng.random() < 0.35
    }
    formats = {operand: _format(rng, einsum.single.access(operand).indices, splits) for operand in sparse}
    schedule = _schedule(rng, workload, formats, splits)
    program = program_for(workload, formats, schedule)
    dense = tuple(_dense(rng, workload.shape(operand), dtype, special) for operand in workload.dense)
    return Case(name, seed, program, workload, dense)


def _extent(rng: np.random.Generator, small: bool) -> int:
    kind = rng.random()
    if kind < 0.04:
        return 0
    if kind < 0.12:
        return 1
    return int(rng.integers(2, 6 if small else 24))


def _entries(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, special: bool
) -> tuple[tuple[int, ...], list[np.ndarray], np.ndarray]:
    total = int(np.prod(shape))
    density = float(rng.choice([0.0, 0.02, 0.1, 0.3, 1.0], p=[0.05, 0.2, 0.4, 0.3, 0.05]))
    count = min(int(rng.binomial(total, density)), 160) if total else 0
    flat = rng.integers(0, total, size=count) if total else np.zeros(0, np.int64)  # may hold duplicates
    if count and len(shape) >= 2 and rng.random() < 0.2:
        row = int(rng.integers(shape[0]))  # one dense row
        width = total // shape[0]
        flat = np.concatenate([flat, row * width + np.arange(min(width, 40))])
    values = rng.integers(-4, 5, size=len(flat)).astype(dtype) / 2 if rng.random() < 0.5 else _values(rng, len(flat), dtype)
    if special and len(values):
        values[rng.integers(len(values))] = rng.choice([np.nan, np.inf, -np.inf, 0.0])
    return shape, list(np.unravel_index(flat, shape)) if total else [flat] * len(shape), values


def _values(rng: np.random.Generator, count: int, dtype: np.dtype) -> np.ndarray:
    return rng.standard_normal(count).astype(dtype)


def _dense(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, special: bool) -> np.ndarray:
    array = rng.standard_normal(shape).astype(dtype)
    if special and array.size:
        array.flat[rng.integers(array.size)] = rng.choice([np.nan, np.inf, -np.inf])
    layout = rng.random()
    if layout < 0.2:
        return np.asfortranarray(array)
    if layout < 0.35:
        wide = np.zeros(tuple(2 * extent for extent in shape), dtype)
        view = wide[tuple(slice(None, None, 2) for _ in shape)]
        view[...] = array
        return view
    return array


def _format(rng: np.random.Generator, modes: tuple[str, ...], splits: dict[str, int]) -> Format:
    split = {mode: size for mode, size in splits.items() if mode in modes and rng.random() < 0.6}
    axes = [a for mode in modes for a in ((Axis(mode, "outer"), Axis(mode, "inner")) if mode in split else (Axis(mode),))]
    if rng.random() < 0.6:
        axes = [axes[int(place)] for place in rng.permutation(len(axes))]
    letters = sorted(LEVELS)
    levels = tuple(LEVELS[str(rng.choice(letters))](axis) for axis in axes)
    return Format(modes, levels, split)


def _schedule(
    rng: np.random.Generator, workload: Workload, formats: dict[str, Format], splits: dict[str, int]
) -> Schedule:
    indices = workload.assignment.indices
    stored = [axis for format in formats.values() for axis in format.axes]
    directives: list[Directive] = [Split(index, size) for index, size in splits.items()]
    loops = [a for i in indices for a in ((Axis(i, "outer"), Axis(i, "inner")) if i in splits else (Axis(i),))]
    if rng.random() < 0.6:
        # Mostly along the first operand's levels, with the other loops put anywhere between.
        own = [axis for axis in dict.fromkeys(stored) if axis in loops]
        rest = [axis for axis in loops if axis not in own]
        for axis in rest:
            own.insert(int(rng.integers(len(own) + 1)), axis)
        loops = own
    else:
        loops = [loops[int(place)] for place in rng.permutation(len(loops))]
    directives.append(Reorder(tuple(axis.name for axis in loops)))
    compressed = {level.axis for format in formats.values() for level in format.levels if not level.full}
    taken: set[Axis] = set()
    if rng.random() < 0.7:
        axis = loops[0] if rng.random() < 0.7 else loops[int(rng.integers(len(loops)))]
        policy = "balanced" if rng.random() < 0.3 and axis == stored[0] and axis == loops[0] else "dynamic"
        reduction = str(rng.choice(["atomic", "private"]))
        directives.append(Parallel(axis.name, policy, int(rng.choice([1, 2, 7, 64])), reduction))
        taken.add(axis)
    gathered = loops[-1] if loops and loops[-1].mode in workload.assignment.reduced else None
    free = [axis for axis in loops if (axis not in compressed or axis == gathered) and axis not in taken]
    if free and rng.random() < 0.6:
        axis = free[int(rng.integers(len(free)))]
        directives.append(Tile(axis.name, int(rng.choice([1, 2, 3, 4])), int(rng.choice([1, 2, 4, 8]))))
        taken.add(axis)
    for axis in loops:
        if axis in taken or rng.random() > 0.3:
            continue
        constant = axis.part == "inner" and splits[axis.mode] <= CONSTANT_SPLIT
        if constant and axis not in compressed:
            directives.append(Unroll(axis.name))
        elif not constant:
            directives.append(Unroll(axis.name, int(rng.choice([2, 3, 4]))))
    if workload.dense and rng.random() < 0.3:
        directives.append(Prefetch(str(rng.choice(workload.dense)), int(rng.choice([1, 4, 16]))))
    return Schedule(tuple(directives))
