"""How much memory a new structure may take before the machine is in trouble."""

from pathlib import Path

_UNLIMITED = 2**62


def available_bytes() -> int:
    """Bytes that can be allocated now: the system's available memory, or less where a control group sets a
    limit.

    Where neither can be read (not Linux), a very large number: then the operating system has the last word.
    """
    return max(0, min(_system_bytes(), _control_group_bytes()))


def _system_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return _UNLIMITED


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
