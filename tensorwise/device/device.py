"""Device and Measurement: where programs run, and what a run took."""

import abc
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Literal, Self, TypeVar, final, get_args

import numpy as np

from tensorwise.errors import InputError
from tensorwise.reading import WRONG_DATA, reason, shown
from tensorwise.space.config import Config

Work = TypeVar("Work", contravariant=True)
"""What is measured and predicted: a `Workload`, or a `Call` of a function."""

Status = Literal["ok", "wrong", "crash", "timeout", "memory", "refused", "censored", "implausible"]
"""How a measurement ended.

ok           ran, was verified and timed
wrong        ran and gave wrong numbers
crash        ended its process
timeout      did not compile or finish within its limit
memory       needed more memory than allowed
refused      could not be turned into a program, or is not in the recording
censored     was given up: slower than ``seconds``, which is a lower bound
implausible  faster than the machine can be
"""

STATUSES: tuple[Status, ...] = get_args(Status)


@final
@dataclass(frozen=True)
class Measurement:
    """What one config took on one workload.

    Attributes:
        seconds: median of the samples, or the least where others on the machine can only slow a run down (`fastest`); when
            censored a lower bound; otherwise infinite.
        spread_s: interquartile range of the samples, in seconds; 0 without samples.
        samples: seconds of the single runs, in the order they ran; empty where only the median is known.
        status: how it ended, one of STATUSES.
        note: one line for people: why it failed, or on what condition it was taken.
        conversion_s: seconds that packing the operand took, once; of a version of a function what moving its operands and
            its result takes in each call, and is part of ``seconds``; 0 where nothing was packed or moved.
        bytes_held: bytes of the packed operand and workspaces.
        registers, frame_bytes: what a thread of a GPU takes, as its machine code says; 0 registers: it is not known.
    """

    seconds: float
    spread_s: float = 0.0
    samples: tuple[float, ...] = ()
    status: Status = "ok"
    note: str = ""
    conversion_s: float = 0.0
    bytes_held: int = 0
    registers: int = 0
    frame_bytes: int = 0

    def __post_init__(self) -> None:
        # Notes quote compilers and library errors, which need not be valid text.
        object.__setattr__(self, "note", self.note.encode("utf-8", "replace").decode())
        if self.status not in STATUSES:
            raise InputError(f"status must be one of {', '.join(STATUSES)}, got {self.status!r}")
        timed = self.status in ("ok", "censored")
        if not (0 <= self.seconds < math.inf if timed else self.seconds == math.inf):
            wanted = "finite and not negative" if timed else "infinite"
            raise InputError(
                f"seconds of a measurement that is {self.status} must be {wanted}, got {self.seconds!r}"
            )
        if not (0 <= self.spread_s < math.inf and all(0 <= sample < math.inf for sample in self.samples)):
            raise InputError(
                f"spread and samples must be finite and not negative, got {self.spread_s!r}, {self.samples!r}"
            )

    @classmethod
    def of(cls, samples: Sequence[float], note: str = "") -> "Measurement":
        """Return the measurement with median and interquartile range of ``samples`` (seconds)."""
        if not len(samples):
            raise InputError("a measurement needs at least one sample")
        low, median, high = (float(q) for q in np.percentile(np.asarray(samples, float), (25, 50, 75)))
        return cls(median, high - low, tuple(float(sample) for sample in samples), "ok", note)

    @classmethod
    def failed(cls, status: Status, note: str) -> "Measurement":
        """Return the measurement of a candidate that ended with ``status``."""
        return cls(math.inf, 0.0, (), status, note)

    @property
    def ok(self) -> bool:
        """Whether ``seconds`` is a verified time."""
        return self.status == "ok"

    @property
    def cost(self) -> float:
        """What a Strategy is told: the seconds, a lower bound when censored, infinite when failed."""
        return self.seconds

    def to_json(self) -> dict[str, object]:
        """Return a JSON object; infinite seconds become null."""
        return {
            "seconds": self.seconds if math.isfinite(self.seconds) else None,
            "spread_s": self.spread_s,
            "samples": list(self.samples),
            "status": self.status,
            "note": self.note,
            "conversion_s": self.conversion_s,
            "bytes_held": self.bytes_held,
            **({"registers": self.registers, "frame_bytes": self.frame_bytes} if self.registers else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "Measurement":
        """Read back what ``to_json`` returned.

        Raises:
            InputError: a field is missing or has the wrong type.
        """
        try:
            seconds, samples = data["seconds"], data["samples"]
            return cls(
                math.inf if seconds is None else float(seconds),  # type: ignore[arg-type]
                float(data["spread_s"]),  # type: ignore[arg-type]
                tuple(float(sample) for sample in samples),  # type: ignore[attr-defined]
                data["status"],  # type: ignore[arg-type]
                str(data["note"]),
                float(data.get("conversion_s", 0.0)),  # type: ignore[arg-type]
                int(data.get("bytes_held", 0)),  # type: ignore[call-overload]
                int(data.get("registers", 0)),  # type: ignore[call-overload]
                int(data.get("frame_bytes", 0)),  # type: ignore[call-overload]
            )
        except WRONG_DATA as error:
            raise InputError(f"malformed measurement {shown(data)}: {reason(error)}") from error


class Device(abc.ABC, Generic[Work]):
    """A place where programs run: a CPU, a GPU, a simulator, a recording.

    Lifetime: ``measure`` any number of times, then ``close``; a ``with`` block closes. A candidate that
    fails is a Measurement with another status than ok, never an exception.

    Attributes:
        name: short, for people: ``cpu``, ``null``.
        id: content id of all that the times depend on (machine, compiler, flags, protocol).
    """

    name: str
    id: str

    @abc.abstractmethod
    def measure(self, workload: Work, configs: Sequence[Config]) -> Iterator[Measurement]:
        """Yield one measurement for each config, in order, each as soon as it is there.

        The iterator may be dropped at any point; what it holds is then released.

        Raises:
            MeasurementError: the device itself is gone; candidates do not raise.
        """

    def close(self) -> None:
        """Release processes and memory. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
