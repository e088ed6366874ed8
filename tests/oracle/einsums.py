"""Random einsums: expression trees over any operands, the numbers of entries among the indices."""

from dataclasses import dataclass, field

import numpy as np

from tensorwise.program.einsum import Einsum
from tensorwise.program.joined import value_without

NAMES = "BDEFGHKLMNQRUVWXYZ"
"""Of dense operands, in the order in which they are drawn. Sparse ones are called A and S."""
DEEPEST = 3


@dataclass
class _Drawing:
    rng: np.random.Generator
    modes: list[str]
    free: list[str]
    reads: bool
    """Whether the values of A may be read."""
    numbered: bool
    """Whether the numbers of A's entries may be indices."""
    known: dict[str, list[str]] = field(default_factory=dict)
    """Dense operands so far, and their indices."""
    compared: set[str] = field(default_factory=set)
    """Those that hold numbers to compare with."""

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one_of(self, items: list[str]) -> str:
        return str(self.rng.choice(items))

    @property
    def stored(self) -> str:
        return f"A[{','.join(self.modes)}]"

    def indices(self, most: int) -> list[str]:
        drawn = [str(index) for index in self.rng.permutation([*self.modes, *self.free])]
        count = int(self.rng.integers(1, most + 1))
        return ["A", *drawn[: count - 1]] if self.numbered and self.chance(0.4) else drawn[:count]

    def dense(self, most: int = 3) -> str:
        """A new dense operand, or one that is there, read as it was."""
        old = [name for name in self.known if name not in self.compared]
        if old and (self.chance(0.15) or len(self.known) == len(NAMES)):
            name = self.one_of(old)
        elif len(self.known) == len(NAMES):
            return "2"
        else:
            name = NAMES[len(self.known)]
            self.known[name] = self.indices(most)
        return f"{name}[{','.join(self.known[name])}]"

    def leaf(self) -> str:
        if self.chance(0.15):
            return self.one_of(["0", "1", "2", "0.5"])
        return self.stored if self.reads and self.chance(0.3) else self.dense()

    def condition(self, depth: int) -> str:
        if self.chance(0.5) and len(self.known) < len(NAMES):
            name = NAMES[len(self.known)]
            self.known[name] = self.indices(2)
            self.compared.add(name)
            index = "A" if self.chance(0.5) else self.one_of([*self.modes, *self.known[name]])
            return f"{name}[{','.join(self.known[name])}] == {index}"
        return f"{self.expression(depth + 2)} {self.one_of(['<', '<='])} {self.expression(depth + 2)}"

    def expression(self, depth: int = 0) -> str:
        kind = float(self.rng.random())
        if depth > DEEPEST or kind < 0.25 + 0.1 * depth:
            return self.leaf()
        first = self.expression(depth + 1)
        if 0.9 <= kind < 0.95:
            return f"{self.one_of(['abs', 'exp', '-'])}({first})"
        second = self.expression(depth + 1)
        if kind < 0.65:
            return f"({first}) * ({second})"
        if kind < 0.85:
            return f"({first}) {self.one_of(['+', '-', '/'])} ({second})"
        if kind < 0.9:
            return f"{self.one_of(['max', 'min'])}({first}, {second})"
        return f"({first} if {self.condition(depth)} else {second})"


def draw_einsum(rng: np.random.Generator, several: bool = False) -> tuple[str, tuple[str, ...]]:
    """Return an assignment and its sparse operands; what is drawn is in the language, but may be refused as a workload.

    Args:
        several: with a second sparse operand, S, that multiplies all the rest, where that leaves no term without A: it would
            be refused, rightly, for A[i,k] / A[i,k].
    """
    modes = list("iklm"[: int(rng.choice([2, 2, 2, 3, 4]))])
    drawing = _Drawing(rng, modes, list("fgh"[: int(rng.integers(3))]), bool(rng.random() < 0.5), False)
    drawing.numbered = drawing.chance(0.4)
    pattern = not drawing.reads and not several
    body = drawing.expression()
    if not pattern and (several or drawing.stored not in body):
        sign = "*" if several or drawing.chance(0.7) else drawing.one_of(["+", "-"])
        body = f"{drawing.stored} {sign} ({body})"
    used = {*modes, *(index for known in drawing.known.values() for index in known)} - {"A"}
    if several:
        second = [str(index) for index in rng.permutation(sorted(used))[:2]]
        joined = f"S[{','.join(second)}] * ({body})"
        several = (
            len(second) == 2 and value_without(Einsum.parse(f"C[i] += {joined}").single.expression, "A") == 0
        )
        body = joined if several else body
    kept = [str(index) for index in rng.permutation(sorted(used)) if rng.random() < 0.5]
    output = kept
    if drawing.chance(0.2):  # seldom with coordinates of the entries themselves, one of which each entry has
        own = modes if drawing.chance(0.3) else []
        output = ["A", *(index for index in kept if index not in modes or index in own)]
    output = output or modes[:1]
    reduced = used - {*output, *(modes if output[0] == "A" else ())}
    sign = drawing.one_of(["+", "+", "+", "max", "min", "prod", "mean", "argmax", "argmin"])
    if several or (sign.startswith("arg") and len(reduced) != 1):
        sign = "+"
    if not reduced and drawing.chance(0.5):
        sign = ""
    text = f"C[{','.join(output)}] {sign}= {body}{f' for {drawing.stored}' if pattern else ''}"
    return text, ("A", "S") if several else ("A",)
