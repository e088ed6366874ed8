"""Registers and stack frames read from machine code of GPUs; real code is read in tests/simt, where there is an nvcc."""

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tensorwise.errors import InputError
from tensorwise.toolchain.cubin import Resources, resources


def cubin(attributes: bytes, name: bytes = b".nv.info") -> bytes:
    """An ELF file of two sections: names, and one of attributes."""
    strings = b"\0" + name + b"\0"
    contents = [(0, strings), (1, attributes)]
    start, body, heads = 64, b"", b""
    for place, content in contents:
        heads += struct.pack("<IIQQQQ", place, 0, 0, 0, start + len(body), len(content)) + bytes(24)
        body += content
    head = bytearray(64)
    head[:5] = b"\x7fELF\x02"
    struct.pack_into("<Q", head, 0x28, start + len(body))
    struct.pack_into("<HHH", head, 0x3A, 64, len(contents), 0)
    return bytes(head) + body + heads


def told(attribute: int, symbol: int, number: int) -> bytes:
    return struct.pack("<BBHII", 4, attribute, 8, symbol, number)


NOTHING = struct.pack("<BBH", 1, 0x2A, 0) + struct.pack("<BBH", 3, 0x1B, 255)
"""Attributes without a length: what they tell stands where it would."""
TWO = cubin(told(0x2F, 1, 40) + NOTHING + told(0x11, 1, 16) + told(0x2F, 2, 32) + told(0x11, 2, 0))


def test_the_kernel_that_takes_the_most_counts() -> None:
    assert resources(TWO) == Resources(registers=40, frame_bytes=16)
    assert resources(cubin(told(0x2F, 1, 255))) == (255, 0)


@pytest.mark.parametrize(
    "code", [b"", b"\x7fELF\x01" + bytes(80), cubin(b"", b".text"), cubin(NOTHING), TWO[:-100]]
)
def test_what_is_no_cubin_is_refused(code: bytes) -> None:
    with pytest.raises(InputError, match="cubin"):
        resources(code)


@example([(47, 128)])  # the table of sections begins past every address
@given(st.lists(st.tuples(st.integers(0, len(TWO) - 1), st.integers(0, 255)), max_size=8))
def test_damage_is_refused_or_read(changes: list[tuple[int, int]]) -> None:
    code = bytearray(TWO)
    for place, value in changes:
        code[place] = value
    try:
        found = resources(bytes(code))
    except InputError:
        return
    assert all(0 <= number < 2**32 for number in found)
