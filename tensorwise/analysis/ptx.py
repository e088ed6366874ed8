"""Kernels for GPUs in PTX, the assembly that NVRTC writes: their blocks and instructions, read from its text.

What registers hold there, loops that were unrolled and accesses that became one are as in the machine code; which register
a value is in, and in what order things are done, is not.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, final

_ENTRY: Final = re.compile(r"\.entry\s+([\w$]+)")
_LABEL: Final = re.compile(r"(\$?[\w$]+):$")
_GUARD: Final = re.compile(r"@(!?)(%p\d+)\s+")
_ARRAY: Final = re.compile(r"\.(shared|local)\s+\.align\s+(\d+)\s+\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?")
_OPERAND: Final = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
_REGISTER: Final = re.compile(r"%[a-z]+\d+")
_BYTES: Final = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}
"""Of a type, by the bits in its name."""
SPACES: Final = ("global", "shared", "local", "param", "const")
"""Memories."""
JUMPS: Final = ("bra", "ret", "exit")
_TOUCHING: Final = ("ld", "st", "atom", "red", "cp")
"""Instructions that may go to memory; ``cp`` copies from global to shared memory without a register between."""
_SILENT: Final = (*JUMPS, "st", "red", "cp", "bar", "barrier", "membar", "fence", "call", "trap", "prefetch")
"""Instructions that write no register."""


@final
@dataclass(frozen=True)
class PtxInstruction:
    """One instruction, such as ``@!%p1 ld.global.nc.v2.f32 {%f1, %f2}, [%rd1+8];``

    Attributes:
        name: the first word, ``ld``; parts: those behind it, ``global``, ``nc``, ``v2``, ``f32``.
        operands: as text, results first.
        guard: the predicate that decides whether it is done; ``unless``: it is done where that does not hold.
    """

    name: str
    parts: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str | None = None
    unless: bool = False

    @classmethod
    def of(cls, text: str) -> "PtxInstruction":
        """Return the instruction of a line, without its semicolon."""
        guard = _GUARD.match(text)
        words = text[guard.end() :] if guard else text
        head, rest = (*words.split(None, 1), "")[:2]
        name, *parts = head.split(".")
        operands = tuple(_OPERAND.findall(rest))
        return cls(name, tuple(parts), operands, guard[2] if guard else None, bool(guard and guard[1]))

    @property
    def kind(self) -> str:
        """Of the values: ``f32``, ``u64``, ``pred``; empty where it has none."""
        return self.parts[-1] if self.parts else ""

    @property
    def space(self) -> str:
        """The memory that it touches, one of SPACES; of a copy, where it reads."""
        return next((part for part in reversed(self.parts) if part in SPACES), "global")

    @cached_property
    def touches(self) -> bool:
        """Whether it goes to memory, for more than a parameter."""
        return self.name in _TOUCHING and self.space != "param" and self.address != ""

    @property
    def bytes(self) -> int:
        """What a lane moves."""
        if self.name == "cp":
            return int(self.operands[2])
        lanes = next((int(part[1:]) for part in self.parts if part in ("v2", "v4")), 1)
        return lanes * _BYTES.get(self.kind[1:], 4)

    @property
    def address(self) -> str:
        """Where in memory: a register or the name of an array, and bytes from there. Of a copy, where it reads."""
        places = [one for one in self.operands if one[0] == "["]
        return places[-1][1:-1] if places else ""

    @cached_property
    def results(self) -> tuple[str, ...]:
        """Registers that are written."""
        return () if self.name in _SILENT or not self.operands else tuple(_REGISTER.findall(self.operands[0]))

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Registers that are read, the guard among them."""
        given = self.operands[1:] if self.results else self.operands
        return (*_REGISTER.findall(" ".join(given)), *([self.guard] if self.guard else ()))


@final
@dataclass
class PtxKernel:
    """A kernel.

    Attributes:
        name: of the kernel, used to launch it.
        blocks: basic blocks. Only the last instruction of a block jumps, to one of ``labels`` (blocks by name); else
            control falls through to the next block.
        arrays: where each array of shared memory begins, and each of a thread's own, in bytes.
        shared_bytes: of memory that the threads of a block share.
    """

    name: str
    blocks: list[list[PtxInstruction]] = field(default_factory=lambda: [[]])
    labels: dict[str, int] = field(default_factory=dict)
    arrays: dict[str, int] = field(default_factory=dict)
    shared_bytes: int = 0


def kernels(text: str) -> Iterator[PtxKernel]:
    """Yield the kernels of a module, in PTX as NVRTC prints it."""
    kernel: PtxKernel | None = None
    for line in (raw.split("//")[0].strip() for raw in text.split("\n")):
        if found := _ENTRY.search(line):
            kernel = PtxKernel(found[1])
        elif kernel is None or not line:
            continue
        elif line == "}":
            yield kernel
            kernel = None
        elif found := _ARRAY.match(line):
            _place(kernel, *found.groups())
        elif found := _LABEL.match(line):
            if kernel.blocks[-1]:
                kernel.blocks.append([])
            kernel.labels[found[1]] = len(kernel.blocks) - 1
        elif line.endswith(";") and line[0] not in ".{(":
            kernel.blocks[-1].append(PtxInstruction.of(line[:-1]))
            if kernel.blocks[-1][-1].name in JUMPS:
                kernel.blocks.append([])


def _place(kernel: PtxKernel, space: str, align: str, kind: str, name: str, count: str | None) -> None:
    if space == "local":  # each thread has its own: where does not matter
        kernel.arrays[name] = 0
        return
    begin = -(-kernel.shared_bytes // int(align)) * int(align)
    kernel.arrays[name] = begin
    kernel.shared_bytes = begin + _BYTES.get(kind[1:], 4) * int(count or 1)
