"""Device and Measurement: where programs run, and what a run took."""

import abc
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar, final, get_args

import numpy as np

from tensorwise.device.rounds import MIN_ROUNDS, RoundTable
from tensorwise.errors import InputError
from tensorwise.reading import WRONG_DATA, reason, shown
from tensorwise.runtime.kernel import GENERATED, BoundKernel, Kernel
from tensorwise.space.config import Config
from tensorwise.space.space import Space
from tensorwise.version import __version__

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload
    from tensorwise.toolchain.cubin import Resources
    from tensorwise.toolchain.routines import Routines

Candidate: TypeAlias = Config | str
"""What a device is asked to run: a config of its space, or a library's routine by name."""

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
        conversion_s: seconds that packing the operand took, once. For a version of a function: seconds of each call for
            moving operands and result, which ``seconds`` includes. 0 where nothing was packed or moved.
        bytes_held: bytes of the packed operand and workspaces.
        registers, frame_bytes: registers and bytes of stack of a GPU thread, from the machine code; 0 registers: not known.
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
        """The cost given to a Strategy: the seconds, a lower bound when censored, infinite when failed."""
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


@final
@dataclass(frozen=True)
class Rounds:
    """Kernels timed against each other in interleaved rounds.

    Attributes:
        table: seconds by kernel and round; names are those that were given. None where no kernel ran.
        facts: kernel -> conversion_s, bytes_held, compile_s; what is not there is not known.
        failed: kernel -> why it dropped out.
    """

    table: RoundTable | None
    facts: Mapping[str, Mapping[str, float]]
    failed: Mapping[str, str]


