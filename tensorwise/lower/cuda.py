"""The CUDA printer: loop IR -> CUDA C++, a kernel for each launch; and what each launch is to be called with.

It derives from the C printer and differs in loops distributed over blocks, shared memory and barriers of a team, and in how
vectors are made. The text uses ``toolchain/prelude.cuh`` and contains the token TW_SYMBOL where a name must be unique.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tensorwise.lower import ir
from tensorwise.lower.c import C_TYPES, Printer

CUDA_TYPES: Final = {
    **C_TYPES, "f16": "unsigned short", "bf16": "unsigned short", "i32": "int", "i64": "long long",
    "u16": "unsigned short", "u32": "unsigned int",
}  # fmt: skip
MOST_BLOCKS: Final = {"x": 2**31 - 1, "y": 65535}
"""Blocks along each axis of a grid, on every GPU since 2012."""
UNKNOWN_BLOCKS: Final = {"x": 65536, "y": 64}
"""Blocks where the number of iterations is known inside a launch only; they take more than one, or none."""


@final
@dataclass(frozen=True)
class Launch:
    """A kernel of the text, and how it is to be launched.

    Attributes:
        name: its name, with the token TW_SYMBOL.
        buffers, sizes: names of its arguments, in this order.
        teams, threads: the shape of a block: ``threads`` along x, ``teams`` along y.
        ranges: by axis of the grid the iterations that are dealt: first, end, how many a block takes at a time.
        lets: names that they may use.
    """

    name: str
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]
    teams: int
    threads: int
    ranges: Mapping[str, tuple[ir.Expr, ir.Expr, int]]
    lets: Mapping[ir.Expr, ir.Expr]

    def grid(self, sizes: Mapping[str, int], arrays: Mapping[str, np.ndarray]) -> tuple[int, int]:
        """Return the number of blocks along x and y that take each one share; any other number is right, too.

        None along x: there is nothing to do, and no need to launch it.
        """

        def count(axis: str) -> int:
            if axis not in self.ranges:
                return 1
            first, end, share = self.ranges[axis]
            try:
                extent = self._number(end, sizes, arrays) - self._number(first, sizes, arrays)
            except KeyError:
                return UNKNOWN_BLOCKS[axis]
            return min(max(int(axis == "y"), -(-extent // share)), MOST_BLOCKS[axis])

        return count("x"), count("y")

    def _number(self, expr: ir.Expr, sizes: Mapping[str, int], arrays: Mapping[str, np.ndarray]) -> int:
        """Evaluate an index; KeyError where it depends on loops inside."""
        match self.lets.get(expr, expr):
            case ir.Const(value=value):
                return int(value)
            case ir.Var(name=name):
                return sizes[name]
            case ir.Load(buffer=buffer, index=index):
                return int(arrays[buffer.name][self._number(index, sizes, arrays)])
            case ir.Op(name=name, args=args):
                values = [self._number(argument, sizes, arrays) for argument in args]
                return _EVALUATED[name](*values)
        raise KeyError(expr)


_EVALUATED: Final[dict[str, Callable[..., int]]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "min": min,
    "max": max,
}


def print_cuda(kernel: ir.LoweredFunction) -> tuple[str, tuple[Launch, ...]]:
    """Return the CUDA C++ text of ``kernel`` and its launches, in the order in which they run."""
    launches, named = list[Launch](), list[ir.Stmt]()
    texts = [f"/* {note} */" for note in kernel.notes]
    for statement in kernel.body:
        if ir.launches(statement):
            printer = _CudaPrinter(kernel, (*named, statement), len(launches))
            texts.append(printer.run())
            launches.append(printer.launch())
        else:  # names for sizes and the like, which each launch finds out for itself
            assert isinstance(statement, ir.Let)
            named.append(statement)
    return "\n".join(texts), tuple(launches)


@final
class _CudaPrinter(Printer):
    """The text of one launch."""

    integer = "tw_int"
    types = CUDA_TYPES
    gathered = ()

    def __init__(self, kernel: ir.LoweredFunction, body: ir.Block, number: int) -> None:
        super().__init__(kernel)
        self.body, self.name = body, f"TW_SYMBOL_{number}"
        self.dealt = ir.launches(body[-1])
        used = self.used(body)
        self.given = [b for b in kernel.buffers if b.name in used]
        self.counts = [size for size in kernel.sizes if size.name in used]
        self.scratch = [(b, length) for b, length in kernel.scratch if b.name in used]

    def launch(self) -> Launch:
        """Return how to call the kernel that ``run`` prints."""
        shape = self.dealt["x"]
        ranges = {
            s.bind.axis: (s.lo, s.hi, s.step * s.bind.teams)
            for s in ir.walk(self.body)
            if isinstance(s, ir.For) and isinstance(s.bind, ir.Blocks)
        }
        lets: dict[ir.Expr, ir.Expr] = {s.var: s.value for s in ir.walk(self.body) if isinstance(s, ir.Let)}
        buffers, sizes = tuple(b.name for b in self.given), tuple(s.name for s in self.counts)
        return Launch(self.name, buffers, sizes, shape.teams, shape.threads, ranges, lets)

    def run(self) -> str:
        """Return the text of the launch."""
        lines: list[str] = []
        self.block(self.body, lines, 1)
        shape = self.dealt["x"]
        return "\n".join(
            [
                f'extern "C" __global__ void __launch_bounds__({shape.threads * shape.teams}) {self.name}(',
                f"    {', '.join(self.parameters())})",
                "{",
                f"    const tw_int {ir.LANE.name} = threadIdx.x;",
                *self.memory(shape.teams),
                *lines,
                "}",
                "",
            ]
        )

    def parameters(self) -> Iterator[str]:
        """The arguments of the launch."""
        for buffer in self.given:
            const = "" if buffer.writable else "const "
            yield f"{const}{self.types[buffer.elem]} *__restrict__ {buffer.name}"
        for size in self.counts:
            yield f"tw_int {size.name}"

    def memory(self, teams: int) -> Iterator[str]:
        """What each team has for itself: its part of the block's shared memory."""
        for buffer, length in self.scratch:
            kind = self.types[buffer.elem]
            yield f"    __shared__ {kind} all_{buffer.name}[{teams * length}];"
            yield f"    {kind} *const {buffer.name} = all_{buffer.name} + threadIdx.y * {length};"

    def statement(self, statement: ir.Stmt, lines: list[str], depth: int) -> None:
        """Print what only GPUs have; the rest is C."""
        pad = "    " * depth
        threads = self.dealt["x"].threads
        match statement:
            case ir.For(var=var, step=step, body=body, bind=ir.Blocks(axis=axis, teams=teams)):
                share = step * teams
                first = f"(tw_int)blockIdx.{axis} * {share}"
                if teams > 1:
                    first += f" + (tw_int)threadIdx.y{f' * {step}' if step > 1 else ''}"
                lo, hi, i = self.scalar(statement.lo), self.scalar(statement.hi), var.name
                start = first if statement.lo == ir.Const(0) else f"{lo} + {first}"
                advance = f"{i} += (tw_int)gridDim.{axis} * {share}"
                lines.append(f"{pad}for (tw_int {i} = {start}; {i} < {hi}; {advance}) {{")
                self.block(body, lines, depth + 1)
                lines.append(f"{pad}}}")
            case ir.Reduce(
                buffer=buffer, index=ir.Ramp(base=base, lanes=lanes), operator="add", atomic=True
            ) if lanes > 1:
                place = f"&{buffer.name}[{self.scalar(base)}]"
                added = self.value(ir.widen(statement.value, lanes))
                lines.append(f"{pad}tw_atomic_add_{buffer.elem}x{lanes}({place}, {added});")
            case ir.Barrier():
                lines.append(f"{pad}tw_meet<{threads}>();")
            case ir.ShuffleXor(var=var, value=value, distance=distance):
                exchanged = f"tw_exchange<{threads}>({self.value(value)}, {distance})"
                lines.append(f"{pad}const {self.type(var.type)} {var.name} = {exchanged};")
            case _:
                super().statement(statement, lines, depth)

    def repeated(self, vector: str, part: str) -> str:
        """Text of a vector with the same integer in all lanes."""
        return f"tw_repeated<{vector}>({part})"

    def list_of(self, vector: str, parts: Iterable[str]) -> str:
        """Text of a vector from its lanes."""
        return f"{vector}{{{{{', '.join(parts)}}}}}"

    def operation(self, name: str, arguments: list[str], type: ir.Type) -> str:
        """Text of an operator on texts."""
        if name == "popcount":
            return f"(tw_int)__popcll((unsigned long long){arguments[0]})"
        if name == "abs":
            function = "tw_absolute" if type.lanes > 1 else "fabsf" if type.elem == "f32" else "fabs"
            return f"{function}({arguments[0]})"
        return super().operation(name, arguments, type)

    def literal(self, value: float | int, elem: str) -> str:
        """Text of a number."""
        if elem[0] == "i":
            return str(int(value)) if abs(int(value)) < 2**31 else f"{int(value)}LL"
        if math.isinf(value):
            return f"{'-' if value < 0 else ''}TW_INFINITY_{elem}"
        if math.isnan(value):
            return f"TW_NAN_{elem}"
        return super().literal(value, elem)
