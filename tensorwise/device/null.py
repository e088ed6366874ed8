"""A device whose costs follow from a formula, without a measurement: to test and compare tuners."""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, final

from tensorwise.device.device import Candidate, Device, Measurement
from tensorwise.device.opening import DeviceOptions
from tensorwise.ids import content_id
from tensorwise.space.config import Config, Value
from tensorwise.space.cpu import cpu_space_of
from tensorwise.space.space import Space

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

Cost: TypeAlias = "Callable[[Workload, Config], float]"


def smooth_cost(workload: "Workload", config: Config) -> float:
    """Return seconds that depend on every choice smoothly, the same on every machine.

    The logarithm is a sum over choices: numbers have a best power of two and cost more the further they are
    from it, names have each their own cost, orders prefer certain items early. Where the optimum
    lies depends on the workload.

    Returns:
        Between about 1e-3 (optimum) and 1 s for a few dozen choices.
    """
    terms = [_term(workload.id, name, value) for name, value in config.items() if value is not None]
    return 1e-3 * math.exp(5 * sum(terms) / max(len(terms), 1))


def _term(seed: str, name: str, value: Value) -> float:
    """Cost of one choice, between 0 (best) and about 1."""
    if isinstance(value, tuple):
        weights = [_uniform(seed, name, item) * (1 - k / len(value)) for k, item in enumerate(value)]
        return 2 * sum(weights) / max(len(value), 1)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        best = 8 * _uniform(seed, name)
        return min(((math.log2(value) - best) / 8) ** 2, 1.0)
    return _uniform(seed, name, repr(value))


def _uniform(*parts: str) -> float:
    """A number in [0, 1) that depends on the texts only."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


@final
class NullDevice(Device):
    """Answers ``cost(workload, config)`` seconds without running anything.

    A cost that is infinite, negative or no number is a crash, so that failures can be played too.

    Args:
        cost: the formula; a pure function.
        name: identifies the formula; part of the id.
        space: what can be chosen (default: what a CPU has for the workload).
    """

    deterministic: ClassVar[bool] = True

    def __init__(self, cost: Cost = smooth_cost, name: str = "null", space: Space[Any] | None = None) -> None:
        self.name = name
        self.id = content_id(["null", name])
        self._cost, self._space = cost, space

    @classmethod
    def from_options(cls, options: DeviceOptions) -> Self:
        """Return the device of the usual formula; it has no use for options."""
        return cls()

    def space(self, workload: "Workload") -> Space[Any]:
        """Return the space that was given, or that of a CPU."""
        return self._space or cpu_space_of(workload)

    def measure(
        self,
        workload: "Workload",
        candidates: Sequence[Candidate],
        *,
        incumbent_s: float | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Measurement]:
        """Yield what the formula says of each config; there are no libraries."""
        for config in candidates:
            if isinstance(config, str):
                yield Measurement.failed("refused", f"there is no library {config!r} here")
                continue
            seconds = self._cost(workload, config)
            if 0 <= seconds < math.inf:
                yield Measurement.of([seconds])
            else:
                yield Measurement.failed("crash", f"the cost function said {seconds}")
