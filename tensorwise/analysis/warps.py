"""Counts of what the warps of a kernel do, by interpreting the control flow and the addresses of some of them.

Branches and addresses of a tensor program depend on integers only: on shapes and on the position of a thread. So only the
integers of some warps are computed, lane by lane. Counted are how often a block of instructions runs, how many lanes take
part, how many sectors of 32 bytes a request of 32 lanes needs, and how many lanes access the same bank of shared memory.
The counts are exact for the warps that were drawn.
"""

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import numpy as np

from tensorwise.analysis.ptx import JUMPS, PtxInstruction, PtxKernel

WARP: Final = 32
"""Threads that run side by side."""
DRAWN: Final = 12
"""Warps that are run."""
MAX_BLOCKS_RUN: Final = 100_000
"""Maximum number of basic blocks that are run; the rest is not counted."""
LOOKED: Final = 3
"""Executions of a block whose addresses are computed; later ones are assumed to be alike."""
SECTOR: Final = 32
"""Bytes of a memory transaction (sector)."""
BANKS: Final = 32
"""Banks of shared memory, each of which delivers one 4-byte word a cycle."""
GLOBAL_DISTANCE_BYTES: Final = 2**40
"""Bytes between one array in global memory and the next."""

COUNTED: Final = (
    "arithmetic", "special", "integer", "convert", "move", "branch", "exchange", "barrier",
    "load", "store", "loaded", "stored", "shared.load", "shared.store", "shared.loaded", "shared.stored", "local",
)  # fmt: skip
"""Instructions of warps by kind. ``special``: divisions, roots, exponentials and the like; ``exchange``: between lanes;
``load``, ``store``: requests of global memory, for sectors ``loaded`` and ``stored``; of shared memory requests, and the
turns that they take; requests of a thread's own memory, its stack."""
WARP_LATENCY_CYCLES: Final = {
    "special": 20,
    "exchange": 25,
    "shared.load": 30,
    "load": 400,
    "local": 30,
    "barrier": 20,
}
"""Cycles until a result can be used, or all threads have come; 4 for anything else."""
DEFAULT_LATENCY_CYCLES: Final = 4

