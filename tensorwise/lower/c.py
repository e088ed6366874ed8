"""Print the loop IR of one kernel as C, for any compiler that has GNU vector types.

The text contains the placeholder TW_SYMBOL in each name that must be unique in a process; the toolchain replaces it. It
uses ``toolchain/prelude.h`` (vector types, binary search, atomic operations). The body of a parallel loop becomes a
function of its own, which receives the outer variables that it reads in a struct.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final

from tensorwise.lower import ir

C_TYPES: Final = {
    "f16": "uint16_t", "bf16": "uint16_t", "f32": "float", "f64": "double",
    "i32": "int32_t", "i64": "int64_t", "u16": "uint16_t", "u32": "uint32_t",
}  # fmt: skip
"""Element type -> C type in memory; halves are bits, which the prelude's ``widen`` and ``narrow`` convert."""
_INFIX: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "/",
    "bitand": "&", "shl": "<<", "shr": ">>", "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "and": "&", "or": "|",
}  # fmt: skip
LANE_OPERATORS: Final = ("lt", "le", "nle", "eq", "ne", "and", "or", "select")
"""Operators on vectors of integers that are printed as one operator: masks, and what they choose. Others go lane by lane."""


def print_c(kernel: ir.LoweredFunction) -> str:
    """Return the C text of ``kernel``: ``int TW_SYMBOL(void *const *buffers, const int64_t *sizes)``."""
    return Printer(kernel).run()


