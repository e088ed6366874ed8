"""Plans run as they were placed, and say so."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.errors import InputError
from tensorwise.plan import Event, Link, Network, PlacementPlan, Step, StepGraph, chrome_trace, replay
from tensorwise.space.versions import Version, Versions
from tests.unit.plan.test_place import random_graph

MOVED: list[str] = []


def moving(target: str):  # type: ignore[no-untyped-def]
    def move(value: object) -> object:
        MOVED.append(target)
        return value

    return move


NETWORK = Network(
    ("cpu", "gpu"),
    (Link("cpu", "gpu", 1.0, 10.0, moving("gpu")), Link("gpu", "cpu", 1.0, 10.0, moving("cpu"))),
)


def graph() -> StepGraph:
    """(x + 1) on the GPU, where it is quick; its double and its square; their sum, which only the CPU can do."""
    both = {"cpu": 9.0, "gpu": 0.5}
    return StepGraph(
        (
            Step("more", both, 10.0, given_bytes=10.0, calls=dict.fromkeys(both, lambda x: x + 1)),
            Step("double", both, 10.0, ("more",), calls=dict.fromkeys(both, lambda x: 2 * x)),
            Step("square", both, 10.0, ("more",), calls=dict.fromkeys(both, lambda x: x * x)),
            Step("add", {"cpu": 1.0}, 10.0, ("double", "square"), calls={"cpu": lambda a, b: a + b}),
        )
    )


def test_a_plan_computes_what_its_steps_do() -> None:
    MOVED.clear()
    plan = PlacementPlan.best(graph(), NETWORK)
    assert plan.placement.devices == ("gpu", "gpu", "gpu", "cpu")
    events: list[Event] = []
    assert plan.run(3.0, observe=events.append) == 2 * 4 + 4 * 4
    assert MOVED == ["gpu", "cpu", "cpu"]
    assert [(event.name, event.where) for event in events] == [
        (event.name, event.where) for event in plan.timeline()
    ]
    assert all(event.seconds >= 0 for event in events)


def test_a_timeline_takes_what_was_predicted() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        made, network = random_graph(rng, int(rng.integers(1, 7)), int(rng.integers(1, 4)))
        plan = PlacementPlan.best(made, network)
        events = plan.timeline()
        assert sum(event.seconds for event in events) == pytest.approx(plan.placement.seconds)
        ends = [event.start_s + event.seconds for event in events]
        assert all(a <= b.start_s + 1e-9 for a, b in zip(ends, events[1:]))


def test_one_device_for_all_is_never_better() -> None:
    both = StepGraph(graph().steps[:3])
    plans = [PlacementPlan.single(both, NETWORK, device) for device in NETWORK.devices]
    assert [set(plan.placement.devices) for plan in plans] == [{"cpu"}, {"gpu"}]
    assert PlacementPlan.best(both, NETWORK).placement.seconds <= min(
        plan.placement.seconds for plan in plans
    )
    assert plans[0].placement.seconds == 27
    assert plans[1].placement.seconds == 1.5 + 3 * 2
    with pytest.raises(InputError, match="'add' cannot run on gpu"):
        PlacementPlan.single(graph(), NETWORK, "gpu")


def test_several_results_are_a_tuple() -> None:
    plan = PlacementPlan.best(StepGraph(graph().steps[:3]), NETWORK)
    assert plan.run(3.0) == (8.0, 16.0)


def test_a_step_without_a_callable_is_said() -> None:
    plan = PlacementPlan.best(StepGraph((Step("one", {"cpu": 1.0}),)), NETWORK)
    with pytest.raises(InputError, match="'one' has nothing to call on cpu"):
        plan.run()


def test_a_step_takes_the_fastest_version_of_each_device() -> None:
    listed = [
        Version("slow", lambda x: x), Version("quick", lambda x: x + 1), Version("there", lambda x: x + 2, "gpu"),
        Version("broken", lambda x: x, "npu"),
    ]  # fmt: skip
    space = Versions.of("f", listed, lambda x: (x,), {"x": "1"})
    step = Step.of("f1", space, [3.0, 2.0, 1.0, np.inf], result_bytes=5.0)
    assert step.seconds == {"cpu": 2.0, "gpu": 1.0}
    assert [step.calls[device](0) for device in ("cpu", "gpu")] == [1, 2]
    assert step.result_bytes == 5.0


def test_a_trace_has_a_lane_for_each_device_and_link() -> None:
    events = PlacementPlan.best(graph(), NETWORK).timeline()
    told = json.loads(chrome_trace(events))["traceEvents"]
    lanes = {one["args"]["name"]: one["tid"] for one in told if one["ph"] == "M"}
    assert set(lanes) == {"cpu", "gpu", "cpu to gpu", "gpu to cpu"}
    took = [one for one in told if one["ph"] == "X"]
    assert [one["name"] for one in took] == [event.name for event in events]
    for one, event in zip(took, events, strict=True):  # in microseconds
        assert (one["ts"], one["dur"]) == pytest.approx((1e6 * event.start_s, 1e6 * event.seconds))


@st.composite
def placed_graphs(draw: st.DrawFn) -> StepGraph:
    """Steps that read some of those before them, each on one of two devices."""
    steps: list[Step] = []
    for place in range(draw(st.integers(1, 12))):
        read = draw(st.lists(st.integers(0, place - 1), max_size=3, unique=True)) if place else []
        device = draw(st.sampled_from(["cpu", "gpu"]))
        seconds = draw(st.integers(0, 9))
        steps.append(Step(str(place), {device: float(seconds)}, after=tuple(map(str, read))))
    return StepGraph(tuple(steps))


@settings(max_examples=100, deadline=None)
@given(placed_graphs(), st.integers(1, 3), st.sampled_from([0.0, 0.5]))
def test_a_replay_keeps_to_the_graph_and_to_the_engines(graph: StepGraph, engines: int, gap_s: float) -> None:
    events = replay(graph, {"cpu": engines}, gap_s)
    assert sorted(event.name for event in events) == sorted(step.name for step in graph.steps)
    assert [event.start_s for event in events] == sorted(event.start_s for event in events)
    by_name = {event.name: event for event in events}
    for step in graph.steps:
        for read in step.after:
            assert by_name[step.name].start_s >= by_name[read].start_s + by_name[read].seconds
    lanes: dict[str, list[Event]] = {}
    for event in events:
        lanes.setdefault(event.where, []).append(event)
    assert len([lane for lane in lanes if lane.startswith("cpu")]) <= engines
    for lane in lanes.values():
        for first, second in itertools.pairwise(lane):
            assert second.start_s >= first.start_s + first.seconds + gap_s
    # Never slower than one after the other, never faster than the longest way through the graph.
    longest: dict[str, float] = {}
    for step in graph.steps:
        longest[step.name] = sum(step.seconds.values()) + max(
            (longest[name] for name in step.after), default=0.0
        )
    total = max(event.start_s + event.seconds for event in events)
    alone = sum(sum(step.seconds.values()) + gap_s for step in graph.steps)
    assert max(longest.values()) <= total <= alone


def test_a_chain_takes_the_sum() -> None:
    steps = tuple(Step(str(k), {"cpu": 0.5}, after=(str(k - 1),) if k else ()) for k in range(8))
    last = replay(StepGraph(steps), {"cpu": 3})[-1]
    assert last.start_s + last.seconds == 4.0


def test_a_replay_needs_a_device_for_each_step_and_engines() -> None:
    with pytest.raises(InputError, match="2 devices"):
        replay(StepGraph((Step("a", {"cpu": 1.0, "gpu": 1.0}),)))
    with pytest.raises(InputError, match="no engine"):
        replay(StepGraph((Step("a", {"cpu": 1.0}),)), {"cpu": 0})


def test_engines_without_anything_to_do_take_no_memory() -> None:
    steps = StepGraph(tuple(Step(f"{place}", {"cpu": 1.0}) for place in range(3)))
    many = replay(steps, {"cpu": 10**12})  # a list of so many would not fit
    assert many == replay(steps, {"cpu": 3})
    assert [event.where for event in replay(StepGraph(steps.steps[:1]), {"cpu": 2})] == ["cpu 1"]
