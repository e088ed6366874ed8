"""How much memory a new structure may take before the machine is in trouble."""

from pathlib import Path
from typing import Final

from tensorwise.system import sysconf
from tensorwise.toolchain.places import number_from

_UNLIMITED = 2**62
RESULT_BYTES: Final = 2**30
"""Dense results up to this size are computed from any operands: a laptop holds several of them."""
RESULT_VARIABLE: Final = "TENSORWISE_RESULT_BYTES"
"""Environment variable that holds another size."""


def largest_result_bytes() -> int:
    """Return the size in bytes up to which dense results are never refused: ``RESULT_BYTES``, or the user's variable.

    Raises:
        InputError: ``TENSORWISE_RESULT_BYTES`` is not a whole number.
    """
    return number_from(RESULT_VARIABLE, RESULT_BYTES, "bytes")


def available_bytes() -> int:
    """Bytes that can be allocated now: the system's available memory, or less where a control group sets a limit.

    Where neither can be read (not Linux), the machine's memory, or a very large number where that is unknown, too.
    """
    return max(0, min(_system_bytes(), _control_group_bytes()))


def _system_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return sysconf("SC_PHYS_PAGES") * sysconf("SC_PAGE_SIZE") or _UNLIMITED


def _control_group_bytes() -> int:
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            return int(Path(limit).read_text()) - int(Path(used).read_text())
        except (OSError, ValueError):  # absent, or "max"
            continue
    return _UNLIMITED
