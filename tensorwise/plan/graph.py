"""What is to be placed: steps that read each other's results, and devices with links between them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.moved import forward_names
from tensorwise.reading import LONGEST_SHOWN, printable, shown
from tensorwise.space.versions import Versions

Call = Callable[..., Any]
MOST_DEVICES: Final = 128
MOST_LINKS: Final = MOST_DEVICES**2
MOST_MOVES: Final = 2**23
"""(Steps + what they read) x devices^2: a table of so many numbers, 64 MiB, is made of what moving each result costs."""


@final
@dataclass(frozen=True)
class Link:
    """A connection on which data can move from one device to another, in one direction.

    Attributes:
        source, target: names of devices.
        latency_s: seconds that each transfer takes, whatever its size.
        bytes_per_s: bandwidth; a transfer of n bytes takes ``latency_s + n / bytes_per_s`` seconds.
        move: a function that copies a value to the target and returns the copy; None if the target can read it in place.
    """

    source: str
    target: str
    latency_s: float = 0.0
    bytes_per_s: float = math.inf
    move: Call | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.latency_s < math.inf and self.bytes_per_s > 0):
            raise InputError(
                f"link {shown(self.source)} to {shown(self.target)}: latency must not be negative and bandwidth must "
                f"be positive, got {self.latency_s} s and {self.bytes_per_s} bytes/s"
            )

    def seconds(self, size_bytes: float) -> float:
        """Seconds that so many bytes take."""
        return self.latency_s + size_bytes / self.bytes_per_s


@final
@dataclass(frozen=True)
class Network:
    """Devices, and the links between them; what has no link of its own goes through others.

    Attributes:
        devices: their names; operands come from the first one, ``home``, and results go back there.
        links: several between the same two are alternatives: the quicker one for the amount is taken.
    """

    devices: tuple[str, ...]
    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        if not self.devices or len(set(self.devices)) < len(self.devices):
            raise InputError(
                f"devices must be at least one and have different names, got {shown(self.devices)}"
            )
        if len(self.devices) > MOST_DEVICES or len(self.links) > MOST_LINKS:
            raise InputError(
                f"{len(self.devices)} devices and {len(self.links)} links are too many to place steps on; expected at most "
                f"{MOST_DEVICES} devices and {MOST_LINKS} links: leave out devices that are like others"
            )
        ends = {end for link in self.links for end in (link.source, link.target)}
        if unknown := ends.difference(self.devices):
            raise InputError(
                f"a link leads to {shown(min(unknown))}, which is no device; they are {_listed(self.devices)}"
            )

    @property
    def home(self) -> str:
        """Where operands come from and results go."""
        return self.devices[0]

    def transfer_s(self, sizes_bytes: np.ndarray) -> np.ndarray:
        """Return seconds from device to device: (...) bytes -> (..., devices, devices), infinite where there is no way."""
        sizes = np.asarray(sizes_bytes, float)
        count = len(self.devices)
        seconds = np.full((*sizes.shape, count, count), np.inf)
        seconds[..., range(count), range(count)] = 0.0
        for link in self.links:
            a, b = self.devices.index(link.source), self.devices.index(link.target)
            direct = link.latency_s + sizes / link.bytes_per_s
            seconds[..., a, b] = np.minimum(seconds[..., a, b], direct)
        for via in range(count if count > 2 else 0):
            np.minimum(seconds, seconds[..., :, via, None] + seconds[..., None, via, :], out=seconds)
        return seconds

    def route(self, source: str, target: str, size_bytes: float) -> list[Link]:
        """Return the links that so many bytes take, in order, none from a device to itself.

        Raises:
            InputError: there is no way.
        """
        least = self.transfer_s(np.array(size_bytes))
        here, goal, taken = self.devices.index(source), self.devices.index(target), list[Link]()
        if not math.isfinite(least[here, goal]):
            raise InputError(f"there is no way from {source} to {target}; add links")
        while here != goal:
            onward = [link for link in self.links if link.source == self.devices[here] and link not in taken]
            taken.append(
                min(
                    onward,
                    key=lambda link: link.seconds(size_bytes) + least[self.devices.index(link.target), goal],
                )
            )
            here = self.devices.index(taken[-1].target)
        return taken


@final
@dataclass(frozen=True)
class Step:
    """One kernel of an application.

    Attributes:
        name: unique in its graph.
        seconds: device -> seconds of its fastest version there, operands in place; where it cannot run it is left out.
        result_bytes: size of what it returns.
        after: names of the steps whose results it reads, in the order of its arguments.
        given_bytes: bytes of operands that it reads from the home device.
        calls: device -> function that computes the step there; needed only to run a plan.
    """

    name: str
    seconds: Mapping[str, float]
    result_bytes: float = 0.0
    after: tuple[str, ...] = ()
    given_bytes: float = 0.0
    calls: Mapping[str, Call] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        numbers = (self.result_bytes, self.given_bytes, *self.seconds.values())
        odd = [number for number in numbers if not 0 <= number < math.inf]
        if odd or not self.seconds:
            raise InputError(
                f"step {shown(self.name)} needs seconds on some device, and no negative or infinite number, "
                f"got {odd[0] if odd else 'no seconds'}"
            )

    @classmethod
    def of(cls, name: str, space: Versions, seconds: Sequence[float], **about: Any) -> Self:
        """Return a step that runs the fastest version of a function on each device.

        Args:
            name: of the step.
            space: the versions.
            seconds: of each of ``space.configs``, without moving operands and results: measured, or predicted by any
                CostModel; infinite for those that failed.
            about: ``result_bytes``, ``after``, ``given_bytes``.
        """
        fastest: dict[str, tuple[float, Call]] = {}
        for version, value in zip(space.versions, map(float, seconds), strict=True):
            if value < fastest.get(version.device, (math.inf,))[0]:
                fastest[version.device] = value, version.function
        times = {device: value for device, (value, _) in fastest.items()}
        return cls(name, times, calls={device: call for device, (_, call) in fastest.items()}, **about)


@final
@dataclass(frozen=True)
class StepGraph:
    """Steps in an order in which they can run; results that no step reads are the application's.

    Raises:
        InputError: two steps share a name, or one reads a step that is not before it.
    """

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        known: set[str] = set()
        for step in self.steps:
            if step.name in known:
                raise InputError(f"two steps are called {shown(step.name)}; give them different names")
            if missing := [name for name in step.after if name not in known]:
                raise InputError(
                    f"step {shown(step.name)} reads {shown(missing[0])}, which is no step before it; sort the steps"
                )
            known.add(step.name)
        if not self.steps:
            raise InputError("a graph needs a step")

    @cached_property
    def number(self) -> Mapping[str, int]:
        """Place of each step."""
        return {step.name: place for place, step in enumerate(self.steps)}

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For each step the places of those that read its result, each once."""
        readers: list[dict[int, None]] = [{} for _ in self.steps]
        for place, step in enumerate(self.steps):
            for name in step.after:
                readers[self.number[name]][place] = None
        return tuple(tuple(places) for places in readers)

    @property
    def is_chain(self) -> bool:
        """Whether each step reads the one before it, and nothing else."""
        pairs = zip(self.steps, self.steps[1:])
        return not self.steps[0].after and all(after.after == (step.name,) for step, after in pairs)

    def costs(self, network: Network) -> tuple[np.ndarray, np.ndarray]:
        """Return the seconds of each step on each device, and the seconds of moving its result between devices.

        Returns:
            First an array of shape (steps, devices): the run time of a step on a device, plus the time to bring it those
            inputs that lie on the first device, plus the time to bring its result to the first device if no other step reads
            it; infinite where the step cannot run. Then an array of shape (steps, devices, devices): the time to move the
            step's result from one device (second axis) to another (third axis).

        Raises:
            InputError: a step names a device that is not in ``network``, or steps x devices are more than can be placed.
        """
        reads = sum(len(step.after) for step in self.steps)
        if (size := (len(self.steps) + reads) * len(network.devices) ** 2) > MOST_MOVES:
            raise InputError(
                f"{len(self.steps)} steps that read {reads} results, on {len(network.devices)} devices, are too many to "
                f"place: (steps + results read) x devices^2 is {size}, expected at most {MOST_MOVES}; place parts of the "
                "application one after the other, or on fewer devices"
            )
        places = {device: place for place, device in enumerate(network.devices)}
        seconds = np.full((len(self.steps), len(places)), np.inf)
        for row, step in enumerate(self.steps):
            for device, value in step.seconds.items():
                if device not in places:
                    raise InputError(
                        f"step {shown(step.name)} runs on {shown(device)}, which is no device; they are {_listed(places)}"
                    )
                seconds[row, places[device]] = value
        sizes, which = np.unique([step.result_bytes for step in self.steps], return_inverse=True)
        moved = network.transfer_s(sizes)[which]
        given = np.array([step.given_bytes for step in self.steps])
        amounts, which = np.unique(given, return_inverse=True)
        brought = np.where(given[:, None] > 0, network.transfer_s(amounts)[:, 0, :][which], 0.0)
        final = np.array([not readers for readers in self.readers])
        return seconds + brought + np.where(final[:, None], moved[:, :, 0], 0.0), moved


def _listed(names: Iterable[str]) -> str:
    """Return names for a message, and not endlessly."""
    some = [printable(name)[:LONGEST_SHOWN] for name in names]
    return ", ".join(some[:9]) + (f" and {len(some) - 9} more" if len(some) > 9 else "")


__getattr__ = forward_names(__name__, {"Graph": f"{__name__}:StepGraph"})