_FLOATS: Final = ("f16", "f16x2", "bf16", "f32", "f64")
_SPECIAL: Final = ("div", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
_COMPARE: Final[Mapping[str, Callable[..., np.ndarray]]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_INTEGER_OPERATIONS: Final[Mapping[str, Callable[..., np.ndarray]]] = {
    "mov": np.asarray, "cvta": np.asarray, "neg": operator.neg, "abs": np.abs, "add": operator.add, "sub": operator.sub,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "min": np.minimum, "max": np.maximum,
    "shl": lambda a, b: a << np.minimum(b, 63), "shr": lambda a, b: a >> np.minimum(b, 63),
    "selp": lambda a, b, p: np.choose(p != 0, (b, a)), "bfe": lambda a, b, c: (a >> b) & ((1 << c) - 1),
    "div": lambda a, b: np.sign(a) * np.sign(b) * (np.abs(a) // np.maximum(np.abs(b), 1)),
    "rem": lambda a, b: np.sign(a) * (np.abs(a) % np.maximum(np.abs(b), 1)),
}  # fmt: skip
"""Operations on integers."""
_UNSIGNED: Final = ("shr", "div", "rem", "setp", "min", "max", "cvt", "bfe")
"""Those, besides some products, to which it matters whether a type has a sign; registers keep all with one."""
_TYPES: Final[Mapping[str, type[np.signedinteger[Any]]]] = {"8": np.int8, "16": np.int16, "32": np.int32}
"""What registers keep, by the bits of a type; 64 where there is none."""
_PTX_INTEGER: Final = re.compile(r"-?(0x[0-9a-fA-F]+|\d+)U?")
_PARAMETER: Final = re.compile(r"_param_(\d+)")
_PLACE: Final = re.compile(r"([%\w$.]+)\s*\+?\s*(-?\d+)?")


def kind_of(one: PtxInstruction) -> str:
    """Return what an instruction counts as, one of COUNTED."""
    if one.touches:
        way = "store" if one.name in ("st", "red") else "load"
        return "local" if one.space == "local" else f"shared.{way}" if one.space == "shared" else way
    if one.name in JUMPS:
        return "branch"
    if one.name in ("bar", "barrier"):
        return "barrier"
    if one.name in ("shfl", "vote", "match", "redux"):
        return "exchange"
    if one.name in ("mov", "selp", "cvta", "ld"):
        return "move"
    if one.name == "cvt":
        return "convert"
    if any(part in _FLOATS for part in one.parts):
        return "special" if one.name in _SPECIAL else "arithmetic"
    return "integer"


@final
class Warps:
    """Some warps of one launch of a kernel.

    Args:
        kernel: what they run.
        grid, block: blocks of the launch, and threads of a block, in up to two dimensions.
        seed: decides which warps.
    """

    def __init__(
        self, kernel: PtxKernel, grid: tuple[int, int], block: tuple[int, int], seed: int = 0
    ) -> None:
        self._kernel = kernel
        threads = block[0] * block[1]
        each = -(-threads // WARP)
        self.all = each * grid[0] * grid[1]
        """Warps of the launch."""
        strata = np.arange(min(DRAWN, self.all)) + np.random.default_rng(seed).random(min(DRAWN, self.all))
        some = (strata * (self.all / len(strata))).astype(np.int64)
        self._count = len(some)
        at = np.repeat(some // each, WARP)
        thread = np.repeat(some % each * WARP, WARP) + np.tile(np.arange(WARP), len(some))
        self._lanes = thread < threads
        self._zero = np.zeros(len(thread), np.int64)
        self._places = {
            "%ctaid.x": at % grid[0], "%ctaid.y": at // grid[0], "%tid.x": thread % block[0], "%tid.y": thread // block[0],
            "%ntid.x": self._zero + block[0], "%ntid.y": self._zero + block[1], "%ntid.z": self._zero + 1,
            "%nctaid.x": self._zero + grid[0], "%nctaid.y": self._zero + grid[1], "%laneid": thread % WARP,
        }  # fmt: skip
        self._registers: dict[str, np.ndarray] = {}
        control, addresses = self._deciding()
        self._deciding_in = [
            [one for one in part if one.name in JUMPS or control & {*one.results}] for part in kernel.blocks
        ]
        self._looked_at = [
            [
                one
                for one in part
                if one.name in JUMPS or one.touches or (control | addresses) & {*one.results}
            ]
            for part in kernel.blocks
        ]
        self._ran: dict[int, _Ran] = defaultdict(_Ran)

    def counted(self) -> dict[str, float]:
        """Return what all warps of the launch do, and how long one of them waits for what it reads.

        COUNTED; ``instructions``; ``flops``; cycles of a warp that is ``alone``: one instruction after the other, a block of
        them after all results of the one before; and of one whose instructions are ``flowing``: only values wait for each
        other, from one iteration of a loop to the next.
        """
        self._run()
        found = dict.fromkeys((*COUNTED, "instructions", "flops", "alone", "flowing"), 0.0)
        scale = self.all / self._count
        for block, ran in self._ran.items():
            instructions = self._kernel.blocks[block]
            does = _does(instructions) | {
                name: number / max(ran.looked, 1) for name, number in ran.touched.items()
            }
            times = ran.warps * scale
            for name in COUNTED:
                found[name] += times * does.get(name, 0.0)
            found["instructions"] += times * len(instructions)
            found["flops"] += ran.lanes * scale * does["flops"]
            times = ran.warps / self._count
            for name, cycles in zip(("alone", "flowing"), _alone(instructions), strict=True):
                found[name] += times * cycles
        return found

    def _deciding(self) -> tuple[set[str], set[str]]:
        """Registers on which control hangs, and those on which addresses do."""
        made = defaultdict(list)
        every = [one for block in self._kernel.blocks for one in block]
        for one in every:
            for name in one.results:
                made[name].append(one)

        def behind(names: list[str]) -> set[str]:
            seen: set[str] = set()
            while names:
                name = names.pop()
                if name not in seen:
                    seen.add(name)
                    names += [read for one in made[name] if not one.touches for read in one.reads]
            return seen

        touching = [one for one in every if one.touches]
        return (
            behind([one.guard for one in every if one.guard]),
            behind([name for one in touching if (name := _base(one)).startswith("%")]),
        )

    def _run(self) -> None:
        """Run all lanes: always those that are furthest behind, so that they meet again where ways join."""
        blocks, labels = self._kernel.blocks, self._kernel.labels
        end = len(blocks)
        at = np.where(self._lanes, 0, end)
        for _ in range(MAX_BLOCKS_RUN):
            block = int(at.min())
            if block == end:
                return
            here = at == block
            warps = int(here.reshape(-1, WARP).any(1).sum())
            ran = self._ran[block]
            look = ran.runs < LOOKED
            ran.enter(warps, int(here.sum()), look)
            after = np.full(len(at), block + 1)
            for one in (self._looked_at if look else self._deciding_in)[block]:
                on = here & self._holds(one) if one.guard else here
                if one.name in JUMPS:
                    after = np.where(on, labels.get(one.operands[-1], end) if one.operands else end, after)
                    continue
                if one.touches:
                    self._touch(one, on, ran)
                if one.results:
                    found = self._result(one)
                    for name in one.results:
                        self._registers[name] = np.where(on, found, self._registers.get(name, self._zero))
            at = np.where(here, after, at)

    def _holds(self, one: PtxInstruction) -> np.ndarray:
        assert one.guard is not None
        found: np.ndarray = (self._registers.get(one.guard, self._zero) != 0) != one.unless
        return found

    def _touch(self, one: PtxInstruction, on: np.ndarray, ran: "_Ran") -> None:
        """Count sectors, or the turns that shared memory takes, of an access."""
        kind = kind_of(one)
        place = _PLACE.match(one.address)
        if kind == "local" or place is None or not on.any():
            return
        first = self._value(place[1]) + int(place[2] or 0) + self._zero
        lanes = on.reshape(-1, WARP)
        if kind.startswith("shared"):
            words = np.stack([(first >> 2) + word for word in range(max(one.bytes // 4, 1))], 1).reshape(
                len(lanes), -1
            )
            distinct, warp = _distinct(words, np.repeat(lanes, words.shape[1] // WARP, 1))
            turns = (
                np.bincount(warp * BANKS + distinct % BANKS, minlength=len(lanes) * BANKS)
                .reshape(-1, BANKS)
                .max(1)
            )
            ran.touched["shared.stored" if kind == "shared.store" else "shared.loaded"] += int(turns.sum())
        else:
            distinct, _ = _distinct((first // SECTOR).reshape(-1, WARP), lanes)
            ran.touched["stored" if kind == "store" else "loaded"] += len(distinct)

    def _value(self, text: str) -> np.ndarray:
        """What an operand is in each lane, or in all of them; 0 where it is not known."""
        if text[0] == "%":
            return self._registers.get(text, self._places.get(text, self._zero))
        if _PTX_INTEGER.fullmatch(text):
            return np.array(int(text.rstrip("U"), 0))
        return np.array(self._kernel.arrays.get(text, 0))

    def _result(self, one: PtxInstruction) -> np.ndarray:
        """The integers that an instruction computes; 0 for floats and for what is loaded."""
        kind = one.kind
        if one.name == "ld":
            place = _PARAMETER.search(one.operands[1]) if one.space == "param" else None
            return self._zero + (GLOBAL_DISTANCE_BYTES * (1 + int(place[1])) if place else 0)
        if kind in _FLOATS or (one.name == "cvt" and one.parts[-2] in _FLOATS):
            return self._zero
        given = [self._value(text) for text in one.operands[1:]]
        if kind[0] in "ub" and (one.name in _UNSIGNED or one.parts[0] in ("hi", "wide")):
            given[:2] = [_unsigned(value, kind) for value in given[:2]]
        match one.name:
            case "setp":
                return _compared(one, given) + self._zero
            case "mul" | "mad":
                found, kind = _product(one, given)
            case "not":
                found = given[0] == 0 if kind == "pred" else ~given[0]
            case "cvt":
                found, kind = (
                    given[0].astype(_TYPES.get(kind[1:], np.int64)) if kind[0] == "s" else given[0],
                    one.parts[-2],
                )
                found = _unsigned(found, kind) if kind[0] == "u" else found
            case name if name in _INTEGER_OPERATIONS:
                found = _INTEGER_OPERATIONS[name](*given)
            case _:
                return self._zero
        return found.astype(_TYPES.get(kind[1:], np.int64)) + self._zero


@final
class _Ran:
    """How a block of instructions ran: how often, in how many warps and lanes, and what it touched when it was looked at."""

    def __init__(self) -> None:
        self.runs = self.warps = self.lanes = self.looked = 0
        self.touched: dict[str, float] = defaultdict(float)

    def enter(self, warps: int, lanes: int, look: bool) -> None:
        self.runs += 1
        self.warps += warps
        self.lanes += lanes
        self.looked += warps * look


def _base(one: PtxInstruction) -> str:
    """The register that an access begins from, or the name of an array."""
    place = _PLACE.match(one.address)
    return place[1] if place else ""


def _distinct(numbers: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers that differ within a row, of those that are wanted, and their rows."""
    ordered = np.sort(np.where(wanted, numbers, -1), 1)
    rows, places = np.nonzero(np.diff(ordered, axis=1, prepend=-1))
    return ordered[rows, places], rows


def _unsigned(values: np.ndarray, kind: str) -> np.ndarray:
    """Integers as a type without a sign has them."""
    bits = int(kind[1:]) if kind[1:].isdigit() else 64
    return values if bits >= 64 else np.bitwise_and(values, (1 << bits) - 1)


def _compared(one: PtxInstruction, given: list[np.ndarray]) -> np.ndarray:
    """What setp says of integers, and of another condition, where it asks for both."""
    found: np.ndarray = _COMPARE[one.parts[0]](given[0], given[1])
    if one.parts[1] in ("and", "or"):
        found = _INTEGER_OPERATIONS[one.parts[1]](found, given[2] != 0)
    return found


def _product(one: PtxInstruction, given: list[np.ndarray]) -> tuple[np.ndarray, str]:
    """What mul and mad say, and its type."""
    first, second, *added = given
    kind, bits = one.kind, int(one.kind[1:])
    if one.parts[0] == "hi":  # Python's integers have as many bits as it takes
        found = (first.astype(object) * second.astype(object) >> bits).astype(np.int64)
    else:
        found = first * second
    if one.parts[0] == "wide":
        kind = f"{kind[0]}{2 * bits}"
    return (found + added[0] if added else found), kind


def _does(block: list[PtxInstruction]) -> dict[str, float]:
    """How many instructions of each kind a block has, and what floating-point operations a lane does."""
    found: dict[str, float] = defaultdict(float)
    for one in block:
        kind = kind_of(one)
        found[kind] += 1
        found["flops"] += 2 if one.name == "fma" else kind in ("arithmetic", "special")
    return found


def _alone(block: list[PtxInstruction]) -> tuple[float, float]:
    """Cycles that a warp takes for a block if nothing else runs: in order, an instruction waits for what it reads, and the
    next block for all results; and where only values wait for each other, from one iteration to the next.
    """
    waits = [(one.reads, one.results, kind_of(one)) for one in block]
    ready: dict[str, float] = {}
    now = 0.0
    for reads, results, kind in waits:
        begins = max([now, *(ready.get(name, 0.0) for name in reads)])
        now = begins + (WARP_LATENCY_CYCLES["barrier"] if kind == "barrier" else 1)
        ready |= dict.fromkeys(results, begins + WARP_LATENCY_CYCLES.get(kind, DEFAULT_LATENCY_CYCLES))
    alone = max([now, *ready.values()])
    ready, ends = {}, list[float]()
    for _ in range(2):
        for reads, results, kind in waits:
            begins = max((ready.get(name, 0.0) for name in reads), default=0.0)
            ready |= dict.fromkeys(results, begins + WARP_LATENCY_CYCLES.get(kind, DEFAULT_LATENCY_CYCLES))
        ends.append(max(ready.values(), default=0.0))
    barriers = sum(kind == "barrier" for _, _, kind in waits)
    path = ends[0] if barriers else ends[1] - ends[0]
    return alone, max(len(block), path + WARP_LATENCY_CYCLES["barrier"] * barriers)
