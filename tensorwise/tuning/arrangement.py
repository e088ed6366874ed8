"""Arrangements: which stored tensors several operations on one sparse operand read, in what time and memory."""

import math
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

from tensorwise.errors import InputError
from tensorwise.lower.program import Program
from tensorwise.moved import renamed
from tensorwise.tuning.worth import per_call_s

NEAR: Final = 0.02
"""Arrangements within this fraction of the lowest cost count as equally fast: rounds hardly resolve smaller differences."""
SWEEPS: Final = 6
"""Most arrangements that are timed in whole sweeps."""
SLOWER: Final = 2.0
"""Arrangements slower than the fastest by this factor, by the sum of their single calls, are not timed in sweeps."""
OWN_TENSORS: Final = 4
"""Tensors that only one mode reads and that take part beside those that others may share."""


@final
@dataclass(frozen=True)
class Stored:
    """The operand as it is kept.

    Attributes:
        name: its format as text, or the library and the mode that it is converted for.
        nbytes: bytes of its arrays.
        conversion_s: seconds that packing or converting it takes.
    """

    name: str
    nbytes: int
    conversion_s: float


@final
@dataclass(frozen=True)
class Way:
    """One way to compute one mode.

    Attributes:
        kernel: a program, or a library's name.
        stored: what it reads.
        seconds: median of a call; spread_s: interquartile range; infinite and 0 where nothing was measured.
        rounds: how many rounds it was timed in; 0 where the time is that of the screening.
        workspace_bytes: bytes for partial results, which no other mode uses.
    """

    kernel: Program | str
    stored: Stored
    seconds: float
    spread_s: float = 0.0
    rounds: int = 0
    workspace_bytes: int = 0

    @property
    def name(self) -> str:
        """Name that distinguishes the kernels of one mode."""
        return self.kernel if isinstance(self.kernel, str) else self.kernel.name

    @property
    def schedule(self) -> str:
        """Schedule as text; empty for a library."""
        return "" if isinstance(self.kernel, str) else self.kernel.schedule_text


@final
@dataclass(frozen=True)
class Arrangement:
    """A way for every mode, in the order of the modes; those that read the same tensor share it in memory.

    Attributes:
        ways: one a mode.
        sweep_s: median seconds of calling all modes in turn; None where that was not timed.
    """

    ways: tuple[Way, ...]
    sweep_s: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each way."""
        return tuple(way.name for way in self.ways)

    @cached_property
    def stored(self) -> tuple[Stored, ...]:
        """What is kept, each tensor once, in the order in which the modes first read it."""
        return tuple(dict.fromkeys(way.stored for way in self.ways))

    @cached_property
    def seconds(self) -> float:
        """Seconds of one call of every mode, each timed by itself."""
        return sum(way.seconds for way in self.ways)

    @cached_property
    def bytes_held(self) -> int:
        """Bytes of the tensors, each counted once, and of all workspaces."""
        return sum(one.nbytes for one in self.stored) + sum(way.workspace_bytes for way in self.ways)

    bytes_apart = renamed("bytes_unshared")

    @property
    def bytes_unshared(self) -> int:
        """Bytes that the same kernels hold where every mode keeps a tensor of its own."""
        return sum(way.stored.nbytes + way.workspace_bytes for way in self.ways)

    @property
    def conversion_s(self) -> float:
        """Seconds that packing all tensors takes."""
        return sum(one.conversion_s for one in self.stored)

    def cost(self, calls: float | None) -> float:
        """Seconds of a sweep, in turn where that was timed, with the conversion's share where ``calls`` are known."""
        seconds = self.seconds if self.sweep_s is None else self.sweep_s
        return per_call_s(seconds, self.conversion_s, calls)

    def readers(self, stored: Stored) -> tuple[int, ...]:
        """Return the modes that read a tensor."""
        return tuple(mode for mode, way in enumerate(self.ways) if way.stored == stored)


def promising(ways: Iterable[Way], shared: Container[str]) -> list[Way]:
    """Return the ways of one mode that may be part of an answer, the fastest first.

    For each stored tensor, the ways that no other one beats in both time and workspace. Of tensors that only this mode can
    use (not in ``shared``), only a few are kept, each smaller than all faster ones.
    """
    kept: list[Way] = []
    least: dict[Stored, int] = {}
    own, smallest = 0, math.inf
    for way in sorted(ways, key=lambda way: way.seconds):
        if least.get(way.stored, math.inf) <= way.workspace_bytes:
            continue
        if way.stored.name not in shared:
            total = way.stored.nbytes + way.workspace_bytes
            if total >= smallest or own == OWN_TENSORS:
                continue
            own, smallest = own + 1, total
        least[way.stored] = way.workspace_bytes
        kept.append(way)
    return kept


