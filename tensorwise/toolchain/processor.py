"""What this machine's processor is and can, as far as compiled code depends on it."""

import os
import platform
from functools import cache
from pathlib import Path
from typing import Final

from tensorwise.errors import InputError
from tensorwise.ids import content_id

WIDTHS: Final = (16, 32, 64)
"""Bytes of the vector registers of SSE and NEON, AVX2, AVX-512."""
ON_ARM: Final = platform.machine().lower().startswith(("arm", "aarch64"))
"""Whether this is an ARM processor."""


def cpu_id() -> str:
    """Return the processor's model and an id of its features, as in ``x86_64 AMD EPYC 0123456789abcdef``."""
    model, features = describe_processor()
    return f"{model} {content_id(sorted(features), 16)}"


def vector_bytes() -> int:
    """Return the width in bytes of the vector registers that code uses at most: 16, 32 or 64.

    It is that of this processor, or less where ``TENSORWISE_VECTOR_BYTES`` says so: to see what a smaller processor would
    do. Wider vector types compile, but gcc keeps them in memory, many times slower.

    Raises:
        InputError: the variable has another value.
    """
    given = os.environ.get("TENSORWISE_VECTOR_BYTES", "").strip()
    if given and given not in map(str, WIDTHS):
        raise InputError(
            f"TENSORWISE_VECTOR_BYTES is {given!r}; expected one of {', '.join(map(str, WIDTHS))}"
        )
    return min(_widest(), int(given or WIDTHS[-1]))


def narrowing() -> tuple[str, ...]:
    """Return the flags that keep a compiler from wider registers than ``vector_bytes``; none where there are none."""
    if vector_bytes() == _widest():
        return ()
    return ("-mno-avx512f",) if vector_bytes() == WIDTHS[1] else ("-mno-avx",)


def _widest() -> int:
    features = frozenset() if ON_ARM else describe_processor()[1]  # an emulator shows those of its host
    return 64 if "avx512f" in features else 32 if "avx2" in features else 16


@cache
def describe_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, frozenset[str]]:
    """Return the model of the first processor that ``cpuinfo`` lists, and the names of its features."""
    machine = platform.machine()
    try:
        first = cpuinfo.read_text(errors="replace").split("\n\n", 1)[0]
    except OSError:
        return f"{machine} {platform.processor()}".strip(), frozenset()
    model, features = [machine], frozenset[str]()
    for line in first.splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if name in ("flags", "Features"):
            features = frozenset(value.split())
        elif name in ("model name", "CPU implementer", "CPU part"):
            model.append(value)
    return " ".join(model), features
