"""The versions of a function, run and timed in this process: they must agree before their times count."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, final

import numpy as np

from tensorwise.device.device import Candidate, Device, Measurement, Status
from tensorwise.device.fastest import BOUT, agreed, fastest
from tensorwise.device.host import host
from tensorwise.device.rounds import median_of
from tensorwise.device.timing import interleave, measuring_slot, time_calls
from tensorwise.ids import content_id
from tensorwise.runtime.call import Call
from tensorwise.space.config import Config
from tensorwise.space.versions import Version, Versions
from tensorwise.toolchain.threads import available_threads

VERSIONS_PROTOCOL: Final = "6"
"""Changes whenever times taken before and after are not comparable."""
FAR: Final = 10.0
"""A version this many times slower than the fastest, by the better of two calls, is not called again ..."""
LONG_S: Final = 0.02
"""... if that one took longer than this."""
CLOSE: Final = 2.0
"""After the first rounds only versions whose fastest run is within this factor of the fastest are timed in further ones:
on a shared machine one may have been half as fast in all of them."""
CALLS: Final = 3
"""A round has so many batches of calls, at least ..."""
STOP_S: Final = 0.01
"""... unless they took this long together."""

Agree: TypeAlias = Callable[[Any, Any], str | None]
"""(result, expected result) -> None, or in words how they differ."""


@final
class VersionsDevice(Device[Call]):
    """Runs versions of one function on the arguments of a call.

    They run in this process, so a version that crashes ends it. A version that raises, or whose result differs from that
    of the first version asked for, is a failed measurement. The time of a version is that of its fastest run in interleaved
    rounds (see `fastest`), with moving operands and results, whose share is in ``conversion_s``.

    Args:
        space: the versions.
        agree: how results are compared; default ``difference``.
        rounds: how often versions close to the fastest are timed at most.
        budget_s: seconds for the rounds of one call, after which no further ones begin.
        seed: of the order within rounds.
    """

    name = "versions"

    def __init__(
        self,
        space: Versions,
        agree: Agree | None = None,
        *,
        rounds: int = 24,
        budget_s: float = 0.5,
        seed: int = 0,
    ) -> None:
        self.versions, self.agree = space, agree or difference
        self._max_rounds, self._rounds_s = rounds, budget_s
        self.id = content_id(["versions", VERSIONS_PROTOCOL, host().id, str(available_threads())])
        self._rng = np.random.default_rng(seed)
        self._met: set[str] = set()

    def space(self, workload: Call) -> Versions:
        """Return the versions, whatever the call."""
        return self.versions

    def measure(
        self,
        workload: Call,
        candidates: Sequence[Candidate],
        *,
        incumbent_s: float | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Measurement]:
        """Yield a measurement for each config, all after the last round; see :class:`Device`."""
        versions = [self.versions.program(workload, one) for one in candidates if isinstance(one, Config)]
        found: dict[str, Measurement] = {}
        if versions:
            with measuring_slot():
                first_s = self._first_calls(workload, versions, found)
                self._time(workload, [v for v in versions if v.name in first_s], first_s, found)
        yield from (found[version.name] for version in versions)

    def _first_calls(
        self, call: Call, versions: Sequence[Version], failed: dict[str, Measurement]
    ) -> dict[str, float]:
        """Return the seconds of one call of each version that returns what the first one does."""
        first_s: dict[str, float] = {}
        expected: Any = None
        for version in dict.fromkeys(versions):
            try:
                if version.name not in self._met:  # what is loaded or compiled once is not the version's time
                    version.whole(*call.arguments)
                    self._met.add(version.name)
                result, took_s = _called(version, call)
                problem = self.agree(result, expected) if first_s else None
            except Exception as error:
                failed[version.name] = _failure(error)
                continue
            if problem is None:
                expected = expected if first_s else result
                first_s[version.name] = took_s
            else:
                of = next(iter(first_s))
                failed[version.name] = Measurement.failed("wrong", f"not what {of!r} returns: {problem}")
        return first_s

    def _time(
        self,
        call: Call,
        versions: Sequence[Version],
        first_s: dict[str, float],
        found: dict[str, Measurement],
    ) -> None:
        """Time versions against each other, the closer to the fastest the more often."""
        limit_s = max(FAR * min(first_s.values(), default=0.0), LONG_S)
        left: dict[str, Version] = {}
        for version in versions:
            took_s = first_s[version.name]
            try:
                if took_s > limit_s:  # once more: it may have been stopped
                    took_s = min(took_s, _called(version, call)[1])
            except Exception as error:
                found[version.name] = _failure(error)
                continue
            if took_s <= limit_s:
                left[version.name] = version
                continue
            note = "the better of two calls, as it is far slower than the fastest"
            found[version.name] = Measurement(took_s, 0.0, (took_s,), "ok", note)
        met, times = dict(left), {name: list[float]() for name in left}
        ends = time.perf_counter() + self._rounds_s
        for done in range(0, self._max_rounds, BOUT):
            for row in self._time_rounds(call, left, min(BOUT, self._max_rounds - done), found):
                for name in left:
                    times[name].append(row[name])
            best_s = {name: min(times[name]) for name in met if name not in found}
            limit_s = CLOSE * min(best_s.values(), default=0.0)
            left = {
                name: version
                for name, version in left.items()
                if best_s[name] <= limit_s and not agreed(times[name])
            }
            if not left or time.perf_counter() > ends:
                break
        for name in best_s:
            measured = fastest(times[name])
            found[name] = _with_moves(measured, met[name], call) if met[name].moves else measured

    def _time_rounds(
        self, call: Call, versions: dict[str, Version], rounds: int, failed: dict[str, Measurement]
    ) -> Sequence[Mapping[str, float]]:
        """Return the fastest runs of rounds of all versions but those that fail, which are taken out of ``versions``."""
        while versions:
            running = ""

            def calling(name: str) -> Callable[[], object]:
                whole = versions[name].whole

                def run() -> object:
                    nonlocal running
                    running = name
                    return whole(*call.arguments)

                return run

            try:
                return interleave(
                    {name: calling(name) for name in versions}, rounds, self._rounds_s, self._rng,
                    min_s=1e-3, min_calls=CALLS, max_s=STOP_S, warm_s=3e-4,
                ).seconds  # fmt: skip
            except Exception as error:
                failed[running] = _failure(error)
                del versions[running]
        return ()


def _called(version: Version, call: Call) -> tuple[Any, float]:
    """Result and seconds of one call."""
    start = time.perf_counter()
    result = version.whole(*call.arguments)
    return result, time.perf_counter() - start


def _with_moves(measured: Measurement, version: Version, call: Call) -> Measurement:
    """Return ``measured`` with ``conversion_s``, the time of moving operands and results: all but the function's own."""
    brought = version.bring(*call.arguments) if version.bring else call.arguments
    inside_s = median_of(time_calls(lambda: version.function(*brought), min_s=2e-3, max_s=0.1))
    return replace(measured, conversion_s=max(0.0, measured.seconds - inside_s))


