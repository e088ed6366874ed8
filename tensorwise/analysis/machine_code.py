"""Features of compiled code: how many instructions of each kind a program executes, and what limits its speed.

A schedule determines the loops. Whether LLVM vectorises them, gathers lanes one by one or spills registers can only be seen
in the compiled code. Programs are compiled for this, not run, so the code may be for any x86 processor or GPU, whichever
machine this is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, final

from tensorwise.analysis import gpu_code
from tensorwise.analysis.gpu_code import LaunchShape
from tensorwise.analysis.llvm import runs
from tensorwise.analysis.warps import SECTOR
from tensorwise.analysis.x86 import INSTRUCTION_BYTES, INSTRUCTION_KINDS, LIMITS, REACHES, blocks, cost
from tensorwise.errors import InputError

SHARED: Final = ("memory.loaded", "memory.stored", "all.flops", "all.instructions", "all.cycles")
"""What is counted of all programs; the other numbers are of those for CPUs, or begin with ``gpu.``."""
MACHINE_CODE_NAMES: Final = (
    *(f"{kind}.{width}" for kind in ("arithmetic", "load", "store") for width in INSTRUCTION_BYTES),
    *(f"kind.{kind}" for kind in INSTRUCTION_KINDS if kind != "arithmetic"),
    *(f"memory.{reach}" for reach in REACHES if reach not in ("load", "store")),
    "memory.blocked", "memory.loaded", "memory.stored", "all.flops", "all.instructions", "all.cycles",
    *(f"cycles.{limit}" for limit in LIMITS), "hot.cycles", "hot.runs", "hot.length", "hot.others",
    *(f"gpu.{name}" for name in gpu_code.GPU_CODE_NAMES),
)  # fmt: skip
"""All numbers of a MachineCode."""
HOT: Final = 0.01
"""Blocks with a smaller share of all cycles do not count as code that stays in the processor."""


@final
@dataclass(frozen=True)
class MachineCode:
    """Numbers of compiled code, by name, as MACHINE_CODE_NAMES lists them.

    Attributes:
        numbers: of all blocks, as often as they run: instructions by kind, and by bytes or way into memory (gathers by
            lanes, ``blocked`` as in `Waited`); flops and bytes; ``cycles`` of one call on one core, see `Cost`, and those
            of blocks that one of LIMITS decides. Of the block with most cycles these, how often it runs, and its
            instructions; ``others``: instructions of all blocks that take a hundredth of the cycles and more. In code for
            a GPU instructions are those of warps, ``cycles`` the estimate for a whole model GPU, see `gpu_code`.
    """

    numbers: Mapping[str, float]

    @classmethod
    def of(cls, ir: str, assembly: str) -> Self:
        """Return what is in a module.

        Args:
            ir: as LLVM prints it, without marks; assembly: of the same module, ``marked``.
        """
        times = runs(ir)
        found = dict.fromkeys(MACHINE_CODE_NAMES, 0.0)
        taken = []
        for place, block in blocks(assembly).items():
            ran = times.get(place)
            if ran is None or not ran.times:
                continue
            for one in block:
                if one.kind is not None:
                    name = f"arithmetic.{one.width}" if one.kind == "arithmetic" else f"kind.{one.kind}"
                    found[name] += ran.times * (one.lanes or 1)
                if one.reach is not None:
                    by_width = one.reach in ("load", "store")
                    found[f"{one.reach}.{one.width}" if by_width else f"memory.{one.reach}"] += ran.times
                    way = "memory.stored" if one.reach in ("store", "spill") else "memory.loaded"
                    found[way] += ran.times * one.moved
                found["all.flops"] += ran.times * one.flops
            found["all.instructions"] += ran.times * len(block)
            its = cost(block, ran.alone)
            found["memory.blocked"] += ran.times * its.blocked
            found["all.cycles"] += ran.times * its.cycles
            found[f"cycles.{its.limit}"] += ran.times * its.cycles
            taken.append((ran.times * its.cycles, ran.times, len(block)))
        if taken:
            found["hot.cycles"], found["hot.runs"], found["hot.length"] = max(taken)
            found["hot.others"] = sum(
                size for cycles, _, size in taken if cycles >= HOT * found["all.cycles"]
            )
        return cls(found)

    @classmethod
    def on_gpu(
        cls, ptx: str, launches: Sequence[LaunchShape], registers: int, frame_bytes: int, multiprocessors: int
    ) -> Self:
        """Return what is in kernels for a GPU; see `gpu_code.counts`.

        Raises:
            InputError: a kernel that is launched is not among them.
        """
        counted = gpu_code.counts(ptx, launches, registers, frame_bytes, multiprocessors)
        found = dict.fromkeys(MACHINE_CODE_NAMES, 0.0) | {
            f"gpu.{name}": counted[name] for name in gpu_code.GPU_CODE_NAMES
        }
        for name in ("flops", "instructions", "cycles"):
            found[f"all.{name}"] = counted[name]
        for name in ("loaded", "stored"):
            found[f"memory.{name}"] = SECTOR * counted[name]
        return cls(found)

    @property
    def for_gpu(self) -> bool:
        """Whether it is a GPU's code."""
        return self.numbers["gpu.whole.launches"] > 0

    @classmethod
    def within(cls, about: Mapping[str, Any]) -> Self | None:
        """Return the code that ``about``, a record's provenance or what `program_json` made, has; None: it has none.

        Raises:
            InputError: it is malformed.
        """
        return cls.from_json(about["code"]) if "code" in about else None

    def to_json(self) -> dict[str, float]:
        """Return a JSON object of the numbers that are not 0, to four digits."""
        return {name: float(f"{number:.4g}") for name, number in self.numbers.items() if number}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read back what ``to_json`` returned.

        Raises:
            InputError: it is malformed.
        """
        if not isinstance(data, dict) or not data.keys() <= set(MACHINE_CODE_NAMES):
            raise InputError(f"malformed counts of machine code: {str(data)[:120]}")
        try:
            return cls({name: float(data.get(name, 0.0)) for name in MACHINE_CODE_NAMES})
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"malformed counts of machine code: {str(data)[:120]}") from None


def program_json(tree: str, code: MachineCode | None) -> dict[str, Any]:
    """Return a JSON object of a program: its loop tree, as text, and its code where that is known."""
    return {"tree": tree} if code is None else {"tree": tree, "code": code.to_json()}
