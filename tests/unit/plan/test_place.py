"""Placements against every placement there is."""

import importlib
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.errors import CompilerError, InputError
from tensorwise.plan import Link, Network, Step, StepGraph, place
from tensorwise.plan import chain as module
from tensorwise.plan.chain import place_chain, place_chain_plain, shortest_path
from tensorwise.plan.place import total_s

placing = importlib.import_module("tensorwise.plan.place")  # its name in the package is the function's


def random_chain(rng: np.random.Generator, steps: int, devices: int) -> tuple[np.ndarray, np.ndarray]:
    """Times of like size, so that moving pays now and then; small integers, so that sums are exact and ties occur."""
    cost = rng.integers(0, 20, (steps, devices)).astype(float)
    move = rng.integers(0, 20, (steps - 1, devices, devices)).astype(float)
    move[:, range(devices), range(devices)] = 0
    cost[rng.random(cost.shape) < 0.05] = np.inf
    cost[:, 0] = np.where(np.isfinite(cost).any(axis=1), cost[:, 0], 1.0)
    return cost, move


def brute_force(cost: np.ndarray, move: np.ndarray) -> float:
    """Least seconds of all placements, found by trying them all: (devices**steps) rows at once."""
    steps, devices = cost.shape
    every = np.indices((devices,) * steps, np.int8).reshape(steps, -1)
    total = cost[0][every[0]]
    for step in range(1, steps):
        total = total + (move[step - 1][every[step - 1], every[step]] + cost[step][every[step]])
    return float(total.min())


def chain_s(cost: np.ndarray, move: np.ndarray, placed: Any) -> float:
    moved = sum(move[k, placed[k], placed[k + 1]] for k in range(len(move)))
    return float(cost[range(len(cost)), placed].sum() + moved)


def test_ten_thousand_chains_against_all_their_placements() -> None:
    rng = np.random.default_rng(0)
    lengths = 1 + 11 * rng.power(0.6, 10_000)  # few long ones: 3**12 placements take a while
    for length in lengths.round().astype(int):
        cost, move = random_chain(rng, int(length), int(rng.integers(1, 4)))
        expected = brute_force(cost, move)
        placed, total = place_chain(cost, move)
        assert total == expected
        assert chain_s(cost, move, placed) == expected


@pytest.mark.parametrize("seed", range(100))
def test_plain_compiled_and_path_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cost, move = random_chain(rng, int(rng.integers(1, 60)), int(rng.integers(1, 6)))
    placed, total = place_chain(cost, move)
    assert (placed.tolist(), total) == place_chain_plain(cost, move)
    along, length = shortest_path(cost, move)
    assert length == total == chain_s(cost, move, along)


def test_without_a_compiler_chains_are_placed_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise CompilerError("none here")

    monkeypatch.setattr(module, "default_cache", none)
    cost, move = random_chain(np.random.default_rng(1), 9, 3)
    assert place_chain(cost, move)[1] == brute_force(cost, move)


def test_moves_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="expected moves"):
        place_chain(np.zeros((3, 2)), np.zeros((3, 2, 2)))


def random_graph(rng: np.random.Generator, steps: int, devices: int) -> tuple[StepGraph, Network]:
    names = tuple(f"d{k}" for k in range(devices))
    links = tuple(
        Link(a, b, float(rng.integers(0, 5)), float(rng.integers(1, 10)))
        for a in names
        for b in names
        if a != b and (rng.random() < 0.8 or "d0" in (a, b))
    )
    made = []
    for number in range(steps):
        earlier = rng.permutation(number)[: rng.integers(0, 3)]
        allowed = [name for name in names if rng.random() < 0.8] or ["d0"]
        seconds = {name: float(rng.integers(0, 30)) for name in allowed}
        result_bytes, given_bytes = (float(size) for size in rng.integers(0, 60, 2))
        after = tuple(f"s{k}" for k in earlier)
        made.append(Step(f"s{number}", seconds, result_bytes, after, given_bytes * rng.integers(0, 2)))
    return StepGraph(tuple(made)), Network(names, links)


def least(graph: StepGraph, network: Network) -> float:
    cost, move = graph.costs(network)
    every = itertools.product(range(len(network.devices)), repeat=len(graph.steps))
    return min(total_s(graph, cost, move, np.array(placed)) for placed in every)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_graphs_against_all_their_placements(seed: int, steps: int, devices: int) -> None:
    graph, network = random_graph(np.random.default_rng(seed), steps, devices)
    found = place(graph, network)
    assert found.seconds == pytest.approx(least(graph, network))
    assert found.gap == pytest.approx(0, abs=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.sampled_from([4, 9, 27]))
