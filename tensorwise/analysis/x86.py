"""Instructions of x86 processors, read from the assembly that LLVM writes: the kind of each, and the cycles of a block.

Cycles are estimated for a generic core, not for a given one: five instructions a cycle, two of them arithmetic, two loads,
one store, 64-byte vectors in two halves. The latency of a loop-carried dependency is a lower bound. Caches are not modelled
here: the cost models get cache misses as separate features.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, final, get_args

from tensorwise.analysis.llvm import MARK, Place

Kind = Literal[
    "arithmetic", "divide", "shuffle", "gather", "integer", "convert", "move", "scalar", "branch", "call"
]
"""Of instructions: float additions, multiplications and comparisons; divisions and roots; what moves lanes; what fetches
each lane from elsewhere; integers in vectors; conversions and rounding; moves; integers in general registers; jumps;
calls."""
Reach = Literal["load", "broadcast", "store", "reload", "spill"]
"""Of an instruction into memory: one number into all lanes is broadcast; what registers had no room for is spilled."""
INSTRUCTION_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
REACHES: Final[tuple[Reach, ...]] = get_args(Reach)
INSTRUCTION_BYTES: Final = (4, 8, 16, 32, 64)
"""Bytes that an instruction handles: a float, a double or a general register, vectors."""
LIMITS: Final = ("issue", "arithmetic", "vectors", "loads", "stores", "gathers", "latency")
"""What can decide how long a block takes; see `Cost`."""
X86_LATENCY_CYCLES: Final[dict[Kind, int]] = {
    "arithmetic": 4, "divide": 12, "shuffle": 2, "gather": 12, "integer": 1, "convert": 4, "move": 0, "scalar": 1,
    "branch": 0, "call": 0,
}  # fmt: skip
"""Cycles until a result can be used."""
LOADED: Final = 5
FORWARDED: Final = 4
BLOCKED: Final = 14
"""Cycles until what is loaded can be used; what one store has just written; what several have."""
ITERATIONS: Final = 3
WORD: Final = 4
"""Bytes by which stores and loads are compared."""
ISSUE_WIDTH: Final = 5
"""Instructions a cycle."""
DIVIDED: Final = 4
"""Cycles of a division of 16 bytes, during which there is no other."""
CALLED: Final = 15
CALLS: Final = {
    "erff": 35, "tanhf": 35, "powf": 18, "expf": 10, "exp2f": 10, "logf": 11, "log1pf": 18, "sinf": 11, "cosf": 11,
}  # fmt: skip
"""Cycles of a function, and of some of the C library (glibc's on a Zen 4, of numbers from -4 to 4)."""

_REGISTER: Final = re.compile(r"%([a-z]+\d*[a-z]*)")
_INTEGER: Final = re.compile(r"-?\d+")
_GENERAL: Final = {
    name: "r" + part
    for part in ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp")
    for name in ("r" + part, "e" + part, part, part[0] + "l" if part[1] == "x" else part + "l")
} | {f"r{k}{end}": f"r{k}" for k in range(8, 16) for end in ("", "d", "w", "b")}
_ARITHMETIC: Final = re.compile(
    r"v?(add|sub|mul|max|min|cmp|hadd|addsub|fn?m(?:add|sub)(?:sub|add)?\d*)(?:eq|neq|lt|le|nlt|nle|unord|ord)?[sp][sdh]"
)
_DIVIDE: Final = re.compile(r"v?(div|sqrt|rcp|rsqrt)\w*[sp][sd]|idiv\w|div[lqwb]")
_SHUFFLE: Final = re.compile(
    r"v?p?(unpck|shuf|perm|insr|insert|extr|extract|blend|movlh|movhl|align|broadcast|movshdup|movsldup|movddup|movd\b|movq\b"
    r"|expand|compress|movlps|movhps)"
)
_CONVERT: Final = re.compile(r"v?(cvt|round|rndscale)")
_MOVE: Final = re.compile(r"v?mov(nt)?(a|u|dq[au]|s)?(ps|pd|s|d|8|16|32|64)?\d*|c?mov\w+")
_TESTS: Final = re.compile(r"cmp[bwlq]|test|v?u?comis|vptest|ptest|bt[lq]")
_QUIET: Final = re.compile(r"ret|nop|push|pop|vzeroupper|endbr|ud2|int3|xchgw")


@final
@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        kind: what it does; None for what costs its place alone.
        width: bytes that it handles; flops: that it computes; lanes: that it gathers.
        reach: how it goes into memory; None where it does not.
        reads, writes: registers; address: those that say where in memory, and ``base`` the same with their factors, as
            text; offset: bytes from there.
        taken: cycles of what is called.
    """

    kind: Kind | None
    width: int = 8
    flops: int = 0
    lanes: int = 0
    reach: Reach | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    address: tuple[str, ...] = ()
    base: str = ""
    offset: int = 0
    taken: int = 0

    @property
    def moved(self) -> int:
        """Bytes that go to or from memory."""
        return 0 if self.reach is None else 4 if self.reach == "broadcast" else self.width


@final
@dataclass(frozen=True)
class Cost:
    """Cycles of a block under each of LIMITS alone; the largest of them is the estimate.

    ``blocked``: loads that wait for several stores, see `Waited`.
    """

    limits: tuple[float, ...]
    blocked: int = 0

    @property
    def cycles(self) -> float:
        """Of one run."""
        return max(self.limits)

    @property
    def limit(self) -> str:
        """The one of LIMITS that decides."""
        return LIMITS[self.limits.index(self.cycles)]


def blocks(assembly: str) -> dict[Place, list[Instruction]]:
    """Return the instructions of each block of a program that was ``marked`` before it was compiled.

    What has no mark of its own belongs to what stands before it: it is there to get from one block to the next.
    """
    found: dict[Place, list[Instruction]] = defaultdict(list)
    waiting: list[Instruction] = []
    here: Place | None = None  # the block that instructions are known to be of
    last: Place | None = None

    def settle() -> None:
        if (owner := here or last) is not None:
            found[owner] += waiting
        waiting.clear()

    for line in assembly.split("\n"):
        text = line.strip()
        if text.startswith(MARK):
            if here is not None:  # else what waits has moved before the mark
                settle()
            function, block = text[len(MARK) :].split()
            here = last = int(function), int(block)
        elif text.endswith(":") and not text.startswith((".Ltmp", ".Lfunc")):
            settle()
            here, last = None, last if text.startswith(".LBB") else None
        elif text and text[0] not in "#." and not text.endswith(":"):
            waiting.append(instruction(text))
            if waiting[-1].kind == "branch":
                settle()
                here = None
    settle()
    return dict(found)


def cost(block: Sequence[Instruction], alone: bool) -> Cost:
    """Return what a run of a block takes.

    Args:
        alone: it is a loop of its own, so that iterations wait for each other.
    """
    wide = [one.width // 64 + 1 for one in block]
    arithmetic = sum(w for one, w in zip(block, wide, strict=True) if one.kind == "arithmetic")
    shuffles = sum(one.kind in ("shuffle", "convert") for one in block)
    vectors = arithmetic + shuffles + sum(one.kind == "integer" for one in block)
    loads = sum(w for one, w in zip(block, wide, strict=True) if one.reach in ("load", "broadcast", "reload"))
    stores = sum(w for one, w in zip(block, wide, strict=True) if one.reach in ("store", "spill"))
    serial = sum(DIVIDED * max(one.width // 16, 1) for one in block if one.kind == "divide")
    serial += sum(one.taken for one in block)
    waits = waited(block, ITERATIONS if alone else 1)
    limits = (
        len(block) / ISSUE_WIDTH, max(arithmetic, shuffles) / 2, vectors / 4, loads / 2, float(stores),
        float(sum(one.lanes for one in block)), waits.cycles if alone else 0.0,
    )  # fmt: skip
    return Cost(tuple(limit + serial for limit in limits), waits.blocked)


@final
@dataclass(frozen=True)
class DependencyCycles:
    """How instructions of a block wait for each other.

    Attributes:
        cycles: from one iteration to the next, if it is a loop and waits for nothing else.
        blocked: loads, in one iteration, of what several stores, or wider ones, have just written in part: they wait until
            it is in the cache.
    """

    cycles: float
    blocked: int


def waited(block: Sequence[Instruction], iterations: int = ITERATIONS) -> DependencyCycles:
    """Return how long each result of a loop's iteration waits, through registers and through memory.

    What is stored is known by registers and distance: where these registers change from one iteration to the next, it
    is taken to be elsewhere then.
    """
    ready: dict[str, float] = defaultdict(float)
    stored: dict[tuple[str, int], tuple[float, int]] = {}  # words: when, and by which store
    changed = {name for one in block for name in one.writes}
    ends, blocked = [0.0], 0
    for _ in range(iterations):
        blocked = 0
        for number, one in enumerate(block):
            begins = max([ready[name] for name in one.reads], default=0.0)
            words = range(one.offset // WORD, one.offset // WORD + max(one.moved // WORD, 1))
            if one.reach in ("load", "broadcast", "reload"):
                begins = max([begins, *(ready[name] + LOADED for name in one.address)])
                before = [stored[one.base, word] for word in words if (one.base, word) in stored]
                if before:
                    whole = len(before) == len(words) and len({store for _, store in before}) == 1
                    blocked += not whole
                    waits = FORWARDED if whole else BLOCKED
                    begins = max([begins, *(when + waits for when, _ in before)])
            done = begins + (X86_LATENCY_CYCLES[one.kind] if one.kind else 0)
            for name in one.writes:
                ready[name] = done
            if one.reach in ("store", "spill"):
                for word in words:
                    stored[one.base, word] = done, number
        stored = {key: value for key, value in stored.items() if not changed & set(key[0].split())}
        ends.append(max([*ready.values(), *(when for when, _ in stored.values())], default=0.0))
    return DependencyCycles(ends[-1] - ends[-2], blocked)


@lru_cache(1 << 17)
def instruction(text: str) -> Instruction:
    """Return one line of assembly, as AT&T write it: ``vaddps (%rax), %ymm0, %ymm1``."""
    name, _, rest = text.split("#")[0].strip().partition("\t")
    if not rest:
        name, _, rest = name.partition(" ")
    operands = list(_operands(rest))
    if name.startswith("j"):
        return Instruction("branch")
    if name.startswith("call"):
        return Instruction("call", writes=("rax",), taken=CALLS.get(rest.partition("@")[0], CALLED))
    if not operands or _QUIET.match(name):
        return Instruction(None)
    kind = _kind(name, rest)
    width = _width(name, rest)
    memory = next((one for one in operands if "(" in one), None) if not name.startswith("lea") else None
    address = tuple(map(_whole, _REGISTER.findall(memory))) if memory else ()
    tests = _TESTS.match(name) is not None and width <= 16
    stored = memory is not None and operands[-1] is memory and not tests
    reads = [
        _whole(one)
        for given in operands[:-1]
        if "(" not in given or name.startswith("lea")
        for one in _REGISTER.findall(given)
    ]
    writes: tuple[str, ...] = ()
    reach: Reach | None = None
    if memory is not None and kind != "gather":
        on_stack = "%rsp" in memory
        broadcast = "broadcast" in name or "{1to" in memory
        if stored:
            reach = "spill" if on_stack else "store"
        else:
            reach = "reload" if on_stack else "broadcast" if broadcast else "load"
    if not stored and not tests:
        target = _REGISTER.search(operands[-1])
        if target:
            written = _whole(target[1])
            if _updates(name, kind, operands):
                reads.append(written)
            writes = (written,)
    elif tests:
        reads += map(_whole, _REGISTER.findall(operands[-1]))
    if "xor" in name and len(set(operands)) == 1:
        reads = []  # a way to write 0
    fused = 2 if "fm" in name or "fnm" in name else 1
    lanes = 1 if re.search(r"s[sdh]$", name) else max(width // (8 if name.endswith("pd") else 4), 1)
    return Instruction(
        kind, width, fused * lanes if kind in ("arithmetic", "divide") and "mm" in rest else 0,
        lanes if kind == "gather" else 0, reach, tuple(reads), writes, address, *_where(memory or ""),
    )  # fmt: skip


def _where(memory: str) -> tuple[str, int]:
    """Registers and factors of a place in memory, and the bytes from there."""
    distance, _, rest = memory.partition("(")
    inside = rest.partition(")")[0]
    parts = (_whole(part.strip().lstrip("%")) for part in inside.split(","))
    far = int(distance) if _INTEGER.fullmatch(distance) else 0
    return f"{'' if far or not distance else distance} {' '.join(parts)}".strip(), far


def _kind(name: str, rest: str) -> Kind:
    vectors = "mm" in rest
    if "gather" in name or "scatter" in name:
        return "gather"
    if _DIVIDE.match(name):
        return "divide"
    if not vectors:
        return "move" if _MOVE.fullmatch(name) else "scalar"
    if _ARITHMETIC.match(name):
        return "arithmetic"
    if _MOVE.fullmatch(name) and name not in ("movd", "movq", "vmovd", "vmovq"):
        return "move"
    if "broadcast" in name and "(" in rest:
        return "move"
    if _SHUFFLE.match(name):
        return "shuffle"
    return "convert" if _CONVERT.match(name) else "integer"


def _width(name: str, rest: str) -> int:
    for register, width in (("%zmm", 64), ("%ymm", 32)):
        if register in rest:
            return width
    if "%xmm" in rest:
        return 4 if re.search(r"s[sh]$", name) else 8 if name.endswith("sd") else 16
    return 8


def _updates(name: str, kind: Kind, operands: Sequence[str]) -> bool:
    """Whether an instruction reads what it writes."""
    if name.startswith(("vfm", "vfnm")):
        return True
    if (
        name[0] == "v"
        or kind in ("move", "convert")
        or name.startswith(("lea", "pshuf", "sqrt", "set", "pmov", "movd", "movq"))
    ):
        return False
    return len(operands) == 2 or kind == "scalar"


def _whole(register: str) -> str:
    """The name of the whole register that one is part of."""
    return _GENERAL.get(register) or ("v" + register[3:] if register[1:3] == "mm" else register)


def _operands(text: str) -> Iterator[str]:
    """Parts between commas, but for those in brackets."""
    depth, begins = 0, 0
    for place, sign in enumerate(text):
        depth += (sign in "({") - (sign in ")}")
        if sign == "," and not depth:
            yield text[begins:place].strip()
            begins = place + 1
    if text[begins:].strip():
        yield text[begins:].strip()
