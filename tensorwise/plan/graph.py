"""What is to be placed: steps that read each other's results, and devices with links between them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.space.versions import Versions

Call = Callable[..., Any]


@final
@dataclass(frozen=True)
class Link:
    """A way for data from one device to another; both directions are two links.

    Attributes:
        source, target: names of devices.
        latency_s: seconds for any amount ...
        bytes_per_s: ... and besides, one for each so many bytes.
        move: (value) -> the value on the target; None where it may stay as it is.
    """

    source: str
    target: str
    latency_s: float = 0.0
    bytes_per_s: float = math.inf
    move: Call | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.latency_s < math.inf and self.bytes_per_s > 0):
            raise InputError(
                f"link {self.source} to {self.target}: latency must not be negative and bandwidth must be positive, "
                f"got {self.latency_s} s and {self.bytes_per_s} bytes/s"
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
            raise InputError(f"devices must be at least one and have different names, got {self.devices}")
        ends = {end for link in self.links for end in (link.source, link.target)}
        if unknown := ends.difference(self.devices):
            raise InputError(
                f"a link leads to {min(unknown)!r}, which is no device; they are {', '.join(self.devices)}"
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
        given_bytes: what it reads besides, from home.
        calls: device -> what computes it there; needed only to run a plan.
    """

    name: str
    seconds: Mapping[str, float]
    result_bytes: float = 0.0
    after: tuple[str, ...] = ()
    given_bytes: float = 0.0
    calls: Mapping[str, Call] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        numbers = (self.result_bytes, self.given_bytes, *self.seconds.values())
        if not self.seconds or not all(0 <= number < math.inf for number in numbers):
            raise InputError(
                f"step {self.name!r} needs seconds on some device, and no negative or infinite number: {numbers}"
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
class Graph:
    """Steps in an order in which they can run; results that no step reads are the application's.

    Raises:
        InputError: two steps share a name, or one reads a step that is not before it.
    """

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        known: set[str] = set()
        for step in self.steps:
            if step.name in known:
                raise InputError(f"two steps are called {step.name!r}; give them different names")
            if missing := [name for name in step.after if name not in known]:
                raise InputError(
                    f"step {step.name!r} reads {missing[0]!r}, which is no step before it; sort the steps"
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
        """Return what placing each step costs by itself, and what moving its result costs.

        Returns:
            (steps, devices): its seconds, what it is given brought there, and the application's results brought home;
            infinite where it cannot run. (steps, devices, devices): its result moved.

        Raises:
            InputError: a step knows a device that the network lacks.
        """
        places = {device: place for place, device in enumerate(network.devices)}
        seconds = np.full((len(self.steps), len(places)), np.inf)
        for row, step in enumerate(self.steps):
            for device, value in step.seconds.items():
                if device not in places:
                    raise InputError(
                        f"step {step.name!r} runs on {device!r}, which is no device; they are {', '.join(places)}"
                    )
                seconds[row, places[device]] = value
        moved = network.transfer_s(np.array([step.result_bytes for step in self.steps]))
        given = np.array([step.given_bytes for step in self.steps])
        brought = np.where(given[:, None] > 0, network.transfer_s(given)[:, 0, :], 0.0)
        final = np.array([not readers for readers in self.readers])
        return seconds + brought + np.where(final[:, None], moved[:, :, 0], 0.0), moved
