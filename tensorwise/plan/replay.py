"""Plan: a graph placed on devices. It runs, and says when what happens where. Replay: the same of steps side by side."""

import heapq
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from tensorwise.errors import InputError
from tensorwise.moved import forward_names
from tensorwise.plan.graph import Link, Network, StepGraph
from tensorwise.plan.place import Placement, place


@final
@dataclass(frozen=True)
class Event:
    """An event of a plan: a step on a device, or a transfer between two.

    Attributes:
        name: of the step, or of the value that is moved for it.
        where: a device, or ``SOURCE to TARGET``.
        start_s: seconds from the start of the plan.
        seconds: duration.
    """

    name: str
    where: str
    start_s: float
    seconds: float

    @property
    def end_s(self) -> float:
        """Seconds after the beginning at which it is over."""
        return self.start_s + self.seconds


def lasts(events: Iterable[Event]) -> float:
    """Return the seconds until all of these is over; 0 of nothing."""
    return max((event.end_s for event in events), default=0.0)


@final
@dataclass(frozen=True)
class _Move:
    """Something goes from device to device: what step ``of`` returned, or, if that is None, what ``reader`` is given."""

    name: str
    of: int | None
    reader: int
    source: str
    target: str
    size_bytes: float


@final
@dataclass(frozen=True)
class PlacementPlan:
    """Steps one after the other, each on its device.

    Attributes:
        graph, network: what was placed, and where.
        placement: the answer; `PlacementPlan.best` finds it.
    """

    graph: StepGraph
    network: Network
    placement: Placement

    @classmethod
    def best(cls, graph: StepGraph, network: Network) -> "PlacementPlan":
        """Return the plan that takes least; see ``place``."""
        return cls(graph, network, place(graph, network))

    @classmethod
    def single(cls, graph: StepGraph, network: Network, device: str) -> "PlacementPlan":
        """Return the plan that runs everything on one device: what a placement has to beat.

        Raises:
            InputError: some step cannot run there.
        """
        if missing := [step.name for step in graph.steps if device not in step.seconds]:
            raise InputError(f"step {missing[0]!r} cannot run on {device}")
        alone = tuple(replace(step, seconds={device: step.seconds[device]}) for step in graph.steps)
        return cls(graph, network, place(StepGraph(alone), network))

    def timeline(self) -> list[Event]:
        """Return what happens, as predicted, in order; it takes ``placement.seconds``."""
        events: list[Event] = []
        clock = 0.0
        for what in self._schedule():
            if isinstance(what, int):
                step, device = self.graph.steps[what], self.placement.devices[what]
                legs = [(step.name, device, step.seconds[device])]
            else:
                route = self.network.route(what.source, what.target, what.size_bytes)
                legs = [(what.name, f"{a.source} to {a.target}", a.seconds(what.size_bytes)) for a in route]
            for name, where, seconds in legs:
                events.append(Event(name, where, clock, seconds))
                clock += seconds
        return events

    def run(self, *operands: Any, observe: Callable[[Event], None] | None = None) -> Any:
        """Compute it.

        Args:
            operands: for each step that reads no other step, its arguments; moved to its device if it has ``given_bytes``.
                Further arguments of other steps must be bound in their callables.
            observe: called with each event as it was.

        Returns:
            The application's result; of several a tuple, in the order of their steps.

        Raises:
            InputError: a step has no callable on its device.
        """
        home, placed = self.network.home, self.placement.devices
        given: dict[int, tuple[Any, ...]] = {}
        there: dict[tuple[int, str], Any] = {}
        start = time.perf_counter()
        for what in self._schedule():
            begun = time.perf_counter()
            if isinstance(what, int):
                step, name, where = self.graph.steps[what], self.graph.steps[what].name, placed[what]
                if where not in step.calls:
                    raise InputError(f"step {name!r} has nothing to call on {where}; give Step(calls=...)")
                read = (there[self.graph.number[earlier], where] for earlier in step.after)
                there[what, where] = step.calls[where](*(read if step.after else given.get(what, operands)))
            else:
                name, where = what.name, f"{what.source} to {what.target}"
                links = self.network.route(what.source, what.target, what.size_bytes)
                if what.of is not None:
                    there[what.of, what.target] = _moved(there[what.of, what.source], links)
                elif self.graph.steps[what.reader].after:
                    continue
                else:
                    given[what.reader] = tuple(_moved(value, links) for value in operands)
            if observe is not None:
                observe(Event(name, where, begun - start, time.perf_counter() - begun))
        finals = [there[k, home] for k, readers in enumerate(self.graph.readers) if not readers]
        return finals[0] if len(finals) == 1 else tuple(finals)

    def _schedule(self) -> Iterator["int | _Move"]:
        """Yield steps and moves in the order in which they happen; a result goes to a device once."""
        home, placed = self.network.home, self.placement.devices
        there = set(enumerate(placed))
        for number, step in enumerate(self.graph.steps):
            here = placed[number]
            if step.given_bytes and here != home:
                yield _Move(f"for {step.name}", None, number, home, here, step.given_bytes)
            for name in step.after:
                of = self.graph.number[name]
                if (of, here) not in there:
                    there.add((of, here))
                    yield _Move(name, of, number, placed[of], here, self.graph.steps[of].result_bytes)
            yield number
            if not self.graph.readers[number] and here != home:
                yield _Move(step.name, number, number, here, home, step.result_bytes)


