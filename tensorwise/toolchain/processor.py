"""What this machine's processor is and can, as far as compiled code depends on it."""

import platform
from functools import cache
from pathlib import Path

from tensorwise.ids import content_id


def cpu_id() -> str:
    """Return the processor's model and an id of its features, as in ``x86_64 AMD EPYC 0123456789abcdef``."""
    model, features = describe_processor()
    return f"{model} {content_id(sorted(features), 16)}"


def vector_bytes() -> int:
    """Return the width of this processor's vector registers in bytes: 16, 32 or 64.

    Wider vector types compile, but gcc keeps them in memory, many times slower.
    """
    _, features = describe_processor()
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