def _failure(error: Exception) -> Measurement:
    status: Status = "memory" if isinstance(error, MemoryError) else "crash"
    return Measurement.failed(status, f"{type(error).__name__}: {error}"[:300])


def difference(result: Any, expected: Any) -> str | None:
    """Return how a result differs from the expected one; None where both are the same up to rounding.

    Sequences are compared item by item; sparse matrices, arrays and numbers by shape, integers exactly, floats within
    1e-3 (1e-9 where both are of 64 bits) of the largest expected magnitude.

    >>> difference(np.float32([1, 2]), np.float32([1, 2.5]))
    'off by 0.5 where values go up to 2.5'
    """
    if isinstance(expected, tuple | list):
        if not isinstance(result, tuple | list) or len(result) != len(expected):
            return f"{type(result).__name__} instead of {type(expected).__name__} of {len(expected)}"
        parts = (difference(*pair) for pair in zip(result, expected, strict=True))
        return next((part for part in parts if part is not None), None)
    a, b = (
        value.toarray() if hasattr(value, "toarray") else np.asarray(value) for value in (result, expected)
    )
    if a.shape != b.shape:
        return f"shape {a.shape} instead of {b.shape}"
    if not b.size:
        return None
    if not (np.issubdtype(a.dtype, np.inexact) or np.issubdtype(b.dtype, np.inexact)):
        unequal = int(np.count_nonzero(a != b))
        return f"{unequal} of {b.size} values differ" if unequal else None
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return "NaN or infinite in other places"
    near = 1e-9 if {a.dtype.itemsize, b.dtype.itemsize} <= {8, 16} else 1e-3
    off, top = (float(np.nanmax(np.abs(np.where(np.isfinite(b), x, 0)))) for x in (a - b, b))
    return None if off <= near * top or off == 0 else f"off by {off:.3g} where values go up to {top:.3g}"
