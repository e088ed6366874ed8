"""A proof that a kernel touches only elements that its arrays have; a kernel without one is refused.

::

    for i in 0 .. N_i:                       A1_pos has N_i + 1 elements, from 0 to n_A1, ascending
      for p in A1_pos[i] .. A1_pos[i+1]:     so that 0 <= p < n_A1
        k = A1_crd[p]                        A1_crd has n_A1 elements, from 0 to N_k - 1
        acc += A_values[p] * B_values[k]     A_values has n_A1 elements, B_values has N_k: both are proved
      out[i] = acc

What arrays hold is established when operands are packed (`tensorwise/lower/arrays.py` says what), so that the proof is
about loops, conditions and index arithmetic alone. It holds for all sizes: one kernel is proved once. Values that come from
elsewhere are any integer, until a condition bounds them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn, TypeAlias, final

from tensorwise.errors import UnprovenError
from tensorwise.lower import ir
from tensorwise.lower.inequalities import Inequalities
from tensorwise.lower.ir import Buffer, Const, Expr, Load, Op, Var
from tensorwise.lower.loops import head, text
from tensorwise.lower.polynomials import Poly

Idiom: TypeAlias = Callable[[Expr, Mapping[str, Load]], tuple[Expr, Expr] | None]


@dataclass(frozen=True)
class Array:
    """What is known of a buffer before the kernel runs.

    Attributes:
        length: how many elements it has.
        columns: lowest and highest value of each column, where elements are integers with known bounds; an array that is no
            table has one column.
        ascending: its elements ascend and the first is 0, as those of ``pos``.
    """

    length: Expr
    columns: tuple[tuple[Expr, Expr], ...] = ()
    ascending: bool = False


@dataclass(frozen=True)
class Facts:
    """What a proof starts from.

    Attributes:
        arrays: by name of the buffer.
        least: lowest value of each size.
        equal: sizes that are given by others.
        bits: buffers of masks -> the pointers to the positions of their bits: mask ``p`` has ``pos[p + 1] - pos[p]`` bits.
        idioms: functions from an expression to its lowest and highest value, where arithmetic alone does not tell; None: it
            is no such expression. They are also given the registers from which bits of masks are taken, one for each
            position -> the mask.
    """

    arrays: Mapping[str, Array]
    least: Mapping[str, int] = field(default_factory=dict)
    equal: Mapping[str, Expr] = field(default_factory=dict)
    bits: Mapping[str, Buffer] = field(default_factory=dict)
    idioms: Sequence[Idiom] = ()


def prove_bounds(kernel: ir.LoweredFunction, facts: Facts) -> None:
    """Raise UnprovenError unless ``kernel`` is proved to access only existing elements of its arrays.

    The message names the access. A kernel of our own lowering that is refused is a fault of Tensorwise, but a harmless one.
    """
    _Proof(kernel, facts).run()


@final
class _Proof:
    """One walk over a kernel, outer statements before inner ones."""

    def __init__(self, kernel: ir.LoweredFunction, facts: Facts) -> None:
        self.kernel, self.facts = kernel, facts
        self.known = Inequalities()
        self.values: dict[str, Poly] = {}
        self.conditions: dict[str, Expr] = {}
        self.registers: set[str] = set()
        self.masks: dict[str, Load] = {}
        self.passed: dict[str, Poly] = {}
        self.sizes = {size.name for size in kernel.sizes} | facts.least.keys() | facts.equal.keys()
        self.atoms: dict[object, Poly] = {}
        self.quotients: dict[Poly, tuple[Poly, Poly]] = {}
        self.arrays = dict(facts.arrays)
        for buffer, length in kernel.scratch:
            source = facts.arrays.get(buffer.name.removesuffix("_staged"), Array(Const(0)))
            self.arrays[buffer.name] = Array(Const(length), source.columns)
        self.statement: ir.Stmt = ir.RaiseFlag()
        self.touched: dict[tuple[str, Poly], dict[int, tuple[Expr, ir.Stmt]]] = {}

    def run(self) -> None:
        """Prove the whole kernel."""
        for name in sorted(self.sizes):
            self.size(name)
        one, zero = Poly.constant(1), Poly.constant(0)
        threads = self.values[ir.THREADS.name] = self.known.unknown(ir.THREADS.name, one)
        self.values[ir.THREAD.name] = self.known.unknown(ir.THREAD.name, zero, threads - 1)
        self.block(self.kernel.body)

    def size(self, name: str) -> Poly:
        """Return the value of a size, which is known when the kernel is called."""
        if name not in self.values:
            given = self.facts.equal.get(name)
            least = Poly.constant(self.facts.least.get(name, 0))
            self.values[name] = self.known.unknown(name, least) if given is None else self.integer(given)
        return self.values[name]

    # -- statements ---------------------------------------------------------------------------

    def block(self, block: ir.Block) -> None:
        """Prove the statements of a block; what each touches is looked at together."""
        outside, self.touched = self.touched, {}
        for place, statement in enumerate(block):
            self.statement = statement
            for expr in ir.expressions(statement):
                self.reads(expr)
            match statement:
                case ir.Let(var=var, value=value) if var.type.elem[0] == "i":
                    self.conditions[var.name] = value
                    self.values[var.name] = self.integer(value)
                case ir.ShuffleXor(var=var):
                    self.registers.add(var.name)
                case ir.Reg(var=var, init=init):
                    self.registers.add(var.name)
                    self.starts(var.name, init, block[place:])
                case ir.BufferStore(buffer=buffer, index=index, value=value):
                    self.touch(buffer, index)
                    self.stores(statement)
                case ir.Reduce(buffer=buffer, index=index):
                    self.touch(buffer, index)
                case ir.For():
                    self.loop(statement)
                case ir.If(cond=cond, body=body):
                    with self.known.scope():
                        self.assume(cond)
                        self.block(body)
        self.prove()
        self.touched = outside

    def starts(self, register: str, init: Expr, block: ir.Block) -> None:
        """Note a register that holds the bits of a mask, if the rest of its block takes one for each position."""
        if isinstance(init, Load) and init.buffer.name in self.facts.bits and takes_bits_in_order(block):
            self.masks[register] = init
            self.passed[register] = self.integer(Load(self.facts.bits[init.buffer.name], init.index))

    def passes(self, loop: ir.For, lo: Poly, hi: Poly) -> None:
        """Forget a mask whose bits a loop takes for other positions than the mask has."""
        for register in {s.var.name for s in loop.body if isinstance(s, ir.Set)} & self.masks.keys():
            mask = self.masks[register]
            end = self.integer(Load(self.facts.bits[mask.buffer.name], mask.index + 1))
            whole = not (hi - lo).parted(Poly.constant(loop.step))[1].terms
            if lo != self.passed[register] or not whole or not self.known.holds(end - hi):
                del self.masks[register]
            self.passed[register] = hi

    def loop(self, loop: ir.For) -> None:
        """Prove a loop's body: its variable is ``lo + step * number``, and lies below ``hi``."""
        lo, hi, step = self.integer(loop.lo), self.integer(loop.hi), Poly.constant(loop.step)
        self.passes(loop, lo, hi)
        if isinstance(loop.bind, ir.Blocks):
            last = Poly.constant(loop.bind.threads - 1)
            self.values[ir.LANE.name] = self.known.unknown(ir.LANE.name, Poly.constant(0), last)
        with self.known.scope():
            zero = Poly.constant(0)
            if loop.step == 1:
                number = self.known.unknown(loop.var.name, lo, hi - 1)
                self.values[loop.var.name] = number
            else:
                number = self.known.unknown(f"{loop.var.name}/{loop.step}", zero)
                self.values[loop.var.name] = lo + step * number
                self.known.assume(hi - 1 - self.values[loop.var.name])
            self.known.assume(hi - lo - 1)  # an iteration runs
            self.block(loop.body)

    def stores(self, store: ir.BufferStore) -> None:
        """Check that what a team keeps is what the proof takes it for: elements of the array that it is named after."""
        if all(store.buffer != buffer for buffer, _ in self.kernel.scratch):
            return
        value = store.value
        if not isinstance(value, Load) or f"{value.buffer.name}_staged" != store.buffer.name:
            raise UnprovenError(f"{store.buffer.name} would keep {text(value)}, of which nothing is known")

    def assume(self, condition: Expr) -> None:
        """Take it as given, to the end of the scope, that ``condition`` is not 0."""
        match condition:
            case Var(name=name) if name in self.conditions:
                self.assume(self.conditions[name])
            case Op(name="and", args=(left, right)):
                self.assume(left)
                self.assume(right)
            case Op(name="lt" | "le" | "eq" as name, args=(left, right)) if left.type == right.type == ir.I64:
                distance = self.integer(right) - self.integer(left)
                self.known.assume(distance - 1 if name == "lt" else distance)
                if name == "eq":
                    self.known.assume(-distance)

    # -- what is touched ----------------------------------------------------------------------

    def reads(self, expr: Expr) -> None:
        """Note every element that an expression reads."""
        match expr:
            case Load(buffer=buffer, index=index):
                self.touch(buffer, index)
            case ir.SearchSorted(buffer=buffer, lo=lo, hi=hi):
                with self.known.scope():
                    first, last = self.integer(lo), self.integer(hi) - 1
                    self.known.assume(last - first)
                    self.inside(buffer.name, first, lo)
                    self.inside(buffer.name, last, hi)
        for child in ir.children(expr):
            self.reads(child)

    def touch(self, buffer: Buffer, index: Expr) -> None:
        """Note an element by its distance from others of the block: only the first and the last are looked at."""
        place = self.integer(index)
        constant = place.terms.get((), 0)
        self.touched.setdefault((buffer.name, place - constant), {})[constant] = index, self.statement

    def prove(self) -> None:
        """Prove what was noted in a block."""
        for (buffer, place), indices in self.touched.items():
            for constant in {min(indices), max(indices)}:
                index, self.statement = indices[constant]
                self.inside(buffer, place + constant, index)

    def inside(self, buffer: str, place: Poly, index: Expr) -> None:
        """Raise UnprovenError unless ``place`` is one of the buffer's."""
        array = self.arrays.get(buffer)
        if array is None:
            self.refuse(buffer, index, "nothing is known of the array's length")
        length = self.integer(array.length)
        if not self.known.holds(place):
            self.refuse(buffer, index, f"the index, {self.known.text(place)}, may be negative")
        if not self.known.holds(length - 1 - place):
            bound = f"the index, {self.known.text(place)}, may exceed the last one of {self.known.text(length)} elements"
            self.refuse(buffer, index, bound)

    def refuse(self, buffer: str, index: Expr, why: str) -> NoReturn:
        """Raise UnprovenError."""
        where = head(self.statement)
        raise UnprovenError(
            f"not proved: that {buffer}[{text(index)}] is inside of {buffer}, in `{where}`: {why}"
        )

    # -- integers -----------------------------------------------------------------------------

    def integer(self, expr: Expr) -> Poly:
        """Return an integer, or what any of a vector's lanes is, as a polynomial.

        Raises KeyError for a variable that no statement has named.
        """
        match expr:
            case Const(value=value):
                return Poly.constant(int(value))
            case Var(name=name):
                if name in self.sizes:
                    return self.size(name)
                return self.known.unknown(name) if name in self.registers else self.values[name]
            case ir.Splat(value=value) | Op(name="narrow", args=(value,)):
                return self.integer(value)
            case ir.Ramp(base=base, lanes=lanes):
                high = Poly.constant(lanes - 1)
                return self.integer(base) + self.atom(
                    ("lane", lanes), f"0..{lanes - 1}", Poly.constant(0), high
                )
            case Load(buffer=buffer, index=index):
                return self.loaded(buffer, self.integer(index), expr)
            case ir.SearchSorted(buffer=buffer, lo=lo, hi=hi, coordinate=coordinate):
                first, end = self.integer(lo), self.integer(hi)
                key = ("search", buffer.name, first, end, self.integer(coordinate))
                return self.atom(key, partial(text, expr), Poly.constant(-1), end - 1)
        for idiom in self.facts.idioms:
            found = idiom(expr, self.masks)
            if found is not None:
                low, high = map(self.integer, found)
                return self.known.unknown(partial(text, expr), low, high)
        if isinstance(expr, Op):
            made = self.computed(expr)
            extent = self.kernel.joined.get(expr) if self.kernel.joined and expr.name == "add" else None
            if extent is not None:
                self.known.assume(self.integer(extent) - 1 - made)
            return made
        return self.known.unknown(partial(text, expr))

    def computed(self, expr: Op) -> Poly:
        """Return the result of an operator."""
        match expr:
            case Op(name="add", args=(left, right)):
                return self.integer(left) + self.integer(right)
            case Op(name="sub", args=(left, right)):
                return self.integer(left) - self.integer(right)
            case Op(name="mul", args=(left, right)):
                return self.integer(left) * self.integer(right)
            case Op(name="neg", args=(value,)):
                return -self.integer(value)
            case Op(name="floordiv", args=(left, right)):
                return self.divided(self.integer(left), self.integer(right))
            case Op(name="min" | "max" as name, args=(left, right)):
                return self.chosen(name, self.integer(left), self.integer(right))
            case Op(name="select", args=(_, chosen, other)):
                return self.chosen("select", self.integer(chosen), self.integer(other))
        return self.known.unknown(partial(text, expr))

    def _between(self, left: Poly, sign: str, right: Poly) -> str:
        return f"({self.known.text(left)}{sign}{self.known.text(right)})"

    def atom(
        self, key: object, name: str | Callable[[], str], low: Poly | None = None, high: Poly | None = None
    ) -> Poly:
        """Return the unknown of that key, the same each time."""
        if key not in self.atoms:
            self.atoms[key] = self.known.unknown(name, low, high)
        return self.atoms[key]

    def loaded(self, buffer: Buffer, index: Poly, expr: Expr) -> Poly:
        """Return the integer that a buffer has at an index: equal indices, equal numbers."""
        array, key = self.arrays.get(buffer.name), (buffer.name, index)
        scratch = any(buffer == kept for kept, _ in self.kernel.scratch)
        if key in self.atoms and not buffer.writable:
            return self.atoms[key]
        if array is None or not array.columns or (buffer.writable and not scratch):
            return self.known.unknown(partial(text, expr))
        low, high = map(self.integer, array.columns[_column(index, len(array.columns))])
        self.atoms[key] = made = self.known.unknown(
            partial(text, expr), low, high, pointer=index if array.ascending else None
        )
        if array.ascending:
            self.ordered(buffer.name, index, made)
        return made

    def ordered(self, name: str, index: Poly, made: Poly) -> None:
        """Assume how an element of an ascending array compares with the others that are known."""
        one = Poly.constant(1)
        for key, other in self.atoms.items():
            if isinstance(key, tuple) and key[0] == name and other != made:
                distance = (index - key[1]).value
                if distance is not None and distance > 0:
                    self.known.bound(made, one, low=other)
                elif distance is not None:
                    self.known.bound(made, one, high=other)

    def divided(self, number: Poly, by: Poly) -> Poly:
        """Return a quotient, which C rounds towards 0."""
        if by.value == 1:
            return number
        whole, rest = number.parted(by)
        certain = self.known.holds(number)
        if not self.known.holds(by - 1):
            return self.known.unknown("quotient")
        if not certain:
            whole, rest = Poly.constant(0), number
        value, size = rest.value, by.value
        if value is not None and size is not None and (certain or value >= 0):
            return whole + value // size
        key = ("quotient", rest, by, certain)
        if key not in self.atoms:
            name = partial(self._between, rest, " / ", by)
            zero = Poly.constant(0)
            bounds = (rest, rest) if certain else (self.chosen(sign, rest, zero) for sign in ("min", "max"))
            least, most = bounds
            self.atoms[key] = quotient = self.known.unknown(name)
            self.known.bound(quotient, by, low=rest - by + 1, high=most)
            if not certain:
                self.known.bound(quotient, by, low=least)
            elif self.known.holds(rest):
                self.known.bound(quotient, Poly.constant(1), low=zero)
        quotient = self.atoms[key]
        for other, (larger, divisor) in self.quotients.items():
            if divisor == by and larger != rest:
                self.compare(quotient, other, larger - rest)
        self.quotients[quotient] = rest, by
        return whole + quotient

    def compare(self, quotient: Poly, other: Poly, difference: Poly) -> None:
        """Assume which of two quotients by the same number is the larger, where the order of the dividends is known."""
        for more, less, distance in ((other, quotient, difference), (quotient, other, -difference)):
            if distance.is_simple(1) and self.known.holds(distance):
                self.known.order(more, less)

    def chosen(self, name: str, left: Poly, right: Poly) -> Poly:
        """Return the smaller, the larger, or either of two numbers."""
        if left == right:
            return left
        key = (name, left, right)
        if key not in self.atoms:
            cases = (left, right)
            shown = partial(self._between, left, f" {name} ", right)
            self.atoms[key] = made = self.known.unknown(shown, least=cases, most=cases)
            one = Poly.constant(1)
            for case in cases:
                if name == "min":
                    self.known.bound(made, one, high=case)
                elif name == "max":
                    self.known.bound(made, one, low=case)
        made = self.atoms[key]
        # Said here, where what bounds the cases has not cancelled yet: of ``b + min(o, n - 1 - b)`` it would.
        if name == "min" and all(map(self.known.holds, (left, right))):
            self.known.assume_not_negative(made)
        return made


