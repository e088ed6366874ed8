"""What integers and conditions of a function in LLVM's IR are, as far as constants and the counters of its loops tell.

Integers have the bits that the IR says, and wrap around as they do there. Arrays that a function is given are far from each
other: so are those of a tensor program, and the loops that LLVM keeps for others that overlap never run.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

NAME: Final = r'(?:"[^"]+"|[\w.$-]+)'
"""What a value, a block or a function can be called."""
Counters = Mapping[str, int] | None
"""What counters of loops are, by name; None: what hangs on one is not known. Those that are not named are as at first."""
Edge = tuple[int, int]
"""A way from one block to the next, by their numbers."""
MAX_VALUE_DEPTH: Final = 120
"""Values that a value is computed from, one through the other."""
ARRAY_DISTANCE_BYTES: Final = 2**44
"""Bytes between one array and the next: no program has so many."""
POINTER_BITS: Final = 64

_ASSIGNED: Final = re.compile(rf"\s+%({NAME}) = (.*)$")
_FLAGS: Final = r"(?:(?:nuw|nsw|exact|disjoint|nneg|samesign) )*"
_LLVM_ARITHMETIC: Final = re.compile(
    rf"(add|sub|mul|sdiv|udiv|srem|urem|shl|lshr|ashr|and|or|xor) {_FLAGS}i(\d+) ([^,]+), ([^,\s]+)"
)
_CAST: Final = re.compile(
    rf"(trunc|zext|sext|freeze|ptrtoint) {_FLAGS}(?:i(\d+)|ptr) (%{NAME}|-?\d+|true|false)(?: to i(\d+))?"
)
_LEAST: Final = re.compile(r"(?:tail )?call .*@llvm\.([su])(min|max)\.i(\d+)\(i\d+ ([^,]+), i\d+ ([^)]+)\)")
_COMPARE: Final = re.compile(rf"icmp {_FLAGS}(\w+) (?:i(\d+)|ptr) ([^,]+), ([^,\s]+)")
_LOGIC: Final = re.compile(rf"(and|or|xor) i1 (%{NAME}|true|false), (%{NAME}|true|false)")
_SELECT: Final = re.compile(rf"select i1 (%{NAME}|true|false), i\d+ ([^,]+), i\d+ ([^,\s]+)")
_PHI: Final = re.compile(rf"\[ ([^,]+), %({NAME}) \]")
_STEP: Final = re.compile(rf"(add|sub) {_FLAGS}i\d+ %{NAME}, (-?\d+)")
_ARRAY: Final = re.compile(r"load ptr, |(?:tail )?call (?:\w+ )*ptr [@%]")
_WITHIN: Final = re.compile(rf"getelementptr [^%]*ptr (%{NAME})")
_INTEGER: Final = re.compile(r"-?\d+")
_COMPARISONS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
_OPERATIONS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "shl": lambda a, b: a << min(b, 64), "lshr": lambda a, b: a >> b,
    "ashr": lambda a, b: a >> b, "sdiv": lambda a, b: _quotient(a, b), "udiv": lambda a, b: _quotient(a, b),
    "srem": lambda a, b: a - b * _quotient(a, b), "urem": lambda a, b: a - b * _quotient(a, b),
}  # fmt: skip
_UNSIGNED: Final = {"udiv", "urem", "lshr"}
_TASK: Final = {"task_id": 0, "num_task": 1}
"""What TVM calls the part of a parallel loop that a function does."""


@final
class Values:
    """The values of a function.

    Args:
        labels: of its blocks; blocks: the lines of each.

    Attributes:
        gone: how often each edge of the control flow is taken, 0 for never; it grows while control is followed. If a block
            gets a value from several others, the value from the edge taken most often is used.
    """

    def __init__(self, labels: Sequence[str], blocks: Sequence[Sequence[str]]) -> None:
        self.gone = dict[Edge, float]()
        self._numbers = {label: k for k, label in enumerate(labels)}
        self._made, self._block = dict[str, str](), dict[str, int]()
        self._phis: list[list[str]] = [[] for _ in blocks]
        for number, block in enumerate(blocks):
            for line in block:
                if made := _ASSIGNED.match(line):
                    self._made[made[1]], self._block[made[1]] = made[2], number
                    if made[2].startswith("phi "):
                        self._phis[number].append(made[1])
        self._arrays = {
            name: ARRAY_DISTANCE_BYTES * (k + 1)
            for k, name in enumerate(name for name, made in self._made.items() if _ARRAY.match(made))
        }

    def counters(self, block: int) -> dict[str, list[tuple[str, int]]]:
        """Return what a block's phis are, by name: (value, block that it comes from), those that come most often first.

        What comes from where control never goes is left out.
        """
        return {"%" + name: self._incoming(name) for name in self._phis[block]}

    def _incoming(self, name: str) -> list[tuple[str, int]]:
        found = []
        for value, label in _PHI.findall(self._made[name]):
            before = self._numbers.get(label, -1)
            edge = before, self._block[name]
            if self.gone.get(edge, 1.0) > 0:
                found.append((value, before, self.gone.get(edge, -1.0)))
        return [(value, before) for value, before, _ in sorted(found, key=lambda one: -one[2])]

    def truth(self, name: str, counters: Counters, seen: frozenset[str] = frozenset()) -> bool | None:
        """What a condition is; None where it hangs on something that is not known, or on itself."""
        if name in ("true", "false"):
            return name == "true"
        if name in seen or len(seen) > MAX_VALUE_DEPTH:
            return None
        made, seen = self._made.get(name[1:], ""), seen | {name}

        def holds(part: str) -> bool | None:
            return self.truth(part, counters, seen)

        if compare := _COMPARE.match(made):
            how, bits = compare[1], int(compare[2] or POINTER_BITS)
            one, other = (self.value(part, counters, seen) for part in (compare[3], compare[4]))
            if one is None or other is None:
                return None
            if not compare[2] and one == other:  # where in an array is not known
                return None
            wrapped = _unsigned if how.startswith("u") else _signed
            return _COMPARISONS[how.removeprefix("u").removeprefix("s")](
                wrapped(one, bits), wrapped(other, bits)
            )
        if both := _LOGIC.match(made):
            first, second = holds(both[2]), holds(both[3])
            for known in (first, second):  # one of the two is often enough
                if (both[1], known) in (("and", False), ("or", True)):
                    return known
            return None if first is None or second is None else bool(_OPERATIONS[both[1]](first, second))
        if chosen := _SELECT.match(made):
            first = holds(chosen[1])
            return None if first is None else holds(chosen[2 if first else 3])
        if (cast := _CAST.match(made)) and cast[1] in ("freeze", "trunc"):
            if cast[1] == "freeze":
                return holds(cast[3])
            value = self.value(cast[3], counters, seen)
            return None if value is None else bool(value & 1)
        return None

    def value(self, text: str, counters: Counters, seen: frozenset[str] = frozenset()) -> int | None:
        """What an integer is, or an address; None where it hangs on something that is not known."""
        text = text.strip()
        if _INTEGER.fullmatch(text):
            return int(text)
        if counters and text in counters:
            return counters[text]
        if not text.startswith("%") or text in seen or len(seen) > MAX_VALUE_DEPTH:
            return None
        name = text[1:]
        if (task := _TASK.get(name.split(".")[0])) is not None:
            return task
        if name in self._arrays:
            return self._arrays[name]
        made, seen = self._made.get(name, ""), seen | {text}

        def of(part: str) -> int | None:
            return self.value(part, counters, seen)

        if one := _LLVM_ARITHMETIC.match(made):
            bits, a, b = int(one[2]), of(one[3]), of(one[4])
            if a is None or b is None:
                return None
            wrapped = _unsigned if one[1] in _UNSIGNED else _signed
            return _signed(_OPERATIONS[one[1]](wrapped(a, bits), wrapped(b, bits)), bits)
        if one := _CAST.match(made):
            return self._cast(one, of(one[3]) if one[2] != "1" else self.truth(one[3], counters, seen))
        if one := _LEAST.match(made):
            wrapped, bits = _unsigned if one[1] == "u" else _signed, int(one[3])
            both = [wrapped(value, bits) for value in (of(one[4]), of(one[5])) if value is not None]
            if not both or (counters is None and len(both) < 2):
                return None
            return min(both) if one[2] == "min" else max(both)
        if one := _SELECT.match(made):
            first = self.truth(one[1], counters, seen)
            return None if first is None else of(one[2 if first else 3])
        if one := _WITHIN.match(made):
            return of(one[1])
        if made.startswith("phi "):
            values = [of(part) for part, _ in self._incoming(name)]
            if counters is None:
                return values[0] if len(set(values)) == 1 else None
            return next((value for value in values if value is not None), None)
        return None

    @staticmethod
    def _cast(cast: re.Match[str], value: int | bool | None) -> int | None:
        if value is None:
            return None
        if cast[1] == "zext":
            return _unsigned(int(value), int(cast[2]))
        return _signed(int(value), int(cast[4] if cast[1] == "trunc" else cast[2] or POINTER_BITS))

    def compared(self, name: str) -> tuple[str, str, str] | None:
        """How a condition compares which two values; None: it is none of integers."""
        compare = _COMPARE.match(self._made.get(name[1:], ""))
        return (compare[1], compare[3].strip(), compare[4].strip()) if compare and compare[2] else None

    def step(self, later: Sequence[str], first: int | None) -> int:
        """By how much a counter that begins with ``first`` changes in an iteration; 0 where it cannot be said."""
        if not later:
            return 0
        if _INTEGER.fullmatch(later[0]):  # the second, and last
            return int(later[0]) - first if first is not None else 0
        step = _STEP.match(self._made.get(later[0][1:], ""))
        return int(step[2]) * (1 if step[1] == "add" else -1) if step else 0

    def uncast(self, value: str) -> str:
        """What a value is but for its bits."""
        while (one := _CAST.match(self._made.get(value[1:], ""))) and one[1] != "ptrtoint":
            value = one[3]
        return value


def _signed(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def _unsigned(value: int, bits: int) -> int:
    return value % (1 << bits)


def _quotient(a: int, b: int) -> int:
    """a / b, rounded towards zero as processors do; 0 for b = 0."""
    return 0 if not b else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