@settings(max_examples=60, deadline=None)
def test_with_small_tables_the_bound_holds(seed: int, steps: int, most_entries: int) -> None:
    graph, network = random_graph(np.random.default_rng(seed), steps, 2 if most_entries == 4 else 3)
    found = place(graph, network, most_entries=most_entries)
    best = least(graph, network)
    assert found.bound_s <= best * (1 + 1e-12) <= found.seconds * (1 + 1e-9)
    assert found.gap >= 0


def test_a_large_entangled_graph_has_a_finite_gap() -> None:
    rng = np.random.default_rng(3)
    steps = [
        Step(
            f"s{k}", {"a": float(rng.uniform(1, 2)), "b": float(rng.uniform(1, 2))}, 0.2,
            tuple(f"s{j}" for j in sorted(rng.permutation(k)[:3])),
        )
        for k in range(80)
    ]  # fmt: skip
    network = Network(("a", "b"), (Link("a", "b", 0.0, 1.0), Link("b", "a", 0.0, 1.0)))
    found = place(StepGraph(tuple(steps)), network, most_entries=2**8)
    assert 0 < found.gap < 0.5
    assert found.seconds <= min(sum(step.seconds[device] for step in steps) for device in "a") * 1.001


def test_a_long_graph_with_narrow_branches_is_exact() -> None:
    """A residual network: each block reads the one before it twice."""
    rng = np.random.default_rng(4)
    steps: list[Step] = []
    for k in range(100):
        before = (steps[-1].name,) if steps else ()
        for name, after in ((f"a{k}", before), (f"b{k}", (f"a{k}",)), (f"add{k}", (f"b{k}", *before))):
            times = {"cpu": float(rng.uniform(1, 9)), "gpu": float(rng.uniform(1, 9))}
            steps.append(Step(name, times, float(rng.uniform(0, 9)), after, 0.0 if after else 5.0))
    network = Network(("cpu", "gpu"), (Link("cpu", "gpu", 0.1, 4.0), Link("gpu", "cpu", 0.1, 4.0)))
    found = place(StepGraph(tuple(steps)), network)
    assert found.gap == pytest.approx(0, abs=1e-9)
    assert len(set(found.devices)) == 2


def test_one_device_and_many_readers() -> None:
    steps = [
        Step("make", {"cpu": 1.0}, 8.0),
        *(Step(f"use{k}", {"cpu": 1.0}, 1.0, ("make",)) for k in range(100)),
    ]
    assert place(StepGraph(tuple(steps)), Network(("cpu",))).seconds == 101


def test_a_step_that_can_run_nowhere_is_refused() -> None:
    network = Network(("cpu", "gpu"))  # no links
    with pytest.raises(InputError, match="no placement"):
        place(StepGraph((Step("one", {"gpu": 1.0}, 1.0),)), network)
    with pytest.raises(InputError, match="no device"):
        place(StepGraph((Step("one", {"tpu": 1.0}),)), network)


def test_a_transfer_is_paid_for_once_a_device() -> None:
    steps = (
        Step("make", {"cpu": 1.0}, 8.0),
        Step("left", {"gpu": 1.0}, 0.0, ("make",)),
        Step("right", {"gpu": 1.0}, 0.0, ("make",)),
    )
    network = Network(("cpu", "gpu"), (Link("cpu", "gpu", 1.0, 4.0), Link("gpu", "cpu")))
    assert place(StepGraph(steps), network).seconds == pytest.approx(3 + (1 + 8 / 4))


