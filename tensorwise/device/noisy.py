"""A wrapper that makes any device as unreliable as a shared machine."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tensorwise.device.device import Candidate, Device, Measurement
from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.runtime.kernel import Kernel
from tensorwise.space.space import Space

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload


@final
class NoisyDevice(Device):
    """Multiplies the times of another device by log-normal noise and drift, and lets some runs fail.

    Args:
        device: measures; closed together with this one.
        rng: draws noise and failures; the same seed gives the same answers to the same questions.
        sigma: standard deviation of the natural logarithm of a sample's noise; 0.1 is a busy laptop.
        failure_rate: share of ok measurements that crash instead, in [0, 1].
        drift: relative slow-down from one measurement to the next; 0.001 adds a third in 300.
        samples: runs per measurement, each with its own noise.
    """

    def __init__(
        self,
        device: Device,
        rng: np.random.Generator,
        *,
        sigma: float = 0.1,
        failure_rate: float = 0.0,
        drift: float = 0.0,
        samples: int = 5,
    ) -> None:
        if not (sigma >= 0 and 0 <= failure_rate <= 1 and drift > -1 and samples >= 1):
            raise InputError(
                "expected sigma >= 0, failure_rate in [0, 1], drift > -1 and samples >= 1, "
                f"got {sigma}, {failure_rate}, {drift}, {samples}"
            )
        self.name = f"noisy {device.name}"
        self.id = content_id(["noisy", device.id, repr((sigma, failure_rate, drift, samples))])
        self._device, self._rng = device, rng
        self._sigma, self._failure_rate, self._drift, self._samples = sigma, failure_rate, drift, samples
        self._slowdown = 1.0

    def space(self, workload: "Workload") -> Space[Any]:
        """Return that of the other device."""
        return self._device.space(workload)

    def libraries(self, workload: "Workload") -> Sequence[str]:
        """Return those of the other device."""
        return self._device.libraries(workload)

    def kernel(self, workload: "Workload", candidate: Candidate) -> Kernel:
        """Return that of the other device."""
        return self._device.kernel(workload, candidate)

    def measure(
        self,
        workload: "Workload",
        candidates: Sequence[Candidate],
        *,
        incumbent_s: float | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Measurement]:
        """Yield the other device's measurements, disturbed; ``incumbent_s`` and ``limit_s`` are its."""
        for clean in self._device.measure(workload, candidates, incumbent_s=incumbent_s, limit_s=limit_s):
            failed = self._rng.random() < self._failure_rate
            noise = np.exp(self._sigma * self._rng.standard_normal(self._samples)) * self._slowdown
            self._slowdown = min(self._slowdown * (1 + self._drift), 1e6)  # stays finite
            if not clean.ok:
                yield clean
            elif failed:
                yield Measurement.failed("crash", "failed by chance (noisy device)")
            else:
                yield Measurement.of((clean.seconds * noise).tolist(), clean.note)

    def close(self) -> None:
        self._device.close()
