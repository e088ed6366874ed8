"""Compiled code as numbers: what a compiler made of a program, where it can be asked, and what caches miss meanwhile."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, final

import numpy as np

from tensorwise.analysis.featurizer import Featurizer, Field
from tensorwise.analysis.loop_tree import LoopTree
from tensorwise.analysis.machine_code import MACHINE_CODE_NAMES, SHARED, MachineCode
from tensorwise.analysis.misses import MISSED, missed
from tensorwise.analysis.x86 import ISSUE_WIDTH

_WHOLE: Final = (
    "all.cycles",
    "hot.length",
    "hot.others",
    *(name for name in MACHINE_CODE_NAMES if name.startswith("gpu.whole.")),
)
"""Numbers that are not told by the cycle."""


@final
@dataclass(frozen=True)
class Compiled:
    """A program with what a compiler made of it."""

    tree: LoopTree
    code: MachineCode


@final
class CodeFeatures(Featurizer[Compiled]):
    """Features of compiled code: executed instructions by kind, cycles of a simulated core, cache misses.

    Events are counted per cycle, so that one number says how long the program runs, and the others what limits it. All are
    0 for a program that was not compiled; features of CPUs are 0 for code of a GPU, and the other way round.
    """

    name: ClassVar[str] = "code"
    version: ClassVar[int] = 6

    @property
    def fields(self) -> tuple[Field, ...]:
        return _CODE_FIELDS

    def features(self, described: Compiled) -> np.ndarray:
        """Return the numbers of compiled code: float32, shape (len(fields),), all finite."""
        numbers, for_gpu = described.code.numbers, described.code.for_gpu
        by = math.log2(1 + numbers["all.cycles"])
        told = [
            math.log2(1 + numbers[name]) - (0.0 if name in _WHOLE else by)
            if name in SHARED or name.startswith("gpu.") == for_gpu
            else 0.0
            for name in MACHINE_CODE_NAMES
        ]
        if for_gpu:  # caches of one core are none of a GPU's
            return np.array([*told, *(0.0 for _ in MISSED)], np.float32)
        misses = missed(described.tree)
        return np.array([*told, *(math.log2(1 + misses[name]) - by for name in MISSED)], np.float32)


_WIDE: Final = {
    "arithmetic": "float additions, multiplications (with an addition in one, too) and comparisons",
    "load": "reads of memory, but for the stack and broadcasts",
    "store": "writes of memory, but for the stack",
}
_ALIKE: Final = {
    "kind.divide": ("instructions", "divisions and roots"),
    "kind.shuffle": ("instructions", "moves, extractions and insertions of vector lanes"),
    "kind.gather": ("lanes", "lanes that gather instructions load, each from its own address"),
    "kind.integer": ("instructions", "arithmetic of integers in vectors"),
    "kind.convert": ("instructions", "conversions and rounding"),
    "kind.move": ("instructions", "moves between registers, and loads and stores that compute nothing"),
    "kind.scalar": ("instructions", "other instructions on general-purpose registers"),
    "kind.branch": ("instructions", "jumps"),
    "kind.call": ("instructions", "calls"),
    "memory.broadcast": ("instructions", "reads of one number into all lanes"),
    "memory.reload": ("instructions", "reads of the stack"),
    "memory.spill": ("instructions", "writes of the stack"),
    "memory.blocked": (
        "instructions",
        "loads that cannot be forwarded, because several recent stores wrote parts of them",
    ),
    "memory.loaded": ("bytes", "bytes read, the stack included"),
    "memory.stored": ("bytes", "bytes written, the stack included"),
    "all.flops": ("operations", "float operations of all lanes, masked ones included"),
    "all.instructions": ("instructions", "all executed instructions; on a GPU those of warps"),
    "all.cycles": (
        "cycles",
        f"cycles of one core that issues {ISSUE_WIDTH} instructions a cycle, without cache misses; or of a whole GPU",
    ),
    "hot.cycles": ("cycles", "cycles of the basic block that takes the most"),
    "hot.runs": ("runs", "how often that block runs"),
    "hot.length": ("instructions", "the length of that block"),
    "hot.others": ("instructions", "the length of all basic blocks that take 1 % of the cycles or more"),
}
_ON_GPUS: Final = {
    "arithmetic": (
        "instructions",
        "float additions, multiplications and comparisons of a GPU's warps",
    ),
    "special": ("instructions", "divisions, roots, exponentials and the like"),
    "integer": ("instructions", "arithmetic of integers and conditions"),
    "convert": ("instructions", "conversions"),
    "move": ("instructions", "moves and selections"),
    "branch": ("instructions", "jumps"),
    "exchange": ("instructions", "shuffles: exchanges between lanes of a warp"),
    "barrier": ("instructions", "barriers of a block"),
    "load": ("requests", "reads of global memory"),
    "store": ("requests", "writes of global memory"),
    "loaded": ("sectors", "sectors of 32 bytes that are read"),
    "stored": ("sectors", "sectors of 32 bytes that are written"),
    "shared.load": ("requests", "reads of shared memory"),
    "shared.store": ("requests", "writes of shared memory"),
    "shared.loaded": ("turns", "turns that reads of shared memory take, bank conflicts included"),
    "shared.stored": ("turns", "turns that writes of shared memory take, bank conflicts included"),
    "local": ("requests", "reads and writes of local memory"),
    "cycles.issue": ("cycles", "issue cycles of a simulated GPU, for instructions of any kind"),
    "cycles.arithmetic": ("cycles", "its cycles for float arithmetic and conversions"),
    "cycles.integer": ("cycles", "its cycles for integer arithmetic"),
    "cycles.shared": ("cycles", "its cycles for shared memory"),
    "cycles.global": ("cycles", "its cycles for global memory"),
    "cycles.local": ("cycles", "its cycles for local memory"),
    "cycles.waiting": ("cycles", "its cycles in which a warp waits for memory"),
    "cycles.blocks": ("cycles", "its cycles for launching blocks"),
    "whole.launches": ("launches", "the number of kernels, which run in sequence"),
    "whole.blocks": ("blocks", "the blocks of the slowest kernel"),
    "whole.threads": ("threads", "threads of a block"),
    "whole.resident": ("warps", "warps that are resident on a multiprocessor"),
    "whole.registers": ("registers", "registers of a thread"),
    "whole.frame": ("bytes", "local memory of a thread"),
    "whole.shared": ("bytes", "shared memory of a block"),
}
_BY: Final = "log2((1 + {}) / (1 + cycles))"
_LIMITED: Final = {
    "issue": "the issue width",
    "arithmetic": "arithmetic or shuffles",
    "vectors": "vector instructions of any kind",
    "loads": "loads",
    "stores": "stores",
    "gathers": "gathered lanes",
    "latency": "the latency of results that the next iteration needs",
}


def _fields() -> Iterator[Field]:
    for name in MACHINE_CODE_NAMES:
        group, _, part = name.partition(".")
        if group == "gpu":
            unit, doc = _ON_GPUS[part]
        elif group in _WIDE:
            unit, doc = "instructions", f"{_WIDE[group]}, of {part} bytes each"
        elif group == "cycles":
            unit, doc = "cycles", f"cycles of basic blocks that are limited by {_LIMITED[part]}"
        else:
            unit, doc = _ALIKE[name]
        yield Field(name, f"log2(1 + {unit})" if name in _WHOLE else _BY.format(unit), doc)
    for name, (unit, doc) in MISSED.items():
        yield Field(f"missed.{name}", _BY.format(unit), doc)


_CODE_FIELDS: Final = tuple(_fields())
CODE: Final = CodeFeatures()
UNCOMPILED: Final = np.zeros(len(_CODE_FIELDS), np.float32)
"""The numbers of a program that was not compiled: zeros."""
