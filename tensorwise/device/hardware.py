"""Hardware: what a device is made of, from datasheets or measured here. Models identify devices by it.

A file each in ``machines/devices``; a GPU's ``[cuda]`` table is what programs for it may ask for (``gpus.py``).
"""

import contextlib
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, Self, final, get_args

from tensorwise.device.host import host
from tensorwise.device.roofline import roofline
from tensorwise.errors import InputError
from tensorwise.reading import parse_dataclass

FOLDER: Final = Path(__file__).parent / "machines" / "devices"
Kind = Literal["cpu", "gpu", "accelerator"]


@final
@dataclass(frozen=True)
class Hardware:
    """What a device is made of; 0 where it is not known.

    Attributes:
        name: short, as people call it.
        kind: of device.
        clock_hz: of its cores.
        cores: number of parallel units: threads of a call on a CPU, multiprocessors of a GPU.
        memory_bytes: size of its memory; bandwidth: bytes of it a second.
        flops, half_flops: float32 and float16 operations a second of all cores, a multiply-add being two.
        vector_bytes: that a core computes with at a time; of a GPU a warp's.
        l1_bytes, l2_bytes: caches of a core; a GPU's L2 cache as a whole. last_bytes: cache that all cores of a CPU share.

    Raises:
        InputError: an unknown kind, or a negative number.
    """

    name: str
    kind: Kind
    clock_hz: float
    cores: int
    memory_bytes: float
    bandwidth: float
    flops: float
    half_flops: float
    vector_bytes: int
    l1_bytes: int
    l2_bytes: int
    last_bytes: int

    def __post_init__(self) -> None:
        numbers = [getattr(self, one.name) for one in fields(self) if one.type in (int, float)]
        if self.kind not in get_args(Kind) or not all(0 <= number < 1e18 for number in numbers):
            raise InputError(f"malformed description of device {self.name!r}: {self.kind}, {numbers}")

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read back what ``to_json`` returned, or what a file says.

        Raises:
            InputError: a field is missing, unknown, or no number.
        """
        return parse_dataclass(cls, data, "a device's description")


@cache
def files() -> dict[str, dict[str, Any]]:
    """Return the devices' files by name, as they are."""
    found = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.toml"))]
    return {one["name"]: one for one in found}


def described() -> dict[str, Hardware]:
    """Return the devices that come with the package, by name.

    >>> described()["T4"].bandwidth / 1e9
    320.0
    """
    return {
        name: Hardware.from_json({key: value for key, value in one.items() if key != "cuda"})
        for name, one in files().items()
    }


def this_cpu(name: str, threads: int, vector_bytes: int) -> Hardware:
    """Return this CPU as used by code for one instruction set; bandwidth and peak arithmetic are measured, once a machine.

    Args:
        name: of the device.
        threads: of a call.
        vector_bytes: width of the instruction set's vectors, one that the machine has.

    Raises:
        InputError: vectors are narrower here.
        CompilerError: no C compiler works here.
    """
    peak, facts = roofline(threads), host()
    if str(vector_bytes) not in peak.vectors:
        raise InputError(
            f"vectors of {vector_bytes} bytes are wider than those of {', '.join(peak.vectors)} that are used here"
        )
    return Hardware(
        name=name, kind="cpu", clock_hz=_clock_hz(), cores=threads, memory_bytes=facts.memory_bytes,
        bandwidth=peak.bandwidth["DRAM"], flops=peak.vectors[str(vector_bytes)], half_flops=0.0, vector_bytes=vector_bytes,
        l1_bytes=facts.l1d_bytes, l2_bytes=facts.l2_bytes, last_bytes=facts.l3_bytes,
    )  # fmt: skip


@cache
def _clock_hz() -> float:
    """The fastest clock that the kernel tells of now, to 100 MHz, since it varies."""
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        megahertz = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
        return round(max(megahertz, default=0.0), -2) * 1e6
    return 0.0
