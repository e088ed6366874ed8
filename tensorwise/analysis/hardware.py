"""Devices as numbers (CDMPP, section 4.3): what models learn the difference between devices from."""

import math
from typing import ClassVar, Final, final

import numpy as np

from tensorwise.analysis.featurizer import Featurizer, Field
from tensorwise.device.hardware import Hardware


@final
class HardwareFeatures(Featurizer[Hardware]):
    """What a device is made of, on logarithmic scales: from one device to another all of it changes by factors."""

    name: ClassVar[str] = "hardware"
    version: ClassVar[int] = 1

    @property
    def fields(self) -> tuple[Field, ...]:
        return _HARDWARE_FIELDS

    def features(self, described: Hardware) -> np.ndarray:
        """Return the numbers of a device: float32, shape (len(fields),), all finite; what is not known is 0."""
        kinds = [float(described.kind == kind) for kind in _KINDS]
        scaled = [math.log2(1 + getattr(described, name) / unit) for name, unit, _, _ in _SCALED]
        return np.array([*kinds, *scaled], np.float32)


_KINDS: Final = ("cpu", "gpu")
_SCALED: Final = (
    ("clock_hz", 1e6, "MHz", "the clock of the cores"),
    ("cores", 1, "cores", "parallel workers: threads of a call on a CPU, multiprocessors of a GPU"),
    ("memory_bytes", 1e9, "GB", "the size of the memory"),
    ("bandwidth", 1e9, "GB/s", "the bandwidth of the memory"),
    ("flops", 1e9, "Gflop/s", "the float32 rate of all cores together"),
    ("half_flops", 1e9, "Gflop/s", "the float16 rate of all cores together; 0 without float16 arithmetic"),
    ("vector_bytes", 1, "bytes", "the width of a vector register"),
    ("l1_bytes", 1024, "KiB", "the first-level cache of a core"),
    ("l2_bytes", 1024, "KiB", "the second-level cache, of a core of a CPU or of a whole GPU"),
    ("last_bytes", 1024, "KiB", "the last-level cache, shared by all cores of a CPU"),
)
_HARDWARE_FIELDS: Final = (
    *(Field(f"kind.{kind}", "0 or 1", f"whether the device is a {kind}") for kind in _KINDS),
    *(Field(name, f"log2(1 + {unit})", doc) for name, _, unit, doc in _SCALED),
)
HARDWARE: Final = HardwareFeatures()
