"""A network from what its tasks take."""

import pytest

from tensorwise.plan import lasts, replay
from tensorwise.plan.predicted import IN_A_NETWORK, steps
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