class Device(abc.ABC, Generic[Work]):
    """A place where programs run: a CPU, a GPU, a simulator, a recording.

    A device implements ``name``, ``id`` and ``measure``, for a tuner also ``space``; everything else has a default.
    A device whose operators can be called also implements ``kernel``.

    Lifetime: ``measure`` any number of times, then ``close``; a ``with`` block closes. A candidate that
    fails is a Measurement with another status than ok, never an exception.

    Attributes:
        name: short, for people: ``cpu``, ``null``.
        id: content id of all that the times depend on (machine, compiler, flags, protocol).
        threads: CPU threads that a call of an operator uses.
        compile_s: seconds that this device has spent on compiling so far.
        warnings: what a user should know about how the device was opened, such as threads that it did not grant.
        budget_s: default budget of a tuning, in seconds.
        baseline: name of the library that a user calls without Tensorwise; break-even is counted against it. Empty
            where no library runs on this device.
        routines: compiled routines of this package that candidates need.
        deterministic: equal questions get equal answers, so that one round compares kernels.
        in_process: operators run on the CPU of the calling process, so that a single call can be timed without a worker.
        verifies: measurements compared the numbers of candidates with the reference. Where a device does not, the operator
            of a tuning is compared once before it is returned.
        drifts: times change from one measurement to the next, as on a shared machine, so that records of a collection
            also hold ratios of interleaved rounds.
    """

    name: str
    id: str
    threads: int = 1
    compile_s: float = 0.0
    warnings: Sequence[str] = ()
    budget_s: ClassVar[float] = 30.0
    baseline: ClassVar[str] = ""
    routines: ClassVar[tuple["Routines", ...]] = ()
    deterministic: ClassVar[bool] = False
    in_process: ClassVar[bool] = False
    verifies: ClassVar[bool] = False
    drifts: ClassVar[bool] = False

    def space(self, workload: Work) -> Space[Any]:
        """Return the space of configs that a tuner searches for ``workload`` on this device.

        Raises:
            TensorwiseError: the device cannot compute the workload; the message says why. A device without this method has
                no space and raises InputError: it measures configs of other devices' spaces only.
        """
        raise InputError(
            f"the device {self.name!r} says no choices (`Device.space`): nothing can be tuned for it"
        )

    @abc.abstractmethod
    def measure(
        self,
        workload: Work,
        candidates: Sequence[Candidate],
        *,
        incumbent_s: float | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Measurement]:
        """Yield one measurement for each candidate, in order, each as soon as it is there.

        The iterator may be dropped at any point; what it holds is then released.

        Args:
            candidates: configs of ``space(workload)``, and names of ``libraries(workload)``.
            incumbent_s: the best time so far, in seconds: a device may give up what is far slower (``censored``).
            limit_s: seconds after which no further candidate is started: a device may then yield fewer measurements
                than candidates, but at least one.

        Raises:
            MeasurementError: the device itself is gone; candidates do not raise.
        """

    @cached_property
    def provenance(self) -> Mapping[str, object]:
        """What a Record says about the device besides the times."""
        return {"version": __version__, "host": self.name, "host_id": self.id}

    def libraries(self, workload: Work) -> Sequence[str]:
        """Return the names of the library routines that can run ``workload`` here."""
        return ()

    def start(self, workload: Work) -> None:
        """Begin to load ``workload`` and return without waiting for it. Calling it is optional.

        Raises:
            MeasurementError: the operands cannot be handed over.
        """

    def prepare(self, workload: Work, configs: Sequence[Config]) -> None:
        """Compile ``configs`` together, where that is cheaper than one after the other. Calling it is optional."""

    def resources(self, workload: Work, configs: Sequence[Config]) -> "Sequence[Resources | None]":
        """Return what a thread of each config takes of the device, without running it; None where that is unknown."""
        return [None] * len(configs)

    def rounds(
        self, workload: Work, candidates: Mapping[str, Candidate], *, budget_s: float, max_rounds: int = 30
    ) -> Rounds:
        """Time ``candidates`` (name -> candidate) against each other.

        By default each round measures each candidate once; a deterministic device needs one round.

        Args:
            budget_s: seconds after which no further round begins; at least three rounds are run.

        Raises:
            MeasurementError: the device is gone.
        """
        start, failed, facts = time.perf_counter(), dict[str, str](), dict[str, Mapping[str, float]]()
        rounds: list[dict[str, float]] = []
        names = list(candidates)
        for _ in range(1 if self.deterministic else max_rounds):
            found = dict(zip(names, self.measure(workload, [candidates[name] for name in names])))
            found |= {
                name: Measurement.failed("crash", "the device gave no measurement")
                for name in names
                if name not in found
            }
            failed |= {name: one.note or one.status for name, one in found.items() if not one.ok}
            facts |= {
                name: {"conversion_s": one.conversion_s, "bytes_held": one.bytes_held, "compile_s": 0.0}
                for name, one in found.items()
            }
            names = [name for name in names if name not in failed]
            if not names:
                return Rounds(None, facts, failed)
            rounds.append({name: found[name].seconds for name in names})
            if time.perf_counter() - start > budget_s and len(rounds) >= MIN_ROUNDS:
                break
        timed = tuple({name: one[name] for name in names} for one in rounds)
        table = RoundTable(tuple(names), timed, (False,) * len(timed), elapsed_s=time.perf_counter() - start)
        return Rounds(table, facts, failed)

    def kernel(self, workload: Work, candidate: Candidate) -> Kernel:
        """Return the kernel of a candidate, which an operator binds and calls.

        By default it can be bound but not called: the device measures and nothing more.
        """
        if isinstance(candidate, str):
            return MeasuredOnly(self.name, candidate, None)
        program = self.space(workload).program(workload, candidate)  # type: ignore[arg-type]
        return MeasuredOnly(self.name, GENERATED, program)

    def default_kernel(self, workload: Work) -> Kernel:
        """Return the kernel of an operator where nothing was measured: that of the space's default config."""
        return self.kernel(workload, self.space(workload).default(workload))  # type: ignore[arg-type]

    def close(self) -> None:
        """Release processes and memory. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@final
class MeasuredOnly(Kernel):
    """The kernel of a device whose programs are measured there and cannot be called from here.

    Args:
        device: name of the device.
        name: of the library, or GENERATED.
        program: what was measured, None for a library.
    """

    def __init__(self, device: str, name: str, program: Any) -> None:
        self._device, self.name, self.program = device, name, program

    def bind(self, workload: "Workload", threads: int) -> BoundKernel:
        """Return a kernel that raises InputError when it is run."""
        return _NotCallable(self._device)


@final
class _NotCallable(BoundKernel):
    def __init__(self, device: str) -> None:
        self._device = device

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        raise InputError(
            f"this operator was tuned for the device {self._device!r}, which measures programs but cannot be called from "
            "Python; give the device a method `kernel`, or tune for another device"
        )
