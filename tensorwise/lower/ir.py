"""The loop IR: what a lowered program looks like. Printers and the interpreter read nothing else.

::

    kernel = Kernel(buffer*, size*, block)        buffer = Buffer(name, elem, writable)
    block  = stmt*
    stmt   = For(var, lo, hi, step, block, bind) | If(cond, block) | Let(var, expr)
           | Reg(var, init) | Set(var, expr) | Store(buffer, index, expr)
           | Reduce(buffer, index, operator, expr, atomic) | PrefetchLine(buffer, index) | RaiseFlag
           | Barrier | ShuffleXor(var, expr, distance)
    bind   = None (serial) | Workers(policy) | Blocks(axis, teams, threads)
    expr   = Const(value, type) | Var(name, type) | Load(buffer, index) | Op(name, expr*, type)
           | Splat(expr, lanes) | Ramp(base, lanes) | Fold(operator, vector) | Folds(operator, vector*)
    type   = elem x lanes;  elem = f32 | f64 | i64 | i32 of vectors      (of a buffer also f16 | bf16 | i32 | u16 | u32)

Indices and loop variables are i64; vectors of coordinates to choose by are as wide as the floats that they are beside
(``narrow``). What compares vectors gives lanes of 0 or -1. A Load or Store whose index is a Ramp moves ``lanes`` neighbours;
one whose index is any other vector gathers. Lowering unrolls; printers never do.

On a GPU a statement with loops bound to Blocks is a launch: every thread of every block runs all of it. The threads of a
*team* do so for the same iterations; LANE numbers them, Barrier and ShuffleXor let them cooperate, and a kernel's
``scratch`` is memory that each team has for itself.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from tensorwise.moved import forward_names


@dataclass(frozen=True)
class Type:
    """Element type and number of lanes (1 = scalar)."""

    elem: str
    lanes: int = 1

    @property
    def is_float(self) -> bool:
        """Whether elements are floating-point numbers."""
        return self.elem[0] == "f"


I64: Final = Type("i64")
HALVES: Final = ("f16", "bf16")
"""Elements that only memory knows: a Load makes f32 of them, a Store rounds to nearest even."""


class _Arithmetic:
    """Operators on expressions, folding constants, so that index arithmetic reads like arithmetic."""

    type: Type

    def __add__(self, other: "Expr | int") -> "Expr":
        return binary("add", self, other)  # type: ignore[arg-type]

    def __radd__(self, other: int) -> "Expr":
        return binary("add", other, self)  # type: ignore[arg-type]

    def __sub__(self, other: "Expr | int") -> "Expr":
        return binary("sub", self, other)  # type: ignore[arg-type]

    def __rsub__(self, other: int) -> "Expr":
        return binary("sub", other, self)  # type: ignore[arg-type]

    def __mul__(self, other: "Expr | int") -> "Expr":
        return binary("mul", self, other)  # type: ignore[arg-type]

    def __rmul__(self, other: int) -> "Expr":
        return binary("mul", other, self)  # type: ignore[arg-type]

    def __floordiv__(self, other: "Expr | int") -> "Expr":
        return binary("floordiv", self, other)  # type: ignore[arg-type]

    def __and__(self, other: "Expr | int") -> "Expr":
        return binary("bitand", self, other)  # type: ignore[arg-type]

    def __lshift__(self, other: "Expr | int") -> "Expr":
        return binary("shl", self, other)  # type: ignore[arg-type]

    def __rshift__(self, other: "Expr | int") -> "Expr":
        return binary("shr", self, other)  # type: ignore[arg-type]

    def bit_count(self) -> "Expr":
        """Return how many bits are set, as ``int.bit_count`` does."""
        return Op("popcount", (self,), I64)  # type: ignore[arg-type]

    def smaller(self, other: "Expr | int") -> "Expr":
        """Return the smaller of two integers."""
        return smaller(self, Const(other) if isinstance(other, int) else other)  # type: ignore[arg-type]

    def larger(self, other: "Expr | int") -> "Expr":
        """Return the larger of two integers."""
        right = Const(other) if isinstance(other, int) else other
        return Op("max", (self, right), I64)  # type: ignore[arg-type]

    def at_most(self, other: "Expr | int") -> "Expr":
        """Return 1 where this integer is at most the other one, else 0."""
        right = Const(other) if isinstance(other, int) else other
        return select(compare("le", self, right), Const(1), Const(0))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Const(_Arithmetic):
    """A literal."""

    value: float | int
    type: Type = I64


@dataclass(frozen=True)
class Var(_Arithmetic):
    """A size, loop variable, Let or Reg."""

    name: str
    type: Type = I64


@dataclass(frozen=True)
class Buffer:
    """A one-dimensional array handed to the kernel; ``buffer[index]`` is a Load."""

    name: str
    elem: str
    writable: bool = False

    def __getitem__(self, index: "Expr | int") -> "Load":
        return Load(self, as_expr(index))

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return int(self.elem.lstrip("bfiu")) // 8


@dataclass(frozen=True)
class Load(_Arithmetic):
    """Element, neighbours (Ramp) or gathered elements of a buffer. Halves widen to f32, integers to i64."""

    buffer: Buffer
    index: "Expr"

    @property
    def type(self) -> Type:  # type: ignore[override]
        """The buffer's element type, widened, with the index's lanes."""
        elem = self.buffer.elem
        if elem in HALVES:
            return Type("f32", self.index.type.lanes)
        return Type(elem if elem[0] == "f" else "i64", self.index.type.lanes)


@dataclass(frozen=True)
class Op(_Arithmetic):
    """A named operator: add sub mul div floordiv neg abs max min exp, lt le nle eq ne and or (0 or 1), select, narrow,
    bitand shl shr popcount (of integers that are not negative)."""

    name: str
    args: "tuple[Expr, ...]"
    type: Type


@dataclass(frozen=True)
class SearchSorted(_Arithmetic):
    """Position of ``coordinate`` in the ascending ``buffer[lo:hi]``, or -1."""

    buffer: Buffer
    lo: "Expr"
    hi: "Expr"
    coordinate: "Expr"
    type: Type = I64


@dataclass(frozen=True)
class Splat(_Arithmetic):
    """A scalar repeated in all lanes."""

    value: "Expr"
    lanes: int

    @property
    def type(self) -> Type:  # type: ignore[override]
        """The value's element type, widened."""
        return Type(self.value.type.elem, self.lanes)


