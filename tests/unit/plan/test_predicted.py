"""A network from what its tasks take."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from tensorwise.device.hardware import described
from tensorwise.errors import InputError
from tensorwise.model.latency import Latencies
from tensorwise.plan import lasts, replay
from tensorwise.plan.predicted import IN_A_NETWORK, predicted, steps
from tensorwise.tasks.cutting import Node, TaskGraph

GRAPH = TaskGraph(
    "net", 1, (Node("a", "dense", (), 64), Node("b", "relu", (0,), 64), Node("a", "dense", (1,), 8))
)


def test_a_network_takes_what_its_tasks_take() -> None:
    events = replay(steps(GRAPH, "here", {"a": 2.0, "b": 0.5}, "cpu"))
    assert [(event.name, event.seconds) for event in events] == [
        ("0 dense", 2.0),
        ("1 relu", 0.5),
        ("2 dense", 2.0),
    ]
    assert lasts(events) == 4.5


def test_programs_for_gpus_were_timed_with_warmer_caches() -> None:
    events = replay(steps(GRAPH, "there", {"a": 2.0, "b": 0.5}, "gpu"))
    assert lasts(events) == pytest.approx(IN_A_NETWORK["gpu"] * 4.5)
    assert lasts(events) > 4.6


@dataclass(frozen=True)
class Says:
    """A latency model whose programs are their seconds, 20 % of them in common, and of which the median is at ``level``."""

    level: float = 1.0
    devices: ClassVar = {"H100": described()["H100"]}
    reads_code: ClassVar = False
    card: ClassVar = {}

    def latencies(self, programs: Sequence[float], hardware: Any) -> Latencies:
        seconds = np.array(programs)
        return Latencies(seconds, seconds / 1.5, seconds * 1.5, 0.2, self.level)


def test_the_fastest_program_of_each_task_runs_at_the_level_of_the_median() -> None:
    """Relative errors are least below the median; what many programs take together is ``level`` times as much."""
    programs: Any = {"a": [3.0, 2.0, 2.5], "b": [0.5, 0.75]}
    hardware = described()["H100"]
    plain, levelled = (predicted(GRAPH, programs, Says(level), hardware) for level in (1.0, 1.25))  # type: ignore[arg-type]
    assert plain.chosen == levelled.chosen == {"a": 1, "b": 0}
    assert plain.seconds == pytest.approx(IN_A_NETWORK["gpu"] * 4.5)
    assert levelled.seconds == pytest.approx(1.25 * plain.seconds)
    for one in (plain, levelled):
        assert one.low < one.seconds < one.high
        assert one.high / one.seconds == pytest.approx(one.seconds / one.low)
        assert one.high / one.seconds < 1.5  # what programs do not have in common cancels in part


def test_a_task_without_a_program_is_named() -> None:
    with pytest.raises(InputError, match="1 of 2 tasks of net have no program"):
        predicted(GRAPH, {"a": [1.0]}, Says(), described()["H100"])  # type: ignore[arg-type, list-item]
