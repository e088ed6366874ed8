"""What a neural network takes, from what a latency model says of its programs (CDMPP, section 5.5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from tensorwise.device.hardware import Hardware
from tensorwise.errors import InputError
from tensorwise.features.ast import CompactAst
from tensorwise.model.latency import LatencyModel
from tensorwise.plan.graph import Graph, Step
from tensorwise.plan.replay import Event, lasts, replay
from tensorwise.tasks.cutting import TaskGraph


@final
@dataclass(frozen=True)
class NetworkLatency:
    """What a network is predicted to take.

    Attributes:
        network, batch, device: of what.
        seconds: of a run; low, high: if all its programs took what their intervals begin and end with; NaN where the model
            has none.
        events: when which program runs.
        chosen: task -> the number of its program that is predicted to be the fastest: the one that runs.
    """

    network: str
    batch: int
    device: str
    seconds: float
    low: float
    high: float
    events: tuple[Event, ...]
    chosen: Mapping[str, int]


def predicted(
    graph: TaskGraph,
    programs: Mapping[str, Sequence[CompactAst]],
    model: LatencyModel,
    hardware: Hardware,
    *,
    engines: int = 1,
    gap_s: float = 0.0,
) -> NetworkLatency:
    """Return what a network takes if each of its tasks runs the program that is predicted to be the fastest.

    Args:
        graph: the network.
        programs: task -> its programs.
        engines: programs that the device runs at once; gap_s: between two of an engine.

    Raises:
        InputError: a task has no program.
    """
    tasks = list(graph.multiplicity)
    if missing := [task for task in tasks if not programs.get(task)]:
        raise InputError(f"{len(missing)} of {len(tasks)} tasks of {graph.name} have no program")
    said = model.latencies([ast for task in tasks for ast in programs[task]], hardware)
    chosen, of, begin = {}, {}, 0
    for task in tasks:
        end = begin + len(programs[task])
        chosen[task] = int(np.argmin(said.seconds[begin:end]))
        place = begin + chosen[task]
        of[task] = tuple(float(which[place]) for which in (said.seconds, said.low, said.high))
        begin = end
    seconds, low, high = (
        replay(
            steps(graph, hardware.name, {task: row[which] for task, row in of.items()}),
            {hardware.name: engines},
            gap_s,
        )
        if np.isfinite([row[which] for row in of.values()]).all()
        else []
        for which in range(3)
    )
    took_s, least_s, most_s = (lasts(events) if events else float("nan") for events in (seconds, low, high))
    return NetworkLatency(
        graph.name, graph.batch, hardware.name, took_s, least_s, most_s, tuple(seconds), chosen
    )


def steps(graph: TaskGraph, device: str, seconds: Mapping[str, float]) -> Graph:
    """Return a network as steps on one device, whose tasks take so many seconds, by id."""
    names = [f"{place} {node.name}" for place, node in enumerate(graph.nodes)]
    return Graph(
        tuple(
            Step(name, {device: seconds[node.task]}, node.result_bytes, tuple(names[before] for before in node.after))
            for name, node in zip(names, graph.nodes, strict=True)
        )
    )  # fmt: skip