@dataclass(frozen=True)
class Ramp(_Arithmetic):
    """base, base + 1, ..., base + lanes - 1."""

    base: "Expr"
    lanes: int

    @property
    def type(self) -> Type:  # type: ignore[override]
        """i64 with this many lanes."""
        return Type("i64", self.lanes)


@dataclass(frozen=True)
class Fold(_Arithmetic):
    """All lanes of a vector combined into a scalar; the operator ``nan`` tells whether one is NaN (not 0)."""

    operator: str
    vector: "Expr"

    @property
    def type(self) -> Type:  # type: ignore[override]
        """The vector's element type, scalar."""
        return Type(self.vector.type.elem)


@dataclass(frozen=True)
class Folds(_Arithmetic):
    """The folds of several vectors side by side: lane l is Fold(operator, vectors[l])."""

    operator: str
    vectors: "tuple[Expr, ...]"

    @property
    def type(self) -> Type:  # type: ignore[override]
        """The vectors' element type, a lane for each."""
        return Type(self.vectors[0].type.elem, len(self.vectors))


Expr: TypeAlias = Const | Var | Load | Op | SearchSorted | Splat | Ramp | Fold | Folds


@dataclass(frozen=True)
class Workers:
    """Iterations are handed to threads in chunks (``dynamic``) or in given parts (``balanced``)."""

    policy: str


@dataclass(frozen=True)
class Blocks:
    """Iterations are dealt to the blocks of a GPU's grid along ``axis``: ``teams`` at a time, one a team of threads.

    Along ``y`` all teams of a block share an iteration.
    """

    axis: str
    teams: int
    threads: int


Binding: TypeAlias = Workers | Blocks | None
"""Who gets the iterations of a loop."""


@dataclass(frozen=True)
class For:
    """``for var in range(lo, hi, step)``."""

    var: Var
    lo: Expr
    hi: Expr
    step: int
    body: "Block"
    bind: Binding = None


@dataclass(frozen=True)
class If:
    """Run ``body`` when ``cond`` is not zero."""

    cond: Expr
    body: "Block"


@dataclass(frozen=True)
class Let:
    """Name a value once."""

    var: Var
    value: Expr


@dataclass(frozen=True)
class Reg:
    """Declare a mutable variable."""

    var: Var
    init: Expr


@dataclass(frozen=True)
class Set:
    """Assign to a Reg."""

    var: Var
    value: Expr


@dataclass(frozen=True)
class BufferStore:
    """Write an element, or neighbours when the index is a Ramp; halves are rounded to nearest even."""

    buffer: Buffer
    index: Expr
    value: Expr


@dataclass(frozen=True)
class Reduce:
    """``buffer[index] = operator(buffer[index], value)``, atomically (element by element) if asked."""

    buffer: Buffer
    index: Expr
    operator: str
    value: Expr
    atomic: bool = False


@dataclass(frozen=True)
class PrefetchLine:
    """Ask for the cache line of an element; the address need not be valid."""

    buffer: Buffer
    index: Expr


