"""What a neural network takes, from what a latency model says of its programs (CDMPP, section 5.5)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tensorwise.analysis.ast import CompactAst
from tensorwise.device.hardware import Hardware, Kind
from tensorwise.errors import InputError
from tensorwise.model.latency import LatencyModel
from tensorwise.plan.doubts import MOST, doubts
from tensorwise.plan.graph import Step, StepGraph
from tensorwise.plan.replay import Event, lasts, replay
from tensorwise.tasks.cutting import TaskGraph

IN_A_NETWORK: Final[Mapping[Kind, float]] = {"cpu": 1.0, "gpu": 1.12, "accelerator": 1.0}
"""What a program takes between a network's others over what it takes alone, by kind of device.

Programs for GPUs are timed again and again on the same operands, which stay in the caches; those for CPUs after their
operands were thrown out. The median over 37 networks on an H100 (1.10 on an H200), without those that models are judged
by (decision 0124).
"""


@final
@dataclass(frozen=True)
class NetworkLatency:
    """What a network is predicted to take.

    Attributes:
        network, batch, device: of what.
        seconds: of a run; low, high: ends of its interval, see `Latencies.together`; NaN where the model has none.
        events: when which program runs.
        chosen: task -> the number of its program that is predicted to be the fastest: the one that runs.
        left_out: operators that are no tasks, so that their time is missing in ``seconds``; ``high`` is infinite then.
        doubts: why the interval is wider than the model's own (see `tensorwise.plan.doubts`).
        covers: share of held-out networks whose summed times lay within the model's intervals; None: never evaluated.
    """

    network: str
    batch: int
    device: str
    seconds: float
    low: float
    high: float
    events: tuple[Event, ...]
    chosen: Mapping[str, int]
    left_out: str = ""
    doubts: tuple[str, ...] = ()
    covers: float | None = None


def predicted(
    graph: TaskGraph,
    programs: Mapping[str, Sequence[CompactAst]],
    model: LatencyModel,
    hardware: Hardware,
    *,
    engines: int = 1,
    gap_s: float = 0.0,
) -> NetworkLatency:
    """Return the run time of a network whose tasks each run the program with the fastest prediction.

    Args:
        graph: the network.
        programs: task -> its programs.
        engines: programs that the device runs concurrently; gap_s: seconds between two programs of an engine.

    Raises:
        InputError: a task has no program.
    """
    tasks = list(graph.multiplicity)
    if missing := [task for task in tasks if not programs.get(task)]:
        raise InputError(f"{len(missing)} of {len(tasks)} tasks of {graph.name} have no program")
    said = model.latencies([ast for task in tasks for ast in programs[task]], hardware)
    chosen, places = dict[str, int](), dict[str, int]()
    begin = 0
    for task in tasks:
        end = begin + len(programs[task])
        places[task] = begin + int(np.argmin(said.seconds[begin:end]))
        chosen[task], begin = places[task] - begin, end
    times = {task: said.level * float(said.seconds[place]) for task, place in places.items()}
    events = replay(steps(graph, hardware.name, times, hardware.kind), {hardware.name: engines}, gap_s)
    took_s = lasts(events)
    one_by_one = said.together(list(places.values()), [graph.multiplicity[task] for task in tasks])
    unsure = doubts(graph, [programs[task][place] for task, place in chosen.items()], model, hardware)
    wider = min(math.prod(unsure.values()), MOST)
    low, high = (took_s * (end / one_by_one[0]) ** wider for end in one_by_one[1:])
    return NetworkLatency(
        graph.name, graph.batch, hardware.name, took_s, low, math.inf if graph.unlowered else high, tuple(events), chosen,
        graph.left_out, tuple(unsure), covered_networks(model),
    )  # fmt: skip


def covered_networks(model: LatencyModel) -> float | None:
    """Return the share of held-out networks' times that lay within the model's intervals; None where nobody looked.

    For an adapted model it is not known, since its card was written before the adaptation.
    """
    held = None if "adapted" in model.card else model.card.get("judged")
    summed = held.get("together") if isinstance(held, Mapping) else None
    share = summed.get("covered") if isinstance(summed, Mapping) else None
    return share if isinstance(share, float) else None


def steps(graph: TaskGraph, device: str, seconds: Mapping[str, float], kind: Kind) -> StepGraph:
    """Return a network as steps on one device of a kind, whose tasks take so many seconds alone, by id."""
    names = [f"{place} {node.name}" for place, node in enumerate(graph.nodes)]
    return StepGraph(
        tuple(
            Step(
                name,
                {device: IN_A_NETWORK[kind] * seconds[node.task]},
                node.result_bytes,
                tuple(names[before] for before in node.after),
            )
            for name, node in zip(names, graph.nodes, strict=True)
        )
    )