def test_the_quicker_link_or_way_is_taken() -> None:
    network = Network(
        ("cpu", "g1", "g2"),
        (
            Link("cpu", "g1", 1.0, 1.0), Link("cpu", "g1", 5.0, 100.0), Link("g1", "g2", 0.5, 10.0),
            Link("cpu", "g2", 100.0, 1.0),
        ),
    )  # fmt: skip
    sizes = np.array([1.0, 100.0])
    seconds = network.transfer_s(sizes)
    assert seconds[:, 0, 1].tolist() == [2.0, 6.0]
    assert seconds[:, 0, 2].tolist() == pytest.approx([2.6, 16.5])
    assert seconds[:, 1, 1].tolist() == [0.0, 0.0]
    assert math.isinf(seconds[0, 2, 0])
    for size, total in zip(sizes.tolist(), seconds[:, 0, 2].tolist(), strict=True):
        route = network.route("cpu", "g2", size)
        assert [link.target for link in route] == ["g1", "g2"]
        assert sum(link.seconds(size) for link in route) == pytest.approx(total)
    with pytest.raises(InputError, match="no way from g2 to cpu"):
        network.route("g2", "cpu", 1.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: StepGraph(()), "needs a step"),
        (lambda: StepGraph((Step("a", {"cpu": 1.0}), Step("a", {"cpu": 1.0}))), "two steps are called 'a'"),
        (lambda: StepGraph((Step("a", {"cpu": 1.0}, after=("b",)),)), "no step before it"),
        (lambda: Step("a", {}), "needs seconds"),
        (lambda: Step("a", {"cpu": -1.0}), "negative"),
        (lambda: Link("a", "b", -1.0), "negative"),
        (lambda: Network(("a", "a")), "different names"),
        (lambda: Network(("a",), (Link("a", "b"),)), "'b', which is no device"),
    ],
)
def test_what_is_malformed_is_refused(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_a_single_byte_that_is_brought_pays_for_its_link() -> None:
    network = Network(("cpu", "gpu"), (Link("cpu", "gpu", 3.0, 1.0), Link("gpu", "cpu")))
    for size, seconds in ((0.0, 1.0), (1.0, 5.0), (2.0, 6.0)):
        assert place(
            StepGraph((Step("one", {"gpu": 1.0}, given_bytes=size),)), network
        ).seconds == pytest.approx(seconds)


def test_what_is_too_large_is_refused_with_the_limit() -> None:
    names = tuple(f"d{k}" for k in range(129))
    with pytest.raises(InputError, match=r"129 devices and 0 links .* at most 128 devices and 16384 links"):
        Network(names)
    with pytest.raises(InputError, match="at most 128 devices and 16384 links"):
        Network(("a", "b"), (Link("a", "b"),) * (128**2 + 1))
    chain = [Step("0", {"d0": 1.0})]
    chain += [Step(str(k), {"d0": 1.0}, after=(str(k - 1),)) for k in range(1, 300)]
    with pytest.raises(InputError, match=r"300 steps that read 299 results, on 128 devices, are too many"):
        place(StepGraph(tuple(chain)), Network(names[:128]))
    assert place(StepGraph(tuple(chain[:200])), Network(names[:128])).seconds == 200.0
    dense = [Step(str(k), {"a": 1.0}, after=tuple(map(str, range(k)))) for k in range(400)]
    with pytest.raises(InputError, match=r"400 steps that read 79800 results, .* at most 65536 of both"):
        place(StepGraph(tuple(dense)), Network(("a",)))


def test_tables_of_a_whole_graph_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the room for tables is spent, what is left is placed with small ones: the bound is looser, and holds."""
    rng = np.random.default_rng(0)
    steps = [
        Step(str(k), {"a": rng.random(), "b": rng.random()}, 1.0, tuple(map(str, range(max(0, k - 6), k))))
        for k in range(60)
    ]
    network = Network(("a", "b"), (Link("a", "b", 0.1), Link("b", "a", 0.1)))
    exact = place(StepGraph(tuple(steps)), network)
    sizes: list[int] = []
    made = placing._added
    monkeypatch.setattr(
        placing, "_added", lambda *given: sizes.append((found := made(*given))[1].size) or found
    )
    place(StepGraph(tuple(steps)), network)
    freely = sum(sizes)
    sizes.clear()
    monkeypatch.setattr(placing, "MOST_TABLES", 500)
    found = place(StepGraph(tuple(steps)), network)
    assert sum(sizes) < freely / 2
    assert found.bound_s <= exact.bound_s <= exact.seconds <= found.seconds


def test_a_result_that_thousands_read_is_placed() -> None:
    """What a step costs given the others is found without looking at all readers of all that it reads."""
    readers = tuple(Step(f"r{k}", {"a": 1.0, "b": 0.5}, after=("hub",)) for k in range(4000))
    network = Network(("a", "b"), (Link("a", "b", 1.0), Link("b", "a", 1.0)))
    found = place(StepGraph((Step("hub", {"a": 1.0, "b": 2.0}, 1.0), *readers)), network)
    assert found.seconds <= 4002.0