@dataclass(frozen=True)
class RaiseFlag:
    """Let the kernel's function return 1: its results want a second look."""


@dataclass(frozen=True)
class Barrier:
    """Wait for all threads of the team; each then sees what the others wrote before."""


@dataclass(frozen=True)
class ShuffleXor:
    """Bind ``var`` to ``value`` in the lane whose number is this one's XOR ``distance``, a power of two."""

    var: Var
    value: Expr
    distance: int


Stmt: TypeAlias = (
    For | If | Let | Reg | Set | BufferStore | Reduce | PrefetchLine | RaiseFlag | Barrier | ShuffleXor
)
Block = tuple[Stmt, ...]


@dataclass(frozen=True)
class LoweredFunction:
    """A lowered program: buffers and sizes in the order of the call, and the body.

    The generated function is ``int f(void *const *buffers, const int64_t *sizes)``. Before the
    named ones, buffers hold the parallel driver's address and the part bounds; before the named
    ones, sizes hold threads, chunk and number of parts. THREAD is the number of the running thread.
    """

    buffers: tuple[Buffer, ...]
    sizes: tuple[Var, ...]
    body: Block
    notes: tuple[str, ...] = field(default=())
    scratch: tuple[tuple[Buffer, int], ...] = field(default=())
    joined: Mapping["Expr", Expr] = field(default_factory=dict)
    """Coordinates put together from two parts that stored entries have -> the extent, below which they lie: operands are
    packed from such entries. Proofs start from this, and the interpreter checks it."""


LEADING_BUFFERS: Final = 2
LEADING_SIZES: Final = 3
THREADS: Final = Var("threads")
THREAD: Final = Var("thread")
LANE: Final = Var("lane")
"""The number of a thread in its team on a GPU."""


def as_expr(value: "Expr | int") -> Expr:
    """Wrap an int as an i64 constant."""
    return Const(value) if isinstance(value, int) else value


_FOLDED: Final[dict[str, Callable[[int, int], int]]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": lambda x, y: x // y if y else 0,
    "bitand": operator.and_,
    "shl": operator.lshift,
    "shr": operator.rshift,
}


def binary(name: str, left: "Expr | int", right: "Expr | int") -> Expr:
    """Build integer arithmetic, folding constants, neutral elements and ramps."""
    a, b = as_expr(left), as_expr(right)
    if isinstance(a, Const) and isinstance(b, Const) and a.type == b.type == I64:
        x, y = int(a.value), int(b.value)
        return Const(_FOLDED[name](x, y))
    zero_a, zero_b = a == Const(0), b == Const(0)
    match name:
        case "add" if zero_a:
            return b
        case "add" | "sub" if zero_b:
            return a
        case "mul" if a == Const(1):
            return b
        case "mul" | "floordiv" if b == Const(1):
            return a
        case "mul" if (zero_a and b.type.lanes == 1) or (zero_b and a.type.lanes == 1):
            return Const(0)
        case "add" if isinstance(b, Ramp) and a.type.lanes == 1:
            return Ramp(binary("add", a, b.base), b.lanes)
        case "add" | "sub" if isinstance(a, Ramp) and b.type.lanes == 1:
            return Ramp(binary(name, a.base, b), a.lanes)
    lanes = max(a.type.lanes, b.type.lanes)
    return Op(name, (widen(a, lanes), widen(b, lanes)), Type(a.type.elem, lanes))


def widen(value: Expr, lanes: int) -> Expr:
    """Repeat a scalar in ``lanes`` lanes; vectors stay."""
    return value if value.type.lanes == lanes else Splat(value, lanes)


def compute(name: str, *arguments: Expr) -> Expr:
    """Apply a combine operator to values of any lanes."""
    lanes = max(a.type.lanes for a in arguments)
    return Op(name, tuple(widen(a, lanes) for a in arguments), Type(arguments[0].type.elem, lanes))


def integer_elem(elem: str) -> str:
    """Element type of integers that are as wide as floats: i32 beside f32, i64 beside f64."""
    return f"i{elem[1:]}"


def narrow(value: Expr, type: Type) -> Expr:
    """Coordinates in the lanes of ``type``: i32 or i64. They have to fit."""
    return value if value.type == type else Op("narrow", (value,), type)


def compare(name: str, left: Expr, right: Expr, elem: str = "") -> Expr:
    """Compare scalars, or lanes of floats or integers (brought to the width of ``elem``): lt, le, eq or ne; ``nle``: not le,
    which is gt, or that one is NaN.
    """
    lanes = max(left.type.lanes, right.type.lanes)
    if lanes == 1:
        return Op(name, (left, right), I64)
    if left.type.is_float:
        kind = Type(integer_elem(left.type.elem), lanes)
        return Op(name, (widen(left, lanes), widen(right, lanes)), kind)
    kind = Type(elem or left.type.elem, lanes)
    return Op(name, (narrow(left, kind), narrow(right, kind)), kind)