class Printer:
    """Prints one kernel as C; printers for other languages are subclasses.

    Attributes:
        integer: type of indices.
        types: element type -> type in memory.
        gathered: element types of indices for which the prelude has ``tw_gather``; others are gathered lane by lane.
    """

    integer = "int64_t"
    types = C_TYPES
    gathered: tuple[str, ...] = ("i32", "i64", "u16")

    def __init__(self, kernel: ir.LoweredFunction) -> None:
        self.kernel = kernel
        self.functions: list[str] = []
        self.numbers = count()
        self.temporary = count()

    def run(self) -> str:
        main: list[str] = []
        self.block(self.kernel.body, main, 1)
        notes = [f"/* {note} */" for note in self.kernel.notes]
        flags = any(isinstance(statement, ir.RaiseFlag) for statement in ir.walk(self.kernel.body))
        return "\n".join(
            [
                *notes,
                *self.functions,
                "int TW_SYMBOL(void *const *buffers, const int64_t *sizes)",
                "{",
                *self.unpack(self.used(self.kernel.body), "buffers", "sizes"),
                *(["    int raised_ = 0, *const flag_ = &raised_;"] if flags else []),
                *main,
                f"    return {'raised_' if flags else '0'};",
                "}",
                "",
            ]
        )

    def used(self, block: ir.Block) -> set[str]:
        """Names of buffers and variables that a block reads or writes."""
        names: set[str] = set()

        def visit(expr: ir.Expr) -> None:
            match expr:
                case ir.Var(name=name):
                    names.add(name)
                case ir.Load(buffer=buffer) | ir.SearchSorted(buffer=buffer):
                    names.add(buffer.name)
            for child in ir.children(expr):
                visit(child)

        for statement in ir.walk(block):
            if isinstance(statement, ir.BufferStore | ir.Reduce | ir.PrefetchLine):
                names.add(statement.buffer.name)
            for expr in ir.expressions(statement):
                visit(expr)
        return names

    def unpack(self, used: set[str], buffers: str, sizes: str) -> Iterator[str]:
        """Name the buffers and sizes that a function uses."""
        for place, buffer in enumerate(self.kernel.buffers, ir.LEADING_BUFFERS):
            if buffer.name in used:
                const = "" if buffer.writable else "const "
                kind = f"{const}{C_TYPES[buffer.elem]}"
                yield f"    {kind} *restrict const {buffer.name} = ({kind} *){buffers}[{place}];"
        if ir.THREADS.name in used:
            yield f"    const int64_t {ir.THREADS.name} = {sizes}[0];"
        for place, size in enumerate(self.kernel.sizes, ir.LEADING_SIZES):
            if size.name in used:
                yield f"    const int64_t {size.name} = {sizes}[{place}];"

    # -- statements ---------------------------------------------------------------------------

    def block(self, block: ir.Block, lines: list[str], depth: int) -> None:
        for statement in block:
            self.statement(statement, lines, depth)

    def statement(self, statement: ir.Stmt, lines: list[str], depth: int) -> None:
        pad = "    " * depth
        match statement:
            case ir.For(bind=ir.Workers()):
                self.parallel(statement, lines, depth)
            case ir.For(var=var, lo=lo, hi=hi, step=step, body=body):
                advance = f"++{var.name}" if step == 1 else f"{var.name} += {step}"
                stop = self.scalar(hi)
                head = f"{self.integer} {var.name} = {self.scalar(lo)}"
                if not isinstance(hi, ir.Const | ir.Var):
                    end = f"end{next(self.temporary)}_"
                    head, stop = f"{head}, {end} = {stop}", end
                lines.append(f"{pad}for ({head}; {var.name} < {stop}; {advance}) {{")
                self.block(body, lines, depth + 1)
                lines.append(f"{pad}}}")
            case ir.If(cond=cond, body=body):
                lines.append(f"{pad}if ({self.scalar(cond)}) {{")
                self.block(body, lines, depth + 1)
                lines.append(f"{pad}}}")
            case ir.Let(var=var, value=value):
                lines.append(f"{pad}const {self.type(var.type)} {var.name} = {self.value(value)};")
            case ir.Reg(var=var, init=value):
                lines.append(f"{pad}{self.type(var.type)} {var.name} = {self.value(value)};")
            case ir.Set(var=var, value=value):
                lines.append(f"{pad}{var.name} = {self.value(value)};")
            case ir.BufferStore(buffer=buffer, index=index, value=value):
                for place, part in self.elements(buffer, index, value):
                    lines.append(f"{pad}{place} = {part};")
            case ir.Reduce(buffer=buffer, index=index, operator=operator, value=value, atomic=True):
                lines.append(f"{pad}{{ {self.type(value.type)} part_ = {self.value(value)};")
                for lane in range(value.type.lanes):
                    part = f"part_[{lane}]" if value.type.lanes > 1 else "part_"
                    lines.append(
                        f"{pad}  tw_atomic_{operator}_{buffer.elem}(&{buffer.name}[{self.scalar(index, lane)}], {part});"
                    )
                lines.append(f"{pad}}}")
            case ir.Reduce(buffer=buffer, index=index, operator=operator, value=value):
                if isinstance(index, ir.Ramp) or index.type.lanes == 1:
                    merged = ir.compute(operator, ir.Load(buffer, index), value)
                    for place, part in self.elements(buffer, index, merged):
                        lines.append(f"{pad}{place} = {part};")
                else:
                    lines.append(f"{pad}{{ {self.type(value.type)} part_ = {self.value(value)};")
                    for lane in range(value.type.lanes):
                        place = f"{buffer.name}[{self.scalar(index, lane)}]"
                        merged_text = self.operation(
                            operator, [place, f"part_[{lane}]"], ir.Type(value.type.elem)
                        )
                        lines.append(f"{pad}  {place} = {merged_text};")
                    lines.append(f"{pad}}}")
            case ir.RaiseFlag():
                lines.append(f"{pad}__atomic_store_n((int *)flag_, 1, __ATOMIC_RELAXED);")
            case ir.PrefetchLine(buffer=buffer, index=index):
                lines.append(f"{pad}__builtin_prefetch(&{buffer.name}[{self.scalar(index)}], 0, 3);")

    def elements(self, buffer: ir.Buffer, index: ir.Expr, value: ir.Expr) -> Iterator[tuple[str, str]]:
        """Yield (place, value) of the C assignments that a store needs."""
        half = buffer.elem in ir.HALVES
        cast = "" if half or buffer.elem == value.type.elem else f"({self.types[buffer.elem]})"
        lanes = index.type.lanes
        text = self.value(value)
        if half:
            text = f"tw_narrow_{buffer.elem}{f'x{lanes}' if lanes > 1 else ''}({text})"
        if lanes == 1:
            yield f"{buffer.name}[{self.scalar(index)}]", cast + text
            return
        vector = f"tw_u16x{lanes}" if half else f"tw_{buffer.elem}x{lanes}"
        if isinstance(index, ir.Ramp):
            yield f"*({vector}u *)&{buffer.name}[{self.scalar(index.base)}]", text
        else:
            name = f"stored{next(self.temporary)}_"
            yield f"const {vector if half else self.type(value.type)} {name}", text
            for lane in range(lanes):
                yield f"{buffer.name}[{self.scalar(index, lane)}]", f"{name}[{lane}]"

    def parallel(self, loop: ir.For, lines: list[str], depth: int) -> None:
        """Print the loop's body as a function and call the driver with it."""
        number = next(self.numbers)
        name = f"TW_SYMBOL_body{number}"
        used = self.used(loop.body)
        defined = {s.var.name for s in ir.walk(loop.body) if isinstance(s, ir.For | ir.Let | ir.Reg)}
        given = {b.name for b in self.kernel.buffers} | {s.name for s in self.kernel.sizes}
        special = {loop.var.name, ir.THREADS.name, ir.THREAD.name}
        names = sorted(used - defined - given - special)
        types = {
            v.name: v.type for s in ir.walk(loop.body) for e in ir.expressions(s) for v in ir.variables(e)
        }
        captured = [(self.type(types[v]), v) for v in names]
        if any(isinstance(statement, ir.RaiseFlag) for statement in ir.walk(loop.body)):
            captured.append(("int *", "flag_"))
        body: list[str] = []
        self.block(loop.body, body, 2)
        fields = "".join(f" {kind} {v};" for kind, v in captured)
        self.functions.append(
            "\n".join(
                [
                    f"typedef struct {{ void *const *buffers; const int64_t *sizes;{fields} }} {name}_context;",
                    f"static void {name}(void *context_, int64_t lo_, int64_t hi_, int64_t thread)",
                    "{",
                    f"    const {name}_context *const given_ = (const {name}_context *)context_;",
                    *self.unpack(used, "given_->buffers", "given_->sizes"),
                    *(f"    const {kind} {v} = given_->{v};" for kind, v in captured),
                    f"    for (int64_t {loop.var.name} = lo_; {loop.var.name} < hi_; ++{loop.var.name}) {{",
                    *body,
                    "    }",
                    "}",
                ]
            )
        )
        pad = "    " * depth
        lo, hi = self.scalar(loop.lo), self.scalar(loop.hi)
        bind = loop.bind
        assert isinstance(bind, ir.Workers)
        chunk, bounds, parts = "sizes[1]", "(const int64_t *)0", "0"
        if bind.policy == "even":
            chunk = "(hi_ - lo_ + sizes[0] - 1) / sizes[0]"
        elif bind.policy == "balanced":
            bounds, parts = "(const int64_t *)buffers[1]", "sizes[2]"
        values = "".join(f", {v}" for _, v in captured)
        lines.extend(
            [
                f"{pad}{{",
                f"{pad}    {name}_context given_ = {{buffers, sizes{values}}};",
                f"{pad}    const int64_t lo_ = {lo}, hi_ = {hi};",
                f"{pad}    tw_run((tw_driver)buffers[0], {name}, &given_, lo_, hi_, sizes[0], {chunk}, {bounds}, {parts});",
                f"{pad}}}",
            ]
        )

    # -- expressions --------------------------------------------------------------------------

    def type(self, type: ir.Type) -> str:
        """Name of a type that is computed with."""
        if type.lanes > 1:
            return f"tw_{type.elem}x{type.lanes}"
        return self.integer if type.elem == "i64" else self.types[type.elem]

    def value(self, expr: ir.Expr) -> str:
        """C text of a scalar or of a vector of floats."""
        if expr.type.lanes == 1:
            return self.scalar(expr)
        vector = self.type(expr.type)
        match expr:
            case ir.Var(name=name):
                return name
            case ir.Const(value=value, type=type):
                return self.list_of(vector, [self.literal(float(value), type.elem)] * type.lanes)
            case ir.Splat(value=inner) if not expr.type.is_float:
                return self.integers(inner, expr.type)
            case ir.Splat(value=inner, lanes=lanes):
                return f"tw_splat_{inner.type.elem}x{lanes}({self.scalar(inner)})"
            case ir.Op(name="narrow", args=(inner,), type=type):
                return self.integers(inner, type)
            case ir.Ramp() | ir.Load() if not expr.type.is_float:
                return self.integers(expr, expr.type)
            case ir.Op(name=name) if not expr.type.is_float and name not in LANE_OPERATORS:
                return self.integers(expr, expr.type)
            case ir.Load(buffer=buffer, index=index):
                half, lanes = buffer.elem in ir.HALVES, index.type.lanes
                kept = f"tw_u16x{lanes}" if half else vector
                if isinstance(index, ir.Ramp):
                    bits = f"*(const {kept}u *)&{buffer.name}[{self.scalar(index.base)}]"
                elif (
                    isinstance(index, ir.Load)
                    and isinstance(index.index, ir.Ramp)
                    and index.buffer.elem in self.gathered
                    and not half
                ):
                    where = f"&{index.buffer.name}[{self.scalar(index.index.base)}]"
                    name = f"tw_gather_{buffer.elem}x{lanes}_{index.buffer.elem}"
                    bits = f"{name}({buffer.name}, {where})"
                else:
                    parts = [f"{buffer.name}[{self.scalar(index, lane)}]" for lane in range(lanes)]
                    bits = self.list_of(kept, parts)
                return f"tw_widen_{buffer.elem}x{lanes}({bits})" if half else bits
            case ir.Op(name="select", args=(condition, chosen, other), type=type) if (
                condition.type.lanes == 1
            ):
                sides = f"({vector}){self.value(chosen)} : ({vector}){self.value(other)}"
                return f"({self.scalar(condition)} ? {sides})"
            case ir.Op(name=name, args=args, type=type):
                return self.operation(name, [self.value(argument) for argument in args], type)
            case ir.Folds(operator=operator, vectors=vectors):
                kind = vectors[0].type
                values = ", ".join(map(self.value, vectors))
                return f"tw_folds_{operator}_{kind.elem}x{kind.lanes}({values})"
        raise TypeError(f"no vector form of {expr}")

    def integers(self, expr: ir.Expr, type: ir.Type) -> str:
        """C text of a vector of integers, each lane converted to the lanes' width by itself.

        Memory holds integers of other widths than those that are computed with. Only neighbours of the same width are
        loaded as a vector.
        """
        vector, cast = self.type(type), f"({self.types[type.elem]})"
        if expr.type.lanes == 1:
            return self.repeated(vector, f"{cast}{self.scalar(expr)}")
        match expr:
            case ir.Var(type=own) if own == type:
                return expr.name
            case ir.Load(buffer=buffer, index=ir.Ramp(base=base)) if buffer.elem == type.elem:
                return f"*(const {vector}u *)&{buffer.name}[{self.scalar(base)}]"
        return self.list_of(vector, [f"{cast}{self.scalar(expr, lane)}" for lane in range(type.lanes)])

    def repeated(self, vector: str, part: str) -> str:
        """Text of a vector with the same integer in all lanes."""
        return f"(({vector}){{0}} + {part})"

    def list_of(self, vector: str, parts: Iterable[str]) -> str:
        """Text of a vector from its lanes."""
        return f"({vector}){{{', '.join(parts)}}}"

    def scalar(self, expr: ir.Expr, lane: int = 0) -> str:
        """C text of a scalar, or of one lane of a vector of indices."""
        match expr:
            case ir.Const(value=value, type=type):
                return self.literal(value, type.elem)
            case ir.Var(name=name, type=type):
                return name if type.lanes == 1 else f"{name}[{lane}]"
            case ir.Load(buffer=buffer, index=index):
                element = f"{buffer.name}[{self.scalar(index, lane)}]"
                return f"tw_widen_{buffer.elem}({element})" if buffer.elem in ir.HALVES else element
            case ir.Splat(value=inner):
                return self.scalar(inner)
            case ir.Ramp(base=base):
                return f"({self.scalar(base)} + {lane})"
            case ir.Op(name=name, args=args, type=type):
                texts = [self.scalar(a, lane) for a in args]
                if name in ("add", "sub", "mul"):  # what lies in memory as shorter integers counts in 64 bits
                    narrow = [isinstance(a, ir.Load) and a.buffer.elem in ("i32", "u16", "u32") for a in args]
                    texts = [f"({self.integer}){t}" if n else t for t, n in zip(texts, narrow, strict=True)]
                return self.operation(name, texts, ir.Type(type.elem))
            case ir.SearchSorted(buffer=buffer, lo=lo, hi=hi, coordinate=coordinate):
                bounds = f"{self.scalar(lo)}, {self.scalar(hi)}, {self.scalar(coordinate)}"
                return f"tw_search_{buffer.elem}({buffer.name}, {bounds})"
            case ir.Fold(operator=operator, vector=vector):
                return f"tw_fold_{operator}_{vector.type.elem}x{vector.type.lanes}({self.value(vector)})"
        raise TypeError(f"no scalar form of {expr}")

    def operation(self, name: str, arguments: list[str], type: ir.Type) -> str:
        """C text of an operator on C texts."""
        if name in _INFIX:
            return f"({arguments[0]} {_INFIX[name]} {arguments[1]})"
        if name == "popcount":
            return f"(int64_t)__builtin_popcountll((uint64_t){arguments[0]})"
        if name == "neg":
            return f"(-{arguments[0]})"
        if name == "nle":
            return f"({'~' if type.lanes > 1 else '!'}({arguments[0]} <= {arguments[1]}))"
        if name == "select" and type.lanes > 1:
            return f"tw_select_{type.elem}x{type.lanes}({', '.join(arguments)})"
        if name == "select":
            return f"({arguments[0]} ? {arguments[1]} : {arguments[2]})"
        suffix = type.elem if type.lanes == 1 else f"{type.elem}x{type.lanes}"
        if name == "abs":
            (value,) = arguments
            if type.lanes > 1:
                return f"tw_select_{suffix}({value} <= 0, 0 - {value}, {value})"  # also -0 becomes +0
            return f"__builtin_fabs{'f' if type.elem == 'f32' else ''}({value})"
        return f"tw_{'f' if type.is_float else ''}{name}_{suffix}({', '.join(arguments)})"

    def literal(self, value: float | int, elem: str) -> str:
        """C text of a number; 64-bit integers carry a suffix so that nothing wraps."""
        if elem[0] == "i":
            return str(int(value)) if abs(int(value)) < 2**31 else f"INT64_C({int(value)})"
        if math.isinf(value):
            return f"({'-' if value < 0 else ''}__builtin_inf{'f' if elem == 'f32' else ''}())"
        if math.isnan(value):
            return f'__builtin_nan{"f" if elem == "f32" else ""}("")'
        return f"{float(value)!r}{'f' if elem == 'f32' else ''}"
