"""How often the basic blocks of a program in LLVM's IR run, read from its text; LLVM itself is not needed.

Shapes of tensor programs are constant, so that bounds of loops are, or follow from what share of a parallel loop a task
gets: one task is taken to do all of it. Where a branch goes is known where it hangs on constants alone, and how often where
it hangs on loop counters, by draws of them; else both sides are as likely, but for what returns at once, which nobody who
calls a working program sees (the return heuristic of Ball and Larus, PLDI 1993); where all of it returns, what the compiler
expects.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, final

UNKNOWN: Final = 4.0
"""Iterations of a loop of which nothing is known."""
DRAWS: Final = 32
"""Of the counters of loops, to see how often a condition holds."""
DEEPEST: Final = 60
"""Values that a value is computed from, one through the other."""
MARK: Final = "#BLOCK"
"""Begins the comments that mark blocks in assembly; see `marked`."""

Place = tuple[int, int]
"""A block: the number of its function, and its own in there."""
Counters = Mapping[str, int] | None
"""What counters of loops are, by name."""

_NAME: Final = r'(?:"[^"]+"|[\w.$-]+)'
_LABEL: Final = re.compile(rf"({_NAME}):")
_TARGETS: Final = re.compile(rf"label %({_NAME})")
_ASSIGNED: Final = re.compile(rf"\s+%({_NAME}) = (.*)$")
_ENDS: Final = re.compile(r"\s+(br|switch|ret|unreachable|indirectbr|invoke|resume)\b")
_BRANCH: Final = re.compile(rf"\s*br i1 (%{_NAME}|true|false),")
_WEIGHTS: Final = re.compile(r'^!(\d+) = !\{!"branch_weights"(.*)\}$', re.MULTILINE)
_WEIGHED: Final = re.compile(r"!prof !(\d+)")
_DEFINED: Final = re.compile(rf"@({_NAME})\(")
_GLOBALS: Final = re.compile(rf"@({_NAME})")
_FLAGS: Final = r"(?:(?:nuw|nsw|exact|disjoint|nneg|samesign) )*"
_ARITHMETIC: Final = re.compile(
    rf"(add|sub|mul|sdiv|udiv|srem|urem|shl|lshr|ashr|and|or|xor) {_FLAGS}i\d+ ([^,]+), ([^,\s]+)"
)
_CAST: Final = re.compile(rf"(?:trunc|zext|sext|freeze) {_FLAGS}i\d+ (%{_NAME}|-?\d+)")
_LEAST: Final = re.compile(r"(?:tail )?call .*@llvm\.[su](min|max)\.i\d+\(i\d+ ([^,]+), i\d+ ([^)]+)\)")
_COMPARE: Final = re.compile(rf"icmp {_FLAGS}(\w+) i\d+ ([^,]+), ([^,\s]+)")
_LOGIC: Final = re.compile(rf"(and|or|xor) i1 (%{_NAME}|true|false), (%{_NAME}|true|false)")
_CHOICE: Final = re.compile(rf"select i1 (%{_NAME}), i1 (%{_NAME}|true|false), i1 (%{_NAME}|true|false)")
_PHI: Final = re.compile(rf"\[ ([^,]+), %({_NAME}) \]")
_STEP: Final = re.compile(rf"(add|sub) {_FLAGS}i\d+ %{_NAME}, (-?\d+)")
_INTEGER: Final = re.compile(r"-?\d+")
_COMPARISONS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "slt": lambda a, b: a < b, "ult": lambda a, b: a < b, "sle": lambda a, b: a <= b, "ule": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b, "ugt": lambda a, b: a > b, "sge": lambda a, b: a >= b, "uge": lambda a, b: a >= b,
}  # fmt: skip
_OPERATIONS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "shl": lambda a, b: a << min(b, 64), "lshr": lambda a, b: a >> b,
    "ashr": lambda a, b: a >> b, "sdiv": lambda a, b: _quotient(a, b), "udiv": lambda a, b: _quotient(a, b),
    "srem": lambda a, b: a - b * _quotient(a, b), "urem": lambda a, b: a - b * _quotient(a, b),
}  # fmt: skip
_TASK: Final = {"task_id": 0, "num_task": 1}
"""What TVM calls the part of a parallel loop that a function does."""


@final
@dataclass(frozen=True)
class Runs:
    """How a block runs.

    Attributes:
        times: all in all; alone: whether it is a loop of its own, from its first instruction to its last.
    """

    times: float
    alone: bool


def runs(text: str) -> dict[Place, Runs]:
    """Return how often each block of a module runs when the function that it exports is called once.

    Args:
        text: the module, as LLVM prints it; a loop that is not understood is taken to run UNKNOWN times.
    """
    functions = list(_functions(text))
    flows = [_Flow(one) for one in functions]
    numbers = {one.name: k for k, one in enumerate(functions)}
    once = [float(one.exported) for one in functions]
    called = once
    for _ in functions:  # calls go from function to function, at most so deep
        now = list(once)
        for k, flow in enumerate(flows):
            for name, times in flow.calls:
                if name in numbers and numbers[name] != k:
                    now[numbers[name]] += called[k] * times
        if now == called:
            break
        called = now
    return {
        (k, block): Runs(called[k] * times, block in flow.next[block])
        for k, flow in enumerate(flows)
        for block, times in flow.times.items()
    }


def marked(text: str) -> str:
    """Return the module with a comment for the assembler at the beginning of each block, which names its `Place`.

    They are no instructions, and move hardly any: 16 of 1,915 are added where it was looked at.
    """
    lines = text.split("\n")
    for k, function in reversed(list(enumerate(_functions(text)))):
        for number, first in reversed(list(enumerate(function.first))):
            lines.insert(first, f'  call void asm sideeffect "{MARK} {k} {number}", ""()')
    return "\n".join(lines)


@final
@dataclass(eq=False)
class _Function:
    """A function: its blocks' lines, in their order; ``first`` has where in the text instructions begin behind phis.

    ``weights`` are of the module's branches, by the number that branches name.
    """

    name: str
    exported: bool
    weights: Mapping[str, list[int]]
    labels: list[str] = field(default_factory=list)
    blocks: list[list[str]] = field(default_factory=list)
    first: list[int] = field(default_factory=list)

    @cached_property
    def assigned(self) -> dict[str, str]:
        """What each value is, by name."""
        found = (_ASSIGNED.match(line) for block in self.blocks for line in block)
        return {one[1]: one[2] for one in found if one}


def _functions(text: str) -> Iterator[_Function]:
    function: _Function | None = None
    weights = {one[1]: [int(x) for x in re.findall(r"i\d+ (\d+)", one[2])] for one in _WEIGHTS.finditer(text)}
    for number, line in enumerate(text.split("\n")):
        if line.startswith("define"):
            name = _DEFINED.search(line)
            hidden = re.search(r" (internal|private|weak) ", line)
            function = _Function(name[1] if name else "", hidden is None, weights)
        elif function is None or not line.strip():
            continue
        elif line.startswith("}"):
            yield function
            function = None
        elif label := _LABEL.match(line):
            function.labels.append(label[1])
            function.blocks.append([])
        elif not line.lstrip().startswith("#dbg"):
            if not function.blocks:  # the first block needs no label
                function.labels.append("")
                function.blocks.append([])
            function.blocks[-1].append(line)
            if len(function.first) < len(function.blocks) and " = phi " not in line:
                function.first.append(number)


@final
class _Flow:
    """How control goes through a function, as blocks by number.

    Attributes:
        next: of each block those that can follow it; times: how often each runs, of those that can be reached.
        calls: names of what is called, or handed over to be called, and how often.
    """

    def __init__(self, function: _Function) -> None:
        self._function = function
        self._numbers = {label: k for k, label in enumerate(function.labels)}
        self._ends = [_end(block) for block in function.blocks]
        self.next = [
            [self._numbers[name] for name in dict.fromkeys(_TARGETS.findall(end)) if name in self._numbers]
            for end in self._ends
        ]
        self._order = self._ordered()
        self._place = {block: k for k, block in enumerate(self._order)}
        self._before: dict[int, list[int]] = {block: [] for block in self._order}
        for block in self._order:
            for after in self.next[block]:
                self._before[after].append(block)
        self._loops = self._found_loops()
        self._going = {block: self._likely(block) for block in self._order}
        self._ran = dict[int, float]()
        self._counters = dict[int, dict[str, tuple[int, int]]]()
        self.times = self._counted()
        self.calls = [
            (name, self.times[block])
            for block in self._order
            for line in function.blocks[block]
            if " call " in line
            for name in _GLOBALS.findall(line)
        ]

    def _ordered(self) -> list[int]:
        """Blocks that can be reached, each before those that follow it but for loops (reverse postorder)."""
        if not self.next:
            return []
        seen, done, stack = {0}, [], [(0, iter(self.next[0]))]
        while stack:
            _, rest = stack[-1]
            after = next((one for one in rest if one not in seen), None)
            if after is None:
                done.append(stack.pop()[0])
            else:
                seen.add(after)
                stack.append((after, iter(self.next[after])))
        return done[::-1]

    def _dominators(self) -> dict[int, int]:
        """The last block through which each is always reached (Cooper, Harvey and Kennedy, 2001)."""
        above = {block: block for block in self._order[:1]}
        changed = True
        while changed:
            changed = False
            for block in self._order[1:]:
                new = -1
                for one in self._before[block]:
                    if one in above:
                        new = one if new < 0 else self._both(above, one, new)
                if above.get(block) != new:
                    above[block], changed = new, True
        return above

    def _both(self, above: Mapping[int, int], one: int, other: int) -> int:
        while one != other:
            while self._place[one] > self._place[other]:
                one = above[one]
            while self._place[other] > self._place[one]:
                other = above[other]
        return one

    def _found_loops(self) -> dict[int, set[int]]:
        """The blocks of each natural loop, by its first."""
        above, found = self._dominators(), dict[int, set[int]]()
        for block in self._order:
            for head in self.next[block]:
                if self._both(above, head, block) != head:
                    continue
                inside, stack = found.setdefault(head, {head}), [block]
                while stack:
                    one = stack.pop()
                    if one not in inside:
                        inside.add(one)
                        stack += self._before[one]
        return found

    def _counted(self) -> dict[int, float]:
        times = dict.fromkeys(self._order, 0.0)
        entered = dict[int, float]()
        around = {
            block: sorted((head for head, of in self._loops.items() if block in of), key=lambda h: -len(self._loops[h]))
            for block in self._order
        }  # fmt: skip
        for block in self._order:
            if block == 0:
                times[block] = 1.0
            if block in self._loops:
                entered[block] = times[block]
                self._ran[block] = self._iterations(block)
                times[block] *= self._ran[block]
            staying = []
            for after in self._going[block]:
                if after in self._loops and block in self._loops[after]:
                    continue  # back to the loop's beginning
                left = [head for head in around[block] if after not in self._loops[head]]
                if left:
                    times[after] += entered[left[0]] / self._exits(left[0])
                else:
                    staying.append(after)
            shares = self._shares(block, staying, around[block])
            for after, share in zip(staying, shares, strict=True):
                times[after] += times[block] * share
        return times

    def _shares(self, block: int, after: list[int], heads: list[int]) -> list[float]:
        """How often each of what follows a block within its loops does: by draws of their counters, or equally."""
        branch = _BRANCH.match(self._ends[block])
        if len(after) == 2 and branch is not None and heads:
            draw, held = random.Random(0), 0
            for _ in range(DRAWS):
                counters = dict[str, int]()
                for head in heads:
                    number = draw.randrange(max(int(self._ran[head]), 1))
                    for name, (begins, step) in self._counters[head].items():
                        counters[name] = begins + step * number
                truth = self._truth(branch[1], counters)
                if truth is None:
                    break
                held += truth
            else:
                return [held / DRAWS, 1 - held / DRAWS]
        return [1 / max(len(after), 1)] * len(after)

    def _exits(self, head: int) -> int:
        """How many ways out of a loop there are."""
        inside = self._loops[head]
        return sum(after not in inside for block in inside for after in self._going[block])

    def _returns(self, block: int) -> bool:
        after = self.next[block]
        return not after or (len(after) == 1 and not self.next[after[0]])

    def _likely(self, block: int) -> list[int]:
        """Those that follow a block, but for what constants rule out, and for what returns where something else does not."""
        after = self.next[block]
        if len(after) < 2:
            return after
        branch = _BRANCH.match(self._ends[block])
        if branch:
            taken = self._truth(branch[1], None)
            if taken is not None:
                label = _TARGETS.findall(self._ends[block])[0 if taken else 1]
                return [self._numbers[label]]
        going_on = [one for one in after if not self._returns(one) or self._only_way(block, one)]
        return going_on or [after[self._expected(block)]]

    def _only_way(self, block: int, after: int) -> bool:
        """Whether something is a way out of a loop of which all ways out return."""
        return any(
            all(self._returns(out) for one in inside for out in self.next[one] if out not in inside)
            for inside in self._loops.values()
            if block in inside and after not in inside
        )

    def _expected(self, block: int) -> int:
        """Which of those that follow a block the compiler takes for the likeliest: the first one where it says nothing."""
        known = _WEIGHED.search(self._ends[block])
        weights = self._function.weights.get(known[1], ()) if known else ()
        return weights.index(max(weights)) if len(weights) == len(self.next[block]) else 0

    # -- values -----------------------------------------------------------------------------------------

    def _truth(self, name: str, counters: Counters) -> bool | None:
        """What a condition is; None where it hangs on something that is not known. See ``_value``."""
        if name in ("true", "false"):
            return name == "true"
        made = self._function.assigned.get(name[1:], "")
        if compare := _COMPARE.match(made):
            one, other = self._value(compare[2], counters), self._value(compare[3], counters)
            if one is None or other is None or compare[1] not in _COMPARISONS:
                return None
            return _COMPARISONS[compare[1]](one, other)
        if both := _LOGIC.match(made):
            first, second = self._truth(both[2], counters), self._truth(both[3], counters)
            return None if first is None or second is None else bool(_OPERATIONS[both[1]](first, second))
        if chosen := _CHOICE.match(made):
            first = self._truth(chosen[1], counters)
            return None if first is None else self._truth(chosen[2 if first else 3], counters)
        return None

    def _value(self, text: str, counters: Counters, seen: frozenset[str] = frozenset()) -> int | None:
        """What an integer is.

        Args:
            counters: what counters of loops are; others are as at first. None: what hangs on a counter is not known.
        """
        text = text.strip()
        if _INTEGER.fullmatch(text):
            return int(text)
        if counters and text in counters:
            return counters[text]
        if not text.startswith("%") or text in seen or len(seen) > DEEPEST:
            return None
        name = text[1:]
        if (task := _TASK.get(name.split(".")[0])) is not None:
            return task
        made, seen = self._function.assigned.get(name, ""), seen | {text}

        def of(part: str) -> int | None:
            return self._value(part, counters, seen)

        if one := _ARITHMETIC.match(made):
            a, b = of(one[2]), of(one[3])
            return None if a is None or b is None else _OPERATIONS[one[1]](a, b)
        if one := _CAST.match(made):
            return of(one[1])
        if one := _LEAST.match(made):
            both = [value for value in (of(one[2]), of(one[3])) if value is not None]
            if not both or (counters is None and len(both) < 2):
                return None
            return min(both) if one[1] == "min" else max(both)
        if made.startswith("phi "):
            values = [of(part) for part, _ in _PHI.findall(made)]
            if counters is None:
                return values[0] if len(set(values)) == 1 else None
            return next((value for value in values if value is not None), None)
        return None

    def _iterations(self, head: int) -> float:
        """How often a loop runs each time it is entered; the first way out decides."""
        inside = self._loops[head]
        counters = dict[str, tuple[str, list[str]]]()
        for line in self._function.blocks[head]:
            made = _ASSIGNED.match(line)
            if made is None or not made[2].startswith("phi "):
                continue
            parts = [
                (value, self._numbers.get(label, -1) in inside) for value, label in _PHI.findall(made[2])
            ]
            before = [value for value, back in parts if not back]
            counters["%" + made[1]] = before[0] if before else "", [value for value, back in parts if back]
        self._counters[head] = {}
        for name, (begins, later) in counters.items():
            step, first = self._step(later), self._value(begins, {})
            if step and first is not None:
                self._counters[head][name] = first, step
        found = [
            count
            for block in inside
            if any(after not in inside for after in self._going[block])
            and (branch := _BRANCH.match(self._ends[block]))
            and (count := self._until(branch[1], counters)) is not None
        ]
        return min(found, default=UNKNOWN)

    def _until(self, condition: str, counters: Mapping[str, tuple[str, list[str]]]) -> float | None:
        """How many iterations there are until a condition ends the loop; None where it cannot be said."""
        if condition in counters:  # true, then false
            return 2.0 if counters[condition][0] in ("true", "false") else None
        compare = _COMPARE.match(self._function.assigned.get(condition[1:], ""))
        if compare is None:
            return None
        for counted, bound in ((compare[2], compare[3]), (compare[3], compare[2])):
            counted = self._uncast(counted.strip())
            for name, (begins, later) in counters.items():
                if counted != name and counted not in later:
                    continue
                by = self._step(later)
                first, last = self._value(begins, {}), self._value(bound, {})
                if not by or first is None or last is None:
                    continue
                inclusive = counted == name or compare[1] in ("sle", "ule", "sge", "uge")
                return float(max(-(-(last - first) // by) + inclusive, 0))
        return None

    def _step(self, later: list[str]) -> int:
        """By how much a counter changes from one iteration to the next; 0 where it cannot be said."""
        step = _STEP.match(self._function.assigned.get(later[0][1:], "")) if later else None
        return int(step[2]) * (1 if step[1] == "add" else -1) if step else 0

    def _uncast(self, value: str) -> str:
        while one := _CAST.match(self._function.assigned.get(value[1:], "")):
            value = one[1]
        return value


def _end(block: list[str]) -> str:
    """The last instruction of a block, on one line."""
    begins = next((k for k in reversed(range(len(block))) if _ENDS.match(block[k])), len(block) - 1)
    return " ".join(block[begins:])


def _quotient(a: int, b: int) -> int:
    """a / b, rounded towards zero as processors do; 0 for b = 0."""
    return 0 if not b else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