def both(left: Expr, right: Expr) -> Expr:
    """Whether two scalar conditions hold."""
    return Op("and", (left, right), I64)


def select(condition: Expr, chosen: Expr, other: Expr) -> Expr:
    """``chosen`` where the condition holds, in all lanes or in each."""
    lanes = max(condition.type.lanes, chosen.type.lanes, other.type.lanes)
    return Op("select", (condition, widen(chosen, lanes), widen(other, lanes)), Type(chosen.type.elem, lanes))


def smaller(left: Expr, right: Expr) -> Expr:
    """The smaller of two indices."""
    if isinstance(left, Const) and isinstance(right, Const):
        return Const(min(left.value, right.value))
    return Op("min", (left, right), I64)


def walk(block: Block) -> Iterator[Stmt]:
    """Yield every statement, outer before inner."""
    for statement in block:
        yield statement
        if isinstance(statement, For | If):
            yield from walk(statement.body)


def launches(statement: Stmt) -> dict[str, Blocks]:
    """By what its loops are dealt to the blocks of a GPU: axis of the grid -> bind; empty: it is no launch."""
    loops = (s for s in walk((statement,)) if isinstance(s, For))
    return {loop.bind.axis: loop.bind for loop in loops if isinstance(loop.bind, Blocks)}


def expressions(statement: Stmt) -> tuple[Expr, ...]:
    """The expressions that a statement itself evaluates (bodies excluded)."""
    match statement:
        case For(lo=lo, hi=hi):
            return (lo, hi)
        case If(cond=cond):
            return (cond,)
        case Let(value=value) | Set(value=value) | ShuffleXor(value=value):
            return (value,)
        case Reg(init=init):
            return (init,)
        case BufferStore(index=index, value=value) | Reduce(index=index, value=value):
            return (index, value)
        case PrefetchLine(index=index):
            return (index,)
        case RaiseFlag() | Barrier():
            return ()


def children(expr: Expr) -> tuple[Expr, ...]:
    """Direct sub-expressions."""
    match expr:
        case Load(index=index):
            return (index,)
        case Op(args=args):
            return args
        case SearchSorted(lo=lo, hi=hi, coordinate=coordinate):
            return (lo, hi, coordinate)
        case Splat(value=value):
            return (value,)
        case Ramp(base=base):
            return (base,)
        case Fold(vector=vector):
            return (vector,)
        case Folds(vectors=vectors):
            return vectors
    return ()


def substituted(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """Return ``expr`` with each part that ``known`` has replaced by what it says."""
    if expr in known:
        return known[expr]

    def inside(part: Expr) -> Expr:
        return substituted(part, known)

    match expr:
        case Load(index=index):
            return replace(expr, index=inside(index))
        case Op(args=args):
            return replace(expr, args=tuple(map(inside, args)))
        case SearchSorted(lo=lo, hi=hi, coordinate=coordinate):
            return replace(expr, lo=inside(lo), hi=inside(hi), coordinate=inside(coordinate))
        case Splat(value=value):
            return replace(expr, value=inside(value))
        case Ramp(base=base):
            return replace(expr, base=inside(base))
        case Fold(vector=vector):
            return replace(expr, vector=inside(vector))
        case Folds(vectors=vectors):
            return replace(expr, vectors=tuple(map(inside, vectors)))
    return expr


def rewritten(statement: Stmt, known: Mapping[Expr, Expr]) -> Stmt:
    """Return a statement with the expressions that it evaluates itself substituted (bodies excluded)."""
    match statement:
        case Let(value=value) | Set(value=value):
            return replace(statement, value=substituted(value, known))
        case Reg(init=init):
            return replace(statement, init=substituted(init, known))
        case BufferStore(value=value) | Reduce(value=value):
            index = substituted(statement.index, known)
            return replace(statement, index=index, value=substituted(value, known))
    return statement


def parts(expr: Expr) -> Iterator[Expr]:
    """An expression and all that it is made of."""
    yield expr
    for child in children(expr):
        yield from parts(child)


def loads(expr: Expr) -> Iterator[Load]:
    """Every load in an expression."""
    return (part for part in parts(expr) if isinstance(part, Load))


def variables(expr: Expr) -> Iterator[Var]:
    """Every variable that an expression reads."""
    return (part for part in parts(expr) if isinstance(part, Var))


__getattr__ = forward_names(__name__, {
    "Store": f"{__name__}:BufferStore", "Kernel": f"{__name__}:LoweredFunction",
    "Meet": f"{__name__}:Barrier", "Exchange": f"{__name__}:ShuffleXor",
})  # fmt: skip