def _moved(value: Any, links: Sequence[Link]) -> Any:
    for link in links:
        value = value if link.move is None else link.move(value)
    return value


def replay(graph: StepGraph, engines: Mapping[str, int] | None = None, gap_s: float = 0.0) -> list[Event]:
    """Return when each step runs if devices work side by side (CDMPP, Algorithm 2), in order of their beginnings.

    A device, or each of its engines, runs one step after the other, those first that were ready first. A step is ready when
    all that it reads is there; moving results takes no time. The device that can start
    earliest starts next, so that no step starts before one that is ready earlier; the paper takes the device that
    finished first.

    Args:
        graph: each of its steps with its seconds on the one device on which it runs.
        engines: device -> number of steps that it runs concurrently; 1 for a device that is not given.
        gap_s: seconds between two steps of an engine, such as the overhead of a call.

    Raises:
        InputError: a step has several devices, or a device no engine.

    >>> from tensorwise.plan import Step
    >>> a, b, c = Step("a", {"cpu": 1.0}), Step("b", {"cpu": 2.0}, after=("a",)), Step("c", {"cpu": 2.0}, after=("a",))
    >>> fork = StepGraph((a, b, c))
    >>> [event.start_s for event in replay(fork)], [event.start_s for event in replay(fork, {"cpu": 2})]
    ([0.0, 1.0, 3.0], [0.0, 1.0, 1.0])
    """
    given = {name: (count, min(count, len(graph.steps))) for name, count in (engines or {}).items()}
    waiting: dict[str, list[tuple[float, int]]] = {}
    free: dict[str, list[float]] = {}
    where: list[str] = []
    for step in graph.steps:
        if len(step.seconds) != 1:
            raise InputError(f"step {step.name!r} has {len(step.seconds)} devices; place the graph first")
        (device,) = step.seconds
        where.append(device)
        waiting[device] = []
        free[device] = [0.0] * given.get(device, (1, 1))[1]  # no more than can have something to do
        if not free[device]:
            raise InputError(f"device {device} has no engine")
    missing = [len({graph.number[name] for name in step.after}) for step in graph.steps]
    ready = [0.0] * len(graph.steps)
    for number, count in enumerate(missing):
        if not count:
            heapq.heappush(waiting[where[number]], (0.0, number))
    events: list[Event] = []
    while any(waiting.values()):
        start, device = min(
            (max(min(free[device]), queue[0][0]), device) for device, queue in waiting.items() if queue
        )
        _, number = heapq.heappop(waiting[device])
        engine = free[device].index(min(free[device]))
        seconds = graph.steps[number].seconds[device]
        lane = device if given.get(device, (1, 1))[0] == 1 else f"{device} {engine + 1}"
        events.append(Event(graph.steps[number].name, lane, start, seconds))
        free[device][engine] = start + seconds + gap_s
        for reader in graph.readers[number]:
            missing[reader] -= 1
            ready[reader] = max(ready[reader], start + seconds)
            if not missing[reader]:
                heapq.heappush(waiting[where[reader]], (ready[reader], reader))
    return events


def chrome_trace(events: Sequence[Event]) -> str:
    """Return events as JSON that chrome://tracing and Perfetto show; a lane for each device and link."""
    lanes = {where: lane for lane, where in enumerate(dict.fromkeys(event.where for event in events))}
    named: list[dict[str, Any]] = [
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": lane, "args": {"name": where}}
        for where, lane in lanes.items()
    ]
    took = [
        {
            "name": event.name, "ph": "X", "pid": 1, "tid": lanes[event.where],
            "ts": event.start_s * 1e6, "dur": event.seconds * 1e6,
        }
        for event in events
    ]  # fmt: skip
    return json.dumps({"traceEvents": named + took, "displayTimeUnit": "ms"}, indent=1, allow_nan=False)


__getattr__ = forward_names(__name__, {"Plan": f"{__name__}:PlacementPlan"})
