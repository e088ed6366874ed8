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
from tensorwise.analysis.x86 import FIVE

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
    """What runs when a compiled program does: instructions by kind, cycles of a simulated core, lines that caches miss.

    Counts of events are given per cycle: how long a program runs is one number, and what limits it the others. Of a
    program that was not compiled all are 0, and so is what is counted of CPUs' code alone in a GPU's, and the other way.
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
    "kind.shuffle": ("instructions", "what moves lanes of vectors, takes them out or puts them in"),
    "kind.gather": ("lanes", "lanes that are fetched each from a place of its own"),
    "kind.integer": ("instructions", "arithmetic of integers in vectors"),
    "kind.convert": ("instructions", "conversions and rounding"),
    "kind.move": ("instructions", "moves between registers, and loads and stores that compute nothing"),
    "kind.scalar": ("instructions", "what else is done in general registers"),
    "kind.branch": ("instructions", "jumps"),
    "kind.call": ("instructions", "calls"),
    "memory.broadcast": ("instructions", "reads of one number into all lanes"),
    "memory.reload": ("instructions", "reads of the stack"),
    "memory.spill": ("instructions", "writes of the stack"),
    "memory.blocked": ("instructions", "reads that wait, since several stores have just written parts of it"),
    "memory.loaded": ("bytes", "what is read, the stack included"),
    "memory.stored": ("bytes", "what is written, the stack included"),
    "all.flops": ("operations", "float operations of all lanes, those in use and the others"),
    "all.instructions": ("instructions", "all that run, of a GPU's code those of warps"),
    "all.cycles": (
        "cycles",
        f"what one core takes that does {FIVE} instructions a cycle, caches left out; or all of a GPU",
    ),
    "hot.cycles": ("cycles", "those of the block that takes most"),
    "hot.runs": ("runs", "how often that block runs"),
    "hot.length": ("instructions", "the length of that block"),
    "hot.others": ("instructions", "the length of all blocks that take a hundredth of the cycles and more"),
}
_ON_GPUS: Final = {
    "arithmetic": (
        "instructions",
        "those of a GPU's warps: float additions, multiplications and comparisons",
    ),
    "special": ("instructions", "divisions, roots, exponentials and the like"),
    "integer": ("instructions", "arithmetic of integers and conditions"),
    "convert": ("instructions", "conversions"),
    "move": ("instructions", "moves and choices"),
    "branch": ("instructions", "jumps"),
    "exchange": ("instructions", "what lanes hand to each other"),
    "barrier": ("instructions", "waiting for all threads of a block"),
    "load": ("requests", "reads of global memory"),
    "store": ("requests", "writes of global memory"),
    "loaded": ("sectors", "those of 32 bytes that are read"),
    "stored": ("sectors", "those that are written"),
    "shared.load": ("requests", "reads of shared memory"),
    "shared.store": ("requests", "writes of shared memory"),
    "shared.loaded": ("turns", "those that these reads take, banks that several lanes meet in"),
    "shared.stored": ("turns", "those that these writes take"),
    "local": ("requests", "reads and writes of a thread's own memory"),
    "cycles.issue": ("cycles", "those of an imagined GPU for instructions of any kind"),
    "cycles.arithmetic": ("cycles", "those for floats, and for conversions"),
    "cycles.integer": ("cycles", "those for integers"),
    "cycles.shared": ("cycles", "those for shared memory"),
    "cycles.global": ("cycles", "those for global memory"),
    "cycles.local": ("cycles", "those for threads' own memory"),
    "cycles.waiting": ("cycles", "those in which a warp waits for what it reads"),
    "cycles.blocks": ("cycles", "those to begin blocks of threads"),
    "whole.launches": ("launches", "kernels that run one after the other"),
    "whole.blocks": ("blocks", "those of the kernel that takes longest"),
    "whole.threads": ("threads", "those of a block"),
    "whole.resident": ("warps", "those that a multiprocessor holds at once"),
    "whole.registers": ("registers", "those of a thread"),
    "whole.frame": ("bytes", "what a thread has of memory of its own"),
    "whole.shared": ("bytes", "what threads of a block share"),
}
_BY: Final = "log2((1 + {}) / (1 + cycles))"
_LIMITED: Final = {
    "issue": "all their instructions",
    "arithmetic": "their arithmetic, or shuffles",
    "vectors": "all that they do with vectors",
    "loads": "their loads",
    "stores": "their stores",
    "gathers": "the lanes that they gather",
    "latency": "results that one iteration waits for from the one before",
}


def _fields() -> Iterator[Field]:
    for name in MACHINE_CODE_NAMES:
        group, _, part = name.partition(".")
        if group == "gpu":
            unit, doc = _ON_GPUS[part]
        elif group in _WIDE:
            unit, doc = "instructions", f"{_WIDE[group]}, of {part} bytes each"
        elif group == "cycles":
            unit, doc = "cycles", f"those of blocks that take as long as {_LIMITED[part]}"
        else:
            unit, doc = _ALIKE[name]
        yield Field(name, f"log2(1 + {unit})" if name in _WHOLE else _BY.format(unit), doc)
    for name, (unit, doc) in MISSED.items():
        yield Field(f"missed.{name}", _BY.format(unit), doc)


_CODE_FIELDS: Final = tuple(_fields())
CODE: Final = CodeFeatures()
UNCOMPILED: Final = np.zeros(len(_CODE_FIELDS), np.float32)
"""Those of a program that was not compiled."""
