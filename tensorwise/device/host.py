"""Facts about this machine and what its other processes are doing: cheap, read from the kernel's files."""

import contextlib
import functools
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from tensorwise import system
from tensorwise.ids import content_id
from tensorwise.toolchain.processor import cpu_id, vector_bytes

CACHES: Final = {
    "l1d_bytes": "first-level caches",
    "l2_bytes": "second-level caches",
    "l3_bytes": "third-level caches",
}
"""Sizes of caches among the facts about a machine."""


@final
@dataclass(frozen=True)
class Host:
    """What is known about this machine; sizes are 0 where it does not tell.

    Attributes:
        cpu: model name of the processor.
        features_id: content id of its model and instruction-set features.
        physical_cores, logical_cores: in the whole machine, not only this process's share.
        l1d_bytes, l2_bytes, l3_bytes: capacity of one cache of each level.
        memory_bytes: size of the memory.
        os: system and release.
    """

    cpu: str
    features_id: str
    physical_cores: int
    logical_cores: int
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    memory_bytes: int
    os: str

    @property
    def id(self) -> str:
        """Content id of the hardware; the operating system and the exact memory size do not enter."""
        caches = (self.l1d_bytes, self.l2_bytes, self.l3_bytes)
        cores = (self.physical_cores, self.logical_cores)
        return content_id([self.cpu, self.features_id, repr(caches), repr(cores)])

    @property
    def facts(self) -> dict[str, object]:
        """What the order of configs by time may depend on, JSON-able; see ``unlike``."""
        cores = {"physical_cores": self.physical_cores, "logical_cores": self.logical_cores}
        caches = {name: getattr(self, name) for name in CACHES}
        return {"cpu": self.cpu, "vector_bytes": vector_bytes(), **cores, **caches}


@functools.cache
def host() -> Host:
    """Return the facts about this machine, read once a process."""
    model, physical = _processor(Path("/proc/cpuinfo"))
    caches = _caches(Path("/sys/devices/system/cpu/cpu0/cache"))
    logical = os.cpu_count() or 1
    return Host(
        cpu=model or platform.processor() or platform.machine(),
        features_id=cpu_id(),
        physical_cores=physical or logical,
        logical_cores=logical,
        l1d_bytes=caches.get(1, 0),
        l2_bytes=caches.get(2, 0),
        l3_bytes=caches.get(3, 0),
        memory_bytes=system.sysconf("SC_PHYS_PAGES") * system.sysconf("SC_PAGE_SIZE"),
        os=f"{platform.system()} {platform.release()}",
    )


def unlike(facts: Mapping[str, object]) -> list[str]:
    """Return the differences between this machine and one with ``facts`` that may make other configs the fastest.

    That is another width of vectors, or a cache at least twice or at most half as large; sizes that are not known do
    not count, and names of processors neither: virtual machines hide them.
    """
    here, found = host().facts, []
    if facts.get("vector_bytes") not in (None, here["vector_bytes"]):
        found.append(f"vectors of {facts['vector_bytes']} bytes, here {here['vector_bytes']}")
    for name, what in CACHES.items():
        there, own = facts.get(name), here[name]
        if isinstance(there, int) and isinstance(own, int) and there and own and not 0.5 < there / own < 2:
            found.append(f"{what} of {there >> 10} KiB, here {own >> 10}")
    return found


def _processor(path: Path) -> tuple[str, int]:
    """Model name and number of physical cores."""
    model, cores = "", set()
    package = core = ""
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            key, _, value = (part.strip() for part in line.partition(":"))
            if key == "model name":
                model = value
            elif key == "physical id":
                package = value
            elif key == "core id":
                core = value
                cores.add((package, core))
    return model, len(cores)


def _caches(directory: Path) -> dict[int, int]:
    """Level -> bytes of the data or unified cache of one core."""
    sizes: dict[int, int] = {}
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    for index in sorted(directory.glob("index*")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
            if kind != "Instruction":
                sizes[int(level)] = int(size[:-1]) * units[size[-1]]
    return sizes


@final
@dataclass(frozen=True)
class CpuTime:
    """A reading of the clocks, in seconds.

    Attributes:
        at_s: when.
        busy_s: time that the CPUs this process may use have spent busy, for anyone, since boot.
        own_s: time that this process and its ended children have used.
        cpus: number of those CPUs; 0 where the kernel does not tell.
    """

    at_s: float
    busy_s: float
    own_s: float
    cpus: int


def cpu_time() -> CpuTime:
    """Read the clocks (about 50 microseconds)."""
    busy, cpus = _busy(Path("/proc/stat"), system.allowed_cpus())
    return CpuTime(time.monotonic(), busy, system.cpu_seconds(), cpus)


def _busy(path: Path, mine: set[int]) -> tuple[float, int]:
    """Seconds that the CPUs ``mine`` were busy, and how many of them were found."""
    ticks = float(system.sysconf("SC_CLK_TCK") or 100)
    total, cpus = 0, 0
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            name, *fields = line.split()
            if name[:3] != "cpu" or not name[3:].isdecimal() or int(name[3:]) not in mine:
                continue
            # user nice system idle iowait irq softirq steal: idle and iowait are not busy
            counts = [int(field) for field in fields[:8]]
            total += sum(counts) - sum(counts[3:5])
            cpus += 1
    return total / ticks, cpus


def foreign_load(before: CpuTime, after: CpuTime | None = None) -> float:
    """Return the share, 0 to 1, of the CPUs' time that other processes took between two readings.

    The CPUs are those this process may use. The kernel counts in ticks of 10 ms, so intervals should
    last 0.1 s or more; what two ticks a CPU could explain is returned as 0. Without ``/proc/stat``
    it is 0 as well.
    """
    after = after or cpu_time()
    elapsed = after.at_s - before.at_s
    if not before.cpus or before.cpus != after.cpus or elapsed <= 0:
        return 0.0
    foreign = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    noise = 0.02 * before.cpus
    return 0.0 if foreign <= noise else min(1.0, foreign / (elapsed * before.cpus))
