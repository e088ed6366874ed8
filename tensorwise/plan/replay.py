"""Plan: a graph placed on devices. It runs, and says when what happens where."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from tensorwise.errors import InputError
from tensorwise.plan.graph import Graph, Link, Network
from tensorwise.plan.place import Placement, place


@final
@dataclass(frozen=True)
class Event:
    """Something that takes place.

    Attributes:
        name: of the step, or of what is moved for it.
        where: a device, or ``SOURCE to TARGET``.
        start_s: seconds after the beginning.
        seconds: how long.
    """

    name: str
    where: str
    start_s: float
    seconds: float


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
class Plan:
    """Steps one after the other, each on its device.

    Attributes:
        graph, network: what was placed, and where.
        placement: the answer; `Plan.best` finds it.
    """

    graph: Graph
    network: Network
    placement: Placement

    @classmethod
    def best(cls, graph: Graph, network: Network) -> "Plan":
        """Return the plan that takes least; see ``place``."""
        return cls(graph, network, place(graph, network))

    @classmethod
    def single(cls, graph: Graph, network: Network, device: str) -> "Plan":
        """Return the plan that runs everything on one device: what a placement has to beat.

        Raises:
            InputError: some step cannot run there.
        """
        if missing := [step.name for step in graph.steps if device not in step.seconds]:
            raise InputError(f"step {missing[0]!r} cannot run on {device}")
        alone = tuple(replace(step, seconds={device: step.seconds[device]}) for step in graph.steps)
        return cls(graph, network, place(Graph(alone), network))

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
            operands: what each step is called with that reads no other step; moved to its device if it has
                ``given_bytes``. What other steps are given besides, their callables bring themselves.
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
