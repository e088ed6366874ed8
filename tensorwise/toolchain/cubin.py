"""Resource use of GPU machine code, as its assembler states it: registers of a thread, and memory for spilled ones.

Read from the code itself, a cubin, which is an ELF file with a section ``.nv.info`` of attributes; no tool and no GPU is
needed. The attributes have one format since Fermi: an id, then 4 bytes or as many as it says.
"""

import struct
from typing import Final, NamedTuple

from tensorwise.errors import InputError

_INFO: Final = ".nv.info"
_REGISTERS, _FRAME = 0x2F, 0x11
"""Attributes: the number of a kernel's symbol, then its registers, or the bytes of its stack frame."""
_LISTED: Final = 4
"""Format of attributes whose length follows."""


class Resources(NamedTuple):
    """What a thread takes, of the kernel that takes the most.

    Attributes:
        registers: of 32 bits.
        frame_bytes: of memory of its own; our kernels have no arrays there, so that all of it is what was spilled.
    """

    registers: int
    frame_bytes: int


def resources(code: bytes) -> Resources:
    """Read a cubin.

    Raises:
        InputError: it is none, or has no kernel.
    """
    try:
        found = dict(_attributes(_section(code, _INFO)))
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        raise InputError(
            f"expected a cubin, got {len(code)} bytes that cannot be read as one: {error}"
        ) from error
    if _REGISTERS not in found:
        raise InputError("the cubin has no kernel with a register count; give one that ptxas or nvrtc wrote")
    return Resources(found[_REGISTERS], found.get(_FRAME, 0))


def _section(code: bytes, wanted: str) -> bytes:
    """The contents of a section of a 64-bit ELF file; ValueError where there is none."""
    if code[:5] != b"\x7fELF\x02":
        raise ValueError("it is no 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", code, 0x28)
    size, count, names = struct.unpack_from("<HHH", code, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", code, table + place * size) for place in range(count)]
    strings = heads[names][4]
    for name, _, _, _, offset, length in heads:
        begin = strings + name
        if code[begin : code.index(b"\0", begin)] == wanted.encode():
            return code[offset : offset + length]
    raise ValueError(f"it has no section {wanted}")


def _attributes(section: bytes) -> list[tuple[int, int]]:
    """(attribute, the number that it tells of a kernel), ascending: the largest of each stands last."""
    found, at = [], 0
    while at < len(section):
        format, attribute, length = struct.unpack_from("<BBH", section, at)
        at += 4
        if format == _LISTED:
            if attribute in (_REGISTERS, _FRAME):
                found.append((attribute, struct.unpack_from("<II", section, at)[1]))
            at += length
    return sorted(found)