def _column(index: Poly, columns: int) -> int:
    """Return the column of a table that an index lies in; the last one where that is not known."""
    constant = index.terms.get((), 0)
    if columns > 1 and any(factor % columns for monomial, factor in index.terms.items() if monomial):
        return columns - 1
    return constant % columns


def takes_bits_in_order(block: ir.Block) -> bool:
    """Whether a register, declared first in a block, loses its lowest bit in each iteration of loops that read it::

    left = mask[p];  for q in pos[p] .. pos[p+1]: c = lowest(left); left = left & (left - 1); ...
    """
    declared = block[0]
    assert isinstance(declared, ir.Reg)
    register = declared.var
    updates = [s for s in ir.walk(block) if isinstance(s, ir.Set) and s.var == register]
    loops = [s for s in block if isinstance(s, ir.For) and any(u is t for u in updates for t in s.body)]
    direct = 0
    for loop in loops:
        places = [place for place, s in enumerate(loop.body) if isinstance(s, ir.Set) and s.var == register]
        after = loop.body[places[-1] + 1 :]
        again = any(register in ir.variables(e) for s in ir.walk(after) for e in ir.expressions(s))
        if len(places) != loop.step or again:
            return False
        direct += len(places)
    lowered = Op("bitand", (register, register - 1), ir.I64)
    return bool(loops) and direct == len(updates) and all(u.value == lowered for u in updates)