def arrangements(ways: Sequence[Sequence[Way]], calls: float | None = None) -> list[Arrangement]:
    """Return the arrangements that no other one beats in both memory and cost, from the smallest to the fastest.

    Args:
        ways: for each mode the ways to compute it, at least one.
        calls: how often every mode is called; then conversion counts.

    >>> i, k = Stored("U(i) C(k)", 100, 0.0), Stored("U(k) C(i)", 100, 0.0)
    >>> ways = [[Way("a", i, 1.0), Way("b", k, 3.0)], [Way("c", k, 1.0), Way("d", i, 2.0, workspace_bytes=50)]]
    >>> [(found.bytes_held, found.seconds) for found in arrangements(ways)]
    [(100, 4.0), (150, 3.0), (200, 2.0)]
    """
    # Which tensors are kept decides what the next mode adds to memory: one front of partial arrangements for each set.
    fronts: dict[frozenset[Stored], list[Arrangement]] = {frozenset(): [Arrangement(())]}
    for choices in ways:
        grown: defaultdict[frozenset[Stored], list[Arrangement]] = defaultdict(list)
        for kept, front in fronts.items():
            for way in choices:
                grown[kept | {way.stored}].extend(Arrangement((*one.ways, way)) for one in front)
        fronts = {kept: unbeaten(front, calls) for kept, front in grown.items()}
    return unbeaten((one for front in fronts.values() for one in front), calls)


def unbeaten(found: Iterable[Arrangement], calls: float | None = None) -> list[Arrangement]:
    """Return those that cost less than every smaller one, from the smallest to the fastest."""
    kept: list[Arrangement] = []
    for one in sorted(found, key=lambda one: (one.bytes_held, one.cost(calls))):
        if not kept or one.cost(calls) < kept[-1].cost(calls):
            kept.append(one)
    return kept


def finalists(
    found: Sequence[Arrangement], best: Arrangement, memory_bytes: int | None, calls: float | None
) -> list[Arrangement]:
    """Return the arrangements that sweeps may show to be faster than ``best``, itself among them, the smallest first.

    A kernel that is timed alone finds its data in the caches. In a sweep, the other modes have used the caches meanwhile, so
    arrangements with little memory are faster than the sum of their kernels' times suggests.
    """
    kept, size = [best], math.inf
    for one in sorted(found, key=lambda one: one.cost(calls)):
        if len(kept) == SWEEPS or one.cost(calls) > SLOWER * best.cost(calls):
            break
        if not fits(one, memory_bytes) or one.bytes_held >= 0.95 * size:
            continue
        size = one.bytes_held
        if one is not best:
            kept.append(one)
    return sorted(kept, key=lambda one: one.bytes_held)


def fits(one: Arrangement, memory_bytes: int | None) -> bool:
    """Whether an arrangement stays within a limit, where there is one."""
    return memory_bytes is None or one.bytes_held <= memory_bytes


def choose(
    found: Sequence[Arrangement], memory_bytes: int | None = None, calls: float | None = None
) -> Arrangement:
    """Return the fastest arrangement that fits; of those that are as fast within ``NEAR`` the smallest.

    Raises:
        InputError: none fits into ``memory_bytes``.
    """
    fitting = [one for one in found if fits(one, memory_bytes)]
    if not fitting:
        smallest = min(found, key=lambda one: one.bytes_held)
        raise too_little(memory_bytes or 0, smallest.bytes_held)
    least = min(one.cost(calls) for one in fitting)
    near = least * (1 + NEAR) if math.isfinite(least) else math.inf
    return min(
        (one for one in fitting if one.cost(calls) <= near), key=lambda one: (one.bytes_held, one.cost(calls))
    )


def why(
    best: Arrangement,
    found: Sequence[Arrangement],
    memory_bytes: int | None = None,
    calls: float | None = None,
) -> str:
    """Return a sentence on why ``best`` was chosen."""
    if math.isinf(best.seconds):
        return "not every mode could be measured"
    limit = "" if memory_bytes is None else f" within {memory_bytes / 1e6:.4g} MB"
    shared = "" if calls is None else f", the conversion shared by {calls:g} calls"
    timed = [
        one for one in found if (one.sweep_s is None) == (best.sweep_s is None) and fits(one, memory_bytes)
    ]
    near = any(one.cost(calls) < best.cost(calls) for one in timed)
    said = f"as fast as any{limit} to {NEAR:.0%}, and smaller" if near else f"the fastest{limit}"
    said += shared
    beyond = [one for one in found if not fits(one, memory_bytes) and one.seconds < best.seconds]
    if beyond:
        first = min(beyond, key=lambda one: one.seconds)
        said += f"; {first.bytes_held / 1e6:.4g} MB would take {first.seconds / best.seconds:.2f} of the time"
    return said


def too_little(memory_bytes: int, needed: int) -> InputError:
    """Return the error that says how much memory the operand needs."""
    return InputError(
        f"memory_bytes={memory_bytes} is less than the operand takes in the smallest form found, which serves all modes "
        f"with {needed} bytes; give at least that, or no limit"
    )
